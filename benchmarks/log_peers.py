"""Who writes a log: neve, RocksDB, and the bare system calls.

All write below one directory. RocksDB runs with its defaults but for two things that are kept out
of its way: raw bytes instead of pickled values, and a memtable so large that nothing is flushed
while the clock runs. It keeps rows in that memtable as well, which a log alone does not: where
that matters, neve has a second candidate that keeps rows in a dict.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rocksdict import Options, Rdict, WriteOptions

from benchmarks.sample_rows import Row
from neve.model.write_batch import PutRow
from neve.storage.local_store import LocalStore
from neve.storage.posix_disk import PosixDisk
from neve.storage.table_paths import TablePaths, log_number
from neve.wal.batch_codec import LoggedBatch, encode_put, frame_batch
from neve.wal.log_options import LogOptions, LogPlace, SyncPolicy
from neve.wal.record_format import RECYCLABLE_HEADER_BYTES
from neve.wal.replay import LogFile, Replay
from neve.wal.write_ahead_log import WriteAheadLog

_PATHS: Final = TablePaths("bench")
_EPOCH: Final = 1
_MEMTABLE_BYTES: Final = 1 << 30


class CountingDisk(PosixDisk):
    """The real disk, counting its syncs."""

    def __init__(self) -> None:
        super().__init__()
        self.sync_count = 0

    def sync(self, handle: int) -> None:
        """Sync and count; the log lets one thread do this at a time."""
        super().sync(handle)
        self.sync_count += 1


def open_neve(directory: Path, sync: SyncPolicy, *, disk: PosixDisk | None = None) -> WriteAheadLog:
    """Begin a log with default options but for the sync policy."""
    store = LocalStore(str(directory), disk=disk)
    return WriteAheadLog(
        LogPlace(logs=store, log_path=lambda number: _PATHS.wal_file(_EPOCH, number)),
        next_log_number=1,
        next_sequence=1,
        options=LogOptions(sync=sync),
    )


def replay_neve(directory: Path) -> Iterator[LoggedBatch]:
    """Yield every batch of the logs in a directory, as recovery does."""
    store = LocalStore(str(directory), create=False)
    logs = []
    for found in store.list(_PATHS.wal_epoch(_EPOCH)):
        number = log_number(found.path)
        assert number is not None
        logs.append(LogFile(number=number, path=found.path))
    yield from Replay(store, logs)


def read_neve_rows(directory: Path) -> list[Row]:
    """Read back single rows, in the order in which they were logged."""
    return [
        (change.key, change.value)
        for logged in replay_neve(directory)
        for change in logged.batch.changes
        if isinstance(change, PutRow)
    ]


@contextmanager
def open_rocksdb(directory: Path, *, synced: bool) -> Iterator[Rdict]:
    """Open or create a RocksDB; its log is on, and synced by every write if asked for."""
    options = Options(raw_mode=True)
    options.set_write_buffer_size(_MEMTABLE_BYTES)
    database = Rdict(str(directory / "rocksdb"), options)
    writing = WriteOptions()
    writing.sync = synced
    database.set_write_options(writing)
    try:
        yield database
    finally:
        database.close()


def read_rocksdb_rows(database: Rdict) -> list[Row]:
    """Read every row, by ascending key."""
    return list(database.items())  # type: ignore[arg-type]


def _log_frame_bytes() -> int:
    """Bytes that neve's log puts around one row."""
    row = encode_put(b"", b"", schema_version=1)
    payload = frame_batch(row, sequence=1, durable_through=0, nonce=0)
    return RECYCLABLE_HEADER_BYTES + sum(map(len, payload))


BARE_FRAME: Final = bytes(_log_frame_bytes())
"""Goes before a row that is written without a log, so that as many bytes reach the disk."""


class RawFile:
    """A preallocated file and the system calls of a log that has no format."""

    def __init__(self, directory: Path, *, preallocate_bytes: int) -> None:
        self._path = directory / "raw"
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.posix_fallocate(self._handle, 0, preallocate_bytes)
        os.fsync(self._handle)
        self._position = 0

    def write(self, piece: bytes) -> None:
        """Write at the end."""
        self._position += os.pwrite(self._handle, piece, self._position)

    def write_durably(self, piece: bytes) -> None:
        """Write at the end and wait until it survives power loss."""
        self.write(piece)
        os.fdatasync(self._handle)

    def close(self) -> bytes:
        """Release the file and give what was written, read back."""
        os.close(self._handle)
        return self._path.read_bytes()[: self._position]
