"""CloudStore: an ObjectStore on S3, Google Cloud Storage or Azure, through obstore.

An answer can be lost after its write was applied, and S3 refuses a create it lost track of. So no
answer to a conditional write is believed but "written"; after any other the object is read back:

    the answer                      the object now        put_if_absent   put_if_match
    ──────────────────────────────────────────────────────────────────────────────────────────
    written                         is not read           its tag         its tag
    refused: 409, 412               holds our bytes       its tag         its tag
    lost: timeout, reset, 5xx,      is as before          try again       try again
          429, unknown              is another's          None            None, but after a lost
                                                                          answer OutcomeUnknown
    never sent: no connection       is not read           try again       try again
    no: bucket missing, denied      is not read           Unavailable, but after a lost answer
                                                          OutcomeUnknown

"As before" is absent for `put_if_absent` and the old tag for `put_if_match`. Trying again ends when
patience does: Unavailable when every answer said no, OutcomeUnknown when one was lost.

C1  The client never repeats a write by itself, but for the parts of a large object: a repeated
    conditional write is refused because of its own first request, and success looks like conflict.
C2  What is created with `put_if_absent` must not be replaced by others before that call returns:
    its bytes are how the writer knows its own. neve's commit slots are never replaced.
C3  A proxy that repeats a request on its own turns a success into a refusal; reading back sees
    through it. Only when a third writer replaces the object in between does the call say None.
C4  Nothing a server or the client says is passed on but a status number and an error code made of
    letters: answers can repeat session tokens. For the same reason no error of theirs is chained.

A tag is the entity tag, then a space and the object version where the store has versions; Google
compares the version, the others the entity tag.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, StrEnum, auto
from itertools import chain
from typing import Final, TypeAlias, TypeVar

from neve.errors import InvalidArgument, NeveError, NotFound, OutcomeUnknown, Unavailable
from neve.storage.clock import Clock, IdSource, SystemClock, SystemIds
from neve.storage.object_store import ObjectInfo, StoredObject
from neve.storage.table_paths import check_path, check_prefix

try:
    import obstore
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

Client: TypeAlias = S3Store | GCSStore | AzureStore | MemoryStore
T = TypeVar("T")

PATIENCE_SECONDS: Final = 30.0
PART_BYTES: Final = 64 * 1024 * 1024
_FIRST_PAUSE_SECONDS: Final = 0.05
_PAUSE_SECONDS_MAX: Final = 2.0
_LIST_CHUNK: Final = 1_000
_TAG_LENGTH_MAX: Final = 1_024
# Far beyond any object, and the sum of two still fits the client's 64 bits.
_OFFSET_MAX: Final = 1 << 61

# Statuses that do not say whether the request was carried out or will be.
_LOST_STATUSES: Final = frozenset({408, 425, 429})
_CLIENT_ERRORS: Final = range(400, 500)

# The client's errors have a class and a text. These read the debug form at the end of the text; a
# path cannot imitate it, since paths hold no line ends.
_STATUS: Final = re.compile(r"inner: Status \{\n\s+status: (\d{3}),")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_TRANSPORT: Final = re.compile(r"HttpError \{\n\s+kind: (Connect|Timeout),")
_REDIRECT: Final = re.compile(r"\n\s+inner: BareRedirect,")


class Listing(StrEnum):
    """In which order the server lists; S3, Google and Azure are ordered."""

    ORDERED = "ordered"
    UNORDERED = "unordered"


class _Verdict(Enum):
    """What a failed call says about the request behind it."""

    MISSING = auto()  # no such object
    UNCHANGED = auto()  # the tag is still the one given
    REFUSED = auto()  # a condition did not hold, or another request was in the way
    NEVER_SENT = auto()  # no connection
    LOST = auto()  # it may have been carried out, or may be yet
    NO = auto()  # certainly not carried out, and asking again will not help


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a call failed, in words that are safe to print."""

    verdict: _Verdict
    reason: str
    hint: str | None = None


class CloudStore:
    """An ObjectStore over one obstore client; safe for any number of threads."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        part_bytes: int = PART_BYTES,
        listing: Listing = Listing.ORDERED,
    ) -> None:
        """Wrap a client; its retries serve every call but conditional writes (C1).

        Objects larger than `part_bytes` are sent in parts by `put`. `patience_seconds` bounds how
        long a call goes on trying; the client's own time-out bounds each try.
        """
        self._client = client
        self._client_without_retries = _without_retries(client)
        self._location = _location(client)
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self._patience_seconds = patience_seconds
        self._part_bytes = part_bytes
        self._listing = listing

    def __repr__(self) -> str:
        return f"CloudStore({self._location!r})"

    @property
    def location(self) -> str:
        """Root as a URI, `s3://bucket/prefix`."""
        return self._location

    def get(self, path: str) -> StoredObject:
        """Read a whole object; raises NotFound."""
        check_path(path)
        answer = self._persist(lambda: _read(self._client, path))
        return self._found(answer, path)

    def get_if_changed(self, path: str, *, tag: str) -> StoredObject | None:
        """Read a whole object unless it still has `tag`; raises NotFound."""
        check_path(path)
        entity_tag, _ = _split_tag(tag)
        answer = self._persist(lambda: _read(self._client, path, unless=entity_tag))
        if isinstance(answer, _Failure) and answer.verdict is _Verdict.UNCHANGED:
            return None
        return self._found(answer, path)

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        """Read up to `length` bytes from `start`; short only at the end; raises NotFound."""
        check_path(path)
        if start < 0 or length < 0:
            raise InvalidArgument(
                f"a byte range starts at {start} with length {length}",
                path=path,
                hint="Neither may be negative",
            )
        if length == 0 or start > _OFFSET_MAX:
            self.size(path)
            return b""
        wanted = min(length, _OFFSET_MAX)
        return self._found(self._persist(lambda: self._read_range(path, start, wanted)), path)

    def size(self, path: str) -> int:
        """Bytes in the object; raises NotFound."""
        check_path(path)
        answer = self._persist(lambda: obstore.head(self._client, path)["size"])
        if isinstance(answer, _Failure) and answer.verdict is _Verdict.MISSING:
            # An answer to HEAD has no body: only GET tells a missing object from a missing bucket.
            self.get(path)
        return self._found(answer, path)

    def put(self, path: str, payload: bytes) -> str:
        """Write or replace an object; gives its tag."""
        check_path(path)
        in_parts = len(payload) > self._part_bytes
        client = self._client if in_parts else self._client_without_retries
        answer = self._persist(lambda: self._write(client, path, payload))
        if isinstance(answer, str):
            return answer
        # The client repeats requests of an upload in parts: any but a lasting no may hide a success.
        lost = answer.verdict is _Verdict.LOST or (in_parts and answer.verdict is not _Verdict.NO)
        raise self._not_written(answer, path, lost=lost)

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        """Create an object; gives its tag, or None when another one is already there."""
        check_path(path)
        return self._put_under_condition(path, payload, tag=None)

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        """Replace the object that has `tag`; gives the new tag, or None when it has another."""
        check_path(path)
        return self._put_under_condition(path, payload, tag=tag)

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects whose path starts with `prefix`, ascending, beginning behind `after`.

        Read in chunks while it is consumed; with `Listing.UNORDERED` it is read whole, then sorted.
        """
        check_prefix(prefix)
        if after is not None:
            check_prefix(after)
        if self._listing is Listing.UNORDERED:
            return self._list_sorted(prefix, after)
        return self._list_stream(prefix, after)

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is no error."""
        check_path(path)
        answer = self._persist(lambda: obstore.delete(self._client_without_retries, path))
        if isinstance(answer, _Failure) and answer.verdict is not _Verdict.MISSING:
            raise self._not_written(answer, path, lost=answer.verdict is _Verdict.LOST)

    def _put_under_condition(self, path: str, payload: bytes, *, tag: str | None) -> str | None:
        """Follow the table at the top of this module; no tag means the object must be absent."""
        condition = _condition(tag)
        lost = False
        for _ in self._tries():
            answer = _attempt(lambda: self._write_if(condition, path, payload))
            if isinstance(answer, str):
                return answer
            failure = answer
            if failure.verdict in {_Verdict.NO, _Verdict.MISSING}:
                break
            if failure.verdict is _Verdict.NEVER_SENT:
                continue
            lost = lost or failure.verdict is _Verdict.LOST
            found = _attempt(lambda: _read(self._client_without_retries, path))
            if isinstance(found, StoredObject):
                if found.payload == payload:
                    return found.tag
                as_before = tag is not None and _entity_tag(found.tag) == _entity_tag(tag)
            else:
                # What could not be read may be as before; the next try tells.
                as_before = tag is None or found.verdict is not _Verdict.MISSING
            if as_before:
                continue
            if lost and tag is not None:
                break
            return None
        raise self._not_written(failure, path, lost=lost)

    # Trying, and telling how it ended

    def _tries(self) -> Iterator[None]:
        """Yield once per try: at once, then after growing, jittered pauses until patience ends."""
        ends_at = self._clock.monotonic() + self._patience_seconds
        pause = _FIRST_PAUSE_SECONDS
        while True:
            yield
            wait = pause * (0.5 + self._ids.jitter() / 2)
            if self._clock.monotonic() + wait > ends_at:
                return
            self._clock.sleep(wait)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def _persist(self, call: Callable[[], T]) -> T | _Failure:
        """Repeat a call that may be repeated until it gives a result or a lasting failure.

        One lost answer makes the whole call a lost one, whatever the last answer was.
        """
        lost = False
        for _ in self._tries():
            answer = _attempt(call)
            if not isinstance(answer, _Failure) or answer.verdict in _FINDINGS:
                return answer
            lost = lost or answer.verdict is _Verdict.LOST
            if answer.verdict is _Verdict.NO:
                break
        return replace(answer, verdict=_Verdict.LOST) if lost else answer

    def _found(self, answer: T | _Failure, path: str) -> T:
        """Give what a read found; raises NotFound or Unavailable."""
        if not isinstance(answer, _Failure):
            return answer
        if answer.verdict is _Verdict.MISSING:
            raise NotFound(f"there is no such object in {self._location}", path=path)
        raise self._unavailable(answer, path)

    def _not_written(self, failure: _Failure, path: str, *, lost: bool) -> NeveError:
        if lost:
            return OutcomeUnknown(
                f"{self._location} did not say whether the change was made ({failure.reason})",
                path=path,
                hint="Read before repeating it",
            )
        if failure.verdict is _Verdict.MISSING:
            # A write has no object to miss: what is missing is the bucket.
            return self._unavailable(replace(failure, hint=_NO_BUCKET_HINT), path)
        return self._unavailable(failure, path)

    def _unavailable(self, failure: _Failure, path: str | None = None) -> Unavailable:
        return Unavailable(
            f"{self._location} did not serve the request ({failure.reason})",
            path=path,
            hint=failure.hint or "Check the endpoint, the network and the credentials",
        )

    # One request each

    def _write(self, client: Client, path: str, payload: bytes) -> str:
        result = obstore.put(client, path, payload, chunk_size=self._part_bytes)
        return _tag(result["e_tag"], result["version"])

    def _write_if(self, condition: "obstore.PutMode", path: str, payload: bytes) -> str:
        result = obstore.put(self._client_without_retries, path, payload, mode=condition)
        return _tag(result["e_tag"], result["version"])

    def _read_range(self, path: str, start: int, length: int) -> bytes:
        try:
            return obstore.get_range(self._client, path, start=start, length=length).to_bytes()
        except GenericError:
            # Stores refuse a range behind the end, each in its own words.
            if start >= obstore.head(self._client, path)["size"]:
                return b""
            raise

    # Listings

    def _list_in_order(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        listing = _ResumableListing(self._client, prefix, after)
        last = ""
        while chunk := self._listed(self._persist(listing.next_chunk)):
            for entry in chunk:
                path = entry["path"]
                if path <= last:
                    if entry["size"] == 0:
                        # A folder marker, `name/`, comes out as `name`, and out of order.
                        continue
                    raise self._out_of_order(path)
                last = path
                if path.startswith(prefix):
                    if after is None or path > after:
                        yield ObjectInfo(path=path, size=entry["size"])
                elif path > prefix:
                    return

    def _list_sorted(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        def collect() -> Sequence["obstore.ObjectMeta"]:
            return obstore.list(self._client, _directory(prefix)).collect()

        found = (
            ObjectInfo(path=entry["path"], size=entry["size"])
            for entry in self._listed(self._persist(collect))
            if entry["path"].startswith(prefix)
            and entry["path"]
            and (after is None or entry["path"] > after)
        )
        yield from sorted(found, key=lambda info: info.path)

    def _listed(self, answer: T | _Failure) -> T:
        if not isinstance(answer, _Failure):
            return answer
        raise self._unavailable(answer)

    def _out_of_order(self, path: str) -> Unavailable:
        return Unavailable(
            f"{self._location} lists objects out of order",
            path=path,
            hint="Open it with the storage option listing=unordered",
        )


class _ResumableListing:
    """A listing in chunks that goes on behind the last entry when a request failed."""

    def __init__(self, client: Client, prefix: str, after: str | None) -> None:
        self._client = client
        self._directory = _directory(prefix)
        self._offset = _offset(after)
        self._stream: obstore.ListStream[Sequence[obstore.ObjectMeta]] | None = None

    def next_chunk(self) -> Sequence["obstore.ObjectMeta"]:
        """Give the next entries, none at the end."""
        if self._stream is None:
            self._stream = obstore.list(
                self._client, self._directory, offset=self._offset, chunk_size=_LIST_CHUNK
            )
        try:
            chunk = next(self._stream, ())
        except BaseError:
            self._stream = None
            raise
        if chunk:
            self._offset = chunk[-1]["path"]
        return chunk


_FINDINGS: Final = frozenset({_Verdict.MISSING, _Verdict.UNCHANGED})
_NO_BUCKET_HINT: Final = "Create the bucket, or correct the location"


def _without_retries(client: Client) -> Client:
    """Give a client of the same store that sends each request once."""
    once: RetryConfig = {"max_retries": 0, "retry_timeout": timedelta(0)}
    match client:
        case S3Store():
            return S3Store(
                prefix=client.prefix,
                config=client.config,
                client_options=client.client_options,
                retry_config=once,
                credential_provider=client.credential_provider,
            )
        case GCSStore():
            return GCSStore(
                prefix=client.prefix,
                config=client.config,
                client_options=client.client_options,
                retry_config=once,
                credential_provider=client.credential_provider,
            )
        case AzureStore():
            return AzureStore(
                prefix=client.prefix,
                config=client.config,
                client_options=client.client_options,
                retry_config=once,
                credential_provider=client.credential_provider,
            )
        case MemoryStore():
            return client
        case _:
            raise InvalidArgument(
                f"{type(client).__name__} is no client of an object store with conditional writes",
                hint="Give an S3Store, GCSStore, AzureStore or MemoryStore of obstore",
            )


def _location(client: Client) -> str:
    match client:
        case S3Store():
            root = f"s3://{client.config['bucket']}"
        case GCSStore():
            root = f"gs://{client.config['bucket']}"
        case AzureStore():
            root = f"az://{client.config['container_name']}"
        case MemoryStore():
            return "memory://obstore"
    return f"{root}/{client.prefix}" if client.prefix else root


def _attempt(call: Callable[[], T]) -> T | _Failure:
    """Make one call; its error comes back as a value, so that nothing chains it (C4)."""
    try:
        return call()
    except (BaseError, FileNotFoundError, NotImplementedError) as error:
        return _understood(error)


def _understood(error: Exception) -> _Failure:
    """Say what an error means, from its class first and its status where the class is vague."""
    text = str(error)
    status_found = _STATUS.search(text)
    status = int(status_found[1]) if status_found else None
    code_found = _CODE.search(text, status_found.end()) if status_found else None
    code = code_found[1] if code_found else ""
    reason = f"{status} {code}".strip() if status else type(error).__name__
    if code == "NoSuchBucket":
        return _Failure(_Verdict.NO, reason, _NO_BUCKET_HINT)
    match error:
        case FileNotFoundError():
            return _Failure(_Verdict.MISSING, reason)
        case NotModifiedError():
            return _Failure(_Verdict.UNCHANGED, reason)
        case AlreadyExistsError() | PreconditionError():
            return _Failure(_Verdict.REFUSED, reason)
        case PermissionDeniedError() | UnauthenticatedError():
            return _Failure(_Verdict.NO, reason, _DENIED_HINT)
        case NotSupportedError() | NotImplementedError():
            return _Failure(_Verdict.NO, reason, "Use a store that has conditional writes")
        case InvalidPathError():
            return _Failure(_Verdict.NO, reason, _FOREIGN_NAME_HINT)
        case _:
            return _vague(text, status, reason)


def _vague(text: str, status: int | None, reason: str) -> _Failure:
    """Say what an error without a class of its own means."""
    transport = _TRANSPORT.search(text)
    if status in {401, 403}:
        return _Failure(_Verdict.NO, reason, _DENIED_HINT)
    if status == HTTPStatus.NOT_FOUND:
        return _Failure(_Verdict.NO, reason, _NO_BUCKET_HINT)
    if status == HTTPStatus.CONFLICT:
        return _Failure(_Verdict.REFUSED, reason)
    if status in _CLIENT_ERRORS and status not in _LOST_STATUSES:
        return _Failure(_Verdict.NO, reason)
    if _REDIRECT.search(text):
        return _Failure(_Verdict.NO, "redirect", "Set the storage option region to the bucket's")
    if transport and transport[1] == "Connect":
        return _Failure(_Verdict.NEVER_SENT, "no connection")
    return _Failure(_Verdict.LOST, "timed out" if transport else reason)


def _read(client: Client, path: str, *, unless: str | None = None) -> StoredObject:
    """Read a whole object with one request, unless its entity tag is the one given."""
    result = obstore.get(client, path, options={"if_none_match": unless} if unless else None)
    payload = result.bytes().to_bytes()
    meta = result.meta
    return StoredObject(payload=payload, tag=_tag(meta["e_tag"], meta["version"]))


def _tag(entity_tag: str | None, version: str | None) -> str:
    if entity_tag is None:
        raise Unavailable(
            "the store gives its objects no entity tag, so a change to one cannot be noticed",
            hint="Use a store that sends ETag",
        )
    return f"{entity_tag} {version}" if version else entity_tag


def _entity_tag(tag: str) -> str:
    return tag.partition(" ")[0]


def _condition(tag: str | None) -> "obstore.PutMode":
    if tag is None:
        return "create"
    entity_tag, _, version = tag.partition(" ")
    return {"e_tag": entity_tag, "version": version} if version else {"e_tag": entity_tag}


def _check_tag(tag: str) -> None:
    # The client panics on a header it cannot write.
    if not (0 < len(tag) <= _TAG_LENGTH_MAX and tag.isascii() and tag.isprintable()):
        raise InvalidArgument(
            "the tag is empty, too long, or holds characters no tag has",
            hint="Give a tag that this store gave",
        )


def _directory(prefix: str) -> str | None:
    """Give the directory to list for a prefix: the client lists directories, not prefixes."""
    return prefix.rpartition("/")[0] or None


def _offset(after: str | None) -> str | None:
    """Give the nearest path at or before `after` that the client takes as an offset."""
    if after is None:
        return None
    directory, _, name = after.rpartition("/")
    return (directory or None) if name in {"", ".", ".."} else after
