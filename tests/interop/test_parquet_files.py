"""Data files as others see them: PyArrow, DuckDB, Polars, and PyIceberg's reading of the footer."""

import uuid
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)

from neve.model.data_file import FileFormat
from neve.model.schema import TableSchema
from neve.sstable.data_file_writer import WrittenFile
from tests.unit.sstable.data_files import FORMATS, Files, named_rows, rows_of_all_types

every_format = pytest.mark.parametrize("file_format", FORMATS.values(), ids=FORMATS)


class OnDisk:
    """Rows of all types in one file."""

    def __init__(self, folder: Path, file_format: FileFormat) -> None:
        self.schema: TableSchema
        self.schema, self.rows = rows_of_all_types(300)
        files = Files(self.schema)
        self.written: WrittenFile = files.write_one(self.rows, file_format)
        self.path = folder / "rows.parquet"
        self.path.write_bytes(files.bytes_of(self.written.file))

    def check(self, found: pa.Table, *, leave_out: frozenset[str] = frozenset()) -> None:
        """Compare as text, because NaN equals nothing."""
        assert found.schema.names == self.rows.schema.names
        for name in self.rows.schema.names:
            if name not in leave_out:
                expected = self.rows.column(name)
                values = found.column(name).cast(expected.type)
                assert str(values.to_pylist()) == str(expected.to_pylist()), name


@every_format
def test_pyarrow_reads_the_rows_and_finds_its_page_checksums_right(
    tmp_path: Path, file_format: FileFormat
) -> None:
    on_disk = OnDisk(tmp_path, file_format)
    on_disk.check(pq.read_table(on_disk.path, page_checksum_verification=True))


@every_format
def test_duckdb_reads_the_rows(tmp_path: Path, file_format: FileFormat) -> None:
    on_disk = OnDisk(tmp_path, file_format)
    with duckdb.connect() as connection:
        found = connection.read_parquet(str(on_disk.path)).to_arrow_table()
    # DuckDB has no nanoseconds with a time zone, and gives a uuid as text.
    on_disk.check(found, leave_out=frozenset({"timestamptz_ns", "uuid"}))
    texts = found.column("uuid").to_pylist()
    assert [None if text is None else uuid.UUID(text) for text in texts] == on_disk.rows.column(
        "uuid"
    ).to_pylist()


@every_format
def test_polars_reads_the_rows(tmp_path: Path, file_format: FileFormat) -> None:
    on_disk = OnDisk(tmp_path, file_format)
    on_disk.check(pl.read_parquet(on_disk.path).to_arrow())


def test_duckdb_finds_a_key_with_bloom_filters_and_statistics(tmp_path: Path) -> None:
    schema, rows = named_rows(5_000)
    files = Files(schema)
    path = tmp_path / "rows.parquet"
    path.write_bytes(files.bytes_of(files.write_one(rows).file))
    with duckdb.connect() as connection:
        relation = connection.read_parquet(str(path))
        found = relation.filter("name = 'row 001234' and part = 1").fetchall()
        nothing = relation.filter("name = 'row 0012345'").fetchall()
    assert found == [(2_469, "row 001234", 1)]
    assert nothing == []


@every_format
def test_pyiceberg_reads_the_same_statistics_from_the_footer(
    tmp_path: Path, file_format: FileFormat
) -> None:
    on_disk = OnDisk(tmp_path, file_format)
    metadata = pq.read_metadata(on_disk.path)
    schema = pyarrow_to_schema(pq.read_schema(on_disk.path), format_version=3)
    theirs = data_file_statistics_from_parquet_metadata(
        metadata, compute_statistics_plan(schema, {}), parquet_path_to_id_mapping(schema)
    ).to_serialized_dict()
    ours = on_disk.written.file.statistics

    def collected(name: str) -> dict[int, object]:
        values = {each.field_id: getattr(each, name) for each in ours}
        return {field_id: value for field_id, value in values.items() if value is not None}

    assert collected("compressed_bytes") == theirs["column_sizes"]
    assert collected("value_count") == theirs["value_counts"]
    assert collected("null_count") == theirs["null_value_counts"]
    # PyIceberg bounds no column that is in a struct or has a dot in its name, and it drops
    # nanoseconds.
    own = {"timestamp_ns", "timestamptz_ns", "long.name", "point.x", "point.at.day"}
    own_ids = {schema.find_field(name).field_id for name in own}
    for name in ("lower", "upper"):
        bounds = collected(name)
        assert own_ids <= bounds.keys()
        expected = {
            field_id: bound
            for field_id, bound in theirs[f"{name}_bounds"].items()
            if field_id not in own_ids
        }
        assert {key: bound for key, bound in bounds.items() if key not in own_ids} == expected
