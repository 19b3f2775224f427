"""`table_days`: one day out of a table partitioned by day, beside a table that is not; neve alone.

Both tables have ten times the rows of the run. Ids say nothing of when a row is from, so that only
partitions can tell which files hold a day.
"""

import functools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import neve
from benchmarks.harness import SEED, Candidate, Kind, Outcome, Ratio, Stopwatch, Workload
from benchmarks.result_file import Pace
from benchmarks.table_sample import shown_total
from benchmarks.table_session import TableSession

_DAYS: Final = 100
_ASKED_DAYS: Final = 7
_DAY_MILLISECONDS: Final = 86_400_000
_FIRST_DAY: Final = np.datetime64("2024-01-01", "D")
_STRIDE: Final = 999_983
_VISITS: Final = 1_000
_LOAD_ROWS: Final = 500_000
_ROW_BYTES: Final = 4 * 8
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "id": pa.int64(),
    "ts": pa.timestamp("us", tz="UTC"),
    "visits": pa.int64(),
    "score": pa.float64(),
}
_SCHEMA: Final = pa.schema(
    [pa.field(name, kind, nullable=name != "id") for name, kind in _TYPES.items()]
)
_OPTIONS: Final = neve.TableOptions(sync="none", background=False)
_BY_DAY: Final = "neve, partitioned by day"
_PLAIN: Final = "neve, not partitioned"
_WHOLE: Final = "neve, partitioned by day, every row"


@dataclass(eq=False)
class _Days:
    """The same rows in two tables, each made on first use."""

    session: TableSession
    rows: int
    _lake: neve.Catalog | None = None
    _tables: dict[str, neve.Table] = field(default_factory=dict)

    def table(self, partition: str) -> neve.Table:
        """Return the table with a partition field, or without any when that is empty."""
        found = self._tables.get(partition)
        if found is None:
            if self._lake is None:
                self._lake = neve.open(str(self.session.directory / "days"))
            found = self._tables[partition] = self._lake.create_table(
                f"bench.{'days' if partition else 'plain'}",
                _SCHEMA,
                ["id"],
                partition_by=[partition] if partition else [],
                options=_OPTIONS,
            )
            for start in range(0, self.rows, _LOAD_ROWS):
                found.upsert(day_rows(start, min(start + _LOAD_ROWS, self.rows), rows=self.rows))
            found.compact()
        return found

    def release(self) -> None:
        if self._lake is not None:
            self._lake.close()


def build_days(session: TableSession) -> Workload:
    """One day at a time, with and without partitions."""
    days = _Days(session, rows=10 * session.scale.rows)
    one_day = functools.partial(_read_days, days)
    return Workload(
        name="table_days",
        sentence="The rows of one day as Arrow, out of a table of many days.",
        unit="rows",
        candidates=[
            Candidate(
                name=_BY_DAY, kind=Kind.NEVE, trial=functools.partial(one_day, partition="day(ts)")
            ),
            Candidate(name=_PLAIN, kind=Kind.NEVE, trial=functools.partial(one_day, partition="")),
            Candidate(name=_WHOLE, kind=Kind.NEVE, trial=functools.partial(_read_all, days)),
        ],
        ratios=[
            Ratio(of=_BY_DAY, to=_PLAIN, by=Pace.MEDIAN_CALL),
            Ratio(of=_BY_DAY, to=_WHOLE, by=Pace.MEDIAN_CALL),
        ],
        parameters={"rows": days.rows, "days": _DAYS, "days_asked_for": _ASKED_DAYS},
        notes=(
            "The filter is on the timestamp; nobody names a partition.",
            "`every row` is one call that reads all days: what a day costs without pruning.",
        ),
        uses_disk=False,
        release=days.release,
    )


def day_rows(start: int, stop: int, *, rows: int) -> pa.Table:
    """Return some rows of a table of so many: ascending in time, with ids in no order."""
    places = np.arange(start, stop, dtype=np.int64)
    # In milliseconds: a product in microseconds would not fit.
    moments = _FIRST_DAY.astype("datetime64[ms]") + places * (_DAYS * _DAY_MILLISECONDS) // rows
    columns = [
        # A prime that divides no size in use visits every id once, far from the one before.
        pa.array(places * _STRIDE % rows),
        pa.array(moments.astype("datetime64[us]")).cast(_TYPES["ts"]),
        pa.array(places % _VISITS),
        pa.array(places * 0.5),
    ]
    return pa.table(columns, schema=_SCHEMA)


def rows_of_day(day: int, *, rows: int) -> pa.Table:
    """Return the rows of one day, counted from the first, without a table."""
    # The first place of a day is the first whose share of all days is not below the day's.
    start, stop = (-(-each * rows // _DAYS) for each in (day, day + 1))
    return day_rows(start, stop, rows=rows)


def asked_days() -> Iterator[int]:
    """Draw the days to ask for, none twice."""
    drawn = np.random.default_rng(SEED).choice(_DAYS, _ASKED_DAYS, replace=False)
    return (int(day) for day in drawn)


def _filter_of(day: int) -> str:
    first, end = (f"{_FIRST_DAY + np.timedelta64(each, 'D')}" for each in (day, day + 1))
    return f"ts >= '{first}T00:00:00+00:00' and ts < '{end}T00:00:00+00:00'"


def _read_days(days: _Days, _directory: Path, stopwatch: Stopwatch, *, partition: str) -> Outcome:
    table = days.table(partition)
    asked = list(asked_days())
    with stopwatch:
        read = [_timed(table, _filter_of(day)) for day in asked]
    plan = table.scan(_filter_of(asked[0])).explain()
    return Outcome(
        rows=sum(found.num_rows for found, _ in read),
        calls=len(read),
        logical_bytes=sum(found.num_rows for found, _ in read) * _ROW_BYTES,
        answer=[_total(found) for found, _ in read],
        expected=[_total(rows_of_day(day, rows=days.rows)) for day in asked],
        latencies_ns=[spent for _, spent in read],
        facts={"files_read": float(plan.files_read), "files": float(table.files().num_rows)},
    )


def _read_all(days: _Days, _directory: Path, stopwatch: Stopwatch) -> Outcome:
    table = days.table("day(ts)")
    with stopwatch:
        found, spent = _timed(table, None)
    count = float(table.files().num_rows)
    return Outcome(
        rows=found.num_rows,
        calls=1,
        logical_bytes=found.num_rows * _ROW_BYTES,
        answer=_total(found),
        expected=_expected_total(days.rows),
        latencies_ns=[spent],
        facts={"files_read": count, "files": count},
    )


def _timed(table: neve.Table, condition: str | None) -> tuple[pa.Table, int]:
    began_at = time.perf_counter_ns()
    found = table.scan(condition).to_arrow()
    return found, time.perf_counter_ns() - began_at


def _total(rows: pa.Table) -> str:
    ids, visits = (int(pc.sum(rows[name]).as_py() or 0) for name in ("id", "visits"))
    return shown_total(rows.num_rows, ids, visits)


def _expected_total(rows: int) -> str:
    whole, rest = divmod(rows, _VISITS)
    visits = whole * (_VISITS * (_VISITS - 1) // 2) + rest * (rest - 1) // 2
    return shown_total(rows, rows * (rows - 1) // 2, visits)
