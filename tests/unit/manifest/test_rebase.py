"""Carrying a change over to a newer Version, one situation at a time, on real rows."""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from pyroaring import BitMap64

from neve.errors import Conflict, Corruption
from neve.manifest.rebase import Keys, Proposal, complete, rebase
from neve.model.data_file import DataFile, FileFormat
from neve.model.version import Operation, Version, VersionEdit, apply_edit
from neve.testing.model_rows import ModelRows, keys_of
from tests.unit.manifest.builders import facts

Rows = list[tuple[bytes, bytes]]


@dataclass
class Desk:
    """A table as bare Versions: proposals are applied by hand."""

    rows: ModelRows = field(default_factory=ModelRows)
    versions: list[Version] = field(default_factory=list)
    edits: list[VersionEdit] = field(default_factory=list)
    names: int = 0

    def __post_init__(self) -> None:
        created = VersionEdit(base=0, facts=facts(Operation.CREATE))
        self.edits.append(created)
        self.versions.append(apply_edit(None, created))

    @property
    def current(self) -> Version:
        return self.versions[-1]

    def file(self, level: int = 0, **rows: str) -> DataFile:
        self.names += 1
        encoded = {key.encode(): value.encode() for key, value in rows.items()}
        return self.rows.add_file(f"data/{self.names}.parquet", encoded, level=level)

    def upsert(self, base: Version | None = None, *, level: int = 0, **rows: str) -> Proposal:
        return self.change(base, added=(self.file(level, **rows),), keys=tuple(rows))

    def delete(self, *keys: str, base: Version | None = None) -> Proposal:
        return self.change(base, keys=keys, operation=Operation.DELETE)

    def change(
        self,
        base: Version | None,
        *,
        added: tuple[DataFile, ...] = (),
        keys: tuple[str, ...] = (),
        operation: Operation = Operation.OVERWRITE,
    ) -> Proposal:
        based_on = base or self.current
        encoded = keys_of(key.encode() for key in keys)
        marked = {
            path: positions
            for path, file in based_on.files.items()
            if (positions := self.rows.live_positions(file, encoded))
        }
        return Proposal(
            base=based_on.number,
            facts=facts(operation),
            added=added,
            marked=marked,
            keys=(encoded,),
        )

    def compact(self, *paths: str, base: Version | None = None, level: int = 0) -> Proposal:
        based_on = base or self.current
        inputs = [based_on.files[path] for path in paths or based_on.files]
        merged: dict[str, str] = {}
        for file in inputs:
            live = self.rows.live_rows_of(file)
            merged |= {key.decode(): value.decode() for key, value in live.items()}
        return Proposal(
            base=based_on.number,
            facts=facts(Operation.REPLACE),
            added=(self.file(level, **merged),) if merged else (),
            removed=tuple(file.path for file in inputs),
        )

    def carry(self, proposal: Proposal, base: Version) -> Proposal:
        """Carry over in both ways: with the paths that edits touched, and comparing all files."""
        touched = [path for edit in self.edits[base.number :] for path in _touched_by(edit)]
        carried = rebase(proposal, base, self.current, self.rows, touched=touched)
        assert carried == rebase(proposal, base, self.current, self.rows)
        return carried

    def _apply(self, edit: VersionEdit) -> Version:
        self.edits.append(edit)
        self.versions.append(apply_edit(self.current, edit))
        return self.current

    def commit(self, proposal: Proposal) -> Version:
        base = self.versions[proposal.base - 1]
        carried = self.carry(proposal, base)
        edit = complete(carried, self.current, self.rows)
        return self._apply(edit)

    def roll_back(self, number: int) -> Version:
        edit = VersionEdit(
            base=self.current.number,
            facts=facts(Operation.ROLLBACK),
            removed=tuple(self.current.files),
            added=tuple(self.versions[number - 1].files.values()),
        )
        return self._apply(edit)

    def shows(self, **rows: str) -> bool:
        wanted = [(key.encode(), value.encode()) for key, value in sorted(rows.items())]
        return self.rows.live_rows(self.current) == wanted


def _touched_by(edit: VersionEdit) -> list[str]:
    return [*edit.removed, *edit.vectors, *(file.path for file in edit.added)]


@pytest.fixture
def desk() -> Desk:
    """Return a table with the rows a=1, b=1, c=1 in one file."""
    made = Desk()
    made.commit(made.upsert(a="1", b="1", c="1"))
    return made


def test_a_proposal_on_the_current_version_is_left_as_it_is(desk: Desk) -> None:
    proposal = desk.upsert(a="2")

    assert rebase(proposal, desk.current, desk.current, desk.rows) is proposal


def test_rows_that_were_added_in_between_are_superseded(desk: Desk) -> None:
    late = desk.upsert(a="late", x="late")
    desk.commit(desk.upsert(a="2", x="2", y="2"))

    desk.commit(late)

    assert desk.shows(a="late", b="1", c="1", x="late", y="2")


def test_an_append_that_replaces_rows_of_others_is_one_no_more(desk: Desk) -> None:
    late = replace(desk.upsert(x="late"), facts=facts(Operation.APPEND))
    base = desk.current
    desk.commit(desk.upsert(x="2"))

    rebased = rebase(late, base, desk.current, desk.rows)

    assert rebased.marked
    assert rebased.facts.operation is Operation.OVERWRITE


def test_a_delete_also_deletes_rows_that_were_added_in_between(desk: Desk) -> None:
    late = desk.delete("a", "x")
    desk.commit(desk.upsert(a="2", x="2"))

    desk.commit(late)

    assert desk.shows(b="1", c="1")


def test_marks_of_both_sides_on_one_file_are_united(desk: Desk) -> None:
    late = desk.delete("a")
    desk.commit(desk.delete("b"))

    version = desk.commit(late)

    assert desk.shows(c="1")
    (file,) = version.files.values()
    assert desk.rows.vector(file) == BitMap64([0, 1])


def test_marks_on_a_file_that_was_rewritten_are_followed_by_key(desk: Desk) -> None:
    late = desk.delete("b")
    desk.commit(desk.compact())

    version = desk.commit(late)

    assert desk.shows(a="1", c="1")
    assert len(version.files) == 1


def test_marks_are_followed_also_without_keys(desk: Desk) -> None:
    late = replace(desk.delete("b"), keys=())
    desk.commit(desk.compact())

    desk.commit(late)

    assert desk.shows(a="1", c="1")


def test_a_file_rewritten_twice_is_followed_to_where_its_rows_are(desk: Desk) -> None:
    late = desk.upsert(b="late")
    desk.commit(desk.compact())
    desk.commit(desk.upsert(d="1"))
    desk.commit(desk.compact())

    desk.commit(late)

    assert desk.shows(a="1", b="late", c="1", d="1")


def test_marks_that_landed_on_the_inputs_of_a_rewrite_are_carried_to_its_outputs(
    desk: Desk,
) -> None:
    late = desk.compact()
    desk.commit(desk.delete("a"))
    desk.commit(desk.upsert(b="2"))

    version = desk.commit(late)

    assert desk.shows(b="2", c="1")
    assert late.added[0].path in version.files


def test_marks_are_looked_for_only_where_a_rewrite_says_that_rows_went(desk: Desk) -> None:
    first = next(iter(desk.current.files))
    desk.commit(desk.upsert(d="1", e="1"))
    second = next(path for path in desk.current.files if path != first)
    one, other = desk.compact(first), desk.compact(second)
    late = replace(
        one,
        added=one.added + other.added,
        removed=one.removed + other.removed,
        moved={first: one.added, second: other.added},
    )
    desk.commit(desk.delete("a", "d"))
    looked_in: list[str] = []
    find = desk.rows.positions_of

    def noting(file: DataFile, keys: Keys) -> BitMap64:
        looked_in.append(file.path)
        return find(file, keys)

    desk.rows.positions_of = noting  # type: ignore[method-assign]

    desk.commit(late)

    assert desk.shows(b="1", c="1", e="1")
    assert set(Counter(looked_in).values()) == {2}, "once for each of the two ways to carry"


def test_a_rewrite_carried_over_twice_carries_all_marks(desk: Desk) -> None:
    late = desk.compact()
    base = desk.current
    desk.commit(desk.delete("a"))
    once = rebase(late, base, desk.current, desk.rows)
    desk.commit(desk.delete("b"))

    desk.commit(once)

    assert desk.shows(c="1")


def test_a_rewrite_whose_input_is_gone_is_void(desk: Desk) -> None:
    late = desk.compact()
    (input_path,) = late.removed
    desk.commit(desk.compact())

    with pytest.raises(Conflict, match="rewritten or removed") as caught:
        desk.commit(late)

    assert caught.value.keys == (input_path,)
    assert caught.value.hint is not None
    assert desk.shows(a="1", b="1", c="1")


def test_rewrites_of_different_files_do_not_hinder_each_other(desk: Desk) -> None:
    desk.commit(desk.upsert(x="1"))
    first, second = desk.current.files
    left, right = desk.compact(first), desk.compact(second)

    desk.commit(left)
    desk.commit(right)

    assert desk.shows(a="1", b="1", c="1", x="1")


def test_a_rewrite_leaves_files_alone_that_were_added_in_between(desk: Desk) -> None:
    late = desk.compact()
    desk.commit(desk.upsert(x="2"))

    desk.commit(late)

    assert desk.shows(a="1", b="1", c="1", x="2")


def test_two_rewrites_into_the_same_keys_of_a_level_do_not_both_commit(desk: Desk) -> None:
    desk.commit(desk.upsert(b2="1"))
    first, second = desk.current.files
    left, right = desk.compact(first, level=1), desk.compact(second, level=1)
    desk.commit(left)

    with pytest.raises(Conflict, match="level 1"):
        desk.commit(right)

    assert desk.shows(a="1", b="1", b2="1", c="1")


def test_two_rewrites_into_different_keys_of_a_level_both_commit(desk: Desk) -> None:
    desk.commit(desk.upsert(x="1"))
    first, second = desk.current.files
    left, right = desk.compact(first, level=1), desk.compact(second, level=1)

    desk.commit(left)
    desk.commit(right)

    assert desk.shows(a="1", b="1", c="1", x="1")


# Rollbacks bring rows back that were marked in the base.


def test_a_row_that_a_rollback_brought_back_is_superseded(desk: Desk) -> None:
    desk.commit(desk.upsert(a="2"))  # marks a=1 in the first file
    late = desk.upsert(a="late")
    desk.roll_back(2)  # a=1 is back

    desk.commit(late)

    assert desk.shows(a="late", b="1", c="1")


def test_a_row_that_came_back_is_found_although_other_rows_of_its_file_went_since(
    desk: Desk,
) -> None:
    desk.commit(desk.upsert(a="2"))
    late = desk.delete("a")
    desk.roll_back(2)
    desk.commit(desk.delete("b", "c"))  # the vector is larger than it was in the base

    desk.commit(late)

    assert desk.shows()


def test_a_rewrite_of_a_file_whose_rows_came_back_is_void(desk: Desk) -> None:
    desk.commit(desk.delete("a"))
    late = desk.compact()
    desk.roll_back(2)

    with pytest.raises(Conflict, match="came back"):
        desk.commit(late)

    assert desk.shows(a="1", b="1", c="1")


def test_a_change_that_removes_a_file_whose_rows_came_back_is_void(desk: Desk) -> None:
    desk.commit(desk.upsert(a="2"))
    first, _ = desk.current.files
    late = replace(desk.delete("b", "c"), removed=(first,), marked={})
    desk.roll_back(2)

    with pytest.raises(Conflict, match="came back"):
        desk.commit(late)

    assert desk.shows(a="1", b="1", c="1")


def test_a_rollback_is_never_carried_over(desk: Desk) -> None:
    late = Proposal(base=desk.current.number, facts=facts(Operation.ROLLBACK))
    desk.commit(desk.upsert(x="1"))

    with pytest.raises(Conflict, match="rolled back"):
        desk.commit(late)


# Schemas.


def evolve(desk: Desk, schema_id: int) -> Proposal:
    return Proposal(base=desk.current.number, facts=facts(Operation.EVOLVE, schema_id=schema_id))


def test_a_change_of_rows_follows_a_change_of_schema(desk: Desk) -> None:
    late = desk.upsert(a="late")
    desk.commit(evolve(desk, 1))

    version = desk.commit(late)

    assert version.facts.schema_id == 1
    assert version.files[late.added[0].path].schema_id == 0
    assert desk.shows(a="late", b="1", c="1")


def test_of_two_changes_of_schema_the_later_one_is_void(desk: Desk) -> None:
    late = evolve(desk, 2)
    desk.commit(evolve(desk, 1))

    with pytest.raises(Conflict, match="schema"):
        desk.commit(late)


# Completing.


def test_a_proposal_without_marks_writes_no_vectors(desk: Desk) -> None:
    proposal = desk.upsert(x="1")

    edit = complete(proposal, desk.current, desk.rows, lambda _: pytest.fail("wrote vectors"))

    assert edit.vectors == {}


def test_marks_that_are_there_already_write_no_vectors(desk: Desk) -> None:
    proposal = desk.delete("a")
    desk.commit(desk.delete("a"))

    carried = rebase(proposal, desk.versions[1], desk.current, desk.rows)
    edit = complete(carried, desk.current, desk.rows, lambda _: pytest.fail("wrote vectors"))

    assert edit.vectors == {}


def test_every_row_of_a_file_may_be_marked(desk: Desk) -> None:
    version = desk.commit(desk.delete("a", "b", "c"))

    assert version.row_count == 0
    assert desk.shows()


# With an order: the greater value is newer


def by_order(proposal: Proposal) -> Proposal:
    return replace(proposal, is_ordered=True)


def remembered(desk: Desk, **orders: str) -> DataFile:
    desk.names += 1
    encoded = {key.encode(): order.encode() for key, order in orders.items()}
    file = desk.rows.add_file(f"deletes/{desk.names}.remembered.parquet", encoded)
    return replace(file, format=FileFormat.REMEMBERED)


def remembering(desk: Desk, base: Version | None = None, **orders: str) -> Proposal:
    """Propose deletes that are remembered."""
    deletes = (remembered(desk, **orders),)
    return by_order(replace(desk.delete(*orders, base=base), deletes_added=deletes))


def test_of_two_rows_the_newer_one_stays_whoever_was_first(desk: Desk) -> None:
    base = desk.current
    desk.commit(by_order(desk.upsert(a="5", b="3", d="2")))

    desk.commit(by_order(desk.upsert(base, a="4", b="4", c="2", d="2")))

    assert desk.shows(a="5", b="4", c="2", d="2")
    theirs, own = list(desk.current.files.values())[1:]
    # Of equal ones the later commit stays.
    assert desk.rows.vector(theirs) == BitMap64([1, 2])
    assert desk.rows.vector(own) == BitMap64([0])


def test_a_row_that_is_older_than_a_delete_in_between_is_marked(desk: Desk) -> None:
    base = desk.current
    desk.commit(remembering(desk, a="5", b="5", x="5"))

    desk.commit(by_order(desk.upsert(base, a="4", b="6", x="4", y="1")))

    assert desk.shows(b="6", c="1", y="1")
    assert len(desk.current.deletes) == 1


def test_a_delete_marks_only_older_rows_of_others(desk: Desk) -> None:
    base = desk.current
    desk.commit(by_order(desk.upsert(a="5", b="7", d="5")))

    desk.commit(remembering(desk, base, a="6", b="6", c="6", d="5"))

    assert desk.shows(b="7")
    assert len(desk.current.deletes) == 1


def test_marks_with_an_order_follow_rewritten_files(desk: Desk) -> None:
    base = desk.current
    desk.commit(desk.compact())

    # A delete of a row from before the table had an order is not remembered.
    desk.commit(by_order(desk.delete("a", base=base)))

    assert desk.shows(b="1", c="1")


def test_marks_with_an_order_do_not_follow_to_newer_rows(desk: Desk) -> None:
    base = desk.current
    desk.commit(by_order(desk.upsert(a="9")))
    desk.commit(desk.compact())

    desk.commit(by_order(desk.delete("a", "b", base=base)))

    assert desk.shows(a="9", c="1")


def test_rows_are_compared_again_after_each_lost_race(desk: Desk) -> None:
    base = desk.current
    proposal = by_order(desk.upsert(base, a="4", b="4", c="4"))
    desk.commit(by_order(desk.upsert(a="5")))
    carried = desk.carry(proposal, base)
    settled = desk.current
    desk.commit(remembering(desk, b="5"))
    desk.commit(by_order(desk.upsert(c="3")))

    again = rebase(carried, settled, desk.current, desk.rows)
    desk._apply(complete(again, desk.current, desk.rows))

    assert desk.shows(a="5", c="4")


def test_files_of_remembered_deletes_are_added_and_removed(desk: Desk) -> None:
    desk.commit(remembering(desk, a="5"))
    (first,) = desk.current.deletes
    other = remembered(desk, a="5", b="6")

    desk._apply(
        VersionEdit(
            base=desk.current.number,
            facts=facts(Operation.REPLACE),
            deletes_added=(other,),
            deletes_removed=(first,),
        )
    )

    assert list(desk.current.deletes) == [other.path]
    assert desk.shows(b="1", c="1")
    with pytest.raises(Corruption, match="not there"):
        desk._apply(
            VersionEdit(
                base=desk.current.number,
                facts=facts(Operation.REPLACE),
                deletes_removed=(first,),
            )
        )
