"""The reader that knows only Parquet and Puffin finds what is not clean."""

import io
import struct
import zlib
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from neve.model.data_file import DataFile, VectorRef
from neve.model.schema import Column, TableSchema
from neve.model.version import Operation, Version, VersionFacts
from neve.sstable.puffin import write_puffin
from neve.storage.memory_store import MemoryStore
from neve.testing.clean_reader import CleanReader, NotClean, vector_positions

ROOT: Final = "tables/t1"
COLUMNS: Final[dict[str, pa.DataType]] = {"id": pa.int64(), "word": pa.string()}
SCHEMA: Final = pa.schema(
    [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
        for number, (name, kind) in enumerate(COLUMNS.items(), start=1)
    ]
)


def stored(
    store: MemoryStore, name: str, ids: list[int], *, level: int = 0, schema: pa.Schema = SCHEMA
) -> DataFile:
    """Store a Parquet file with a row for each id."""
    sink = io.BytesIO()
    rows = [{"id": each, "word": f"{name}{each}"} for each in ids]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink, write_page_checksum=True)
    path = f"data/{name}.parquet"
    store.put(f"{ROOT}/{path}", sink.getvalue())
    return DataFile(
        path=path,
        file_bytes=len(sink.getvalue()),
        row_count=len(ids),
        level=level,
        key_min=b"",
        key_max=b"",
    )


def marked(store: MemoryStore, file: DataFile, positions: set[int]) -> DataFile:
    """Store a vector for a file."""
    location = f"memory://lake/{ROOT}/{file.path}"
    payload, places = write_puffin({location: BitMap64(positions)}, created_by="test")
    store.put(f"{ROOT}/deletes/1.puffin", payload)
    place = places[location]
    ref = VectorRef(
        path="deletes/1.puffin",
        offset=place.offset,
        length=place.length,
        cardinality=place.cardinality,
    )
    return file.with_vector(ref)


def version_of(*files: DataFile) -> Version:
    return Version(
        number=2,
        parent=1,
        facts=VersionFacts(operation=Operation.APPEND, timestamp_ms=0, schema_id=0, spec_id=0),
        files={file.path: file for file in files},
    )


def read(store: MemoryStore, *files: DataFile) -> list[int]:
    rows = CleanReader(store, ROOT, ["id"]).rows(version_of(*files))
    assert all(key == (row["id"],) for key, row in rows.items())
    return sorted(key[0] for key in rows)  # type: ignore[misc]


def test_rows_outside_the_vectors_are_the_table() -> None:
    store = MemoryStore()
    old = marked(store, stored(store, "old", [1, 2, 3]), {1})
    new = stored(store, "new", [2, 5])

    assert read(store, old, new) == [1, 2, 3, 5]


def test_columns_go_by_their_field_ids_whatever_a_file_calls_them() -> None:
    store = MemoryStore()
    file = stored(store, "a", [1, 2])
    columns = (
        Column(field_id=3, name="word", type=pa.int32(), nullable=False, initial_default=9),
        Column(field_id=1, name="key", type=pa.int64(), nullable=False),
        Column(field_id=4, name="note", type=pa.string(), nullable=True),
    )
    schema = TableSchema(columns=columns, primary_key=(1,), schema_id=1, last_field_id=4)

    rows = CleanReader(store, ROOT, ["id"]).rows(version_of(file), schema)

    assert rows == {(each,): {"word": 9, "key": each, "note": None} for each in (1, 2)}


def test_a_key_that_is_live_twice_is_not_clean() -> None:
    store = MemoryStore()

    with pytest.raises(NotClean, match="live twice"):
        read(store, stored(store, "old", [1, 2]), stored(store, "new", [2, 5]))


def test_rows_out_of_order_are_not_clean() -> None:
    store = MemoryStore()

    with pytest.raises(NotClean, match="not sorted"):
        read(store, stored(store, "a", [2, 1]))


def test_files_of_one_level_that_overlap_are_not_clean() -> None:
    store = MemoryStore()
    files = stored(store, "a", [1, 5], level=1), stored(store, "b", [3, 9], level=1)

    with pytest.raises(NotClean, match="overlap"):
        read(store, *files)
    assert read(store, files[0], replace(files[1], level=2)) == [1, 3, 5, 9]


def test_a_file_of_another_length_or_row_count_is_not_clean() -> None:
    store = MemoryStore()
    file = stored(store, "a", [1])

    with pytest.raises(NotClean, match="bytes"):
        read(store, replace(file, file_bytes=file.file_bytes + 1))
    with pytest.raises(NotClean, match="rows"):
        read(store, replace(file, row_count=2))


def test_a_file_that_is_gone_is_not_clean() -> None:
    store = MemoryStore()
    file = stored(store, "a", [1])
    store.delete(f"{ROOT}/{file.path}")

    with pytest.raises(NotClean, match="gone"):
        read(store, file)


def test_a_column_without_a_field_id_is_not_clean() -> None:
    store = MemoryStore()

    with pytest.raises(NotClean, match="field id"):
        read(store, stored(store, "a", [1], schema=pa.schema(COLUMNS)))


def test_a_vector_that_is_not_what_the_list_says_is_not_clean() -> None:
    store = MemoryStore()
    file = marked(store, stored(store, "a", [1, 2, 3]), {0, 2})
    assert file.vector is not None

    with pytest.raises(NotClean, match="marks 2 rows"):
        read(store, file.with_vector(replace(file.vector, cardinality=1)))
    with pytest.raises(NotClean, match="no vector at"):
        read(store, file.with_vector(replace(file.vector, offset=5)))
    with pytest.raises(NotClean, match="another file"):
        read(store, stored(store, "b", [7, 8, 9]).with_vector(file.vector))


def test_a_vector_that_marks_rows_behind_the_end_is_not_clean() -> None:
    store = MemoryStore()

    with pytest.raises(NotClean, match="after its end"):
        read(store, marked(store, stored(store, "a", [1, 2]), {7}))


def vector_of(positions: BitMap64) -> bytes:
    body = bytes.fromhex("d1d33964") + positions.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


@pytest.mark.parametrize(
    "positions",
    [
        BitMap64(),
        BitMap64([0, 1, 65_535, 65_536, 1 << 33]),
        BitMap64(range(0, 20_000, 2)),
        BitMap64(range(100_000)),
        BitMap64([*range(5), 1 << 17, *range(1 << 18, (1 << 18) + 9), 1 << 20, 1 << 40]),
    ],
    ids=["empty", "arrays", "bitmap", "full", "many containers"],
)
def test_every_kind_of_container_is_read(positions: BitMap64) -> None:
    plain, runs = positions.copy(), positions.copy()
    runs.run_optimize()

    assert list(vector_positions(vector_of(plain))) == list(positions)
    assert list(vector_positions(vector_of(runs))) == list(positions)


def test_a_damaged_vector_is_not_clean() -> None:
    blob = bytearray(vector_of(BitMap64([1, 2, 3])))
    blob[20] ^= 1

    with pytest.raises(NotClean, match="checksum"):
        list(vector_positions(bytes(blob)))
