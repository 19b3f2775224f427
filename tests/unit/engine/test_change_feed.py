"""The change feed of a live table: which stretches it tells, and what it holds meanwhile."""

import gc
import itertools
from collections.abc import Iterator
from threading import Event

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.errors import Closed, InvalidArgument, NotFound
from neve.model.arrow_types import ArrowField

_PLACES = itertools.count()
_FIELDS: list[ArrowField] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("name", pa.string()),
]
BY_HAND = neve.TableOptions(sync="none", background=False)
Told = list[tuple[object, ...]]


@pytest.fixture
def lake() -> Iterator[Lake]:
    with neve.open(f"memory://unit-change-feed-{next(_PLACES)}") as catalog:
        yield catalog


@pytest.fixture
def table(lake: Lake) -> neve.Table:
    """Version 2 has ids 0, 1, 2; version 3 another name of 1; version 4 lacks 0."""
    made = lake.create_table("a.b", pa.schema(_FIELDS), ["id"], options=BY_HAND)
    made.upsert([{"id": number, "name": f"n{number}"} for number in range(3)])
    made.flush()
    made.put({"id": 1, "name": "new"})
    made.flush()
    made.delete(0)
    made.flush()
    return made


def told(reader: pa.RecordBatchReader) -> Told:
    found = reader.read_all().to_pylist()
    return [
        (row["_commit_version"], row["_change_type"], row["id"], row.get("name")) for row in found
    ]


def held(table: neve.Table) -> int:
    """Leases in force, of whomever."""
    return sum(1 for _ in table._open.engine.parts.leases.unexpired())


def expire_all(table: neve.Table) -> None:
    table.expire(keep_last=1)
    table.collect_garbage(dry_run=False)


# Stretches


def test_changes_begin_behind_one_version_and_end_with_another(table: neve.Table) -> None:
    inserts: Told = [(2, "insert", number, f"n{number}") for number in range(3)]
    update: Told = [(3, "update_preimage", 1, "n1"), (3, "update_postimage", 1, "new")]
    delete: Told = [(4, "delete", 0, "n0")]

    assert told(table.changes(0)) == inserts + update + delete
    assert told(table.changes(since=1, until=2)) == inserts
    assert told(table.changes(2)) == update + delete
    assert told(table.changes(2, 3)) == update
    assert told(table.changes(4)) == told(table.changes(2, 2)) == told(table.changes(0, 0)) == []


def test_rows_that_are_not_flushed_are_in_no_version_and_not_told_of(table: neve.Table) -> None:
    table.put({"id": 7, "name": "unflushed"})
    assert told(table.changes(4)) == []

    table.put({"id": 7, "name": "flushed"})
    table.flush()
    assert told(table.changes(4)) == [(5, "insert", 7, "flushed")]


def test_a_row_written_and_deleted_between_two_flushes_never_was(table: neve.Table) -> None:
    table.put({"id": 8, "name": "short"})
    table.delete(8)
    table.put({"id": 9, "name": "long"})
    table.flush()

    assert told(table.changes(4)) == [(5, "insert", 9, "long")]


def test_a_compaction_is_told_as_nothing_and_loses_no_row_before(table: neve.Table) -> None:
    table.compact(full=True)
    table.put({"id": 1, "name": "newest"})
    last = table.flush()

    assert told(table.changes(4, last - 1)) == []
    assert told(table.changes(4)) == [
        (last, "update_preimage", 1, "new"),
        (last, "update_postimage", 1, "newest"),
    ]
    assert len(told(table.changes(0, 4))) == 6


def test_a_rollback_is_told_by_what_differs(table: neve.Table) -> None:
    table.compact(full=True)
    back = table.rollback(2)

    assert told(table.changes(back - 1)) == [
        (back, "insert", 0, "n0"),
        (back, "update_preimage", 1, "new"),
        (back, "update_postimage", 1, "n1"),
    ]


def test_rows_come_in_the_schema_of_the_last_version_that_is_told(table: neve.Table) -> None:
    with table.evolve() as e:
        e.rename_column("name", "title")
        e.add_column("note", pa.string(), default="-")

    before, after = table.changes(0, 4), table.changes(0)

    assert before.schema.names[:2] == ["id", "name"]
    assert after.schema.names[:3] == ["id", "title", "note"]
    last = after.read_all().to_pylist()[-1]
    assert (last["title"], last["note"], last["_change_type"]) == ("n0", "-", "delete")


def test_a_handle_that_only_reads_tells_the_same(lake: Lake, table: neve.Table) -> None:
    with lake.table("a.b", read_only=True) as reader:
        assert told(reader.changes(0)) == told(table.changes(0))
        table.put({"id": 5, "name": "later"})
        table.flush()
        assert told(reader.changes(4)) == [(5, "insert", 5, "later")]


# What cannot be told


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        (5, None, "there is no version 5 yet. The current version is 4"),
        (0, 9, "there is no version 9 yet. The current version is 4"),
        (3, 2, "until=2 is before since=3"),
        (-1, None, "since=-1 is not the number of a version"),
        (True, None, "since=True is not the number of a version"),
        (0, 2.0, "until=2.0 is not the number of a version"),
        ("2", None, "since='2' is not the number of a version"),
        (None, None, "since=None is not the number of a version"),
        (None, 2, "since=None is not the number of a version"),
    ],
    ids=str,
)
def test_a_stretch_that_can_never_be_is_refused(
    table: neve.Table, since: int, until: int | None, said: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        table.changes(since, until)

    shown = str(caught.value).replace(f", in {caught.value.path}", "")
    assert shown.startswith(said)
    assert held(table) == 0


def test_below_retention_it_is_said_from_where_changes_are_kept(table: neve.Table) -> None:
    table.expire(keep_last=2)

    for since in (0, 1, 2):
        with pytest.raises(NotFound, match="Changes are kept from since=3 on"):
            table.changes(since)
    assert told(table.changes(3)) == [(4, "delete", 0, "n0")]
    assert held(table) == 0


def test_a_tagged_version_alone_is_no_history(table: neve.Table) -> None:
    table.tag("kept", 2)
    table.expire(keep_last=1)

    with pytest.raises(NotFound, match="since=4"):
        table.changes(2)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), "a", None, True], ids=str)
def test_a_follower_waits_for_some_time(table: neve.Table, seconds: float) -> None:
    with pytest.raises(InvalidArgument, match="poll_seconds"):
        table.follow(0, poll_seconds=seconds)


@pytest.mark.parametrize("stop", [5, False, "now"], ids=str)
def test_a_follower_is_stopped_by_an_event_and_nothing_else(table: neve.Table, stop: Event) -> None:
    with pytest.raises(InvalidArgument, match=r"stop=.*threading\.Event"):
        table.follow(0, stop=stop)
    assert held(table) == 0


# What is held


def test_history_stays_while_a_reader_runs_and_goes_with_it(table: neve.Table) -> None:
    everything = told(table.changes(0))
    table.compact(full=True)
    reader = table.changes(0)
    first = reader.read_next_batch()

    expire_all(table)
    rest = told(reader)

    assert len(first) + len(rest) == len(everything)
    assert rest == everything[len(first) :]
    expire_all(table)
    assert held(table) == 0
    with pytest.raises(NotFound):
        table.changes(0)


def test_what_a_follower_has_not_heard_of_yet_does_not_expire(table: neve.Table) -> None:
    batches = table.follow(0, poll_seconds=60.0)
    heard = [next(batches).column("_commit_version")[0].as_py() for _ in range(3)]
    for number in range(3):
        table.put({"id": 7, "name": f"later {number}"})
        table.flush()

    expire_all(table)
    heard += [next(batches).column("_commit_version")[0].as_py() for _ in range(3)]

    assert heard == [2, 3, 4, 5, 6, 7]
    expire_all(table)
    with pytest.raises(NotFound, match="since=4"):
        table.changes(3)  # it holds nothing that it has heard of
    assert told(table.changes(4))[0][0] == 5
    del batches
    expire_all(table)
    assert held(table) == 0


@pytest.mark.parametrize("how", ["never read", "read in part", "read"])
def test_a_reader_that_is_forgotten_holds_nothing(table: neve.Table, how: str) -> None:
    gc.disable()  # not by luck of the collector
    try:
        reader = table.changes(0)
        assert held(table) == 1
        if how == "read in part":
            reader.read_next_batch()
        elif how == "read":
            reader.read_all()
        del reader
        assert held(table) == 0
    finally:
        gc.enable()


def test_a_reader_ends_with_its_table(table: neve.Table) -> None:
    reader = table.changes(0)
    reader.read_next_batch()

    table.close()

    with pytest.raises(Closed, match="the table was closed"):
        reader.read_all()


def test_a_failure_is_told_as_what_it_is(table: neve.Table) -> None:
    """Arrow hands errors of a feed on as they were raised."""
    reader = table.changes(0)
    parts = table._open.engine.parts
    for path in table._open.engine.current.view.files.version.files:
        parts.objects.delete(f"{parts.paths.root}/{path}")
    table._open.engine.files.close()

    with pytest.raises(NotFound, match="parquet"):
        reader.read_all()


def test_a_lease_that_lapsed_ends_the_reader_before_a_file_is_touched(table: neve.Table) -> None:
    reader = table.changes(0)
    table._open.engine.leases.close()

    with pytest.raises(neve.Fenced, match="the lease on version 1 was not renewed"):
        reader.read_all()
