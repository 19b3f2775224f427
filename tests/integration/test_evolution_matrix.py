"""Every change of a schema, read everywhere rows can be when it happens.

    change    add, drop, rename, reorder, widen, nested fields, partitions …
    place     in memory, in the log, in young, compacted and rewritten files, in an old Version
    read      get, get_many, scan, filter, count, by key

Rows were written before the change, and some of them changed after it. What is expected comes from
plain Python: the rows as they were written, each turned by the change's own function.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pytest

import neve
from neve.catalog.table import Table
from neve.engine.snapshot import Snapshot
from neve.engine.table_options import TableOptions
from tests.integration.evolution_changes import (
    CHANGES,
    SCHEMA,
    Change,
    Row,
    a_row,
    positive,
    same,
)

NAME: Final = "shop.orders"
OPTIONS: Final = TableOptions(background=False)
KEYS: Final = range(24)


class Place:
    """Brings a table into being whose rows lie where the name says, and changes its schema."""

    def __init__(self) -> None:
        self.lake = neve.open(f"memory://{uuid4()}")
        self.table = self.lake.create_table(NAME, SCHEMA, ["id"], options=OPTIONS)
        self.before: dict[int, Row] = {}

    def write(self, keys: range, *, shift: int = 0) -> None:
        """Write rows by both ways: one by one, and as a batch."""
        rows = [a_row(key, shift=shift) for key in keys]
        middle = len(rows) // 2
        for row in rows[:middle]:
            self.table.put(row)
        self.table.upsert(pa.Table.from_pylist(rows[middle:], schema=SCHEMA))
        self.before.update({row["id"]: row for row in rows})

    def delete(self, key: int) -> None:
        self.table.delete(key)
        del self.before[key]

    def evolve(self, change: Change) -> None:
        with self.table.evolve() as e:
            change.evolve(e)

    def reopen(self) -> None:
        self.lake.close()
        self.lake = neve.open(self.lake.location)
        self.table = self.lake.table(NAME, options=OPTIONS)


def unflushed(place: Place, change: Change) -> None:
    place.write(KEYS)
    place.delete(3)
    place.evolve(change)


def in_a_young_file(place: Place, change: Change) -> None:
    place.write(KEYS)
    place.table.flush()
    place.delete(3)
    place.table.flush()
    place.evolve(change)


def in_a_compacted_file(place: Place, change: Change) -> None:
    place.write(KEYS)
    place.table.flush()
    place.write(KEYS[::3], shift=100)
    place.table.compact(full=True)
    place.evolve(change)


def flushed_after(place: Place, change: Change) -> None:
    place.write(KEYS)
    place.delete(3)
    place.evolve(change)
    place.table.flush()


def rewritten_after(place: Place, change: Change) -> None:
    place.write(KEYS[:12])
    place.table.flush()
    place.write(KEYS[10:])
    place.evolve(change)
    place.table.compact(full=True)


def in_a_reopened_log(place: Place, change: Change) -> None:
    place.write(KEYS)
    place.delete(3)
    place.evolve(change)
    place.reopen()


def everywhere(place: Place, change: Change) -> None:
    place.write(KEYS[:9])
    place.table.compact(full=True)
    place.write(KEYS[6:15], shift=50)
    place.table.flush()
    place.write(KEYS[12:], shift=100)
    place.delete(3)
    place.evolve(change)


PLACES: Final = (
    unflushed,
    in_a_young_file,
    in_a_compacted_file,
    flushed_after,
    rewritten_after,
    in_a_reopened_log,
    everywhere,
)


@contextmanager
def a_place() -> Iterator[Place]:
    place = Place()
    try:
        yield place
    finally:
        place.lake.close()


def shown_rows(rows: pa.Table, key: str) -> dict[int, Row]:
    return {row[key]: row for row in rows.to_pylist()}


def check_reads(view: Table | Snapshot, expected: dict[int, Row], change: Change) -> None:
    """Check that every way of reading gives exactly the expected rows."""
    key, arrow_schema = change.key, view.schema.arrow_schema
    chosen = {number: row for number, row in expected.items() if change.keeps(row)}
    assert {number: view.get(number) for number in expected} == expected
    assert view.get(999) is None
    asked = [*reversed(expected), 999, next(iter(expected))]
    many = view.get_many(asked)
    assert many.schema.equals(arrow_schema, check_metadata=True)
    assert many.column(key).to_pylist() == [each for each in asked if each != 999]
    assert shown_rows(many, key) == expected
    rows = view.scan().to_arrow()
    rows.validate(full=True)
    assert rows.schema.equals(arrow_schema, check_metadata=True)
    assert rows.num_rows == len(expected)
    assert shown_rows(rows, key) == expected
    assert shown_rows(view.scan(change.filter).to_arrow(), key) == chosen
    assert view.scan(change.filter).count() == len(chosen)
    backwards = view.scan(reverse=True).to_arrow()
    assert backwards.column(key).to_pylist() == sorted(expected, reverse=True)
    assert shown_rows(backwards, key) == expected
    some = sorted({*arrow_schema.names[1::2], key})
    part = view.scan(columns=some, key_range=(None, None)).to_arrow()
    assert part.to_pylist() == [
        {name: expected[each][name] for name in some} for each in sorted(expected)
    ]


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize("make", PLACES, ids=[make.__name__ for make in PLACES])
def test_rows_read_right_after_a_change_wherever_they_lie(
    make: Callable[[Place, Change], None], change: Change
) -> None:
    with a_place() as place:
        make(place, change)
        expected = {key: change.turn(row) for key, row in place.before.items()}
        check_reads(place.table, expected, change)

        newest = change.turn(a_row(1, shift=1_000)) | change.more
        place.table.put(newest)
        place.table.upsert([change.turn(a_row(500)) | change.more])
        expected |= {1: newest, 500: change.turn(a_row(500)) | change.more}

        check_reads(place.table, expected, change)
        place.table.flush()
        place.reopen()
        place.table.compact(full=True)
        check_reads(place.table, expected, change)
        place.table.verify()


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_old_versions_and_snapshots_show_the_schema_of_their_day(change: Change) -> None:
    with a_place() as place:
        place.write(KEYS[:12])
        old = place.table.flush()
        committed = dict(place.before)
        place.write(KEYS[10:])
        today = Change(lambda _: None, same, "count > 5", positive("count"))
        with place.table.snapshot() as frozen:
            place.evolve(change)
            place.table.put(change.turn(a_row(1, shift=1_000)) | change.more)
            check_reads(frozen, place.before, today)
            place.table.compact(full=True)
            check_reads(frozen, place.before, today)

        with place.table.at(version=old) as view:
            assert view.schema.arrow_schema.names == SCHEMA.names
            check_reads(view, committed, today)


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_another_handle_and_another_process_see_a_change_when_they_refresh(change: Change) -> None:
    with a_place() as place, neve.open(place.lake.location) as other_lake:
        place.write(KEYS[:12])
        place.table.flush()
        place.write(KEYS[10:])
        other = other_lake.table(NAME, read_only=True)
        assert other.schema.arrow_schema.names == SCHEMA.names

        place.evolve(change)
        assert other.scan().schema.names == SCHEMA.names
        assert len(other.scan().to_arrow()) == len(place.before)
        other.refresh()

        expected = {key: change.turn(row) for key, row in place.before.items()}
        check_reads(other, expected, change)


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_writer_learns_of_a_change_that_others_made(change: Change) -> None:
    with a_place() as place, neve.open(place.lake.location) as other_lake:
        place.write(KEYS[:12])
        place.table.flush()
        with other_lake.load_table(NAME).evolve() as e:
            change.evolve(e)
        # The writer does not know yet: it logs, and flushes, under the schema it has.
        place.write(KEYS[10:])
        place.table.flush()

        expected = {key: change.turn(row) for key, row in place.before.items()}
        check_reads(place.table, expected, change)
        place.reopen()
        check_reads(place.table, expected, change)
