"""The table that every world begins with, and the handles that one process has on it."""

from collections.abc import Mapping
from functools import cache
from typing import Final

from pyroaring import BitMap64

from neve.manifest import table_garbage
from neve.manifest.commit import TableCommitter
from neve.manifest.leases import Leases
from neve.manifest.manifest_store import ManifestStore, StoreOptions
from neve.manifest.rebase import Proposal
from neve.manifest.table_head import HeadChange
from neve.manifest.table_versions import TableVersions
from neve.manifest.version_fold import fold_versions
from neve.manifest.writer_state import WriterState
from neve.model.data_file import VectorRef
from neve.model.version import Operation, VersionEdit, VersionFacts
from neve.storage.clock import Clock
from neve.storage.object_store import ObjectStore
from neve.testing.model_rows import keys_of
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.crash.table_truth import Job, KeptRows, Truth, WatchedStore
from tests.crash.troubled_world import PREFIX
from tests.unit.manifest.builders import SCHEMA, SPEC, first_head

KEYS: Final = (b"a", b"b", b"c", b"d", b"e")


class SkewedClock:
    """The world's time as one process has it."""

    def __init__(self, clock: SimulatedClock, skew_ms: int) -> None:
        self._clock = clock
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._skew_ms

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


class Desk:
    """One process's handles on the table."""

    def __init__(
        self, objects: ObjectStore, clock: Clock, seed: int, *, patience: float = 600.0
    ) -> None:
        self.objects = objects
        self.clock = clock
        ids = SeededIds(seed)
        self.store = ManifestStore(
            objects,
            PREFIX,
            clock=clock,
            ids=ids,
            options=StoreOptions(commit_seconds=patience),
            fold_entries=fold_versions,
        )
        self.versions = TableVersions(self.store, clock=clock)
        self.work = WriterState(self.versions, clock=clock)
        self.leases = Leases(objects, PREFIX, clock=clock, ids=ids)
        # Found in its module, so that a mutant can stand in for it.
        self.garbage = table_garbage.TableGarbage(
            self.versions, self.work, self.leases, clock=clock, ids=ids
        )
        self.committer = TableCommitter(
            self.versions, self.work, clock=clock, ids=ids, commit_seconds=patience
        )

    def find(self, prefix: str) -> list[str]:
        return [found.path for found in self.objects.list(prefix)]


def facts_of(operation: Operation, attempt: str) -> VersionFacts:
    return VersionFacts(
        operation=operation, timestamp_ms=0, schema_id=0, spec_id=0, summary={"attempt": attempt}
    )


class Start:
    """The table that every world begins with; made once."""

    def __init__(self) -> None:
        self.rows = KeptRows()
        jobs: dict[str, Job] = {}
        self.truth = Truth(self.rows, jobs)
        self.objects = WatchedStore()
        self.objects.truth = self.truth
        desk = Desk(self.objects, SimulatedClock(), seed=0)
        created = VersionEdit(base=0, facts=facts_of(Operation.CREATE, ""))
        desk.versions.create(first_head(), schema=SCHEMA, spec=SPEC, edit=created)
        for number in range(3):
            job = Job(
                job_id=f"start.{number}",
                attempt=f"start.{number}-0",
                effect=dict.fromkeys(KEYS[number : number + 3], b"%d" % number),
            )
            jobs[job.attempt] = job
            self.upsert(desk, job)
        # Older Versions have files of their own, so that there is something to let go at once.
        jobs["start.3-0"] = Job(job_id="start.3", attempt="start.3-0")
        version = desk.versions.snapshot_latest().version
        inputs = [version.files[f"data/start.{number}-0.parquet"] for number in (0, 1)]
        merged = self.rows.live_rows_of(inputs[0]) | self.rows.live_rows_of(inputs[1])
        output = self.rows.add_file("data/start.3-0.parquet", merged)
        self.objects.put(output.path, b"rows")
        rewrite = VersionEdit(
            base=version.number,
            facts=facts_of(Operation.REPLACE, "start.3-0"),
            added=(output,),
            removed=tuple(file.path for file in inputs),
        )
        desk.versions.apply_version_edits([rewrite], HeadChange(job_id="start.3"))
        desk.store.checkpoint()
        self.known = desk.store._known

    def upsert(self, desk: Desk, job: Job) -> None:
        version = desk.versions.snapshot_latest().version
        new = {key: value for key, value in job.effect.items() if value is not None}
        file = self.rows.add_file(f"data/{job.attempt}.parquet", new)
        self.objects.put(file.path, b"rows")

        def write_vectors(whole: Mapping[str, BitMap64]) -> Mapping[str, VectorRef]:
            path = f"deletes/{job.attempt}-1.puffin"
            self.objects.put(path, b"marks")
            return self.rows.name_vectors(path, whole)

        keys = keys_of(new)
        proposal = Proposal(
            base=version.number,
            facts=facts_of(Operation.OVERWRITE, job.attempt),
            added=(file,),
            marked={
                path: positions
                for path, old in version.files.items()
                if (positions := self.rows.live_positions(old, keys))
            },
            keys=(keys,),
        )
        desk.committer.commit_proposal(
            proposal, HeadChange(job_id=job.job_id), lookup=self.rows.writing(write_vectors)
        )


@cache
def start() -> Start:
    return Start()
