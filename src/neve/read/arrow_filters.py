"""Arrow's filter expressions as predicates, so that they prune files and row groups.

An expression cannot be inspected, but it can be written as a Substrait message, which can be read.
Only what a predicate says exactly is translated: comparisons of a column with a value, `isin`,
tests for NULL and NaN, joined with and, or, not. Everything else has no predicate.

    expression      field 1 literal, 2 column, 3 function, 8 one of several
    function        field 1 its number, 4 arguments
    column          field 1 position among the columns, and positions inside of structs

Engines that push filters down mean their own comparisons. `Comparing` says whose:

    ARROW     NaN is unequal to everything, and neither smaller nor greater
    DUCKDB    NaN is equal to itself and greater than everything else; it sends x > 5 all the same,
              and `true` for x <= NaN, which is also not true of NULL: that has no predicate
"""

import struct
from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import NeveError
from neve.model.bound_predicate import Operator
from neve.model.plain_values import is_nan, stored_type
from neve.model.predicate import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    ColumnName,
    Condition,
    Predicate,
    col,
)
from neve.model.schema import TableSchema


class Comparing(StrEnum):
    """Whose comparisons an expression means."""

    ARROW = "arrow"
    DUCKDB = "duckdb"


_Message: TypeAlias = dict[int, list[int | bytes]]
_Operand: TypeAlias = "ColumnName | Predicate | _Value"
_Compare: TypeAlias = Callable[[ColumnName, object], Predicate]

_COMPARISONS: Final[dict[str, _Compare]] = {
    "equal": lambda column, value: column == value,
    "not_equal": lambda column, value: column != value,
    "lt": lambda column, value: column < value,
    "lte": lambda column, value: column <= value,
    "gt": lambda column, value: column > value,
    "gte": lambda column, value: column >= value,
}
_MIRRORED: Final = {"lt": "gt", "lte": "gte", "gt": "lt", "gte": "lte"}
# Where DuckDB also means NaN, which is greater than everything else.
_TRUE_OF_NAN: Final = frozenset({"not_equal", "gt", "gte"})
_VARINT, _LENGTH = 0, 2
_FIXED_SIZES: Final = {1: 8, 5: 4}
_LITERAL, _COLUMN, _FUNCTION, _ONE_OF = 1, 2, 3, 8
_INSIDE: Final = 2
_NESTING_MAX: Final = 200


class _NoPredicateError(Exception):
    """The expression says something that a predicate cannot."""


class _Value:
    """A literal of an expression."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def arrow_predicate(
    expression: pc.Expression, schema: TableSchema, comparing: Comparing
) -> Predicate | None:
    """Return the predicate that says the same about every row; None if there is none."""
    try:
        plain = pa.schema([(each.name, _plain_type(each.type)) for each in schema.arrow_schema])
        message = _read(bytes(expression.to_substrait(plain)))
        predicate = _Translation(message, schema, comparing).predicate()
        predicate.bind(schema)
    except (_NoPredicateError, NeveError, pa.ArrowException):
        return None
    return predicate


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """Return a type as Substrait knows it: without metadata inside, and without UUIDs."""
    if isinstance(type_, pa.StructType):
        return pa.struct([(each.name, _plain_type(each.type)) for each in type_])
    if isinstance(type_, pa.MapType):
        return pa.map_(_plain_type(type_.key_type), _plain_type(type_.item_type))
    if isinstance(type_, pa.ListType):
        return pa.list_(_plain_type(type_.value_type))
    return stored_type(type_)


class _Translation:
    """One message with its functions by number."""

    def __init__(self, message: _Message, schema: TableSchema, comparing: Comparing) -> None:
        self._message = message
        self._schema = schema
        self._is_duckdb = comparing is Comparing.DUCKDB
        self._functions: dict[int, str] = {}
        for declared in message.get(2, ()):
            function = _part(_read(_bytes_of(declared)), 3)
            name = _bytes_of(function[3][0]).decode()
            self._functions[_int_of(function.get(2, [0])[0])] = name.partition(":")[0]

    def predicate(self) -> Predicate:
        asked = self._operand(_part(_part(self._message, 3), 1))
        if isinstance(asked, _Value) and type(asked.value) is bool:
            if not asked.value:
                return ALWAYS_FALSE
            if not self._is_duckdb:
                return ALWAYS_TRUE
        return _predicate_of(asked)

    def _operand(self, message: _Message, depth: int = 0) -> _Operand:
        if depth > _NESTING_MAX:
            raise _NoPredicateError
        if _LITERAL in message:
            return _Value(_literal(_part(message, _LITERAL)))
        if _COLUMN in message:
            return self._column(_part(message, _COLUMN))
        if _FUNCTION in message:
            return self._call(_part(message, _FUNCTION), depth)
        if _ONE_OF in message:
            return self._one_of(_part(message, _ONE_OF), depth)
        raise _NoPredicateError

    def _column(self, message: _Message) -> ColumnName:
        if 1 not in message:
            raise _NoPredicateError
        names: list[str] = []
        fields = list(self._schema.arrow_schema)
        segment = _part(message, 1)
        while True:
            position = _part(segment, _INSIDE) if _INSIDE in segment else {}
            found = fields[_int_of(position.get(1, [0])[0])]
            if "." in found.name:
                raise _NoPredicateError
            names.append(found.name)
            if isinstance(found.type, pa.TimestampType) and found.type.unit != "us":
                raise _NoPredicateError  # Substrait counts microseconds
            if _INSIDE not in position:
                return col(".".join(names))
            if not isinstance(found.type, pa.StructType):
                raise _NoPredicateError
            fields = list(found.type)
            segment = _part(position, _INSIDE)

    def _call(self, message: _Message, depth: int) -> Predicate:
        name = self._functions.get(_int_of(message.get(1, [0])[0]), "")
        operands = [
            self._operand(_part(_read(_bytes_of(each)), 3), depth + 1)
            for each in message.get(4, ())
        ]
        match name, operands:
            case ("and", [left, right]):
                return _predicate_of(left) & _predicate_of(right)
            case ("or", [left, right]):
                return _predicate_of(left) | _predicate_of(right)
            case ("not", [operand]) if not self._is_duckdb:
                return ~_predicate_of(operand)
            case ("not", [Condition(operator=Operator.IS_NAN) as operand]):
                return ~operand  # the only one that DuckDB sends
            case ("is_null", [ColumnName() as column]):
                return column.is_null()
            case ("is_not_null", [ColumnName() as column]):
                return column.not_null()
            case ("is_nan", [ColumnName() as column]):
                return column.is_nan()
            case (_, [ColumnName() as column, _Value(value=value)]) if name in _COMPARISONS:
                return self._compared(name, column, value)
            case (_, [_Value(value=value), ColumnName() as column]) if name in _COMPARISONS:
                return self._compared(_MIRRORED.get(name, name), column, value)
            case _:
                raise _NoPredicateError

    def _compared(self, name: str, column: ColumnName, value: object) -> Predicate:
        predicate = _COMPARISONS[name](column, value)
        if self._is_duckdb and name in _TRUE_OF_NAN and isinstance(value, float):
            return predicate | column.is_nan()
        return predicate

    def _one_of(self, message: _Message, depth: int) -> Predicate:
        column = self._operand(_part(message, 1), depth + 1)
        values = [self._operand(_read(_bytes_of(each)), depth + 1) for each in message.get(2, ())]
        if not isinstance(column, ColumnName) or not values:
            raise _NoPredicateError
        members = [each.value for each in values if isinstance(each, _Value)]
        if len(members) < len(values):
            raise _NoPredicateError
        if not any(isinstance(member, float) for member in members):
            return column.is_in(members)
        if not self._is_duckdb:
            raise _NoPredicateError  # Arrow finds NaN, and not -0.0 when 0.0 is asked for
        numbers = [member for member in members if not is_nan(member)]
        predicate = column.is_in(numbers) if numbers else ALWAYS_FALSE
        return predicate if len(numbers) == len(members) else predicate | column.is_nan()


def _predicate_of(operand: _Operand) -> Predicate:
    if not isinstance(operand, Predicate):
        raise _NoPredicateError
    return operand


def _decimal(data: bytes) -> Decimal:
    message = _read(data)
    unscaled = int.from_bytes(_bytes_of(message[1][0]), "little", signed=True)
    return Decimal(f"{unscaled}E-{_int_of(message.get(3, [0])[0])}")


def _signed(number: int | bytes) -> int:
    found = _int_of(number)
    return found - (1 << 64) if found >> 63 else found


def _literal(message: _Message) -> object:
    for number, found in message.items():
        if number in _VALUES:
            return _VALUES[number](found[0])
    raise _NoPredicateError


def _part(message: _Message, number: int) -> _Message:
    if number not in message:
        raise _NoPredicateError
    return _read(_bytes_of(message[number][0]))


def _int_of(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise _NoPredicateError
    return value


def _bytes_of(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _NoPredicateError
    return value


# By field of a literal. Dates, times and moments are numbers in the unit of their column.
_VALUES: Final[dict[int, Callable[[int | bytes], object]]] = {
    1: bool,
    **dict.fromkeys((2, 3, 5, 7, 14, 16, 17, 27), _signed),
    10: lambda value: struct.unpack("<f", _bytes_of(value))[0],
    11: lambda value: struct.unpack("<d", _bytes_of(value))[0],
    12: lambda value: _bytes_of(value).decode(),
    **dict.fromkeys((13, 23, 28), _bytes_of),
    24: lambda value: _decimal(_bytes_of(value)),
}


def _read(data: bytes) -> _Message:
    """Read the fields of a protobuf message by number."""
    message: _Message = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _varint(data, at)
        else:
            if kind == _LENGTH:
                size, at = _varint(data, at)
            elif kind in _FIXED_SIZES:
                size = _FIXED_SIZES[kind]
            else:
                raise _NoPredicateError
            value, at = data[at : at + size], at + size
        message.setdefault(tag >> 3, []).append(value)
    return message


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit for more to come
            return number, at
        shift += 7
