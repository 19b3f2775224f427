"""Rows that expire: readers leave them out at once, upkeep removes them."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyroaring import BitMap64

import neve
from neve.catalog.lake import Lake
from neve.engine.row_expiry import STEP_FILES, RowExpiry, _Step, pause_seconds
from neve.errors import SchemaMismatch
from neve.jobs.maintenance import CommittedMaintenance
from neve.model.data_file import DataFile
from neve.model.row_rules import TimeToLive, cutoff_at
from neve.model.version import EXPIRED_ROWS, Version
from neve.sstable.data_file_reader import DataFileReader
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.unit.engine.other_committer import OtherCommitter

OPTIONS: Final = neve.TableOptions(background=False)
START: Final = dt.datetime.fromtimestamp(SimulatedClock().now_ms() / 1_000, dt.UTC)
HOUR: Final = 3_600.0
SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
    ]
)
Row = dict[str, object]


class Bench:
    """A table whose rows live for an hour, and a clock."""

    def __init__(
        self,
        *,
        ttl: tuple[str, str] | None = ("ts", "1 hour"),
        merge: Mapping[str, str] | None = None,
        order_by: Sequence[str] = (),
    ) -> None:
        self.clock = SimulatedClock()
        self.objects = MemoryStore()
        self.lake = self.a_lake()
        self.table: neve.Table = self.lake.create_table(
            "a.b", SCHEMA, ["id"], ttl=ttl, merge=merge, order_by=order_by, options=OPTIONS
        )

    def a_lake(self) -> Lake:
        return Lake(self.objects, clock=self.clock, ids=SeededIds(self.clock.now_ms()))

    def reopen(self) -> None:
        self.lake.close()
        self.lake = self.a_lake()
        self.table = self.lake.table("a.b", options=OPTIONS)

    def stored(self) -> list[int]:
        """Ids of the rows in the files of the current Version, whether they have expired or not."""
        engine = self.table._open.engine
        version = engine.parts.versions.snapshot_latest().version
        view = engine.files.view(version)
        keys = view.context.encoder.encode_arrays([pa.array(range(-10, 200), pa.int64())])
        rows, _ = view.get_many(keys, 0)
        return column_of(rows)

    @property
    def version(self) -> Version:
        return self.table._open.stored.versions.snapshot_latest().version


def column_of(rows: pa.Table) -> list[int]:
    return sorted(cast("list[int]", rows.column("id").to_pylist()))


def row(id_: int, minutes: float | None, v: int = 0) -> Row:
    """Return a row with a time some minutes after the start."""
    return {"id": id_, "v": v, "ts": at(minutes)}


def at(minutes: float | None) -> dt.datetime | None:
    return None if minutes is None else START + dt.timedelta(minutes=minutes)


@pytest.fixture
def bench() -> Iterator[Bench]:
    found = Bench()
    with found.lake:
        yield found


def ids(table: neve.Table | neve.Snapshot) -> list[int]:
    """Read in every way there is, which all agree."""
    scanned = column_of(table.scan().to_arrow())
    assert table.scan().count() == len(scanned)
    assert table.scan(columns=["v"]).to_arrow().num_rows == len(scanned)
    assert table.scan(key_range=(None, None)).to_arrow().column("id").to_pylist() == scanned
    backwards = table.scan(reverse=True, limit=2).to_arrow().column("id").to_pylist()
    assert backwards == scanned[::-1][:2]
    assert table.scan(pc.field("id") >= 0).count() == sum(each >= 0 for each in scanned)
    assert table.scan("ts is null").count() <= len(scanned)
    every = list(range(-5, 60))
    assert table.get_many(every).column("id").to_pylist() == scanned
    assert [each for each in every if table.get(each) is not None] == scanned
    missing = table.get_many(every, with_missing=True)
    assert missing.num_rows == len(every)
    assert missing.column("id").null_count == len(every) - len(scanned)
    return scanned


# Readers


@pytest.mark.parametrize("place", ["memory", "frozen memory", "file", "compacted file"])
def test_expired_rows_disappear_at_once(bench: Bench, place: str) -> None:
    table = bench.table
    table.put(row(4, 0))
    table.upsert([row(1, 0), row(2, 30), row(3, None)])
    if place == "frozen memory":
        table._open.engine.writer._buffer.roll()
    elif place != "memory":
        table.flush()
    if place == "compacted file":
        table.compact(full=True)

    assert ids(table) == [1, 2, 3, 4]
    bench.clock.advance(HOUR - 0.001)
    assert ids(table) == [1, 2, 3, 4]
    bench.clock.advance(0.001)
    assert ids(table) == [2, 3]
    bench.clock.advance(HOUR)
    assert ids(table) == [3]


def test_a_newer_row_that_has_expired_hides_the_older_one(bench: Bench) -> None:
    bench.table.put(row(1, 600))
    bench.table.flush()
    bench.table.put(row(1, 0))
    bench.clock.advance(HOUR)

    assert ids(bench.table) == []
    bench.table.flush()
    assert ids(bench.table) == []


def test_rows_written_already_expired_are_accepted_and_never_visible(bench: Bench) -> None:
    sequence = bench.table.put(row(1, -600))

    assert sequence
    assert ids(bench.table) == []
    bench.table.compact()
    assert bench.stored() == []


def test_a_snapshot_keeps_its_moment(bench: Bench) -> None:
    bench.clock.advance(HOUR - 60)
    bench.table.upsert([row(1, 0), row(2, 30)])
    scan = bench.table.scan()
    with bench.table.snapshot() as snapshot:
        bench.clock.advance(60)

        assert ids(snapshot) == [1, 2]
        assert scan.count() == 2
        assert ids(bench.table) == [2]
        bench.table.compact()
        assert ids(snapshot) == [1, 2]


def test_an_old_version_shows_its_rows_as_of_its_commit(bench: Bench) -> None:
    bench.table.upsert([row(1, 0), row(2, 30)])
    first = bench.table.flush()
    bench.clock.advance(HOUR)
    bench.table.put(row(3, 60))
    second = bench.table.flush()
    bench.clock.advance(2 * HOUR)

    assert ids(bench.table) == []
    assert ids(bench.table.at(first)) == [1, 2]
    assert ids(bench.table.at(second)) == [2, 3]
    assert ids(bench.table.at(timestamp=at(80))) == [2, 3]


def test_when_the_clock_goes_back_rows_that_are_stored_are_visible_again(bench: Bench) -> None:
    bench.table.put(row(1, 0))
    bench.clock.advance(HOUR)
    assert ids(bench.table) == []

    bench.clock.set_now_ms(bench.clock.now_ms() - 1)

    assert ids(bench.table) == [1]


def test_limits_count_rows_that_have_not_expired(bench: Bench) -> None:
    bench.table.upsert([row(each, each) for each in range(50)])
    bench.table.flush()
    bench.clock.advance(HOUR + 40 * 60)

    found = bench.table.scan(key_range=(None, None), limit=3).to_arrow()

    assert found.column("id").to_pylist() == [41, 42, 43]
    assert bench.table.scan(limit=20).to_arrow().num_rows == 9


def test_files_are_pruned_by_the_time(bench: Bench) -> None:
    for minutes in (0, 100, 200):
        bench.table.upsert([row(minutes + each, minutes + each) for each in range(10)])
        bench.table.flush()
    bench.clock.advance(HOUR + 105 * 60)

    plan = bench.table.scan().explain()

    assert plan.files_read == 2
    assert plan.pruned_by_statistics == 1
    assert sorted(plan.needs_filter.values()) == [False, True]
    assert "ts up to 2023-11-14" in str(plan)
    assert "expired    ts up to 2023-11-1" in str(plan)


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_every_kind_of_timestamp_counts(unit: Literal["us", "ns"], zone: str | None) -> None:
    clock = SimulatedClock()
    naive = START.replace(tzinfo=None)
    kind = pa.timestamp(unit, tz=zone)
    with Lake(MemoryStore(), clock=clock, ids=SeededIds(0)) as lake:
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("ts", kind)])
        table = lake.create_table("a.b", schema, ["id"], ttl=("ts", "1 hour"), options=OPTIONS)
        moment = START if zone else naive
        table.upsert([{"id": 1, "ts": moment}, {"id": 2, "ts": None}])
        assert ids_of(table) == [1, 2]
        clock.advance(HOUR)
        assert ids_of(table) == [2]
        table.compact()
        assert ids_of(table) == [2]
        assert table.stats().row_count == 1


def ids_of(table: neve.Table) -> list[int]:
    found = column_of(table.scan().to_arrow())
    assert [each for each in range(5) if table.get(each) is not None] == found
    return found


def test_a_very_long_time_to_live_ends_before_the_column_begins() -> None:
    clock = SimulatedClock()
    with Lake(MemoryStore(), clock=clock, ids=SeededIds(0)) as lake:
        fields = [pa.field("id", pa.int64(), nullable=False), pa.field("ts", pa.timestamp("ns"))]
        schema = pa.schema(fields)
        table = lake.create_table("a.b", schema, ["id"], ttl=("ts", "90000 years"), options=OPTIONS)
        table.put({"id": 1, "ts": dt.datetime(1700, 1, 1)})  # noqa: DTZ001 - the column has no zone
        assert ids_of(table) == [1]
        table.compact()
        assert ids_of(table) == [1]


def test_set_ttl_takes_effect_at_once_and_can_be_taken_back(bench: Bench) -> None:
    bench.table.upsert([row(1, 0), row(2, 30)])
    bench.clock.advance(HOUR)
    assert ids(bench.table) == [2]

    with bench.table.evolve() as evolution:
        evolution.set_ttl(("ts", "2 hours"))
    assert ids(bench.table) == [1, 2]
    with bench.table.evolve() as evolution:
        evolution.set_ttl(("ts", "10 minutes"))
    assert ids(bench.table) == []
    with bench.table.evolve() as evolution:
        evolution.set_ttl(None)
    assert ids(bench.table) == [1, 2]


def test_a_read_only_handle_leaves_them_out(bench: Bench) -> None:
    bench.table.upsert([row(1, 0), row(2, 30)])
    bench.table.flush()
    bench.table.upsert([row(3, 0), row(4, 30)])
    with bench.a_lake() as lake, lake.table("a.b", read_only=True, options=OPTIONS) as reader:
        assert ids(reader) == [1, 2, 3, 4]
        bench.clock.advance(HOUR)
        assert ids(reader) == [2, 4]
        reader.refresh()
        assert ids(reader) == [2, 4]


# Writes that depend on rows


def test_an_expired_row_is_absent_for_conditional_writes(bench: Bench) -> None:
    bench.table.upsert([row(1, 0), row(2, 0)])
    bench.table.flush()
    assert bench.table.put_if_absent(row(1, 90, v=5)) is None
    bench.clock.advance(HOUR)

    assert bench.table.compare_and_put(row(2, 90), row(2, 0)) is None
    assert bench.table.put_if_absent(row(1, 90, v=5)) is not None
    assert bench.table.compare_and_put(row(2, 90, v=6), None) is not None

    assert ids(bench.table) == [1, 2]
    assert bench.table.get(1) == row(1, 90, v=5)


@pytest.mark.parametrize("place", ["memory", "partly in memory", "file"])
def test_a_partial_write_over_an_expired_row_starts_anew(bench: Bench, place: str) -> None:
    table = bench.table
    table.upsert([row(1, 0, v=7), row(2, 90, v=8)])
    if place != "memory":
        table.flush()
    if place == "partly in memory":
        table.upsert([{"id": 1, "v": 9}, {"id": 2, "v": 8}], columns=["v"])
    bench.clock.advance(HOUR)

    table.upsert([{"id": each, "ts": at(100)} for each in (1, 2, 3)], columns=["ts"])

    expected = [row(1, 100), row(2, 100, v=8), row(3, 100)]
    expected[0]["v"] = expected[2]["v"] = None
    for _ in range(2):
        assert [table.get(each) for each in (1, 2, 3)] == expected
        assert table.scan(key_range=(None, None)).to_arrow().to_pylist() == expected
        bench.reopen()
        table = bench.table
    with bench.a_lake() as lake, lake.table("a.b", read_only=True, options=OPTIONS) as reader:
        assert [reader.get(each) for each in (1, 2, 3)] == expected
    table.flush()
    assert [table.get(each) for each in (1, 2, 3)] == expected


@pytest.mark.parametrize("by", ["live writer", "a job"])
@pytest.mark.parametrize("is_whole_file", [True, False])
def test_a_partial_write_keeps_the_row_that_expires_before_its_flush(
    bench: Bench, by: str, *, is_whole_file: bool
) -> None:
    others = [] if is_whole_file else [row(5, 300)]
    bench.table.upsert([row(1, 0, v=7), row(2, 0, v=8), *others])
    bench.table.flush()
    bench.table.upsert([{"id": 1, "ts": at(90)}], columns=["ts"])
    bench.clock.advance(HOUR)

    if by == "a job":
        parts = bench.table._open.engine.parts
        bench.lake.close()
        CommittedMaintenance(parts, OPTIONS).compact()
        bench.reopen()
    else:
        bench.table._open.engine.writer.remove_expired_once()

    kept = [1] if is_whole_file else [1, 5]
    assert bench.stored() == kept
    assert bench.table.get(1) == row(1, 90, v=7)
    bench.table.flush()
    assert bench.table.get(1) == row(1, 90, v=7)
    bench.clock.advance(2 * HOUR)
    bench.table.compact()
    assert bench.table.get(1) is None
    assert bench.stored() == kept[1:]


def test_a_required_column_is_missed_where_the_row_has_expired() -> None:
    clock = SimulatedClock()
    with Lake(MemoryStore(), clock=clock, ids=SeededIds(0)) as lake:
        schema = pa.schema([*list(SCHEMA), pa.field("must", pa.int64(), nullable=False)])
        table = lake.create_table("a.b", schema, ["id"], ttl=("ts", "1 hour"), options=OPTIONS)
        table.put({**row(1, 0), "must": 1})
        clock.advance(HOUR)
        with pytest.raises(SchemaMismatch, match="has no row yet"):
            table.upsert([{"id": 1, "v": 2}], columns=["v"])


def test_delete_where_leaves_out_what_has_expired(bench: Bench) -> None:
    bench.table.upsert([row(1, 0), row(2, 30)])
    bench.clock.advance(HOUR)
    before = bench.table._open.engine.current.sequence

    bench.table.delete_where("true")

    assert bench.table._open.engine.current.sequence == before + 1
    assert ids(bench.table) == []


def test_a_merge_of_a_job_counts_an_expired_row_as_absent(bench: Bench) -> None:
    bench.table.upsert([row(1, 0), row(2, 30)])
    bench.table.flush()
    bench.clock.advance(HOUR)
    with bench.lake.bulk("a.b") as job:
        view = job._base.view
        keys = view.context.encoder.encode_arrays([pa.array([1, 2], pa.int64())])

        rows, places = view.get_many(keys, 0, columns=["v"])

        assert rows.column_names == ["v"]
        assert places.tolist() == [1]


@pytest.mark.parametrize("order_by", [(), ("ts",)])
def test_nothing_is_folded_into_an_expired_row(order_by: Sequence[str]) -> None:
    bench = Bench(merge={"v": "sum"}, order_by=order_by)
    with bench.lake:
        bench.table.upsert([row(each, 0, v=10) for each in range(1, 5)])
        bench.table.flush()
        bench.table.put(row(4, 30, v=10))
        bench.clock.advance(HOUR)

        bench.table.put(row(1, 60, v=1))
        bench.table.upsert([row(2, 60, v=1), row(4, 60, v=1)])
        bench.table.upsert([{"id": 3, "v": 1, "ts": at(60)}], columns=["v", "ts"])
        bench.table.put(row(1, 61, v=1))

        expected = {1: 2, 2: 1, 3: 1, 4: 21}
        assert totals(bench.table) == expected
        bench.table._open.engine.writer.remove_expired_once()
        assert totals(bench.table) == expected
        bench.reopen()
        assert totals(bench.table) == expected
        with bench.a_lake() as lake, lake.table("a.b", read_only=True, options=OPTIONS) as reader:
            assert totals(reader) == expected
        bench.table.flush()
        assert totals(bench.table) == expected


def totals(table: neve.Table) -> dict[int, int]:
    rows = table.scan().to_pylist()
    assert all(table.get(each["id"]) == each for each in rows)
    return {each["id"]: each["v"] for each in rows}


def test_an_older_change_wins_over_an_expired_row() -> None:
    bench = Bench(order_by=["v"])
    with bench.lake:
        bench.table.put(row(1, 0, v=9))
        bench.table.flush()
        bench.table.put(row(1, 90, v=8))
        assert bench.table.get(1) == row(1, 0, v=9)
        bench.clock.advance(HOUR)

        bench.table.put(row(1, 90, v=8))

        for _ in range(2):
            assert bench.table.get(1) == row(1, 90, v=8)
            bench.table.compact()


def test_a_change_over_an_expired_row_stays_when_the_log_meets_the_file_again() -> None:
    bench = Bench(order_by=["v"])
    bench.table.put(row(1, 0, v=9))
    bench.table.flush()
    bench.clock.advance(HOUR)
    bench.table.put(row(1, 90, v=8))
    with bench.a_lake() as lake, lake.table("a.b", read_only=True, options=OPTIONS) as reader:
        assert reader.get(1) == row(1, 90, v=8)
    with bench.table.evolve() as e:
        e.add_column("new", "long")
    assert bench.table.get(1) == row(1, 90, v=8) | {"new": None}

    bench.reopen()

    with bench.lake:
        for _ in range(2):
            assert bench.table.get(1) == row(1, 90, v=8) | {"new": None}
            bench.table.flush()


@pytest.mark.parametrize("is_known", [True, False])
def test_a_change_over_an_expired_row_stays_beside_a_compaction_of_a_job(*, is_known: bool) -> None:
    bench = Bench(order_by=["v"])
    with bench.lake:
        for each in (row(1, 0, v=9), row(2, 500)):
            bench.table.put(each)
            bench.table.flush()
        bench.clock.advance(HOUR)
        bench.table.put(row(1, 90, v=8))

        engine = bench.table._open.engine
        before = engine.current.view.files.version
        CommittedMaintenance(engine.parts, OPTIONS).compact(full=True)
        assert bench.stored() == [1, 2]
        if is_known:
            bench.table.refresh()
            assert bench.table.get(1) == row(1, 90, v=8)
        bench.table.flush()

        assert bench.table.get(1) == row(1, 90, v=8)
        assert bench.stored() == [1, 2]
        # The same, for a flush that meets the file only when it commits.
        old = min(before.files.values(), key=lambda file: file.key_min)
        new = max(bench.version.files.values(), key=lambda file: file.sequence_max)
        assert engine.files.older_rows(new, old, new.schema_id) == (BitMap64(), BitMap64([0]))


# Removal


def count_opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    opened: list[str] = []
    make = DataFileReader.__init__

    def noted(reader: DataFileReader, file: DataFile, **named: object) -> None:
        opened.append(file.path)
        make(reader, file, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(DataFileReader, "__init__", noted)
    return opened


def fill(bench: Bench, *starts: Sequence[float | None]) -> None:
    """Write a file for each list of times."""
    number = 0
    for times in starts:
        bench.table.upsert([row(number + each, minutes) for each, minutes in enumerate(times)])
        number += 10
        bench.table.flush()


def test_files_go_whole_by_their_bounds_and_only_mixed_ones_are_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    with bench.lake:
        fill(bench, [0, 1], [0, None], [0, 500], [500, 501], [None, None])
        paths = list(bench.version.files)
        bench.clock.advance(HOUR + 60)
        bench.reopen()
        opened = count_opened(monkeypatch)

        bench.table._open.engine.writer.remove_expired_once()

        assert opened == paths[1:3]
        assert list(bench.version.files) == paths[1:]
        assert bench.stored() == [11, 21, 30, 31, 40, 41]
        summary = bench.version.facts.summary
        assert bench.version.facts.operation == "DELETE"
        assert (summary["reason"], summary[EXPIRED_ROWS]) == ("ttl", "4")


def test_a_file_is_not_opened_again_before_its_next_row_expires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    with bench.lake:
        fill(bench, [0, 120, 240])
        writer = bench.table._open.engine.writer
        opened = count_opened(monkeypatch)
        reads: list[int] = []
        times = RowExpiry._times

        def noted(*given: object) -> object:
            reads.append(1)
            return times(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(RowExpiry, "_times", noted)
        bench.clock.advance(HOUR)
        assert not writer.remove_expired_once()
        assert reads == [1]
        versions = bench.version.number
        for _ in range(3):
            bench.clock.advance(60)
            assert not writer.remove_expired_once()
        assert reads == [1]
        assert bench.version.number == versions
        bench.clock.advance(2 * HOUR)
        assert not writer.remove_expired_once()
        assert reads == [1, 1]
        assert bench.stored() == [2]
        assert len(opened) <= 1


def test_rows_whose_bounds_are_unknown_are_read(bench: Bench) -> None:
    fill(bench, [0, 1])
    engine = bench.table._open.engine
    (file,) = bench.version.files.values()
    blind = [
        replace(each, lower=None, upper=None) if each.field_id == 3 else each
        for each in file.statistics
    ]
    expiry = RowExpiry(engine.files, engine.writer.committer)
    context = engine.files.context(file.schema_id)
    unknown = replace(file, statistics=tuple(blind))
    version = replace(bench.version, files={file.path: unknown}, _order=None)
    cutoff = cutoff_at(context.schema, bench.clock.now_ms() + 3_600_000)
    assert cutoff is not None
    step = _Step(version, lambda _file: BitMap64())
    expiry._plan(step, context, cutoff, {}, is_limited=False)

    assert step.marked == {file.path: BitMap64([0])}


def test_nothing_is_committed_when_nothing_has_expired(bench: Bench) -> None:
    fill(bench, [0, None])
    before = bench.version.number

    assert not bench.table._open.engine.writer.remove_expired_once()

    assert bench.version.number == before


def test_a_step_is_limited_and_the_next_one_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neve.engine.row_expiry.STEP_FILES", 2)
    assert STEP_FILES > 2
    fill(bench, *([0, 500] for _ in range(5)))
    bench.clock.advance(HOUR)
    writer = bench.table._open.engine.writer

    steps = 0
    while writer.remove_expired_once():
        steps += 1

    assert steps == 2
    assert bench.stored() == [1, 11, 21, 31, 41]


def test_a_commit_of_others_in_between_is_planned_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process writes a key again and rewrites its file, while it is about to be removed."""
    fill(bench, [0, 500, 501])
    bench.clock.advance(HOUR)
    other = OtherCommitter(bench.table)
    first = [True]
    times = RowExpiry._times

    def slow(*given: object) -> object:
        found = times(*given)  # type: ignore[arg-type]
        if first:
            first.clear()
            other.upsert([row(0, 600, v=1)])
            other.compact()
        return found

    monkeypatch.setattr(RowExpiry, "_times", slow)

    bench.table._open.engine.writer.remove_expired_once()

    bench.table.refresh()
    assert ids(bench.table) == [0, 1, 2]
    assert bench.table.get(0) == row(0, 600, v=1)
    assert bench.stored() == [0, 1, 2]


def test_compaction_takes_removed_rows_from_disk(bench: Bench) -> None:
    fill(bench, [0, 1, 500], [2, 3, 500])
    bench.clock.advance(HOUR + 300)

    bench.table.compact(full=True)

    assert bench.stored() == [2, 12]
    assert sum(file.row_count for file in bench.version.files.values()) == 2


def test_expire_removes_rows_first(bench: Bench) -> None:
    fill(bench, [0, 1])
    bench.clock.advance(HOUR + 60)

    bench.table.expire(keep_last=1)

    assert bench.stored() == []
    assert bench.table.collect_garbage(dry_run=False).file_count >= 1


def test_a_job_leaves_it_to_the_live_writer(bench: Bench) -> None:
    fill(bench, [0, 1])
    bench.clock.advance(HOUR + 60)
    parts = bench.table._open.engine.parts

    CommittedMaintenance(parts, OPTIONS).compact()
    assert bench.stored() == [0, 1]
    bench.lake.close()
    CommittedMaintenance(parts, OPTIONS).compact()
    bench.reopen()
    assert bench.stored() == []


def test_the_change_feed_marks_deletes_of_expired_rows(bench: Bench) -> None:
    fill(bench, [0, 500])
    bench.table.delete(1)
    since = bench.table.flush()
    bench.clock.advance(HOUR)
    bench.table.compact()
    bench.table.put(row(7, 60))
    bench.table.flush()

    changes = bench.table.changes(0).read_all()

    assert changes.schema.names[-4:] == [
        "_change_type",
        "_commit_version",
        "_commit_timestamp",
        "_expired",
    ]
    told = [(each["id"], each["_change_type"], each["_expired"]) for each in changes.to_pylist()]
    assert told == [
        (0, "insert", False),
        (1, "insert", False),
        (1, "delete", False),
        (0, "delete", True),
        (7, "insert", False),
    ]
    assert bench.table.changes(since).read_all().num_rows == 2


def test_a_table_whose_rows_do_not_expire_has_the_feed_it_had() -> None:
    bench = Bench(ttl=None)
    with bench.lake:
        fill(bench, [0])
        assert bench.table.changes(0).read_all().schema.names[-1] == "_commit_timestamp"


# In the background


def test_background_work_waits_a_hundredth_of_the_time_to_live() -> None:
    day = 24 * 60 * 60 * 1_000
    assert pause_seconds(TimeToLive(field_id=1, milliseconds=1)) == 60
    assert pause_seconds(TimeToLive(field_id=1, milliseconds=10 * day)) == 8_640
    assert pause_seconds(TimeToLive(field_id=1, milliseconds=1_000 * day)) == 86_400


def test_background_work_removes_rows_from_time_to_time(bench: Bench) -> None:
    fill(bench, [0, 1], [30, 31], [32, 500])
    writer = bench.table._open.engine.writer

    def tend() -> None:
        assert not writer.expire_due_once()
        while writer.remove_due_once():
            pass

    tend()
    bench.clock.advance(HOUR + 60)
    assert bench.stored() == [0, 1, 10, 11, 20, 21]
    tend()
    assert bench.stored() == [10, 11, 20, 21]
    bench.clock.set_now_ms(bench.clock.now_ms() + 30 * 60_000)
    tend()  # too soon
    assert bench.stored() == [10, 11, 20, 21]
    bench.clock.advance(60)
    tend()
    assert bench.stored() == [21]
