"""Values that are read to where they stay: the same as decoded ones, and as well guarded."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.errors import Corruption
from neve.model.data_file import DataFile, FileFormat
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray
from neve.sstable.data_file_reader import DataFileReader
from neve.sstable.parquet_pages import plain_pieces
from neve.storage.local_store import LocalStore
from neve.testing.simulated_disk import SimulatedDisk
from tests.unit.sstable.data_files import (
    FORMATS,
    Files,
    index_path_of,
    path_of,
    rows_of_all_types,
    schema_of,
)

COUNT = 40_000
PLAIN = ["double", "float", "uuid", "fixed"]
every_format = pytest.mark.parametrize("file_format", FORMATS.values(), ids=FORMATS)


def noisy_rows(count: int = COUNT, *, null_at: int | None = None) -> tuple[TableSchema, pa.Table]:
    """Return rows with values that do not get smaller, one of them NULL where asked for."""
    random = np.random.default_rng(7)
    nullable = np.zeros(count, np.bool_)
    if null_at is not None:
        nullable[null_at] = True

    def fixed(width: int) -> pa.FixedSizeBinaryArray:
        content = pa.py_buffer(random.bytes(count * width))
        return pa.Array.from_buffers(pa.binary(width), count, [None, content])  # type: ignore[return-value]

    table = pa.table(
        {
            "id": np.arange(count),
            "double": pa.array(random.random(count), mask=nullable),
            "float": _finite_floats(random, count),
            "uuid": pa.ExtensionArray.from_storage(pa.uuid(), fixed(16)),
            "fixed": fixed(20),
            "text": [f"text {n % 100}" for n in range(count)],
        }
    )
    schema = schema_of(table.schema, "id")
    return schema, table.cast(schema.arrow_schema)


def _finite_floats(random: np.random.Generator, count: int) -> "npt.NDArray[np.float32]":
    """Return any finite numbers: those below 1 alone would get smaller."""
    bits = random.integers(0, 1 << 32, count, dtype=np.uint32)
    return (bits & np.uint32(0xFF7F_FFFF)).view(np.float32)


def on_disk(schema: TableSchema, place: Path | None = None) -> Files:
    if place is not None:
        return Files(schema, store=LocalStore(str(place)))
    return Files(schema, store=LocalStore("/lake", disk=SimulatedDisk()))


def fail_to_decode(*_args: object, **_options: object) -> None:
    raise AssertionError("a column was decoded")


def without_index(files: Files, file: DataFile) -> DataFileReader:
    """Open a file whose rows are not in an index file too."""
    files.store.delete(index_path_of(file))
    reader = files.open(file)
    assert reader.read(["id"], start=0, stop=1).num_rows == 1
    return reader


# Failures first


@pytest.mark.parametrize("columns", [["double"], ["text"], None], ids=str)
def test_a_file_that_is_cut_while_it_is_open_is_corruption(
    columns: list[str] | None, tmp_path: Path
) -> None:
    schema, rows = noisy_rows()
    files = on_disk(schema, tmp_path)
    file = files.write_one(rows, FileFormat.COLUMNAR).file
    reader = files.open(file)
    assert reader.read(columns, start=0, stop=COUNT).num_rows == COUNT
    with (tmp_path / path_of(file)).open("r+b") as opened:
        opened.truncate(100)

    with pytest.raises(Corruption, match="has become shorter") as caught:
        reader.read(columns, start=0, stop=COUNT)

    assert caught.value.path == path_of(file)


def test_no_flipped_bit_on_a_disk_changes_a_plain_value() -> None:
    schema, rows = noisy_rows(count=600)
    files = on_disk(schema)
    file = files.write_one(rows, FileFormat.COLUMNAR).file
    payload = files.bytes_of(file)
    warm, random = files.open(file), Random(3)
    expected = warm.read(PLAIN, start=0, stop=600)
    noticed = 0
    for _ in range(300):
        bit = random.randrange(8 * len(payload))
        damaged = bytearray(payload)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        files.store.put(path_of(file), bytes(damaged))
        for is_open in (True, False):
            try:
                reader = warm if is_open else files.open(file)
                assert reader.read(PLAIN, start=0, stop=600).equals(expected)
            except Corruption:
                noticed += 1
    assert noticed > 300


def test_the_damaged_column_is_named() -> None:
    schema, rows = noisy_rows()
    files = on_disk(schema)
    file = files.write_one(rows, FileFormat.COLUMNAR).file
    reader = files.open(file)
    reader.read(["double"], start=0, stop=COUNT)
    payload = bytearray(files.bytes_of(file))
    at = payload.find(np.asarray(rows["double"])[35_000].tobytes())
    payload[at] ^= 1
    files.store.put(path_of(file), bytes(payload))

    with pytest.raises(Corruption, match=r"column 'double' of row group [1-9] is damaged"):
        reader.read(["double"], start=0, stop=COUNT)
    assert reader.read(["float"], start=0, stop=COUNT).num_rows == COUNT


# Which columns they are


@every_format
def test_plain_columns_are_not_decoded(
    file_format: FileFormat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    schema, rows = noisy_rows()
    files = on_disk(schema, tmp_path)
    reader = without_index(files, files.write_one(rows, file_format).file)
    monkeypatch.setattr(pq, "ParquetFile", fail_to_decode)

    found = reader.read(PLAIN, start=0, stop=COUNT)

    found.validate(full=True)
    assert found.equals(rows.select(PLAIN))
    (batch,) = found.to_batches()
    for column in batch.columns:
        values = column.buffers()[1]
        assert values is not None
        assert values.address % 64 == 0
    with pytest.raises(AssertionError, match="was decoded"):
        reader.read(["text"], start=0, stop=COUNT)


@every_format
@pytest.mark.parametrize("null_at", [None, 0, 17_000, COUNT - 1])
def test_plain_and_decoded_columns_come_together(
    file_format: FileFormat, null_at: int | None
) -> None:
    schema, rows = noisy_rows(null_at=null_at)
    files = on_disk(schema)
    reader = without_index(files, files.write_one(rows, file_format).file)
    for start, stop in ((0, COUNT), (1, 100), (16_000, 33_000), (COUNT - 1, COUNT)):
        expected = rows.slice(start, stop - start)
        assert reader.read(None, start=start, stop=stop).equals(expected)
        assert reader.read(["double"], start=start, stop=stop).equals(expected.select(["double"]))
        assert reader.read(["text", "float"], start=start, stop=stop).equals(
            expected.select(["text", "float"])
        )


def test_rows_of_all_types_are_the_same_on_a_disk() -> None:
    schema, rows = rows_of_all_types(500)
    files = on_disk(schema)
    reader = files.open(files.write_one(rows, FileFormat.COLUMNAR).file)
    # As text, since NaN is not equal to itself.
    assert str(reader.read(None, start=0, stop=500).to_pylist()) == str(rows.to_pylist())


# Pages


def chunk_of(values: ArrowArray, *, nullable: bool = True, **options: object) -> bytes:
    """Return the only chunk of a Parquet file."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([pa.field("a", values.type, nullable=nullable)])
    chosen: dict[str, object] = {"compression": "none", "use_dictionary": False, **options}
    pq.write_table(pa.table([values], schema=schema), sink, **chosen)  # type: ignore[arg-type]
    content = sink.getvalue()
    column = pq.read_metadata(pa.BufferReader(content)).row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    return content.slice(start, column.total_compressed_size).to_pybytes()


DOUBLES = pa.array(np.random.default_rng(1).random(3_000))


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("page_bytes", [512, 1 << 20])
def test_the_pieces_of_plain_pages_are_their_values(nullable: bool, page_bytes: int) -> None:
    chunk = chunk_of(DOUBLES, nullable=nullable, data_page_size=page_bytes)

    pieces = plain_pieces(chunk, width=8, row_count=3_000, is_nullable=nullable)

    assert pieces is not None
    assert sum(pieces) == len(chunk)
    ends = np.cumsum(pieces)
    found = b"".join(
        chunk[end - length : end]
        for end, length in zip(ends[1::2].tolist(), pieces[1::2], strict=True)
    )
    assert found == np.asarray(DOUBLES).tobytes()


OTHERS: dict[str, Callable[[], bytes]] = {
    "with NULL": lambda: chunk_of(pa.array([1.5, None] * 1_500)),
    "dictionary": lambda: chunk_of(DOUBLES, use_dictionary=True),
    "second version": lambda: chunk_of(DOUBLES, data_page_version="2.0"),
    "other encoding": lambda: chunk_of(
        DOUBLES, column_encoding={"a": "BYTE_STREAM_SPLIT"}, use_dictionary=False
    ),
    "narrower": lambda: chunk_of(DOUBLES.cast(pa.float32())),
    "more rows": lambda: chunk_of(pa.concat_arrays([DOUBLES, DOUBLES])),
    "fewer rows": lambda: chunk_of(DOUBLES[:2_999]),
    "cut": lambda: chunk_of(DOUBLES)[:-1],
    "longer": lambda: chunk_of(DOUBLES) + b"\x15",
    "nothing": lambda: b"",
    "not pages": lambda: b"\xff" * 24_100,
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_pages_have_no_pieces(make: Callable[[], bytes]) -> None:
    assert plain_pieces(make(), width=8, row_count=3_000, is_nullable=True) is None


def test_damaged_headers_never_give_pieces_that_do_not_fit() -> None:
    chunk, random = chunk_of(DOUBLES, data_page_size=512), Random(5)
    for _ in range(2_000):
        damaged = bytearray(chunk)
        damaged[random.randrange(200)] ^= 1 << random.randrange(8)
        pieces = plain_pieces(bytes(damaged), width=8, row_count=3_000, is_nullable=True)
        assert pieces is None or (sum(pieces) == len(chunk) and sum(pieces[1::2]) == 24_000)
