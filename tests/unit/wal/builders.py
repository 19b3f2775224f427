"""Small logs for tests, with defaults."""

from collections.abc import Callable, Collection
from typing import Protocol

from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import AppendFiles, ObjectStore
from neve.wal.append_outcome import NOT_YET, NotYet, Unapplied
from neve.wal.batch_codec import EncodedChanges, LoggedBatch, encode_put
from neve.wal.durability import LogOwner
from neve.wal.log_options import LogOptions, LogPlace, SyncPolicy
from neve.wal.replay import LogFile, RecoveryMode, Replay
from neve.wal.write_ahead_log import WriteAheadLog

SMALL = LogOptions(sync=SyncPolicy.ALWAYS, segment_bytes=64 << 10, preallocate=False)


class LogStore(AppendFiles, ObjectStore, Protocol):
    """A store that keeps logs."""


def log_path(number: int) -> str:
    return f"wal/{number:06}.wal"


def put(key: str, value: bytes = b"value") -> EncodedChanges:
    return encode_put(key.encode(), value, schema_version=1)


class Counting:
    """Decides to write a key with one more than the number that is applied."""

    def __init__(self, key: str, numbers: dict[str, int], *, most: int | None = None) -> None:
        self._key = key
        self._numbers = numbers
        self._most = most
        self._next = 0
        self.byte_count = 64
        self.asked = 0

    def written_keys(self) -> Collection[bytes]:
        return (self._key.encode(),)

    def decide(self, unapplied: Unapplied) -> EncodedChanges | NotYet | None:
        self.asked += 1
        if self._key.encode() in unapplied:
            return NOT_YET
        self._next = self._numbers.get(self._key, 0) + 1
        if self._most is not None and self._next > self._most:
            return None
        return put(self._key, b"%d" % self._next)

    def apply(self, sequence: int) -> None:
        del sequence
        self._numbers[self._key] = self._next


class KeyOf:
    """Knows the key of a batch."""

    def __init__(self, key: str) -> None:
        self._key = key

    def written_keys(self) -> Collection[bytes]:
        return (self._key.encode(),)


def open_log(
    store: LogStore,
    *,
    number: int = 1,
    sequence: int = 1,
    options: LogOptions = SMALL,
    older_logs: tuple[LogFile, ...] = (),
    path: Callable[[int], str] = log_path,
    owner: LogOwner | None = None,
) -> WriteAheadLog:
    return WriteAheadLog(
        LogPlace(logs=store, log_path=path, owner=owner),
        next_log_number=number,
        next_sequence=sequence,
        older_logs=older_logs,
        options=options,
    )


def logs_in(store: ObjectStore) -> list[LogFile]:
    return [
        LogFile(number=int(found.path.split("/")[-1].removesuffix(".wal")), path=found.path)
        for found in store.list("wal/")
        if found.path.endswith(".wal")
    ]


def replay(
    store: ObjectStore, mode: RecoveryMode = RecoveryMode.TOLERATE_TORN_TAIL
) -> tuple[list[LoggedBatch], Replay]:
    replaying = Replay(store, logs_in(store), mode=mode)
    return list(replaying), replaying


def written_log(*keys: str, close: bool = True) -> MemoryStore:
    """Return a store with one log holding a put per key."""
    store = MemoryStore()
    log = open_log(store)
    for key in keys:
        log.append(put(key))
    if close:
        log.close()
    return store


def rewrite(store: ObjectStore, change: Callable[[bytearray], None], number: int = 1) -> None:
    """Replace a log's bytes by a changed copy."""
    bytes_now = bytearray(store.get(log_path(number)).payload)
    change(bytes_now)
    store.put(log_path(number), bytes(bytes_now))
