"""Changes between Versions: which rows, in which order, and how little is read for them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from neve.errors import Corruption, SchemaMismatch
from neve.keys import merge
from neve.keys.order import RowKeys, paired_order
from neve.model.data_file import DataFile, FileFormat
from neve.model.schema import Column
from neve.model.version import Operation, Version, VersionEdit, VersionFacts, apply_edit
from neve.read import change_plan, change_rows, changes
from neve.read.change_plan import CommitChanges, plan_changes
from neve.read.change_rows import ChangeRows
from neve.read.changes import change_batches, feed_schema
from neve.sstable.data_file_reader import DataFileReader
from tests.unit.read.table_bench import (
    FORMATS,
    PLACED,
    NotedAccess,
    TableBench,
    numbered,
    schema_of,
)

Told = list[tuple[str, object, object]]


class Commits:
    """A table's Versions, made of files of a bench by hand."""

    def __init__(self, bench: TableBench) -> None:
        self.bench = bench
        self.version: Version | None = None
        self.checks = 0
        self.commit(Operation.CREATE)

    def commit(
        self,
        operation: Operation = Operation.OVERWRITE,
        *,
        added: Iterable[DataFile] = (),
        removed: Iterable[DataFile] = (),
        marked: Mapping[str, DataFile] | None = None,
    ) -> CommitChanges | None:
        """Commit an edit; gives what it did to rows."""
        number = 0 if self.version is None else self.version.number
        facts = VersionFacts(
            operation=operation, timestamp_ms=1_000 * (number + 1), schema_id=0, spec_id=0
        )
        vectors = {path: file.vector for path, file in (marked or {}).items()}
        edit = VersionEdit(
            base=number,
            facts=facts,
            added=tuple(added),
            removed=tuple(file.path for file in removed),
            vectors={path: vector for path, vector in vectors.items() if vector is not None},
        )
        before, self.version = self.version, apply_edit(self.version, edit)
        return plan_changes(before, edit, self.version)

    def mark(self, file: DataFile, dead: Iterable[int]) -> CommitChanges | None:
        """Commit a longer vector of one file."""
        return self.commit(Operation.DELETE, marked={file.path: self.bench.mark(file, dead)})

    def batches(self, commit: CommitChanges | None) -> Iterable[pa.RecordBatch]:
        assert commit is not None
        rows = ChangeRows(NotedAccess(self.bench), self.bench.context, self._check)
        return change_batches(commit, rows, feed_schema(self.bench.schema))

    def told(self, commit: CommitChanges | None, column: str = "name") -> Told:
        """Return the changes of a commit in short: what happened, key, one value."""
        rows = [row for batch in self.batches(commit) for row in batch.to_pylist()]
        return [(row["_change_type"], row["id"], row[column]) for row in rows]

    def told_together(self, commits: list[CommitChanges]) -> Told:
        """Return the changes of commits that are read as one group."""
        rows = ChangeRows(NotedAccess(self.bench), self.bench.context, self._check)
        rows.read_together(commits)
        schema = feed_schema(self.bench.schema)
        batches = (batch for commit in commits for batch in change_batches(commit, rows, schema))
        told = [row for batch in batches for row in batch.to_pylist()]
        return [(row["_change_type"], row["id"], row.get("name")) for row in told]

    def _check(self) -> None:
        self.checks += 1


# What happened


@pytest.mark.parametrize("file_format", FORMATS.values(), ids=FORMATS)
def test_a_key_on_both_sides_was_updated_and_the_row_before_comes_first(
    file_format: FileFormat,
) -> None:
    commits = Commits(TableBench())
    old = commits.bench.add(numbered(range(40), "old "), level=1, file_format=file_format)
    inserted = commits.commit(Operation.APPEND, added=[old])
    new = commits.bench.add(numbered([7, 35, 99], "new "), file_format=file_format)
    marked = {old.path: commits.bench.mark(old, [7, 20, 35])}

    assert commits.told(inserted) == [("insert", n, f"old {n}") for n in range(40)]
    assert commits.told(commits.commit(added=[new], marked=marked)) == [
        ("update_preimage", 7, "old 7"),
        ("update_postimage", 7, "new 7"),
        ("delete", 20, "old 20"),
        ("update_preimage", 35, "old 35"),
        ("update_postimage", 35, "new 35"),
        ("insert", 99, "new 99"),
    ]


def test_only_what_a_commit_marks_itself_is_deleted_by_it() -> None:
    commits = Commits(TableBench())
    file = commits.bench.add(numbered(range(40)))
    commits.commit(added=[file])

    first = commits.mark(file, [1, 2])
    second = commits.mark(file, [1, 2, 30])

    assert commits.told(first) == [("delete", 1, "1"), ("delete", 2, "2")]
    assert commits.told(second) == [("delete", 30, "30")]


def test_rows_that_an_added_file_marks_itself_are_not_told_of() -> None:
    commits = Commits(TableBench())
    file = commits.bench.add(numbered(range(4)), dead=[0, 2])

    assert commits.told(commits.commit(added=[file])) == [("insert", 1, "1"), ("insert", 3, "3")]


def test_an_update_to_the_same_row_is_an_update() -> None:
    commits = Commits(TableBench())
    old = commits.bench.add(numbered([1]))
    commits.commit(added=[old])
    new = commits.bench.add(numbered([1]))

    changed = commits.commit(removed=[old], added=[new])

    assert [kind for kind, _, _ in commits.told(changed)] == ["update_preimage", "update_postimage"]


@pytest.mark.parametrize("operation", [Operation.REPLACE, Operation.EVOLVE])
def test_rewrites_and_evolutions_change_no_row(operation: Operation) -> None:
    commits = Commits(TableBench())
    old = commits.bench.add(numbered(range(5)))
    commits.commit(added=[old])
    new = commits.bench.add(numbered(range(5)), level=1)

    assert commits.commit(operation, removed=[old], added=[new]) is None


def test_a_rollback_tells_what_differs_and_nothing_else() -> None:
    commits = Commits(TableBench())
    old = commits.bench.add(numbered(range(40)), level=1)
    commits.commit(added=[old])
    rewritten = commits.bench.add(
        [*numbered(range(5)), *numbered([5], "new "), *numbered(range(7, 41))], level=2
    )
    commits.commit(Operation.REPLACE, removed=[old], added=[rewritten])

    back = commits.commit(Operation.ROLLBACK, removed=[rewritten], added=[old])

    assert commits.told(back) == [
        ("update_preimage", 5, "new 5"),
        ("update_postimage", 5, "5"),
        ("insert", 6, "6"),
        ("delete", 40, "40"),
    ]


def test_a_rollback_to_an_older_vector_brings_its_rows_back() -> None:
    commits = Commits(TableBench())
    file = commits.bench.add(numbered(range(40)))
    commits.commit(added=[file])
    early = commits.bench.mark(file, [3])
    commits.commit(Operation.DELETE, marked={file.path: early})
    commits.mark(file, [3, 4, 39])
    assert commits.version is not None
    late = commits.version.files[file.path]

    back = commits.commit(Operation.ROLLBACK, removed=[late], added=[early])
    further = commits.commit(Operation.ROLLBACK, removed=[early], added=[file])

    assert commits.told(back) == [("insert", 4, "4"), ("insert", 39, "39")]
    assert commits.told(further) == [("insert", 3, "3")]


def test_equal_rows_are_known_by_their_values_whatever_the_type() -> None:
    nested = pa.struct([("a", pa.list_(pa.float64())), ("b", pa.map_(pa.string(), pa.int32()))])
    bench = TableBench(schema_of([pa.field("id", pa.int64()), pa.field("name", nested)], ["id"]))
    commits = Commits(bench)
    values: list[Any] = [
        None,
        {"a": [math.nan, None], "b": [("x", 1)]},
        {"a": [], "b": None},
        {"a": None, "b": []},
    ]
    rows = [{"id": number, "name": value} for number, value in enumerate(values)]
    old, new = bench.add(rows), bench.add([*rows[:2], {**rows[3], "id": 2}, rows[3]])
    commits.commit(added=[old])

    back = commits.told(commits.commit(Operation.ROLLBACK, removed=[old], added=[new]))

    assert [(kind, key) for kind, key, _ in back] == [
        ("update_preimage", 2),
        ("update_postimage", 2),
    ]


# Order


def test_rows_of_many_files_come_by_key_whatever_their_keys_are() -> None:
    commits = Commits(TableBench(PLACED))
    bench = commits.bench

    def rows(ids: Iterable[int], amount: float) -> list[dict[str, object]]:
        return [{"amount": amount, "shop": "ab"[: n % 3], "id": n} for n in ids]

    old = [bench.add(rows(range(first, 90, 3), 1.0)) for first in range(3)]
    commits.commit(added=old)
    new = [bench.add(rows(range(first, 120, 2), 2.0)) for first in range(2)]

    changed = commits.commit(removed=old, added=new)

    found = [row for batch in commits.batches(changed) for row in batch.to_pylist()]
    order = [(row["shop"], row["id"], row["amount"]) for row in found]
    assert order == sorted(order)
    assert len(found) == 90 + 120
    assert {row["_change_type"] for row in found if row["id"] >= 90} == {"insert"}
    assert {row["_change_type"] for row in found if row["id"] < 90} == {
        "update_preimage",
        "update_postimage",
    }


def test_of_a_key_on_both_sides_the_left_row_comes_first() -> None:
    words = [np.array(each, np.uint64) for each in ([1, 5, 9], [0, 5, 9, 10])]
    texts = [pa.array([b"b", b"f", b"k"], pa.binary()), pa.array([b"a", b"f", b"k", b"l"])]

    for left, right in (words, texts):
        order, paired = paired_order([RowKeys(left)], [RowKeys(right)])
        assert order.tolist() == [3, 0, 1, 4, 2, 5, 6]
        assert paired.tolist() == [False, False, True, True, True, True, False]


@pytest.mark.parametrize(
    ("left", "right"),
    [([[1, 5], [5, 9]], [[5]]), ([[5]], [[1, 5], [3, 5]]), ([[5], [5]], [[7]])],
)
def test_a_key_that_one_side_has_twice_is_corruption(
    left: list[list[int]], right: list[list[int]]
) -> None:
    def words(parts: list[list[int]]) -> list[RowKeys]:
        return [RowKeys(np.array(part, np.uint64)) for part in parts]

    def texts(parts: list[list[int]]) -> list[RowKeys]:
        return [RowKeys(pa.array([b"%d" % number for number in part])) for part in parts]

    for keys in (words, texts):
        with pytest.raises(Corruption, match="two live rows have the key"):
            paired_order(keys(left), keys(right))


def test_small_overlapping_files_are_joined_in_one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = Commits(TableBench())
    old = [commits.bench.add(numbered(range(first, 64, 4))) for first in range(4)]
    commits.commit(added=old)
    new = [commits.bench.add(numbered(range(first, 80, 2))) for first in range(2)]
    changed = commits.commit(removed=old, added=new)
    parts: list[tuple[int, int]] = []

    def noted(left: list[RowKeys], right: list[RowKeys]) -> object:
        parts.append((len(left), len(right)))
        return paired_order(left, right)

    monkeypatch.setattr(changes, "paired_order", noted)

    assert len(commits.told(changed)) == 64 + 80
    assert parts == [(1, 1)], "small files are one block"


# Columns


def test_a_feed_has_the_columns_of_the_table_and_three_of_its_own() -> None:
    commits = Commits(TableBench())
    (batch,) = commits.batches(commits.commit(added=[commits.bench.add(numbered([4]))]))

    assert batch.schema.names[-3:] == ["_change_type", "_commit_version", "_commit_timestamp"]
    assert batch.schema == feed_schema(commits.bench.schema)
    assert batch.column("_commit_version").to_pylist() == [2]
    assert batch.column("_commit_timestamp").cast(pa.int64()).to_pylist() == [2_000]


def test_rows_of_older_schemas_are_told_in_the_schema_of_the_feed() -> None:
    bench = TableBench()
    commits = Commits(bench)
    old = bench.add(numbered(range(20)))
    commits.commit(added=[old])
    renamed = tuple(
        replace(column, name={"id": "number", "name": "title"}.get(column.name, column.name))
        for column in bench.schema.columns
        if column.name != "day"
    )
    note = Column(field_id=9, name="note", type=pa.string(), nullable=True, initial_default="none")
    bench.evolve(replace(bench.schema, schema_id=1, columns=(note, *renamed), last_field_id=9))
    written = {"note": "some", "number": 4, "title": "new", "amount": 1.0}
    new = bench.add([written])

    changed = commits.commit(added=[new], marked={old.path: bench.mark(old, [4])})

    (batch,) = commits.batches(changed)
    assert batch.select([0, 1, 2, 3, 4]).to_pylist() == [
        {
            "note": "none",
            "number": 4,
            "title": "4",
            "amount": 1.0,
            "_change_type": "update_preimage",
        },
        {**written, "_change_type": "update_postimage"},
    ]


@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_commit_timestamp"])
def test_a_column_with_the_name_of_one_of_the_feeds_own_is_refused(name: str) -> None:
    schema = schema_of([pa.field("id", pa.int64()), pa.field(name, pa.string())], ["id"])

    with pytest.raises(SchemaMismatch, match="Rename the column"):
        feed_schema(schema)


# What is read


def test_groups_without_a_changed_row_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = Commits(TableBench())
    file = commits.bench.add(numbered(range(160)))  # ten groups of sixteen
    commits.commit(added=[file])
    marked = commits.mark(file, [20, 21, 150])
    touched: list[tuple[int, int]] = []
    read = DataFileReader.read

    def noted(self: DataFileReader, *args: Any, **asked: Any) -> pa.Table:  # noqa: ANN401
        touched.append((asked["start"], asked["stop"]))
        return read(self, *args, **asked)

    monkeypatch.setattr(DataFileReader, "read", noted)

    assert [key for _, key, _ in commits.told(marked)] == [20, 21, 150]
    assert touched == [(16, 32), (144, 160)]


def test_a_large_commit_streams_file_by_file_and_group_by_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes, "_GATHERED_ROWS", 16)  # as many as a group has here
    monkeypatch.setattr(change_rows, "_BLOCK_ROWS", 16)
    monkeypatch.setattr(change_rows, "_SMALL_ROWS", 16)
    monkeypatch.setattr(merge, "DEFAULT_SIZE", merge.WindowSize(rows=16))
    commits = Commits(TableBench())
    files = [
        commits.bench.add(numbered(range(first, first + 64)), level=1)
        for first in range(0, 640, 64)
    ]
    loaded = commits.commit(added=files)

    batches = iter(commits.batches(loaded))
    first = next(batches)

    assert first.num_rows <= 16
    assert commits.bench.opened == [files[0].path]
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 640


def test_few_rows_from_many_places_are_one_batch() -> None:
    commits = Commits(TableBench())
    files = [commits.bench.add(numbered(range(first, 160, 8))) for first in range(8)]

    (batch,) = commits.batches(commits.commit(added=files))

    assert batch.column("id").to_pylist() == list(range(160))


def test_nothing_is_read_without_a_look_whether_it_may_be() -> None:
    commits = Commits(TableBench())
    loaded = commits.commit(added=[commits.bench.add(numbered(range(64)))])

    assert len(commits.told(loaded)) == 64
    assert commits.checks == 1 + 4


# Commits that are told together


def a_row_a_commit(commits: Commits, file: DataFile, marks: Iterable[int]) -> list[CommitChanges]:
    """Mark one more row of a file with each commit."""
    dead: list[int] = []
    made: list[CommitChanges] = []
    for position in marks:
        dead.append(position)
        commit = commits.mark(file, dead)
        assert commit is not None
        made.append(commit)
    return made


@pytest.mark.parametrize("file_format", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("is_numbered", [True, False], ids=["numbers", "texts"])
def test_commits_that_mark_the_same_groups_read_them_once(
    monkeypatch: pytest.MonkeyPatch, *, is_numbered: bool, file_format: FileFormat
) -> None:
    commits = Commits(TableBench() if is_numbered else TableBench(PLACED))
    placed = [{"amount": 1.0, "shop": "s", "id": number} for number in range(160)]
    rows = numbered(range(160)) if is_numbered else placed
    file = commits.bench.add(rows, file_format=file_format)  # ten groups of sixteen
    commits.commit(added=[file])
    made = a_row_a_commit(commits, file, [20, 150, 21, 16, 159])
    starts: list[int] = []
    read = DataFileReader.read

    def noted(self: DataFileReader, *args: Any, **asked: Any) -> pa.Table:  # noqa: ANN401
        starts.append(asked["start"])
        return read(self, *args, **asked)

    monkeypatch.setattr(DataFileReader, "read", noted)

    assert [key for _, key, _ in commits.told_together(made)] == [20, 150, 21, 16, 159]
    assert starts == [16, 144]


def test_a_commit_that_marks_less_than_the_one_before_it_is_told_all_the_same() -> None:
    commits = Commits(TableBench())
    file = commits.bench.add(numbered(range(40)))
    commits.commit(added=[file])
    made = [commits.mark(file, dead) for dead in ([1, 5], [5, 30], [7, 8, 30])]

    assert commits.told_together([each for each in made if each is not None]) == [
        ("delete", 1, "1"),
        ("delete", 5, "5"),
        ("insert", 1, "1"),
        ("delete", 30, "30"),
        ("insert", 5, "5"),
        ("delete", 7, "7"),
        ("delete", 8, "8"),
    ]


def test_groups_of_commits_end_with_their_rows_their_bytes_and_at_a_rollback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commits = Commits(TableBench())
    file = commits.bench.add(numbered(range(40)))
    commits.commit(added=[file])
    made = a_row_a_commit(commits, file, range(6))
    back = replace(made[3], drops_equal=True)

    def sizes(given: Iterable[CommitChanges]) -> list[int]:
        return [len(group) for group in change_plan.grouped(given)]

    assert sizes([]) == []
    assert sizes(made) == [6]
    assert sizes([*made[:3], back, *made[4:]]) == [3, 1, 2]
    monkeypatch.setattr(change_plan, "_GROUP_ROWS", 4)
    assert sizes(made) == [4, 2]
    monkeypatch.setattr(change_plan, "_GROUP_COMMITS", 3)
    assert sizes(made) == [3, 3]
    monkeypatch.setattr(change_plan, "_GROUP_BYTES", 1)
    assert sizes(made) == [1] * 6
