"""Index files: what they give back, and that no damage to one is ever taken for an answer."""

from dataclasses import replace
from itertools import pairwise

import google_crc32c
import pyarrow as pa
import pytest

from neve.errors import Corruption
from neve.keys.encoding import KeyEncoder
from neve.keys.key_hashes import KeyHashes
from neve.model.data_file import DataFile
from neve.model.schema import TableSchema
from neve.sstable.index_file import HEAD_BYTES, IndexFile, encode_index_file, open_index_file
from neve.sstable.key_index import KeyIndex
from tests.conftest import Record
from tests.gates import Gate

COLUMNS: list[tuple[str, pa.DataType]] = [
    ("id", pa.int64()),
    ("name", pa.string()),
    ("flag", pa.bool_()),
    ("price", pa.decimal128(9, 2)),
    ("code", pa.uuid()),
    ("tags", pa.list_(pa.string())),
]
SCHEMA = TableSchema.from_arrow(pa.schema(COLUMNS), primary_key=["id"])
LONGS = KeyEncoder([pa.int64()], ["id"])
TEXTS = KeyEncoder([pa.string()], ["name"])
GROUP_ROWS = 4
GROUP_ROWS_AT = 40


def rows(count: int) -> pa.RecordBatch:
    columns = {
        "id": range(count),
        "name": [None if at % 3 == 2 else f"name {at}" for at in range(count)],
        "flag": [at % 2 == 0 for at in range(count)],
        "price": [None] * count,
        "code": [bytes([at] * 16) for at in range(count)],
        "tags": [["a"] * (at % 3) for at in range(count)],
    }
    arrays = [pa.array(columns[each.name], each.type) for each in SCHEMA.arrow_schema]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA.arrow_schema)


def cut(batch: pa.RecordBatch, group_rows: int = GROUP_ROWS) -> list[pa.RecordBatch]:
    return [batch.slice(at, group_rows) for at in range(0, batch.num_rows, group_rows)]


def described(count: int) -> DataFile:
    return DataFile(
        path="data/a.parquet",
        file_bytes=1_000,
        row_count=count,
        level=0,
        key_min=b"a",
        key_max=b"z",
        footer_crc=0x01020304,
    )


def built_index(encoder: KeyEncoder, count: int) -> KeyIndex:
    values = range(count) if encoder is LONGS else [f"{at:04}" for at in range(count)]
    keys = encoder.encode_arrays([pa.array(values, encoder.types[0])])
    return KeyIndex.build(keys, KeyHashes(encoder))


def encoded(encoder: KeyEncoder = LONGS, *, count: int = 10, with_rows: bool = True) -> bytes:
    return b"".join(
        encode_index_file(
            file=described(count),
            key_index=built_index(encoder, count),
            hashes=KeyHashes(encoder),
            groups=cut(rows(count)) if with_rows else (),
        )
    )


def opened(
    payload: bytes, encoder: KeyEncoder = LONGS, *, file: DataFile | None = None
) -> IndexFile:
    return open_index_file(
        pa.py_buffer(payload),
        file=described(10) if file is None else file,
        hashes=KeyHashes(encoder),
    )


def everything(index_file: IndexFile) -> tuple[object, ...]:
    """Touch all that an index file holds."""
    index = index_file.key_index
    positions = None if index.positions is None else index.positions.tolist()
    batches = [index_file.group(number) for number in range(index_file.group_count)]
    schema = index_file.schema if index_file.has_rows else None
    return index.hashes.tolist(), positions, schema, batches


def test_what_goes_in_comes_out() -> None:
    index_file = opened(encoded())

    assert index_file.has_rows
    assert index_file.group_count == 3
    assert index_file.group_rows == GROUP_ROWS
    assert index_file.schema.equals(SCHEMA.arrow_schema, check_metadata=True)
    assert index_file.key_index.hashes.tolist() == built_index(LONGS, 10).hashes.tolist()
    assert [index_file.group(at) for at in range(3)] == cut(rows(10))
    assert index_file.group(2).num_rows == 2


def test_hashes_come_with_their_positions() -> None:
    wanted = built_index(TEXTS, 10)

    index = opened(encoded(TEXTS), TEXTS).key_index

    assert not index.is_exact
    assert index.hashes.tolist() == wanted.hashes.tolist()
    assert index.positions is not None
    assert wanted.positions is not None
    assert index.positions.tolist() == wanted.positions.tolist()
    key_hash = KeyHashes(TEXTS).one(TEXTS.encode(("0007",)))
    assert index.candidates(key_hash) == [7]


@pytest.mark.parametrize("encoder", [LONGS, TEXTS], ids=["exact", "hashed"])
def test_a_file_without_rows_has_only_the_key_index(encoder: KeyEncoder) -> None:
    index_file = opened(encoded(encoder, with_rows=False), encoder)

    assert not index_file.has_rows
    assert index_file.group_count == 0
    assert index_file.key_index.row_count == 10


def test_one_group_may_hold_all_rows() -> None:
    file, hashes = described(3), KeyHashes(LONGS)
    pieces = encode_index_file(
        file=file, key_index=built_index(LONGS, 3), hashes=hashes, groups=[rows(3)]
    )

    index_file = open_index_file(pa.py_buffer(b"".join(pieces)), file=file, hashes=hashes)

    assert index_file.group_count == 1
    assert index_file.group(0) == rows(3)


def test_rows_are_not_copied_and_a_group_is_read_once() -> None:
    buffer = pa.py_buffer(encoded())
    index_file = open_index_file(buffer, file=described(10), hashes=KeyHashes(LONGS))

    first = index_file.group(1)

    assert first is index_file.group(1)
    values = first.column(0).buffers()[1]
    assert values is not None
    assert buffer.address <= values.address < buffer.address + buffer.size


def test_pieces_begin_at_multiples_of_sixty_four() -> None:
    payload = encoded(TEXTS)
    buffer = pa.py_buffer(payload)
    index_file = open_index_file(buffer, file=described(10), hashes=KeyHashes(TEXTS))
    everything(index_file)
    places = index_file._places
    assert places is not None

    offsets = [piece.offset for piece in (*index_file._sections, *places)]

    assert offsets == sorted(offsets)
    assert all(offset % 64 == 0 for offset in offsets)
    ends = [(piece.offset, piece.offset + piece.length) for piece in index_file._sections]
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))


def test_bytes_that_begin_at_an_odd_address_are_read_too() -> None:
    payload = encoded(TEXTS)
    buffer = pa.py_buffer(b"x" + payload).slice(1)
    index_file = open_index_file(buffer, file=described(10), hashes=KeyHashes(TEXTS))

    assert everything(index_file) == everything(opened(payload, TEXTS))
    assert index_file.key_index.hashes.flags.aligned


def test_the_bytes_of_a_file_never_change() -> None:
    head = """
        4e455645494e4458  01000000  08000000  d000000000000000  e803000000000000
        0200000000000000  00000000  04030201
        c000000000000000  1000000000000000  5ed9d22f
        0000000000000000  0000000000000000  00000000
        0000000000000000  0000000000000000  00000000
        0000000000000000  0000000000000000  00000000
        51f19ee2
    """
    hashes = "0000000000000080  0100000000000080"

    payload = encoded(count=2, with_rows=False)

    assert payload == bytes.fromhex(head) + bytes(60) + bytes.fromhex(hashes)


@pytest.mark.parametrize("length", [0, 1, HEAD_BYTES - 1, HEAD_BYTES, -64, -1])
def test_a_file_that_was_cut_is_refused(length: int) -> None:
    with pytest.raises(Corruption) as caught:
        opened(encoded()[:length])

    assert "data/a.parquet" in str(caught.value)
    assert caught.value.hint is not None


def test_a_file_that_grew_is_refused() -> None:
    with pytest.raises(Corruption, match="bytes has"):
        opened(encoded() + b"\0")


@pytest.mark.parametrize(
    "other",
    [
        replace(described(10), file_bytes=1_001),
        replace(described(10), footer_crc=5),
        replace(described(10), row_count=11),
    ],
    ids=["size", "footer", "rows"],
)
def test_the_index_of_another_data_file_is_refused(other: DataFile) -> None:
    with pytest.raises(Corruption, match="SSTABLE-8:"):
        opened(encoded(), file=other)


@pytest.mark.parametrize("encoder", [TEXTS, KeyEncoder([pa.int32()], ["id"])], ids=["hash", "int"])
def test_the_index_of_another_kind_of_key_is_refused(encoder: KeyEncoder) -> None:
    with pytest.raises(Corruption, match="SSTABLE-8:"):
        opened(encoded(LONGS), encoder)


def with_head(payload: bytes, at: int, new: bytes) -> bytes:
    """Change the head and make its checksum right again."""
    changed = bytearray(payload)
    changed[at : at + len(new)] = new
    crc = google_crc32c.value(bytes(changed[: HEAD_BYTES - 4]))
    changed[HEAD_BYTES - 4 : HEAD_BYTES] = crc.to_bytes(4, "little")
    return bytes(changed)


def section_at(number: int) -> int:
    return 48 + 20 * number


def section(payload: bytes, number: int) -> tuple[int, int]:
    at = section_at(number)
    offset = int.from_bytes(payload[at : at + 8], "little")
    return offset, int.from_bytes(payload[at + 8 : at + 16], "little")


def with_section(payload: bytes, number: int, new: bytes) -> bytes:
    """Put other bytes of the same length into a section, with the right checksums."""
    offset, length = section(payload, number)
    assert len(new) == length
    changed = payload[:offset] + new + payload[offset + length :]
    return with_head(
        changed, section_at(number) + 16, google_crc32c.value(new).to_bytes(4, "little")
    )


def test_a_format_of_the_future_is_refused() -> None:
    with pytest.raises(Corruption, match="format 2"):
        opened(with_head(encoded(), 8, b"\2"))


def test_other_bytes_are_refused() -> None:
    with pytest.raises(Corruption, match="does not begin as an index file"):
        opened(b"PAR1" * 100)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_section_that_leaves_the_file_is_refused(number: int) -> None:
    payload = encoded(TEXTS)
    far = with_head(payload, section_at(number), (1 << 63).to_bytes(8, "little"))
    long = with_head(payload, section_at(number) + 8, (1 << 63).to_bytes(8, "little"))

    for damaged in (far, long):
        with pytest.raises(Corruption, match="ends before"):
            everything(opened(damaged, TEXTS))


@pytest.mark.parametrize("number", [0, 1])
def test_hashes_for_another_number_of_rows_are_refused(number: int) -> None:
    payload = encoded(TEXTS)
    offset, length = section(payload, number)
    shorter = payload[offset : offset + length - 4]
    damaged = with_head(payload, section_at(number) + 8, (length - 4).to_bytes(8, "little"))
    crc = google_crc32c.value(shorter).to_bytes(4, "little")
    damaged = with_head(damaged, section_at(number) + 16, crc)

    with pytest.raises(Corruption, match="SSTABLE-10:"):
        _ = opened(damaged, TEXTS).key_index


def test_hashes_out_of_order_are_refused_though_their_checksum_is_right() -> None:
    payload = encoded()
    offset, length = section(payload, 0)
    hashes = payload[offset : offset + length]

    with pytest.raises(Corruption, match="SSTABLE-12:") as caught:
        _ = opened(with_section(payload, 0, hashes[8:] + hashes[:8])).key_index

    assert "data/a.parquet" in str(caught.value)


def test_a_position_behind_the_last_row_is_refused_though_its_checksum_is_right() -> None:
    payload = encoded(TEXTS)
    _, length = section(payload, 1)

    with pytest.raises(Corruption, match="SSTABLE-14:"):
        _ = opened(with_section(payload, 1, b"\x0a\0\0\0" * (length // 4)), TEXTS).key_index


def test_a_schema_that_is_none_is_refused_though_its_checksum_is_right() -> None:
    payload = encoded()
    _, length = section(payload, 2)

    with pytest.raises(Corruption, match="schema"):
        opened(with_section(payload, 2, b"\xff" * length)).group(0)


@pytest.mark.parametrize("group_rows", [1, 3, 5, 10, 1 << 31])
def test_groups_of_another_length_are_refused_though_their_checksum_is_right(
    group_rows: int,
) -> None:
    payload = with_head(encoded(), GROUP_ROWS_AT, group_rows.to_bytes(4, "little"))

    with pytest.raises(Corruption, match="number of groups"):
        opened(payload).group(0)


def test_a_group_of_another_length_is_refused_though_its_checksum_is_right() -> None:
    payload = with_head(encoded(count=9), GROUP_ROWS_AT, (3).to_bytes(4, "little"))

    with pytest.raises(Corruption, match="4 rows instead of 3"):
        opened(payload, file=described(9)).group(0)


def test_rows_that_break_arrows_rules_are_refused_though_their_checksum_is_right() -> None:
    payload = encoded()
    directory, length = section(payload, 3)
    entries = bytearray(payload[directory : directory + length])
    at = int.from_bytes(entries[:8], "little")
    size = int.from_bytes(entries[8:16], "little")
    group = bytearray(payload[at : at + size])
    # An offset of the names leads far behind them.
    offsets = b"".join(each.to_bytes(4, "little") for each in (0, 6, 12, 12, 18))
    place = group.index(offsets)
    group[place + 4 : place + 8] = (1 << 30).to_bytes(4, "little")
    entries[16:20] = google_crc32c.value(bytes(group)).to_bytes(4, "little")
    damaged = payload[:at] + bytes(group) + payload[at + size :]

    with pytest.raises(Corruption, match="group 0"):
        opened(with_section(damaged, 3, bytes(entries))).group(0)


FILES = {
    "exact": (LONGS, encoded(LONGS)),
    "hashed": (TEXTS, encoded(TEXTS)),
    "without rows": (TEXTS, encoded(TEXTS, with_rows=False)),
}


def answer(payload: bytes, encoder: KeyEncoder) -> tuple[object, ...] | None:
    """Return all that a file holds, or None for one that is reported as damaged."""
    try:
        return everything(opened(payload, encoder))
    except Corruption:
        return None


def test_no_flipped_bit_of_an_index_file_changes_an_answer(scoreboard: Record) -> None:
    whole = {name: answer(payload, encoder) for name, (encoder, payload) in FILES.items()}
    bits = [(name, bit) for name, (_, payload) in FILES.items() for bit in range(8 * len(payload))]
    gate = Gate("R11 index file bit flips with a wrong answer", aim=len(bits), full=len(bits))
    detected = 0

    for seed in gate.seeds():
        # A stride that meets every bit once, spread over the files as far as time allows.
        name, bit = bits[seed * 7_919 % len(bits)]
        encoder, payload = FILES[name]
        damaged = bytearray(payload)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        found = answer(bytes(damaged), encoder)
        gate.cases += 1
        detected += found is None
        gate.violations += found is not None and found != whole[name]

    scoreboard(gate.line())
    assert len(bits) % 7_919
    assert None not in whole.values()
    assert detected
    assert not gate.violations
