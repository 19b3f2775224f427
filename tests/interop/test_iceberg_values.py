"""Values at the edges of their types: others read them as neve does, and filters lose none."""

import operator
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg import expressions as asking
from pyiceberg.table import StaticTable

import neve
from neve.catalog.table import Table
from tests.interop.iceberg_readers import DuckDb, in_order, open_duckdb, read_polars, read_pyiceberg
from tests.interop.published_versions import rows_of
from tests.unit.iceberg.published_lake import BY_HAND

NAN = float("nan")
# Texts and binaries are cut at 16, and an upper bound is raised where it can be.
VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "text": (pa.string(), ["", "a" * 40, "\U0010ffff" * 20, "\U0001f600" * 17, "\ud7ff" * 18, "é"]),
    "bytes": (pa.binary(), [b"", b"\xff" * 20, b"a" * 15 + b"\xff\xff", b"\0" * 20]),
    "fixed": (pa.binary(20), [b"\xff" * 20, b"\0" * 20]),
    "number": (pa.float64(), [-0.0, 0.0, NAN, -1e308, float("inf"), float("-inf")]),
    "price": (
        pa.decimal128(9, 2),
        [Decimal(each) for each in ("-1.28", "-1.29", "1.28", "327.68")],
    ),
    "wide": (pa.decimal128(38, 0), [Decimal(-(10**38) + 1), Decimal(-128), Decimal(255)]),
    "clock": (pa.time64("us"), [time(0), time(23, 59, 59, 999_999)]),
    "day": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    "zoned": (pa.timestamp("us", tz="UTC"), [datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC)]),
    "small": (pa.int32(), [-(2**31), 2**31 - 1, 0]),
}
UNFILTERED: dict[str, tuple[pa.DataType, list[object]]] = {
    "uuid": (pa.uuid(), [UUID(int=0), UUID(int=2**128 - 1)]),
    "map": (pa.map_(pa.string(), pa.int32()), [{}, {"a": 1, "b": None}]),
    "nested": (pa.struct([("in", pa.struct([("x", pa.float64())]))]), [{"in": {"x": NAN}}, {}]),
}
_KEY: "pa.Field[pa.DataType]" = pa.field("id", pa.int64(), nullable=False)


@pytest.fixture(scope="module")
def duckdb_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDb]:
    with open_duckdb(tmp_path_factory.mktemp("extensions")) as engine:
        yield engine


@pytest.fixture(params=["3", "2"], ids=["v3", "v2"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Table]:
    columns = {**VALUES, **UNFILTERED}
    schema = pa.schema([_KEY, *(pa.field(name, kind) for name, (kind, _) in columns.items())])
    with neve.open(tmp_path) as lake:
        made = lake.create_table(
            "shop.edges",
            schema,
            ["id"],
            properties={"format-version": request.param},
            options=BY_HAND,
        )
        for number in range(7):  # files with different bounds, the last with none
            made.put({
                "id": number,
                **{name: values[number] if number < len(values) else None
                   for name, (_, values) in columns.items()},
            })  # fmt: skip
            made.flush()
        made.put({"id": 10, "number": NAN, "text": "zz"})
        made.upsert([{"id": 11, "number": 7.5}, {"id": 12, "number": 8.5}])
        made.delete(6)
        made.flush()
        yield made
        made.close()


def test_every_value_is_read_as_neve_reads_it(table: Table, duckdb_engine: DuckDb) -> None:
    expected = repr(rows_of(table))  # NaN is equal to nothing, and -0.0 to 0.0
    location = table.iceberg_metadata()

    assert repr(read_pyiceberg(location, None)) == expected
    found = duckdb_engine.query(f"SELECT * EXCLUDE (uuid) FROM iceberg_scan('{location}')")
    assert repr(in_order(found)) == repr(in_order(table.scan().to_arrow().drop(["uuid"])))


def test_filters_of_pyiceberg_find_every_value(table: Table) -> None:
    static = StaticTable.from_metadata(table.iceberg_metadata())
    rows = rows_of(table)
    ways: dict[str, Callable[[Any, Any], bool]] = {
        "EqualTo": operator.eq,
        "LessThanOrEqual": operator.le,
        "GreaterThanOrEqual": operator.ge,
    }
    for name, (_, values) in VALUES.items():
        for value in values:
            if value != value:  # noqa: PLR0124 - NaN
                continue
            for way, holds in ways.items():
                expected = [row["id"] for row in rows
                            if row[name] is not None and holds(row[name], value)]  # fmt: skip
                asked = getattr(asking, way)(name, value)
                assert _keys(static, asked) == expected, asked
    is_nan: Any = asking.IsNaN
    assert _keys(static, is_nan("number")) == [2, 10]
    assert _keys(static, is_nan("nested.in.x")) == [0]


def test_filters_of_duckdb_find_every_value(table: Table, duckdb_engine: DuckDb) -> None:
    location = table.iceberg_metadata()
    for name in set(VALUES) - {"number"}:
        duckdb_engine.connection.execute(
            f"CREATE OR REPLACE TABLE kept AS SELECT * FROM iceberg_scan('{location}')"
        )
        for sign in ("=", "<=", ">="):
            # Every value is asked for by itself, so that bounds of files are looked at.
            for (key,) in duckdb_engine.connection.execute(
                f"SELECT id FROM kept WHERE {name} IS NOT NULL"
            ).fetchall():
                (value,) = duckdb_engine.connection.execute(
                    f"SELECT {name} FROM kept WHERE id = {key}"
                ).fetchone() or (None,)
                found, expected = (
                    duckdb_engine.connection.execute(
                        f"SELECT id FROM {source} WHERE {name} {sign} $1 ORDER BY id",
                        [value],
                    ).fetchall()
                    for source in (f"iceberg_scan('{location}')", "kept")
                )
                assert found == expected, (name, sign, value)


def test_defaults_of_new_columns_are_read_in_old_rows(
    tmp_path: Path, duckdb_engine: DuckDb
) -> None:
    with neve.open(tmp_path) as lake:
        made = lake.create_table("shop.edges", pa.schema([_KEY]), ["id"], options=BY_HAND)
        made.upsert([{"id": 1}, {"id": 2}])
        made.flush()
        with made.evolve() as change:
            change.add_column("count", "long", default=42)
            change.add_column("word", "string", default="é")
        made.put({"id": 2, "count": None, "word": "new"})
        made.flush()
        location = made.iceberg_metadata()

        for read in (read_pyiceberg, duckdb_engine.read, read_polars):
            assert read(location, None) == rows_of(made)
        assert rows_of(made)[0] == {"id": 1, "count": 42, "word": "é"}
        made.close()


def _keys(static: StaticTable, asked: asking.BooleanExpression) -> list[object]:
    found = static.scan(row_filter=asked, selected_fields=("id",)).to_arrow()
    return [row["id"] for row in in_order(found)]
