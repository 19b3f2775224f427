"""Queries for the row of one key: read by `get_many`, without planning them.

    select * from shop.orders where id = 17
    select amount, city from shop.orders where shop = ? and id = ? limit 1

Such a query is recognised from its text, and only in this form. The answer is the one of DuckDB:

    keys      of integers and text, compared with a literal or a parameter of the same kind. These
              are equal exactly if their keys are: there is no NaN, no cast, no rounding
    results   columns whose Arrow types come out of DuckDB as they went in, as the table spells them

Everything else, and every mistake, is left to the parser and DuckDB.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

import pyarrow as pa

from neve.catalog.sql_door import Parameters
from neve.model.schema import TableSchema

_CACHED: Final = 256
_TEXT_MAX: Final = 4_096
_NAME: Final = r'(?:[a-z_]\w*|"[^".]+")'
# With at most 18 digits a number fits into 64 bits, whatever its sign.
_VALUE: Final = r"(?:-?\d{1,18}\b|'(?:[^'\0]|'')*'|\?|\$\w+\b)"
_KEY: Final = rf"{_NAME}\s*=\s*{_VALUE}"
_FORM: Final = re.compile(
    rf"\s*SELECT\s+(?P<columns>\*|{_NAME}(?:\s*,\s*{_NAME})*)"
    rf"\s+FROM\s+(?P<table>{_NAME}(?:\.{_NAME})*)"
    rf"\s+WHERE\s+(?P<key>{_KEY}(?:\s+AND\s+{_KEY})*)"
    r"(?:\s+LIMIT\s+[1-9]\d{0,8})?\s*;?\s*",
    re.IGNORECASE | re.ASCII,
)
_NAMES: Final = re.compile(_NAME, re.IGNORECASE | re.ASCII)
_KEYS: Final = re.compile(rf"(?P<name>{_NAME})\s*=\s*(?P<value>{_VALUE})", re.IGNORECASE | re.ASCII)
_SAME_IN_DUCKDB: Final = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_decimal128,
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """The place of a parameter, or its name."""

    at: int | str


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """Columns of the row whose columns have given values."""

    table: str
    columns: tuple[str, ...]
    """None are all of them."""
    values: tuple[tuple[str, int | str | Parameter], ...]
    """By column, as the query spells it."""
    words: frozenset[str]
    """Names without quotes, in lower case: words of SQL are not names."""


class KeyedSource(Protocol):
    """Rows that can be found by their keys."""

    @property
    def schema(self) -> TableSchema:
        """Columns of its rows."""

    def get_many(self, keys: object) -> pa.Table:
        """Return the rows of keys."""


@lru_cache(maxsize=_CACHED)
def key_query(text: str) -> KeyQuery | None:
    """Return what a text asks for, if it may be a query for one key."""
    form = _FORM.fullmatch(text) if len(text) <= _TEXT_MAX else None
    if form is None:
        return None
    values: list[tuple[str, int | str | Parameter]] = []
    asked = 0
    for each in _KEYS.finditer(form["key"]):
        asked += each["value"] == "?"
        values.append((_plain(each["name"]), _value(each["value"], asked)))
    named = [*_NAMES.findall(form["columns"]), *_NAMES.findall(form["table"])]
    named += [each["name"] for each in _KEYS.finditer(form["key"])]
    return KeyQuery(
        table=".".join(map(_plain, _NAMES.findall(form["table"]))),
        columns=tuple(map(_plain, _NAMES.findall(form["columns"]))),
        values=tuple(values),
        words=frozenset(name.lower() for name in named if not name.startswith('"')),
    )


def row_of_key(query: KeyQuery, source: KeyedSource, params: Parameters | None) -> pa.Table | None:
    """Return the answer as DuckDB gives it; None if that may be another one."""
    schema = source.schema
    key = schema.key_schema
    by_name = {name.casefold(): value for name, value in query.values}
    folded = [name.casefold() for name in schema.arrow_schema.names]
    if (
        len(by_name) != len(query.values)
        or set(by_name) != {name.casefold() for name in key.names}
        or len(set(folded)) != len(folded)
    ):
        return None
    columns = query.columns or tuple(schema.arrow_schema.names)
    if len(set(columns)) != len(columns) or not set(columns) <= set(schema.arrow_schema.names):
        return None
    fields = [pa.field(name, schema.arrow_schema.field(name).type) for name in columns]
    if not all(_is_same_in_duckdb(field.type) for field in fields):
        return None
    given = _given(list(by_name.values()), params)
    if given is None:
        return None
    values = dict(zip(by_name, given, strict=True))
    if not all(_is_exact(values[field.name.casefold()], field.type) for field in key):
        return None
    try:
        keys = {field.name: pa.array([values[field.name.casefold()]], field.type) for field in key}
    except (pa.ArrowException, OverflowError, UnicodeError):
        return None  # no row has such a key, and DuckDB knows what that means
    rows = source.get_many(pa.table(keys))
    return pa.Table.from_arrays([rows.column(name) for name in columns], schema=pa.schema(fields))


def _plain(name: str) -> str:
    return name.strip('"')


def _value(text: str, asked: int) -> int | str | Parameter:
    if text == "?":
        return Parameter(asked)
    if text.startswith("$"):
        return Parameter(int(text[1:]) if text[1:].isdigit() else text[1:])
    return text[1:-1].replace("''", "'") if text.startswith("'") else int(text)


def _given(
    values: Sequence[int | str | Parameter], params: Parameters | None
) -> list[object] | None:
    """Replace parameters by what was passed; None unless each one passed is used."""
    places = {each.at for each in values if isinstance(each, Parameter)}
    known: dict[int | str, object] = {}
    if isinstance(params, Mapping):
        known.update(params)
    elif params is None or isinstance(params, list | tuple):
        known.update(enumerate(params or (), 1))
    else:
        return None
    if places != set(known):
        return None
    return [known[each.at] if isinstance(each, Parameter) else each for each in values]


def _is_exact(value: object, type_: pa.DataType) -> bool:
    """Return whether a value is equal to those of a type exactly if it is the same."""
    if pa.types.is_integer(type_):
        return type(value) is int
    return pa.types.is_string(type_) and type(value) is str and "\0" not in value


def _is_same_in_duckdb(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.TimestampType):
        return type_.unit == "us" and type_.tz in (None, "UTC")
    return any(is_kind(type_) for is_kind in _SAME_IN_DUCKDB)
