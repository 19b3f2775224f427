"""Named consumers of a table's change feed: where they read on, and what stays for them."""

from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.engine import background
from neve.engine.change_feed import ChangeFeed
from neve.errors import Closed, InvalidArgument, NotFound, Unavailable
from neve.jobs.maintenance import CommittedMaintenance
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock

DAY_SECONDS = 24 * 60 * 60
BY_HAND = neve.TableOptions(sync="none", background=False)


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def lake(clock: SimulatedClock) -> Lake:
    return Lake(MemoryStore(), clock=clock, ids=SeededIds(0))


@pytest.fixture
def table(lake: Lake) -> neve.Table:
    """Versions 2, 3 and 4 have one row each."""
    made = lake.create_table(
        "a.b", {"id": "long", "name": "string"}, primary_key="id", options=BY_HAND
    )
    for number in (2, 3, 4):
        write(made, number)
    return made


def write(table: neve.Table, number: int) -> None:
    """Commit a Version with a row of its number."""
    table.put({"id": number, "name": f"n{number}"})
    assert table.flush() == number


def read(reader: pa.RecordBatchReader) -> list[int | None]:
    """Read to the end; return the Versions that made changes, None for live ones."""
    return [row["_commit_version"] for row in reader.read_all().to_pylist()]


def positions(table: neve.Table) -> dict[str, int]:
    return {row["name"]: row["position"] for row in table.consumers().to_pylist()}


def expire_all(table: neve.Table) -> neve.ExpireReport:
    background._settle()  # a reader that is gone has ended
    report = table.expire(keep_last=1)
    table.collect_garbage(dry_run=False)
    return report


# Positions


def test_a_consumer_reads_on_where_it_stopped_whatever_the_handle(
    lake: Lake, table: neve.Table
) -> None:
    assert read(table.changes(consumer="c")) == [2, 3, 4]
    write(table, 5)
    with lake.table("a.b", read_only=True) as reader:
        assert read(reader.changes(consumer="c")) == [5]
        assert read(reader.changes(consumer="c")) == []
        assert read(reader.changes(consumer="other")) == [2, 3, 4, 5]
        assert positions(reader) == {"c": 5, "other": 5}
    assert positions(table) == {"c": 5, "other": 5}


def test_a_new_consumer_starts_after_since(table: neve.Table) -> None:
    assert read(table.changes(since=3, consumer="c")) == [4]
    assert read(table.changes(4, consumer="d")) == []
    assert positions(table) == {"c": 4, "d": 4}


def test_a_new_consumer_of_a_table_with_a_part_of_its_history_starts_at_the_oldest_version(
    table: neve.Table,
) -> None:
    table.expire(keep_last=2)

    assert read(table.changes(consumer="c")) == [4]


def test_a_consumer_skips_forward_and_never_goes_back(table: neve.Table) -> None:
    read(table.changes(since=2, consumer="c"))
    write(table, 5)
    write(table, 6)
    table.changes(since=5, consumer="c")
    assert positions(table) == {"c": 4}, "a skip that was not read is not stored"

    assert read(table.changes(since=5, consumer="c")) == [6]
    assert read(table.changes(since=0, consumer="c")) == []
    assert positions(table) == {"c": 6}


def test_live_changes_are_read_again_once_they_are_flushed(table: neve.Table) -> None:
    table.put({"id": 9, "name": "live"})

    assert read(table.changes(consumer="c", live=True)) == [2, 3, 4, None]
    assert positions(table) == {"c": 4}
    assert read(table.changes(consumer="c", live=True)) == [None]
    assert read(table.changes(consumer="c")) == []

    table.flush()

    assert read(table.changes(consumer="c", live=True)) == [5]
    assert positions(table) == {"c": 5}


def test_a_live_reader_that_is_dropped_half_way_moves_nothing(table: neve.Table) -> None:
    table.put({"id": 9, "name": "live"})
    reader = table.changes(consumer="c", live=True)
    for _ in range(4):
        reader.read_next_batch()
    del reader

    assert positions(table) == {"c": 0}


def test_a_reader_that_is_dropped_half_way_moves_nothing(table: neve.Table) -> None:
    reader = table.changes(consumer="c")
    reader.read_next_batch()
    del reader
    assert positions(table) == {"c": 0}

    reader = table.changes(consumer="c")
    for _ in range(3):
        reader.read_next_batch()
    reader.close()
    assert positions(table) == {"c": 0}, "the end was not read"

    assert read(table.changes(consumer="c")) == [2, 3, 4]
    assert positions(table) == {"c": 4}


def test_an_error_in_the_middle_of_the_work_moves_nothing(table: neve.Table) -> None:
    def work() -> None:
        for batch in table.changes(consumer="c"):
            if batch.column("_commit_version")[0].as_py() == 3:
                raise ValueError("the work failed")

    with pytest.raises(ValueError, match="the work failed"):
        work()

    assert positions(table) == {"c": 0}
    assert read(table.changes(consumer="c")) == [2, 3, 4]


def test_a_file_that_cannot_be_read_moves_nothing(table: neve.Table) -> None:
    reader = table.changes(consumer="c")
    parts = table._open.engine.parts
    for path in table._open.engine.current.view.files.version.files:
        parts.objects.delete(f"{parts.paths.root}/{path}")
    table._open.engine.files.close()

    with pytest.raises(NotFound, match="parquet"):
        reader.read_all()

    assert positions(table) == {"c": 0}


def test_a_position_that_cannot_be_stored_is_an_error_at_the_end(
    table: neve.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise Unavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(table._open.engine.parts.writer_state, "advance_consumer", fail)
        with pytest.raises(Unavailable, match="no answer"):
            table.changes(consumer="c").read_all()

    assert read(table.changes(consumer="c")) == [2, 3, 4]


def test_of_two_readers_the_one_that_came_further_counts(table: neve.Table) -> None:
    slow = table.changes(consumer="c")
    write(table, 5)
    fast = table.changes(consumer="c")

    assert read(fast) == [2, 3, 4, 5]
    assert positions(table) == {"c": 5}
    assert read(slow) == [2, 3, 4]
    assert positions(table) == {"c": 5}


def test_the_position_moves_only_when_the_work_says_so(table: neve.Table) -> None:
    consumed = ChangeFeed(table._open.engine).consume("c")

    assert (consumed.since, consumed.until) == (0, 4)
    assert len([*consumed.batches()]) == 3
    assert positions(table) == {"c": 0}
    consumed.finish()
    assert positions(table) == {"c": 4}


def test_a_consumer_moves_nothing_when_its_table_is_closed(lake: Lake, table: neve.Table) -> None:
    with lake.table("a.b", read_only=True) as reader:
        changes = reader.changes(consumer="c")
    with pytest.raises(Closed):
        changes.read_all()

    assert positions(table) == {"c": 0}


# What is shown, and what is refused


def test_consumers_are_listed_by_name(table: neve.Table, clock: SimulatedClock) -> None:
    assert table.consumers().num_rows == 0
    read(table.changes(consumer="b"))
    clock.advance(1.5)
    table.changes(since=2, consumer="a", keep_seconds=0.5)
    now = datetime.fromtimestamp(clock.now_ms() / 1_000, tz=UTC)
    clock.advance(1)

    assert {field.name: str(field.type) for field in table.consumers().schema} == {
        "name": "string",
        "position": "int64",
        "updated": "timestamp[ms, tz=UTC]",
        "keep_seconds": "double",
        "holds": "bool",
    }
    first, second = table.consumers().to_pylist()
    assert first == {
        "name": "a",
        "position": 2,
        "updated": now,
        "keep_seconds": 0.5,
        "holds": False,
    }
    assert (second["name"], second["keep_seconds"], second["holds"]) == ("b", 604_800.0, True)


def test_a_consumer_is_dropped_once(lake: Lake, table: neve.Table) -> None:
    read(table.changes(consumer="billing"))

    with pytest.raises(NotFound, match=r"no consumer 'biling'\. Did you mean 'billing'"):
        table.drop_consumer("biling")
    with lake.table("a.b", read_only=True) as reader:
        reader.drop_consumer("billing")
    with pytest.raises(NotFound):
        table.drop_consumer("billing")
    assert positions(table) == {}


REFUSED: dict[str, tuple[Callable[[neve.Table], object], str]] = {
    "until": (lambda table: table.changes(0, 3, consumer="c"), "up to the current version"),
    "keep alone": (lambda table: table.changes(0, keep_seconds=5), "needs a consumer"),
    "neither": (lambda table: table.changes(), "since=None is not the number of a version"),
    "since": (lambda table: table.changes(-1, consumer="c"), "since=-1"),
    "later": (lambda table: table.changes(5, consumer="c"), "there is no version 5 yet"),
    "name": (lambda table: table.changes(consumer=""), "cannot be the name of a consumer"),
    "control": (lambda table: table.changes(consumer="a\tb"), "cannot be the name"),
    "long": (lambda table: table.changes(consumer="x" * 256), "cannot be the name"),
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_can_never_be_read_is_refused_and_stores_nothing(table: neve.Table, call: str) -> None:
    act, said = REFUSED[call]

    with pytest.raises(InvalidArgument, match=said):
        act(table)

    assert positions(table) == {}


@pytest.mark.parametrize("keep", [0, -1.0, float("nan"), float("inf"), "7d", True, 1 << 40])
def test_a_time_that_history_cannot_be_kept_for_is_refused(table: neve.Table, keep: float) -> None:
    with pytest.raises(InvalidArgument, match="keep_seconds="):
        table.changes(consumer="c", keep_seconds=keep)

    assert positions(table) == {}


def test_a_lake_for_reading_only_stores_no_consumer(lake: Lake, table: neve.Table) -> None:
    read(table.changes(consumer="c"))
    beside = Lake(lake._stores.objects, clock=lake._stores.clock, read_only=True)
    with beside.table("a.b") as reader:
        assert positions(reader) == {"c": 4}
        with pytest.raises(InvalidArgument, match="reading only"):
            reader.changes(consumer="c")
        with pytest.raises(InvalidArgument, match="reading only"):
            reader.drop_consumer("c")


# What is kept


def test_what_a_consumer_has_not_read_stays_and_goes_with_it(table: neve.Table) -> None:
    read(table.changes(since=2, consumer="c"))
    write(table, 5)
    write(table, 6)
    table.compact(full=True)

    report = expire_all(table)

    assert (report.oldest_version, [each.name for each in report.consumers]) == (4, ["c"])
    assert read(table.changes(consumer="c")) == [5, 6]
    report = expire_all(table)
    assert (report.oldest_version, report.consumers) == (table.version, ())


@pytest.mark.parametrize("way", ["live", "upkeep", "job"])
def test_every_way_to_expire_leaves_what_a_consumer_has_not_read(
    table: neve.Table, way: str, clock: SimulatedClock
) -> None:
    table.set_properties({"neve.retention.versions": "1", "neve.retention.milliseconds": "1"})
    read(table.changes(since=2, consumer="c"))
    last = table.version
    for number in range(last + 1, last + 4):
        write(table, number)
    table.compact(full=True)
    clock.advance(60)

    match way:
        case "live":
            expire_all(table)
        case "upkeep":
            table._open.engine.upkeep.tend_once()
        case _:
            job = CommittedMaintenance(table._open.engine.parts)
            report = job.expire(keep_last=1)
            job.collect_garbage(dry_run=False)
            assert [each.name for each in report.consumers] == ["c"]

    assert table.history()["version"].to_pylist()[0] == last
    assert read(table.changes(consumer="c")) == [last + 1, last + 2, last + 3]


def test_a_consumer_that_is_away_for_too_long_is_not_waited_for(
    table: neve.Table, clock: SimulatedClock
) -> None:
    read(table.changes(consumer="c", keep_seconds=DAY_SECONDS))
    write(table, 5)
    write(table, 6)
    clock.advance(DAY_SECONDS - 1)
    assert expire_all(table).oldest_version == 4
    clock.advance(1)
    assert expire_all(table).oldest_version == 6

    (row,) = table.consumers().to_pylist()
    assert (row["position"], row["holds"]) == (4, False)
    with pytest.raises(NotFound, match="the history after version 4 has expired") as caught:
        table.changes(consumer="c")
    assert "drop_consumer('c')" in str(caught.value)
    assert "since=6" in str(caught.value)
    with pytest.raises(NotFound, match=r"drop_consumer\('c'\)"):
        table.changes(since=5, consumer="c")

    write(table, 7)
    assert read(table.changes(since=6, consumer="c")) == [7]
    write(table, 8)
    assert expire_all(table).oldest_version == 7
    assert read(table.changes(consumer="c")) == [8]


def test_a_new_consumer_cannot_start_in_history_that_has_expired(table: neve.Table) -> None:
    table.expire(keep_last=1)

    with pytest.raises(NotFound, match="Changes are kept from since=4 on"):
        table.changes(since=2, consumer="c")
    assert positions(table) == {}


def test_an_idle_consumer_that_looks_now_and_then_keeps_what_comes(
    table: neve.Table, clock: SimulatedClock
) -> None:
    for _ in range(30):
        assert read(table.changes(since=4, consumer="c")) == []
        clock.advance(DAY_SECONDS)
    write(table, 5)
    write(table, 6)
    expire_all(table)

    assert read(table.changes(consumer="c")) == [5, 6]
