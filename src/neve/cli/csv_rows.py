"""CsvRows: rows of a table out of the cells of a CSV file.

The first line names columns of the table, in any order; those that are left out become their
default or NULL. A cell holds a value in its text form, see `neve.cli.value_forms`. Nothing between
two commas is NULL, and "" is a text without letters.

Cells are converted column by column. Where that does not succeed, it is done again cell by cell,
which takes more forms, and says which cell is wrong.

A wrong row is named by the line on which it begins, as `file:line`. A file is read again to find
it: lines without anything in them and cells with line breaks count. What cannot be read again, such
as a pipe, is taken to have a line for each row.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, Final, TypeAlias, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from neve.cli.json_rows import codec_of
from neve.cli.value_forms import text_reader
from neve.errors import InvalidArgument, SchemaMismatch
from neve.model.arrow_types import NESTED_KINDS, TypeKind, kind_of
from neve.model.scalar_values import Unfit
from neve.model.schema import TableSchema, similar_name_hint
from neve.model.schema_view import ArrowArray
from neve.model.shown_value import shown

_BLOCK_BYTES: Final = 16 << 20
_CELL_BY_CELL: Final = NESTED_KINDS | {TypeKind.TIME}
_FLOATS: Final = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_DELIMITERS: Final = (",", ";", "\t", "|")
# Arrow counts the head as row 1, and no line without anything in it.
_WRONG_ROW: Final = re.compile(r"CSV parse error: Row #(\d+): (.*)", re.DOTALL)

OpenAgain: TypeAlias = Callable[[], BinaryIO]
"""Opens the file once more, from its beginning."""


class CsvRows:
    """Reads rows of one schema."""

    def __init__(
        self,
        schema: TableSchema,
        *,
        source: str,
        delimiter: str,
        columns: Sequence[str] | None = None,
        open_again: OpenAgain | None = None,
    ) -> None:
        """Take a schema, and how messages name the file.

        `columns` reads these and the key only.
        """
        self._schema = schema
        self._source = source
        self._delimiter = delimiter
        self._codec = codec_of(schema, columns)
        self._readers = {column.name: text_reader(column.type) for column in schema.columns}
        self._needed = None if columns is None else self._codec.schema.arrow_schema.names
        self._open_again = open_again

    def batches(self, stream: BinaryIO) -> Iterator[pa.RecordBatch]:
        """Give the rows of a stream in batches of some megabytes; raises typed errors."""
        try:
            reader = self._open(stream)
            self._check_names(reader.schema.names)
            before = 0
            for batch in reader:
                cells = batch if self._needed is None else batch.select(self._needed)
                yield self._converted(cells, before)
                before += batch.num_rows
        except pa.ArrowInvalid as error:
            raise self._unreadable(str(error)) from error

    def place_of(self, row: int) -> str:
        """Name the line on which a row begins; rows are counted from 0, below the head."""
        line = row + 2
        if self._open_again is not None:
            line = _line_of_row(self._open_again(), self._delimiter, row) or line
        return f"{self._source}:{line}"

    def _unreadable(self, reason: str) -> InvalidArgument:
        hint = "Check the delimiter, and that the file is UTF-8 and has a head"
        wrong = _WRONG_ROW.fullmatch(reason)
        if wrong is None:
            first_line = reason.partition("\n")[0]
            return InvalidArgument(f"{self._source} cannot be read as CSV: {first_line}", hint=hint)
        place, reason = self.place_of(int(wrong[1]) - 2), wrong[2].partition("\n")[0]
        return InvalidArgument(f"{place}: {reason}", hint=hint)

    def _open(self, stream: BinaryIO) -> pcsv.CSVStreamingReader:
        texts = {column.name: pa.string() for column in self._schema.columns}
        return pcsv.open_csv(
            stream,
            read_options=pcsv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=pcsv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=pcsv.ConvertOptions(
                column_types=texts,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _check_names(self, names: list[str]) -> None:
        for name in names:
            if name not in self._schema:
                raise SchemaMismatch(
                    f"column {shown(name)} of {self._source} is not in the table",
                    column=name,
                    hint=self._other_delimiter(name)
                    or similar_name_hint(name, self._schema.arrow_schema.names)
                    or "The first line of the file names its columns",
                )
            if names.count(name) > 1:
                raise SchemaMismatch(
                    f"column {shown(name)} is in {self._source} twice", column=name
                )

        for name in self._needed or ():
            if name not in names:
                raise SchemaMismatch(
                    f"column {shown(name)} is missing from {self._source}",
                    column=name,
                    hint="Give the key and every column that --columns names",
                )

    def _other_delimiter(self, name: str) -> str | None:
        """Suggest the delimiter with which a name would be names of columns."""
        for mark in _DELIMITERS:
            parts = [part.strip().strip('"') for part in name.split(mark)]
            if (
                mark != self._delimiter
                and len(parts) > 1
                and any(part in self._schema for part in parts)
            ):
                said = "$'\\t'" if mark == "\t" else f"'{mark}'"
                return f"Its cells seem to be separated otherwise: say --delimiter {said}"
        return None

    def _converted(self, cells: pa.RecordBatch, before: int) -> pa.RecordBatch:
        try:
            columns = {
                name: _column(cells.column(name), self._schema.column(name).type)
                for name in cells.schema.names
            }
        except (pa.ArrowException, ValueError):
            return self._cell_by_cell(cells, before)
        return pa.RecordBatch.from_pydict(columns)

    def _cell_by_cell(self, cells: pa.RecordBatch, before: int) -> pa.RecordBatch:
        names = cells.schema.names
        readers = [self._readers[name] for name in names]
        texts = [cast("list[str | None]", column.to_pylist()) for column in cells.columns]
        rows: list[bytes] = []
        for place, row in enumerate(zip(*texts, strict=True), start=before):
            values: dict[str, object] = {}
            try:
                for name, read, text in zip(names, readers, row, strict=True):
                    values[name] = None if text is None else _value(name, read, text)
                rows.append(self._codec.encode(values))
            except SchemaMismatch as error:
                raise SchemaMismatch(
                    f"{self.place_of(place)}: {error.message}",
                    column=error.column,
                    hint=error.hint,
                ) from None
        return self._codec.decode_many(rows)


def _value(name: str, read: Callable[[str], object], text: str) -> object:
    try:
        return read(text)
    except Unfit as unfit:
        column = f"{name}.{unfit.path}" if unfit.path else name
        raise SchemaMismatch(f"column {shown(column)}: {unfit.reason}", column=column) from None


def _line_of_row(stream: BinaryIO, delimiter: str, row: int) -> int | None:
    """Find the line on which a row begins, and close the stream; None without such a row."""
    # The head is the row before the first.
    place, lines_before = -1, 0
    with (
        io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="") as texts,
        suppress(csv.Error),  # such as a cell longer than this reader takes
    ):
        reader = csv.reader(texts, delimiter=delimiter)
        # A loop over rows: it runs once, for a message.
        for cells in reader:
            if cells:
                if place == row:
                    return lines_before + 1
                place += 1
            lines_before = reader.line_num
    return None


def _column(texts: ArrowArray, arrow_type: pa.DataType) -> ArrowArray:
    """Convert a column of cells at once; raises ValueError or ArrowException when it cannot."""
    kind = kind_of(arrow_type)
    if kind in _CELL_BY_CELL:
        raise ValueError(f"cells of {kind} are converted one by one")
    if kind in {TypeKind.BINARY, TypeKind.FIXED}:
        contents = [None if each is None else bytes.fromhex(each) for each in _texts(texts)]
        return pa.array(contents, arrow_type)
    if isinstance(arrow_type, pa.UuidType):
        uuids = [None if each is None else UUID(each).bytes for each in _texts(texts)]
        return pa.ExtensionArray.from_storage(arrow_type, pa.array(uuids, pa.binary(16)))
    converted = cast("ArrowArray", pc.cast(texts, arrow_type))
    if kind in _FLOATS and pc.any(pc.is_inf(converted)).as_py():
        raise ValueError("a number may be too large for the column")
    return converted


def _texts(texts: ArrowArray) -> list[str | None]:
    return cast("list[str | None]", texts.to_pylist())
