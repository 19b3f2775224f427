"""JsonRows: rows of a table out of JSON objects, one object to a line.

A line that is wrong is named as `file:line`, and what is wrong with it by the column. Lines without
anything in them are passed over. However long the input is, no more than one batch of it is in
memory.

Where only some columns are written, an object has the key and all of those; what else it has of the
table is passed over.
"""

from collections.abc import Iterator, Sequence
from json import JSONDecodeError
from typing import BinaryIO, Final

import pyarrow as pa

from neve.cli.refused_rows import RefusedRows
from neve.cli.value_forms import json_reader, parse_json
from neve.engine.partial_rows import given_columns, narrowed_codec
from neve.errors import InvalidArgument, LimitExceeded, SchemaMismatch
from neve.model.display import shown
from neve.model.row_codec import RowCodec
from neve.model.scalar_values import Unfit
from neve.model.schema import TableSchema

LINE_BYTES_MAX: Final = 64 << 20
BATCH_BYTES: Final = 32 << 20
"""A batch ends after so many bytes of input, however few rows they are."""

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
JSON_FORMS: Final = "Write JSON lines, one object to a line, or one array of objects"


def codec_of(schema: TableSchema, columns: Sequence[str] | None) -> RowCodec:
    """Return the codec of whole rows, or of the key and some columns; raises typed errors."""
    if columns is None:
        return RowCodec(schema)
    return narrowed_codec(schema, given_columns(columns, schema))


class JsonRows:
    """Reads rows of one schema."""

    def __init__(
        self,
        schema: TableSchema,
        *,
        source: str,
        columns: Sequence[str] | None = None,
        refused: RefusedRows | None = None,
    ) -> None:
        """Take a schema, and how messages name the place that the rows come from.

        `columns` reads these and the key only. With `refused`, lines that are wrong go there, and
        the others are read.
        """
        self._refused = refused
        self._source = source
        self._codec = codec_of(schema, columns)
        self._readers = {column.name: json_reader(column.type) for column in schema.columns}
        self._needed = [] if columns is None else self._codec.schema.arrow_schema.names
        self._unasked = frozenset(self._readers).difference(self._codec.schema.arrow_schema.names)
        # Of the rows that were given last: how many came before them, and their lines.
        self._rows_before = 0
        self._lines_given: list[int] = []
        self._contents_given: list[bytes] = []

    def row(self, text: str, *, line: int | None = None) -> bytes:
        """Return one row as the codec of the schema encodes it; raises typed errors."""
        where = self._source if line is None else self._named(line)
        # The end of a line is a line of its own to who parses it.
        text = text.rstrip()
        try:
            members = parse_json(text)
        except ValueError as error:
            raise InvalidArgument(
                f"{where}: not JSON: {_what_is_wrong(error, text)}",
                hint=JSON_FORMS
                if line is not None
                else 'Write a row as an object: {"id": 1, "name": "ada"}',
            ) from None
        if not isinstance(members, dict):
            raise InvalidArgument(
                f"{where}: not a JSON object: {shown(text)}",
                hint='Write a row as an object: {"id": 1, "name": "ada"}',
            )
        for name in self._needed:
            if name not in members:
                raise SchemaMismatch(
                    f"{where}: column {shown(name)} is missing",
                    column=name,
                    hint="Give the key and every column that --columns names",
                )
        values: dict[str, object] = {}
        for name, value in members.items():
            if name in self._unasked:
                continue
            reader = self._readers.get(name)
            try:
                # What the table does not have is refused by the codec, with the nearest name.
                values[name] = value if value is None or reader is None else reader(value)
            except Unfit as unfit:
                column = f"{name}.{unfit.path}" if unfit.path else name
                raise SchemaMismatch(
                    f"{where}: column {shown(column)}: {unfit.reason}", column=column
                ) from None
        try:
            return self._codec.encode(values)
        except SchemaMismatch as error:
            raise SchemaMismatch(
                f"{where}: {error.message}", column=error.column, hint=error.hint
            ) from None

    def batch(self, rows: Sequence[bytes]) -> pa.RecordBatch:
        """Return encoded rows as a batch of the schema."""
        return self._codec.decode_many(rows)

    def values(self, row: bytes) -> dict[str, object]:
        """Return an encoded row as the values of its columns."""
        return self._codec.decode(row)

    def place_of(self, row: int) -> str:
        """Name the line of a row, counted from 0, of the batch that was given last."""
        place = row - self._rows_before
        if not 0 <= place < len(self._lines_given):
            return self._source
        return self._named(self._lines_given[place])

    def stands_at(self, row: int) -> int:
        """Return the line of a row, counted from 0, of the batch that was given last."""
        return self._lines_given[row - self._rows_before]

    def places_of(self, lines: Sequence[int]) -> list[str]:
        """Name lines."""
        return [*map(self._named, lines)]

    def text_of(self, row: int) -> bytes:
        """Return the line of a row, counted from 0, of the batch that was given last."""
        return self._contents_given[row - self._rows_before]

    def batches(self, stream: BinaryIO, *, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Return the rows of a stream of lines in batches."""
        return map(self.batch, self.encoded(stream, batch_rows=batch_rows))

    def encoded(self, stream: BinaryIO, *, batch_rows: int) -> Iterator[list[bytes]]:
        """Yield the encoded rows of a stream of lines, many at a time."""
        rows: list[bytes] = []
        lines: dict[int, bytes] = {}
        size = 0
        for line, content in self._lines(stream):
            size += len(content)
            try:
                rows.append(self._line(content, line))
            except (InvalidArgument, SchemaMismatch) as error:
                if self._refused is None:
                    raise
                self._refused.add(error, place=line, text=content, names_place=True)
                continue
            lines[line] = b"" if self._refused is None else content
            if len(rows) >= batch_rows or size >= BATCH_BYTES:
                yield self._noted(rows, lines)
                rows, lines, size = [], {}, 0
        if rows:
            yield self._noted(rows, lines)

    def _named(self, line: int) -> str:
        return f"{self._source}:{line}"

    def _line(self, content: bytes, line: int) -> bytes:
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument(
                f"{self._named(line)}: no UTF-8, at byte {error.start:,} of the line",
                hint="Convert the file: iconv -t utf-8",
            ) from None
        return self.row(text, line=line)

    def _noted(self, rows: list[bytes], lines: dict[int, bytes]) -> list[bytes]:
        self._rows_before += len(self._lines_given)
        self._lines_given = [*lines]
        self._contents_given = [*lines.values()]
        return rows

    def _lines(self, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
        line = 0
        while content := stream.readline(LINE_BYTES_MAX + 1):
            line += 1
            if len(content) > LINE_BYTES_MAX:
                raise LimitExceeded(
                    f"{self._source}:{line}: longer than {LINE_BYTES_MAX:,} bytes",
                    limit=LINE_BYTES_MAX,
                    hint="Write one JSON object to a line",
                )
            if line == 1:
                content = content.removeprefix(BYTE_ORDER_MARK)
            if content.strip():
                yield line, content


def _what_is_wrong(error: ValueError, text: str) -> str:
    if isinstance(error, JSONDecodeError) and "\n" not in text:
        return f"{error.msg}, at column {error.colno}"
    return str(error)
