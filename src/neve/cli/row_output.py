"""Rows for programs: JSON, JSON lines, CSV or Parquet, on standard output or in a new file.

    json      one document: table, version, rows
    jsonl     one object to a line; `neve put TABLE -` and `neve import` take it
    csv       a head, then a line for each row; nothing is NULL, "" is a text without letters
    parquet   a file that any engine reads

Text is UTF-8. A file appears whole or not at all: it is written under another name first.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

from neve.cli.row_output import JsonRow, json_rows
from neve.cli.value_forms import text_of
from neve.errors import InvalidArgument, Unavailable
from neve.inspect.shown_text import Json

STANDARD_OUTPUT: Final = "-"
_QUOTED: Final = frozenset('",\r\n')
# A row group of a Parquet file is gathered in memory until it has so many rows, or bytes.
_GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 64 << 20


class RowForm(StrEnum):
    """How rows are given."""

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
    """Tell the form by the name of a file; raises InvalidArgument."""
    form = _SUFFIXES.get(Path(path).suffix.lower())
    if form is None:
        raise InvalidArgument(
            f"the name {path} does not say in which format to write it",
            hint="Say --format json, jsonl, csv or parquet",
        )
    return form


def asked_form(output: str | None, file: str | None, *, as_json: bool) -> RowForm:
    """Tell the form by the options `--format` and `--json` and a file; raises InvalidArgument."""
    if as_json:
        if output not in {None, RowForm.JSON}:
            raise InvalidArgument(
                f"both --json and --format {output} are given", hint="Give one of them"
            )
        return RowForm.JSON
    is_file = file is not None and file != STANDARD_OUTPUT
    if output is None:
        return form_of(file) if file is not None and is_file else RowForm.TABLE
    if is_file and output == RowForm.TABLE:
        raise InvalidArgument(
            "a table is drawn for people, not for files",
            hint="Say --format json, jsonl, csv or parquet",
        )
    if not is_file and output == RowForm.PARQUET:
        raise InvalidArgument(
            "Parquet is no text to print", hint="Name a file: --format parquet rows.parquet"
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
    """Write rows to a file or, with `-`, to standard output; gives how many.

    `facts` stand before the rows of a JSON document.
    """
    counted = _Counted(batches)
    writers: dict[RowForm, Callable[[BinaryIO], None]] = {
        RowForm.JSON: lambda sink: _write_document(sink, schema, json_rows(counted), facts),
        RowForm.JSONL: lambda sink: _write_lines(sink, schema, json_rows(counted)),
        RowForm.CSV: lambda sink: _write_csv(sink, schema, json_rows(counted)),
        RowForm.PARQUET: lambda sink: _write_parquet(sink, schema, counted),
    }
    if path != STANDARD_OUTPUT:
        with new_file(path) as sink:
            writers[form](sink)
    elif form is RowForm.PARQUET:
        raise InvalidArgument("Parquet is no text to print", hint="Name a file to write it to")
    else:
        # What was printed before comes before.
        sys.stdout.flush()
        writers[form](cast("BinaryIO", sys.stdout.buffer))
    return counted.rows


class _Counted:
    """Batches that are counted as they pass."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


@contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """Write a file that appears when it is whole, and not at all when anything fails."""
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
                hint="Choose a directory that is there, that you may write to, and has room",
            ) from error
        raise


def _write_document(
    sink: BinaryIO, schema: pa.Schema, rows: Iterable[JsonRow], facts: dict[str, Json]
) -> None:
    members = "".join(
        f"\n  {json.dumps(name)}: {json.dumps(value)}," for name, value in facts.items()
    )
    sink.write(f'{{{members}\n  "rows": ['.encode())
    separator = "\n    "
    for row in rows:
        sink.write(f"{separator}{json.dumps(dict(zip(schema.names, row, strict=True)))}".encode())
        separator = ",\n    "
    sink.write(b"]\n}\n")


def _write_lines(sink: BinaryIO, schema: pa.Schema, rows: Iterable[JsonRow]) -> None:
    names = schema.names
    sink.writelines(f"{json.dumps(dict(zip(names, row, strict=True)))}\n".encode() for row in rows)


def _write_csv(sink: BinaryIO, schema: pa.Schema, rows: Iterable[JsonRow]) -> None:
    sink.write(_csv_line(schema.names))
    sink.writelines(_csv_line(row) for row in rows)


def _csv_line(cells: Sequence[Json]) -> bytes:
    return f"{','.join(map(_csv_cell, cells))}\n".encode()


def _csv_cell(value: Json) -> str:
    if value is None:
        return ""
    text = text_of(value)
    if text and text == text.strip() and _QUOTED.isdisjoint(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


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
