"""Marked files in a Spark plan: which are scanned together, and files that are not the table's."""

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import neve
from neve import spark as ns
from neve.spark import reading as live_rows
from neve.spark.read_plan import CleanFile, FileGroup, MarkedFile
from neve.spark.reading import scanned_together
from tests.spark.spark_rows import rows_of

QUIET: Final = neve.TableOptions(background=False)
FIELDS: Final[list["pa.Field[Any]"]] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("text", pa.string()),
]
SCHEMA: Final = pa.schema(FIELDS)


def clean(path: str, *, rows: int, size: int) -> CleanFile:
    return CleanFile(path=path, file_bytes=size, row_count=rows)


def marked(path: str, *, rows: int, size: int) -> MarkedFile:
    return clean(path, rows=rows, size=size).marked(BitMap64([0]))


def scans_of(group: FileGroup) -> tuple[list[str], list[list[str]]]:
    paths, scans = scanned_together(group)
    return paths, [[file.path for file in files] for files in scans]


def group_of(*files: CleanFile | MarkedFile) -> FileGroup:
    return FileGroup(
        stored=(),
        clean=tuple(file for file in files if isinstance(file, CleanFile)),
        marked=tuple(file for file in files if isinstance(file, MarkedFile)),
    )


def test_a_few_clean_rows_are_scanned_with_many_marked_ones() -> None:
    big = marked("m", rows=1_000, size=10)

    assert scans_of(group_of(big, clean("c", rows=100, size=11))) == ([], [["m", "c"]])
    assert scans_of(group_of(big, clean("c", rows=200, size=11))) == (["c"], [["m"]])
    assert scans_of(group_of(clean("c", rows=1, size=11))) == (["c"], [])


def test_a_clean_file_of_the_size_of_another_is_scanned_by_itself() -> None:
    group = group_of(marked("m", rows=1_000, size=10), clean("c", rows=10, size=10))

    assert scans_of(group) == (["c"], [["m"]])


def test_marked_files_of_one_size_are_a_scan_of_their_own() -> None:
    sizes = {"a": 10, "b": 11, "c": 10}
    group = group_of(*(marked(path, rows=100, size=size) for path, size in sizes.items()))

    assert scans_of(group) == ([], [["b"], ["a", "c"]])


def test_many_clean_files_are_scanned_by_themselves_however_small() -> None:
    small = [clean(str(n), rows=1, size=n) for n in range(40)]
    group = group_of(marked("m", rows=1_000_000, size=1_000), *small)

    assert scans_of(group) == ([file.path for file in small], [["m"]])


def test_dead_rows_of_many_files_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table(
            "a.b", SCHEMA, ["id"], partition_by=["truncate(100, id)"], options=QUIET
        )
        for first in range(0, 5_000, 100):
            table.upsert([{"id": first + n, "text": "é" * (first + n)} for n in range(70)])
        table.flush()
        # In the first word of a bitmap, and in the last.
        table.delete_many([n for first in range(0, 5_000, 100) for n in (first + 3, first + 69)])
        table.flush()

        found = ns.read(spark, lake.location, "a.b")

        assert len(set(table.files()["file_size_bytes"].to_pylist())) > live_rows._FEW_FILES
        assert rows_of(found) == rows_of(table.scan().to_arrow())


@pytest.mark.parametrize("few_files", [live_rows._FEW_FILES, 0], ids=["few", "many"])
def test_a_marked_file_that_was_replaced_fails_the_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_files: int
) -> None:
    monkeypatch.setattr(live_rows, "_FEW_FILES", few_files)
    with neve.open(tmp_path) as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=QUIET)
        table.upsert([{"id": n, "text": "x"} for n in range(100)])
        table.flush()
        table.delete(5)
        table.flush()
        (data_file,) = tmp_path.glob("tables/*/data/**/*.parquet")
        fewer = pq.ParquetFile(data_file).read().slice(0, 90)
        pq.write_table(fewer, data_file)

        found = ns.read(spark, lake.location, "a.b")

        with pytest.raises(PySparkException, match="not the one that the table knows"):
            found.collect()


@pytest.mark.parametrize("few_files", [live_rows._FEW_FILES, 0], ids=["few", "many"])
@pytest.mark.parametrize("rows_known", [99, 30], ids=["in the last word", "behind it"])
def test_a_row_behind_the_last_one_that_is_known_fails_the_job(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    few_files: int,
    rows_known: int,
) -> None:
    monkeypatch.setattr(live_rows, "_FEW_FILES", few_files)
    known = {"first": 100, "second": 200}
    for name, rows in known.items():
        pq.write_table(pa.table({"id": range(rows)}), tmp_path / f"{name}.parquet")
    places = {name: tmp_path / f"{name}.parquet" for name in known}
    frame = spark.read.parquet(*map(str, places.values()))

    def live() -> int:
        files = [
            marked(str(place), rows=known[name], size=place.stat().st_size)
            for name, place in places.items()
        ]
        return live_rows.live_rows(spark, frame, files).count()

    assert live() == 298
    # The words of the first file are now followed by those of the second, all of live rows.
    known["first"] = rows_known
    with pytest.raises(PySparkException, match="not the one that the table knows"):
        live()
