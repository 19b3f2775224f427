"""How a micro-batch is committed: Spark makes one writer for the tasks, and another to commit."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import LongType, StringType, StructField, StructType

import neve
from neve.spark.source_writer import stream_writer
from tests.spark.bulk_tables import NAME, SCHEMA, clean_rows, current_version, make_table

COLUMNS = StructType(
    [
        StructField("id", LongType()),
        StructField("v", LongType()),
        StructField("text", StringType()),
    ]
)


def made_writer(lake: Path) -> DataSourceStreamArrowWriter:
    return stream_writer(COLUMNS, {"path": str(lake), "table": NAME, "app_id": "one"}, False)


def task(writer: DataSourceStreamArrowWriter, v: int, *numbers: int) -> WriterCommitMessage:
    rows = [{"id": number, "v": v, "text": "stream"} for number in numbers]
    return writer.write(iter([pa.RecordBatch.from_pylist(rows, SCHEMA)]))


def left_over(lake: Path) -> tuple[set[str], list[str]]:
    """Return the data files that no Version names, and the intents and leases that are held."""
    with neve.open(lake) as catalog:
        stored = catalog.load_table(NAME).stored
        version = stored.versions.snapshot_latest().version
        session = stored.versions.store.read()
        held = [key for key, _ in session.scan("intent/")]
        named = {path.rsplit("/", 1)[-1] for path in version.files}
    held += [path.name for path in lake.glob("manifest/version/*/leases/[!.]*")]
    return {path.name for path in lake.glob("tables/*/data/*/*.parquet")} - named, held


def test_rows_that_came_between_the_tasks_and_the_commit_are_superseded(tmp_path: Path) -> None:
    make_table(tmp_path)
    written = task(made_writer(tmp_path), 1, 7, 8)
    with neve.open(tmp_path) as catalog, catalog.table(NAME) as table:
        table.upsert([{"id": 7, "v": 0, "text": "live"}, {"id": 9, "v": 0, "text": "live"}])
        table.flush()

    made_writer(tmp_path).commit([written], 0)

    assert clean_rows(tmp_path) == {
        7: (7, 1, "stream"),
        8: (8, 1, "stream"),
        9: (9, 0, "live"),
    }
    assert left_over(tmp_path) == (set(), [])


def test_a_batch_without_a_task_is_remembered_and_holds_nothing(tmp_path: Path) -> None:
    make_table(tmp_path)
    made_writer(tmp_path).commit([], 3)
    assert left_over(tmp_path) == (set(), [])
    with pytest.raises(neve.InvalidArgument, match="batch 2 of 'one' is older than batch 3"):
        made_writer(tmp_path).commit([], 2)
    assert left_over(tmp_path) == (set(), [])


def test_a_batch_that_is_repeated_refused_or_aborted_leaves_nothing(tmp_path: Path) -> None:
    make_table(tmp_path)
    made_writer(tmp_path).commit([task(made_writer(tmp_path), 1, 7)], 5)

    made_writer(tmp_path).commit([task(made_writer(tmp_path), 2, 7)], 5)
    assert left_over(tmp_path) == (set(), [])
    refused = task(made_writer(tmp_path), 3, 7)
    with pytest.raises(neve.InvalidArgument, match="batch 4 of 'one' is older than batch 5"):
        made_writer(tmp_path).commit([refused], 4)
    assert left_over(tmp_path) == (set(), [])
    made_writer(tmp_path).abort([None, task(made_writer(tmp_path), 4, 7)], 6)
    assert left_over(tmp_path) == (set(), [])

    assert clean_rows(tmp_path) == {7: (7, 1, "stream")}
    assert current_version(tmp_path) == 2


def test_an_abort_after_the_commit_undoes_nothing(tmp_path: Path) -> None:
    make_table(tmp_path)
    written = task(made_writer(tmp_path), 1, 7)
    made_writer(tmp_path).commit([written], 0)

    made_writer(tmp_path).abort([written], 0)

    assert clean_rows(tmp_path) == {7: (7, 1, "stream")}
    assert left_over(tmp_path) == (set(), [])


def test_tasks_that_worked_on_several_versions_are_refused(tmp_path: Path) -> None:
    make_table(tmp_path)
    apart: list[WriterCommitMessage | None] = [
        task(made_writer(tmp_path), 1, 7),
        task(made_writer(tmp_path), 1, 8),
    ]

    with pytest.raises(neve.Unavailable, match="several Versions"):
        made_writer(tmp_path).commit(apart, 0)

    assert current_version(tmp_path) == 1
    assert left_over(tmp_path) == (set(), [])
