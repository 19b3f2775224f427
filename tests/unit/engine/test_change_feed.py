"""The change feed of a live table: which stretches it tells, and what it holds meanwhile."""

import gc
import itertools
from collections.abc import Iterator
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.engine import background
from neve.errors import Closed, InvalidArgument, NotFound
from neve.keys.merge import WindowSize
from neve.model.arrow_types import ArrowField
from tests.unit.engine.other_committer import OtherCommitter

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
    return told_of(reader.read_all())


def told_of(found: pa.Table) -> Told:
    rows = found.to_pylist()
    return [
        (row["_commit_version"], row["_change_type"], row["id"], row.get("name")) for row in rows
    ]


def roll(table: neve.Table) -> None:
    """Let the next rows go to another memtable; none is flushed."""
    table._open.engine.writer._buffer.roll()


def held(table: neve.Table) -> int:
    """Leases in force, of whomever; those of forgotten readers have ended."""
    background._settle()
    return sum(1 for _ in table._open.engine.parts.leases.unexpired())


def expire_all(table: neve.Table) -> None:
    background._settle()  # a reader that is gone has ended
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


# Live


def test_live_changes_come_last_by_key_and_without_a_version(table: neve.Table) -> None:
    table.put({"id": 7, "name": "new"})
    table.delete(2)
    table.put({"id": 1, "name": "newest"})

    found = table.changes(3, live=True).read_all()

    assert told_of(found) == [
        (4, "delete", 0, "n0"),
        (None, "update_preimage", 1, "new"),
        (None, "update_postimage", 1, "newest"),
        (None, "delete", 2, "n2"),
        (None, "insert", 7, "new"),
    ]
    assert found["_commit_timestamp"].to_pylist()[1:] == [None] * 4
    assert told(table.changes(3)) == told_of(found)[:1], "nothing was flushed for it"


def test_only_a_live_feed_has_columns_that_may_be_null(table: neve.Table) -> None:
    labels = ("_change_type", "_commit_version", "_commit_timestamp")

    def nullable(schema: pa.Schema) -> list[bool]:
        return [schema.field(label).nullable for label in labels]

    assert nullable(table.changes(0).schema) == [False, False, False]
    assert nullable(table.changes(0, live=True).schema) == [False, True, True]
    assert table.changes(0, live=True).read_all().schema == table.changes(0, live=True).schema


def test_unflushed_rows_that_change_nothing_are_not_told_of(table: neve.Table) -> None:
    table.delete(99)
    table.put({"id": 8, "name": "short"})
    table.delete(8)
    table.delete(0)
    assert told(table.changes(4, live=True)) == []

    table.put({"id": 1, "name": "new"})  # the same row again
    assert told(table.changes(4, live=True)) == [
        (None, "update_preimage", 1, "new"),
        (None, "update_postimage", 1, "new"),
    ]


def test_a_flush_commits_what_was_live_and_tells_it_again(table: neve.Table) -> None:
    table.put({"id": 1, "name": "newest"})
    table.upsert([{"id": 5, "name": "five"}, {"id": 2, "name": "two"}])
    table.delete(5)
    table.upsert([{"id": 6, "name": "six"}])
    live = told(table.changes(4, live=True))

    table.flush()

    assert told(table.changes(4)) == [(5, *rest) for _, *rest in live]
    assert told(table.changes(5, live=True)) == []


def test_rows_of_several_memtables_are_one_change_each(table: neve.Table) -> None:
    table.put({"id": 1, "name": "first"})
    table.put({"id": 5, "name": "gone soon"})
    table.delete(2)
    roll(table)
    table.put({"id": 1, "name": "second"})
    table.delete(5)
    roll(table)
    table.put({"id": 2, "name": "back"})

    assert told(table.changes(4, live=True)) == [
        (None, "update_preimage", 1, "new"),
        (None, "update_postimage", 1, "second"),
        (None, "update_preimage", 2, "n2"),
        (None, "update_postimage", 2, "back"),
    ]


def test_a_live_feed_is_one_view_whatever_happens_before_it_is_read(table: neve.Table) -> None:
    table.put({"id": 1, "name": "newest"})
    table.delete(2)
    expected = told(table.changes(0, live=True))
    reader = table.changes(0, live=True)

    table.put({"id": 1, "name": "too late"})
    table.put({"id": 50, "name": "too late"})
    table.flush()
    table.compact(full=True)
    expire_all(table)

    assert told(reader) == expected
    del reader
    expire_all(table)
    assert held(table) == 0


@pytest.mark.parametrize("consumer", [None, "me"])
def test_a_reader_that_has_ended_holds_nothing_though_it_is_kept(
    table: neve.Table, consumer: str | None
) -> None:
    reader = table.changes(0, consumer=consumer)
    assert held(table) == 1

    assert reader.read_all().num_rows

    assert held(table) == 0
    reader.close()


def test_partial_writes_are_live_as_reads_see_them(table: neve.Table) -> None:
    with table.evolve() as e:
        e.add_column("n", pa.int64())
    table.upsert([{"id": 1, "n": 10}, {"id": 9, "n": 90}], columns=["n"])
    roll(table)
    table.upsert([{"id": 1, "name": "part"}], columns=["name"])
    OtherCommitter(table).upsert([{"id": 1, "name": "theirs", "n": 5}])

    found = table.changes(table.version, live=True).read_all().to_pylist()

    assert [(row["_commit_version"], row["id"], row["name"], row["n"]) for row in found] == [
        (6, 1, "new", None),
        (6, 1, "theirs", 5),
        (None, 1, "theirs", 5),
        (None, 1, "part", 10),
        (None, 9, None, 90),
    ]


def test_live_rows_written_under_an_older_schema_come_in_the_current_one(table: neve.Table) -> None:
    table.put({"id": 1, "name": "before"})
    with table.evolve() as e:
        e.rename_column("name", "title")
        e.add_column("note", pa.string(), default="-")
    table.put({"id": 2, "title": "after", "note": "!"})

    found = table.changes(table.version, live=True).read_all().to_pylist()

    assert [(row["_change_type"], row["title"], row["note"]) for row in found] == [
        ("update_preimage", "new", "-"),
        ("update_postimage", "before", "-"),
        ("update_preimage", "n2", "-"),
        ("update_postimage", "after", "!"),
    ]


def test_a_handle_that_only_reads_tells_live_what_is_in_the_log(
    lake: Lake, table: neve.Table
) -> None:
    with lake.table("a.b", read_only=True) as reader:
        assert told(reader.changes(4, live=True)) == []
        table.put({"id": 1, "name": "logged"})
        assert told(reader.changes(4, live=True)) == told(table.changes(4, live=True))
        table.flush()
        table.delete(1)

        assert told(reader.changes(4, live=True)) == [
            (5, "update_preimage", 1, "new"),
            (5, "update_postimage", 1, "logged"),
            (None, "delete", 1, "logged"),
        ]


def test_a_live_feed_refreshes_rows_and_definition_of_its_handle(
    lake: Lake, table: neve.Table
) -> None:
    with lake.table("a.b", read_only=True) as reader:
        with table.evolve() as e:
            e.rename_column("id", "number")
        table.put({"number": 9, "name": "new"})

        found = reader.changes(4, live=True).read_all().to_pylist()

        assert [(row["number"], row["_change_type"]) for row in found] == [(9, "insert")]
        assert list(reader.primary_key) == ["number"]
        assert reader.get(9) == {"number": 9, "name": "new"}


def test_a_table_without_a_flush_has_live_changes_only(lake: Lake) -> None:
    table = lake.create_table("a.c", pa.schema(_FIELDS), ["id"], options=BY_HAND)
    table.put({"id": 1, "name": "one"})

    assert told(table.changes(0, live=True)) == [(None, "insert", 1, "one")]


def test_many_live_changes_come_in_batches(
    table: neve.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neve.read.memory_rows.MEMORY_ROWS", 100)
    monkeypatch.setattr("neve.keys.merge.DEFAULT_SIZE", WindowSize(rows=100))
    monkeypatch.setattr("neve.read.changes._GATHERED_ROWS", 100)
    table.upsert([{"id": number, "name": "again"} for number in range(1, 1_000)])

    batches = list(table.changes(4, live=True))

    assert max(map(len, batches)) <= 300
    told_ids = [each for batch in batches for each in batch.column("id").to_pylist()]
    assert told_ids == [1, 1, 2, 2, *range(3, 1_000)]


# What cannot be told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"since": 9, "live": True}, "there is no version 9 yet"),
        ({"since": None, "live": True}, "since=None is not the number of a version"),
        ({"since": 0, "until": 4, "live": True}, "live changes come after the current version"),
        ({"since": 0, "live": "yes"}, "live='yes' is invalid"),
        ({"consumer": "c", "live": 1}, "live=1 is invalid"),
    ],
    ids=str,
)
def test_a_live_feed_that_can_never_be_is_refused(
    table: neve.Table, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        table.changes(**options)

    assert not table.consumers().num_rows
    assert held(table) == 0


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
