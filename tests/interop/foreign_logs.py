"""Logs written by the real RocksDB and LevelDB, and the two databases as judges of neve's logs.

Batches are made, encoded and applied here without `neve.wal`, so that what the databases and neve
are compared with is a third opinion; only `neve_logs` and `read_batches` use what is under test.

RocksDB is opened in a child process: a log that makes it crash or spin costs a test its answer,
not the whole run. It opens read-only, which replays logs as a writing open does and leaves the
folder as it was, so that one folder serves all four recovery modes; a test holds the two equal.
"""

import multiprocessing
import os
import random
import shutil
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Self, cast

import pytest
from rocksdict import AccessType, DBRecoveryMode, Options, Rdict
from rocksdict import WriteBatch as RocksBatch

from neve.model.write_batch import Change, DeleteRow, PutRow, WriteBatch
from neve.storage.memory_store import MemoryStore
from neve.wal.batch_codec import encode_changes
from neve.wal.foreign_replay import ForeignReplay
from neve.wal.log_options import LogOptions, LogPlace, SyncPolicy
from neve.wal.record_format import BLOCK_BYTES, Dialect
from neve.wal.replay import LogFile, RecoveryMode
from neve.wal.segment_reader import Record, SegmentEnd, SegmentReader
from neve.wal.write_ahead_log import WriteAheadLog

ANSWER_SECONDS: Final = 20.0
FIRST_LOG: Final = 10
"""Number of the first log put into a fresh database: above all files it has already."""

_LARGEST: Final = 200_000
_ROCKSDB_MODES: Final = {
    RecoveryMode.TOLERATE_TORN_TAIL: DBRecoveryMode.tolerate_corrupted_tail_records,
    RecoveryMode.ABSOLUTE: DBRecoveryMode.absolute_consistency,
    RecoveryMode.POINT_IN_TIME: DBRecoveryMode.point_in_time,
    RecoveryMode.SKIP_CORRUPT: DBRecoveryMode.skip_any_corrupted_record,
}

Row = PutRow | DeleteRow


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are written together, the first with `sequence`."""

    sequence: int
    rows: tuple[Row, ...]

    @property
    def next_sequence(self) -> int:
        return self.sequence + len(self.rows)

    def payload(self) -> bytes:
        """Encode it as LevelDB's write batch."""
        entries = b"".join(map(_entry, self.rows))
        return struct.pack("<QI", self.sequence, len(self.rows)) + entries


def random_batches(
    seed: random.Random, *, count: int, sequence: int = 1, largest: int = _LARGEST
) -> list[Batch]:
    """Make puts and deletes over few keys, mostly small, some as large as `largest`."""
    batches = []
    for _ in range(count):
        row_count = seed.choice((1, 1, 1, 2, 5, 40))
        rows = tuple(_random_row(seed, largest // row_count) for _ in range(row_count))
        batches.append(Batch(sequence, rows))
        sequence += row_count
    return batches


def rows_after(changes: Iterable[Change]) -> dict[bytes, bytes]:
    """Return what a database holds after these changes."""
    rows: dict[bytes, bytes] = {}
    for change in changes:
        match change:
            case PutRow(key, value):
                rows[key] = value
            case DeleteRow(key):
                rows.pop(key, None)
            case _:
                raise AssertionError(f"no such change in a foreign log: {change}")
    return rows


def rows_of(batches: Iterable[Batch]) -> dict[bytes, bytes]:
    """Return what a database holds after these batches."""
    return rows_after(row for batch in batches for row in batch.rows)


# What neve reads and writes


def replay_of(
    logs: Mapping[int, bytes], mode: RecoveryMode, dialect: Dialect | None = None
) -> ForeignReplay:
    """Put logs where neve reads them."""
    store = MemoryStore()
    files = [LogFile(number=number, path=f"{number:06}.log") for number in logs]
    for file in files:
        store.put(file.path, logs[file.number])
    return ForeignReplay(store, files, mode=mode, dialect=dialect)


def read_batches(logs: Mapping[int, bytes], mode: RecoveryMode) -> list[Batch]:
    """Read logs with neve, which finds out for itself who wrote them."""
    return [
        Batch(logged.sequence, cast("tuple[Row, ...]", logged.batch.changes))
        for logged in replay_of(logs, mode)
    ]


def assert_reads_whole(log: bytes) -> None:
    """Hold a log to be records from its first byte to its last."""
    events = list(SegmentReader(lambda offset, length: log[offset : offset + length]))
    assert [type(event) for event in events[:-1]] == [Record] * (len(events) - 1)
    assert events[-1] == SegmentEnd(offset=len(log), resume_offset=len(log), file_bytes=len(log))


def neve_logs(seed: random.Random, batches: Sequence[Batch]) -> dict[int, bytes]:
    """Return the logs that neve writes in RocksDB's dialect, closed or not, zeros behind or not."""
    store = MemoryStore()
    log = WriteAheadLog(
        LogPlace(logs=store, log_path=lambda number: f"{number:06}.log"),
        next_log_number=FIRST_LOG,
        next_sequence=batches[0].sequence,
        options=LogOptions(
            sync=SyncPolicy.NONE,
            segment_bytes=seed.choice((1, 4, 40)) * BLOCK_BYTES,
            preallocate=seed.random() < 0.5,
            recycle_count=seed.choice((0, 1)),
            dialect=Dialect.ROCKSDB,
        ),
    )
    for batch in batches:
        assert log.append(encode_changes(WriteBatch(batch.rows))) == batch.sequence
    if seed.random() < 0.5:
        log.close()
    return {
        int(found.path.removesuffix(".log")): store.get(found.path).payload
        for found in store.list("")
    }


@contextmanager
def fast_folder() -> Iterator[Path]:
    """Return an empty folder in memory where the system has one, on disk otherwise."""
    memory = "/dev/shm"  # noqa: S108 - the folder below it has a name nobody can guess
    parent = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Path(folder)


def log_files(folder: Path) -> dict[int, Path]:
    """Return a database's logs by number, in order."""
    return {int(path.stem): path for path in sorted(folder.glob("*.log"))}


# What the databases write


def rocksdb_logs(folder: Path, batches: Sequence[Batch]) -> dict[int, bytes]:
    """Return the logs that RocksDB writes, rotating whenever a small memtable is full.

    Enough memtables may wait that none is flushed and no log goes away. The database is not closed
    before its logs are read.
    """
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(64 << 10)
    options.set_max_write_buffer_number(1_000)
    options.set_min_write_buffer_number_to_merge(999)
    database = Rdict(str(folder), options)
    for batch in batches:
        database.write(_rocks_batch(batch))
    logs = {number: path.read_bytes() for number, path in log_files(folder).items()}
    database.close()
    return logs


def recycled_rocksdb_log(
    folder: Path, older: Sequence[Batch], newest: Sequence[Batch]
) -> dict[int, bytes]:
    """Return the log that RocksDB writes for `newest` over one that held `older`."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_recycle_log_file_num(1)
    database = Rdict(str(folder), options)
    for batch in older:
        database.write(_rocks_batch(batch))
    database.flush()  # frees the log that held them
    for batch in older:
        database.write(_rocks_batch(batch))
    database.flush()  # begins the next log in the freed one
    for batch in newest:
        database.write(_rocks_batch(batch))
    number, path = list(log_files(folder).items())[-1]
    log = path.read_bytes()
    database.close()
    return {number: log}


def leveldb() -> Any:  # noqa: ANN401 - plyvel has no types
    """Return LevelDB's Python module; skips the test where there is none."""
    return pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and newer")


def leveldb_logs(folder: Path, batches: Sequence[Batch]) -> dict[int, bytes]:
    """Return the logs that LevelDB writes; each is linked when it appears, as full ones go away."""
    kept = folder.with_name(folder.name + "-kept")
    kept.mkdir()
    database = leveldb().DB(str(folder), create_if_missing=True, write_buffer_size=64 << 10)
    for batch in batches:
        with database.write_batch() as writes:
            for row in batch.rows:
                if isinstance(row, PutRow):
                    writes.put(row.key, row.value)
                else:
                    writes.delete(row.key)
        for path in log_files(folder).values():
            if not (kept / path.name).exists():
                os.link(path, kept / path.name)
    logs = {number: path.read_bytes() for number, path in log_files(kept).items()}
    database.close()
    return logs


# What the databases recover


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a database holds after it replayed its logs."""

    rows: dict[bytes, bytes]
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a database did not open."""

    message: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The database crashed or span."""


Verdict = Recovered | Refused | NoAnswer


def leveldb_recovery(folder: Path, logs: Mapping[int, bytes]) -> dict[bytes, bytes]:
    """Let LevelDB recover logs in a new folder, with all its checks on."""
    leveldb().DB(str(folder), create_if_missing=True).close()
    _place(folder, logs)
    database = leveldb().DB(str(folder), create_if_missing=False, paranoid_checks=True)
    rows = dict(database)
    database.close()
    return rows


class RocksDBOracle:
    """RocksDB in a child process, with an empty database to put logs into."""

    def __init__(self, folder: Path, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._folder = folder / "database"
        self._answer_seconds = answer_seconds
        self._make_empty_database(folder / "template")
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def verdicts(
        self,
        logs: Mapping[int, bytes],
        *,
        modes: Sequence[RecoveryMode] = tuple(RecoveryMode),
        writable: bool = False,
    ) -> dict[RecoveryMode, Verdict]:
        """Say what RocksDB makes of the logs in each mode."""
        for path in log_files(self._folder).values():
            path.unlink()
        _place(self._folder, logs)
        self._pipe.send(_Question(self._folder, tuple(modes), writable))
        verdicts: dict[RecoveryMode, Verdict] = {}
        for mode in modes:
            verdicts[mode] = self._next_verdict()
            if isinstance(verdicts[mode], NoAnswer):
                self._stop()
                self._start()
                return {**dict.fromkeys(modes, NoAnswer()), **verdicts}
        return verdicts

    def _next_verdict(self) -> Verdict:
        try:
            if self._pipe.poll(self._answer_seconds):
                verdict: Verdict = self._pipe.recv()
                return verdict
        except (EOFError, ConnectionResetError):
            pass  # the child died
        return NoAnswer()

    def _make_empty_database(self, template: Path) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        database = Rdict(str(template), options)
        shutil.copytree(template, self._folder)
        database.close()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_answer, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def _stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


@dataclass(frozen=True, slots=True)
class _Question:
    folder: Path
    modes: tuple[RecoveryMode, ...]
    writable: bool


def _answer(pipe: Connection) -> None:
    """Open the folders the parent names, in the child."""
    while True:
        try:
            question: _Question = pipe.recv()
        except EOFError:
            return
        for mode in question.modes:
            if question.writable:
                with tempfile.TemporaryDirectory(dir=question.folder.parent) as parent:
                    copy = shutil.copytree(question.folder, Path(parent) / "copy")
                    pipe.send(_open(copy, mode, AccessType.read_write()))
            else:
                pipe.send(_open(question.folder, mode, AccessType.read_only(False)))


def _open(folder: Path, mode: RecoveryMode, access: AccessType) -> Recovered | Refused:
    options = Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_wal_recovery_mode(_ROCKSDB_MODES[mode]())
    try:
        database = Rdict(str(folder), options, access_type=access)
    except Exception as error:  # noqa: BLE001 - the binding raises nothing narrower
        return Refused(str(error))
    rows = cast("Iterable[tuple[bytes, bytes]]", database.items())
    recovered = Recovered(dict(rows), database.latest_sequence_number())
    database.close()
    return recovered


def _place(folder: Path, logs: Mapping[int, bytes]) -> None:
    for number, log in logs.items():
        (folder / f"{number:06}.log").write_bytes(log)


def _rocks_batch(batch: Batch) -> RocksBatch:
    writes = RocksBatch(raw_mode=True)
    for row in batch.rows:
        if isinstance(row, PutRow):
            writes.put(row.key, row.value)
        else:
            writes.delete(row.key)
    return writes


def _random_row(seed: random.Random, largest: int) -> Row:
    key = b"key%d" % seed.randrange(50) + b"!" * seed.choice((0, 0, 0, 130))
    if seed.random() < 0.05:
        key = b""
    if seed.random() < 0.2:
        return DeleteRow(key)
    return PutRow(key, seed.randbytes(min(largest, seed.randrange(1 << seed.randrange(19)))))


def _entry(row: Row) -> bytes:
    if isinstance(row, DeleteRow):
        return b"\x00" + _prefixed(row.key)
    return b"\x01" + _prefixed(row.key) + _prefixed(row.value)


def _prefixed(content: bytes) -> bytes:
    length = len(content)
    prefix = bytearray()
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(prefix) + bytes((length,)) + content
