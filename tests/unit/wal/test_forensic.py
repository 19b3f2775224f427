"""What lies in a log byte by byte, told by a walker that shares no code with the log."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import Corruption, LimitExceeded
from neve.model.write_batch import DeleteRow, PutRow, WriteBatch
from neve.storage.memory_store import MemoryStore
from neve.wal.batch_codec import encode_changes
from neve.wal.foreign_replay import ForeignReplay
from neve.wal.log_options import LogOptions, SyncPolicy
from neve.wal.record_format import Dialect
from neve.wal.replay import RecoveryMode
from neve.wal.segment_reader import Damage, Record, SegmentEnd, SegmentReader
from neve.wal.segment_writer import SegmentWriter
from tests.unit.wal.builders import log_path, logs_in, open_log, put, replay
from tests.unit.wal.byte_walker import (
    BLOCK,
    FIRST,
    FULL,
    LAST,
    MIDDLE,
    NotALog,
    assemble,
    crc32c,
    walk,
)
from tests.unit.wal.log_bench import LAYOUTS, LOG_NUMBER, Bench, Layout

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=str)


def written(layout: Layout, *payloads: bytes) -> bytes:
    """Return the bytes of a log with one record per payload, each appended by itself."""
    store = MemoryStore()
    writer = SegmentWriter(
        store.create("log"),
        log_number=LOG_NUMBER,
        dialect=layout.dialect,
        recyclable=layout.recyclable,
    )
    for payload in payloads:
        writer.append([(payload,)])
    return store.get("log").payload


def events(log: bytes, layout: Layout) -> list[object]:
    reader = SegmentReader(
        lambda offset, length: log[offset : offset + length],
        dialect=layout.dialect,
        log_number=LOG_NUMBER,
    )
    return list(reader)


def records(log: bytes, layout: Layout) -> list[bytes]:
    return [event.payload for event in events(log, layout) if isinstance(event, Record)]


def pattern(length: int) -> bytes:
    return bytes(range(1, 252)) * (length // 251) + bytes(range(1, length % 251 + 1))


def test_the_walker_has_the_published_checksum() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@each_layout
def test_a_small_record_is_one_full_at_offset_zero(layout: Layout) -> None:
    log = written(layout, b"alpha")

    whole = walk(log, dialect=layout.dialect)

    (record,) = whole.records
    assert (record.offset, record.kind, record.payload) == (0, FULL, b"alpha")
    assert record.log_number == (LOG_NUMBER if layout.recyclable else None)
    assert record.end == len(log)
    assert whole.paddings == ()


@each_layout
def test_small_records_are_packed_into_the_first_block_without_padding(layout: Layout) -> None:
    payloads = [f"key-{i:02}=value-{i:02}".encode() for i in range(16)]

    whole = walk(written(layout, *payloads), dialect=layout.dialect)

    assert [record.payload for record in whole.records] == payloads
    assert {record.kind for record in whole.records} == {FULL}
    assert {record.block for record in whole.records} == {0}
    assert whole.paddings == ()


@each_layout
def test_a_large_record_fills_consecutive_blocks(layout: Layout) -> None:
    payload = pattern(4 * BLOCK)

    whole = walk(written(layout, payload), dialect=layout.dialect)

    kinds = [record.kind for record in whole.records]
    assert kinds == [FIRST, MIDDLE, MIDDLE, MIDDLE, LAST]
    assert [(record.block, record.block_offset) for record in whole.records] == [
        (block, 0) for block in range(5)
    ]
    assert all(record.end % BLOCK == 0 for record in whole.records[:-1])
    assert assemble(whole.records) == [payload]
    assert whole.paddings == ()


@pytest.mark.parametrize(
    ("layout", "left"),
    [(layout, left) for layout in LAYOUTS for left in (1, 3, 6, 10) if left < layout.header],
    ids=str,
)
def test_a_tail_too_small_for_a_header_is_zeros(layout: Layout, left: int) -> None:
    first = pattern(BLOCK - layout.header - left)

    log = written(layout, first, b"next block")

    whole = walk(log, dialect=layout.dialect)
    assert whole.paddings == ((BLOCK - left, left),)
    assert [(record.offset, record.kind) for record in whole.records] == [(0, FULL), (BLOCK, FULL)]
    assert records(log, layout) == [first, b"next block"]


@each_layout
def test_a_tail_of_exactly_one_header_takes_a_first_of_no_bytes(layout: Layout) -> None:
    header = layout.header
    first = pattern(BLOCK - 2 * header)

    log = written(layout, first, b"xyz")

    whole = walk(log, dialect=layout.dialect)
    assert [(r.offset, r.kind, len(r.payload)) for r in whole.records[1:]] == [
        (BLOCK - header, FIRST, 0),
        (BLOCK, LAST, 3),
    ]
    assert records(log, layout) == [first, b"xyz"]


@each_layout
def test_a_first_of_no_bytes_that_an_old_writer_left_alone_is_no_damage(layout: Layout) -> None:
    bench = Bench(layout)
    first = pattern(BLOCK - 2 * layout.header)
    bench.write(first, b"xyz")
    bench.set_type(layout.type_byte(FULL), at=BLOCK)

    reading = bench.read()

    assert (reading.records, reading.lost, reading.torn) == ([first, b"xyz"], [], [])


@each_layout
def test_a_flipped_bit_is_caught_at_its_record(layout: Layout) -> None:
    payloads = [b"before", b"forensic payload", b"behind"]
    log = written(layout, *payloads)
    hit = walk(log, dialect=layout.dialect).records[1]

    # bound: 16 bytes of payload and 4 of checksum, 8 bits each
    flips = [*range(hit.offset, hit.offset + 4), *range(hit.offset + hit.header_bytes, hit.end)]
    for position, bit in ((position, bit) for position in flips for bit in range(8)):
        damaged = bytearray(log)
        damaged[position] ^= 1 << bit

        with pytest.raises(NotALog) as refusal:
            walk(bytes(damaged), dialect=layout.dialect)
        read = events(bytes(damaged), layout)

        assert refusal.value.offset == hit.offset
        assert [event.payload for event in read if isinstance(event, Record)] == [b"before"]
        assert [event.offset for event in read if isinstance(event, Damage)] == [hit.offset]


@given(
    layout=st.sampled_from(LAYOUTS),
    left=st.integers(0, 24),
    sizes=st.lists(st.integers(0, 40) | st.sampled_from([BLOCK - 11, BLOCK - 7]), max_size=5),
)
def test_the_reader_gives_what_the_walker_assembles(
    layout: Layout, left: int, sizes: list[int]
) -> None:
    payloads = [pattern(size) for size in [BLOCK - layout.header - left, *sizes]]

    log = written(layout, *payloads)

    assert assemble(walk(log, dialect=layout.dialect).records) == payloads
    assert records(log, layout) == payloads
    assert events(log, layout)[-1] == SegmentEnd(
        offset=len(log), resume_offset=len(log), file_bytes=len(log)
    )


def test_a_record_too_large_is_refused_and_the_log_goes_on_unharmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("neve.wal.segment_writer.RECORD_BYTES_MAX", 2 * BLOCK)
    layout = Layout(Dialect.CRC32C, recyclable=True)
    store = MemoryStore()
    writer = SegmentWriter(store.create("log"), log_number=LOG_NUMBER)
    writer.append([(b"before",)])

    with pytest.raises(LimitExceeded) as refusal:
        writer.append([(b"same append",), (bytes(2 * BLOCK), b"!")])
    writer.append([(pattern(BLOCK),)])

    assert (refusal.value.limit, refusal.value.actual) == (2 * BLOCK, 2 * BLOCK + 1)
    log = store.get("log").payload
    assert assemble(walk(log, dialect=layout.dialect).records) == [b"before", pattern(BLOCK)]
    assert records(log, layout) == [b"before", pattern(BLOCK)]


# A growing log


@pytest.mark.parametrize("behind", ["nothing", "zeros", "an earlier log"])
@pytest.mark.parametrize("size", [30, BLOCK, 3 * BLOCK])
def test_a_record_seen_half_written_is_read_once_it_is_whole(behind: str, size: int) -> None:
    layout = Layout(Dialect.CRC32C, recyclable=True)
    payloads = [b"before", pattern(size), b"after"]
    log = written(layout, *payloads)
    rest = {
        "nothing": b"",
        "zeros": bytes(len(log)),
        "an earlier log": _earlier_log(len(log)),
    }[behind]

    for cut in sorted(
        {18, 20, 28, 29, 45, BLOCK, BLOCK + 3, BLOCK + 11, BLOCK + 20, len(log) - 15}
    ):
        half = log[:cut] + rest[cut:]
        first = tail(half, 0)
        second = tail(log + rest[len(log) :], first[1])
        assert first[0] + second[0] == payloads, f"cut at {cut}"


def tail(log: bytes, start: int) -> tuple[list[bytes], int]:
    """Read from a place; give the records and the place to go on from."""
    read = list(
        SegmentReader(
            lambda offset, length: log[offset : offset + length],
            dialect=Dialect.CRC32C,
            log_number=LOG_NUMBER,
            start_offset=start,
        )
    )
    assert isinstance(read[-1], SegmentEnd)
    return [event.payload for event in read if isinstance(event, Record)], read[-1].resume_offset


def _earlier_log(byte_count: int) -> bytes:
    store = MemoryStore()
    writer = SegmentWriter(store.create("log"), log_number=LOG_NUMBER - 1)
    while writer.position < byte_count:
        writer.append([(pattern(17),)])
    return store.get("log").payload


# The live log


def entries(payload: bytes) -> tuple[int, list[tuple[int, bytes, bytes]]]:
    """Take a batch apart by the format page: its sequence and (op, key, value) per entry."""
    sequence, count = struct.unpack_from("<QI", payload)
    position = 12
    found = []
    widths = {0x20: 1, 0x21: 16, 0x22: 41, 0x23: 0}
    for _ in range(count):
        op = payload[position]
        position += 1
        if op in widths:
            key, value = payload[position : position + widths[op]], b""
            position += widths[op]
            if op == 0x21:
                key = key[:8]  # the nonce behind it is drawn again for every log
        else:
            key, position = _prefixed(payload, position)
            value, position = _prefixed(payload, position) if op == 1 else (b"", position)
        found.append((op, key, value))
    assert position == len(payload)
    return sequence, found


def _prefixed(payload: bytes, position: int) -> tuple[bytes, int]:
    length = shift = 0
    while True:
        byte = payload[position]
        position += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return payload[position : position + length], position + length


def options(dialect: Dialect, *, preallocate: bool = True) -> LogOptions:
    return LogOptions(
        sync=SyncPolicy.ALWAYS,
        segment_bytes=4 * BLOCK,
        preallocate=preallocate,
        recycle_count=1,
        dialect=dialect,
    )


def test_a_live_log_is_its_start_its_batches_its_end_and_zeros() -> None:
    store = MemoryStore()
    log = open_log(store, number=LOG_NUMBER, sequence=40, options=options(Dialect.CRC32C))
    log.append(put("alpha", b"one"))
    log.append(put("beta", b"two"))
    log.rotate()

    whole = walk(store.get(log_path(LOG_NUMBER)).payload, dialect="crc32c")

    start = b"\x02" + _u64(LOG_NUMBER) + bytes(16) + _u64(0) + _u64(4 * BLOCK)
    assert {record.log_number for record in whole.records} == {LOG_NUMBER}
    assert [entries(payload) for payload in assemble(whole.records)] == [
        (40, [_schema(0), _durable(39), (0x22, start, b"")]),
        (40, [_schema(1), _durable(39), (0x01, b"alpha", b"one")]),
        (41, [_schema(1), _durable(40), (0x01, b"beta", b"two")]),
        (42, [_schema(0), _durable(41), (0x23, b"", b"")]),
    ]
    assert sum(length for _, length in whole.paddings) == 4 * BLOCK - whole.records[-1].end


def test_a_log_that_was_closed_ends_with_its_end() -> None:
    store = MemoryStore()
    log = open_log(store, options=options(Dialect.CRC32C))
    log.append(put("alpha", b"one"))
    log.close()

    payload = store.get(log_path(1)).payload
    whole = walk(payload, dialect="crc32c")

    assert entries(assemble(whole.records)[-1])[1][-1] == (0x23, b"", b"")
    assert whole.records[-1].end == len(payload)


def test_recovery_gives_what_lies_in_the_raw_bytes() -> None:
    store = MemoryStore()
    log = open_log(store, options=options(Dialect.CRC32C))
    for i in range(8):
        log.append(put(f"rk-{i}", pattern(100 + i * 9_000)))
    log.close()

    batches, _ = replay(store)

    raw = [
        entries(payload)
        for found in logs_in(store)
        for payload in assemble(walk(store.get(found.path).payload, dialect="crc32c").records)
    ]
    rows = [(sequence, found[2:]) for sequence, found in raw if found[2][0] == 1]
    assert len(logs_in(store)) > 1, "the batches must span logs"
    assert len(rows) == 8
    assert [
        (logged.sequence, [(1, row.key, row.value)])
        for logged in batches
        for row in logged.batch.changes
        if isinstance(row, PutRow)
    ] == rows


@pytest.mark.parametrize("dialect", [Dialect.ROCKSDB, Dialect.MERUTABLE])
def test_a_live_log_in_a_foreign_dialect_holds_bare_batches_and_nothing_else(
    dialect: Dialect,
) -> None:
    store = MemoryStore()
    log = open_log(store, sequence=5, options=options(dialect))
    log.append(encode_changes(WriteBatch((PutRow(b"a", b"1"), PutRow(b"b", pattern(BLOCK))))))
    log.append(put("c", b"3"))
    log.close()

    whole = walk(store.get(log_path(1)).payload, dialect=dialect)
    replayed = ForeignReplay(store, logs_in(store), mode=RecoveryMode.ABSOLUTE, dialect=dialect)

    raw = [entries(payload) for payload in assemble(whole.records)]
    assert {record.log_number for record in whole.records} == {None}
    assert raw == [
        (5, [(1, b"a", b"1"), (1, b"b", pattern(BLOCK))]),
        (7, [(1, b"c", b"3")]),
    ]
    assert [
        (logged.sequence, [(1, row.key, row.value) for row in logged.batch.changes])  # type: ignore[union-attr]
        for logged in replayed
    ] == raw


def test_a_delete_in_rocksdbs_dialect_is_a_key_alone() -> None:
    store = MemoryStore()
    log = open_log(store, options=options(Dialect.ROCKSDB))
    log.append(encode_changes(WriteBatch((DeleteRow(b"gone"),))))
    log.close()

    (payload,) = assemble(walk(store.get(log_path(1)).payload, dialect="rocksdb").records)

    assert entries(payload) == (1, [(0, b"gone", b"")])


def test_every_flipped_bit_of_a_durable_record_is_refused_at_its_place() -> None:
    store = MemoryStore()
    log = open_log(store, options=options(Dialect.CRC32C, preallocate=False))
    for key in ("before", "hit", "behind"):
        log.append(put(key))
    log.close()
    healthy = store.get(log_path(1)).payload
    hit = walk(healthy, dialect="crc32c").records[2]

    # bound: one record of some fifty bytes, 8 bits each
    for position in range(hit.offset, hit.end):
        for bit in range(8):
            damaged = bytearray(healthy)
            damaged[position] ^= 1 << bit
            store.put(log_path(1), bytes(damaged))

            with pytest.raises(Corruption) as refusal:
                replay(store)

            assert refusal.value.path == log_path(1)
            assert refusal.value.offset == hit.offset


def test_a_recycled_file_holds_the_new_log_before_the_old_ones_rest() -> None:
    store = MemoryStore()
    log = open_log(store, options=options(Dialect.CRC32C))
    log.append(put("old", pattern(2 * BLOCK)))
    log.rotate()
    log.append(put("kept"))
    log.rotate()
    log.truncate_below(2)
    log.rotate()
    log.append(put("new", b"over the old bytes"))
    recycled = store.get(log_path(4)).payload
    log.close()

    reader = SegmentReader(lambda offset, length: recycled[offset : offset + length], log_number=4)
    end = next(event.offset for event in reader if not isinstance(event, Record))

    whole = walk(recycled[:end], dialect="crc32c")
    assert {record.log_number for record in whole.records} == {4}
    assert entries(assemble(whole.records)[1]) == (
        3,
        [_schema(1), _durable(2), (1, b"new", b"over the old bytes")],
    )
    assert recycled[end : 2 * BLOCK].strip(b"\0"), "the old log's bytes must still be there"


def _u64(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _schema(version: int) -> tuple[int, bytes, bytes]:
    return (0x20, bytes((version,)), b"")


def _durable(sequence: int) -> tuple[int, bytes, bytes]:
    return (0x21, _u64(sequence), b"")
