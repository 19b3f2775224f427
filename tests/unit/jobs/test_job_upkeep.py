"""A table fed only by jobs keeps itself in shape: upkeep after their commits."""

from collections.abc import Callable, Iterator, Sequence

import pytest

import neve
from neve.compaction.rewrite_job import RewriteJob
from neve.errors import InvalidArgument, Unavailable
from neve.jobs import maintenance
from neve.jobs.commit import BulkCommitter
from neve.jobs.run import JobBase, JobIdentity
from neve.model.data_file import DataFile
from neve.storage.memory_store import MemoryStore
from neve.table.file_writers import RunName
from neve.table.table_context import TableParts
from neve.testing.executor_contract import local_executor
from neve.testing.simulated_clock import SimulatedClock
from tests.unit.engine.tables import a_catalog, a_table
from tests.unit.jobs.bulk_jobs import Jobs

FILES_MAX = 24
DAY_SECONDS = 24 * 60 * 60.0


class Fed:
    """A table without a live writer, and the jobs that feed it."""

    def __init__(self, *, partition_by: Sequence[str] = ()) -> None:
        self.clock = SimulatedClock()
        self.objects = MemoryStore()
        self.lake = a_catalog(self.objects, self.clock)
        a_table(self.lake, partition_by=partition_by).close()
        self.model: dict[object, object] = {}

    @property
    def parts(self) -> TableParts:
        table = self.lake.load_table("a.b")
        return table.stored.parts(table.properties, is_published=True)

    def feed(self, batches: int, *, upkeep: bool = True) -> list[int]:
        """Write overlapping batches, each with its own job; return the files after each."""
        counts = []
        for number in range(batches):
            keys = range(number % 7, 200, 3 + number % 5)
            with self.lake.bulk("a.b", upkeep=upkeep) as job:
                job.upsert([{"id": key, "v": number, "text": "ab"[key % 2]} for key in keys])
            self.model |= dict.fromkeys(keys, number)
            counts.append(len(self.lake.load_table("a.b").current().version.files))
        return counts

    def rows(self) -> dict[object, object]:
        with self.lake.table("a.b", read_only=True) as table:
            return {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}

    def operations(self) -> list[str]:
        with self.lake.table("a.b", read_only=True) as table:
            return [str(each).lower() for each in table.history()["operation"].to_pylist()]


class Elsewhere:
    """Executes plans here, and counts them."""

    def __init__(self, parts: TableParts, *, fails: bool = False) -> None:
        self._parts = parts
        self._fails = fails
        self.jobs = 0

    def execute(
        self,
        job: RewriteJob,
        *,
        progress: Callable[[int], None],
        check_cancelled: Callable[[], None],
    ) -> Sequence[tuple[DataFile, ...]]:
        self.jobs += 1
        if self._fails:
            raise OSError("the cluster is gone")
        assert job.run is not None
        base = JobBase(self._parts, RunName(job.run), job.plans[0].base)
        return local_executor(base).execute(job, progress=progress, check_cancelled=check_cancelled)


@pytest.fixture
def fed() -> Iterator[Fed]:
    made = Fed()
    yield made
    made.lake.close()


def test_sixty_jobs_leave_few_files_and_the_same_rows(fed: Fed) -> None:
    counts = fed.feed(60)

    assert max(counts) <= FILES_MAX
    assert fed.rows() == fed.model
    assert 1 < fed.operations().count("replace") < 15  # not after every commit


def test_partitions_are_kept_in_shape_together() -> None:
    fed = Fed(partition_by=["text"])

    assert max(fed.feed(60)) <= FILES_MAX
    assert fed.rows() == fed.model
    fed.lake.close()


def test_without_upkeep_every_file_stays(fed: Fed) -> None:
    assert fed.feed(20, upkeep=False)[-1] >= 20
    assert "replace" not in fed.operations()
    with pytest.raises(InvalidArgument, match="upkeep='no'"):
        fed.lake.bulk("a.b", upkeep="no")  # type: ignore[arg-type]


def test_a_few_jobs_make_no_version_but_their_own(fed: Fed) -> None:
    fed.feed(5)

    assert fed.lake.load_table("a.b").version == 1 + 5


def test_a_live_writer_is_left_to_do_it(fed: Fed) -> None:
    with fed.lake.table("a.b", options=neve.TableOptions(background=False)) as table:
        assert fed.feed(20)[-1] >= 20
        table.compact()

    assert fed.feed(1)[-1] <= FILES_MAX
    assert fed.rows() == fed.model


def test_a_job_is_committed_though_its_upkeep_fails(
    fed: Fed, caplog: pytest.LogCaptureFixture
) -> None:
    fed.feed(20, upkeep=False)
    (*_, newest) = fed.lake.load_table("a.b").current().version.files
    fed.objects.delete(f"{fed.parts.paths.root}/{newest}")

    with fed.lake.bulk("a.b") as job:
        job.upsert([{"id": 1_000, "v": 9, "text": "t"}])

    assert job.outcome is not None
    assert job.outcome.version == fed.lake.load_table("a.b").version
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].startswith("upkeep failed table=")


@pytest.mark.parametrize("fails", [False, True])
def test_many_bytes_are_compacted_elsewhere(
    fed: Fed, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    fed.feed(20, upkeep=False)
    monkeypatch.setattr(maintenance, "_REMOTE_BYTES", 1)
    jobs = Jobs(fed.parts)
    committer = BulkCommitter(jobs.parts, upkeep=True)
    executor = Elsewhere(jobs.parts, fails=fails)
    run = committer.begin(JobIdentity())
    work = jobs.written(run, [{"id": 1, "v": -1, "text": "t"}])

    outcome = committer.commit(run, work, executor=executor)

    fed.model[1] = -1
    assert executor.jobs >= 1
    assert (outcome.version, outcome.rows_written) == (22, 1)
    assert (len(fed.lake.load_table("a.b").current().version.files) <= FILES_MAX - 8) != fails
    assert fed.rows() == fed.model


def test_what_retention_allows_is_deleted(fed: Fed) -> None:
    fed.feed(40)
    fed.clock.advance(2 * DAY_SECONDS)
    before = len(list(fed.objects.list(f"{fed.parts.paths.data}/")))

    fed.feed(1)

    assert len(fed.operations()) < 10
    assert len(list(fed.objects.list(f"{fed.parts.paths.data}/"))) < before / 2
    assert fed.rows() == fed.model


def test_a_writer_opens_while_a_job_looks_for_one(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = fed.objects.lock(fed.parts.paths.lock)
    with pytest.raises(neve.Fenced):
        fed.lake.table("a.b")

    def sleep(_seconds: float) -> None:
        held.release()

    monkeypatch.setattr(fed.clock, "sleep", sleep)
    fed.lake.table("a.b").close()


def test_upkeep_stops_where_others_compact_the_same_files(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed.feed(20, upkeep=False)
    tries = []

    def lost(*_given: object) -> bool:
        tries.append(1)
        return False

    monkeypatch.setattr(maintenance.CommittedMaintenance, "_run_plans", lost)

    fed.feed(1)

    assert len(tries) == 1


def test_a_commit_that_cannot_be_published_has_no_upkeep(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed.feed(20, upkeep=False)

    def fail(*_given: object) -> bool:
        raise Unavailable("no network")

    monkeypatch.setattr("neve.iceberg.publisher.IcebergPublisher.publish_once", fail)
    with pytest.raises(neve.NotPublished):
        fed.feed(1)

    assert "replace" not in fed.operations()
