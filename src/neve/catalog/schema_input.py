"""What a table's columns may be given as, and which of them may be NULL.

    pyarrow.Schema, TableSchema      as they say
    pyarrow.Table, RecordBatch       as their schema says
    pandas, Polars, …                the types of its columns; all may be NULL
    {"id": "long", "name": str}      all may be NULL, but for a type with `!` after it: "long!"
    a dataclass or TypedDict         a field may be NULL where it says `| None` or NotRequired

Columns of the primary key are never NULL, whatever they are given as. A type in a dict is Arrow's,
text as `evolve` takes it (see `neve.model.type_parser`), or one of Python's:

    bool  int  float  str  bytes     boolean, long, double, string, binary
    date  time  datetime  UUID       date, time, timestamptz, uuid
    list[int]  dict[str, int]        a list, a map
    a dataclass or TypedDict         a struct

Decimal says nothing of its digits and is refused; write "decimal(18,2)".
"""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from types import NoneType, UnionType
from typing import Final, TypeAlias, Union, cast, get_args, get_origin, get_type_hints, is_typeddict
from uuid import UUID

import pyarrow as pa

from neve.engine.row_input import ArrowStream
from neve.errors import InvalidArgument, LimitExceeded
from neve.model.arrow_types import NESTING_MAX, PLAIN_TYPES, ArrowField, TypeKind
from neve.model.display import shown
from neve.model.schema import TableSchema
from neve.model.type_parser import REQUIRED, parse_type

SchemaInput: TypeAlias = (
    pa.Schema | TableSchema | pa.Table | pa.RecordBatch | ArrowStream | Mapping[str, object] | type
)
"""What `create_table` takes for a schema."""

_PANDAS_INDEX: Final = re.compile(r"__index_level_[0-9]+__")
_ACCEPTED: Final = (
    "Pass a pyarrow.Schema, a dict such as {'id': int, 'name': str}, a data frame, or a dataclass"
)
_PYTHON_TYPES: Final[dict[object, TypeKind]] = {
    bool: TypeKind.BOOLEAN,
    int: TypeKind.LONG,
    float: TypeKind.DOUBLE,
    str: TypeKind.STRING,
    bytes: TypeKind.BINARY,
    date: TypeKind.DATE,
    time: TypeKind.TIME,
    datetime: TypeKind.TIMESTAMPTZ,
    UUID: TypeKind.UUID,
}


def arrow_schema_of(given: object) -> pa.Schema:
    """Return the columns as an Arrow schema; raises InvalidArgument naming the column."""
    if isinstance(given, pa.Schema):
        return given
    if isinstance(given, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return given.schema
    if isinstance(given, Mapping):
        return pa.schema([_field_of(name, asked) for name, asked in given.items()])
    if _is_record(given):
        return pa.schema(_record_fields(cast("type", given), where="", depth=1))
    if isinstance(given, ArrowStream):
        return _frame_schema(given)
    is_query = callable(getattr(given, "collect", None))
    raise InvalidArgument(
        f"a schema is given as {_named(given)}",
        hint="Run the query first: pass frame.collect()" if is_query else _ACCEPTED,
    )


def _frame_schema(frame: ArrowStream) -> pa.Schema:
    try:
        schema = pa.RecordBatchReader.from_stream(frame).schema
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"the columns of a {type(frame).__name__} could not be read: {error}", hint=_ACCEPTED
        ) from error
    # The index of a pandas frame numbers rows; one without a name is not a column.
    return pa.schema([each for each in schema if not _PANDAS_INDEX.fullmatch(each.name)])


def _field_of(name: object, asked: object) -> ArrowField:
    if not isinstance(name, str):
        raise InvalidArgument(
            f"a column is named by {_named(name)} {shown(name)}", hint="Name columns by text"
        )
    if isinstance(asked, pa.DataType):
        return pa.field(name, asked)
    if isinstance(asked, str):
        text = asked.strip()
        return pa.field(
            name, parse_type(text.removesuffix(REQUIRED)), nullable=not text.endswith(REQUIRED)
        )
    inner, _ = _without_none(asked)
    return pa.field(name, _python_type(inner, where=name, depth=1))


def _python_type(asked: object, *, where: str, depth: int) -> pa.DataType:
    if depth > NESTING_MAX:
        raise LimitExceeded(
            f"column {shown(where)} is nested too deeply",
            limit=NESTING_MAX,
            hint="Flatten it; a class cannot hold itself",
        )
    if isinstance(asked, pa.DataType):
        return asked
    kind = _PYTHON_TYPES.get(asked) if isinstance(asked, type) else None
    if kind is not None:
        return PLAIN_TYPES[kind]
    if _is_record(asked):
        return pa.struct(_record_fields(cast("type", asked), where=f"{where}.", depth=depth))
    inside = get_args(asked)
    match get_origin(asked), len(inside):
        case (origin, 1) if origin is list:
            element = _inner_field("element", inside[0], where=where, depth=depth)
            return cast("pa.DataType", pa.list_(element))
        case (origin, 2) if origin is dict:
            key = _inner_field("key", inside[0], where=where, depth=depth)
            value = _inner_field("value", inside[1], where=where, depth=depth)
            return cast("pa.DataType", pa.map_(key.with_nullable(False), value))
    raise InvalidArgument(
        f"column {shown(where)} has the type {_named(asked)}, which is not a column type",
        hint=_type_hint(asked),
    )


def _inner_field(name: str, asked: object, *, where: str, depth: int) -> ArrowField:
    inner, nullable = _without_none(asked)
    type_ = _python_type(inner, where=f"{where}.{name}", depth=depth + 1)
    return pa.field(name, type_, nullable=nullable)


def _record_fields(record: type, *, where: str, depth: int) -> list[ArrowField]:
    """Return the fields of a dataclass or TypedDict, as annotated."""
    try:
        hints: dict[str, object] = get_type_hints(record)
    except (NameError, TypeError) as error:
        raise InvalidArgument(
            f"the types of {record.__name__} could not be read: {error}",
            hint="Define the class, and what it names, at the top of a module",
        ) from error
    if is_dataclass(record):
        names, optional = [each.name for each in fields(record)], frozenset[str]()
    else:
        names = list(hints)
        optional = cast("frozenset[str]", getattr(record, "__optional_keys__", frozenset()))
    made: list[ArrowField] = []
    for name in names:
        inner, nullable = _without_none(hints[name])
        type_ = _python_type(inner, where=f"{where}{name}", depth=depth + 1)
        made.append(pa.field(name, type_, nullable=nullable or name in optional))
    return made


def _without_none(asked: object) -> tuple[object, bool]:
    """Take None out of `X | None`; say whether it was there."""
    if get_origin(asked) not in (Union, UnionType):
        return asked, False
    others = [each for each in get_args(asked) if each is not NoneType]
    # What is left of several types is refused as it is.
    return (others[0], True) if len(others) == 1 else (asked, True)


def _is_record(asked: object) -> bool:
    return isinstance(asked, type) and (is_dataclass(asked) or is_typeddict(asked))


def _type_hint(asked: object) -> str:
    if asked is Decimal:
        return 'Say how many digits it has: "decimal(18,2)"'
    if asked in (list, dict):
        return "Say what is inside: list[int], dict[str, int]"
    if not isinstance(asked, type) and hasattr(asked, "__len__"):
        return "A dict of values is data: pass pa.table(…) of it"
    return 'Use a type of Python such as int or str, one of Arrow, or text such as "long"'


def _named(asked: object) -> str:
    """Name a type, or the type of a value."""
    if isinstance(asked, type) and get_origin(asked) is None:
        return asked.__name__
    return shown(asked) if get_origin(asked) is not None else type(asked).__name__
