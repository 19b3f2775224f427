"""Rows for people: many as a table with a line each, one as a line for each column.

    id  customer    amount
    ──  ────────  ────────
     1  ada           9.50
     2  null       1000.00

The first rows say how wide columns are. No cell is cut. On a terminal, cells that are too wide
continue on the next line; in a pipe or a file, and with `--wide`, a row is one line. Numbers stand
on the right.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from typing import Final

import pyarrow as pa
from rich.cells import cell_len
from rich.text import Text

from neve.cli.value_forms import json_values, text_of
from neve.inspect.page import wrapped
from neve.inspect.shown_text import Json, shown_text
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
    """Yield the rows of batches as tuples of JSON values."""
    for batch in batches:
        yield from zip(*(json_values(column) for column in batch.columns), strict=True)


class RowTable:
    """Rows under a head, drawn as they come."""

    def __init__(
        self, schema: pa.Schema, *, columns: int | None, whole: Collection[str] = ()
    ) -> None:
        """Take what the rows have, how wide a line may be, and which cells are never folded.

        None for a width is one line for each row, however long.
        """
        self._is_whole = [name in whole for name in schema.names]
        self._names = [shown_text(name) for name in schema.names]
        self._is_on_right = [kind_of(field.type) in _NUMBERS for field in schema]
        self._columns = columns
        self.row_count = 0
        """Rows that were drawn."""

    def lines(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Text]:
        """Draw the rows of batches."""
        rows = json_rows(batches)
        sample = list(islice(rows, _SAMPLE_ROWS))
        widths = self._widths(sample)
        yield from self._row([Text(name, "bold") for name in self._names], widths)
        yield Text(_GAP.join("─" * width for width in widths), "dim")
        for row in chain(sample, rows):
            self.row_count += 1
            cells = [Text(_shown(value), "dim" if value is None else "") for value in row]
            yield from self._row(cells, widths)

    def _widths(self, sample: Sequence[JsonRow]) -> list[int]:
        widths = [cell_len(name) for name in self._names]
        for row in sample:
            widths = [
                max(width, cell_len(_shown(value)))
                for width, value in zip(widths, row, strict=True)
            ]
        if self._columns is None:
            return widths
        widths = [
            width if is_whole else min(_CELL_COLUMNS_MAX, width)
            for width, is_whole in zip(widths, self._is_whole, strict=True)
        ]
        return _fitting(widths, self._is_whole, self._columns)

    def _row(self, cells: Sequence[Text], widths: Sequence[int]) -> Iterator[Text]:
        """Draw one row, on as many lines as its longest cell takes."""
        if self._columns is None:
            yield self._line(cells, widths)
            return
        folded = [
            [*wrapped(cell, width, indent=0)] for cell, width in zip(cells, widths, strict=True)
        ]
        for pieces in zip_longest(*folded, fillvalue=Text()):
            yield self._line(pieces, widths)

    def _line(self, cells: Sequence[Text], widths: Sequence[int]) -> Text:
        line = Text()
        for cell, width, is_on_right in zip(cells, widths, self._is_on_right, strict=True):
            padding = Text(" " * (width - cell_len(cell.plain)))
            gap = Text(_GAP if line else "")
            line += gap + (padding + cell if is_on_right else cell + padding)
        line.rstrip()
        return line


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


def _fitting(widths: Sequence[int], is_whole: Sequence[bool], columns: int) -> list[int]:
    """Take from the widest columns until a line fits; below a few characters none gets."""
    fitted = list(widths)
    excess = sum(fitted) + len(_GAP) * (len(fitted) - 1) - columns
    narrowed = [place for place, whole in enumerate(is_whole) if not whole]
    while excess > 0 and narrowed:
        widest = max(narrowed, key=fitted.__getitem__)
        if fitted[widest] <= _CELL_COLUMNS_MIN:
            break
        fitted[widest] -= 1
        excess -= 1
    return fitted
