"""Rows as a command shows them: a table for people; JSON, CSV or Parquet for programs.

    json      one document: table, version, rows
    jsonl     one object per line; `neve put TABLE -` and `neve import` take it
    csv       a header, then a line per row; an empty cell is NULL, "" is an empty text
    parquet   a file that any engine reads

Text is UTF-8. A file appears complete or not at all: it is written under another name first.

People see many rows as a table, and one row as a line per column:

    id  customer    amount
    ──  ────────  ────────
     1  ada           9.50
     2  null       1000.00

The first rows decide how wide columns are. No cell is cut. On a terminal, cells that are too wide
wrap; in a pipe or a file, and with `--wide`, a row is one line. Numbers are right-aligned.
"""

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
from rich.cells import cell_len
from rich.text import Text

from neve.cli.row_text import csv_cell, csv_lines, json_lines
from neve.cli.value_forms import json_values, text_of
from neve.errors import InvalidArgument, Unavailable
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
STANDARD_OUTPUT: Final = "-"
# A row group of a Parquet file is collected in memory up to this many rows, or bytes.
_GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 64 << 20

JsonRow = tuple[Json, ...]


def json_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[JsonRow]:
    """Yield the rows of batches as tuples of JSON values."""
    for batch in batches:
        yield from zip(*(json_values(column) for column in batch.columns), strict=True)


class RowTable:
    """Rows under a header, drawn as they arrive."""

    def __init__(
        self, schema: pa.Schema, *, columns: int | None, whole: Collection[str] = ()
    ) -> None:
        """Take the columns, the width of a line, and the cells that never wrap.

        A width of None means one line per row, however long.
        """
        self._is_whole = [name in whole for name in schema.names]
        self._names = [shown_text(name) for name in schema.names]
        self._is_on_right = [kind_of(field.type) in _NUMBERS for field in schema]
        self._columns = columns
        self.row_count = 0
        """Rows drawn so far."""

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
        """Draw one row, on as many lines as its longest cell needs."""
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
    """Yield one row, a line per column."""
    width = max(len(shown_text(name)) for name in values)
    for name, value in values.items():
        yield Text.assemble(
            (f"{shown_text(name):<{width}}  ", "dim"),
            (_shown(value), "dim" if value is None else ""),
        )


def _shown(value: Json) -> str:
    return "null" if value is None else shown_text(text_of(value))


def _fitting(widths: Sequence[int], is_whole: Sequence[bool], columns: int) -> list[int]:
    """Shrink the widest columns until a line fits; none gets below a few characters."""
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


class RowForm(StrEnum):
    """The output format of rows."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


_SUFFIXES: Final = {
    ".json": RowForm.JSON,
    ".jsonl": RowForm.JSONL,
    ".ndjson": RowForm.JSONL,
    ".csv": RowForm.CSV,
    ".parquet": RowForm.PARQUET,
}


def form_of(path: str) -> RowForm:
    """Return the form by the name of a file; raises InvalidArgument."""
    form = _SUFFIXES.get(Path(path).suffix.lower())
    if form is None:
        raise InvalidArgument(
            f"the name {path} does not show the format to write",
            hint="Use --format json, jsonl, csv or parquet",
        )
    return form


def asked_form(output: str | None, file: str | None, *, as_json: bool) -> RowForm:
    """Return the form by the options `--format` and `--json` and a file; raises InvalidArgument."""
    if as_json:
        if output not in {None, RowForm.JSON}:
            raise InvalidArgument(
                f"both --json and --format {output} are given", hint="Use one of them"
            )
        return RowForm.JSON
    is_file = file is not None and file != STANDARD_OUTPUT
    if output is None:
        return form_of(file) if file is not None and is_file else RowForm.TABLE
    if is_file and output == RowForm.TABLE:
        raise InvalidArgument(
            "a table is drawn for people, not for files",
            hint="Use --format json, jsonl, csv or parquet",
        )
    if not is_file and output == RowForm.PARQUET:
        raise InvalidArgument(
            "Parquet is not text that can be printed",
            hint="Name a file: --format parquet rows.parquet",
        )
    return RowForm(output)


def write_rows(
    form: RowForm,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    path: str,
    facts: dict[str, Json],
) -> int:
    """Write rows to a file or, with `-`, to standard output; return how many.

    `facts` precede the rows of a JSON document.
    """
    counted = _Counted(batches)
    writers: dict[RowForm, Callable[[BinaryIO], None]] = {
        RowForm.JSON: lambda sink: _write_document(sink, counted, facts),
        RowForm.JSONL: lambda sink: _write_lines(sink, counted),
        RowForm.CSV: lambda sink: _write_csv(sink, schema, counted),
        RowForm.PARQUET: lambda sink: _write_parquet(sink, schema, counted),
    }
    if path != STANDARD_OUTPUT:
        with new_file(path) as sink:
            writers[form](sink)
    elif form is RowForm.PARQUET:
        raise InvalidArgument(
            "Parquet is not text that can be printed", hint="Name a file to write it to"
        )
    else:
        # Text printed earlier comes first.
        sys.stdout.flush()
        writers[form](cast("BinaryIO", sys.stdout.buffer))
    return counted.rows


class _Counted:
    """Counts the rows of batches as they pass."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


@contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """Write a file that appears when it is complete, and not at all if anything fails."""
    target = Path(path)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as sink:
            yield sink
        unfinished.replace(target)
    except BaseException as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise Unavailable(
                f"could not write the file: {error.strerror or error}",
                path=path,
                hint="Choose an existing directory that is writable and has space",
            ) from error
        raise


def _write_document(
    sink: BinaryIO, batches: Iterable[pa.RecordBatch], facts: dict[str, Json]
) -> None:
    members = "".join(
        f"\n  {json.dumps(name)}: {json.dumps(value)}," for name, value in facts.items()
    )
    sink.write(f'{{{members}\n  "rows": ['.encode())
    comma = len(b",")
    for batch in batches:
        if batch.num_rows:
            sink.write(json_lines(batch, begin=",\n    ", end="")[comma:])
            comma = 0
    sink.write(b"]\n}\n")


def _write_lines(sink: BinaryIO, batches: Iterable[pa.RecordBatch]) -> None:
    sink.writelines(json_lines(batch, begin="", end="\n") for batch in batches)


def _write_csv(sink: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    sink.write(f"{','.join(map(csv_cell, schema.names))}\n".encode())
    sink.writelines(csv_lines(batch) for batch in batches)


def _write_parquet(sink: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        group: list[pa.RecordBatch] = []
        rows = byte_count = 0
        for batch in batches:
            group.append(batch)
            rows += batch.num_rows
            byte_count += batch.nbytes
            if rows >= _GROUP_ROWS or byte_count >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(group, schema))
                group, rows, byte_count = [], 0, 0
        if rows:
            writer.write_table(pa.Table.from_batches(group, schema))
