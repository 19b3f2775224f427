"""Bytes that other systems wrote, pinned: a log that was readable once stays readable."""

import pytest

from neve.model.write_batch import DeleteRow, PutRow
from neve.storage.memory_store import MemoryStore
from neve.wal.batch_codec import decode_batch, encode_put
from neve.wal.log_options import LogOptions
from neve.wal.record_format import Dialect
from neve.wal.segment_reader import Record, SegmentReader
from neve.wal.segment_writer import SegmentWriter
from tests.unit.wal.builders import log_path, open_log
from tests.unit.wal.byte_walker import BLOCK

ALPHA_ONE = bytes.fromhex("0100000000000000 01000000 01 05 616c706861 03 6f6e65")
ALPHA_ONE_HEADERS = {
    Dialect.CRC32C: bytes.fromhex("3a3915e4 1700 01"),
    Dialect.ROCKSDB: bytes.fromhex("02b3f814 1700 01"),
    Dialect.MERUTABLE: bytes.fromhex("405992d0 1700 01"),
}
MERUTABLE_BATCH = bytes.fromhex(
    "2a00000000000000 03000000"
    "01 04 6b657931 06 76616c756531"
    "00 04 6b657932 00"
    "01 04 6b657933 03 00ff00"
)


def written(
    payloads: list[bytes], dialect: Dialect, *, recyclable: bool = False, log_number: int = 1
) -> bytes:
    store = MemoryStore()
    writer = SegmentWriter(
        store.create("log"), log_number=log_number, dialect=dialect, recyclable=recyclable
    )
    writer.append([(payload,) for payload in payloads])
    return store.get("log").payload


def read(log: bytes) -> tuple[list[bytes], Dialect | None]:
    """Read a log without being told who wrote it."""
    reader = SegmentReader(lambda offset, length: log[offset : offset + length])
    payloads = [event.payload for event in reader if isinstance(event, Record)]
    return payloads, reader.dialect


@pytest.mark.parametrize("dialect", Dialect)
def test_a_put_has_its_golden_bytes_in_every_dialect(dialect: Dialect) -> None:
    golden = ALPHA_ONE_HEADERS[dialect] + ALPHA_ONE

    assert written([ALPHA_ONE], dialect) == golden
    assert read(golden) == ([ALPHA_ONE], dialect)


def test_a_foreign_batch_of_one_put_has_its_golden_bytes() -> None:
    store = MemoryStore()
    log = open_log(store, options=LogOptions(dialect=Dialect.ROCKSDB, preallocate=False))

    log.append(encode_put(b"alpha", b"one", schema_version=3))
    log.close()

    golden = ALPHA_ONE_HEADERS[Dialect.ROCKSDB] + ALPHA_ONE
    assert store.get(log_path(1)).payload == golden


def test_a_batch_of_merutable_is_read_and_its_deletes_values_dropped() -> None:
    golden = bytes.fromhex("a7ca680b 2a00 01") + MERUTABLE_BATCH

    (payload,), dialect = read(golden)
    logged = decode_batch(payload, dialect=Dialect.MERUTABLE)

    assert dialect is Dialect.MERUTABLE
    assert logged.sequence == 42
    assert logged.batch.changes == (
        PutRow(b"key1", b"value1"),
        DeleteRow(b"key2"),
        PutRow(b"key3", b"\x00\xff\x00"),
    )


def test_a_recyclable_record_of_merutable_has_its_golden_bytes() -> None:
    golden = bytes.fromhex("450172cd 0f00 05 01000000") + b"recyclable test"

    assert written([b"recyclable test"], Dialect.MERUTABLE, recyclable=True) == golden
    assert read(golden) == ([b"recyclable test"], Dialect.MERUTABLE)


def test_a_record_behind_a_tail_of_one_header_has_its_golden_bytes() -> None:
    filler = bytes(BLOCK - 14)

    log = written([filler, b"xyz"], Dialect.MERUTABLE)

    assert log[BLOCK - 7 :] == bytes.fromhex("a18e0c3c 0000 02 3e2be9ba 0300 04 78797a")
    assert read(log) == ([filler, b"xyz"], Dialect.MERUTABLE)
