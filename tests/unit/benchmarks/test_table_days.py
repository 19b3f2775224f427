"""The benchmark of partitions by day: its rows, and what it expects of a day."""

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.table_days import asked_days, day_rows, rows_of_day

ROWS = 10_007


def test_every_id_is_there_once() -> None:
    rows = day_rows(0, ROWS, rows=ROWS)

    assert rows.sort_by("id").column("id").to_pylist() == list(range(ROWS))


def test_the_rows_of_a_day_are_those_whose_timestamps_say_so() -> None:
    rows = day_rows(0, ROWS, rows=ROWS)
    days = rows.column("ts").cast(pa.date32()).cast(pa.int32())
    first = pc.min(days).as_py()

    for day in (0, 1, 57, 99):
        wanted = pc.equal(days, pa.scalar(first + day))
        assert rows_of_day(day, rows=ROWS).equals(rows.filter(wanted).combine_chunks())


def test_a_table_of_the_full_size_ends_on_its_last_day() -> None:
    last = day_rows(9_999_999, 10_000_000, rows=10_000_000)

    assert str(last.column("ts")[0].as_py().date()) == "2024-04-09"


def test_no_day_is_asked_for_twice() -> None:
    days = list(asked_days())

    assert len(set(days)) == len(days) > 1
