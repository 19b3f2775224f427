"""Failures as Iceberg's REST specification words them.

    {"error": {"message": "there is no table 'shop.orders'", "type": "NoSuchTableException",
               "code": 404}}

Clients decide by the code and the type what to raise: a commit that is refused because the table
moved must be a 409, and one whose outcome is unknown a 5xx, which no client repeats blindly.
"""

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from neve.errors import (
    AlreadyExists,
    Closed,
    Conflict,
    Corruption,
    Fenced,
    LimitExceeded,
    NeveError,
    NotFound,
    NotPublished,
    OutcomeUnknown,
    Unavailable,
)

BAD_REQUEST: Final = "BadRequestException"
NO_TABLE: Final = "NoSuchTableException"
NO_NAMESPACE: Final = "NoSuchNamespaceException"
NO_VIEW: Final = "NoSuchViewException"
NOT_EMPTY: Final = "NamespaceNotEmptyException"
EXISTS: Final = "AlreadyExistsException"
COMMIT_FAILED: Final = "CommitFailedException"
UNKNOWN_STATE: Final = "CommitStateUnknownException"
UNSUPPORTED: Final = "UnsupportedOperationException"
NOT_AUTHORIZED: Final = "NotAuthorizedException"
FORBIDDEN: Final = "ForbiddenException"
NO_ROUTE: Final = "NoSuchRouteException"
UNAVAILABLE: Final = "ServiceUnavailableException"
TOO_LARGE: Final = "RequestTooLargeException"
INTERNAL: Final = "InternalServerError"


class RequestRefused(Exception):
    """A request that is answered with a status of the error model."""

    def __init__(self, status: HTTPStatus, kind: str, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(status, kind, message)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status, and what the body says about it."""

    status: HTTPStatus
    kind: str
    message: str

    def body(self) -> bytes:
        """Return the body of the answer."""
        error = {"message": self.message, "type": self.kind, "code": int(self.status)}
        return json.dumps({"error": error}).encode()


def bad_request(message: str) -> RequestRefused:
    """Return the refusal of a request that can never be right."""
    return RequestRefused(HTTPStatus.BAD_REQUEST, BAD_REQUEST, message)


def refusal_of(error: Exception, *, missing: str = NO_TABLE) -> Refusal:
    """Return the answer for an error; `missing` is the type for a thing that does not exist.

    An error that is not neve's says nothing about the inside of the server.
    """
    match error:
        case RequestRefused():
            return error.refusal
        case NotFound():
            return Refusal(HTTPStatus.NOT_FOUND, missing, str(error))
        case AlreadyExists():
            return Refusal(HTTPStatus.CONFLICT, EXISTS, str(error))
        case Conflict():
            return Refusal(HTTPStatus.CONFLICT, COMMIT_FAILED, str(error))
        case OutcomeUnknown() | NotPublished():
            return Refusal(HTTPStatus.GATEWAY_TIMEOUT, UNKNOWN_STATE, str(error))
        case Unavailable() | Fenced() | Closed():
            return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, UNAVAILABLE, str(error))
        case Corruption():
            return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL, str(error))
        case LimitExceeded():
            return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, TOO_LARGE, str(error))
        case NeveError():
            return Refusal(HTTPStatus.BAD_REQUEST, BAD_REQUEST, str(error))
        case _:
            return Refusal(
                HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL, "the server failed; its log says why"
            )
