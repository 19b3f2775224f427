"""Every type a table holds, nested ones too, each with the values that rows hold for it."""

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from neve.model.schema import TableSchema

INT64 = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True)
class Typed:
    """A type and the Python values that come out of a row of it."""

    type: pa.DataType
    values: st.SearchStrategy[Any]

    @property
    def nullable_values(self) -> st.SearchStrategy[Any]:
        return st.none() | self.values


def _decimal(precision: int, scale: int) -> Typed:
    limit = 10**precision - 1
    values = st.integers(-limit, limit).map(lambda number: Decimal(f"{number}E-{scale}"))
    return Typed(pa.decimal128(precision, scale), values)


PRIMITIVES = [
    Typed(pa.bool_(), st.booleans()),
    Typed(pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    Typed(pa.int64(), st.integers(*INT64)),
    Typed(pa.float32(), st.floats(width=32)),
    Typed(pa.float64(), st.floats()),
    _decimal(1, 0),
    _decimal(9, 2),
    _decimal(38, 38),
    _decimal(38, 0),
    Typed(pa.date32(), st.dates()),
    Typed(pa.time64("us"), st.times()),
    Typed(pa.timestamp("us"), st.datetimes()),
    Typed(pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    Typed(pa.timestamp("ns"), st.integers(*INT64)),
    Typed(pa.timestamp("ns", tz="UTC"), st.integers(*INT64)),
    Typed(pa.string(), st.text(max_size=8)),
    Typed(pa.binary(), st.binary(max_size=8)),
    Typed(pa.binary(1), st.binary(min_size=1, max_size=1)),
    Typed(pa.binary(7), st.binary(min_size=7, max_size=7)),
    Typed(pa.uuid(), st.uuids()),
]

primitives = st.sampled_from(PRIMITIVES)


def list_of(element: Typed, is_required: bool) -> Typed:
    """Make lists of a type."""
    field = pa.field("element", element.type, nullable=not is_required)
    values = element.values if is_required else element.nullable_values
    return Typed(pa.list_(field), st.lists(values, max_size=9))


def struct_of(members: list[tuple[Typed, bool]]) -> Typed:
    """Make structs of types, each with whether it is required."""
    fields = [
        pa.field(f"f{at}", each.type, nullable=not is_required)
        for at, (each, is_required) in enumerate(members)
    ]
    values = {
        f"f{at}": each.values if is_required else each.nullable_values
        for at, (each, is_required) in enumerate(members)
    }
    return Typed(pa.struct(fields), st.fixed_dictionaries(values))


def map_of(key: Typed, item: Typed) -> Typed:
    """Make maps of a primitive type to another type."""
    pairs = st.lists(st.tuples(key.values, item.nullable_values), max_size=3)
    return Typed(pa.map_(key.type, item.type), pairs)


typed = st.recursive(
    primitives,
    lambda inner: (
        st.builds(list_of, inner, st.booleans())
        | st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=3).map(struct_of)
        | st.builds(map_of, primitives, inner)
    ),
    max_leaves=4,
)


@dataclass(frozen=True)
class Table:
    """A schema with rows of it."""

    schema: TableSchema
    rows: list[dict[str, object]]


@st.composite
def tables(draw: st.DrawFn, *, rows_max: int = 4) -> Table:
    """Draw a schema of a long key and a few columns, and rows that fit it."""
    columns = draw(st.lists(typed, max_size=4) | st.lists(primitives, max_size=9))
    required = draw(st.lists(st.booleans(), min_size=len(columns), max_size=len(columns)))
    fields = [pa.field("id", pa.int64())] + [
        pa.field(f"c{at}", each.type, nullable=not is_required)
        for at, (each, is_required) in enumerate(zip(columns, required, strict=True))
    ]
    place = draw(st.integers(0, len(columns)))
    ordered = [*fields[1 : place + 1], fields[0], *fields[place + 1 :]]
    values = {"id": st.integers(*INT64)} | {
        f"c{at}": each.values if is_required else each.nullable_values
        for at, (each, is_required) in enumerate(zip(columns, required, strict=True))
    }
    named = {field.name: values[field.name] for field in ordered}
    rows = draw(st.lists(st.fixed_dictionaries(named), min_size=1, max_size=rows_max))
    return Table(TableSchema.from_arrow(pa.schema(ordered), primary_key=["id"]), rows)


def same(left: object, right: object) -> bool:
    """Compare values as stored: NaN is itself, −0.0 is not 0.0, True is not 1."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float) and isinstance(right, float):
        signs = math.copysign(1, left) == math.copysign(1, right)
        return (math.isnan(left) and math.isnan(right)) or (left == right and signs)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right
