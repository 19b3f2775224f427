"""CloudClient: single requests to an object store, through obstore; failures are return values.

Tested against S3 servers, Azurite and obstore's in-memory store. Google Cloud Storage has the same
calls; no test has run against it.

obstore's errors have a class and a text. The class says most; if it is vague, the status number in
the text says the rest:

    verdict      the answer                         what it says about the request
    ─────────────────────────────────────────────────────────────────────────────────────────────
    MISSING      404                                there is no such object
    UNCHANGED    304                                the object still has the tag
    REFUSED      409, 412                           not carried out: a condition, or another request
    NEVER_SENT   no connection                      not carried out
    LOST         408, 429, 5xx, time-out, reset,    may have been carried out, or may be yet
                 anything unknown
    NO           400, 401, 403, 501,                not carried out, and asking again will not help
                 no such bucket, …

Of an error from a server or obstore, only the status number and an alphabetic error code are passed
on: answers can repeat session tokens. For the same reason their errors are never chained.

A tag is the entity tag, followed by a space and the object version if the store has versions. Both
are sent with a conditional write; S3 compares the entity tag.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from threading import Lock
from typing import Final, TypeAlias, TypeVar, cast

from neve.errors import InvalidArgument, LimitExceeded, Unavailable
from neve.storage.cloud_options import AzureOptions, ClientOptions, GcsOptions
from neve.storage.object_store import ObjectInfo, RequestCount, StoredObject

try:
    import obstore
    import obstore.store
    from obstore.exceptions import (
        AlreadyExistsError,
        BaseError,
        GenericError,
        InvalidPathError,
        NotModifiedError,
        NotSupportedError,
        PermissionDeniedError,
        PreconditionError,
        UnauthenticatedError,
    )
    from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store
except ModuleNotFoundError as missing:
    raise Unavailable(
        "object stores need the obstore package, which is not installed",
        hint="Install it with: pip install 'neve[s3]'",
    ) from missing

Bucket: TypeAlias = S3Store | GCSStore | AzureStore | MemoryStore
T = TypeVar("T")

_LIST_CHUNK: Final = 1_000
_READ_RETRIES_MAX: Final = 3
_TAG_LENGTH_MAX: Final = 1_024

_CLIENT_ERRORS: Final = range(400, 500)
_DENIED_STATUSES: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_LOST_STATUSES: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})

NO_BUCKET_HINT: Final = "Create the bucket, or correct the location"
_DENIED_HINT: Final = (
    "Check the credentials, and that they allow reading, writing, listing and deleting there"
)
_NO_CONDITIONS_HINT: Final = "Use a store that has conditional writes"
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})
_HINTS: Final = {
    "ExpiredToken": "Get new credentials: these have expired",
    "RequestTimeTooSkewed": "Set the clock of this machine: it is too far from the server's",
    "InvalidAccessKeyId": _DENIED_HINT,
    "SignatureDoesNotMatch": _DENIED_HINT,
}
_FOREIGN_NAME_HINT: Final = (
    "Remove the objects whose names have empty, . or .. segments; neve does not write them"
)

# These parse the debug form at the end of an error's text. A path cannot imitate it, since paths
# contain no line ends; an unknown form makes the answer LOST, which is always safe.
_STATUS: Final = re.compile(r"inner: Status \{\n\s+status: (\d{3}),")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_TRANSPORT: Final = re.compile(r"HttpError \{\n\s+kind: ([A-Za-z]+),")
_REDIRECT: Final = re.compile(r"\n\s+inner: BareRedirect,")


class Verdict(Enum):
    """What a failed request means; see the table above."""

    MISSING = auto()
    UNCHANGED = auto()
    REFUSED = auto()
    NEVER_SENT = auto()
    LOST = auto()
    NO = auto()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed, in words that are safe to print."""

    verdict: Verdict
    reason: str
    hint: str | None = None


def _none(_answer: object) -> int:
    return 0


def _size(found: StoredObject) -> int:
    return len(found.payload)


class CloudClient:
    """Requests to one bucket; safe for any number of threads."""

    def __init__(self, bucket: Bucket, *, part_bytes: int, object_bytes_max: int) -> None:
        """Wrap obstore's object; its retries apply only to reads and the parts of large objects."""
        self._bucket = bucket
        self._bucket_without_retries = _without_retries(bucket)
        self._part_bytes = part_bytes
        self._object_bytes_max = object_bytes_max
        self.location: Final = _location(bucket)
        # Guarded by _lock.
        self._lock = Lock()
        self._requests: dict[str, RequestCount] = {}

    def requests(self) -> dict[str, RequestCount]:
        """Return the requests so far, by kind, without those that obstore repeats on its own."""
        with self._lock:
            return dict(self._requests)

    def _counted(
        self,
        kind: str,
        call: Callable[[], T],
        *,
        sent: int = 0,
        received: Callable[[T], int] = _none,
    ) -> T | Failure:
        """Make one request, and count it with its bytes."""
        answer = _attempt(call)
        got = 0 if isinstance(answer, Failure) else received(answer)
        with self._lock:
            before = self._requests.get(kind, RequestCount())
            self._requests[kind] = RequestCount(
                requests=before.requests + 1,
                bytes_sent=before.bytes_sent + sent,
                bytes_received=before.bytes_received + got,
            )
        return answer

    def read(self, path: str, *, unless: str | None = None) -> StoredObject | Failure:
        """Read a whole object, unless it still has the tag `unless`."""
        return self._counted("get", lambda: self._read(self._bucket, path, unless), received=_size)

    def read_once(self, path: str) -> StoredObject | Failure:
        """Read a whole object with a single request."""
        bucket = self._bucket_without_retries
        return self._counted("get", lambda: self._read(bucket, path, None), received=_size)

    def read_range(self, path: str, *, start: int, length: int) -> bytes | Failure:
        """Read at most `length` (not 0) bytes from `start`; none after the end."""
        return self._counted(
            "get_range", lambda: _read_range(self._bucket, path, start, length), received=len
        )

    def size(self, path: str) -> int | Failure:
        """Return the object's size; MISSING also for a missing bucket, as HEAD has no body."""
        return self._counted("head", lambda: obstore.head(self._bucket, path)["size"])

    def writes_in_parts(self, payload: bytes) -> bool:
        """Whether `write` takes several requests, which obstore repeats on its own."""
        return len(payload) > self._part_bytes

    def write(self, path: str, payload: bytes) -> str | Failure:
        """Write or replace an object; return its tag."""
        in_parts = self.writes_in_parts(payload)
        bucket = self._bucket if in_parts else self._bucket_without_retries
        return self._counted(
            "put",
            lambda: _put_tag(obstore.put(bucket, path, payload, chunk_size=self._part_bytes)),
            sent=len(payload),
        )

    def write_if(self, path: str, payload: bytes, *, tag: str | None) -> str | Failure:
        """Replace the object that has `tag`, or create one if that is None; return the new tag."""
        bucket = self._bucket_without_retries
        mode = _put_mode(tag)
        return self._counted(
            "put",
            lambda: _put_tag(obstore.put(bucket, path, payload, mode=mode)),
            sent=len(payload),
        )

    def copy(self, path: str, new_path: str) -> Failure | None:
        """Let the bucket copy an object."""
        bucket = self._bucket_without_retries
        return self._counted("put", lambda: obstore.copy(bucket, path, new_path))

    def delete(self, path: str) -> Failure | None:
        """Remove an object."""
        return self._counted("delete", lambda: obstore.delete(self._bucket_without_retries, path))

    def list_all(self, directory: str | None) -> list[ObjectInfo] | Failure:
        """List everything under a directory, in the server's order."""
        return self._counted(
            "list", lambda: _infos(obstore.list(self._bucket, directory).collect())
        )

    def listing(self, directory: str | None, *, offset: str | None) -> "ResumableListing":
        """List what is under a directory and after `offset`, in the server's order."""
        return ResumableListing(
            self._bucket, directory, offset, attempt=partial(self._counted, "list")
        )

    def check_payload(self, path: str, payload: bytes) -> None:
        """Raise LimitExceeded for an object that would be too large to read."""
        self._check_size(path, len(payload))

    def _check_size(self, path: str, size: int) -> None:
        if size > self._object_bytes_max:
            raise LimitExceeded(
                f"an object of {size:,} bytes is larger than {self._object_bytes_max:,}",
                limit=self._object_bytes_max,
                actual=size,
                path=path,
                hint="Read it in ranges, or open the store with a larger object_bytes_max",
            )

    def _read(self, bucket: Bucket, path: str, unless: str | None) -> StoredObject:
        options: obstore.GetOptions = {"if_none_match": entity_tag(unless)} if unless else {}
        result = obstore.get(bucket, path, options=options)
        meta = result.meta
        self._check_size(path, meta["size"])
        payload = result.bytes().to_bytes()
        return StoredObject(payload=payload, tag=_tag(meta["e_tag"], meta["version"]))


class ResumableListing:
    """A listing in chunks; after a failure it continues after the last entry it returned."""

    def __init__(
        self,
        bucket: Bucket,
        directory: str | None,
        offset: str | None,
        *,
        attempt: Callable[[Callable[[], list[ObjectInfo]]], list[ObjectInfo] | Failure],
    ) -> None:
        self._bucket = bucket
        self._attempt = attempt
        self._directory = directory
        self._offset = offset
        self._stream: obstore.ListStream[Sequence[obstore.ObjectMeta]] | None = None

    def next_chunk(self) -> list[ObjectInfo] | Failure:
        """Return the next entries; an empty list at the end."""
        chunk = self._attempt(self._advance)
        if isinstance(chunk, Failure):
            self._stream = None
        elif chunk:
            self._offset = chunk[-1].path
        return chunk

    def _advance(self) -> list[ObjectInfo]:
        if self._stream is None:
            self._stream = obstore.list(
                self._bucket, self._directory, offset=self._offset, chunk_size=_LIST_CHUNK
            )
        return _infos(next(self._stream, ()))


def open_bucket(name: str, *, prefix: str, options: ClientOptions) -> Bucket:
    """Return obstore's client of a bucket; nothing is sent yet."""
    timeout: obstore.store.ClientConfig = {"timeout": timedelta(seconds=options.timeout_seconds)}
    retries: obstore.store.RetryConfig = {
        "max_retries": _READ_RETRIES_MAX,
        "retry_timeout": timedelta(seconds=options.patience_seconds),
    }
    client: obstore.store.ClientConfig = {**timeout, "allow_http": options.allow_http}
    config = options.client_config()
    place = prefix or None
    try:
        match options:
            case AzureOptions():
                azure = cast("obstore.store.AzureConfig", config)
                return AzureStore(
                    name, prefix=place, config=azure, client_options=client, retry_config=retries
                )
            case GcsOptions():
                if "endpoint" in config:
                    config["base_url"] = config.pop("endpoint")
                google = cast("obstore.store.GCSConfig", config)
                return GCSStore(
                    name, prefix=place, config=google, client_options=client, retry_config=retries
                )
            case _:
                amazon = cast("obstore.store.S3Config", config)
                return S3Store(
                    name, prefix=place, config=amazon, client_options=client, retry_config=retries
                )
    except (BaseError, ValueError):
        pass
    # Outside the handler, so that the client's message, which may contain values, is not chained.
    raise InvalidArgument(
        "the object-store client does not accept the storage options",
        hint="Check the endpoint, the region and the credentials",
    )


def entity_tag(tag: str) -> str:
    """Return the part of a tag that the server compares."""
    return tag.partition(" ")[0]


def check_tag(tag: str) -> None:
    """Raise InvalidArgument for a tag that no header can hold: obstore panics on one."""
    if not (0 < len(tag) <= _TAG_LENGTH_MAX and tag.isascii() and tag.isprintable()):
        raise InvalidArgument(
            "the tag is empty, too long, or contains characters that no tag has",
            hint="Pass a tag that this store returned",
        )


def _without_retries(bucket: Bucket) -> Bucket:
    """Return the same bucket with requests that are sent only once."""
    once: obstore.store.RetryConfig = {"max_retries": 0}
    if isinstance(bucket, MemoryStore):
        return bucket
    if isinstance(bucket, S3Store | GCSStore | AzureStore):
        make = cast("Callable[..., Bucket]", type(bucket))  # the three take the same arguments
        return make(
            prefix=bucket.prefix,
            config=bucket.config,
            client_options=bucket.client_options,
            retry_config=once,
            credential_provider=bucket.credential_provider,
        )
    raise InvalidArgument(
        f"{type(bucket).__name__} is not a store with conditional writes",
        hint="Pass an S3Store, GCSStore, AzureStore or MemoryStore of obstore",
    )


def _location(bucket: Bucket) -> str:
    match bucket:
        case S3Store():
            root = f"s3://{bucket.config['bucket']}"
        case GCSStore():
            root = f"gs://{bucket.config['bucket']}"
        case AzureStore():
            container, account = bucket.config["container_name"], bucket.config.get("account_name")
            root = f"az://{container}"
            # The spelling that other engines know, too.
            if account and not {"endpoint", "use_emulator"} & set(bucket.config):
                root = f"abfss://{container}@{account}.dfs.core.windows.net"
        case MemoryStore():
            return "memory://obstore"
    return f"{root}/{bucket.prefix}" if bucket.prefix else root


def _attempt(call: Callable[[], T]) -> T | Failure:
    """Make one call; return its error as a value, so that nothing can chain it."""
    try:
        return call()
    except (BaseError, FileNotFoundError, NotImplementedError) as error:
        return _understood(error)


def _understood(error: Exception) -> Failure:
    """Say what an error means, from its class, and from its status if the class is vague."""
    text = str(error)
    status_found = _STATUS.search(text)
    status = int(status_found[1]) if status_found else None
    code_found = _CODE.search(text, status_found.end()) if status_found else None
    code = code_found[1] if code_found else ""
    reason = f"{status} {code}".strip() if status else type(error).__name__
    if code in _NO_BUCKET:
        return Failure(Verdict.NO, reason, NO_BUCKET_HINT)
    if code in _HINTS:
        return Failure(Verdict.NO, reason, _HINTS[code])
    match error:
        case FileNotFoundError():
            return Failure(Verdict.MISSING, reason)
        case NotModifiedError():
            return Failure(Verdict.UNCHANGED, reason)
        case AlreadyExistsError() | PreconditionError():
            return Failure(Verdict.REFUSED, reason)
        case PermissionDeniedError() | UnauthenticatedError():
            return Failure(Verdict.NO, reason, _DENIED_HINT)
        case NotSupportedError() | NotImplementedError():
            return Failure(Verdict.NO, reason, _NO_CONDITIONS_HINT)
        case InvalidPathError():
            return Failure(Verdict.NO, reason, _FOREIGN_NAME_HINT)
        case _:
            return _understood_vaguely(text, status, reason)


def _understood_vaguely(text: str, status: int | None, reason: str) -> Failure:
    """Say what an error of the generic class means."""
    transport = _TRANSPORT.search(text)
    if status in _DENIED_STATUSES:
        return Failure(Verdict.NO, reason, _DENIED_HINT)
    if status == HTTPStatus.NOT_FOUND:
        return Failure(Verdict.NO, reason, NO_BUCKET_HINT)
    if status == HTTPStatus.NOT_IMPLEMENTED:
        return Failure(Verdict.NO, reason, _NO_CONDITIONS_HINT)
    if status == HTTPStatus.CONFLICT:
        return Failure(Verdict.REFUSED, reason)
    if status in _CLIENT_ERRORS and status not in _LOST_STATUSES:
        return Failure(Verdict.NO, reason)
    if _REDIRECT.search(text):
        return Failure(Verdict.NO, "redirected", "Set the region to the one of the bucket")
    match transport and transport[1]:
        case "Connect":
            return Failure(Verdict.NEVER_SENT, "no connection")
        case "Timeout":
            return Failure(Verdict.LOST, "timed out")
        case None:
            return Failure(Verdict.LOST, reason)
        case _:
            return Failure(Verdict.LOST, "connection lost")


def _read_range(bucket: Bucket, path: str, start: int, length: int) -> bytes:
    try:
        return obstore.get_range(bucket, path, start=start, length=length).to_bytes()
    except GenericError:
        # Stores refuse a range after the end, each with its own error.
        if start >= obstore.head(bucket, path)["size"]:
            return b""
        raise


def _put_mode(tag: str | None) -> "obstore.PutMode":
    if tag is None:
        return "create"
    _, _, version = tag.partition(" ")
    # obstore does not accept a version of None: leave the key out.
    return {"e_tag": entity_tag(tag), "version": version} if version else {"e_tag": tag}


def _put_tag(result: "obstore.PutResult") -> str:
    return _tag(result["e_tag"], result["version"])


def _tag(given: str | None, version: str | None) -> str:
    if given is None:
        raise Unavailable(
            "the store returns no entity tags, so neve cannot notice when an object changes",
            hint="Use a store that sends ETag",
        )
    # Buckets without versions answer some requests with the version "null", others without one.
    return given if version in {None, "null"} else f"{given} {version}"


def _infos(entries: Sequence["obstore.ObjectMeta"]) -> list[ObjectInfo]:
    return [ObjectInfo(path=entry["path"], size=entry["size"]) for entry in entries]
