"""Rows become files: sizes, groups, order, what is stored and what is said of it."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.errors import InvalidArgument, SchemaMismatch, Unavailable
from neve.model.data_file import FileFormat
from neve.observability.metrics import SSTABLE_BYTES, SSTABLE_FILES, SSTABLE_ROWS
from neve.sstable import data_file_writer, parquet_layout
from neve.storage.memory_store import MemoryStore
from tests.unit.sstable.data_files import (
    FORMATS,
    Files,
    arrow_schema,
    index_path_of,
    named_rows,
    plain_rows,
    rows_of_all_types,
    schema_of,
)

SMALL_GROUP_BYTES = 4_096


class StoreThatFails(MemoryStore):
    """Refuses to write index files."""

    def put(self, path: str, payload: bytes) -> str:
        if path.endswith(".index"):
            raise Unavailable("the store is full", path=path)
        return super().put(path, payload)


# Failures first


def test_no_rows_make_no_file() -> None:
    schema, rows = plain_rows(0)
    files = Files(schema)
    writer = files.writer()
    writer.append(rows)
    assert writer.finish() == ()
    assert not list(files.store.list(""))


def test_a_writer_without_a_single_append_makes_no_file() -> None:
    schema, _ = plain_rows(0)
    assert Files(schema).writer().finish() == ()


@pytest.mark.parametrize("order", ["swapped", "twice"])
def test_keys_out_of_order_are_refused(order: str) -> None:
    schema, rows = plain_rows(4)
    places = {"swapped": [0, 2, 1, 3], "twice": [0, 1, 1, 2]}[order]
    with pytest.raises(InvalidArgument, match="order of their keys"):
        Files(schema).writer().append(rows.take(places))


def test_hashed_keys_out_of_order_are_refused() -> None:
    schema, rows = named_rows(4)
    with pytest.raises(InvalidArgument, match="order of their keys"):
        Files(schema).writer().append(rows.take([1, 0]))


def test_an_append_that_does_not_continue_behind_the_last_key_is_refused() -> None:
    schema, rows = plain_rows(4)
    writer = Files(schema).writer()
    writer.append(rows.slice(0, 2))
    with pytest.raises(InvalidArgument, match="order of their keys"):
        writer.append(rows.slice(1, 2))


def test_rows_of_another_schema_are_refused() -> None:
    schema, rows = plain_rows(4)
    with pytest.raises(SchemaMismatch, match="do not have the schema"):
        Files(schema).writer().append(rows.drop_columns(["name"]))


def test_keys_of_another_number_than_the_rows_are_refused() -> None:
    schema, rows = plain_rows(4)
    files = Files(schema)
    keys = files.encoder.encode_arrays([rows.column("id")])
    with pytest.raises(InvalidArgument, match="3 keys for 4 rows"):
        files.writer().append(rows, keys.slice(0, 3))


def test_a_file_of_no_bytes_is_refused() -> None:
    schema, _ = plain_rows(1)
    with pytest.raises(InvalidArgument, match="at least one byte"):
        Files(schema, file_bytes_max=0).writer()


def test_abort_deletes_all_that_was_stored() -> None:
    schema, rows = plain_rows(5)
    files = Files(schema, file_bytes_max=1)
    writer = files.writer(FileFormat.DUAL)
    writer.append(rows)
    assert list(files.store.list(""))
    writer.abort()
    assert not list(files.store.list(""))
    assert writer.finish() == ()


def test_abort_after_a_failed_write_deletes_the_file_whose_index_failed() -> None:
    schema, rows = plain_rows(100)
    files = Files(schema, store=StoreThatFails())
    writer = files.writer()
    writer.append(rows)
    with pytest.raises(Unavailable):
        writer.finish()
    assert list(files.store.list(""))
    writer.abort()
    assert not list(files.store.list(""))


# What is written


@pytest.mark.parametrize("file_format", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("count", [1, 2, 300])
def test_rows_of_all_types_come_back(file_format: FileFormat, count: int) -> None:
    schema, rows = rows_of_all_types(count)
    files = Files(schema)
    written = files.write_one(rows, file_format)
    stored = pq.read_table(pa.BufferReader(files.bytes_of(written.file)))
    # Compared as text: NaN equals nothing.
    assert str(stored.to_pylist()) == str(rows.to_pylist())


def test_every_column_has_its_field_id_and_nothing_else_is_in_the_file() -> None:
    schema, rows = rows_of_all_types(5)
    files = Files(schema)
    stored = pq.read_schema(pa.BufferReader(files.bytes_of(files.write_one(rows).file)))
    assert stored.names == schema.arrow_schema.names
    for column in schema.columns:
        assert stored.field(column.name).metadata == {
            b"PARQUET:field_id": str(column.field_id).encode()
        }
    assert b"ARROW:schema" not in stored.metadata


def test_the_footer_says_what_the_file_is() -> None:
    schema, rows = plain_rows(2)
    files = Files(schema)
    written = files.write_one(rows)
    metadata = pq.read_metadata(pa.BufferReader(files.bytes_of(written.file)))
    texts = {key.decode(): value.decode() for key, value in (metadata.metadata or {}).items()}
    assert texts.pop("neve.checksums")
    assert texts == {
        "neve.format": "1",
        "neve.table-id": "17",
        "neve.level": "0",
        "neve.sequence-min": "5",
        "neve.sequence-max": "9",
        "neve.key-min": "8000000000000000",
        "neve.key-max": "8000000000000003",
    }


def test_the_file_says_by_which_leaves_it_is_sorted() -> None:
    schema, rows = rows_of_all_types(5, key=("fixed", "id"))
    files = Files(schema)
    metadata = pq.read_metadata(pa.BufferReader(files.bytes_of(files.write_one(rows).file)))
    leaves = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    sorted_by = [leaves[each.column_index] for each in metadata.row_group(0).sorting_columns]
    assert sorted_by == ["fixed", "id"]


def test_facts_of_the_file_are_what_was_written() -> None:
    schema, rows = plain_rows(10)
    files = Files(schema)
    written = files.write_one(rows)
    payload = files.bytes_of(written.file)
    assert written.file.path == "data/00000000000000000000000000000001.parquet"
    assert written.file.file_bytes == len(payload)
    assert written.file.row_count == 10
    assert written.file.key_min == files.encoder.encode([0])
    assert written.file.key_max == files.encoder.encode([27])
    assert (written.file.sequence_min, written.file.sequence_max) == (5, 9)
    assert written.keys.to_pylist() == [files.encoder.encode([3 * i]) for i in range(10)]
    assert written.index.row_count == 10


@pytest.mark.parametrize("file_format", FORMATS.values(), ids=FORMATS)
def test_a_small_columnar_file_has_no_index_file(file_format: FileFormat) -> None:
    def has_index_file(row_count: int) -> bool:
        schema, rows = plain_rows(row_count)
        files = Files(schema)
        written = files.write_one(rows, file_format)
        return index_path_of(written.file) in {info.path for info in files.store.list("")}

    assert has_index_file(64) == (file_format is FileFormat.DUAL)
    assert has_index_file(65)


def test_what_was_written_is_counted() -> None:
    schema, rows = plain_rows(10)
    files = Files(schema)
    written = files.write_one(rows)
    assert files.counters.total(SSTABLE_FILES) == 1
    assert files.counters.total(SSTABLE_ROWS) == 10
    assert files.counters.total(SSTABLE_BYTES) == written.file.file_bytes


def test_the_same_rows_make_the_same_bytes() -> None:
    schema, rows = rows_of_all_types(300)
    first, second = Files(schema), Files(schema)
    assert first.bytes_of(first.write_one(rows).file) == second.bytes_of(
        second.write_one(rows).file
    )


def test_rows_appended_in_pieces_make_the_same_bytes_as_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet_layout, "GROUP_ROWS_MAX", 256)
    schema, rows = rows_of_all_types(1_000)
    whole, pieces = Files(schema), Files(schema)
    writer = pieces.writer()
    for start in range(0, 1_000, 77):
        writer.append(rows.slice(start, 77))
    (written,) = writer.finish()
    assert whole.bytes_of(whole.write_one(rows).file) == pieces.bytes_of(written.file)


# Groups and files


@pytest.mark.parametrize(
    ("file_format", "group_rows"), [(FileFormat.COLUMNAR, 16_384), (FileFormat.DUAL, 65_536)]
)
def test_groups_have_one_size_but_for_the_last(file_format: FileFormat, group_rows: int) -> None:
    schema, rows = plain_rows(200_000)
    files = Files(schema)
    written = files.write_one(rows, file_format).file
    metadata = pq.read_metadata(pa.BufferReader(files.bytes_of(written)))
    sizes = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    whole, rest = divmod(200_000, group_rows)
    assert sizes == [group_rows] * whole + [rest]


def wide_rows(lengths: list[int]) -> tuple[Files, pa.Table]:
    schema = schema_of(arrow_schema(id=pa.int64(), text=pa.binary()), "id")
    table = pa.table(
        {"id": np.arange(len(lengths)), "text": [b"\x01" * length for length in lengths]},
        schema=schema.arrow_schema,
    )
    return Files(schema), table


def group_sizes(files: Files, rows: pa.Table) -> list[list[int]]:
    sizes = []
    for written in files.write(rows):
        metadata = pq.read_metadata(pa.BufferReader(files.bytes_of(written.file)))
        sizes.append([metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)])
    return sizes


def test_wide_rows_make_small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file_writer, "GROUP_BYTES_MAX", SMALL_GROUP_BYTES)
    files, rows = wide_rows([1_000] * 10)
    assert group_sizes(files, rows) == [[4, 4, 2]]


def test_a_row_larger_than_a_group_is_a_group_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file_writer, "GROUP_BYTES_MAX", SMALL_GROUP_BYTES)
    files, rows = wide_rows([10_000] * 3)
    assert group_sizes(files, rows) == [[1, 1, 1]]


def test_rows_that_become_wider_end_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file_writer, "GROUP_BYTES_MAX", SMALL_GROUP_BYTES)
    files, rows = wide_rows([10] * 256 + [10_000] * 4)
    sizes = group_sizes(files, rows)
    assert len(sizes) == 2
    assert sum(sizes[0]) == 256
    assert sizes[1] == [1, 1, 1, 1]


def test_many_groups_end_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file_writer, "GROUP_BYTES_MAX", SMALL_GROUP_BYTES)
    monkeypatch.setattr(data_file_writer, "GROUPS_MAX", 2)
    files, rows = wide_rows([1_000] * 20)
    assert group_sizes(files, rows) == [[4, 4], [4, 4], [4]]


@pytest.mark.parametrize("file_format", FORMATS.values(), ids=FORMATS)
def test_files_stay_below_their_bound_and_apart(file_format: FileFormat) -> None:
    schema = schema_of(arrow_schema(id=pa.int64(), text=pa.binary()), "id")
    noise = np.random.default_rng(1)
    rows = pa.table(
        {"id": np.arange(20_000), "text": [noise.bytes(50) for _ in range(20_000)]},
        schema=schema.arrow_schema,
    )
    files = Files(schema, file_bytes_max=200_000)
    written = files.write(rows, file_format)
    assert len(written) > 4
    assert max(each.file.file_bytes for each in written) <= 200_000
    assert min(each.file.file_bytes for each in written[:-1]) >= 100_000
    for before, behind in itertools.pairwise(written):
        assert before.file.key_max < behind.file.key_min
    joined = pa.concat_tables(
        [files.open(each.file).read(None, start=0, stop=each.file.row_count) for each in written]
    )
    assert joined.equals(rows)


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "none"])
def test_the_codec_of_the_table_is_used(codec: str) -> None:
    schema, rows = plain_rows(100)
    files = Files(schema)
    writer = files.writer(properties={"write.parquet.compression-codec": codec})
    writer.append(rows)
    (written,) = writer.finish()
    metadata = pq.read_metadata(pa.BufferReader(files.bytes_of(written.file)))
    expected = "UNCOMPRESSED" if codec == "none" else codec.upper()
    assert metadata.row_group(0).column(1).compression == expected


def test_only_a_dual_file_has_its_rows_in_the_index() -> None:
    schema, rows = plain_rows(1_000)
    files = Files(schema)
    columnar = files.write_one(rows)
    dual = files.write_one(rows, FileFormat.DUAL)
    sizes = [files.store.size(index_path_of(each.file)) for each in (columnar, dual)]
    assert sizes[0] < 8 * 1_000 + 300
    assert sizes[1] > sizes[0] + 16 * 1_000


def test_the_partition_path_is_part_of_the_name() -> None:
    schema, rows = plain_rows(1)
    files = Files(schema)
    writer = files.writer(partition_path="day=2026-11-15")
    writer.append(rows)
    (written,) = writer.finish()
    assert written.file.path == f"data/day=2026-11-15/{1:032x}.parquet"
    assert files.open(written.file).find(written.file.key_min) == 0
