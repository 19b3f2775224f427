"""Keys as they are written on a command line.

A key of one column is one value in its text form. A key of several columns is as many values, or
one JSON list of them in key order:

    neve get shop.orders 17
    neve get shop.visits ada 2024-01-31
    neve get shop.visits '["ada", "2024-01-31"]'

Many keys stand one after the other, those of several columns all in one of the two ways:

    neve get shop.orders 17 18 19
    neve get shop.visits ada 2024-01-31 bob 2024-02-01

A bound of a key range is a value of the first column, or a JSON list with the first few; nothing
stands for no bound.
"""

from collections.abc import Sequence

from neve.cli.value_forms import json_reader, parse_json, text_reader
from neve.errors import InvalidArgument
from neve.model.arrow_types import type_name
from neve.model.display import counted, shown
from neve.model.scalar_values import Unfit
from neve.model.schema import Column, TableSchema


def key_of(texts: Sequence[str], schema: TableSchema) -> object:
    """Read a key; raises InvalidArgument that names the column."""
    columns = schema.key_columns
    if len(columns) == 1:
        (column,) = columns
        if len(texts) == 1:
            return _from_text(texts[0], column)
    elif len(texts) == len(columns):
        return tuple(_from_text(text, column) for text, column in zip(texts, columns, strict=True))
    elif len(texts) == 1 and texts[0].lstrip().startswith("["):
        values = _from_list(texts[0], columns)
        if len(values) == len(columns):
            return values
    names = ", ".join(shown(column.name) for column in columns)
    raise InvalidArgument(
        _other_count(len(texts), columns),
        hint=f"The key is {names}: give as many values, or one JSON list of them"
        if len(columns) > 1
        else f"The key is {names}: give one value",
    )


def keys_of(texts: Sequence[str], schema: TableSchema) -> list[tuple[str, object]]:
    """Read many keys, each with how it was written; raises InvalidArgument."""
    width = len(schema.key_columns)
    if width == 1 or all(text.lstrip().startswith("[") for text in texts):
        return [(text, key_of([text], schema)) for text in texts]
    if len(texts) % width:
        return [(" ".join(texts), key_of(texts, schema))]
    pieces = [texts[start : start + width] for start in range(0, len(texts), width)]
    return [(" ".join(piece), key_of(piece, schema)) for piece in pieces]


def bound_of(text: str, schema: TableSchema) -> object:
    """Read a bound of a key range: None for no bound, otherwise values of leading columns."""
    columns = schema.key_columns
    if not text:
        return None
    if len(columns) > 1 and text.lstrip().startswith("["):
        return _from_list(text, columns)
    return (_from_text(text, columns[0]),)


def _from_text(text: str, column: Column) -> object:
    try:
        return text_reader(column.type)(text)
    except Unfit as unfit:
        raise _refusal(column, unfit) from None


def _from_list(text: str, columns: Sequence[Column]) -> tuple[object, ...]:
    try:
        values = parse_json(text)
    except ValueError as error:
        raise InvalidArgument(
            f"the key {shown(text)} is not a JSON list: {error}",
            hint='Write it like ["ada", 7], in quotes for the shell',
        ) from None
    assert isinstance(values, list), "it begins with ["
    if not 0 < len(values) <= len(columns):
        names = ", ".join(shown(column.name) for column in columns)
        raise InvalidArgument(
            _other_count(len(values), columns),
            hint=f"The key is {names}",
        )
    found = []
    for value, column in zip(values, columns, strict=False):
        try:
            found.append(None if value is None else json_reader(column.type)(value))
        except Unfit as unfit:
            raise _refusal(column, unfit) from None
    return tuple(found)


def _other_count(given: int, columns: Sequence[Column]) -> str:
    return f"{counted(given, 'value')} for a key of {counted(len(columns), 'column')}"


def _refusal(column: Column, unfit: Unfit) -> InvalidArgument:
    return InvalidArgument(
        f"key column {shown(column.name)} holds {type_name(column.type)}: {unfit.reason}",
        hint="Give a value of that type",
    )
