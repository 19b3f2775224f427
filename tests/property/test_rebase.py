"""Random committers on one table, many Versions behind and in each other's way, against a dict.

A history is drawn from a seed: writers that upsert, delete and overwrite, compactions into level 0
and level 1, rollbacks, checkpoints and expiry. Proposals are made on one Version and committed on
another, by several processes, with other commits squeezed in between reading and writing. Files are
lists of rows, vectors are bitmaps; the code that commits is the real one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import pytest

from neve.errors import Conflict, NeveError, NotFound
from neve.manifest import rebase as rebase_module
from neve.manifest.rebase import Proposal
from neve.manifest.sessions import WriteSession
from neve.manifest.table_garbage import paths_of
from neve.manifest.table_head import HeadChange
from neve.manifest.table_versions import Committed, MakeEdits
from neve.manifest.version_reader import TableSnapshot
from neve.model.data_file import DataFile
from neve.model.version import Operation, Version, VersionEdit
from neve.testing.model_rows import ModelRows, keys_of
from tests.gates import Gate
from tests.unit.manifest.builders import TableBench, facts, path_of

Record = Callable[[str], None]
Model = dict[bytes, bytes]

KEYS = [f"k{number:02}".encode() for number in range(14)]
STEPS = 26
RACE_DEPTH_MAX = 2


class Divergence(AssertionError):
    """The table does not show what was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A proposal that waits to be committed, and what it does to the rows."""

    proposal: Proposal
    base: Version
    effect: Mapping[bytes, bytes | None]
    job_id: str | None = None


class History:
    """One seeded life of a table and of the model beside it."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._rows = ModelRows()
        first = TableBench(seed=seed)
        first.create()
        self._processes = [first, first.another(seed + 1), first.another(seed + 2)]
        for bench in self._processes:
            self._squeeze_commits_into(bench)
        self._waiting: list[Planned] = []
        self._model: Model = {}
        self._models: dict[int, Model] = {1: {}}
        self._rollbacks: set[int] = set()
        self._busy: list[TableBench] = []  # those that commit right now: one at a time each
        self._depth = 0
        self._names = 0
        self._jobs = 0
        self.commits = 0
        self.conflicts = 0

    def live(self) -> None:
        """Take every step, and compare after each."""
        for _ in range(STEPS):
            choice = self._rng.random()
            if choice < 0.5:
                self._waiting.append(self._plan())
            elif choice < 0.85:
                self._commit_one_that_waits()
            elif choice < 0.89:
                self._roll_back()
            elif choice < 0.95:
                self._rng.choice(self._processes).checkpoint_and_collect()
            else:
                self._expire()
        while self._waiting:
            self._commit_one_that_waits()
        self._processes[0].checkpoint_and_collect()
        self._compare_all()

    # Planning.

    def _plan(self) -> Planned:
        base = self._some_version()
        makers = (self._plan_upsert, self._plan_upsert, self._plan_overwrite, self._plan_compaction)
        return self._rng.choice(makers)(base)

    def _some_version(self) -> Version:
        """Return the current Version, or one some commits behind."""
        versions = self._rng.choice(self._processes).versions
        newest = versions.snapshot_latest().version
        behind = self._rng.choice((0, 0, 0, 1, 2, 5))
        with suppress(NotFound):
            return versions.version(newest.number - behind)
        return newest

    def _plan_upsert(self, base: Version) -> Planned:
        changed = self._rng.sample(KEYS, self._rng.randint(1, 6))
        upserts = self._rng.randint(0, len(changed))
        effect = self._effect(changed[:upserts], changed[upserts:])
        return self._planned(base, effect)

    def _plan_overwrite(self, base: Version) -> Planned:
        """Replace one file: some of its rows again, the others gone."""
        if not base.files:
            return self._plan_upsert(base)
        victim = self._rng.choice(list(base.files.values()))
        keys = list(self._rows.live_rows_of(victim))
        self._rng.shuffle(keys)
        upserts = self._rng.randint(0, len(keys))
        return self._planned(
            base, self._effect(keys[:upserts], keys[upserts:]), removed=(victim.path,)
        )

    def _planned(
        self,
        base: Version,
        effect: Mapping[bytes, bytes | None],
        *,
        removed: tuple[str, ...] = (),
    ) -> Planned:
        written = {key: value for key, value in effect.items() if value is not None}
        keys = (keys_of(written), keys_of(key for key in effect if key not in written))
        marked = {}
        for path, file in base.files.items():
            found = self._rows.live_positions(file, keys[0]) | self._rows.live_positions(
                file, keys[1]
            )
            if found and path not in removed:
                marked[path] = found
        proposal = Proposal(
            base=base.number,
            facts=facts(Operation.OVERWRITE),
            added=(self._new_file(written),) if written else (),
            removed=removed,
            marked=marked,
            keys=keys,
        )
        self._jobs += 1
        job_id = f"job{self._jobs}" if self._rng.random() < 0.2 else None
        return Planned(proposal=proposal, base=base, effect=effect, job_id=job_id)

    def _plan_compaction(self, base: Version) -> Planned:
        files = list(base.files.values())
        level = self._rng.choice((0, 1))
        inputs = self._rng.sample(files, self._rng.randint(0, len(files)))
        if level:
            inputs = _with_neighbours(inputs, files)
        rows: Model = {}
        for file in inputs:
            rows |= self._rows.live_rows_of(file)
        ordered = sorted(rows.items())
        cut = self._rng.randint(0, len(ordered))
        proposal = Proposal(
            base=base.number,
            facts=facts(Operation.REPLACE),
            added=tuple(
                self._new_file(dict(part), level=level)
                for part in (ordered[:cut], ordered[cut:])
                if part
            ),
            removed=tuple(file.path for file in inputs),
        )
        return Planned(proposal=proposal, base=base, effect={})

    def _effect(
        self, upserted: Iterable[bytes], deleted: Iterable[bytes]
    ) -> dict[bytes, bytes | None]:
        return {key: self._rng.randbytes(4) for key in upserted} | dict.fromkeys(deleted)

    def _new_file(self, rows: Model, *, level: int = 0) -> DataFile:
        self._names += 1
        return self._rows.add_file(path_of(f"f{self._names}"), rows, level=level)

    # Committing.

    def _commit_one_that_waits(self) -> None:
        if not self._waiting or len(self._busy) == len(self._processes):
            return
        planned = self._waiting.pop(self._rng.randrange(len(self._waiting)))
        free = [bench for bench in self._processes if bench not in self._busy]
        bench = self._rng.choice(free)
        change = HeadChange(job_id=planned.job_id)
        self._depth += 1
        try:
            committed = self._commit(bench, planned, change)
        except Conflict:
            self.conflicts += 1
            self._refuse_false_conflict(planned)
            return
        finally:
            self._depth -= 1
        for key, value in planned.effect.items():
            if value is None:
                self._model.pop(key, None)
            else:
                self._model[key] = value
        self._note(committed.snapshot.version)
        if planned.job_id is not None and not self._commit(bench, planned, change).is_repeat:
            raise Divergence("a job was committed twice")

    def _commit(self, bench: TableBench, planned: Planned, change: HeadChange) -> Committed:
        return bench.committer.commit_proposal(planned.proposal, change, lookup=self._rows)

    def _squeeze_commits_into(self, bench: TableBench) -> None:
        """Let others commit between a committer's reading and its writing.

        Before it is its turn, these are commits of any process; from then on, of the others.
        """
        apply = bench.versions.apply_made_edits

        def apply_later(make_edits: MakeEdits, asked: HeadChange, **_given: object) -> Committed:
            def make_later(session: WriteSession, snapshot: TableSnapshot) -> Sequence[VersionEdit]:
                edits = make_edits(session, snapshot)
                self._commit_another()
                return edits

            self._commit_another()
            self._busy.append(bench)
            try:
                return apply(make_later, asked)
            finally:
                self._busy.pop()

        bench.versions.apply_made_edits = apply_later  # type: ignore[method-assign]

    def _commit_another(self) -> None:
        if self._depth <= RACE_DEPTH_MAX and self._rng.random() < 0.15:
            self._commit_one_that_waits()

    def _roll_back(self) -> None:
        bench = self._rng.choice(self._processes)
        number = self._rng.choice(sorted(self._models)[-6:])
        try:
            made = bench.roll_back(number)
        except (NotFound, Conflict):
            return  # it expired, or somebody committed meanwhile
        self._rollbacks.add(made)
        self._model = dict(self._models[number])
        self._note(bench.versions.version(made))

    def _expire(self) -> None:
        bench = self._rng.choice(self._processes)
        bench.expire(keep_last=self._rng.randint(1, 6))
        deleted = set(bench.delete_garbage())
        retained = self._retained()
        for version in retained.values():
            if deleted & paths_of(version):
                raise Divergence(f"files of version {version.number} were deleted")
        self._models = {number: self._models[number] for number in retained}

    # Comparing.

    def _note(self, version: Version) -> None:
        """Compare a Version that was just committed, and remember what it has to show."""
        self.commits += 1
        if version.number in self._models:
            raise Divergence(f"version {version.number} was committed twice")
        self._models[version.number] = dict(self._model)
        self._compare(version)
        before = self._processes[0].versions.version(version.number - 1)
        if version.number in self._rollbacks:
            return
        for path, file in version.files.items():
            if path in before.files and (
                self._rows.vector(before.files[path]) - self._rows.vector(file)
            ):
                raise Divergence(f"the vector of {path} shrank in version {version.number}")

    def _compare(self, version: Version) -> None:
        wanted = sorted(self._models[version.number].items())
        if self._rows.live_rows(version) != wanted:
            raise Divergence(f"version {version.number} does not show what was committed")
        if version.row_count != len(wanted):
            raise Divergence(f"version {version.number} counts {version.row_count} rows")

    def _compare_all(self) -> None:
        retained = self._retained()
        if set(retained) != set(self._models):
            raise Divergence(f"versions {sorted(retained)} are there")
        for version in retained.values():
            self._compare(version)

    def _retained(self) -> dict[int, Version]:
        """Read every retained Version as a process would that has just begun."""
        fresh = self._processes[0].another(99)
        return {version.number: version for version in fresh.versions.list_versions()}

    def _refuse_false_conflict(self, planned: Planned) -> None:
        """Show that a proposal that was refused could not have been carried over."""
        current = self._processes[0].another(98).versions.snapshot_latest().version
        base, proposal = planned.base, planned.proposal
        new_files = [file for path, file in current.files.items() if path not in base.files]
        is_void = (
            base.number not in self._retained()
            or any(path not in current.files for path in proposal.removed)
            or any(base.number < number for number in self._rollbacks)
            or any(_overlap(added, file) for added in proposal.added for file in new_files)
        )
        if not is_void:
            raise Divergence("a proposal was refused without a reason")


def _overlap(left: DataFile, right: DataFile) -> bool:
    return (
        left.level == right.level > 0
        and left.key_min <= right.key_max
        and right.key_min <= left.key_max
    )


def _with_neighbours(inputs: list[DataFile], files: list[DataFile]) -> list[DataFile]:
    """Add the files of level 1 that the outputs would overlap, until there are none."""
    chosen = list(inputs)
    while chosen:
        low = min(file.key_min for file in chosen)
        high = max(file.key_max for file in chosen)
        more = [
            file
            for file in files
            if file.level == 1
            and file not in chosen
            and file.key_min <= high
            and low <= file.key_max
        ]
        if not more:
            break
        chosen += more
    return chosen


def test_after_any_history_every_version_shows_what_was_committed(scoreboard: Record) -> None:
    gate = Gate("R12 rebase histories: divergences", aim=1_000, full=50_000)
    commits = conflicts = 0

    for seed in gate.seeds():
        history = History(seed)
        try:
            history.live()
        except NeveError as error:
            raise Divergence(f"seed {seed}: {error}") from error
        except Divergence as divergence:
            divergence.add_note(f"seed {seed}")
            raise
        gate.cases += 1
        commits += history.commits
        conflicts += history.conflicts

    scoreboard(f"{gate.line()}, {commits:,} commits, {conflicts:,} void")
    assert conflicts > gate.cases // 10, "the histories are too tame to show anything"


def _leave_out(*_: object) -> None:
    return None


def _find_none(*_: object) -> tuple[DataFile, ...]:
    return ()


MUTATIONS: dict[str, tuple[str, Callable[..., object]]] = {
    "no lookup in files added since the base": ("_mark_keys", _leave_out),
    "marks on inputs are not carried over": ("_carry_marks_to_outputs", _leave_out),
    "rows that a rollback brought back are not seen": ("_restored_files", _find_none),
    "nothing is void": ("_refuse_void", _leave_out),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_planted_mistake_is_noticed(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, mistake = MUTATIONS[mutation]
    monkeypatch.setattr(rebase_module, name, mistake)

    def is_noticed(seed: int) -> bool:
        try:
            History(seed).live()
        except (Divergence, NeveError, KeyError):
            return True
        return False

    assert any(is_noticed(seed) for seed in range(300)), mutation
