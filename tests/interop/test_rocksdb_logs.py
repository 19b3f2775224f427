"""Logs that RocksDB wrote are read here, and logs written here are recovered by RocksDB."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from neve.storage.memory_store import MemoryStore
from neve.wal.record_format import Dialect
from neve.wal.replay import RecoveryMode
from neve.wal.segment_writer import SegmentWriter
from tests.conftest import Record as Scoreboard
from tests.gates import Gate
from tests.interop.foreign_logs import (
    FIRST_LOG,
    Batch,
    Recovered,
    RocksDBOracle,
    assert_reads_whole,
    fast_folder,
    neve_logs,
    random_batches,
    read_batches,
    recycled_rocksdb_log,
    rocksdb_logs,
    rows_of,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with fast_folder() as path:
        yield path


@pytest.fixture(scope="module")
def oracle() -> Iterator[RocksDBOracle]:
    with fast_folder() as folder, RocksDBOracle(folder) as rocksdb:
        yield rocksdb


def recycled_log(older: list[Batch], newest: list[Batch], *, number: int) -> bytes:
    """Return a log of recyclable records, written over one that held `older`."""
    store = MemoryStore()
    old = SegmentWriter(store.create("old"), log_number=number - 1, dialect=Dialect.ROCKSDB)
    old.append([(batch.payload(),) for batch in older])
    new = SegmentWriter(
        store.recycle("old", new_path="new"), log_number=number, dialect=Dialect.ROCKSDB
    )
    new.append([(batch.payload(),) for batch in newest])
    return store.get("new").payload


def test_random_logs_of_rocksdb_are_read_batch_for_batch(
    folder: Path, scoreboard: Scoreboard
) -> None:
    gate = Gate("R2 logs of RocksDB that are read differently", aim=200, full=2_000)
    for number in gate.seeds():
        seed = random.Random(number)
        batches = random_batches(seed, count=seed.randrange(1, 60))

        logs = rocksdb_logs(folder / "database", batches)

        gate.cases += len(logs)
        gate.violations += read_batches(logs, RecoveryMode.ABSOLUTE) != batches
        shutil.rmtree(folder / "database")

    scoreboard(gate.line())
    assert gate.violations == 0


def test_a_recycled_log_of_rocksdb_ends_where_the_earlier_one_shows(folder: Path) -> None:
    for number in range(20):
        seed = random.Random(number)
        older = random_batches(seed, count=30, largest=20_000)
        rows = 2 * sum(len(batch.rows) for batch in older)
        newest = random_batches(seed, count=seed.randrange(1, 15), sequence=rows + 1, largest=2_000)

        logs = recycled_rocksdb_log(folder / f"{number}", older, newest)

        ((_, log),) = logs.items()
        assert log[6] in (5, 6), "RocksDB must have written recyclable records"
        assert len(log) > sum(len(batch.payload()) for batch in newest) * 2, "and over older ones"
        assert read_batches(logs, RecoveryMode.TOLERATE_TORN_TAIL) == newest


def test_a_manifest_of_rocksdb_is_a_log_without_damage(folder: Path) -> None:
    rocksdb_logs(folder / "database", random_batches(random.Random(1), count=40))

    manifests = sorted((folder / "database").glob("MANIFEST-*"))

    assert manifests
    for manifest in manifests:
        assert_reads_whole(manifest.read_bytes())


def test_random_logs_of_neve_are_recovered_by_rocksdb(
    oracle: RocksDBOracle, scoreboard: Scoreboard
) -> None:
    gate = Gate("R3 logs of neve that RocksDB recovers differently", aim=200, full=2_000)
    for number in gate.seeds():
        seed = random.Random(number)
        batches = random_batches(seed, count=seed.randrange(1, 60))
        expected = Recovered(rows_of(batches), batches[-1].next_sequence - 1)

        logs = neve_logs(seed, batches)

        gate.cases += len(logs)
        gate.violations += oracle.verdicts(logs) != dict.fromkeys(RecoveryMode, expected)

    scoreboard(gate.line())
    assert gate.violations == 0


def test_recycled_logs_of_neve_are_recovered_by_rocksdb_up_to_the_earlier_records(
    oracle: RocksDBOracle,
) -> None:
    for number in range(20):
        seed = random.Random(number)
        older = random_batches(seed, count=40, largest=40_000)
        newest = random_batches(seed, count=seed.randrange(1, 15), sequence=500, largest=2_000)
        expected = Recovered(rows_of(newest), newest[-1].next_sequence - 1)

        log = recycled_log(older, newest, number=FIRST_LOG)

        modes = [RecoveryMode.TOLERATE_TORN_TAIL, RecoveryMode.POINT_IN_TIME]
        assert oracle.verdicts({FIRST_LOG: log}, modes=modes) == dict.fromkeys(modes, expected)
        assert read_batches({FIRST_LOG: log}, RecoveryMode.TOLERATE_TORN_TAIL) == newest
