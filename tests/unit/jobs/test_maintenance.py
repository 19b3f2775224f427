"""Maintenance beside the live writer: announced, leased, and without its lock."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

import neve
from neve.compaction.rewrite_job import RewriteJob
from neve.engine.table_options import TableOptions
from neve.errors import Corruption, Fenced, NotFound, Unavailable
from neve.jobs.maintenance import CommittedMaintenance
from neve.jobs.run import JobBase
from neve.model.data_file import DataFile
from neve.storage.memory_store import MemoryStore
from neve.table.file_writers import RunName
from neve.testing.clean_reader import CleanReader
from neve.testing.executor_contract import local_executor
from neve.testing.model_table import Rows
from neve.testing.simulated_clock import SimulatedClock
from tests.unit.engine.other_committer import OtherCommitter
from tests.unit.engine.tables import a_catalog, a_table, level_counts, rows

OPTIONS = TableOptions(background=False)
DAY_SECONDS = 24 * 60 * 60.0


class Bench:
    """A table with its live writer, and a job beside it."""

    def __init__(self, *, partition_by: Sequence[str] = ()) -> None:
        self.clock = SimulatedClock()
        self.objects = MemoryStore()
        self.lake = a_catalog(self.objects, self.clock)
        self.table: neve.Table = a_table(self.lake, options=OPTIONS, partition_by=partition_by)
        self.job = CommittedMaintenance(self.table._open.engine.parts, OPTIONS)

    def write(self, *starts: int) -> None:
        for start in starts:
            self.table.upsert(rows(start, start + 50, v=start))
            self.table.flush()

    def clean_rows(self) -> Rows:
        stored = self.table._open.stored
        version = stored.versions.snapshot_latest().version
        return CleanReader(stored.objects, stored.paths.root, ["id"]).rows(version)

    def files(self) -> list[str]:
        prefix = f"{self.table._open.stored.paths.data}/"
        return [info.path.removeprefix(prefix) for info in self.objects.list(prefix)]


class Executing:
    """Executes here, and does something else before it gives the files back."""

    def __init__(self, bench: Bench, then: Callable[[], object]) -> None:
        self._bench = bench
        self._then: list[Callable[[], object]] = [then]

    def execute(
        self,
        job: RewriteJob,
        *,
        progress: Callable[[int], None],
        check_cancelled: Callable[[], None],
    ) -> Sequence[tuple[DataFile, ...]]:
        assert job.run is not None
        base = JobBase(self._bench.table._open.engine.parts, RunName(job.run), job.plans[0].base)
        written = local_executor(base).execute(
            job, progress=progress, check_cancelled=check_cancelled
        )
        for then in self._then:
            then()
        self._then.clear()
        return written


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.write(0, 20, 40)
    return made


def test_what_the_writer_marks_meanwhile_is_marked_in_the_outputs(bench: Bench) -> None:
    def meanwhile() -> None:
        bench.table.delete_many([1, 45])
        bench.table.upsert(rows(10, 15, v=-1))
        bench.table.flush()

    bench.job.compact(full=True, executor=Executing(bench, meanwhile))

    found = bench.clean_rows()
    assert len(found) == 88
    assert {found[key,]["v"] for key in range(10, 15)} == {-1}
    bench.table.refresh()
    assert {row["id"] for row in bench.table.scan().to_arrow().to_pylist()} == {
        key[0] for key in found
    }


def test_inputs_that_the_writer_compacts_meanwhile_are_planned_again(bench: Bench) -> None:
    expected = bench.clean_rows()

    bench.job.compact(full=True, executor=Executing(bench, lambda: bench.table.compact(full=True)))

    assert bench.clean_rows() == expected
    bench.table.refresh()
    bench.table.expire(keep_last=1)
    bench.table.collect_garbage(dry_run=False)
    assert len(bench.files()) == bench.table.files().num_rows


@pytest.mark.parametrize("is_writer", [True, False], ids=["writer", "job"])
def test_a_compaction_of_many_partitions_is_one_version(*, is_writer: bool) -> None:
    bench = Bench(partition_by=["truncate(10, id)"])
    bench.write(0, 20)
    expected, before = bench.clean_rows(), bench.table.version

    compact = bench.table.compact if is_writer else bench.job.compact
    after = compact(full=True)

    assert after == before + 1
    assert bench.clean_rows() == expected
    assert level_counts(bench.table.refresh()) == {2: 7}


@pytest.mark.parametrize("is_writer", [True, False], ids=["writer", "job"])
def test_everything_is_rewritten_though_others_made_plans_void_meanwhile(
    *, is_writer: bool
) -> None:
    bench = Bench(partition_by=["bucket(2, id)"])
    bench.write(0, 0, 0)
    expected = bench.clean_rows()
    compact = bench.table.compact if is_writer else bench.job.compact
    # Two of the files of a partition are merged by others, so that the plan for all three is void.
    others = [partial(OtherCommitter(bench.table).compact, plan_count=1, input_count=2)]

    def meanwhile(_done: int, _total: int) -> None:
        for other in others:
            other()
        others.clear()

    compact(full=True, progress=meanwhile)

    assert bench.clean_rows() == expected
    assert level_counts(bench.table.refresh()) == {2: 2}


def test_of_the_plans_of_a_job_those_are_committed_whose_inputs_nobody_changed() -> None:
    bench = Bench(partition_by=["truncate(50, id)"])
    bench.write(0, 50, 100, 0, 50, 100)
    expected = bench.clean_rows()
    other = OtherCommitter(bench.table)

    before = bench.table.version
    bench.job.compact(full=True, executor=Executing(bench, lambda: other.compact(plan_count=1)))

    assert bench.clean_rows() == expected
    assert bench.table.refresh().version == before + 2
    assert set(level_counts(bench.table)) == {2}


def test_only_the_plan_is_void_in_whose_input_rows_came_back() -> None:
    bench = Bench(partition_by=["truncate(50, id)"])
    bench.write(0, 50, 100)
    whole = bench.table.version
    bench.table.delete(7)
    bench.table.flush()

    bench.job.compact(full=True, executor=Executing(bench, lambda: bench.table.rollback(whole)))

    summaries = bench.table.refresh().history()["summary"].to_pylist()[-2:]
    assert [dict(each or {}).get("deleted-data-files") for each in summaries] == ["2", "1"]
    assert len(bench.clean_rows()) == 150


def test_files_of_void_plans_that_could_not_be_deleted_are_looked_for() -> None:
    bench = Bench(partition_by=["truncate(50, id)"])
    bench.write(0, 50, 100, 0, 50, 100)
    other = OtherCommitter(bench.table)
    delete = bench.objects.delete

    def fail_once(path: str) -> None:
        bench.objects.delete = delete  # type: ignore[method-assign]
        raise Unavailable("the disk is away", path=path)

    def meanwhile() -> None:
        other.compact(plan_count=1)
        bench.objects.delete = fail_once  # type: ignore[method-assign]

    bench.job.compact(full=True, executor=Executing(bench, meanwhile))
    bench.table.refresh()
    bench.job.expire(keep_last=1)
    bench.job.collect_garbage(dry_run=False)

    assert len(bench.files()) == bench.table.files().num_rows


def test_the_writer_keeps_its_turn_and_its_unflushed_rows(bench: Bench) -> None:
    bench.table.put({"id": 1_000, "v": 7, "text": "t"})

    bench.job.compact(full=True)
    bench.table.refresh()

    assert bench.table.get(1_000) == {"id": 1_000, "v": 7, "text": "t"}
    assert bench.table.flush() == bench.table.version
    assert level_counts(bench.table) == {0: 1, 2: 1}


def test_files_of_a_job_at_work_are_not_swept_by_the_writer(bench: Bench) -> None:
    expected = bench.clean_rows()

    bench.job.compact(
        full=True,
        executor=Executing(bench, lambda: bench.table.collect_garbage(dry_run=False)),
    )

    assert bench.clean_rows() == expected


def test_a_job_that_took_longer_than_a_day_is_fenced_and_leaves_nothing(bench: Bench) -> None:
    before = bench.clean_rows()

    def sleep() -> None:
        bench.clock.advance(2 * DAY_SECONDS)
        bench.table.collect_garbage(dry_run=False)

    with pytest.raises(Fenced, match="intent"):
        bench.job.compact(full=True, executor=Executing(bench, sleep))

    assert bench.clean_rows() == before
    assert len(bench.files()) == 3


def test_what_a_job_that_died_has_written_is_found_when_its_time_is_over(bench: Bench) -> None:
    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    with pytest.MonkeyPatch.context() as patch:
        # Whoever is dead withdraws nothing.
        patch.setattr(
            bench.table._open.engine.parts.writer_state, "release_intent", lambda _job_id: None
        )
        with pytest.raises(Died):
            bench.job.compact(full=True, executor=Executing(bench, die))
    left = len(bench.files())
    bench.table.collect_garbage(dry_run=False)
    kept = len(bench.files())
    bench.clock.advance(2 * DAY_SECONDS)

    bench.table.collect_garbage(dry_run=False)

    assert left == kept == 4
    assert len(bench.files()) == 3


def test_a_file_that_nobody_announced_is_deleted_only_without_a_writer(bench: Bench) -> None:
    orphan = bench.table._open.stored.paths.data_file("0" * 32)
    bench.objects.put(orphan, b"a flush that is not yet committed")

    beside = bench.job.collect_garbage(dry_run=False)
    bench.table.close()
    alone = bench.job.collect_garbage(dry_run=False)

    assert beside.paths == ()
    assert [path for path in alone.paths if path.endswith("0.parquet")] == [
        f"data/{'0' * 32}.parquet"
    ]


def test_indexes_are_made_again_here_too(bench: Bench) -> None:
    for start in (1_000, 2_000, 3_000):
        bench.table.upsert(rows(start, start + 100))
        bench.table.flush()
    index = f"{bench.table._open.stored.paths.index}/"
    before = {info.path: bench.objects.get(info.path).payload for info in bench.objects.list(index)}
    for path in before:
        bench.objects.delete(path)

    rebuilt = bench.job.rebuild_indexes()

    assert len(rebuilt) == 3
    assert {path: bench.objects.get(path).payload for path in before} == before
    assert bench.job.rebuild_indexes() == ()


def test_damage_is_found_here_too(bench: Bench) -> None:
    assert bench.job.verify(progress=None).is_sound
    path = f"{bench.table._open.stored.paths.root}/{bench.table.files()['file_path'][0].as_py()}"
    bench.objects.put(path, bench.objects.get(path).payload[:-1])

    with pytest.raises(Corruption):
        bench.job.verify(progress=None)


def test_a_dropped_table_is_not_found(bench: Bench) -> None:
    bench.table.close()
    bench.lake.drop_table("a.b")

    with pytest.raises(NotFound):
        bench.job.compact()


def test_others_that_are_always_first_are_told_of(bench: Bench) -> None:
    class AlwaysLate(Executing):
        def execute(
            self,
            job: RewriteJob,
            *,
            progress: Callable[[int], None],
            check_cancelled: Callable[[], None],
        ) -> Sequence[tuple[DataFile, ...]]:
            self._then += [lambda: bench.table.compact(full=True), lambda: bench.write(0, 20, 40)]
            bench.clock.advance(60.0)
            return super().execute(job, progress=progress, check_cancelled=check_cancelled)

    job = CommittedMaintenance(bench.table._open.engine.parts, replace(OPTIONS, level0_files=2))

    with pytest.raises(Unavailable, match="kept changing the files"):
        job.compact(executor=AlwaysLate(bench, lambda: None))
