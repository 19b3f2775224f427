"""BucketLogs: append files in an object store, which has neither append nor locks.

The files of a directory are made of slots (`neve.storage.log_slots`); a sync creates the next one.

There is no lock in a bucket. A new writer ends the one before it by taking its next slots:

1. It has a larger number than any writer before, and its own directory: wal/8/.
2. `fence` lists the directories and looks at the one with the highest number below its own that has
   slots. If its newest slot is an end, its writer is done.
3. Otherwise it creates fences, all at once, in the slots after the newest and in those before it
   that are neither landed nor there; again, if the other writer was faster in every slot after the
   newest. One by one it would run after a busy writer.
4. Only then does it read, and create its first slot. Then it checks that its number is still the
   largest; before that check it acknowledges nothing.

STORAGE-43  If a directory has a slot, all directories with lower numbers have ended: fences come
            first. A writer that slept before its first slot finds a larger number in step 4.
STORAGE-44  The first fence that a writer would meet stays for ever: the writer that it stops may
            wake up at any time.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Final, TypeAlias

from neve.errors import AlreadyExists, Closed, Fenced, NeveError, NotFound
from neve.storage.clock import IdSource
from neve.storage.disk import FileKind
from neve.storage.log_slots import (
    END_BYTES,
    FENCE_BYTES,
    Append,
    Piece,
    Slot,
    SlotDirectory,
    SlotKind,
    decode_slot,
    encode_slot,
    slot_path,
)
from neve.storage.object_store import ObjectInfo, ObjectStore, StoredObject, at_once
from neve.storage.table_paths import (
    check_lock_path,
    check_object_path,
    check_path,
    check_preallocation,
    check_prefix,
    join_path,
    log_number,
    slot_number,
    split_path,
)

logger = logging.getLogger(__name__)

Placed: TypeAlias = list[tuple[Piece, int]]
"""Pieces of a file, each with the number of its slot."""

_FENCES: Final = 16
_PAYLOAD_BYTES_MAX: Final = 128 << 20


class SlotFile:
    """One file of BucketLogs, open for appending."""

    def __init__(self, directory: SlotDirectory, path: str) -> None:
        self._directory = directory
        self._path = path
        self._name = split_path(path)[1]
        self._position = 0
        self._closed: str | None = None

    @property
    def path(self) -> str:
        """Relative path inside the store."""
        return self._path

    @property
    def position(self) -> int:
        """Offset of the next append."""
        return self._position

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Keep the pieces, in order, for the next sync."""
        self._refuse_closed()
        content = b"".join(pieces)
        start, self._position = self._position, self._position + len(content)
        self._directory.append(self._name, start, content)

    def sync(self) -> None:
        """Make everything appended durable, also to other files of the directory."""
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        """Begin to sync; the function returned waits until this and all earlier ones are durable.

        More can be appended, and the next sync begun, before it returns. If it raises, the file is
        poisoned, and the syncs that were begun later raise too.
        """
        self._refuse_closed()
        land = self._directory.begin_slot()

        def wait() -> None:
            try:
                land()
            except BaseException as error:
                self._closed = f"a sync failed ({error})"
                raise

        return wait

    def truncate_to_position(self) -> None:
        """Do nothing: no space was reserved."""
        self._refuse_closed()

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        self._closed = self._closed or "it was closed"

    def _refuse_closed(self) -> None:
        if self._closed is not None:
            raise Closed(
                f"the append file takes no calls: {self._closed}",
                path=self._path,
                hint="Open a new one",
            )


class SlotLock:
    """A lock of BucketLogs."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()


_WITHOUT_PIECES: Final = {
    END_BYTES: Slot(kind=SlotKind.END),
    FENCE_BYTES: Slot(kind=SlotKind.FENCE),
}


class BucketLogs:
    """An ObjectStore and AppendFiles over an object store; safe for any number of threads.

    Only the directories of append files are different from the store below: each file there is
    made of slots. A file is in the bucket from its first sync on, space cannot be reserved, and a
    recycled file begins empty. A lock excludes other users of this object only.
    """

    def __init__(self, store: ObjectStore, *, ids: IdSource) -> None:
        # Fixed at construction.
        self._store = store
        self._ids = ids
        # Guarded by _lock.
        self._lock = Lock()
        self._directories: dict[str, SlotDirectory] = {}
        self._locked_paths: set[str] = set()
        self._payloads: OrderedDict[str, bytes] = OrderedDict()
        self._payload_bytes = 0

    def __repr__(self) -> str:
        return f"BucketLogs({self.location!r})"

    @property
    def location(self) -> str:
        """Root of the store below."""
        return self._store.location

    # ObjectStore

    def get(self, path: str) -> StoredObject:
        """Read a whole object or append file; raises NotFound."""
        directory = self._directory_of(path)
        if directory is None:
            return self._store.get(path)
        payload = self._read(directory, path, 0, None)
        return StoredObject(payload=payload, tag=f"{len(payload)}")

    def get_if_changed(self, path: str, *, tag: str) -> StoredObject | None:
        """Read a whole object unless it still has `tag`; raises NotFound."""
        return self._store.get_if_changed(path, tag=tag)

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        """Read up to `length` bytes from `start`; short only at the end; raises NotFound."""
        directory = self._directory_of(path)
        if directory is None or start < 0 or length < 0:
            return self._store.get_range(path, start=start, length=length)
        return self._read(directory, path, start, length)

    def size(self, path: str) -> int:
        """Return the size of an object in bytes; raises NotFound."""
        directory = self._directory_of(path)
        if directory is None:
            return self._store.size(path)
        placed, pending = self._placed(directory, path, beyond=None)
        return _end_of(placed, pending)

    def put(self, path: str, payload: bytes) -> str:
        """Write or replace an object; return its tag."""
        return self._store.put(path, payload)

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        """Create an object; return its tag, or None when another one is already there."""
        return self._store.put_if_absent(path, payload)

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        """Replace the object that has `tag`; return the new tag, or None when it has another."""
        return self._store.put_if_match(path, payload, tag=tag)

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield objects and append files whose path starts with `prefix`, ascending."""
        check_prefix(prefix)
        if after is not None:
            check_prefix(after)
        # Names of files begin otherwise than those of their slots: list the whole directory.
        above = split_path(prefix)[0]
        plain, slots = _parted(self._store.list(f"{above}/" if above else ""))
        infos = {info.path: info for info in plain}
        for path, sizes in slots.items():
            self._learn(self._directory(path), sizes)
        with self._lock:
            directories = [
                each for each in self._directories.values() if each.path.startswith(above)
            ]
        for directory in directories:
            if directory.path not in slots and not directory.is_own:
                directory.learn({}, gone=directory.slots())
            for name in directory.begun_names() | directory.names():
                path = join_path(directory.path, name)
                infos.setdefault(
                    path, ObjectInfo(path=path, size=_end_of(*directory.pieces_of(name)))
                )
        found = [
            info
            for path, info in infos.items()
            if path.startswith(prefix) and (after is None or path > after)
        ]
        return iter(sorted(found, key=lambda info: info.path))

    def delete(self, path: str) -> None:
        """Remove an object or append file; a missing one is ignored."""
        directory = self._directory_of(path)
        if directory is None:
            self._store.delete(path)
        else:
            unneeded = directory.drop(split_path(path)[1])
            self._delete_slots(directory.path, unneeded)

    # AppendFiles

    def create(self, path: str, *, preallocate_bytes: int = 0) -> SlotFile:
        """Open a new file; raises AlreadyExists. Its name is durable with its first sync."""
        check_object_path(path)
        check_preallocation(path, preallocate_bytes)
        above, name = split_path(path)
        directory = self._directory(above)
        if not directory.is_own:
            # The directory of a log is new, as the number of its writer: its first slot proves it.
            if log_number(path) is None:
                self._load(directory)
            directory.begin_writing(self._ids.uuid())
        # Nothing else is named as a log.
        is_taken = log_number(path) is None and any(
            info.path == path for info in self._store.list(path)
        )
        if is_taken or not directory.begin_file(name):
            raise AlreadyExists("the name is taken", path=path)
        return SlotFile(directory, path)

    def recycle(self, path: str, *, new_path: str, preallocate_bytes: int = 0) -> SlotFile:
        """Delete an old file and open a new, empty one; raises NotFound."""
        check_object_path(path)
        check_object_path(new_path)
        check_preallocation(path, preallocate_bytes)
        self.make_durable(path)
        file = self.create(new_path)
        self.delete(path)
        return file

    def make_durable(self, path: str) -> None:
        """Check that the file is there; raises NotFound. What is in a bucket is durable."""
        check_object_path(path)
        self.size(path)

    def odd_entries(self, directory: str) -> dict[str, FileKind]:
        """Return nothing: a bucket holds objects only."""
        check_path(directory)
        return {}

    def lock(self, path: str) -> SlotLock:
        """Take the lock at `path`, for this object only; raises Fenced when it is held.

        Releasing it ends the files below its directory, so that the next writer builds no fence.
        """
        check_lock_path(path)
        with self._lock:
            if path in self._locked_paths:
                raise Fenced(
                    "the lock is held by another handle of this process",
                    path=path,
                    hint="Close the other handle, or read without the lock",
                )
            self._locked_paths.add(path)
        return SlotLock(lambda: self._unlock(path))

    def _unlock(self, path: str) -> None:
        above = f"{split_path(path)[0]}/"
        with self._lock:
            own = [
                each
                for each in self._directories.values()
                if each.is_own and f"{each.path}/".startswith(above)
            ]
        try:
            for directory in own:
                directory.end_writing()
        except NeveError as error:
            logger.warning("could not end a log in good order path=%s cause=%s", path, error)
        finally:
            with self._lock:
                self._locked_paths.discard(path)

    # Writers that follow each other

    def fence(self, directory: str, *, below: int) -> None:
        """End the writer before this one; when this returns, no sync of it can succeed any more.

        Writers have numbered directories here; `below` is the number of the new one.
        """
        writer = self._ids.uuid()
        count = _FENCES
        while True:
            _, slots = _parted(self._store.list(f"{directory}/"))
            numbers = [number for path in slots if (number := _number_of(path)) < below]
            if not numbers:
                return
            path = join_path(directory, str(max(numbers)))
            sizes = slots[path]
            newest = max((each for each in sizes if sizes[each] not in _WITHOUT_PIECES), default=0)
            if not newest or sizes[max(sizes)] == END_BYTES:
                return
            # The farthest first, and more each time: a busy writer runs into them.
            places = range(newest + count, self._slot(path, newest).landed, -1)
            count *= 2

            def build(number: int, path: str = path) -> bool:
                payload = encode_slot(writer, number, kind=SlotKind.FENCE, fenced_by=below)
                return self._store.put_if_absent(slot_path(path, number), payload) is not None

            free = [number for number in places if number not in sizes]
            built = {
                number
                for number, is_built in zip(free, at_once(build, free), strict=True)
                if is_built
            }
            fences = built | {number for number, size in sizes.items() if size == FENCE_BYTES}
            if max(fences, default=0) > newest:
                return

    def clean(self, directory: str, *, below: int) -> None:
        """Remove what earlier writers left, except files and the fences that stop them.

        Call it when the new writer has its first slot, and before it deletes files of others.
        """
        with self._lock:
            known = [each for each in self._directories.values() if not each.is_own]
        for each in known:
            above, name = split_path(each.path)
            if above == directory and name.isdecimal() and int(name) < below:
                unneeded = _unneeded(each.slots())
                self._delete_slots(each.path, unneeded)
                each.learn({}, gone=unneeded)

    # Slots

    def _directory(self, path: str) -> SlotDirectory:
        with self._lock:
            return self._directories.setdefault(path, SlotDirectory(self._store, path))

    def _directory_of(self, path: str) -> SlotDirectory | None:
        """Return the directory of an append file; None for an object, which has no slots.

        A log may be an object: a lake that was copied from a disk has such logs.
        """
        check_object_path(path)
        above, name = split_path(path)
        with self._lock:
            directory = self._directories.get(above)
        if log_number(path) is not None and directory is None:
            directory = self._directory(above)
            self._load(directory)
        if directory is None:
            return None
        while name not in directory.begun_names() | directory.names():
            if log_number(path) is None or not self._look_ahead(directory):
                return None
        return directory

    def _load(self, directory: SlotDirectory) -> None:
        """Find the slots of a directory."""
        prefix = f"{directory.path}/" if directory.path else ""
        _, slots = _parted(self._store.list(prefix))
        self._learn(directory, slots.get(directory.path, {}))

    def _learn(self, directory: SlotDirectory, sizes: Mapping[int, int]) -> None:
        """Read the slots of a listing that are not known yet."""
        if directory.is_own:
            return
        known = directory.slots()
        new = [number for number in sizes if number not in known]
        found = {
            number: _WITHOUT_PIECES[sizes[number]]
            for number in new
            if sizes[number] in _WITHOUT_PIECES
        }
        read = [number for number in new if number not in found]

        def look(number: int) -> Slot | None:
            try:
                return self._slot(directory.path, number)
            except NotFound:
                return None  # deleted since it was listed

        looked = zip(read, at_once(look, read), strict=True)
        found |= {number: slot for number, slot in looked if slot is not None}
        directory.learn(found, gone=[number for number in known if number not in sizes])

    def _look_ahead(self, directory: SlotDirectory) -> bool:
        """Look for slots after the newest; False when there is none."""
        known = directory.slots()
        newest = max(known, default=0)
        if directory.is_own or (newest and known[newest].kind is not SlotKind.PIECES):
            return False
        try:
            directory.learn({newest + 1: self._slot(directory.path, newest + 1)})
        except NotFound:
            return False
        self._load(directory)
        return True

    def _slot(self, directory: str, number: int) -> Slot:
        path = slot_path(directory, number)
        return decode_slot(self._payload(path), path=path)

    def _payload(self, path: str) -> bytes:
        """Read a slot, or return the one read before: the newest stay in memory."""
        with self._lock:
            payload = self._payloads.get(path)
        if payload is None:
            payload = self._store.get(path).payload
            with self._lock:
                if path not in self._payloads:
                    self._payloads[path] = payload
                    self._payload_bytes += len(payload)
                while self._payload_bytes > _PAYLOAD_BYTES_MAX:
                    self._payload_bytes -= len(self._payloads.popitem(last=False)[1])
        return payload

    def _placed(
        self, directory: SlotDirectory, path: str, *, beyond: int | None
    ) -> tuple[Placed, Sequence[Append]]:
        """Find the bytes of a file, also those after `beyond` if it seems to end before."""
        name = split_path(path)[1]
        while True:
            placed, pending = directory.pieces_of(name)
            is_short = beyond is not None and _end_of(placed, pending) < beyond
            if not is_short or not self._look_ahead(directory):
                break
        return placed, pending

    def _read(self, directory: SlotDirectory, path: str, start: int, length: int | None) -> bytes:
        end = None if length is None else start + length
        placed, pending = self._placed(directory, path, beyond=end)
        stop = _end_of(placed, pending) if end is None else min(end, _end_of(placed, pending))
        content = bytearray(max(0, stop - start))
        wanted = [
            (piece, number) for piece, number in placed if piece.offset < stop and piece.end > start
        ]
        payloads = at_once(
            lambda number: self._payload(slot_path(directory.path, number)),
            [number for _, number in wanted],
        )
        for (piece, _), payload in zip(wanted, payloads, strict=True):
            whole = memoryview(payload)[piece.start : piece.start + piece.length]
            _overlay(content, start, piece.offset, whole)
        for each in pending:
            _overlay(content, start, each.offset, memoryview(each.content))
        return bytes(content)

    def _delete_slots(self, directory: str, numbers: Sequence[int]) -> None:
        paths = [slot_path(directory, number) for number in numbers]
        with self._lock:
            for path in paths:
                self._payload_bytes -= len(self._payloads.pop(path, b""))
        at_once(self._store.delete, paths)


def _unneeded(slots: Mapping[int, Slot]) -> list[int]:
    """Return the ends and fences of an earlier writer that stop no one (STORAGE-41)."""
    own = [number for number, slot in slots.items() if slot.pieces]
    ends = [number for number, slot in slots.items() if slot.kind is SlotKind.END]
    fences = sorted(number for number, slot in slots.items() if slot.kind is SlotKind.FENCE)
    if ends and not own:
        return [*ends, *fences]
    if not own or not fences:
        return []
    landed = slots[max(own)].landed
    first = next((number for number in fences if number > landed), None)
    return [number for number in fences if number != first]


def _end_of(placed: Placed, pending: Sequence[Append]) -> int:
    """Return the size of a file."""
    ends = [piece.end for piece, _ in placed]
    return max([*ends, *(each.offset + len(each.content) for each in pending)], default=0)


def _overlay(content: bytearray, start: int, offset: int, piece: memoryview) -> None:
    """Copy the part of a piece that is in a range of the file that begins at `start`."""
    skipped = max(0, start - offset)
    at = offset + skipped - start
    part = piece[skipped : skipped + max(0, len(content) - at)]
    content[at : at + len(part)] = part


def _parted(infos: Iterator[ObjectInfo]) -> tuple[list[ObjectInfo], dict[str, dict[int, int]]]:
    """Return plain objects, and the sizes of slots by directory and number."""
    plain: list[ObjectInfo] = []
    slots: dict[str, dict[int, int]] = {}
    for info in infos:
        number = slot_number(info.path)
        if number is None:
            plain.append(info)
        else:
            slots.setdefault(split_path(info.path)[0], {})[number] = info.size
    return plain, slots


def _number_of(directory: str) -> int:
    name = split_path(directory)[1]
    return int(name) if name.isdecimal() else 1 << 64
