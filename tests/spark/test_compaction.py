"""Compaction on Spark: the same table as the embedded engine makes, whoever writes meanwhile."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from subprocess import run as run_process

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import neve
from neve import spark as ns
from neve.compaction.rewrite_job import PlanExecutor, RewriteJob
from neve.errors import InvalidArgument, NotFound, Unavailable
from neve.jobs.maintenance import CommittedMaintenance
from neve.jobs.run import JobBase
from neve.model.data_file import DataFile
from neve.observability.events import ignore
from neve.observability.metrics import NoRecorder
from neve.spark.job_site import TableSite
from neve.spark.maintenance import SparkExecutor
from neve.testing.clean_reader import CleanReader
from neve.testing.executor_contract import PlanExecutorContract
from neve.testing.model_table import Rows
from tests.interop.iceberg_walk import Lineage, read_metadata, walk

NAME = "a.b"
COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "v": pa.int64(), "text": pa.string()}
OPTIONS = neve.TableOptions(
    background=False,
    file_bytes=6_000,
    level0_files=2,
    level1_bytes=30_000,
    level_ratio=2,
    compaction_task_rows=400,
)


class TestSparkExecutor(PlanExecutorContract):
    @pytest.fixture(autouse=True)
    def _session(self, spark: SparkSession) -> None:
        self.session = spark

    def executor(self, base: JobBase) -> PlanExecutor:
        assert base.run.digits
        found: PlanExecutor = ns.executor(self.session)
        return found


def a_table(lake: neve.Catalog, *, partition_by: tuple[str, ...] = ()) -> neve.Table:
    return lake.create_table(
        NAME, pa.schema(COLUMNS), ["id"], partition_by=partition_by, options=OPTIONS
    )


def write_some(table: neve.Table, rng: Random, *, keys: int = 1_500) -> None:
    """Upsert, delete and flush, so that files overlap and have marked rows."""
    for _ in range(rng.randint(2, 4)):
        ids = rng.sample(range(keys), rng.randint(1, 500))
        values = [rng.randrange(1_000) for _ in ids]
        texts = ["x" * rng.randrange(30) for _ in ids]
        table.upsert(pa.table({"id": ids, "v": values, "text": texts}))
        table.delete_many(rng.sample(range(keys), rng.randint(1, 40)))
        table.flush()


def clean_rows(table: neve.Table) -> Rows:
    """Read what is committed as a stranger does; raises NotClean for a key with two rows."""
    stored = table._open.stored
    version = stored.versions.snapshot_latest().version
    return CleanReader(stored.objects, stored.paths.root, ["id"]).rows(version, table.schema)


def lineage_of(table: neve.Table) -> Lineage:
    """Return the lineage of all rows as published metadata tells it."""
    metadata = read_metadata(table.iceberg_metadata())
    return walk(metadata, metadata["current-snapshot-id"]).lineage()


def row_ids(table: neve.Table) -> dict[object, object]:
    """Return the row id of each key, which does not depend on who compacts."""
    return {key: row_id for key, (row_id, _) in lineage_of(table).items()}


def shape(table: neve.Table) -> list[tuple[object, ...]]:
    """Return what is known of the files, but for their names and sizes.

    Sizes differ by a few bytes: rows carry the number of the Version they were last written in, and
    the two executors may compact in another number of Versions.
    """
    table.refresh()
    columns = ["level", "record_count", "deleted_count", "key_min", "partition"]
    rows = table.files().select(columns).to_pylist()
    return sorted(tuple(str(value) for value in row.values()) for row in rows)


class Interfering(SparkExecutor):
    """Lets something happen to the table, once, between the files of a job and their commit."""

    def __init__(self, session: SparkSession, happens: Callable[[], object]) -> None:
        super().__init__(session)
        self._left = [happens]

    def execute(
        self,
        job: RewriteJob,
        *,
        progress: Callable[[int], None],
        check_cancelled: Callable[[], None],
    ) -> list[tuple[DataFile, ...]]:
        written = super().execute(job, progress=progress, check_cancelled=check_cancelled)
        while self._left:
            self._left.pop()()
        return written


def compact_beside(lake: Path, executor: PlanExecutor) -> int:
    """Rewrite everything through the manifest, as another process does beside the writer."""
    with neve.open(lake) as other:
        table = other.load_table(NAME)
        parts = table.stored.parts(table.properties, recorder=NoRecorder(), listener=ignore)
        return CommittedMaintenance(parts, OPTIONS).compact(full=True, executor=executor)


@pytest.mark.parametrize("partition_by", [(), ("bucket(3, id)",)], ids=["whole", "partitioned"])
def test_spark_and_the_embedded_engine_make_the_same_table_of_a_random_history(
    spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    with neve.open(tmp_path / "here") as here, neve.open(tmp_path / "there") as there:
        tables = a_table(here, partition_by=partition_by), a_table(there, partition_by=partition_by)
        for table in tables:
            write_some(table, Random(11))
        expected = clean_rows(tables[0])

        for full in (False, True):
            tables[0].compact(full=full)
            number = ns.compact(spark, tmp_path / "there", NAME, full=full, options=OPTIONS)
            tables[1].refresh()

            assert clean_rows(tables[0]) == clean_rows(tables[1]) == expected
            assert shape(tables[0]) == shape(tables[1])
            assert row_ids(tables[0]) == row_ids(tables[1])
            assert number == tables[1].version
            for table in tables:
                write_some(table, Random(12))
            expected = clean_rows(tables[0])

        assert tables[1].verify().is_sound


def test_full_compaction_on_spark_moves_to_the_current_spec_and_keeps_lineage(
    spark: SparkSession, tmp_path: Path
) -> None:
    with neve.open(tmp_path / "lake") as lake:
        table = a_table(lake, partition_by=("bucket(3, id)",))
        write_some(table, Random(21))
        for field in ("truncate(400, id)", "bucket(2, id)"):
            with table.evolve() as change:
                change.set_partition_by([field])
            write_some(table, Random(22))
        expected, before = clean_rows(table), lineage_of(table)
        since = table.refresh().version

        ns.compact(spark, tmp_path / "lake", NAME, full=True, options=OPTIONS)

        table.refresh()
        files = table._open.current().version.files.values()
        assert {file.spec_id for file in files} == {table.spec.spec_id}
        assert clean_rows(table) == expected
        assert lineage_of(table) == before
        assert table.changes(since=since).read_all().num_rows == 0
        frame = ns.read(spark, tmp_path / "lake", NAME)
        assert frame.columns == list(COLUMNS)
        assert frame.count() == len(expected)


def test_an_open_table_is_compacted_by_the_executor_it_is_given(
    spark: SparkSession, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    with neve.open(tmp_path / "lake") as lake:
        table = a_table(lake)
        write_some(table, Random(3))
        table.put({"id": 5_000, "v": 1, "text": "not flushed"})
        before = table.scan().to_arrow().sort_by("id")

        table.compact(ns.executor(spark), full=True, progress=lambda *done: told.append(done))

        assert table.scan().to_arrow().sort_by("id").equals(before)
        assert clean_rows(table)
        assert told[-1][0] == before.num_rows


def test_what_a_live_writer_flushes_onto_the_inputs_meanwhile_is_not_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = Random(5)
    with neve.open(tmp_path / "lake") as lake:
        table = a_table(lake)
        write_some(table, rng)

        compact_beside(tmp_path / "lake", Interfering(spark, lambda: write_some(table, rng)))

        table.refresh()
        expected = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
        assert {key[0]: row for key, row in clean_rows(table).items()} == expected
        assert table.verify().is_sound
        operations = table.history()["operation"].to_pylist()
        assert operations.index("REPLACE") > operations.index("OVERWRITE")


def test_inputs_that_were_compacted_meanwhile_are_planned_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    with neve.open(tmp_path / "lake") as lake:
        table = a_table(lake)
        write_some(table, Random(8))
        expected = clean_rows(table)
        executor = Interfering(spark, lambda: table.compact(full=True))

        compact_beside(tmp_path / "lake", executor)

        table.refresh()
        assert clean_rows(table) == expected
        # The files of the void plan are gone: nothing is left that no Version has.
        assert table.expire(keep_last=1).expired_versions
        table.collect_garbage(dry_run=False)
        on_disk = [
            info.path
            for info in table._open.stored.objects.list(f"{table._open.stored.paths.data}/")
        ]
        assert len(on_disk) == table.files().num_rows


def test_rows_that_a_live_writer_has_not_flushed_stay_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    with neve.open(tmp_path / "lake") as lake:
        table = a_table(lake)
        write_some(table, Random(4))
        table.put({"id": 1, "v": -1, "text": "newest"})

        ns.compact(spark, tmp_path / "lake", NAME, full=True, options=OPTIONS)

        assert table.get(1) == {"id": 1, "v": -1, "text": "newest"}
        table.flush()
        assert clean_rows(table)[1,] == {"id": 1, "v": -1, "text": "newest"}


def test_the_compacted_table_is_published(spark: SparkSession, tmp_path: Path) -> None:
    with neve.open(tmp_path / "lake") as lake:
        table = a_table(lake)
        write_some(table, Random(4))
        before = table.iceberg_metadata()
        table.close()

    ns.compact(spark, tmp_path / "lake", NAME, full=True, options=OPTIONS)

    with neve.open(tmp_path / "lake") as lake:
        reader = lake.table(NAME, read_only=True)
        assert reader.iceberg_metadata() != before


def test_a_table_that_does_not_exist_is_not_found(spark: SparkSession, tmp_path: Path) -> None:
    neve.open(tmp_path / "lake").close()

    with pytest.raises(NotFound):
        ns.compact(spark, tmp_path / "lake", "a.missing")


def test_a_warehouse_that_only_this_process_has_is_refused(spark: SparkSession) -> None:
    with neve.open("memory://compaction-on-spark") as lake:
        table = a_table(lake)
        write_some(table, Random(4))

        with pytest.raises(InvalidArgument, match="in memory"):
            table.compact(ns.executor(spark), full=True)


def test_a_worker_that_does_not_see_the_warehouse_is_told_of_and_nothing_changes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site_of = TableSite.of
    monkeypatch.setattr(
        TableSite,
        "of",
        lambda table, options: replace(site_of(table, options), location="file:///not/there"),
    )
    with neve.open(tmp_path / "lake") as lake:
        table = a_table(lake)
        write_some(table, Random(4))
        before = table.version

        with pytest.raises(Unavailable, match="cannot read the lake"):
            ns.compact(spark, tmp_path / "lake", NAME, full=True, options=OPTIONS)

        assert table.refresh().version == before


MORTAL_JOB = """
import os
import sys
from pathlib import Path

import psutil

import neve
from neve import spark as ns
from neve.spark import write_plan
from neve.spark import maintenance
from neve.spark.job_site import JobSite
from tests.spark.test_compaction import NAME, OPTIONS, UPSERTED

lake, deaths = Path(sys.argv[1]), Path(sys.argv[2])
rewrite, write_rows = maintenance._rewrite, write_plan.WriteRows


def die(job):
    # Two tries die with their files written: one with its Python worker alone, one with the whole
    # executor.
    for name in ("worker", "executor"):
        try:
            (deaths / f"{name} of {job}").touch(exist_ok=False)
        except FileExistsError:
            continue
        if name == "worker":
            os._exit(1)
        for parent in psutil.Process().parents():
            if "java" in parent.name():
                parent.kill()
                break


def mortal(site, table, run, task):
    answer = rewrite(site, table, run, task)
    die("compact")
    return answer


class SilentSite(JobSite):
    def open(self):
        try:
            (deaths / "storage of upsert").touch(exist_ok=False)
        except FileExistsError:
            return JobSite.open(self)
        raise neve.Unavailable("storage did not answer")


class MortalRows:
    def __init__(self, *, site, **given):
        silent = SilentSite(table=site.table, run=site.run, base=site.base)
        self.task = write_rows(site=silent, **given)

    def __call__(self, batches):
        told = list(self.task(batches))
        die("upsert")
        yield from told


maintenance._rewrite = mortal
write_plan.WriteRows = MortalRows
session = ns.session(
    master="local-cluster[2,1,1024]",
    config={
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    },
)
try:
    ns.upsert(session.createDataFrame(UPSERTED, "id long, v long, text string"), lake, NAME)
    ns.compact(session, lake, NAME, full=True, options=OPTIONS)
finally:
    session.stop()
"""


UPSERTED = [(number, -number, "upserted") for number in range(0, 900, 7)]


def rows_by_id(table: neve.Table) -> dict[object, Mapping[str, object]]:
    return {row["id"]: row for row in clean_rows(table).values()}


def test_tasks_that_die_after_writing_their_files_or_whose_storage_is_silent_are_tried_again(
    tmp_path: Path,
) -> None:
    lake, deaths, script = tmp_path / "lake", tmp_path / "deaths", tmp_path / "job.py"
    deaths.mkdir()
    script.write_text(MORTAL_JOB)
    with neve.open(lake) as catalog:
        write_some(a_table(catalog, partition_by=("bucket(3, id)",)), Random(6))
        expected = rows_by_id(catalog.table(NAME, options=OPTIONS))
    expected |= {number: {"id": number, "v": v, "text": text} for number, v, text in UPSERTED}

    done = run_process(
        [sys.executable, str(script), str(lake), str(deaths)],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr[-4_000:]
    assert sorted(path.name for path in deaths.iterdir()) == [
        "executor of compact",
        "executor of upsert",
        "storage of upsert",
        "worker of compact",
        "worker of upsert",
    ]
    with neve.open(lake) as catalog:
        table = catalog.table(NAME, options=OPTIONS)
        assert rows_by_id(table) == expected
        assert table.verify().is_sound
        assert table.history()["operation"].to_pylist()[-1] == "REPLACE"
        # What the dead ones wrote is found, and is not of the table.
        assert table.collect_garbage(dry_run=False).file_count >= 2
        assert rows_by_id(table) == expected
