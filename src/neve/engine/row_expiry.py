"""RowExpiry: commits the removal of rows that have expired.

neve's readers leave expired rows out by themselves (`neve.table.table_view`). Other engines read
what is committed: for them, and for the change feed, rows go with the commit that is made here.

    bounds of the time column in a file            its rows in the commit
    ─────────────────────────────────────────      ───────────────────────────────────────────────
    the upper one has expired, and no NULL         the file is removed, without being opened
    the lower one has not expired                  stay; the file is not opened
    otherwise, or unknown                          the column is read, and expired rows are marked

1. Plan on the newest Version. After another commit plan again, without reading files again.
2. Write the vectors, and commit on exactly that Version. A removal is not rebased: it must never
   mark a newer row of the same key.
3. Remember for each file that was looked at when its next row expires: it is not opened before.

The files of removed rows stay until no retained Version needs them, like those of deleted rows.

ENGINE-X1  A row that an unflushed partial write was merged with stays: the flush merges them again.
           The caller takes the moment first, then waits for writes that were decided before it, and
           then takes the keys of partial writes. Writes decided later see that the row has expired.
ENGINE-X2  A step opens a limited number of files, so that background work stays short.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import pyarrow.compute as pc
from pyroaring import BitMap64

from neve.keys.arrays import concat_keys, within
from neve.keys.columns import KeyArray
from neve.manifest.commit import CommitPlan, TableCommitter
from neve.manifest.rebase import Proposal, complete
from neve.manifest.table_head import HeadChange
from neve.manifest.table_versions import Committed
from neve.manifest.version_reader import Session, TableSnapshot
from neve.memtable.memtable import Memtable
from neve.model.data_file import DataFile, VectorRef
from neve.model.pruning import ColumnFacts, Match, match
from neve.model.row_rules import Cutoff, TimeToLive, cutoff_at
from neve.model.version import EXPIRED_ROWS, Operation, Version, VersionFacts
from neve.observability.events import EventKind
from neve.observability.metrics import ROWS_EXPIRED
from neve.read.scan_plan import PartitionPruning, statistics_facts
from neve.sstable.deletion_vector import bitmap_of
from neve.table.table_context import TableContext, TableParts
from neve.table.table_files import TableFiles

STEP_FILES: Final = 256
STEP_ROWS: Final = 4 << 20
_NEVER: Final = (1 << 63) - 1
_SECONDS_MIN: Final = 60.0
_SECONDS_MAX: Final = 24 * 60 * 60.0
_STEPS_PER_TTL: Final = 100


def pause_seconds(ttl: TimeToLive) -> float:
    """Return the time between two rounds of background work: a hundredth of the time to live."""
    return min(max(ttl.milliseconds / 1_000 / _STEPS_PER_TTL, _SECONDS_MIN), _SECONDS_MAX)


def partial_keys(memtables: Iterable[Memtable]) -> list[KeyArray]:
    """Return the keys that unflushed partial writes may need the rows of (ENGINE-X1)."""
    return [keys for memtable in memtables for keys in memtable.partial_keys()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What one step did."""

    committed: Committed
    row_count: int
    is_complete: bool
    """False when the step ended before it had looked at all files."""


@dataclass(frozen=True, slots=True)
class _Times:
    """The rows of a file that have expired, and the time of the first one that has not."""

    expired: BitMap64
    next_count: int


@dataclass(slots=True)
class _Step:
    """What is removed from one Version, as far as it was planned."""

    version: Version
    protected: Callable[[DataFile], BitMap64]
    removed: list[str] = field(default_factory=list)
    marked: dict[str, BitMap64] = field(default_factory=dict)
    looked_at: dict[str, int] = field(default_factory=dict)
    """Files in which no expired row is left afterwards, and when their next row expires."""
    row_count: int = 0
    is_complete: bool = True

    def proposal(self) -> Proposal | None:
        """Return the removal as a change of the Version; None when nothing has expired."""
        if not self.row_count and not self.removed:
            return None
        facts = self.version.facts
        return Proposal(
            base=self.version.number,
            facts=VersionFacts(
                operation=Operation.DELETE,
                timestamp_ms=0,  # the commit sets it
                schema_id=facts.schema_id,
                spec_id=facts.spec_id,
                summary={"reason": "ttl", EXPIRED_ROWS: str(self.row_count)},
            ),
            removed=tuple(self.removed),
            marked=self.marked,
        )


class RowExpiry:
    """Removes expired rows of one table; for one thread at a time."""

    def __init__(self, files: TableFiles, committer: TableCommitter) -> None:
        self._files = files
        self._committer = committer
        # For the column of this field id, by path of files:
        self._field_id = 0
        self._lowest: dict[str, int] = {}
        """No row has an earlier time than this, by the bounds of the file."""
        self._settled: dict[str, tuple[VectorRef | None, int]] = {}
        """No row of the file, with this vector, has an earlier time than this."""

    def remove(
        self,
        now_ms: int,
        *,
        kept: Sequence[KeyArray],
        change: HeadChange,
        is_limited: bool = False,
    ) -> Removed:
        """Commit the removal of rows that have expired at a time, except those of kept keys.

        `is_limited` ends after some files (ENGINE-X2).
        """
        read: dict[str, _Times] = {}
        keys = None
        if kept:
            keys = concat_keys(list(kept))
            keys = keys.take(pc.sort_indices(keys))
        step: _Step | None = None

        def plan(_session: Session, snapshot: TableSnapshot) -> CommitPlan | None:
            nonlocal step
            version = snapshot.version
            context = self._files.context(version.facts.schema_id)
            step = _Step(version, lambda file: self._positions_of(file, keys))
            cutoff = cutoff_at(context.schema, now_ms)
            if cutoff is not None:
                self._plan(step, context, cutoff, read, is_limited=is_limited)
            proposal = step.proposal()
            if proposal is None:
                return None
            return CommitPlan(edits=[complete(proposal, version, self._files)])

        committed = self._committer.commit(plan, change)
        assert step is not None, "a commit is planned at least once"
        self._settle(step, committed.snapshot.version)
        return Removed(committed=committed, row_count=step.row_count, is_complete=step.is_complete)

    def _plan(
        self,
        step: _Step,
        context: TableContext,
        cutoff: Cutoff,
        read: dict[str, _Times],
        *,
        is_limited: bool,
    ) -> None:
        if cutoff.column.field_id != self._field_id:
            self._field_id = cutoff.column.field_id
            self._lowest, self._settled = {}, {}
        by_partition = PartitionPruning(cutoff.expired, context.schema, context.definitions)
        opened = row_count = 0
        for path, file in step.version.files.items():
            if self._is_early(file, cutoff):
                continue
            facts = statistics_facts(file, context, [self._field_id])
            answer = match(cutoff.expired, facts)
            if answer is Match.NEVER:
                self._lowest[path] = _lower_of(facts.get(self._field_id), cutoff)
            elif answer is Match.ALWAYS and not step.protected(file):
                step.removed.append(path)
                step.row_count += file.live_count
            elif answer is Match.SOME and by_partition.excludes(file):
                step.looked_at[path] = cutoff.count + 1
            elif is_limited and (opened >= STEP_FILES or row_count >= STEP_ROWS):
                step.is_complete = False
            else:
                if path not in read:
                    read[path] = self._times(file, context, cutoff)
                    opened, row_count = opened + 1, row_count + file.row_count
                self._mark(step, file, read[path])

    def _is_early(self, file: DataFile, cutoff: Cutoff) -> bool:
        """Return whether it is known that nothing is left to remove from a file."""
        lowest = self._lowest.get(file.path)
        if lowest is not None and cutoff.count < lowest:
            return True
        vector, next_count = self._settled.get(file.path, (None, -_NEVER))
        return vector == file.vector and cutoff.count < next_count

    def _mark(self, step: _Step, file: DataFile, times: _Times) -> None:
        before = self._files.vector(file)
        protected = step.protected(file)
        marked = times.expired - before - protected
        step.row_count += len(marked)
        if len(before) + len(marked) == file.row_count:
            step.removed.append(file.path)
            return
        if marked:
            step.marked[file.path] = marked
        if not protected & times.expired:
            step.looked_at[file.path] = times.next_count

    def _times(self, file: DataFile, context: TableContext, cutoff: Cutoff) -> _Times:
        """Read the time column of the row groups in which some rows have expired."""
        reader = self._files.reader(file)
        mapping = context.mapping_from(file.schema_id)
        names = (cutoff.column.name,)
        found, next_count = BitMap64(), _NEVER
        for group, (start, stop) in enumerate(pairwise(reader.group_starts)):
            facts = reader.group_facts.of(group, self._field_id)
            known = {} if facts is None else {self._field_id: facts}
            answer = match(cutoff.expired, known)
            if answer is Match.NEVER:
                next_count = min(next_count, _lower_of(facts, cutoff))
            elif answer is Match.ALWAYS:
                found.add_range(start, stop)
            else:
                sources = mapping.source_names(names)
                rows = mapping.table(reader.read(sources, start=start, stop=stop), names)
                flags = cutoff.expired_flags(rows)
                found |= bitmap_of(flags.nonzero()[0] + start)
                later = pc.min(rows.column(0).filter(~flags).cast("int64")).as_py()
                next_count = next_count if later is None else min(next_count, later)
        return _Times(found, next_count)

    def _positions_of(self, file: DataFile, keys: KeyArray | None) -> BitMap64:
        """Return the positions of some ascending keys in a file."""
        if keys is None:
            return BitMap64()
        inside = within(keys, file.key_min, file.key_max)
        if inside.start >= inside.stop:
            return BitMap64()
        return self._files.positions_of(file, keys.slice(inside.start, inside.stop - inside.start))

    def _settle(self, step: _Step, version: Version) -> None:
        """Remember what a step has found, after its commit."""
        for path, next_count in step.looked_at.items():
            file = version.files.get(path)
            if file is not None:
                self._settled[path] = file.vector, next_count
        for known in (self._lowest, self._settled):
            if len(known) > 2 * len(version.files):
                for path in known.keys() - version.files.keys():
                    del known[path]


def _lower_of(facts: ColumnFacts | None, cutoff: Cutoff) -> int:
    """Return a time that no row is before, where it is known that no row has expired."""
    if facts is None or facts.lower is None:
        has_time = facts is None or facts.null_count != facts.row_count
        return cutoff.count + 1 if has_time else _NEVER
    assert isinstance(facts.lower, int), "timestamps are counts"
    return facts.lower


def note_removed(parts: TableParts, removed: Removed) -> None:
    """Count and report rows that were removed."""
    if removed.row_count:
        parts.recorder.add(ROWS_EXPIRED, removed.row_count)
        number = removed.committed.snapshot.version.number
        parts.report(EventKind.EXPIRED, version=number, rows=removed.row_count)
