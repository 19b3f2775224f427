"""The drawing of a log, part by part, as a person sees it."""

import re

import pyarrow as pa
import pytest
from rich.cells import cell_len

from neve.inspect.log_drawing import LogDrawing
from neve.inspect.opened_file import OpenedFile
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema
from neve.model.write_batch import UpsertRows, WriteBatch
from neve.storage.memory_store import MemoryStore
from neve.wal.batch_codec import LogStart, encode_changes, encode_log_start, encode_put, frame_batch
from neve.wal.inspection import LogInspection, PayloadKind
from neve.wal.log_options import LogOptions
from neve.wal.record_format import BLOCK_BYTES, HEADER_BYTES, Dialect, RecordType
from tests.unit.wal.inspected_logs import (
    batch,
    delete,
    flipped,
    neve_log,
    open_log,
    physical_record,
    put,
    read_of,
    segment,
)


def drawn(
    content: bytes,
    *,
    limit: int = 1_000,
    columns: int = 100,
    log_number: int | None = None,
    payload: PayloadKind = PayloadKind.BATCH,
    start_offset: int = 0,
    hex_only: bool = False,
) -> str:
    file = OpenedFile(
        name="log",
        byte_count=len(content),
        log_number=log_number,
        handle=-1,
        read_at=read_of(content),
    )
    inspection = LogInspection(
        file.read_at, payload=payload, log_number=log_number, start_offset=start_offset
    )
    drawing = LogDrawing(file, inspection, columns=columns, limit=limit, hex_only=hex_only)
    text = "\n".join(line.plain for line in drawing.lines())
    assert drawing.ending is not None
    return text


def recycled_log(rows: int) -> bytes:
    """Return log 3 in the file that was log 1, which was longer."""
    store = MemoryStore()
    log = open_log(store, options=LogOptions(segment_bytes=20 * BLOCK_BYTES, recycle_count=1))
    for number in range(rows):
        log.append(encode_put(b"old %d" % number, b"x" * 1_000, schema_version=0))
    log.rotate()
    log.truncate_below(2)
    log.rotate()
    log.append(encode_changes(WriteBatch((put(b"new", b"y" * 2_000),))))
    return store.get("000003.wal").payload


def test_blocks_of_an_earlier_log_are_told_in_one_line() -> None:
    text = drawn(recycled_log(300), log_number=3)

    assert ": records of log 1, which this file was before" in text
    assert text.count("╭─ block") <= 3
    assert "~ an earlier log" not in text.splitlines()[0]


def test_stale_records_inside_a_block_are_counted() -> None:
    text = drawn(recycled_log(40), log_number=3)

    assert "records of log 1" in text
    assert "~ an earlier log" in text


def test_a_batch_of_many_entries_is_told_by_its_first_ones() -> None:
    text = drawn(neve_log([delete(b"key %02d" % number) for number in range(50)]))

    assert text.count("delete") == 12
    assert "… 38 more entries" in text


def test_padding_ignored_records_and_hidden_bytes_are_told() -> None:
    filler = batch(1, put(b"k", bytes(BLOCK_BYTES - HEADER_BYTES - 3 - 18)))
    whole = segment(filler, batch(2, put(b"l")))
    whole += physical_record(b"?", record_type=200) + bytes(HEADER_BYTES) + b"hidden"

    text = drawn(whole)

    assert "padding      3  no header fits here" in text
    assert "ignored      1  type 200, which every reader skips" in text
    assert "a header of zeros hides 6 bytes that are not" in text


def test_a_fragment_without_its_beginning_is_told_where_it_is() -> None:
    lost = physical_record(b"lost", record_type=RecordType.LAST)

    lines = drawn(lost + segment(batch(1, put(b"a")))).splitlines()

    at = next(number for number, line in enumerate(lines) if "last" in line)
    assert "✗ missing start of fragmented record at byte 0: 4 bytes dropped" in lines[at + 1]
    assert 'row 1  put "a"' in lines[at + 2]


def test_records_behind_the_end_are_marked() -> None:
    rows = [[put(b"key %d" % number, b"v" * 9_000)] for number in range(10)]
    content = bytearray(neve_log(*rows))
    content[200] ^= 1

    text = drawn(bytes(content))

    assert "after the end" in text


def test_a_limit_of_nothing_tells_only_what_the_log_is_and_how_it_ends() -> None:
    text = drawn(neve_log([put(b"a")]), limit=0)

    assert "block" not in text
    assert "… 3 more records" in text
    assert "✔ reading ends at byte" in text


def test_an_edit_is_told_field_by_field() -> None:
    edit = b"\x01\x05x.Cmp" + b"\x06\x02\x0b" + b"\x63?"

    text = drawn(segment(edit), payload=PayloadKind.EDIT)

    assert "comparator  name x.Cmp" in text
    assert "deleted file  level 2  file 11" in text
    assert 'unknown tag 99  rest "?"' in text
    assert "1 record · nothing damaged" in text


def test_a_name_in_a_file_cannot_speak_to_the_terminal() -> None:
    edit = b"\x01\x06a\x1b[2Jb"

    text = drawn(segment(edit), payload=PayloadKind.EDIT)

    assert r"name a\x1b[2Jb" in text


def stamped_log(*payloads: bytes) -> bytes:
    """Return log 1 with these payloads behind its start."""
    return segment(
        b"".join(
            frame_batch(encode_log_start(LogStart(1)), sequence=1, durable_through=0, nonce=1)
        ),
        *payloads,
        dialect=Dialect.CRC32C,
        recyclable=True,
        log_number=1,
    )


def stamped_rows(rows: pa.RecordBatch) -> bytes:
    encoded = encode_changes(WriteBatch((UpsertRows(rows),)))
    return b"".join(frame_batch(encoded, sequence=1, durable_through=0, nonce=1))


def test_a_column_whose_name_is_no_text_makes_the_batch_unreadable() -> None:
    payload = stamped_rows(pa.RecordBatch.from_pydict({"nmXX": [1]}))

    text = drawn(stamped_log(payload.replace(b"nmXX", b"nm\xff\xfe")))

    assert "not a batch: an Arrow batch in the log cannot be read" in text


def test_rows_with_names_or_values_that_python_cannot_hold_are_left_out() -> None:
    far = pa.array([2**62], pa.timestamp("us", "Nowhere/At-all"))
    inner = pa.array([{"nmXX": 1}], pa.struct([("nmXX", pa.int64())]))
    rows = pa.RecordBatch.from_arrays([far, inner, pa.array([77])], names=["at", "inside", "id"])
    payload = stamped_rows(rows)

    text = drawn(stamped_log(payload.replace(b"nmXX", b"nm\xff\xfe")))

    assert "rows 1 to 1  upsert rows: 1 row" in text
    assert "columns at, inside, id" in text
    assert "77" not in text


LONG_RECORD = segment(*[batch(number + 1, put(b"k" * 500, b"v" * 500)) for number in range(99)])
DAMAGED = flipped(neve_log(*[[put(b"k%d" % n, b"v" * 2_000)] for n in range(40)]), 5_000)


@pytest.mark.parametrize("columns", [40, 55, 80, 100, 200])
@pytest.mark.parametrize("hex_only", [False, True], ids=["", "hex"])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(LONG_RECORD, id="long keys"),
        pytest.param(DAMAGED, id="damage"),
        pytest.param(neve_log([put("雪".encode() * 99, b"v")]), id="wide characters"),
        pytest.param(segment(b"\x01\xff\x01" + b"x" * 255), id="no batch"),
    ],
)
def test_no_line_is_wider_than_the_page(content: bytes, columns: int, *, hex_only: bool) -> None:
    lines = drawn(content, columns=columns, hex_only=hex_only).splitlines()

    assert max(map(cell_len, lines)) <= columns


def test_long_keys_and_values_are_both_clipped() -> None:
    row = next(line for line in drawn(LONG_RECORD, columns=80).splitlines() if " put " in line)

    assert row.count("…") == 2


def test_a_damaged_log_counts_before_and_behind_its_end_apart() -> None:
    text = drawn(DAMAGED)

    summary = text.partition("✗ reading ends")[2].partition("\n  before the end ")[2]
    before, behind, damage = " ".join(summary.split()).split(" · ")
    assert before == "3 records, 2 rows"
    assert behind.startswith("after it ")
    assert behind.endswith(" rows")
    assert damage.startswith("2 damaged places, ")


def test_the_shares_of_a_block_are_those_of_the_bytes_named_beside_them() -> None:
    whole = drawn(DAMAGED).splitlines()
    part = drawn(DAMAGED, start_offset=4_000).splitlines()

    assert "bytes 0 to 32,767 ─ 13% records, 87% damaged ─" in whole[3]
    assert re.search(r"bytes 4,\d\d\d to 32,767 ─ 0% records, 100% damaged ─", part[3])
    assert part[-2].startswith("  from byte 4,000 · ")


def test_columns_told_by_field_id_are_explained_once() -> None:
    schema = TableSchema.from_arrow(pa.schema({"id": pa.int64()}), primary_key=["id"])
    row = RowCodec(schema).encode({"id": 7})

    text = drawn(neve_log([put(b"a", row)], [put(b"b", row)]))

    assert text.count("#1=7") == 2
    assert text.count("#1 is the column with field id 1") == 1
    assert "field id" not in drawn(neve_log([put(b"a", b"no row")]))


def test_a_log_without_a_readable_record_is_drawn_as_damage() -> None:
    content = bytearray(segment(batch(1, put(b"a"))))
    content[0] ^= 1

    text = drawn(bytes(content))

    assert "no readable record" in text
    assert "checksum mismatch (header says full, 21 bytes)" in text
    assert "✗✗✗" not in text.splitlines()[0]
    assert text.count("checksum mismatch at byte") == 0
