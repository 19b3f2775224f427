"""How a file is written, by its format and by what its first group holds."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.errors import InvalidArgument
from neve.model.data_file import ROW_FORMATS, FileFormat
from neve.model.schema_view import ArrowArray
from neve.sstable.parquet_layout import ParquetLayout, group_rows_for, group_rows_max
from tests.unit.sstable.data_files import Files, arrow_schema, named_rows, plain_rows, schema_of

COUNT = 20_000


def metadata_of(
    columns: dict[str, ArrowArray], file_format: FileFormat = FileFormat.COLUMNAR
) -> pq.FileMetaData:
    """Write columns behind a key `id`; gives what Parquet says of the file."""
    arrow = arrow_schema(id=pa.int64(), **{name: each.type for name, each in columns.items()})
    schema = schema_of(arrow, "id")
    rows = pa.table({"id": np.arange(COUNT), **columns}, schema=schema.arrow_schema)
    files = Files(schema)
    payload = files.bytes_of(files.write_one(rows, file_format).file)
    return pq.read_metadata(pa.BufferReader(payload))


def chunk(metadata: pq.FileMetaData, path: str) -> pq.ColumnChunkMetaData:
    row_group = metadata.row_group(0)
    chunks = [row_group.column(at) for at in range(metadata.num_columns)]
    return next(each for each in chunks if each.path_in_schema == path)


def bloom_offset(metadata: pq.FileMetaData, path: str) -> int | None:
    offset: int | None = chunk(metadata, path).bloom_filter_offset  # type: ignore[attr-defined]
    return offset


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="Choose one of zstd"):
        ParquetLayout.from_properties({"write.parquet.compression-codec": "lzo"})


def test_zstd_is_the_codec_unless_the_table_says_otherwise() -> None:
    assert ParquetLayout.from_properties({}).codec == "zstd"
    assert chunk(metadata_of({}), "id").compression == "ZSTD"


@pytest.mark.parametrize(
    ("values", "compression"),
    [
        pytest.param(
            pa.array(np.random.default_rng(1).random(COUNT)), "UNCOMPRESSED", id="measurements"
        ),
        pytest.param(
            pa.array([np.random.default_rng(i).bytes(30) for i in range(COUNT)]),
            "UNCOMPRESSED",
            id="noise",
        ),
        pytest.param(pa.array(np.arange(COUNT) / 4), "ZSTD", id="quarters"),
        pytest.param(pa.array([f"name {i}" for i in range(COUNT)]), "ZSTD", id="texts"),
        pytest.param(pa.array([""] * COUNT), "ZSTD", id="empty texts"),
        pytest.param(pa.array([None] * COUNT, pa.float64()), "ZSTD", id="nothing but NULL"),
        pytest.param(pa.array([i % 3 == 0 for i in range(COUNT)]), "ZSTD", id="yes and no"),
    ],
)
def test_values_are_compressed_where_that_makes_them_smaller(
    values: ArrowArray, compression: str
) -> None:
    assert chunk(metadata_of({"a": values}), "a").compression == compression


def test_a_codec_of_none_compresses_nothing() -> None:
    schema, rows = plain_rows(100)
    files = Files(schema)
    writer = files.writer(properties={"write.parquet.compression-codec": "none"})
    writer.append(rows)
    (written,) = writer.finish()
    metadata = pq.read_metadata(pa.BufferReader(files.bytes_of(written.file)))
    compressions = {chunk(metadata, name).compression for name in rows.schema.names}
    assert compressions == {"UNCOMPRESSED"}


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(pa.array(range(COUNT), pa.int32()), id="int"),
        pytest.param(pa.array(range(COUNT), pa.int64()), id="long"),
        pytest.param(pa.array(range(COUNT), pa.date32()), id="date"),
        pytest.param(pa.array(range(COUNT), pa.time64("us")), id="time"),
        pytest.param(pa.array(range(COUNT), pa.timestamp("ns", "UTC")), id="timestamp"),
    ],
)
def test_whole_numbers_are_stored_as_differences(values: ArrowArray) -> None:
    assert "DELTA_BINARY_PACKED" in chunk(metadata_of({"a": values}), "a").encodings


@pytest.mark.parametrize(
    ("values", "pays"),
    [
        pytest.param([f"city {i % 50}" for i in range(COUNT)], True, id="fifty texts"),
        pytest.param([f"name {i}" for i in range(COUNT)], False, id="texts that all differ"),
        pytest.param([None] * COUNT, True, id="nothing but NULL"),
        pytest.param([float(i % 9) for i in range(COUNT)], True, id="nine numbers"),
        pytest.param([i / 7 for i in range(COUNT)], False, id="numbers that all differ"),
    ],
)
def test_a_dictionary_is_made_where_values_repeat(values: list[object], *, pays: bool) -> None:
    is_text = not isinstance(values[0], float)
    array = pa.array(values, pa.string() if is_text else pa.float64())
    assert chunk(metadata_of({"a": array}), "a").has_dictionary_page is pays


def test_repetition_counts_only_where_it_is_spread_over_the_group() -> None:
    # The first sixteenth holds one value, the rest are all different.
    texts = ["same"] * (COUNT // 16) + [f"other {i}" for i in range(COUNT - COUNT // 16)]
    assert not chunk(metadata_of({"a": pa.array(texts)}), "a").has_dictionary_page


def test_values_inside_lists_and_maps_are_looked_at_too() -> None:
    lists = pa.array([[f"tag {i % 5}"] for i in range(COUNT)])
    maps = pa.array([[(f"k{i}", i % 3)] for i in range(COUNT)], pa.map_(pa.string(), pa.int64()))
    metadata = metadata_of({"l": lists, "m": maps})
    assert chunk(metadata, "l.list.element").has_dictionary_page
    assert not chunk(metadata, "m.key_value.key").has_dictionary_page
    assert chunk(metadata, "m.key_value.value").has_dictionary_page


def test_long_values_have_no_statistics_and_short_ones_have() -> None:
    metadata = metadata_of(
        {"long": pa.array(["x" * 100] * COUNT), "short": pa.array(["x"] * COUNT)}
    )
    assert not chunk(metadata, "long").is_stats_set
    assert chunk(metadata, "short").is_stats_set
    assert chunk(metadata, "id").is_stats_set


def test_every_file_has_a_page_index() -> None:
    metadata = metadata_of({"a": pa.array(range(COUNT), pa.int32())})
    assert chunk(metadata, "a").has_column_index
    assert chunk(metadata, "a").has_offset_index


@pytest.mark.parametrize(
    ("digits", "physical"),
    [(9, "INT32"), (18, "INT64"), (19, "FIXED_LEN_BYTE_ARRAY")],
    ids=["9", "18", "19"],
)
def test_short_decimals_are_integers(digits: int, physical: str) -> None:
    values = (
        pa.array([1] * COUNT, pa.int32()).cast(pa.decimal128(12, 2)).cast(pa.decimal128(digits, 2))
    )
    assert chunk(metadata_of({"a": values}), "a").physical_type == physical


def test_a_columnar_file_with_hashed_keys_has_bloom_filters_on_its_key_columns() -> None:
    schema, rows = named_rows(1_000)
    files = Files(schema)
    offsets = {}
    for file_format in ROW_FORMATS:
        payload = files.bytes_of(files.write_one(rows, file_format).file)
        metadata = pq.read_metadata(pa.BufferReader(payload))
        offsets[file_format] = {
            path: bloom_offset(metadata, path) for path in ("value", "name", "part")
        }
    assert offsets[FileFormat.DUAL] == {"value": None, "name": None, "part": None}
    columnar = offsets[FileFormat.COLUMNAR]
    assert columnar["value"] is None
    assert columnar["name"]
    assert columnar["part"]


def test_a_file_with_exact_keys_has_no_bloom_filter() -> None:
    schema, rows = plain_rows(100)
    files = Files(schema)
    metadata = pq.read_metadata(pa.BufferReader(files.bytes_of(files.write_one(rows).file)))
    assert bloom_offset(metadata, "id") is None


def test_pages_of_a_dual_file_are_smaller() -> None:
    noise = np.random.default_rng(1)
    values = pa.array([noise.bytes(60) for _ in range(COUNT)])
    sizes = [
        chunk(metadata_of({"a": values}, each), "a").total_uncompressed_size for each in ROW_FORMATS
    ]
    # Every page has a header of its own.
    assert sizes[1] > sizes[0]


@pytest.mark.parametrize(
    ("row_bytes", "rows"), [(1, 65_536), (256, 65_536), (257, 32_768), (1 << 30, 1)], ids=str
)
def test_a_group_is_a_power_of_two_of_rows_that_fits(row_bytes: int, rows: int) -> None:
    chosen = group_rows_for(
        lambda count: count * row_bytes,
        rows_max=group_rows_max(FileFormat.DUAL),
        bytes_max=16 << 20,
    )
    assert chosen == rows
