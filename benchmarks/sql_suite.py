"""The workloads of SQL: neve beside DuckDB on bare Parquet files and on its own tables.

The table has a tenth of its rows dead and a thousand rows that are only in its log; the peers have
the same live rows, and no others.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import neve
from benchmarks import tpch
from benchmarks.harness import (
    FIXED_TIME,
    FULL,
    BuildWorkload,
    Candidate,
    Kind,
    Outcome,
    Ratio,
    Scale,
    Shows,
    Stopwatch,
    Workload,
)
from benchmarks.result_file import Pace

NEVE: Final = "neve"
FILES: Final = "DuckDB on bare Parquet"
OWN: Final = "DuckDB's own table"
_ROWS_FACTOR: Final = 10
_UNFLUSHED: Final = 1_000
_MERGED_ROWS: Final = 10_000
_POINTS: Final = 50
_TPCH_QUICK: Final = 0.01
_CITIES: Final = 1_000
Run = Callable[[str], list[tuple[object, ...]]]
_MERGE: Final = """
    merge into shop.orders o using stage s on o.id = s.id
    when matched then update set amount = s.amount
    when not matched then insert (id, city, amount, qty) values (s.id, s.city, s.amount, 1)
"""


@dataclass(frozen=True, slots=True)
class _Engines:
    """The same rows in three places, and how each runs a query."""

    rows: pa.Table
    lake: neve.Lake
    files: duckdb.DuckDBPyConnection
    own: duckdb.DuckDBPyConnection
    hold: tuple[neve.Table, ...]
    """Handles that keep the tables open, as a program that writes them does."""

    def runs(self) -> Mapping[str, Run]:
        """Return what runs a query, by the name of the candidate."""
        return {
            NEVE: lambda text: self.lake.sql(text).fetchall(),
            FILES: lambda text: self.files.execute(text).fetchall(),
            OWN: lambda text: self.own.execute(text).fetchall(),
        }

    def close(self) -> None:
        """End all three."""
        self.lake.close()
        self.files.close()
        self.own.close()


def _orders(count: int) -> pa.Table:
    rng = np.random.default_rng(7)
    cities = pa.array([f"city{number}" for number in range(_CITIES)])
    return pa.table(
        {
            "id": pa.array(np.arange(count), pa.int64()),
            "city": cities.take(pa.array(rng.integers(0, _CITIES, count), pa.int64())),
            "amount": pa.array(rng.integers(0, 100_000, count) / 4),
            "qty": pa.array(rng.integers(0, 100, count), pa.int32()),
        }
    )


def _engines(rows: int, directory: Path) -> _Engines:
    table = _orders(rows)
    lake = neve.open(directory / "lake")
    schema = pa.schema([each.with_nullable(each.name != "id") for each in table.schema])
    orders = lake.create_table("shop.orders", schema, primary_key=["id"])
    is_stale = np.arange(rows) % 10 == 0
    before = np.where(is_stale, 0.0, table.column("amount").to_numpy())
    orders.upsert(table.set_column(2, "amount", pa.array(before)))
    orders.flush()
    orders.upsert(table.filter(pa.array(is_stale)))
    orders.flush()
    orders.upsert(table.slice(rows - _UNFLUSHED))
    path = directory / "orders.parquet"
    pq.write_table(table, path, compression="zstd", row_group_size=1 << 17)
    files, own = duckdb.connect(), duckdb.connect()
    files.execute("CREATE SCHEMA shop")
    files.execute(f"CREATE VIEW shop.orders AS SELECT * FROM read_parquet('{path}')")
    own.execute("CREATE SCHEMA shop")
    own.register("rows", table)
    own.execute(
        "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, city VARCHAR, amount DOUBLE, qty INTEGER)"
    )
    own.execute("INSERT INTO shop.orders SELECT * FROM rows")
    return _Engines(table, lake, files, own, (orders,))


def _rounded(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return an answer whose sums of floats do not depend on their order."""
    return [
        tuple(float(f"{each:.9g}") if isinstance(each, float) else each for each in row)
        for row in rows
    ]


def _queries(
    name: str,
    sentence: str,
    *,
    texts: Callable[[pa.Table], list[str]],
    expected: Callable[[pa.Table], list[tuple[object, ...]]],
    ratios: list[Ratio],
    scale: Scale,
    directory: Path,
) -> Workload:
    engines = _engines(scale.rows * _ROWS_FACTOR, directory)
    asked = texts(engines.rows)

    def trial(run: Run, _directory: Path, watch: Stopwatch) -> Outcome:
        run(asked[0])  # as a program that has asked before
        latencies: list[int] = []
        answers: list[tuple[object, ...]] = []
        with watch:
            for text in asked:
                began = time.perf_counter_ns()
                answers += run(text)
                latencies.append(time.perf_counter_ns() - began)
        return Outcome(
            rows=len(asked),
            calls=len(asked),
            logical_bytes=0,
            answer=sorted(_rounded(answers), key=repr),
            expected=sorted(_rounded(expected(engines.rows)), key=repr),
            latencies_ns=latencies,
        )

    return Workload(
        name=name,
        sentence=sentence,
        unit="queries",
        candidates=[
            Candidate(name=who, kind=_KINDS[who], trial=partial(trial, run))
            for who, run in engines.runs().items()
        ],
        ratios=ratios,
        parameters={"rows": engines.rows.num_rows, "dead": 0.1, "unflushed": _UNFLUSHED},
        shows=Shows.SECONDS,
        uses_disk=False,
        release=engines.close,
    )


_KINDS: Final = {NEVE: Kind.NEVE, FILES: Kind.PEER, OWN: Kind.PEER}


def _both(files_target: float | None = None) -> list[Ratio]:
    return [Ratio(of=NEVE, to=FILES, target=files_target), Ratio(of=NEVE, to=OWN)]


def build_sum(scale: Scale, directory: Path) -> Workload:
    """Sum one column."""
    return _queries(
        "sql_sum",
        "The sum of one column.",
        texts=lambda _: ["select sum(amount) from shop.orders"] * 5,
        expected=lambda rows: [(float(np.sum(rows.column("amount").to_numpy())),)] * 5,
        ratios=_both(1 / 1.2),
        scale=scale,
        directory=directory,
    )


def build_group(scale: Scale, directory: Path) -> Workload:
    """Sum by a column of text."""

    def expected(rows: pa.Table) -> list[tuple[object, ...]]:
        found = rows.group_by("city").aggregate([("amount", "sum")])
        cities, sums = found.column("city").to_pylist(), found.column("amount_sum").to_pylist()
        return list(zip(cities, sums, strict=True))

    return _queries(
        "sql_group",
        "The sum of one column, by a thousand names.",
        texts=lambda _: ["select city, sum(amount) from shop.orders group by city"],
        expected=expected,
        ratios=_both(),
        scale=scale,
        directory=directory,
    )


def build_range(scale: Scale, directory: Path) -> Workload:
    """Sum a hundredth of the keys."""

    def texts(rows: pa.Table) -> list[str]:
        step = rows.num_rows // 100
        return [
            f"select {first}, sum(qty) from shop.orders where id >= {first} and id < {first + step}"
            for first in range(step, 11 * step, step)
        ]

    def expected(rows: pa.Table) -> list[tuple[object, ...]]:
        step = rows.num_rows // 100
        quantities = rows.column("qty").to_numpy()
        return [
            (first, int(np.sum(quantities[first : first + step])))
            for first in range(step, 11 * step, step)
        ]

    return _queries(
        "sql_range",
        "The sum of one column over a hundredth of the keys.",
        texts=texts,
        expected=expected,
        ratios=_both(),
        scale=scale,
        directory=directory,
    )


def build_point(scale: Scale, directory: Path) -> Workload:
    """One row by its key."""

    def keys(rows: pa.Table) -> list[int]:
        return [number * (rows.num_rows // _POINTS) for number in range(_POINTS)]

    def expected(rows: pa.Table) -> list[tuple[object, ...]]:
        found = rows.take(keys(rows)).to_pylist()
        return [tuple(row.values()) for row in found]

    return _queries(
        "sql_point",
        "One row by its key, in one query.",
        texts=lambda rows: [f"select * from shop.orders where id = {key}" for key in keys(rows)],
        expected=expected,
        ratios=[
            *_both(),
            Ratio(of=NEVE, to=FIXED_TIME, target=1.0, by=Pace.MEDIAN_CALL, seconds=0.005),
        ],
        scale=scale,
        directory=directory,
    )


def build_tpch(scale: Scale, directory: Path) -> Workload:
    """All queries of TPC-H, one after the other."""
    factor = 1.0 if scale is FULL else _TPCH_QUICK
    rows = tpch.tables(factor)
    lake = neve.open(directory / "lake")
    tpch.load(lake, rows)
    hold = tuple(lake.table(f"tpch.{name}") for name in rows)
    files, own = duckdb.connect(), duckdb.connect()
    tpch.view_files(files, rows, directory)
    own.execute("CREATE SCHEMA tpch")
    for name, table in rows.items():
        own.register("rows", table)
        own.execute(f"CREATE TABLE tpch.{name} AS SELECT * FROM rows")
        own.unregister("rows")
    engines = _Engines(rows["region"], lake, files, own, hold)
    wanted = {number: _rounded(own.execute(text).fetchall()) for number, text in _tpch_texts()}

    def trial(run: Run, _directory: Path, watch: Stopwatch) -> Outcome:
        found: dict[int, Any] = {}
        latencies: list[int] = []
        with watch:
            for number, text in _tpch_texts():
                began = time.perf_counter_ns()
                found[number] = run(text)
                latencies.append(time.perf_counter_ns() - began)
        answers = {number: _rounded(rows) for number, rows in found.items()}
        return Outcome(
            rows=len(answers),
            calls=len(answers),
            logical_bytes=0,
            answer=answers,
            expected=wanted,
            latencies_ns=latencies,
        )

    return Workload(
        name="sql_tpch",
        sentence="All 22 queries of TPC-H, one after the other.",
        unit="queries",
        candidates=[
            Candidate(name=who, kind=_KINDS[who], trial=partial(trial, run))
            for who, run in engines.runs().items()
        ],
        ratios=_both(1 / 1.5),
        parameters={"scale factor": factor, "dead": 0.1, "unflushed": _UNFLUSHED},
        shows=Shows.SECONDS,
        uses_disk=False,
        rounds_max=3,
        release=engines.close,
    )


def _tpch_texts() -> list[tuple[int, str]]:
    return list(tpch.QUERIES.items())


def build_merge(scale: Scale, directory: Path) -> Workload:
    """Merge rows by their keys."""
    engines = _engines(scale.rows * _ROWS_FACTOR, directory)
    count = engines.rows.num_rows
    rng = np.random.default_rng(11)

    def trial(run: Callable[[pa.Table], None], query: Run, _: Path, watch: Stopwatch) -> Outcome:
        ids = rng.choice(count * 11 // 10, _MERGED_ROWS, replace=False)
        amounts = rng.integers(0, 1_000, _MERGED_ROWS) / 4
        cities = [f"city{number % _CITIES}" for number in range(_MERGED_ROWS)]
        stage = pa.table({"id": pa.array(ids), "amount": pa.array(amounts), "city": cities})
        with watch:
            run(stage)
        found = query(
            f"select sum(amount) from shop.orders where id in ({', '.join(map(str, ids[:500]))})"
        )
        return Outcome(
            rows=_MERGED_ROWS,
            calls=1,
            logical_bytes=0,
            answer=_rounded(found),
            expected=_rounded([(float(np.sum(amounts[:500])),)]),
        )

    def merge_own(stage: pa.Table) -> None:
        engines.own.register("stage", stage)
        engines.own.execute(_MERGE)

    def merge_neve(stage: pa.Table) -> None:
        engines.lake.sql(_MERGE, stage=stage)

    runs = engines.runs()
    return Workload(
        name="sql_merge",
        sentence=f"MERGE of {_MERGED_ROWS:,} rows by their keys, a tenth of them new.",
        unit="rows",
        candidates=[
            Candidate(
                name=NEVE,
                kind=Kind.NEVE,
                trial=partial(trial, merge_neve, runs[NEVE]),
                sync="each statement",
            ),
            Candidate(
                name=OWN,
                kind=Kind.PEER,
                trial=partial(trial, merge_own, runs[OWN]),
                sync="never: in memory",
            ),
        ],
        ratios=[Ratio(of=NEVE, to=OWN, target=1.0)],
        parameters={"rows": count},
        notes=("DuckDB's table is in memory, so its MERGE waits for no disk.",),
        shows=Shows.SECONDS,
        release=engines.close,
    )


SQL_WORKLOADS: Final[Mapping[str, BuildWorkload]] = {
    "sql_sum": build_sum,
    "sql_group": build_group,
    "sql_range": build_range,
    "sql_point": build_point,
    "sql_tpch": build_tpch,
    "sql_merge": build_merge,
}
