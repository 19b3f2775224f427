"""A table of 10,000 data files: others read it, and one more commit costs what one commit costs.

Flushing so many files would take minutes. They are real Parquet files all the same, written without
the engine; their facts are committed, and from there on everything is as always.
"""

import io
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable
from pyroaring import BitMap64

import neve
from neve.catalog.table import Table
from neve.keys.encoding import KeyEncoder
from neve.model.arrow_types import field_metadata
from neve.model.data_file import ColumnStatistics, DataFile, VectorRef
from neve.model.version import Operation, Version, VersionEdit
from neve.sstable.puffin import write_puffin
from neve.storage.object_store import plain_location
from tests.gates import TORTURE
from tests.interop.iceberg_readers import open_duckdb
from tests.interop.iceberg_walk import read_metadata, walk
from tests.unit.iceberg.published_lake import BY_HAND

FILES = 10_000
ROWS = 3
"""Of each file."""
MARKED_EVERY = 20
KEY = pa.field("id", pa.int64(), nullable=False, metadata=field_metadata(field_id=1, doc=None))
ENCODER = KeyEncoder([pa.int64()], ["id"])


class ManyFiles:
    """The table shop.orders, committed file by file without the engine."""

    def __init__(self, folder: Path, table: Table) -> None:
        self.folder = folder / table._open.stored.paths.root
        self.table = table
        self.version: Version = table._open.stored.versions.snapshot_latest().version
        self._location = plain_location(
            table._open.stored.objects.location, table._open.stored.paths.root
        )
        for part in ("data", "deletes"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)

    def add(self, first: int, count: int, *, marked: list[str] | None = None) -> None:
        """Commit files of rows that follow one another, and mark the first row of old ones."""
        files = [self._file(number) for number in range(first, first + count)]
        facts = replace(
            self.version.facts,
            operation=Operation.OVERWRITE if marked else Operation.APPEND,
            summary={},
            wal_segments=(),
        )
        edit = VersionEdit(
            base=self.version.number,
            facts=facts,
            added=tuple(files),
            vectors=self._mark(marked or []),
        )
        applied = self.table._open.stored.versions.apply_version_edits([edit])
        self.version = applied.snapshot.version

    def _file(self, number: int) -> DataFile:
        keys = list(range(number * ROWS, (number + 1) * ROWS))
        stream = io.BytesIO()
        pq.write_table(pa.table([pa.array(keys)], schema=pa.schema([KEY])), stream)
        path = f"data/{number:032x}.parquet"
        (self.folder / path).write_bytes(stream.getvalue())
        lowest, highest = (key.to_bytes(8, "little") for key in (keys[0], keys[-1]))
        return DataFile(
            path=path,
            file_bytes=len(stream.getvalue()),
            row_count=ROWS,
            level=0,
            key_min=ENCODER.encode((keys[0],)),
            key_max=ENCODER.encode((keys[-1],)),
            statistics=(
                ColumnStatistics(
                    field_id=1, compressed_bytes=40, value_count=ROWS, null_count=0,
                    lower=lowest, upper=highest,
                ),
            ),
        )  # fmt: skip

    def _mark(self, paths: list[str]) -> dict[str, VectorRef]:
        if not paths:
            return {}
        located = {path: f"{self._location}/{path}" for path in paths}
        vectors = {location: BitMap64([0]) for location in located.values()}
        payload, places = write_puffin(vectors, created_by="a test")
        path = f"deletes/{self.version.number:032x}.puffin"
        (self.folder / path).write_bytes(payload)
        refs = {}
        for each, location in located.items():
            place = places[location]
            refs[each] = VectorRef(
                path=path, offset=place.offset, length=place.length, cardinality=1
            )
        return refs

    def published(self) -> dict[str, int]:
        """Return the size of every file that publishing wrote, by its name."""
        paths = (self.folder / "metadata").glob("[!.]*")
        return {path.name: path.stat().st_size for path in paths}


def sorted_ids(rows: pa.Table) -> list[int]:
    return sorted(int(key) for key in rows.column("id").to_numpy())


# Format 2 differs in its delete files, of which other tests have many: torture tries both.
@pytest.mark.parametrize("format_version", [3, 2] if TORTURE else [3], ids="v{}".format)
def test_ten_thousand_files_are_published_and_read(tmp_path: Path, format_version: int) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table(
            "shop.orders",
            pa.schema([pa.field("id", pa.int64(), nullable=False)]),
            ["id"],
            properties={"format-version": str(format_version)},
            options=replace(BY_HAND, iceberg_publish="demand"),
        )
        many = ManyFiles(tmp_path, table)
        many.add(0, FILES)
        marked = [path for at, path in enumerate(many.version.files) if at % MARKED_EVERY == 0]
        many.add(FILES, 1, marked=marked)
        location = table.iceberg_metadata()
        gone = {number * ROWS for number in range(0, FILES, MARKED_EVERY)}
        expected = sorted(set(range((FILES + 1) * ROWS)) - gone)

        metadata = read_metadata(location)
        walked = walk(metadata, metadata["current-snapshot-id"])
        assert len(walked.data) == FILES + 1
        assert len(walked.deletes) == len(gone)
        assert sorted_ids(walked.rows({1: "id"})) == expected

        static = StaticTable.from_metadata(location)
        tasks = list(static.scan().plan_files())
        assert len(tasks) == FILES + 1
        assert sum(len(task.delete_files) for task in tasks) == len(gone)
        few = static.scan(row_filter=f"id >= {(FILES - 40) * ROWS}")
        assert len(list(few.plan_files())) == 41
        last = [key for key in expected if key >= (FILES - 40) * ROWS]
        assert sorted_ids(few.to_arrow()) == last

        with open_duckdb(tmp_path / "extensions") as engine:
            read = engine.read(location, None)
            assert [row["id"] for row in read] == expected
        table.close()


def test_a_commit_to_ten_thousand_files_writes_a_small_part_of_their_metadata(
    tmp_path: Path,
) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table(
            "shop.orders",
            pa.schema([pa.field("id", pa.int64(), nullable=False)]),
            ["id"],
            options=replace(BY_HAND, iceberg_publish="demand"),
        )
        many = ManyFiles(tmp_path, table)
        many.add(0, FILES)
        table.iceberg_metadata()
        before = many.published()

        many.add(FILES, 1, marked=[next(iter(many.version.files))])
        table.iceberg_metadata()

        made = {name: size for name, size in many.published().items() if name not in before}
        # Two manifests, for what came and for what was marked; a list; a document.
        assert len(made) == 4
        assert sum(made.values()) < sum(before.values()) / 4
        table.close()
