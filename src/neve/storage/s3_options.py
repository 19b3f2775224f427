"""S3Options: the storage options of an S3 bucket, as text.

    endpoint                        where the server is; https://…, or http://… with allow_http
    region                          region of the bucket
    access_key_id                   } without these two, obstore looks for credentials itself
    secret_access_key               }
    session_token                   goes with temporary credentials
    skip_signature                  true for a public bucket
    virtual_hosted_style_request    true when the host of the endpoint names the bucket
    allow_http                      true to connect without TLS
    timeout_seconds                 how long one request may take
    patience_seconds                how long one call retries
    listing                         ordered, or unordered for a server that does not sort by name

Values never appear in an error or in `repr`: any of them may be a secret put in the wrong place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import isfinite
from typing import Final
from urllib.parse import urlsplit

from neve.errors import InvalidArgument

TIMEOUT_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 30.0
_SECONDS_MAX: Final = 3_600.0
_FLAGS: Final = {"true": True, "false": False}


class Listing(StrEnum):
    """How a server lists: S3 by name, SeaweedFS directory by directory."""

    ORDERED = "ordered"
    UNORDERED = "unordered"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """How to reach a bucket; the fields are the options of the table above."""

    endpoint: str | None = field(default=None, repr=False)
    region: str | None = field(default=None, repr=False)
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    skip_signature: bool = False
    virtual_hosted_style_request: bool = False
    allow_http: bool = False
    timeout_seconds: float = TIMEOUT_SECONDS
    patience_seconds: float = PATIENCE_SECONDS
    listing: Listing = Listing.ORDERED

    def client_config(self) -> dict[str, str | bool]:
        """Return the options for the client, which uses the same names."""
        texts = {
            "endpoint": self.endpoint,
            "region": self.region,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "session_token": self.session_token,
        }
        return {
            **{name: text for name, text in texts.items() if text is not None},
            "skip_signature": self.skip_signature,
            "virtual_hosted_style_request": self.virtual_hosted_style_request,
        }


def parse_s3_options(options: Mapping[str, str]) -> S3Options:
    """Parse options; raises InvalidArgument for an unknown or invalid one."""
    known = sorted(option.name for option in fields(S3Options))
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidArgument(
            f"there is no storage option {', '.join(map(ascii, unknown))}",
            hint=f"Use one of {', '.join(known)}",
        )
    if ("access_key_id" in options) != ("secret_access_key" in options):
        raise InvalidArgument(
            "only one of access_key_id and secret_access_key was given",
            hint="Pass both, or neither to let the client look for credentials",
        )
    allow_http = _flag(options, "allow_http")
    return S3Options(
        endpoint=_endpoint(options, allow_http=allow_http),
        region=_text(options, "region"),
        access_key_id=_text(options, "access_key_id"),
        secret_access_key=_text(options, "secret_access_key"),
        session_token=_text(options, "session_token"),
        skip_signature=_flag(options, "skip_signature"),
        virtual_hosted_style_request=_flag(options, "virtual_hosted_style_request"),
        allow_http=allow_http,
        timeout_seconds=_seconds(options, "timeout_seconds", TIMEOUT_SECONDS),
        patience_seconds=_seconds(options, "patience_seconds", PATIENCE_SECONDS),
        listing=_listing(options),
    )


def _endpoint(options: Mapping[str, str], *, allow_http: bool) -> str | None:
    endpoint = _text(options, "endpoint")
    if endpoint is None:
        return None
    try:
        parts = urlsplit(endpoint)
        usable = parts.hostname is not None and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
        raise _unfit("endpoint", "is not an http:// or https:// address")
    if parts.username is not None or parts.password is not None:
        raise _unfit("endpoint", "holds a user name or password")
    if parts.scheme == "http" and not allow_http:
        raise InvalidArgument(
            "the storage option endpoint is an address without TLS",
            hint="Use https://, or set allow_http to true where the network is trusted",
        )
    return endpoint


def _text(options: Mapping[str, str], name: str) -> str | None:
    text = options.get(name)
    # The client panics on a value that does not fit into a header.
    if text is not None and not (text and text.isascii() and text.isprintable()):
        raise _unfit(name, "is empty or contains characters that no header can hold")
    return text


def _flag(options: Mapping[str, str], name: str) -> bool:
    flag = _FLAGS.get(options.get(name, "false").lower())
    if flag is None:
        raise _unfit(name, "is neither true nor false")
    return flag


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        seconds = float(options.get(name, default))
    except ValueError:
        seconds = -1.0
    if not isfinite(seconds) or not 0 < seconds <= _SECONDS_MAX:
        raise _unfit(name, f"is not a number of seconds above 0 and up to {_SECONDS_MAX:,.0f}")
    return seconds


def _listing(options: Mapping[str, str]) -> Listing:
    try:
        return Listing(options.get("listing", Listing.ORDERED))
    except ValueError:
        pass
    raise _unfit("listing", "is neither ordered nor unordered")


def _unfit(name: str, problem: str) -> InvalidArgument:
    return InvalidArgument(
        f"the storage option {name} {problem}", hint="Correct the option; its value is not shown"
    )
