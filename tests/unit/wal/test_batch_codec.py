"""Bytes of a write batch: golden, round trip, hostile."""

from uuid import UUID

import pyarrow as pa
import pytest

from neve.errors import Corruption, InvalidArgument
from neve.model.varint import encode_varint
from neve.model.write_batch import (
    SEQUENCE_MAX,
    DeleteRow,
    DeleteRows,
    PartialRows,
    PutRow,
    UpsertRows,
    WriteBatch,
)
from neve.wal.batch_codec import (
    LogStart,
    decode_batch,
    encode_changes,
    encode_log_end,
    encode_log_start,
    encode_put,
    frame_batch,
    prepared_for,
    read_stamp,
)
from neve.wal.inspected_batch import inspect_batch
from neve.wal.record_format import Dialect

ROWS = pa.record_batch({"id": pa.array([1, 2, 3]), "name": pa.array(["a", None, "c"])})
KEYS = pa.record_batch({"id": pa.array([7, 8])})


NONCE = 0x1122334455667788


def encode(batch: WriteBatch, *, nonce: int | None = NONCE) -> bytes:
    changes = encode_changes(batch)
    return b"".join(frame_batch(changes, sequence=42, durable_through=41, nonce=nonce))


def test_a_plain_batch_has_leveldbs_bytes() -> None:
    batch = WriteBatch((PutRow(b"key1", b"value1"), DeleteRow(b"key2"), PutRow(b"key3", b"\0\xff")))

    payload = encode(batch, nonce=None)

    assert payload.hex(" ") == (
        "2a 00 00 00 00 00 00 00 03 00 00 00 "
        "01 04 6b 65 79 31 06 76 61 6c 75 65 31 "
        "00 04 6b 65 79 32 "
        "01 04 6b 65 79 33 02 00 ff"
    )


def test_a_neve_batch_begins_with_its_stamps() -> None:
    payload = encode(WriteBatch((PutRow(b"k", b"v"),), schema_version=5))

    assert payload.hex(" ") == (
        "2a 00 00 00 00 00 00 00 03 00 00 00 20 05 "
        "21 29 00 00 00 00 00 00 00 88 77 66 55 44 33 22 11 01 01 6b 01 76"
    )


def test_the_log_start_names_format_log_and_table() -> None:
    table = UUID(bytes=bytes(range(16)))
    start = LogStart(7, table, epoch=3, reserved_bytes=32_768)

    payload = b"".join(
        frame_batch(encode_log_start(start), sequence=1, durable_through=0, nonce=NONCE)
    )

    assert payload.hex(" ").endswith(
        "22 02 07 00 00 00 00 00 00 00 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f "
        "03 00 00 00 00 00 00 00 00 80 00 00 00 00 00 00"
    )
    assert decode_batch(payload, dialect=Dialect.CRC32C).log_start == start


def test_a_log_start_of_the_first_format_names_no_table() -> None:
    payload = bytes.fromhex("0100000000000000 01000000 22 01 0700000000000000")

    assert decode_batch(payload, dialect=Dialect.CRC32C).log_start == LogStart(7)


@pytest.mark.parametrize("schema_version", [0, 127, 128, 100_000])
def test_every_change_comes_back_as_it_went_in(schema_version: int) -> None:
    batch = WriteBatch(
        (
            PutRow(b"", b""),
            PutRow(b"k" * 200, b"v" * 70_000),
            DeleteRow(b"gone"),
            UpsertRows(ROWS),
            DeleteRows(KEYS),
            PartialRows(ROWS, (2, 300)),
        ),
        schema_version=schema_version,
    )

    logged = decode_batch(encode(batch), dialect=Dialect.CRC32C)

    assert logged.batch == batch
    assert (logged.durable_through, logged.nonce) == (41, NONCE)
    assert logged.next_sequence == 42 + 3 + 3 + 2 + 3


def test_a_sliced_arrow_batch_is_logged_without_its_neighbours() -> None:
    batch = WriteBatch((UpsertRows(ROWS.slice(1, 1)),))

    (change,) = decode_batch(encode(batch), dialect=Dialect.CRC32C).batch.changes

    assert isinstance(change, UpsertRows)
    assert change.rows.to_pylist() == [{"id": 2, "name": None}]


def test_the_short_way_gives_the_same_bytes() -> None:
    for key, value in [(b"k", b"v"), (b"", b""), (b"k" * 128, b"v"), (b"k", b"v" * 128)]:
        short = encode_put(key, value, schema_version=3)
        assert short == encode_changes(WriteBatch((PutRow(key, value),), schema_version=3))


def test_a_merutable_delete_may_carry_the_row_before() -> None:
    payload = bytes.fromhex("0100000000000000 01000000 00 01 6b 03 6f6c64")

    logged = decode_batch(payload, dialect=Dialect.MERUTABLE)

    assert logged.batch.changes == (DeleteRow(b"k"),)
    with pytest.raises(Corruption):
        decode_batch(payload, dialect=Dialect.ROCKSDB)


def test_the_durable_sequence_is_read_from_the_first_bytes() -> None:
    payload = encode(WriteBatch((UpsertRows(ROWS),), schema_version=300))

    assert read_stamp(payload[:40]) == (41, NONCE)
    assert read_stamp(payload[:24]) is None
    assert read_stamp(b"") is None
    assert read_stamp(encode(WriteBatch((DeleteRow(b"k"),)), nonce=None)) is None


def test_a_count_of_four_billion_costs_nothing() -> None:
    payload = bytes.fromhex("0100000000000000 ffffffff 00 01 6b")

    with pytest.raises(Corruption):
        decode_batch(payload, dialect=Dialect.CRC32C)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("", "no room"),
        ("0100000000000000 010000", "no room"),
        ("0100000000000000 00000000 00", "left over"),
        ("0100000000000000 01000000 7f", "unknown batch entry"),
        ("0100000000000000 01000000 01 05 6b", "needs 5 bytes"),
        ("0100000000000000 01000000 00 ffffffffffffffffffff01", "64 bits"),
        ("0100000000000000 01000000 00 80", "cut off"),
        ("0100000000000000 02000000 20 05 21 0100", "needs 16 bytes"),
        ("0100000000000000 01000000 12 00 00 00", "names 0 columns"),
        ("0100000000000000 01000000 12 ff7f 00 00", "columns"),
        ("0100000000000000 01000000 10 01 7f 00", "is cut off"),
        ("0100000000000000 01000000 10 01 02 ffff", "cannot be read"),
        ("0100000000000000 01000000 22 02 0100000000000000", "needs 32 bytes"),
        ("0100000000000000 01000000 22 03 0100000000000000", "newer"),
        ("ffffffffffffffff 01000000 00 01 6b", "beyond"),
    ],
)
def test_damage_inside_a_batch_is_named_with_its_place(payload: str, reason: str) -> None:
    with pytest.raises(Corruption, match=reason) as caught:
        decode_batch(bytes.fromhex(payload), dialect=Dialect.CRC32C, path="wal/1", offset=77)

    assert caught.value.path == "wal/1"
    assert caught.value.offset == 77


def test_an_arrow_batch_is_as_long_as_announced() -> None:
    payload = bytearray(encode(WriteBatch((UpsertRows(ROWS),))))
    payload[32] = 9  # the announced row count

    with pytest.raises(Corruption, match="announced as 9 rows"):
        decode_batch(bytes(payload), dialect=Dialect.CRC32C)


def test_a_compressed_arrow_body_is_refused_before_it_expands() -> None:
    rows = pa.record_batch({"zeros": pa.array([0] * 1_000_000)})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_batch(rows)
    stream = sink.getvalue().to_pybytes()
    head = bytes.fromhex("0100000000000000 01000000 10") + b"\xc0\x84\x3d"
    length = len(stream)
    payload = head + bytes((length & 0x7F | 0x80, length >> 7)) + stream
    before = pa.total_allocated_bytes()

    with pytest.raises(Corruption, match="compressed"):
        decode_batch(payload, dialect=Dialect.CRC32C)
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_dictionary_columns_are_refused_before_anything_is_logged() -> None:
    rows = pa.record_batch({"word": pa.array(["a", "b"]).dictionary_encode()})

    with pytest.raises(InvalidArgument, match="word"):
        encode_changes(WriteBatch((UpsertRows(rows),)))


def test_a_partial_write_names_its_columns() -> None:
    with pytest.raises(InvalidArgument, match="no column"):
        encode_changes(WriteBatch((PartialRows(ROWS, ()),)))


def test_a_sequence_may_reach_the_last_possible_one() -> None:
    batch = encode_changes(WriteBatch((DeleteRow(b"k"),)))
    payload = b"".join(frame_batch(batch, sequence=SEQUENCE_MAX, durable_through=0, nonce=NONCE))

    assert decode_batch(payload, dialect=Dialect.CRC32C).sequence == SEQUENCE_MAX


def test_the_log_end_is_read_back() -> None:
    payload = b"".join(frame_batch(encode_log_end(), sequence=9, durable_through=8, nonce=NONCE))

    logged = decode_batch(payload, dialect=Dialect.CRC32C)

    assert logged.log_end
    assert logged.next_sequence == 9


def test_a_column_name_that_is_no_text_is_corruption() -> None:
    payload = encode(WriteBatch((UpsertRows(pa.record_batch({"naam": [1]})),)))

    with pytest.raises(Corruption, match="cannot be read"):
        decode_batch(payload.replace(b"naam", b"n\xff\xfem"), dialect=Dialect.CRC32C)


@pytest.mark.parametrize("schema_version", [-1, 1 << 31, 10**23])
def test_a_schema_version_that_no_batch_can_hold_is_refused(schema_version: int) -> None:
    with pytest.raises(InvalidArgument, match="schema version"):
        encode_put(b"k", b"v", schema_version=schema_version)
    with pytest.raises(InvalidArgument, match="schema version"):
        WriteBatch((), schema_version=schema_version)


@pytest.mark.parametrize("dialect", [Dialect.ROCKSDB, Dialect.MERUTABLE])
def test_an_arrow_batch_is_refused_in_a_dialect_that_has_none(dialect: Dialect) -> None:
    with pytest.raises(InvalidArgument, match="single rows"):
        encode_changes(WriteBatch((UpsertRows(ROWS),)), dialect=dialect)


def test_an_arrow_message_of_another_kind_is_corruption_and_no_crash() -> None:
    batch_message = ROWS.serialize().to_pybytes()
    schema_message = ROWS.schema.serialize().to_pybytes()
    for stream in (batch_message + batch_message, schema_message + schema_message):
        payload = bytes.fromhex("0100000000000000 01000000 10 03") + encode_varint(len(stream))
        with pytest.raises(Corruption, match="belongs"):
            decode_batch(payload + stream, dialect=Dialect.CRC32C)


def test_a_part_of_a_transaction_has_these_bytes() -> None:
    changes = prepared_for(encode_put(b"k", b"v", 1), "5e55-7")
    payload = b"".join(frame_batch(changes, 9, 8, 3))
    golden = bytes.fromhex(
        "0900000000000000 04000000 20 01 21 0800000000000000 0300000000000000"
        "14 06 356535352d37 01 01 6b 01 76"
    )

    assert payload == golden
    read = decode_batch(golden, dialect=Dialect.CRC32C)
    assert read.batch == WriteBatch((PutRow(b"k", b"v"),), 1, "5e55-7")
    assert (read.sequence, read.next_sequence) == (9, 10)
    (entry, put) = inspect_batch(golden, Dialect.CRC32C).entries
    assert (entry.op, entry.sequence, put.sequence) == ("prepared", None, 9)
