"""Rows for people: many as a table with a line each, one as a line for each column.

    id  customer    amount
    ──  ────────  ────────
     1  ada           9.50
     2  null       1000.00

The first rows say how wide columns are; later ones are clipped to that. Numbers stand on the right.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

import pyarrow as pa
from rich.cells import cell_len
from rich.text import Text

from neve.cli.fitted_text import clipped
from neve.cli.shown_text import Json, shown_text
from neve.cli.value_forms import json_values, text_of
from neve.model.arrow_types import TypeKind, kind_of

_NUMBERS: Final = frozenset(
    {TypeKind.INT, TypeKind.LONG, TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.DECIMAL}
)
_SAMPLE_ROWS: Final = 1_000
_CELL_COLUMNS_MAX: Final = 60
_CELL_COLUMNS_MIN: Final = 8
_GAP: Final = "  "

JsonRow = tuple[Json, ...]


def json_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[JsonRow]:
    """Give the rows of batches as tuples of JSON values."""
    for batch in batches:
        yield from zip(*(json_values(column) for column in batch.columns), strict=True)


def table_lines(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, columns: int
) -> Iterator[Text]:
    """Draw rows as they come, under a head."""
    rows = json_rows(batches)
    sample = list(islice(rows, _SAMPLE_ROWS))
    names = [shown_text(name) for name in schema.names]
    widths = _fitting(
        [
            min(_CELL_COLUMNS_MAX, max(map(cell_len, [name, *map(_shown, cells)])))
            for name, cells in zip(
                names, zip(*sample, strict=True) if sample else [()] * len(names), strict=True
            )
        ],
        columns,
    )
    on_right = [kind_of(field.type) in _NUMBERS for field in schema]
    yield _line([Text(name, "bold") for name in names], widths, on_right)
    yield Text(_GAP.join("─" * width for width in widths), "dim")
    for row in chain(sample, rows):
        cells = [Text(_shown(value), "dim" if value is None else "") for value in row]
        yield _line(cells, widths, on_right)


def row_lines(values: Mapping[str, Json]) -> Iterator[Text]:
    """Tell one row, a column to a line."""
    width = max(len(shown_text(name)) for name in values)
    for name, value in values.items():
        yield Text.assemble(
            (f"{shown_text(name):<{width}}  ", "dim"),
            (_shown(value), "dim" if value is None else ""),
        )


def _shown(value: Json) -> str:
    return "null" if value is None else shown_text(text_of(value))


def _fitting(widths: Sequence[int], columns: int) -> list[int]:
    """Take from the widest columns until a line fits; below a few characters none gets."""
    fitted = list(widths)
    excess = sum(fitted) + len(_GAP) * (len(fitted) - 1) - columns
    while excess > 0 and max(fitted) > _CELL_COLUMNS_MIN:
        fitted[fitted.index(max(fitted))] -= 1
        excess -= 1
    return fitted


def _line(cells: Sequence[Text], widths: Sequence[int], on_right: Sequence[bool]) -> Text:
    line = Text()
    for cell, width, is_on_right in zip(cells, widths, on_right, strict=True):
        if line:
            line.append(_GAP)
        fitted = clipped(cell, width)
        padding = " " * (width - cell_len(fitted.plain))
        line = Text.assemble(line, padding, fitted) if is_on_right else (
            Text.assemble(line, fitted, padding)
        )
    line.rstrip()
    return line
