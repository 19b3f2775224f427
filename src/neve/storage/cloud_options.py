"""The storage options of a bucket, as text: S3Options, GcsOptions and AzureOptions.

    for all
    endpoint                        where the server is; https://…, or http://… with allow_http
    allow_http                      true to connect without TLS
    timeout_seconds                 how long one request may take
    patience_seconds                how long one call retries
    listing                         ordered, or unordered for a server that does not sort by name
    skip_signature                  true for a public bucket
    cache_directory                 a directory for copies of data, index and vector files; without
                                    one they are kept in memory
    cache_bytes                     how much the copies may take: 8 GiB, in memory 64 MiB
    prices                          what requests cost, as JSON or the path of a JSON file; fields
                                    of RequestPrices, those left out are S3's

    for s3:// and s3a://
    region                          region of the bucket
    access_key_id                   } without these two, obstore looks for credentials itself: in
    secret_access_key               } the environment, in a web identity or a role of the machine
    session_token                   goes with temporary credentials
    profile                         take the three from this profile of ~/.aws/credentials
    virtual_hosted_style_request    true when the host of the endpoint names the bucket

    for gs://
    service_account                 path of a service account's key file
    service_account_key             content of that file
    application_credentials         path of Google's application default credentials
    bearer_token                    a token, which does not renew itself

    for az:// and abfss://
    account_name                    the storage account; abfss:// names it in the location
    account_key                     } one of these; without, obstore looks in the environment and
    sas_key                         } for a managed identity
    token                           }
    client_id, client_secret, tenant_id     a service principal
    use_azure_cli                   true to ask the command `az` for a token
    use_emulator                    true for Azurite

Values never appear in an error or in `repr`: any of them may be a secret put in the wrong place.
"""

import json
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as BadProfiles
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

from neve.errors import InvalidArgument
from neve.storage.object_store import RequestCount

TIMEOUT_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 30.0
_SECONDS_MAX: Final = 3_600.0
_BYTES_DIGITS: Final = 19
_PRICES_LENGTH_MAX: Final = 1 << 16
_PRICE_MAX: Final = 1e9
_GIB: Final = 1 << 30
_FLAGS: Final = {"true": True, "false": False}


class Listing(StrEnum):
    """How a server lists: S3 by name, SeaweedFS directory by directory."""

    ORDERED = "ordered"
    UNORDERED = "unordered"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPrices:
    """Prices of a million requests of each kind and of a GiB, in any currency.

    The defaults are those of S3 Standard in us-east-1 in US dollars, in November 2026, for a client
    in the same region: elsewhere, bytes that leave the region have a price.
    """

    put: float = 5.0
    list: float = 5.0
    get: float = 0.4
    head: float = 0.4
    delete: float = 0.0
    gib_sent: float = 0.0
    gib_received: float = 0.0

    def priced(self, kind: str, count: RequestCount) -> RequestCount:
        """Return requests of one kind with their cost."""
        each: float = getattr(self, "get" if kind == "get_range" else kind)
        moved = self.gib_sent * count.bytes_sent + self.gib_received * count.bytes_received
        return replace(count, cost=count.requests * each / 1e6 + moved / _GIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How to reach a bucket of any kind; fields are the options of the tables above."""

    endpoint: str | None = field(default=None, repr=False)
    allow_http: bool = False
    timeout_seconds: float = TIMEOUT_SECONDS
    patience_seconds: float = PATIENCE_SECONDS
    listing: Listing = Listing.ORDERED
    skip_signature: bool = False
    cache_directory: str | None = None
    cache_bytes: int | None = None
    prices: RequestPrices = RequestPrices()

    def client_config(self) -> dict[str, str | bool]:
        """Return the options for the client, which uses the same names."""
        general = {each.name for each in fields(ClientOptions)} | {"profile"}
        general -= {"endpoint", "skip_signature"}
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: value
            for name, value in given.items()
            if name not in general and value is not None and value is not False
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options(ClientOptions):
    """How to reach a bucket of S3 or a server like it."""

    region: str | None = field(default=None, repr=False)
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = field(default=None, repr=False)
    virtual_hosted_style_request: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsOptions(ClientOptions):
    """How to reach a bucket of Google Cloud Storage."""

    service_account: str | None = field(default=None, repr=False)
    service_account_key: str | None = field(default=None, repr=False)
    application_credentials: str | None = field(default=None, repr=False)
    bearer_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureOptions(ClientOptions):
    """How to reach a container of Azure."""

    account_name: str | None = field(default=None, repr=False)
    account_key: str | None = field(default=None, repr=False)
    sas_key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    client_id: str | None = field(default=None, repr=False)
    client_secret: str | None = field(default=None, repr=False)
    tenant_id: str | None = field(default=None, repr=False)
    use_azure_cli: bool = False
    use_emulator: bool = False


Options = TypeVar("Options", bound=ClientOptions)


def parse_s3_options(options: Mapping[str, str]) -> S3Options:
    """Parse the options of S3; raises InvalidArgument for an unknown or invalid one."""
    if ("access_key_id" in options) != ("secret_access_key" in options):
        raise InvalidArgument(
            "only one of access_key_id and secret_access_key was given",
            hint="Pass both, or neither to let the client look for credentials",
        )
    parsed = parse_options(S3Options, options)
    return parsed if parsed.profile is None else _of_profile(parsed, parsed.profile)


def parse_options(kind: type[Options], options: Mapping[str, str]) -> Options:
    """Parse options of one kind of bucket; raises InvalidArgument for an unknown or invalid one."""
    known = sorted(option.name for option in fields(kind))
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidArgument(
            f"there is no storage option {', '.join(map(ascii, unknown))}",
            hint=f"Use one of {', '.join(known)}",
        )
    allow_http = _flag(options, "allow_http")
    parsed: dict[str, object] = {
        "endpoint": _endpoint(options, allow_http=allow_http),
        "timeout_seconds": _seconds(options, "timeout_seconds", TIMEOUT_SECONDS),
        "patience_seconds": _seconds(options, "patience_seconds", PATIENCE_SECONDS),
        "listing": _listing(options),
        "cache_bytes": _bytes(options, "cache_bytes"),
        "cache_directory": options.get("cache_directory"),
        "prices": _prices(options),
    }
    for option in fields(kind):
        if option.name not in parsed:
            read = _flag if isinstance(option.default, bool) else _text
            parsed[option.name] = read(options, option.name)
    return kind(**parsed)  # type: ignore[arg-type]  # each was read as its type


def _of_profile(options: S3Options, profile: str) -> S3Options:
    """Return options with the credentials of a profile; raises InvalidArgument without them."""
    if options.access_key_id is not None:
        raise InvalidArgument(
            "both a profile and access_key_id were given", hint="Pass one of them"
        )
    profiles = ConfigParser(interpolation=None)
    try:
        profiles.read(Path.home() / ".aws" / "credentials")
        found = dict(profiles[profile])
        key, secret = found["aws_access_key_id"], found["aws_secret_access_key"]
    except (BadProfiles, KeyError, OSError, RuntimeError):
        pass
    else:
        token = found.get("aws_session_token")
        return replace(options, access_key_id=key, secret_access_key=secret, session_token=token)
    # Outside the handler, so that nothing of the file is chained.
    raise InvalidArgument(
        "the profile has no keys in ~/.aws/credentials",
        hint="Correct the profile, or pass access_key_id and secret_access_key",
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


def _bytes(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < _BYTES_DIGITS and int(text)):
        raise _unfit(name, "is not a number of bytes above 0")
    return int(text)


def _prices(options: Mapping[str, str]) -> RequestPrices:
    text = options.get("prices", "{}")
    known = {each.name for each in fields(RequestPrices)}
    try:
        if not text.lstrip().startswith("{"):
            with Path(text).open(encoding="utf-8") as file:
                text = file.read(_PRICES_LENGTH_MAX)
        given = json.loads(text)
        usable = isinstance(given, dict) and all(
            name in known and type(price) in {int, float} and 0 <= price < _PRICE_MAX
            for name, price in given.items()
        )
    except (OSError, ValueError, RecursionError):
        usable = False
    if not usable:
        raise InvalidArgument(
            "the storage option prices is not a table of prices",
            hint=f"Pass JSON or a JSON file with numbers for some of {', '.join(sorted(known))}",
        )
    return RequestPrices(**given)


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
