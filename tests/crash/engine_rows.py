"""Rows of the tables that worlds are made of: their keys, their values, and filters over them.

Columns come and go while a world lives, so values and filters are drawn by a column's type.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Final

import pyarrow as pa

from neve.model.schema import Column, TableSchema
from neve.testing.model_table import Key, Row, Rows

WORDS: Final = ("", "a", "ab", "zebra", "été", "x" * 40)
DAY: Final = dt.datetime(2024, 2, 28, 22, tzinfo=dt.UTC)
MOMENT: Final = pa.timestamp("us", tz="UTC")
NARROW_DECIMAL: Final = pa.decimal128(9, 2)
WIDE_DECIMAL: Final = pa.decimal128(18, 2)

TICK: Final = dt.timedelta(seconds=100)
"""Times of rows that expire are whole ticks, and time passes by ticks."""
TIME_TO_LIVE: Final = 2.5 * TICK
"""Rows expire between two ticks, and never during a step that takes a few seconds."""

Matches = Callable[[Row], bool]


class Violation(AssertionError):
    """What a table must never show."""


def _columns(**others: pa.DataType) -> dict[str, pa.DataType]:
    return {"word": pa.string(), "amount": pa.int64(), "share": pa.float64(), **others}


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of table: how its keys are, what else it has, and how it is partitioned."""

    name: str
    key_columns: Mapping[str, pa.DataType]
    keys: Sequence[Key]
    other_columns: Mapping[str, pa.DataType] = field(default_factory=_columns)
    partition_by: tuple[str, ...] = ()
    ttl: tuple[str, dt.timedelta] | None = None

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [
                *(pa.field(name, kind, nullable=False) for name, kind in self.key_columns.items()),
                *(pa.field(name, kind) for name, kind in self.other_columns.items()),
            ]
        )

    @property
    def primary_key(self) -> tuple[str, ...]:
        return tuple(self.key_columns)

    def bare(self, key: Key) -> object:
        """A key as callers give it."""
        return key[0] if len(self.key_columns) == 1 else key


_NUMBERS: Final = [(number * 7 - 150,) for number in range(60)]
SHAPES: Final = (
    Shape("number", {"id": pa.int64()}, _NUMBERS),
    Shape(
        "text",
        {"name": pa.string()},
        [(f"{letter}{number}\0"[: 2 + number % 2],) for letter in "aäz" for number in range(8)],
        _columns(amount=pa.int32(), share=pa.float32()),
    ),
    Shape(
        "pair",
        {"place": pa.string(), "day": pa.int32()},
        [(place, day) for place in ("", "köln", "ulm") for day in range(-3, 9)],
        partition_by=("bucket(2, day)",),
    ),
    # The key does not say where a row lies: rows move when they are written again.
    Shape("moving", {"id": pa.int64()}, _NUMBERS[::2], partition_by=("truncate(1, word)",)),
    Shape(
        "dated",
        {"id": pa.int32()},
        _NUMBERS[:24],
        _columns(at=MOMENT, price=NARROW_DECIMAL),
        partition_by=("day(at)", "bucket(2, id)"),
    ),
    Shape(
        "expiring",
        {"id": pa.int64()},
        _NUMBERS[::2],
        _columns(at=MOMENT),
        partition_by=("hour(at)",),
        ttl=("at", TIME_TO_LIVE),
    ),
)


# Values


def value_of(kind: pa.DataType, rng: Random) -> object:
    """Draw a value of a column."""
    match kind:
        case _ if kind == pa.string():
            return rng.choice(WORDS)
        case _ if kind == pa.int32():
            return rng.randrange(-50, 50)
        case _ if kind == pa.int64():
            return rng.choice((rng.randrange(-50, 50), rng.randrange(-50, 50), 1 << 40))
        case _ if kind in (pa.float32(), pa.float64()):
            return rng.choice((0.5, -1.25, float(rng.randrange(9))))
        case _ if kind in (NARROW_DECIMAL, WIDE_DECIMAL):
            return Decimal(rng.randrange(-500, 500)) / 100
        case _ if kind == pa.date32():
            return DAY.date() + dt.timedelta(days=rng.randrange(4))
        case _ if kind == MOMENT:
            return DAY + dt.timedelta(hours=rng.randrange(50))
        case _:
            assert kind == pa.bool_(), f"no values of {kind} are known"
            return rng.random() < 0.5


def drawn_row(schema: TableSchema, key: Key, rng: Random) -> Row:
    """Draw a row of a key that has every column."""
    row = dict(zip((column.name for column in schema.key_columns), key, strict=True))
    for column in other_columns(schema):
        is_null = column.nullable and rng.random() < 0.25
        row[column.name] = None if is_null else value_of(column.type, rng)
    return row


def time_near(now_ms: int, rng: Random) -> dt.datetime:
    """Draw the time of a row that expires soon, or has expired."""
    return tick_at(now_ms) + rng.randrange(-3, 2) * TICK


def tick_at(now_ms: int) -> dt.datetime:
    """Return the last tick before a time."""
    ticks = dt.timedelta(milliseconds=now_ms) // TICK
    return dt.datetime.fromtimestamp(0, dt.UTC) + ticks * TICK


def other_columns(schema: TableSchema) -> list[Column]:
    """Columns outside of the key."""
    return [column for column in schema.columns if column.field_id not in schema.primary_key]


# Filters


def condition(schema: TableSchema, rng: Random) -> tuple[str, Matches]:
    """Draw a filter as text and as a function; NULL never matches a comparison."""
    left, matches_left = _simple_condition(schema, rng)
    right, matches_right = _simple_condition(schema, rng)
    return rng.choice(
        [
            (left, matches_left),
            (left, matches_left),
            (f"{left} and {right}", lambda row: matches_left(row) and matches_right(row)),
            (f"{left} or {right}", lambda row: matches_left(row) or matches_right(row)),
        ]
    )


def _simple_condition(schema: TableSchema, rng: Random) -> tuple[str, Matches]:
    numbers = [column for column in schema.key_columns if column.type != pa.string()]
    column = rng.choice([*other_columns(schema), *numbers])
    name = column.name
    if rng.random() < 0.2:
        return f"{name} is null", lambda row: row[name] is None
    wanted = value_of(column.type, rng)
    literal = str(wanted)
    if isinstance(wanted, str):
        literal = f"'{wanted}'"
        if rng.random() < 0.5:
            return f"{name} in ('ab', {literal})", lambda row: row[name] in {"ab", wanted}
    elif isinstance(wanted, bool):
        literal = literal.lower()
    elif isinstance(wanted, dt.date):
        literal = f"'{wanted.isoformat()}'"
    if isinstance(wanted, str | bool) or rng.random() < 0.3:
        return f"{name} = {literal}", lambda row: row[name] == wanted

    def is_more(row: Row) -> bool:
        value = row[name]
        return value is not None and value > wanted  # type: ignore[operator]

    return f"{name} > {literal}", is_more


# Comparing


def rows_by_key(rows: pa.Table, primary_key: Sequence[str]) -> Rows:
    found: list[Row] = rows.to_pylist()
    return {tuple(row[name] for name in primary_key): row for row in found}


def expect(found: Rows, expected: Rows, what: str) -> None:
    if found == expected:
        return
    lost = sorted(expected.keys() - found.keys())
    phantom = sorted(found.keys() - expected.keys())
    other = [
        (found[key], expected[key])
        for key in sorted(found.keys() & expected.keys())
        if found[key] != expected[key]
    ]
    raise Violation(f"{what}: lost {lost}, phantom {phantom}, other {other}")
