"""A table fed only by Spark keeps itself in shape, without being asked to."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

import neve
from neve import spark as ns
from neve.compaction.rewrite_job import RewriteJob
from neve.errors import InvalidArgument
from neve.jobs import maintenance
from neve.jobs.run import BulkOutcome
from neve.model.data_file import DataFile
from neve.spark.maintenance import SparkExecutor
from neve.spark.source_writer import stream_writer
from tests.gates import count_of
from tests.spark.bulk_tables import DDL, NAME, SCHEMA, clean_rows, current_version, make_table

BATCHES = count_of(gate=60, full=500)
TASKS = 3
FILES_MAX = 20
COLUMNS = StructType(
    [
        StructField("id", LongType()),
        StructField("v", LongType()),
        StructField("text", StringType()),
    ]
)


def file_count(lake: Path) -> int:
    with neve.open(lake) as catalog:
        return len(catalog.load_table(NAME).current().version.files)


def feed(lake: Path, batches: int, **options: str) -> Iterator[dict[int, int]]:
    """Write micro-batches as the sink does; yield the values that the rows have by then."""
    model: dict[int, int] = {}
    given = {"path": str(lake), "table": NAME, "app_id": "feed", **options}
    for number in range(batches):
        keys = range(number % 11, 400, 2 + number % 5)
        writer = stream_writer(COLUMNS, given, False)
        writer.commit([writer.write(iter([each])) for each in pieces(keys, number)], number)
        model |= dict.fromkeys(keys, number)
        yield model


def pieces(keys: Sequence[int], v: int) -> list[pa.RecordBatch]:
    """Divide rows among tasks, by key."""
    share = -(-len(keys) // TASKS)
    return [
        pa.RecordBatch.from_pylist(
            [{"id": key, "v": v, "text": "t"} for key in keys[start : start + share]], SCHEMA
        )
        for start in range(0, len(keys), share)
    ]


def frame(spark: SparkSession, v: int, *, rows: int = 40) -> DataFrame:
    return spark.range(rows).selectExpr("id", f"{v}L v", "'t' text")


def upsert(df: DataFrame, lake: Path, *, upkeep: bool = True) -> BulkOutcome:
    return ns.upsert(df, lake, NAME, tasks=TASKS, upkeep=upkeep)


def test_micro_batches_of_a_stream_leave_few_files_and_the_same_rows(tmp_path: Path) -> None:
    make_table(tmp_path)
    expected: dict[int, int] = {}

    for number, model in enumerate(feed(tmp_path, BATCHES)):
        assert number % 7 or file_count(tmp_path) <= FILES_MAX
        expected = model

    assert {key: row[1] for key, row in clean_rows(tmp_path).items()} == expected
    assert BATCHES < current_version(tmp_path) < 2 * BATCHES  # not after every batch


def test_without_upkeep_files_stay(tmp_path: Path) -> None:
    make_table(tmp_path)

    for _ in feed(tmp_path, 6, upkeep="false"):
        pass

    assert file_count(tmp_path) == 6 * TASKS
    assert current_version(tmp_path) == 1 + 6
    with pytest.raises(InvalidArgument, match="upkeep='maybe'"):
        next(feed(tmp_path, 1, upkeep="maybe"))
    with pytest.raises(InvalidArgument, match="Did you mean 'upkeep'"):
        next(feed(tmp_path, 1, upkep="false"))


@pytest.mark.parametrize("is_large", [False, True], ids=["in the driver", "on Spark"])
def test_a_job_compacts_what_others_left(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    make_table(tmp_path)
    for _ in feed(tmp_path, 6, upkeep="false"):
        pass
    ran: list[RewriteJob] = []
    execute = SparkExecutor.execute

    def noted(
        self: SparkExecutor,
        job: RewriteJob,
        *,
        progress: Callable[[int], None],
        check_cancelled: Callable[[], None],
    ) -> list[tuple[DataFile, ...]]:
        ran.append(job)
        return execute(self, job, progress=progress, check_cancelled=check_cancelled)

    monkeypatch.setattr(SparkExecutor, "execute", noted)
    if is_large:
        monkeypatch.setattr(maintenance, "_REMOTE_BYTES", 1)

    ns.apply_batch(tmp_path, NAME, app_id="other", tasks=TASKS)(
        frame(spark, -1).selectExpr("*", "'u' op"), 0
    )

    assert bool(ran) == is_large
    assert file_count(tmp_path) <= FILES_MAX
    assert {row[1] for key, row in clean_rows(tmp_path).items() if key < 40} == {-1}


def test_a_job_succeeds_though_its_upkeep_fails(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make_table(tmp_path)
    for _ in feed(tmp_path, 6, upkeep="false"):
        pass
    monkeypatch.setattr(maintenance, "_REMOTE_BYTES", 1)

    def fail(*_given: object, **_more: object) -> None:
        raise RuntimeError("the cluster is gone")

    monkeypatch.setattr(SparkExecutor, "execute", fail)

    outcome = upsert(frame(spark, -1), tmp_path)

    assert (outcome.version, outcome.rows_written) == (8, 40)
    assert current_version(tmp_path) == 8
    assert "upkeep failed" in caplog.text
    assert "the cluster is gone" in caplog.text


def test_a_live_writer_compacts_and_no_job_does(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path)
    options = neve.TableOptions(background=False)
    with neve.open(tmp_path) as catalog, catalog.table(NAME, options=options):
        for _ in feed(tmp_path, 6):
            pass
        upsert(frame(spark, -1), tmp_path)
        assert file_count(tmp_path) == 7 * TASKS

    upsert(spark.createDataFrame([(1, 1, "t")], DDL), tmp_path)
    assert file_count(tmp_path) <= FILES_MAX


def test_upkeep_is_true_or_false(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path)

    with pytest.raises(InvalidArgument, match="upkeep is a str"):
        upsert(frame(spark, 1), tmp_path, upkeep="false")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="upkeep is None"):
        ns.upsert_batch(tmp_path, NAME, app_id="a", upkeep=None)  # type: ignore[arg-type]
