"""`manifest_growth` and `manifest_open`: what a large table and a long history cost.

Tables are made once for all rounds, of Versions like those of `manifest_commits`. Commits go to a
copy of the table with few or many files; reads leave it as it is.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness import (
    Candidate,
    Kind,
    Outcome,
    Ratio,
    Scale,
    Shows,
    Stopwatch,
    Trial,
    Workload,
)
from benchmarks.manifest_table import (
    BenchTable,
    CommitTiny,
    CountingStore,
    Traffic,
    UnsyncedDisk,
    append_edit,
    data_file,
    described,
    file_path,
    read_newest,
    time_commits,
    tiny_appends,
)
from benchmarks.result_file import Pace
from neve.manifest.manifest_store import StoreOptions
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore

_FEW: Final = 10
_RATE_OF_TWICE_THE_TIME: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A table that was made beforehand."""

    root: Path
    files: int

    def copy_to_disk(self, directory: Path) -> ObjectStore:
        """Give a copy of its own to a trial, on the same disk."""
        shutil.copytree(self.root, directory / "table")
        return LocalStore(str(directory / "table"))

    def copy_to_memory(self, _directory: Path) -> ObjectStore:
        """Give a copy of its own to a trial, in memory."""
        source, copy = LocalStore(str(self.root)), MemoryStore()
        for found in source.list(""):
            copy.put(found.path, source.get(found.path).payload)
        return copy


def _carried_over(table: BenchTable) -> CommitTiny:
    return table.append


def _with_checkpoints(table: BenchTable) -> CommitTiny:
    return table.append_and_checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contest:
    """Commits made in one way to tables of different sizes."""

    name: str
    copy: Callable[[_Table, Path], ObjectStore]
    commits: int
    choose: Callable[[BenchTable], CommitTiny] = _carried_over
    sync: str = ""
    by: Pace = Pace.MEDIAN_CALL
    target: float | None = None

    def candidate(self, table: _Table) -> Candidate:
        """Give the candidate that commits to a copy of one table."""
        return Candidate(
            name=f"{self.name}, {table.files:,} files",
            kind=Kind.NEVE,
            sync=self.sync,
            trial=lambda directory, stopwatch: self._commit(table, directory, stopwatch),
        )

    def _commit(self, table: _Table, directory: Path, stopwatch: Stopwatch) -> Outcome:
        objects = self.copy(table, directory)
        counted = CountingStore(objects)
        opened = BenchTable(counted)
        base = opened.newest()
        appends = tiny_appends(range(table.files, table.files + self.commits))
        before = counted.traffic
        with stopwatch:
            latencies = time_commits(self.choose(opened), appends, base=base)
        traffic = counted.traffic.since(before)
        return Outcome(
            rows=self.commits,
            calls=self.commits,
            logical_bytes=0,
            answer=read_newest(objects),
            expected=(base + self.commits, _paths(table.files + self.commits)),
            latencies_ns=latencies,
            facts=traffic.per_commit(self.commits) | {"checkpoints": opened.checkpoint_count},
        )


def build_manifest_growth(scale: Scale, directory: Path) -> Workload:
    """Commits to a table of few files and to one of many."""
    cycle = StoreOptions().checkpoint_at_most_every
    few = _make_table(directory / "few", files=_FEW)
    many = _make_table(directory / "many", files=scale.table_files)
    candidates: list[Candidate] = []
    ratios: list[Ratio] = []
    for contest in (
        _Contest(
            name="on disk",
            sync="each commit",
            copy=_Table.copy_to_disk,
            commits=scale.growth_commits,
            target=_RATE_OF_TWICE_THE_TIME,
        ),
        _Contest(name="in memory", copy=_Table.copy_to_memory, commits=scale.growth_commits),
        _Contest(
            name="in memory with checkpoints",
            copy=_Table.copy_to_memory,
            commits=cycle,
            choose=_with_checkpoints,
            by=Pace.RATE,
        ),
    ):
        slow, fast = contest.candidate(many), contest.candidate(few)
        candidates += (fast, slow)
        ratios.append(Ratio(of=slow.name, to=fast.name, target=contest.target, by=contest.by))
    return Workload(
        name="manifest_growth",
        sentence="Commits of one added file each, to a table that has few files, and many.",
        unit="commits",
        candidates=candidates,
        ratios=ratios,
        parameters={
            "commits_per_trial": scale.growth_commits,
            "files": f"{_FEW} and {scale.table_files:,}",
        },
        notes=(
            "A commit may take twice as long with many files as with few: a ratio of 0.5.",
            "The table is open, with a checkpoint of its newest Version, when the clock starts.",
            "`in memory` shows what is left without a disk to wait for.",
            "`with checkpoints` publishes those that are due, and counts them; the others none.",
            f"It makes {cycle:,} commits, after which one is due whatever the table's size.",
        ),
    )


def build_manifest_open(scale: Scale, directory: Path) -> Workload:
    """Reads of a table with many Versions behind it."""
    history, folded = directory / "history", directory / "folded"
    _make_history(history, folded, versions=scale.versions)
    newest, old = scale.versions, scale.versions // 2 - 1
    return Workload(
        name="manifest_open",
        sentence="A new handle reads the newest Version, and an open one an old Version.",
        unit="reads",
        candidates=(
            _reading("open, with checkpoint", _opening(folded, newest)),
            _reading("open, without checkpoint", _opening(history, newest)),
            _reading(f"read Version {old:,}, with checkpoint", _reading_old(folded, old)),
            _reading(f"read Version {old:,}, without checkpoint", _reading_old(history, old)),
        ),
        ratios=(Ratio(of="open, with checkpoint", to="open, without checkpoint"),),
        parameters={"versions": scale.versions, "files": scale.versions},
        notes=(
            "Every Version adds one file and is a segment of its own.",
            "The old Version is the farthest from one that a checkpoint keeps in full.",
            "The files are in the operating system's memory. One read per trial.",
            "`without checkpoint` is what a table looks like that nobody has ever looked after.",
        ),
        shows=Shows.SECONDS,
        uses_disk=False,
    )


def _make_table(root: Path, *, files: int) -> _Table:
    table = BenchTable(LocalStore(str(root), disk=UnsyncedDisk()))
    table.create([data_file(number) for number in range(files)])
    table.store.checkpoint()
    table.store.collect_once()
    return _Table(root=root, files=files)


def _make_history(history: Path, folded: Path, *, versions: int) -> None:
    """Make a table of so many Versions and files; once as segments, once as a checkpoint."""
    objects = MemoryStore()
    table = BenchTable(objects)
    table.create([data_file(0)])
    for number in range(1, versions):
        table.versions.apply_version_edits([append_edit(data_file(number), number)])
    _copy_to_disk(objects, history)
    table.store.checkpoint()
    table.store.collect_once()
    _copy_to_disk(objects, folded)


def _copy_to_disk(objects: ObjectStore, root: Path) -> None:
    for found in objects.list(""):
        path = root / found.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(objects.get(found.path).payload)


def _reading(name: str, trial: Trial) -> Candidate:
    return Candidate(name=name, kind=Kind.NEVE, trial=trial)


def _opening(root: Path, newest: int) -> Trial:
    """Read the newest Version through a handle that knows nothing yet."""

    def read(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        objects = CountingStore(LocalStore(str(root), create=False))
        with stopwatch:
            version = BenchTable(objects).versions.snapshot_latest().version
        return _read_outcome(described(version), newest, objects.traffic)

    return read


def _reading_old(root: Path, number: int) -> Trial:
    """Read an old Version through a handle that has read the newest."""

    def read(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        objects = CountingStore(LocalStore(str(root), create=False))
        table = BenchTable(objects)
        table.newest()
        before = objects.traffic
        with stopwatch:
            version = table.versions.version(number)
        return _read_outcome(described(version), number, objects.traffic.since(before))

    return read


def _read_outcome(answer: tuple[int, list[str]], number: int, traffic: Traffic) -> Outcome:
    return Outcome(
        rows=1,
        calls=1,
        logical_bytes=0,
        answer=answer,
        expected=(number, _paths(number)),
        facts={"objects_read": traffic.reads},
    )


def _paths(count: int) -> Sequence[str]:
    return [file_path(number) for number in range(count)]
