"""Writes of tables with an order column or with merge functions, one call at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import cast

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.errors import InvalidArgument, LimitExceeded, SchemaMismatch
from neve.jobs.maintenance import CommittedMaintenance
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SimulatedClock
from tests.unit.engine.other_committer import OtherCommitter
from tests.unit.engine.tables import a_catalog

OPTIONS = neve.TableOptions(background=False)
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "lsn": pa.int64(),
    "v": pa.string(),
    "total": pa.int64(),
}
Row = dict[str, object]
Form = Callable[[Sequence[Row]], object]


def a_table(
    lake: neve.Lake,
    *,
    order_by: Sequence[str] = ("lsn",),
    merge: Mapping[str, str] | None = None,
    columns: Mapping[str, pa.DataType] = COLUMNS,
    keep_deletes: str | None = None,
) -> neve.Table:
    return lake.create_table(
        "a.b",
        pa.schema(dict(columns)),
        ["id"],
        order_by=order_by,
        merge=merge,
        keep_deletes=keep_deletes,
        options=OPTIONS,
    )


@pytest.fixture
def lake() -> Iterator[neve.Lake]:
    with a_catalog() as lake:
        yield lake


@pytest.fixture
def table(lake: neve.Lake) -> neve.Table:
    return a_table(lake)


def row(key: int, lsn: float | None, v: str | None = None, total: int | None = None) -> Row:
    return {"id": key, "lsn": lsn, "v": v or f"of {lsn}", "total": total}


def gone(key: int, lsn: int) -> Row:
    return {"op": "d", "id": key, "lsn": lsn}


def changed(key: int, lsn: int, v: str | None = None, total: int | None = None) -> Row:
    return {"op": "u", **row(key, lsn, v, total)}


def as_arrow(rows: Sequence[Row]) -> pa.Table:
    names = list(dict.fromkeys(name for each in rows for name in each))
    return pa.table({name: [each.get(name) for each in rows] for name in names})


def rows(table: neve.Table) -> dict[object, object]:
    return {each["id"]: each["v"] for each in table.scan().to_arrow().to_pylist()}


def totals(table: neve.Table) -> dict[object, object]:
    found = {each["id"]: each["total"] for each in table.scan().to_arrow().to_pylist()}
    for key, total in found.items():
        single = table.get(key)
        assert single is not None
        assert single["total"] == total
    return found


def reopened(table: neve.Table, lake: neve.Lake) -> neve.Table:
    table.close()
    return lake.table("a.b", options=OPTIONS)


# Order: the greater value wins


WRITES: dict[str, Callable[[neve.Table, Row], object]] = {
    "put": lambda table, each: table.put(each),
    "upsert": lambda table, each: table.upsert([each]),
    "upsert of Arrow": lambda table, each: table.upsert(as_arrow([each])),
    "some columns": lambda table, each: table.upsert([each], columns=["lsn", "v"]),
    "apply": lambda table, each: table.apply([{"op": "u", **each}]),
    "apply of Arrow": lambda table, each: table.apply(as_arrow([{"op": "c", **each}])),
    "compare_and_put": lambda table, each: table.compare_and_put(each, table.get(each["id"])),
}


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("way", WRITES)
def test_an_older_change_changes_nothing_and_a_newer_or_equal_one_wins(
    table: neve.Table, way: str, *, is_flushed: bool
) -> None:
    write = WRITES[way]
    write(table, row(1, 5))
    if is_flushed:
        table.flush()

    write(table, row(1, 4))
    assert rows(table) == {1: "of 5"}
    write(table, row(1, 5, "as old"))
    assert rows(table) == {1: "as old"}
    write(table, row(1, 6))
    assert rows(table) == {1: "of 6"}
    table.flush()
    assert rows(table) == {1: "of 6"}


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("way", WRITES)
def test_an_older_change_does_not_undo_a_delete(
    table: neve.Table, way: str, *, is_flushed: bool
) -> None:
    table.apply([changed(1, 3), gone(1, 5), gone(2, 7)])
    if is_flushed:
        table.flush()

    for key, lsn in ((1, 4), (2, 6)):
        WRITES[way](table, row(key, lsn))
    assert rows(table) == {}
    table.flush()
    assert rows(table) == {}
    WRITES[way](table, row(2, 7, "as new"))
    assert rows(table) == {2: "as new"}


def test_a_put_of_an_absent_key_that_is_older_than_its_delete_writes_nothing(
    table: neve.Table,
) -> None:
    table.apply([gone(1, 5)])

    assert table.put_if_absent(row(1, 4)) is None
    assert table.compare_and_put(row(1, 4), None) is None
    assert rows(table) == {}
    assert table.put_if_absent(row(1, 6)) is not None
    assert rows(table) == {1: "of 6"}


def test_a_write_that_changes_nothing_returns_the_last_sequence(table: neve.Table) -> None:
    last = table.put(row(1, 5))

    assert table.put(row(1, 4)) == last
    assert table.upsert([row(1, 4)]) == last
    assert table.upsert([row(1, 4)], columns=["lsn", "v"]) == last
    assert table.apply([gone(1, 4)]) == last
    assert table.delete(2) == last
    assert table.delete_many([2, 3]) == last


def test_of_rows_of_one_call_the_greatest_order_wins(table: neve.Table) -> None:
    table.upsert([row(1, 7), row(1, 9), row(1, 8), row(2, 1, "a"), row(2, 1, "b")])

    assert rows(table) == {1: "of 9", 2: "b"}


@pytest.mark.parametrize("form", [list, as_arrow])
def test_of_changes_of_one_call_the_greatest_order_wins(table: neve.Table, form: Form) -> None:
    feed = [gone(1, 9), changed(1, 8), changed(2, 3), gone(2, 2), changed(3, 4), gone(3, 4)]
    table.apply(form(feed))  # type: ignore[arg-type]

    assert rows(table) == {2: "of 3"}
    table.put(row(1, 8))
    table.put(row(3, 3))
    assert rows(table) == {2: "of 3"}


def test_a_delete_by_key_is_as_new_as_the_row_it_finds(table: neve.Table) -> None:
    table.upsert([row(key, 5) for key in range(1, 6)])
    table.delete(1)
    table.delete_many([2, 2, 9])
    table.delete_where("id = 3")
    table.flush()

    table.upsert([row(key, 4) for key in (1, 2, 3, 9)])

    assert sorted(map(str, rows(table))) == ["4", "5", "9"]
    table.put(row(1, 5, "again"))
    assert rows(table)[1] == "again"


def test_several_order_columns_decide_one_after_the_other(lake: neve.Lake) -> None:
    columns = {**COLUMNS, "part": pa.int32()}
    table = a_table(lake, order_by=["lsn", "part"], columns=columns)
    table.upsert([{**row(1, 5, "a"), "part": 2}, {**row(2, 5, "a"), "part": 2}])

    table.upsert([{**row(1, 5, "b"), "part": 1}, {**row(2, 6, "b"), "part": 0}])

    assert rows(table) == {1: "a", 2: "b"}


@pytest.mark.parametrize(
    ("kind", "older", "newer"),
    [
        (pa.int32(), -3, 2),
        (pa.float64(), -1.5, 0.5),
        (pa.string(), "1", "10"),
        (pa.binary(), b"", b"\0"),
        (pa.decimal128(9, 2), "-2.50", "1.00"),
        (pa.date32(), "2024-01-01", "2024-01-02"),
        (pa.timestamp("us", "UTC"), "2024-01-01T00:00:00Z", "2024-01-01T00:00:01Z"),
    ],
)
def test_every_primitive_type_orders(
    lake: neve.Lake, kind: pa.DataType, older: object, newer: object
) -> None:
    table = a_table(lake, columns={"id": pa.int64(), "lsn": kind, "v": pa.string()})

    def write(lsn: object, v: str) -> None:
        orders = pa.array([lsn]).cast(kind) if isinstance(lsn, str) else pa.array([lsn], kind)
        table.upsert(pa.table({"id": [1], "lsn": orders, "v": [v]}))

    for is_flushed in (False, True):
        write(newer, "newer")
        if is_flushed:
            table.flush()
        write(older, "older")
        assert rows(table) == {1: "newer"}
        table.delete(1)
        write(older, "older")
        assert rows(table) == {}


@pytest.mark.parametrize("form", [list, as_arrow])
def test_a_batch_without_changes_is_noted(lake: neve.Lake, table: neve.Table, form: Form) -> None:
    table.apply(form([]), app_id="a", batch=3)  # type: ignore[arg-type]
    with lake.bulk("a.b", app_id="b", batch=4) as job:
        job.apply(form([]))  # type: ignore[arg-type]

    assert (table.last_batch("a"), table.last_batch("b")) == (3, 4)


# What is refused


WITHOUT_ORDER: dict[str, Callable[[neve.Table, Row], object]] = {
    "put": lambda table, bad: table.put(bad),
    "upsert": lambda table, bad: table.upsert([row(1, 9), bad]),
    "some columns": lambda table, bad: table.upsert([row(1, 9), bad], columns=["lsn", "v"]),
    "apply": lambda table, bad: table.apply([changed(1, 9), {"op": "u", **bad}]),
    "delete": lambda table, bad: table.apply(
        [changed(1, 9), {"op": "d", "id": 2, "lsn": bad["lsn"]}]
    ),
}


@pytest.mark.parametrize("way", WITHOUT_ORDER)
def test_a_change_without_an_order_is_refused_and_nothing_is_written(
    table: neve.Table, way: str
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        WITHOUT_ORDER[way](table, row(2, None))

    assert caught.value.column == "lsn"
    assert caught.value.row == (0 if way == "put" else 1)
    assert rows(table) == {}


@pytest.mark.parametrize("form", [list, as_arrow])
def test_a_feed_says_which_change_has_no_order(table: neve.Table, form: Form) -> None:
    feed = [changed(1, 9), gone(3, 1), {**changed(2, 0), "lsn": None}]

    with pytest.raises(SchemaMismatch) as caught:
        table.apply(form(feed))  # type: ignore[arg-type]

    assert (caught.value.column, caught.value.row) == ("lsn", 2)


@pytest.mark.parametrize("way", WRITES)
def test_an_order_that_is_not_a_number_is_refused(lake: neve.Lake, way: str) -> None:
    table = a_table(lake, columns={**COLUMNS, "lsn": pa.float64()})

    with pytest.raises(SchemaMismatch, match="lsn") as caught:
        WRITES[way](table, row(1, float("nan")))

    assert caught.value.column == "lsn"
    assert rows(table) == {}


@pytest.mark.parametrize("form", [list, as_arrow])
def test_a_delete_whose_order_is_not_a_number_is_refused(lake: neve.Lake, form: Form) -> None:
    table = a_table(lake, columns={**COLUMNS, "lsn": pa.float64()})
    feed: list[Row] = [{"op": "d", "id": 1, "lsn": 1.0}, {"op": "d", "id": 1, "lsn": float("nan")}]

    with pytest.raises(SchemaMismatch) as caught:
        table.apply(form(feed))  # type: ignore[arg-type]

    assert (caught.value.column, caught.value.row) == ("lsn", 1)


def test_some_columns_without_the_order_are_refused(table: neve.Table) -> None:
    with pytest.raises(SchemaMismatch, match="order column 'lsn'"):
        table.upsert([row(1, 1)], columns=["v"])

    assert rows(table) == {}


def test_a_feed_cannot_be_ordered_by_other_columns(lake: neve.Lake, table: neve.Table) -> None:
    with pytest.raises(InvalidArgument, match="orders changes by"):
        table.apply([changed(1, 1)], order_by="total")
    with pytest.raises(InvalidArgument, match="orders changes by"), lake.bulk("a.b") as job:
        job.apply([changed(1, 1)], order_by="total")

    table.apply([changed(1, 1)], order_by="lsn")
    assert rows(table) == {1: "of 1"}


# Reopening, flushing, cleaning up


def test_orders_survive_a_reopening_from_the_log(lake: neve.Lake, table: neve.Table) -> None:
    table.apply([changed(1, 5), gone(2, 5)])
    table.put(row(3, 5))
    table.delete(3)

    table = reopened(table, lake)
    table.upsert([row(1, 4), row(2, 4), row(3, 4)])

    assert rows(table) == {1: "of 5"}


def test_a_flush_with_only_early_deletes_makes_a_version(
    lake: neve.Lake, table: neve.Table
) -> None:
    before = table.version
    table.apply([gone(1, 5)])

    assert table.flush() == before + 1
    assert table.flush() == before + 1
    table = reopened(table, lake)
    table.put(row(1, 4))
    assert rows(table) == {}
    assert table.history().num_rows == 2


def remembered(table: neve.Table) -> list[str]:
    parts = table._open.engine.parts
    found = parts.objects.list(f"{parts.paths.deletes}/")
    return [each.path for each in found if each.path.endswith(".remembered.parquet")]


def test_remembered_deletes_are_joined_and_forgotten_in_time() -> None:
    clock = SimulatedClock()
    with a_catalog(MemoryStore(), clock) as lake:
        table = a_table(lake, keep_deletes="4 hours")
        for key in range(8):
            table.apply([gone(key, 5)])
            table.flush()
        assert len(remembered(table)) == 8

        table.compact()
        version = table._open.engine.current.view.files.version
        assert len(version.deletes) == 1
        assert [file.row_count for file in version.deletes.values()] == [8]
        table.upsert([row(key, 4) for key in range(8)])
        assert rows(table) == {}

        clock.advance(5 * 3_600)
        table.compact()
        assert not table._open.engine.current.view.files.version.deletes
        table.put(row(1, 4))
        assert rows(table) == {1: "of 4"}


def test_garbage_collection_keeps_what_retained_versions_remember() -> None:
    clock = SimulatedClock()
    with a_catalog(MemoryStore(), clock) as lake:
        table = a_table(lake)
        for key in range(8):
            table.apply([gone(key, 5)])
            table.flush()
        table.compact()
        assert len(remembered(table)) == 9

        clock.advance(86_400 * 3)
        table.collect_garbage(dry_run=False)
        assert len(remembered(table)) == 9

        table.expire(keep_last=1)
        clock.advance(86_400 * 3)
        table.collect_garbage(dry_run=False)
        assert len(remembered(table)) == 1
        table = reopened(table, lake)
        table.upsert([row(key, 4) for key in range(8)])
        assert rows(table) == {}
        assert not table.verify().problems


def test_a_rollback_remembers_what_the_old_version_did(table: neve.Table) -> None:
    table.put(row(1, 3))
    old = table.flush()
    table.apply([gone(1, 5), gone(2, 5)])
    newer = table.flush()

    table.rollback(old)
    table.upsert([row(1, 4), row(2, 4)])
    assert rows(table) == {1: "of 4", 2: "of 4"}

    table.rollback(newer)
    assert rows(table) == {}
    table.upsert([row(1, 4), row(2, 4)])
    assert rows(table) == {}


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_file_of_remembered_deletes_is_found(table: neve.Table, damage: str) -> None:
    table.apply([gone(key, 5) for key in range(100)])
    table.flush()
    (path,) = remembered(table)
    objects = table._open.engine.parts.objects
    payload = bytearray(objects.get(path).payload)
    payload[len(payload) // 3] ^= 16
    if damage == "gone":
        objects.delete(path)
    else:
        objects.put(path, bytes(payload) if damage == "flip" else bytes(payload[:-1]))

    with pytest.raises(neve.Corruption) as caught:
        table.verify()

    assert path.rpartition("/")[2] in str(caught.value)


# Beside other committers


def test_rows_of_a_job_win_if_they_are_newer(lake: neve.Lake, table: neve.Table) -> None:
    table.upsert([row(1, 5, "own"), row(2, 5, "own"), row(3, 5, "own"), row(4, 5, "own")])
    with lake.bulk("a.b") as job:
        job.upsert([row(1, 6, "job"), row(2, 4, "job"), row(5, 1, "job")])
        job.apply([gone(3, 6), gone(4, 4)])
    expected = {1: "job", 2: "own", 4: "own", 5: "job"}

    table.refresh()
    assert rows(table) == expected
    table.put(row(1, 5, "late"))
    table.put(row(3, 5, "late"))
    assert rows(table) == expected
    table.flush()
    assert rows(table) == expected
    table.compact()
    assert rows(table) == expected


@pytest.mark.parametrize("is_refreshed", [False, True])
def test_what_a_job_committed_is_compared_at_the_flush(
    lake: neve.Lake, table: neve.Table, *, is_refreshed: bool
) -> None:
    table.upsert([row(1, 5, "own"), row(2, 5, "own")])
    with lake.bulk("a.b") as job:
        job.apply([changed(1, 6, "job"), gone(2, 6), changed(3, 6, "job")])
    if is_refreshed:
        table.refresh()

    table.flush()

    assert rows(table) == {1: "job", 3: "job"}
    assert {
        each["id"] for each in table.at(version=table.version).scan().to_arrow().to_pylist()
    } == {
        1,
        3,
    }


def test_deletes_beside_a_job_are_compared_with_the_rows_of_their_own_keys(
    lake: neve.Lake, table: neve.Table
) -> None:
    keys = range(1, 40)
    table.upsert([{"id": key, "lsn": 10, "v": "old"} for key in keys])
    table.put({"id": 0, "lsn": 1_000, "v": "newest"})
    table.flush()
    table.apply([{"op": "d", "id": key, "lsn": 20} for key in keys])
    with lake.bulk("a.b") as job:
        job.upsert([{"id": 100, "lsn": 1, "v": "a job's"}])

    table.refresh()
    table.flush()

    assert sorted(row["id"] for row in table.scan().to_pylist()) == [0, 100]


def test_a_row_that_a_job_deletes_by_key_does_not_come_back(
    lake: neve.Lake, table: neve.Table
) -> None:
    table.put(row(1, 5, "own"))
    with lake.bulk("a.b") as job:
        job.upsert([row(1, 6, "job")])
    table.refresh()

    with lake.bulk("a.b") as job:
        job.delete([1])

    table.refresh()
    assert rows(table) == {}
    table = reopened(table, lake)
    assert rows(table) == {}
    table.flush()
    assert rows(table) == {}


def test_a_row_that_a_job_deletes_by_key_does_not_come_back_after_a_reopening(
    lake: neve.Lake, table: neve.Table
) -> None:
    table.put(row(1, 5, "own"))
    with lake.bulk("a.b") as job:
        job.upsert([row(1, 6, "job")])
    table.refresh()
    table.close()
    with lake.bulk("a.b") as job:
        job.delete([1])

    table = lake.table("a.b", options=OPTIONS)

    assert rows(table) == {}
    table.put(row(1, 6, "again"))
    table = reopened(table, lake)
    assert rows(table) == {1: "again"}


def test_readers_show_newer_rows_of_a_job_before_the_writer_does(
    lake: neve.Lake, table: neve.Table
) -> None:
    table.upsert([row(key, 5, "own") for key in (1, 2, 3)])
    reader = lake.table("a.b", read_only=True)
    assert rows(reader) == {1: "own", 2: "own", 3: "own"}
    with lake.bulk("a.b") as job:
        job.apply([changed(1, 6, "job"), gone(2, 6), changed(3, 4, "job")])
    expected: dict[object, object] = {1: "job", 3: "own"}

    reader.refresh()
    assert rows(reader) == expected
    assert reader.get(2) is None
    assert rows(table) == {1: "own", 2: "own", 3: "own"}
    table.refresh()
    table.put(row(1, 7, "new"))
    reader.refresh()
    assert rows(reader) == rows(table) == expected | {1: "new"}
    table.close()
    with lake.bulk("a.b") as job:
        job.upsert([row(1, 8, "later")])
    reader.refresh()
    assert rows(reader) == expected | {1: "later"}


def test_a_job_compares_with_what_is_committed(lake: neve.Lake, table: neve.Table) -> None:
    table.apply([changed(1, 5), gone(2, 5)])
    table.flush()
    with lake.bulk("a.b") as job:
        job.upsert([row(1, 4), row(2, 4), row(3, 4)])

    table.refresh()
    assert rows(table) == {1: "of 5", 3: "of 4"}

    with lake.bulk("a.b") as job:
        job.upsert([row(1, 9)])
        job.delete([1, 3])
        job.apply([changed(2, 9), gone(2, 10)])
    table.refresh()
    assert rows(table) == {}
    table.upsert([row(1, 8), row(2, 9), row(3, 3)])
    assert rows(table) == {}


def test_a_job_that_fails_leaves_no_remembered_deletes(lake: neve.Lake, table: neve.Table) -> None:
    job = lake.bulk("a.b")
    job.apply([gone(1, 5)])
    work = job._work()
    assert work.deletes
    assert remembered(table)

    job.close()

    assert not remembered(table)


def test_a_delete_is_carried_over_a_compaction_in_between(lake: neve.Lake) -> None:
    table = a_table(lake, order_by=())
    table.upsert([row(1, None, "old"), row(2, None, "old"), row(3, 5, "old")])
    table.flush()
    with table.evolve() as change:
        change.set_order_by("lsn")
    table.delete_many([1, 3])
    OtherCommitter(table).compact()

    table.flush()

    assert rows(table) == {2: "old"}


# Changes of the rules


def test_a_widened_order_column_keeps_remembered_deletes_right(lake: neve.Lake) -> None:
    table = a_table(lake, columns={**COLUMNS, "lsn": pa.int32()})
    table.apply([gone(1, 300), gone(4, -300)])
    table.flush()
    table.apply([gone(2, 300)])  # in memory

    with table.evolve() as change:
        change.widen_column("lsn", pa.int64())

    def check(table: neve.Table) -> None:
        table.upsert([row(1, 299), row(2, 299), row(3, 299), row(4, -301)])
        assert rows(table) == {3: "of 299"}

    check(table)
    table = reopened(table, lake)
    check(table)
    with lake.bulk("a.b") as job:
        job.upsert([row(1, 298), row(5, 1)])
    table.flush()
    check_after = rows(table)
    assert check_after == {3: "of 299", 5: "of 1"}
    table.put(row(2, 1 << 40))
    assert rows(table)[2] == f"of {1 << 40}"


def test_a_renamed_order_column_keeps_remembered_deletes_right(lake: neve.Lake) -> None:
    table = a_table(lake)
    table.apply([gone(1, 5)])
    table.flush()
    table.apply([gone(2, 5)])
    with table.evolve() as change:
        change.rename_column("lsn", "position")

    table.apply(
        [{"op": "u", "id": key, "position": 4, "v": "late", "total": None} for key in (1, 2, 3)]
    )
    assert rows(table) == {3: "late"}
    table = reopened(table, lake)
    table.upsert([{"id": key, "position": 4, "v": "late", "total": None} for key in (1, 2)])
    assert rows(table) == {3: "late"}
    table.flush()
    assert rows(table) == {3: "late"}


def test_the_order_column_cannot_be_dropped(table: neve.Table) -> None:
    with pytest.raises(SchemaMismatch, match="orders the changes"), table.evolve() as change:
        change.drop_column("lsn")


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("has_others", [False, True])
def test_an_order_that_is_set_later_counts_from_then_on(
    lake: neve.Lake, *, is_reopened: bool, has_others: bool
) -> None:
    table = a_table(lake, order_by=())
    table.upsert([row(1, 9, "file"), row(2, 9, "file"), row(3, None, "file")])
    table.flush()
    # The last one wins here, whatever its order is.
    table.put(row(1, 3, "memory"))
    table.delete(2)
    with table.evolve() as change:
        change.set_order_by("lsn")
    if has_others:
        with lake.bulk("a.b") as job:
            job.upsert([row(7, 1, "job")])
    if is_reopened:
        table = reopened(table, lake)
    table.refresh()
    expected: dict[object, object] = {1: "memory", 3: "file"}
    expected |= {7: "job"} if has_others else {}

    assert rows(table) == expected
    table.put(row(1, 2, "late"))
    assert rows(table) == expected
    table.flush()
    assert rows(table) == expected
    table.put(row(1, 4, "new"))
    table.put(row(3, 1, "new"))
    assert rows(table) == expected | {1: "new", 3: "new"}


@pytest.mark.parametrize("is_reopened", [False, True])
def test_merge_functions_that_are_set_later_count_from_then_on(
    lake: neve.Lake, *, is_reopened: bool
) -> None:
    table = a_table(lake, order_by=())
    table.upsert([row(1, 1, total=10), row(2, 1, total=10)])
    table.flush()
    table.put(row(1, 1, total=5))
    with table.evolve() as change:
        change.set_merge({"total": "sum"})
    if is_reopened:
        table = reopened(table, lake)

    assert totals(table) == {1: 5, 2: 10}
    table.put(row(1, 1, total=1))
    table.upsert([row(2, 1, total=1), row(2, 1, total=2)])
    assert totals(table) == {1: 6, 2: 13}
    if is_reopened:
        table = reopened(table, lake)
    assert totals(table) == {1: 6, 2: 13}
    table.flush()
    assert totals(table) == {1: 6, 2: 13}

    table.put(row(1, 1, total=1))
    with table.evolve() as change:
        change.set_merge({})
    table.put(row(2, 1, total=1))
    if is_reopened:
        table = reopened(table, lake)
    assert totals(table) == {1: 7, 2: 1}
    table.flush()
    assert totals(table) == {1: 7, 2: 1}


# Merge functions


@pytest.mark.parametrize("order_by", [(), ("lsn",)])
def test_values_are_folded_by_every_write(lake: neve.Lake, order_by: Sequence[str]) -> None:
    table = a_table(lake, order_by=order_by, merge={"total": "sum"})
    expected = 0
    for lsn, (way, write) in enumerate(WRITES.items()):
        expected += 1 << lsn
        columns = ["lsn", "total"]
        if way == "some columns":
            table.upsert([row(1, lsn, total=1 << lsn)], columns=columns)
        else:
            write(table, row(1, lsn, total=1 << lsn))
        assert totals(table) == {1: expected}, way
        if lsn % 2:
            table.flush()
            assert totals(table) == {1: expected}, way
        table = reopened(table, lake)
        assert totals(table) == {1: expected}, way


def test_puts_that_are_read_together_are_folded_as_they_were_written(lake: neve.Lake) -> None:
    table = a_table(lake, order_by=(), merge={"total": "sum"})
    expected: dict[object, object] = {}
    rng = Random(1)
    with lake.table("a.b", read_only=True) as reader:
        for step in range(60):
            key = rng.randrange(5)
            if rng.random() < 0.1:
                table.delete(key)
                expected.pop(key, None)
            for each in rng.choices(range(5), k=rng.choice((0, 1, 8))):
                table.put(row(each, step, total=step))
                expected[each] = cast("int", expected.get(each, 0)) + step
            if rng.random() < 0.1:
                table.upsert([row(key, step, total=1)], columns=["lsn", "total"])
                expected[key] = cast("int", expected.get(key, 0)) + 1
            if rng.random() < 0.05:
                table.flush()
            assert totals(table) == expected
            if step % 3 == 0:
                assert totals(reader.refresh()) == expected

    assert totals(reopened(table, lake)) == expected


def test_what_follows_a_delete_is_not_folded_into_what_came_before(lake: neve.Lake) -> None:
    table = a_table(lake, order_by=(), merge={"total": "sum"})
    table.put(row(1, 1, total=10))
    table.flush()
    for is_flushed in (False, True):
        table.apply([changed(1, 1, total=3), gone(1, 1), changed(1, 1, total=2)])
        if is_flushed:
            table.flush()
        table = reopened(table, lake)
        assert totals(table) == {1: 2}
    table.delete(1)
    table.put(row(1, 1, total=7))
    assert totals(table) == {1: 7}
    table.flush()
    assert totals(table) == {1: 7}


def test_a_repeated_batch_counts_once(lake: neve.Lake) -> None:
    table = a_table(lake, order_by=(), merge={"total": "sum"})
    for batch in (1, 1, 2, 2):
        table.apply([changed(1, 1, total=5)], app_id="a", batch=batch)
        table = reopened(table, lake)
    table.flush()
    table.apply([changed(1, 1, total=5)], app_id="a", batch=2)
    with lake.bulk("a.b", app_id="a", batch=2) as job:
        job.apply([changed(1, 1, total=5)])
    table.refresh()

    assert totals(table) == {1: 10}


def test_rows_that_are_not_flushed_are_folded_into_those_of_a_job(lake: neve.Lake) -> None:
    table = a_table(lake, order_by=(), merge={"total": "sum"})
    table.put(row(1, 1, total=1))
    table.flush()
    table.put(row(1, 1, total=10))
    with lake.bulk("a.b") as job:
        job.upsert([row(1, 1, total=100), row(2, 1, total=100)])
        job.apply([changed(1, 1, total=1_000)])

    table.refresh()
    assert totals(table) == {1: 1_111, 2: 100}
    table.flush()
    assert totals(table) == {1: 1_111, 2: 100}


def test_a_job_folds_again_when_the_writer_was_first(lake: neve.Lake) -> None:
    table = a_table(lake, order_by=(), merge={"total": "sum"})
    table.put(row(1, 1, total=1))
    table.flush()
    with lake.bulk("a.b") as job:
        job.upsert([row(1, 1, total=100)])
        table.put(row(1, 1, total=10))
        table.flush()

    table.refresh()
    assert totals(table) == {1: 111}


def test_a_job_whose_columns_changed_meanwhile_says_so(lake: neve.Lake) -> None:
    table = a_table(lake, order_by=(), merge={"total": "sum"})
    table.put(row(1, 1, total=1))
    table.flush()
    job = lake.bulk("a.b")
    job.upsert([row(1, 1, total=100)])
    table.put(row(1, 1, total=10))
    with table.evolve() as change:
        change.add_column("more", pa.int64())
    table.flush()

    with pytest.raises(neve.Conflict, match="columns"):
        job.commit()

    assert totals(table) == {1: 11}


def test_other_engines_see_no_trace_of_remembered_deletes(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        table = a_table(lake)
        table.apply([changed(1, 5), changed(2, 5), gone(3, 5)])
        table.flush()
        table.apply([gone(2, 6)])
        table.flush()
        metadata = table.iceberg_metadata()
        from pyiceberg.table import StaticTable

        seen = StaticTable.from_metadata(metadata)
        assert seen.scan().to_arrow().select(["id", "lsn"]).to_pylist() == [{"id": 1, "lsn": 5}]
        named = {task.file.file_path for task in seen.scan().plan_files()}
        named |= {each.file_path for task in seen.scan().plan_files() for each in task.delete_files}
        assert not any("remembered" in path for path in named)
        published = tmp_path.rglob("metadata/*")
        assert not any(b"remembered" in path.read_bytes() for path in published)


def test_an_order_value_that_is_too_long_is_refused_as_such() -> None:
    columns = {**COLUMNS, "lsn": pa.string()}
    with a_catalog() as lake:
        table = a_table(lake, columns=columns)

        with pytest.raises(LimitExceeded, match="the order columns of a change"):
            table.put({"id": 1, "lsn": "x" * 70_000})

        assert table.get(1) is None


@pytest.mark.parametrize("call", ["put", "upsert", "delete", "delete_many", "apply"])
@pytest.mark.parametrize(("order_by", "merge"), [(["lsn"], None), ([], {"total": "sum"})])
def test_a_write_looks_again_when_files_were_replaced_and_deleted(
    call: str, order_by: Sequence[str], merge: Mapping[str, str] | None
) -> None:
    clock, objects = SimulatedClock(), MemoryStore()
    with Lake(objects, clock=clock) as first:
        table = a_table(first, order_by=order_by, merge=merge)
        for total in (1, 2):
            table.upsert([{"id": key, "lsn": 5, "total": total} for key in range(3)])
            table.flush()
    with Lake(objects, clock=clock) as lake, Lake(objects, clock=clock) as other:
        table = lake.table("a.b", options=OPTIONS)
        assert table.version == 3
        parts = other.table("a.b", read_only=True)._open.engine.parts
        job = CommittedMaintenance(parts, OPTIONS)
        job.compact(full=True)
        clock.advance(30 * 24 * 3_600)
        job.expire(keep_last=1)
        clock.advance(30 * 24 * 3_600)
        assert job.collect_garbage(dry_run=False).paths

        row: Row = {"id": 1, "lsn": 6, "v": "new", "total": 4}
        arguments = {"put": row, "upsert": [row], "apply": [{"op": "u", **row}]}
        keys = {"delete": 1, "delete_many": [1]}
        getattr(table, call)((arguments | keys)[call])

        found = table.get(1)
        if call in keys:
            assert found is None
        else:
            assert found == row | {"total": 7 if merge else 4}
