"""What predicates on columns imply for partition values, as a table of cases."""

from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from neve.model.bound_predicate import (
    AllOf,
    Always,
    AnyOf,
    BoundColumn,
    BoundCondition,
    Operator,
)
from neve.model.partition_spec import PartitionSpec
from neve.model.predicate import ALWAYS_FALSE, ALWAYS_TRUE, Predicate, col
from neve.model.pruning import ColumnFacts, Match, match, project
from neve.model.schema import TableSchema
from neve.model.transforms import Bucket

COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "n": pa.int32(),
    "ts": pa.timestamp("us"),
    "ns": pa.timestamp("ns", "UTC"),
    "day": pa.date32(),
    "price": pa.decimal128(9, 2),
    "name": pa.string(),
    "raw": pa.binary(),
    "x": pa.float64(),
    "u": pa.uuid(),
}
SCHEMA = TableSchema.from_arrow(pa.schema(COLUMNS), primary_key=["id"])
N, TS, NAME = col("n"), col("ts"), col("name")
NEW_YEAR, LAST_DAY = "2018-01-01T00:00:00", 17531


def projected(predicate: Predicate, *texts: str) -> object:
    """Projection in short: operator and literals of its only condition."""
    result = project(predicate.bind(SCHEMA), PartitionSpec.parse(texts, SCHEMA))
    if isinstance(result, Always):
        return result.answer
    assert isinstance(result, BoundCondition)
    assert result.column.field_id == 1000
    return (result.operator.value, *result.literals)


@pytest.mark.parametrize(
    ("field", "predicate", "expected"),
    [
        # Exclusive bounds step to the last value that matches.
        ("day(ts)", TS < NEW_YEAR, ("<=", LAST_DAY)),
        ("day(ts)", TS <= NEW_YEAR, ("<=", LAST_DAY + 1)),
        ("day(ts)", TS > "2017-12-31T23:59:59.999999", (">=", LAST_DAY + 1)),
        ("day(ts)", TS >= "2017-12-31T23:59:59.999999", (">=", LAST_DAY)),
        ("day(ts)", TS == NEW_YEAR, ("==", LAST_DAY + 1)),
        ("day(ts)", TS.is_in([NEW_YEAR, "2017-12-31"]), ("in", LAST_DAY, LAST_DAY + 1)),
        ("day(ts)", TS.is_in([NEW_YEAR, "2018-01-01T10:00:00"]), ("==", LAST_DAY + 1)),
        ("day(ts)", TS != NEW_YEAR, ("is not null",)),
        ("day(ts)", TS.not_in([NEW_YEAR, "2017-12-31"]), ("is not null",)),
        ("day(ts)", TS.is_null(), ("is null",)),
        ("day(ts)", TS.not_null(), ("is not null",)),
        ("day(ts)", TS < "1970-01-01", ("<=", -1)),
        ("hour(ts)", TS < "1970-01-01", ("<=", -1)),
        ("month(ts)", TS < "1970-01-01", ("<=", -1)),
        ("year(ts)", TS < "1970-01-01", ("<=", -1)),
        ("month(day)", col("day") > "1969-12-31", (">=", 0)),
        ("hour(ns)", col("ns") < "1970-01-01T00:00:00.000000001Z", ("<=", 0)),
        ("hour(ts)", TS > 1 << 80, ("is not null",)),
        ("truncate(10, n)", N < 20, ("<=", 10)),
        ("truncate(10, n)", N <= 20, ("<=", 20)),
        ("truncate(10, n)", N > 19, (">=", 20)),
        ("truncate(10, n)", N >= 19, (">=", 10)),
        ("truncate(10, n)", N == -1, ("==", -10)),
        ("truncate(10, n)", N != 5, ("is not null",)),
        ("truncate(10, n)", N > (1 << 31) - 1, (">=", 2147483640)),
        # Rows near the low end cannot be truncated, so nothing can be said about them.
        ("truncate(10, n)", N < 5 - (1 << 31), ("is not null",)),
        ("truncate(10, n)", N == -(1 << 31), ("is not null",)),
        ("truncate(50, price)", col("price") < Decimal("1.00"), ("<=", Decimal("0.50"))),
        ("truncate(50, price)", col("price") > Decimal("0.99"), (">=", Decimal("1.00"))),
        ("truncate(3, name)", NAME < "abcd", ("<=", "abc")),
        ("truncate(3, name)", NAME <= "ab", ("<=", "ab")),
        ("truncate(3, name)", NAME > "abcd", (">=", "abc")),
        ("truncate(3, name)", NAME == "abcd", ("==", "abc")),
        ("truncate(3, name)", NAME.is_in(["abcd", "abce", "x"]), ("in", "abc", "x")),
        ("truncate(3, name)", NAME.starts_with("ab"), ("starts with", "ab")),
        ("truncate(3, name)", NAME.starts_with("abc"), ("==", "abc")),
        ("truncate(3, name)", NAME.starts_with("abcd"), ("==", "abc")),
        ("truncate(2, name)", NAME.starts_with("é😀x"), ("==", "é😀")),
        ("truncate(3, name)", NAME.not_starts_with("ab"), ("does not start with", "ab")),
        ("truncate(3, name)", NAME.not_starts_with("abc"), ("!=", "abc")),
        ("truncate(3, name)", NAME.not_starts_with("abcd"), ("is not null",)),
        ("truncate(1, raw)", col("raw") >= b"\xff\xff", (">=", b"\xff")),
        ("bucket(16, id)", col("id") == 34, ("==", 3)),
        ("bucket(16, id)", col("id").is_in([34, 34.0]), ("==", 3)),
        ("bucket(16, id)", col("id") > 34, ("is not null",)),
        ("bucket(16, id)", col("id") != 34, ("is not null",)),
        ("bucket(16, name)", NAME.starts_with("a"), ("is not null",)),
        ("bucket(16, u)", col("u").is_null(), ("is null",)),
        ("name", NAME.not_starts_with("ab"), ("does not start with", "ab")),
        ("x", col("x") < 5, ("<", 5.0)),
        ("x", col("x").is_nan(), ("is nan",)),
        ("u", col("u") != UUID(int=5), ("!=", UUID(int=5).bytes)),
        ("day(ts)", N == 5, True),
        ("day(ts)", ALWAYS_TRUE, True),
        ("day(ts)", ALWAYS_FALSE, False),
        ("day(ts)", (N == 5) & (TS < NEW_YEAR), ("<=", LAST_DAY)),
        ("day(ts)", (N == 5) | (TS < NEW_YEAR), True),
        ("day(ts)", ~(TS >= NEW_YEAR), ("<=", LAST_DAY)),
    ],
)
def test_a_predicate_is_projected_through(
    field: str, predicate: Predicate, expected: object
) -> None:
    assert projected(predicate, field) == expected


def test_every_field_of_the_column_takes_part() -> None:
    spec = PartitionSpec.parse(["truncate(10, n)", "bucket(4, n)", "day(ts)"], SCHEMA)

    result = project(((N == 25) | (TS == NEW_YEAR)).bind(SCHEMA), spec)

    cut = BoundColumn(1000, "n_trunc", pa.int32())
    bucket = BoundColumn(1001, "n_bucket", pa.int32())
    day = BoundColumn(1002, "ts_day", pa.date32())
    number = Bucket(4).apply_one(25, pa.int32())
    assert number is not None
    assert result == AnyOf(
        (
            AllOf(
                (
                    BoundCondition(cut, Operator.EQ, (20,)),
                    BoundCondition(bucket, Operator.EQ, (number,)),
                )
            ),
            BoundCondition(day, Operator.EQ, (LAST_DAY + 1,)),
        )
    )


def test_a_table_in_one_piece_is_never_pruned() -> None:
    assert projected(N == 5) is True


def test_partitions_that_cannot_match_are_told_from_those_that_can() -> None:
    spec = PartitionSpec.parse(["day(ts)", "bucket(16, id)"], SCHEMA)
    wanted = (TS >= NEW_YEAR) & (col("id") == 34)
    projection = project(wanted.bind(SCHEMA), spec)

    answers = [
        match(projection, {1000: ColumnFacts.of_value(day), 1001: ColumnFacts.of_value(bucket)})
        for day, bucket in [(LAST_DAY, 3), (LAST_DAY + 1, 3), (LAST_DAY + 1, 4), (None, 3)]
    ]

    assert answers == [Match.NEVER, Match.ALWAYS, Match.NEVER, Match.NEVER]
