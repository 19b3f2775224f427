"""Bearer tokens and what they allow, read from a file in TOML.

    [[token]]
    name = "reports"
    sha256 = "9f86d0…"                      # of the token; or token = "…" in plain text
    scopes = ["read", "write:shop.eu"]
    expires = 2027-01-01T00:00:00Z          # optional

A scope is `read` or `write`, for the whole lake or, after a colon, for a namespace and everything
below it. Who may write may read. Tokens are compared as digests, all of them and in constant time,
so an answer takes as long for a wrong token as for a right one.
"""

import hashlib
import hmac
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Final, Literal

from neve.catalog.table_name import check_namespace
from neve.errors import InvalidArgument

Access = Literal["read", "write"]

_FIELDS: Final = frozenset({"name", "token", "sha256", "scopes", "expires"})
_TOKEN_CHARACTERS_MIN: Final = 16
_DIGEST_DIGITS: Final = 64
_EVERYTHING: Final = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """One kind of access to a namespace and everything below it; "" is the whole lake."""

    access: Access
    namespace: str = _EVERYTHING

    def allows(self, access: Access, namespace: str | None) -> bool:
        """Return whether it allows an access to a namespace; None is the lake as a whole."""
        if access == "write" and self.access != "write":
            return False
        if not self.namespace:
            return True
        return namespace is not None and f"{namespace}.".startswith(f"{self.namespace}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sent a request, and what it may do."""

    name: str
    scopes: tuple[Scope, ...] = field(default=(Scope("write"),))
    digest: bytes = field(default=b"", repr=False)
    """Of its token: names need not be unique."""

    def may(self, access: Access, namespace: str | None) -> bool:
        """Return whether one of its scopes allows an access."""
        return any(scope.allows(access, namespace) for scope in self.scopes)

    def sees(self, namespace: str) -> bool:
        """Return whether it may read a namespace, or something below it."""
        return self.may("read", namespace) or any(
            f"{scope.namespace}.".startswith(f"{namespace}.") for scope in self.scopes
        )


ANYONE: Final = Caller(name="anyone")
"""The caller of a server without tokens, which listens on the loopback address only."""


@dataclass(frozen=True, slots=True)
class _Token:
    digest: bytes
    caller: Caller
    expires_ms: int | None


class Tokens:
    """The tokens of a file; safe for many threads."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tuple(tokens)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> "Tokens":
        """Read a file of tokens; raises InvalidArgument, without any token in the message."""
        place = Path(path)
        try:
            members = tomllib.loads(place.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidArgument(
                f"the file of tokens cannot be read: {error.strerror}", path=str(place)
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            # Not the text of the error: it may quote a line with a token.
            raise InvalidArgument(
                "the file of tokens is not TOML", path=str(place), hint="See `neve serve --help`"
            ) from None
        given = members.get("token")
        if not isinstance(given, list) or not given:
            raise InvalidArgument(
                "the file has no tokens", path=str(place), hint="Begin each with [[token]]"
            )
        tokens = [_token_of(each, number, place) for number, each in enumerate(given, start=1)]
        if len({each.digest for each in tokens}) < len(tokens):
            raise InvalidArgument("two tokens are the same", path=str(place))
        return cls(tokens)

    def find(self, token: str, now_ms: int) -> Caller | None:
        """Return the caller of a token; None for an unknown or expired one."""
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        found: Caller | None = None
        for each in self._tokens:  # to the end: the time says nothing about the place
            is_valid = each.expires_ms is None or now_ms < each.expires_ms
            if hmac.compare_digest(each.digest, digest) and is_valid:
                found = each.caller
        return found


def _token_of(given: object, number: int, place: Path) -> _Token:
    def refuse(what: str, hint: str) -> InvalidArgument:
        return InvalidArgument(f"token {number} {what}", path=str(place), hint=hint)

    if not isinstance(given, dict):
        raise refuse("is not a table", "Begin each with [[token]]")
    unknown = sorted(map(str, given.keys() - _FIELDS))
    if unknown:
        raise refuse(f"has the unknown field {unknown[0]!a}", f"Use {', '.join(sorted(_FIELDS))}")
    name, token, digest = given.get("name"), given.get("token"), given.get("sha256")
    if not isinstance(name, str) or not name:
        raise refuse("has no name", 'Write name = "reports": the access log shows it')
    if isinstance(token, str) and digest is None:
        if len(token) < _TOKEN_CHARACTERS_MIN:
            raise refuse("is too short", f"Use at least {_TOKEN_CHARACTERS_MIN} random characters")
        found = hashlib.sha256(token.encode()).digest()
    elif isinstance(digest, str) and token is None and len(digest) == _DIGEST_DIGITS:
        try:
            found = bytes.fromhex(digest)
        except ValueError:
            raise refuse("has a sha256 that is not hex", "Write 64 hex digits") from None
    else:
        raise refuse("has no token", "Write either token or sha256, which has 64 hex digits")
    expires = given.get("expires")
    if expires is not None and not isinstance(expires, datetime):
        raise refuse("has an invalid time", "Write expires = 2027-01-01T00:00:00Z")
    moment = None if expires is None else expires if expires.tzinfo else expires.replace(tzinfo=UTC)
    return _Token(
        digest=found,
        caller=Caller(
            name=name,
            scopes=_scopes_of(given.get("scopes"), refuse_number=number),
            digest=found,
        ),
        expires_ms=None if moment is None else int(moment.timestamp() * 1_000),
    )


def _scopes_of(given: object, *, refuse_number: int) -> tuple[Scope, ...]:
    scopes: list[Scope] = []
    for each in given if isinstance(given, list) else []:
        access, colon, namespace = str(each).partition(":")
        if colon:
            _check_scope_namespace(namespace, refuse_number=refuse_number)
        if access == "read":
            scopes.append(Scope("read", namespace))
        elif access == "write":
            scopes.append(Scope("write", namespace))
        else:
            raise InvalidArgument(
                f"token {refuse_number} has the unknown scope {each!a}",
                hint='Use "read", "write", "read:shop" or "write:shop"',
            )
    if not scopes:
        raise InvalidArgument(
            f"token {refuse_number} has no scopes", hint='Write scopes = ["read"], for example'
        )
    return tuple(scopes)


def _check_scope_namespace(namespace: str, *, refuse_number: int) -> None:
    try:
        check_namespace(namespace)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"token {refuse_number} has a scope with no namespace after the colon: {error.message}",
            hint='Use "read" or "write" for the whole lake, "write:shop" for a namespace',
        ) from error
