"""Proposals: changes of a table, and how they are rebased on a newer Version.

A proposal knows its base, the keys of the rows it writes or deletes, and the positions it marks as
superseded, as deltas: never whole vectors. Order is commit order, so when it is rebased from base
to current, everything committed in between is older:

    files added in between     rows of the proposal's keys in them are superseded too: marked
    files still there          the deltas stay; the vector becomes the union with the current one
    files rewritten            marked rows are found again by key in the files that replaced them
    rows that a rollback       are looked up like rows of files added in between
    brought back

In a table with an order column, "older" is decided row by row: of the proposal's row and one that
was committed in between, the one with the smaller order value is marked, also when that is the
proposal's own. A row that is older than a delete in between is marked too. Rows that the proposal
marks are found again in files that replaced theirs, unless a newer row has taken their place.

A rewrite (compaction) does not write newer rows, it moves old ones:

    rows of its inputs that    are marked in its outputs, found by key
    were marked in between

These are void: they raise Conflict, and must be planned again:

    the removal of a file      that is gone, or that a rollback brought rows back in
    a file for level 1 or up   if another one with the same keys was added in between
    a change of schema         if another one was first
    a rollback                 if any other commit was first

The committer reads rows through a RowLookup.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa
from pyroaring import BitMap64

from neve.errors import Conflict
from neve.model.data_file import DataFile, FileFormat, VectorRef, WalSegmentRef
from neve.model.version import Operation, Version, VersionEdit, VersionFacts
from neve.model.version_summary import VersionChange, shown_counters

Keys = pa.BinaryArray | pa.FixedSizeBinaryArray | pa.LargeBinaryArray
"""Encoded keys, without nulls, in any order."""


class RowLookup(Protocol):
    """Finds rows in data files, and marks them."""

    def positions_of(self, file: DataFile, keys: Keys) -> BitMap64:
        """Return the positions of these keys in a file, including marked ones."""

    def keys_at(self, file: DataFile, positions: BitMap64) -> Keys:
        """Return the keys at these positions."""

    def vector(self, file: DataFile) -> BitMap64:
        """Return the positions that the file's vector marks; empty without one."""

    def write_vectors(self, whole: Mapping[str, BitMap64]) -> Mapping[str, VectorRef]:
        """Write whole vectors by data file path; return where each is."""

    def older_rows(
        self, own: DataFile, other: DataFile, schema_id: int
    ) -> tuple[BitMap64, BitMap64]:
        """Compare the live rows of both that have one key, by the order of a schema.

        Return the positions of own rows that are older, and those of the other's rows that are not
        newer. Either may be a file of remembered deletes.
        """


WriteVectors = Callable[[Mapping[str, BitMap64]], Mapping[str, VectorRef]]
"""Writes whole vectors by data file path; returns where each is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change to a table before its vectors are written."""

    base: int
    facts: VersionFacts
    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    marked: Mapping[str, BitMap64] = field(default_factory=dict)
    """Positions to mark, by path: in files that stay, or (in a rewrite) in added ones."""
    keys: Sequence[Keys] = ()
    """Keys of the rows it adds or deletes; none for a rewrite. Used when others were first."""
    moved: Mapping[str, Sequence[DataFile]] = field(default_factory=dict)
    """By path of a removed file, the added files that hold its rows; without an entry, all."""
    deletes_added: tuple[DataFile, ...] = ()
    """Deletes to remember."""
    deletes_removed: tuple[str, ...] = ()
    is_ordered: bool = False
    """Whether order columns decide which of two rows is newer, instead of the order of commits."""

    @property
    def is_empty(self) -> bool:
        """Whether it changes no file."""
        return not (self.added or self.removed or self.marked or self.deletes_added)

    @classmethod
    def of_rows(
        cls,
        base: Version,
        *,
        added: Sequence[DataFile],
        marked: Mapping[str, BitMap64],
        keys: Sequence[Keys],
        wal_segments: tuple[WalSegmentRef, ...] = (),
        deletes: tuple[DataFile, ...] = (),
        is_ordered: bool = False,
    ) -> "Proposal":
        """Propose rows, and the older rows that they supersede, on a Version.

        `keys` are the keys of rows and deletes. The summary counts the files; the edit shows what
        the commit marks and removes.
        """
        operation = Operation.APPEND
        if marked or not added:
            has_rows = any(file.row_count for file in added)
            operation = Operation.OVERWRITE if has_rows else Operation.DELETE
        facts = VersionFacts(
            operation=operation,
            timestamp_ms=0,  # the commit sets it
            schema_id=base.facts.schema_id,
            spec_id=base.facts.spec_id,
            summary=shown_counters(VersionChange(number=0, added=added).counters()),
            wal_segments=wal_segments,
        )
        return cls(
            base=base.number,
            facts=facts,
            added=tuple(added),
            marked=marked,
            keys=keys,
            deletes_added=deletes,
            is_ordered=is_ordered,
        )

    @property
    def is_rewrite(self) -> bool:
        """Whether it moves rows without changing any."""
        return self.facts.operation is Operation.REPLACE


def rebase(
    proposal: Proposal,
    base: Version,
    current: Version,
    lookup: RowLookup,
    *,
    touched: Collection[str] | None = None,
) -> Proposal:
    """Rebase a proposal from its base to the current Version; raises Conflict when it is void.

    `touched` has every path whose file may differ between the two; without it, all are compared.
    """
    assert proposal.base == base.number
    if base.number == current.number:
        return proposal
    if touched is None:
        touched = [*base.files, *current.files]
    new_files = [
        current.files[path]
        for path in dict.fromkeys(touched)
        if path in current.files and path not in base.files
    ]
    _refuse_void(proposal, current, new_files)
    own = {file.path for file in proposal.added}
    marked = {
        path: positions
        for path, positions in proposal.marked.items()
        if path in current.files or path in own
    }
    if proposal.is_rewrite:
        _carry_marks_to_outputs(proposal, base, current, lookup, marked)
    elif proposal.is_ordered:
        unseen = [*new_files, *_restored_files(proposal, base, current, lookup, touched)]
        deletes = [file for path, file in current.deletes.items() if path not in base.deletes]
        # The newest schema reads the rows of both.
        schema_id = current.facts.schema_id
        _mark_older(proposal, [*unseen, *deletes], lookup, marked, schema_id=schema_id)
        _follow_older(proposal, base, unseen, lookup, marked, schema_id=schema_id)
    else:
        unseen = [*new_files, *_restored_files(proposal, base, current, lookup, touched)]
        _follow_rewritten_files(proposal, base, unseen, lookup, marked)
        _mark_keys(proposal, unseen, lookup, marked)
    facts = _rebased_facts(proposal, base, current)
    if facts.operation is Operation.APPEND and marked:
        # Others added rows of the same keys first: an append removes none.
        facts = replace(facts, operation=Operation.OVERWRITE)
    return replace(proposal, base=current.number, facts=facts, marked=marked)


def complete(
    proposal: Proposal,
    current: Version,
    lookup: RowLookup,
    write_vectors: WriteVectors | None = None,
) -> VersionEdit:
    """Write the vectors a proposal needs on its base; return the edit to commit.

    `write_vectors` replaces that of the lookup.
    """
    assert proposal.base == current.number
    added = {file.path: file for file in proposal.added}
    whole: dict[str, BitMap64] = {}
    for path, positions in proposal.marked.items():
        file = current.files.get(path)
        before = lookup.vector(file) if file is not None else BitMap64()
        union = before | positions
        if len(union) > len(before):
            whole[path] = union
    refs = (write_vectors or lookup.write_vectors)(whole) if whole else {}
    return VersionEdit(
        base=proposal.base,
        facts=proposal.facts,
        added=tuple(
            file.with_vector(refs[path]) if path in refs else file for path, file in added.items()
        ),
        removed=proposal.removed,
        vectors={path: ref for path, ref in refs.items() if path not in added},
        deletes_added=proposal.deletes_added,
        deletes_removed=proposal.deletes_removed,
    )


def _refuse_void(proposal: Proposal, current: Version, new_files: list[DataFile]) -> None:
    gone = [path for path in proposal.removed if path not in current.files]
    if gone:
        raise _void(f"{gone[0]} was rewritten or removed in the meantime", *gone)
    if proposal.facts.operation is Operation.ROLLBACK:
        raise _void("the table changed while it was being rolled back")
    taken: defaultdict[object, list[DataFile]] = defaultdict(list)
    for file in new_files:
        taken[file.level, file.spec_id, file.partition].append(file)
    for output in proposal.added:
        for file in taken[output.level, output.spec_id, output.partition] if output.level else ():
            if output.key_min <= file.key_max and file.key_min <= output.key_max:
                raise _void(f"{file.path} now has keys of level {file.level}", file.path)


def _rebased_facts(proposal: Proposal, base: Version, current: Version) -> VersionFacts:
    """Return the facts of a change on the current schema; two changes of schema conflict."""
    before = (base.facts.schema_id, base.facts.spec_id)
    after = (current.facts.schema_id, current.facts.spec_id)
    if before == after:
        return proposal.facts
    if (proposal.facts.schema_id, proposal.facts.spec_id) != before:
        raise _void("the schema was changed in the meantime")
    return replace(proposal.facts, schema_id=after[0], spec_id=after[1])


def _restored_files(
    proposal: Proposal,
    base: Version,
    current: Version,
    lookup: RowLookup,
    touched: Iterable[str],
) -> Iterator[DataFile]:
    """Yield files of the base whose marked rows are visible again: only a rollback does that."""
    removed = set(proposal.removed)
    for path in dict.fromkeys(touched):
        before, file = base.files.get(path), current.files.get(path)
        if before is None or file is None or before.vector in (None, file.vector):
            continue
        if lookup.vector(before) - lookup.vector(file):
            if path in removed:
                raise _void(f"rows of {path} came back in the meantime", path)
            yield file


def _follow_rewritten_files(
    proposal: Proposal,
    base: Version,
    unseen: list[DataFile],
    lookup: RowLookup,
    marked: dict[str, BitMap64],
) -> None:
    for path, positions in proposal.marked.items():
        if path in marked:
            continue
        keys = lookup.keys_at(base.files[path], positions)
        for file in unseen:
            _mark(marked, file, lookup.positions_of(file, keys))


def _mark_keys(
    proposal: Proposal, unseen: list[DataFile], lookup: RowLookup, marked: dict[str, BitMap64]
) -> None:
    for file in unseen:
        for keys in proposal.keys:
            _mark(marked, file, lookup.positions_of(file, keys))


def _mark_older(
    proposal: Proposal,
    unseen: list[DataFile],
    lookup: RowLookup,
    marked: dict[str, BitMap64],
    *,
    schema_id: int,
) -> None:
    """Mark the older one of each two rows: the proposal's, or one that it has not seen."""
    for own in (*proposal.added, *proposal.deletes_added):
        for other in unseen:
            if own.key_min > other.key_max or other.key_min > own.key_max:
                continue
            lost, won = lookup.older_rows(own, other, schema_id)
            if own.format is not FileFormat.REMEMBERED:
                _mark(marked, own, lost)
            if other.format is not FileFormat.REMEMBERED:
                _mark(marked, other, won)


def _follow_older(
    proposal: Proposal,
    base: Version,
    unseen: list[DataFile],
    lookup: RowLookup,
    marked: dict[str, BitMap64],
    *,
    schema_id: int,
) -> None:
    """Find rows of rewritten files that the proposal marks again, unless they are newer by now.

    Deletes are not all remembered: those of rows from before the table had an order are not.
    """
    for path, positions in proposal.marked.items():
        before = base.files.get(path)
        if path in marked or before is None:
            continue
        keys = lookup.keys_at(before, positions)
        for file in unseen:
            _, older = lookup.older_rows(before, file, schema_id)
            _mark(marked, file, older & lookup.positions_of(file, keys))


def _carry_marks_to_outputs(
    proposal: Proposal,
    base: Version,
    current: Version,
    lookup: RowLookup,
    marked: dict[str, BitMap64],
) -> None:
    for path in proposal.removed:
        before, after = base.files[path], current.files[path]
        if before.vector == after.vector:
            continue
        marked_before, marked_after = lookup.vector(before), lookup.vector(after)
        if marked_before - marked_after:
            raise _void(f"rows of {path} came back in the meantime", path)
        landed = marked_after - marked_before
        if not landed:
            continue
        keys = lookup.keys_at(after, landed)
        for output in proposal.moved.get(path, proposal.added):
            _mark(marked, output, lookup.positions_of(output, keys))


def _mark(marked: dict[str, BitMap64], file: DataFile, positions: BitMap64) -> None:
    if positions:
        marked[file.path] = marked.get(file.path, BitMap64()) | positions


def _void(message: str, *keys: str) -> Conflict:
    return Conflict(message, keys=keys, hint="Plan the job again on the current version")


class RebasedProposal:
    """A proposal on its way to the Version that it changes, with its vectors; for one commit.

        base ──► settled ──► settled ──► staged?      settled   a committed Version: it stays there
                                └──────► staged?      staged    others' commits that may be lost

    A rebase on a committed Version is permanent: later ones only look at what follows. A rebase on
    a Version that others have only staged is temporary: when their segment is lost, the next one
    starts from the settled Version.

    The vectors of a lost try are garbage, unless the next try needs exactly the same.
    """

    def __init__(self, proposal: Proposal, base: Version, *, lookup: RowLookup) -> None:
        assert proposal.base == base.number
        self._proposal = proposal
        self._settled_on = base
        self._lookup = lookup
        self._made: tuple[Version, VersionEdit] | None = None
        self._written: tuple[Mapping[str, BitMap64], Mapping[str, VectorRef]] | None = None

    @property
    def number(self) -> int:
        """Number of the committed Version that it was rebased on."""
        return self._settled_on.number

    def edit_on(
        self, current: Version, touched: Collection[str] | None, *, is_committed: bool
    ) -> VersionEdit:
        """Return the edit for a Version; raises Conflict when the proposal is void there.

        `touched` is as in `rebase`, from `number` on.
        """
        # Compare the object, not its number: a staged Version may be lost, and another one
        # committed in its place.
        if self._made is not None and self._made[0] is current:
            return self._made[1]
        rebased = rebase(self._proposal, self._settled_on, current, self._lookup, touched=touched)
        if is_committed:
            self._proposal, self._settled_on = rebased, current
        edit = complete(rebased, current, self._lookup, self._write_once)
        self._made = current, edit
        return edit

    def _write_once(self, whole: Mapping[str, BitMap64]) -> Mapping[str, VectorRef]:
        if self._written is None or self._written[0] != whole:
            self._written = whole, self._lookup.write_vectors(whole)
        return self._written[1]
