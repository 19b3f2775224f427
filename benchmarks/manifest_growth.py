"""`manifest_growth` and `manifest_open`: what a large table and a long history cost.

Tables are made once for all rounds, of Versions like those of `manifest_commits`. Commits go to a
copy of the table with few or many files; reads leave it as it is.
"""

import shutil
from collections.abc import Callable, Iterable, Sequence
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
    TinyAppend,
    Traffic,
    UnsyncedDisk,
    append_edit,
    data_file,
    described,
    file_path,
    read_newest,
    time_commits,
    tiny_appends,
    tiny_rewrites,
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
        """Return a trial's own copy, on the same disk."""
        shutil.copytree(self.root, directory / "table")
        return LocalStore(str(directory / "table"))

    def copy_to_memory(self, _directory: Path) -> ObjectStore:
        """Return a trial's own copy, in memory."""
        source, copy = LocalStore(str(self.root)), MemoryStore()
        for found in source.list(""):
            copy.put(found.path, source.get(found.path).payload)
        return copy


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A kind of commit, to a table whose files are in one level."""

    verb: str
    level: int
    make: Callable[[int, int], Sequence[TinyAppend]]
    """From the number of commits and of files to the commits."""
    choose: Callable[[BenchTable], CommitTiny]
    left: Callable[[int, int], Sequence[str]]
    """From the same to the paths that there are afterwards."""


def _append(table: BenchTable) -> CommitTiny:
    return table.append


def _rewrite(table: BenchTable) -> CommitTiny:
    return table.rewrite


_APPEND: Final = _Change(
    verb="append",
    level=0,
    make=lambda commits, files: tiny_appends(range(files, files + commits)),
    choose=_append,
    left=lambda commits, files: _paths(range(files + commits)),
)
_COMPACT: Final = _Change(
    verb="compact",
    level=1,
    make=lambda commits, files: tiny_rewrites(commits, files=files),
    choose=_rewrite,
    left=lambda commits, files: _paths(range(commits, commits + files)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contest:
    """Commits made in one way to tables of different sizes."""

    change: _Change
    where: str
    copy: Callable[[_Table, Path], ObjectStore]
    commits: int
    sync: str = ""
    by: Pace = Pace.MEDIAN_CALL
    target: float | None = None

    def candidate(self, table: _Table) -> Candidate:
        """Return the candidate that commits to a copy of one table."""
        return Candidate(
            name=f"{self.change.verb} {self.where}, {table.files:,} files",
            kind=Kind.NEVE,
            sync=self.sync,
            trial=lambda directory, stopwatch: self._commit(table, directory, stopwatch),
        )

    def _commit(self, table: _Table, directory: Path, stopwatch: Stopwatch) -> Outcome:
        objects = self.copy(table, directory)
        counted = CountingStore(objects)
        opened = BenchTable(counted)
        base = opened.newest()
        changes = self.change.make(self.commits, table.files)
        checkpoints, before = opened.checkpoint_count(), counted.traffic
        with stopwatch:
            latencies = time_commits(self.change.choose(opened), changes, base=base)
        traffic = counted.traffic.since(before)
        return Outcome(
            rows=self.commits,
            calls=self.commits,
            logical_bytes=0,
            answer=read_newest(objects),
            expected=(base + self.commits, self.change.left(self.commits, table.files)),
            latencies_ns=latencies,
            facts=traffic.per_commit(self.commits)
            | {"checkpoints": opened.checkpoint_count() - checkpoints},
        )


def build_manifest_growth(scale: Scale, directory: Path) -> Workload:
    """Commits to a table of few files and to one of many."""
    cycle = StoreOptions().checkpoint_at_most_every
    candidates: list[Candidate] = []
    ratios: list[Ratio] = []
    for change in (_APPEND, _COMPACT):
        few, many = (
            _make_table(directory / f"{change.verb}-{files}", files=files, level=change.level)
            for files in (_FEW, scale.table_files)
        )
        for contest in (
            _Contest(
                change=change,
                where="on disk",
                sync="each commit",
                copy=_Table.copy_to_disk,
                commits=scale.growth_commits,
                target=_RATE_OF_TWICE_THE_TIME,
            ),
            _Contest(
                change=change,
                where="in memory",
                copy=_Table.copy_to_memory,
                commits=scale.growth_commits,
            ),
            _Contest(
                change=change,
                where="in memory with checkpoints",
                copy=_Table.copy_to_memory,
                commits=cycle,
                by=Pace.RATE,
            ),
        ):
            slow, fast = contest.candidate(many), contest.candidate(few)
            candidates += (fast, slow)
            ratios.append(Ratio(of=slow.name, to=fast.name, target=contest.target, by=contest.by))
    return Workload(
        name="manifest_growth",
        sentence="Commits of one file each, to a table that has few files, and many.",
        unit="commits",
        candidates=candidates,
        ratios=ratios,
        parameters={
            "commits_per_trial": scale.growth_commits,
            "files": f"{_FEW} and {scale.table_files:,}",
        },
        notes=(
            "A commit may take twice as long with many files as with few: a ratio of 0.5.",
            "`append` adds a file to level 0; `compact` replaces one of level 1 by another.",
            "The table is open, with a checkpoint of its newest Version, when the clock starts.",
            "`in memory` shows what is left without a disk to wait for.",
            "A commit publishes a checkpoint when one is due, and then takes as much longer.",
            f"`with checkpoints` makes {cycle:,} commits: one is due then at any size.",
        ),
    )


def build_manifest_open(scale: Scale, directory: Path) -> Workload:
    """Reads of a table with many Versions behind it."""
    history, folded, left = directory / "history", directory / "folded", directory / "left"
    _make_history(history, folded, versions=scale.versions)
    _leave_history(left, versions=scale.versions)
    newest, old = scale.versions, scale.versions // 2 - 1
    return Workload(
        name="manifest_open",
        sentence="A new handle reads the newest Version, and an open one an old Version.",
        unit="reads",
        candidates=(
            _reading("open, with checkpoint", _opening(folded, newest)),
            _reading("open, as committers leave it", _opening(left, newest)),
            _reading("open, without checkpoint", _opening(history, newest)),
            _reading(f"read Version {old:,}, with checkpoint", _reading_old(folded, old)),
            _reading(f"read Version {old:,}, without checkpoint", _reading_old(history, old)),
        ),
        ratios=(
            Ratio(of="open, with checkpoint", to="open, without checkpoint"),
            Ratio(of="open, as committers leave it", to="open, with checkpoint"),
        ),
        parameters={"versions": scale.versions, "files": scale.versions},
        notes=(
            "Every Version adds one file and is a segment of its own.",
            "The old Version is the farthest from one that a checkpoint keeps in full.",
            "The files are in the operating system's memory. One read per trial.",
            "`with checkpoint` has one of its newest Version.",
            "`as committers leave it` has those that commits published when they were due.",
            "`without checkpoint` is a table for which every one of them failed.",
        ),
        shows=Shows.SECONDS,
        uses_disk=False,
    )


def _make_table(root: Path, *, files: int, level: int) -> _Table:
    table = BenchTable(LocalStore(str(root), disk=UnsyncedDisk()))
    table.create([data_file(number, level=level) for number in range(files)])
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


def _leave_history(root: Path, *, versions: int) -> None:
    """Make the same table by the commits of one committer, and leave it at that."""
    objects = MemoryStore()
    table = BenchTable(objects)
    base = table.create([data_file(0)])
    for tiny in tiny_appends(range(1, versions)):
        base = table.append(tiny, base)
    _copy_to_disk(objects, root)


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
        expected=(number, _paths(range(number))),
        facts={"objects_read": traffic.reads},
    )


def _paths(numbers: Iterable[int]) -> Sequence[str]:
    return [file_path(number) for number in numbers]
