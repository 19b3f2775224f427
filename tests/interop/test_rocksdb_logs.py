"""Logs that RocksDB writes are read here, and logs that are written here are recovered by RocksDB."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from neve.model.write_batch import WriteBatch
from neve.storage.memory_store import MemoryStore
from neve.wal.batch_codec import encode_changes
from neve.wal.foreign_replay import ForeignReplay
from neve.wal.log_options import LogOptions, SyncPolicy
from neve.wal.record_format import BLOCK_BYTES, Dialect
from neve.wal.recovery_mode import RecoveryMode
from neve.wal.segment_reader import Record, SegmentEnd, SegmentReader, Stale
from neve.wal.segment_writer import SegmentWriter
from neve.wal.write_ahead_log import WriteAheadLog
from tests.conftest import Record as Scoreboard
from tests.gates import Gate
from tests.interop.foreign_logs import (
    FIRST_LOG,
    Batch,
    Recovered,
    RocksDBOracle,
    fast_folder,
    random_batches,
    recycled_rocksdb_log,
    rocksdb_logs,
    rows_after,
    store_of,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with fast_folder() as path:
        yield path


@pytest.fixture
def oracle(folder: Path) -> Iterator[RocksDBOracle]:
    with RocksDBOracle(folder) as rocksdb:
        yield rocksdb
