"""CloudStore: an ObjectStore on S3, Google Cloud Storage or Azure, through obstore.

It is tested with S3 servers, Azurite and obstore's in-memory store; no test has run against Google.

An answer can be lost after its write was applied, and S3 refuses a create that it lost track of.
So the only trusted answer to a conditional write is "written"; after any other the object is read
back, and its content decides:

    the answer            the object now      put_if_absent    put_if_match
    ─────────────────────────────────────────────────────────────────────────────────────────────
    written               is not read         its tag          its tag
    refused or lost       holds our bytes     its tag          its tag
    refused or lost       is as before        try again        try again
    refused or lost       is another's        None             None; after a lost answer
                                                               OutcomeUnknown
    never sent            is not read         try again        try again
    no                    is not read         StorageRefused; after a lost answer OutcomeUnknown

As before means absent for `put_if_absent`, and the old tag for `put_if_match`. Trying again ends
with patience: in OutcomeUnknown when an answer was lost, otherwise in Unavailable.

STORAGE-24  The client never repeats a write on its own, except the parts of a large object: a
            repeated conditional write is refused because of its own first request, and success
            looks like conflict.
STORAGE-25  No other writer may replace an object created with `put_if_absent` before that call
            returns: the writer recognizes its own object by the bytes. neve's commit slots are
            never replaced.
STORAGE-26  A proxy that repeats a request turns a success into a refusal; reading back detects
            that. Only when a third writer replaces the object in between does the call return
            None.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from neve.errors import (
    InvalidArgument,
    NeveError,
    NotFound,
    OutcomeUnknown,
    Phrase,
    StorageRefused,
    Unavailable,
    Wording,
)
from neve.storage.clock import Clock, IdSource, SystemClock, SystemIds
from neve.storage.cloud_client import (
    NO_BUCKET_HINT,
    Bucket,
    CloudClient,
    Failure,
    Verdict,
    check_tag,
    entity_tag,
    open_bucket,
)
from neve.storage.cloud_options import PATIENCE_SECONDS, ClientOptions, Listing
from neve.storage.object_store import ObjectInfo, RequestCount, StoredObject
from neve.storage.table_paths import check_object_path, check_prefix, is_object_name, split_path

T = TypeVar("T")

PART_BYTES: Final = 64 << 20
OBJECT_BYTES_MAX: Final = 5 << 30
_FIRST_PAUSE_SECONDS: Final = 0.05
_PAUSE_SECONDS_MAX: Final = 2.0
# Larger than any object, and the sum of two still fits the client's 64 bits.
_OFFSET_MAX: Final = 1 << 61
# Answers, not failures: asking again returns the same.
_FINDINGS: Final = frozenset({Verdict.MISSING, Verdict.UNCHANGED})


class CloudStore:
    """An ObjectStore over one bucket; safe for any number of threads."""

    def __init__(
        self,
        bucket: Bucket,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        part_bytes: int = PART_BYTES,
        object_bytes_max: int = OBJECT_BYTES_MAX,
        listing: Listing = Listing.ORDERED,
    ) -> None:
        """Use a store of obstore: S3Store, AzureStore, GCSStore or MemoryStore.

        `patience_seconds` bounds how long a call retries; the time-out in the bucket's client
        options bounds each try. `put` sends objects larger than `part_bytes` in parts. An object
        larger than `object_bytes_max` is neither written nor read whole.
        """
        self._client = CloudClient(bucket, part_bytes=part_bytes, object_bytes_max=object_bytes_max)
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self._patience_seconds = patience_seconds
        self._listing = listing

    def __repr__(self) -> str:
        return f"CloudStore({self.location!r})"

    @property
    def location(self) -> str:
        """Root as a URI: `s3://bucket/prefix`, `gs://…`, `abfss://…` or `az://…`."""
        return self._client.location

    def requests(self) -> Mapping[str, RequestCount]:
        """Return the requests since the store was opened, by kind; repeated ones count again."""
        return self._client.requests()

    def get(self, path: str) -> StoredObject:
        """Read a whole object; raises NotFound."""
        check_object_path(path)
        return self._found(self._persist(lambda: self._client.read(path)), path)

    def get_if_changed(self, path: str, *, tag: str) -> StoredObject | None:
        """Read a whole object unless it still has `tag`; raises NotFound."""
        check_object_path(path)
        check_tag(tag)
        answer = self._persist(lambda: self._client.read(path, unless=tag))
        if isinstance(answer, Failure) and answer.verdict is Verdict.UNCHANGED:
            return None
        return self._found(answer, path)

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        """Read up to `length` bytes from `start`; short only at the end; raises NotFound."""
        check_object_path(path)
        if start < 0 or length < 0:
            raise InvalidArgument(
                f"a byte range cannot start at {start} with length {length}",
                path=path,
                hint="Pass a start and a length of 0 or more",
            )
        if length == 0 or start > _OFFSET_MAX:
            self.size(path)
            return b""
        wanted = min(length, _OFFSET_MAX)
        answer = self._persist(lambda: self._client.read_range(path, start=start, length=wanted))
        return self._found(answer, path)

    def size(self, path: str) -> int:
        """Return the size of an object in bytes; raises NotFound."""
        check_object_path(path)
        answer = self._persist(lambda: self._client.size(path))
        if isinstance(answer, Failure) and answer.verdict is Verdict.MISSING:
            # The object or the bucket is missing: a read shows which, and raises for both.
            self.get_range(path, start=0, length=1)
        return self._found(answer, path)

    def put(self, path: str, payload: bytes) -> str:
        """Write or replace an object; return its tag."""
        check_object_path(path)
        self._client.check_payload(path, payload)
        answer = self._persist(lambda: self._client.write(path, payload))
        if isinstance(answer, str):
            return answer
        # If the client repeats requests, any answer but NO may hide a success.
        repeated = self._client.writes_in_parts(payload) and answer.verdict is not Verdict.NO
        raise self._not_done(answer, path, lost=repeated or answer.verdict is Verdict.LOST)

    def link(self, path: str, new_path: str) -> None:
        """Store an object under a new name as well, copied by the bucket; raises NotFound."""
        check_object_path(path)
        check_object_path(new_path)
        failure = self._persist(lambda: self._client.copy(path, new_path))
        if failure is None:
            return
        if failure.verdict is Verdict.MISSING:
            self.size(path)  # raises NotFound, or for a bucket that is missing
        raise self._not_done(failure, new_path, lost=failure.verdict is Verdict.LOST)

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        """Create an object; return its tag, or None when another one is already there."""
        check_object_path(path)
        self._client.check_payload(path, payload)
        return self._put_if(path, payload, tag=None)

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        """Replace the object that has `tag`; return the new tag, or None when it has another."""
        check_object_path(path)
        check_tag(tag)
        self._client.check_payload(path, payload)
        return self._put_if(path, payload, tag=tag)

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield objects whose path starts with `prefix`, ascending, starting after `after`.

        An ordered listing is read as it is consumed, an unordered one whole, to sort it. Locks and
        temporary files that were copied from a disk are left out.
        """
        check_prefix(prefix)
        if after is not None:
            check_prefix(after)
        is_ordered = self._listing is Listing.ORDERED
        found = (self._list_in_order if is_ordered else self._list_sorted)(prefix, after)
        return (info for info in found if is_object_name(split_path(info.path)[1]))

    def delete(self, path: str) -> None:
        """Remove an object; a missing one is ignored."""
        check_object_path(path)
        failure = self._persist(lambda: self._client.delete(path))
        if failure is not None and failure.verdict is not Verdict.MISSING:
            raise self._not_done(failure, path, lost=failure.verdict is Verdict.LOST)

    def _put_if(self, path: str, payload: bytes, *, tag: str | None) -> str | None:
        """Follow the table at the top of this module; without a tag, the object must be absent."""
        lost = False
        for _ in self._tries():
            answer = self._client.write_if(path, payload, tag=tag)
            if isinstance(answer, str):
                return answer
            failure = answer
            if failure.verdict in {Verdict.NO, Verdict.MISSING}:
                break
            if failure.verdict is Verdict.NEVER_SENT:
                continue
            lost = lost or failure.verdict is Verdict.LOST
            found = self._client.read_once(path)
            if isinstance(found, StoredObject):
                if found.payload == payload:
                    return found.tag
                as_before = tag is not None and entity_tag(found.tag) == entity_tag(tag)
            elif found.verdict is Verdict.NO:
                failure = found
                break
            else:
                # An object that cannot be read now may be unchanged: the next try shows it.
                as_before = tag is None or found.verdict is not Verdict.MISSING
            if as_before:
                continue
            if lost and tag is not None:
                break
            return None
        raise self._not_done(failure, path, lost=lost)

    # Retries and their outcome

    def _tries(self) -> Iterator[None]:
        """Yield once per try: immediately, then after growing, jittered pauses."""
        ends_at = self._clock.monotonic() + self._patience_seconds
        pause = _FIRST_PAUSE_SECONDS
        while True:
            yield
            wait = pause * (0.5 + self._ids.jitter() / 2)
            if self._clock.monotonic() + wait > ends_at:
                return
            self._clock.sleep(wait)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def _persist(self, request: Callable[[], T | Failure]) -> T | Failure:
        """Repeat an idempotent request until it has a result or a permanent failure.

        After one lost answer the outcome is LOST, whatever the last answer was.
        """
        lost = False
        for _ in self._tries():
            answer = request()
            if not isinstance(answer, Failure) or answer.verdict in _FINDINGS:
                return answer
            failure = answer
            lost = lost or failure.verdict is Verdict.LOST
            if failure.verdict is Verdict.NO:
                break
        return replace(failure, verdict=Verdict.LOST) if lost else failure

    def _found(self, answer: T | Failure, path: str) -> T:
        """Return what a read found; raises NotFound or Unavailable."""
        if not isinstance(answer, Failure):
            return answer
        if answer.verdict is Verdict.MISSING:
            raise NotFound(
                "there is no such object", path=path, hint=f"The store is {self.location}"
            )
        raise self._unavailable(answer, path)

    def _not_done(self, failure: Failure, path: str, *, lost: bool) -> NeveError:
        if lost:
            return OutcomeUnknown(
                f"{self.location} did not say whether the change was made ({failure.reason})",
                path=path,
                hint="Read before repeating it",
            )
        if failure.verdict is Verdict.MISSING:
            # A write does not need an existing object: the bucket is missing.
            return self._unavailable(replace(failure, hint=NO_BUCKET_HINT), path)
        return self._unavailable(failure, path)

    def _unavailable(self, failure: Failure, path: str | None = None) -> Unavailable:
        is_final = failure.verdict in {Verdict.NO, Verdict.MISSING}
        return (StorageRefused if is_final else Unavailable)(
            f"{self.location} did not serve the request ({failure.reason})",
            path=path,
            hint=failure.hint or "Check the endpoint, the network and the credentials",
        )

    # Listings

    def _list_in_order(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        listing = self._client.listing(_directory(prefix), offset=_offset(after))
        last = ""
        while chunk := self._listed(self._persist(listing.next_chunk)):
            for info in chunk:
                if info.path <= last:
                    if info.size == 0:
                        # A folder marker, `name/`, is listed as `name`, and out of order.
                        continue
                    raise Unavailable(
                        f"{self.location} lists objects out of order",
                        path=info.path,
                        hint=Wording(Phrase.UNORDERED_LISTING),
                    )
                last = info.path
                if not info.path.startswith(prefix):
                    if info.path > prefix:
                        return
                elif after is None or info.path > after:
                    yield info

    def _list_sorted(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        directory = _directory(prefix)
        found = [
            info
            for info in self._listed(self._persist(lambda: self._client.list_all(directory)))
            if info.path and info.path.startswith(prefix) and (after is None or info.path > after)
        ]
        yield from sorted(found, key=lambda info: info.path)

    def _listed(self, answer: T | Failure) -> T:
        if isinstance(answer, Failure):
            raise self._unavailable(answer)
        return answer


def _directory(prefix: str) -> str | None:
    """Return the directory to list for a prefix: the client lists directories, not prefixes."""
    return prefix.rpartition("/")[0] or None


def _offset(after: str | None) -> str | None:
    """Return the last path at or before `after` that the client accepts as an offset."""
    if after is None:
        return None
    directory, _, name = after.rpartition("/")
    return (directory or None) if name in {"", ".", ".."} else after


def open_cloud(
    bucket: str,
    *,
    prefix: str,
    options: ClientOptions,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> CloudStore:
    """Open the part of a bucket below `prefix`; an empty prefix is the whole bucket."""
    return CloudStore(
        open_bucket(bucket, prefix=prefix, options=options),
        clock=clock,
        ids=ids,
        patience_seconds=options.patience_seconds,
        listing=options.listing,
    )
