"""The change feed, replayed into an empty dict, is the table at every Version, and live the table.

Histories are random: writes, deletes, flushes, compactions, rollbacks and evolutions, on real
tables. Replaying is strict: a row may be inserted only where there is none, and what an update or a
delete says was there before must be exactly what was there.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neve
from neve.model.arrow_types import ArrowField
from neve.storage.memory_store import forget_memory_stores
from tests.unit.read.table_bench import small_groups

Row = dict[str, object]
Key = tuple[object, ...]
Rows = dict[Key, Row]

_PLACES = count()
_OPTIONS = neve.TableOptions(sync="none", background=False)
_LABELS = ("_change_type", "_commit_version", "_commit_timestamp")
_NUMBERED: list[ArrowField] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("amount", pa.float32()),
    pa.field("tags", pa.list_(pa.string())),
]
# Keys of varying length: they are compared by their bytes.
_PLACED: list[ArrowField] = [
    pa.field("amount", pa.float32()),
    pa.field("shop", pa.string(), nullable=False),
    pa.field("id", pa.int32(), nullable=False),
    pa.field("tags", pa.list_(pa.string())),
]


@pytest.fixture(autouse=True, scope="module")
def _few_rows_a_group() -> Iterator[None]:
    with small_groups(4):
        yield


@dataclass(frozen=True)
class Write:
    """Some rows written and some deleted, and perhaps flushed."""

    written: dict[int, int]
    deleted: set[int]
    is_flushed: bool


@dataclass(frozen=True)
class Step:
    """Anything that makes a Version without writing rows."""

    kind: str
    pick: int


_IDS = st.integers(0, 14)
_WRITES = st.builds(
    Write,
    written=st.dictionaries(_IDS, st.integers(0, 2), max_size=10),
    deleted=st.sets(_IDS, max_size=4),
    is_flushed=st.sampled_from([True, True, False]),
)
_REWRITES = st.builds(Step, kind=st.sampled_from(["compact", "rollback"]), pick=st.integers(0, 30))
_EVOLUTIONS = st.builds(
    Step, kind=st.sampled_from(["add", "drop", "rename", "widen"]), pick=st.integers(0, 30)
)
UNEVOLVED = st.lists(_WRITES | _REWRITES, min_size=1, max_size=10)
_ROLLS = st.builds(Step, kind=st.just("roll"), pick=st.just(0))
_PARTITIONS = st.builds(Step, kind=st.just("partition"), pick=st.integers(0, 30))
HISTORIES = st.lists(_WRITES | _REWRITES | _EVOLUTIONS | _PARTITIONS, min_size=1, max_size=12)
# By the amount, an update may move a row to another partition.
PARTS: tuple[tuple[str, ...], ...] = ((), ("bucket(2, id)",), ("amount",))


class Told:
    """A table that a history is told to."""

    def __init__(self, table: neve.Table) -> None:
        self.table = table
        self.key = list(table.primary_key)
        self._names = count()

    def tell(self, step: Write | Step) -> None:
        if isinstance(step, Write):
            self._write(step)
        else:
            getattr(self, f"_{step.kind}")(step.pick)

    def _write(self, step: Write) -> None:
        rows = [self._row(number, value) for number, value in step.written.items()]
        if rows:
            self.table.upsert(rows)
        for number in step.deleted:
            row = self._row(number, 0)
            key = tuple(row[name] for name in self.key)
            self.table.delete(key if len(key) > 1 else key[0])
        if step.is_flushed:
            self.table.flush()

    def _row(self, number: int, value: int) -> Row:
        known: Row = {
            "id": number,
            "shop": "xyz"[: number % 3],
            "amount": [None, 0.5, math.nan][value],
            "tags": [None, [], ["a", None]][value],
        }
        schema = self.table.schema
        for amount in self._amounts():
            known[amount] = known["amount"]
        row = {name: known[name] for name in schema.arrow_schema.names if name in known}
        for column in schema.columns:
            if column.name.startswith("more") and value:
                row[column.name] = value
        return row

    def _compact(self, pick: int) -> None:
        self.table.compact(full=bool(pick % 2))

    def _roll(self, _pick: int) -> None:
        self.table._open.engine.writer._buffer.roll()

    def _rollback(self, pick: int) -> None:
        self.table.rollback(pick % self.table.version + 1)

    def _partition(self, pick: int) -> None:
        ways = [[], ["bucket(2, id)"], ["id"], *([name] for name in self._amounts())]
        with self.table.evolve() as e:
            e.set_partition_by(ways[pick % len(ways)])

    def _amounts(self) -> list[str]:
        return [each for each in self.table.schema.arrow_schema.names if each[:6] == "amount"]

    def _add(self, pick: int) -> None:
        with self.table.evolve() as e:
            e.add_column(f"more{next(self._names)}", pa.int32(), default=pick if pick % 2 else None)

    def _drop(self, pick: int) -> None:
        names = [each for each in self.table.schema.arrow_schema.names if each not in self.key]
        if names:
            name = names[pick % len(names)]
            with self.table.evolve() as e:
                if name in self.table.spec.texts(self.table.schema):
                    e.set_partition_by([])
                e.drop_column(name)

    def _rename(self, pick: int) -> None:
        names = self._amounts()
        if names and pick % 2:
            with self.table.evolve() as e:
                e.rename_column(names[0], f"amount{next(self._names)}")

    def _widen(self, pick: int) -> None:
        words = {pa.int32(): "long", pa.float32(): "double"}
        for column in self.table.schema.columns:
            if column.type in words and column.name not in self.key and pick % 2:
                with self.table.evolve() as e:
                    e.widen_column(column.name, words[column.type])
                return


@contextmanager
def told(
    history: list[Write | Step], *, numbered: bool, parts: tuple[str, ...] = ()
) -> Iterator[Told]:
    """Return a table in memory with a history."""
    fields, key = (_NUMBERED, ["id"]) if numbered else (_PLACED, ["shop", "id"])
    with (
        neve.open(f"memory://change-feed-{next(_PLACES)}") as lake,
        lake.create_table(
            "a.b", pa.schema(fields), key, partition_by=parts, options=_OPTIONS
        ) as table,
    ):
        story = Told(table)
        for step in history:
            story.tell(step)
        yield story
    forget_memory_stores()


def plain(row: Row) -> Row:
    """Return a row whose values compare: NaN is a word here."""
    return {
        name: "NaN" if isinstance(value, float) and math.isnan(value) else value
        for name, value in row.items()
        if name not in _LABELS
    }


def rows_at(table: neve.Table, version: int, key: list[str]) -> Rows:
    with table.at(version) as snapshot:
        return rows_of(snapshot.scan(), key)


def rows_of(scan: neve.Scan, key: list[str]) -> Rows:
    found = [plain(row) for row in scan.to_arrow().to_pylist()]
    return {tuple(row[name] for name in key): row for row in found}


def replay(rows: Rows, changes: list[Row], key: list[str]) -> None:
    """Do to rows what a feed says; strictly."""
    last: tuple[object, ...] = ()
    for change in changes:
        row, kind = plain(change), change["_change_type"]
        at = tuple(row[name] for name in key)
        # Live changes have no Version, and come last.
        version = change["_commit_version"]
        turn = (math.inf if version is None else version, at, kind == "update_postimage")
        assert last < turn, "commits in order, keys in order, the row before comes first"
        last = turn
        match kind:
            case "insert":
                assert at not in rows
                rows[at] = row
            case "update_preimage":
                assert rows.pop(at) == row
            case "update_postimage":
                assert at not in rows, "its row before came first"
                rows[at] = row
            case _:
                assert kind == "delete"
                assert rows.pop(at) == row


@given(history=HISTORIES, numbered=st.booleans(), parts=st.sampled_from(PARTS))
def test_replaying_from_the_beginning_gives_the_table_at_every_version(
    *, history: list[Write | Step], numbered: bool, parts: tuple[str, ...]
) -> None:
    with told(history, numbered=numbered, parts=parts) as story:
        for version in range(1, story.table.version + 1):
            rows: Rows = {}
            replay(rows, story.table.changes(0, version).read_all().to_pylist(), story.key)
            assert rows == rows_at(story.table, version, story.key)


@given(history=UNEVOLVED, numbered=st.booleans(), cuts=st.lists(st.integers(0, 30), max_size=3))
def test_stretches_behind_one_another_are_the_whole(
    history: list[Write | Step], *, numbered: bool, cuts: list[int]
) -> None:
    with told(history, numbered=numbered) as story:
        table, last = story.table, story.table.version
        marks = sorted({0, last, *(cut % (last + 1) for cut in cuts)})
        rows: Rows = {}
        for since, until in pairwise(marks):
            replay(rows, table.changes(since, until).read_all().to_pylist(), story.key)
            assert rows == (rows_at(table, until, story.key) if until else {})


@given(
    history=HISTORIES,
    last=st.lists(_WRITES | _ROLLS, max_size=4),
    numbered=st.booleans(),
    parts=st.sampled_from(PARTS),
)
def test_replaying_a_live_feed_gives_the_table_with_its_unflushed_rows(
    *,
    history: list[Write | Step],
    last: list[Write | Step],
    numbered: bool,
    parts: tuple[str, ...],
) -> None:
    with told([*history, *last], numbered=numbered, parts=parts) as story:
        table, key = story.table, story.key
        now = rows_of(table.scan(), key)
        rows: Rows = {}
        replay(rows, table.changes(0, live=True).read_all().to_pylist(), key)
        assert rows == now
        with table.at(table.version) as current:
            rows = rows_of(current.scan(), key)
        live = table.changes(table.version, live=True).read_all()
        replay(rows, live.to_pylist(), key)
        assert rows == now
        assert live["_commit_version"].null_count == live.num_rows


@given(history=HISTORIES)
def test_versions_that_change_no_row_are_not_told_of(history: list[Write | Step]) -> None:
    with told(history, numbered=True) as story:
        for commit in story.table.history().to_pylist():
            version, operation = commit["version"], commit["operation"]
            found = story.table.changes(version - 1, version).read_all()
            if operation in ("CREATE", "REPLACE", "EVOLVE"):
                assert not found.num_rows
            assert set(found.column("_commit_version").to_pylist()) <= {version}
            assert set(found.column("_commit_timestamp").to_pylist()) <= {commit["timestamp"]}
