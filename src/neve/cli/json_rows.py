"""Rows from JSON: lines, an array, or the document that `neve scan` writes.

    {"id": 1}                            JSON lines: one object per line
    {"id": 2}

    [{"id": 1}, {"id": 2}]               an array of objects, on one line or many

    {                                    what `neve scan` writes: an array with a few facts before
      "table": "shop.orders",
      "rows": [{"id": 1}, {"id": 2}]
    }

The first line that is not blank decides: `[` begins an array, and `{` alone on a line can only
begin a document. An error has the place of the row, `file:line` or its number in an array, and the
column. Blank lines are skipped. Only one batch of the input is in memory at a time.

If only some columns are written, an object must have the key and all of these; its other columns
are ignored.
"""

import re
from collections.abc import Iterator, Sequence
from json import JSONDecodeError
from typing import BinaryIO, Final, cast

import pyarrow as pa

from neve.cli.command_wording import command_words
from neve.cli.refused_rows import RefusedRows
from neve.cli.value_forms import json_reader, parse_json
from neve.engine.row_input import given_columns, narrowed_codec
from neve.errors import InvalidArgument, LimitExceeded, SchemaMismatch
from neve.model.display import shown
from neve.model.row_codec import RowCodec
from neve.model.scalar_values import Unfit
from neve.model.schema import TableSchema

LINE_BYTES_MAX: Final = 64 << 20
BATCH_BYTES: Final = 32 << 20
"""A batch ends after this many bytes of input, however few rows they are."""

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
JSON_FORMS: Final = "Write JSON lines, one object per line, or one array of objects"
_HEAD_BYTES: Final = 1 << 16
_CHUNK_BYTES: Final = 1 << 20
_ARRAY: Final = b"["
_DOCUMENT: Final = b"{"
# Members with scalar values, then the array of rows.
_BEFORE_ROWS: Final = re.compile(
    rb"""\s*\{\s*(?:"[^"\\]*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[-+.\w]+)\s*,\s*)*"rows"\s*:\s*\["""
)
_PIECE: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_UNFINISHED: Final = b'"'


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
        """Take the schema, and the name of the input in messages.

        With `columns`, only these and the key are read. With `refused`, wrong lines go there, and
        the others are read.
        """
        self._refused = refused
        self._source = source
        self._codec = codec_of(schema, columns)
        self._readers = {column.name: json_reader(column.type) for column in schema.columns}
        self._needed = [] if columns is None else self._codec.schema.arrow_schema.names
        self._unasked = frozenset(self._readers).difference(self._codec.schema.arrow_schema.names)
        # The last batch: how many rows came before it, and its lines.
        self._rows_before = 0
        self._lines_given: list[int] = []
        self._contents_given: list[bytes] = []

    def row(self, text: str, *, line: int | None = None) -> bytes:
        """Return one row as the codec of the schema encodes it; raises typed errors."""
        values = self.members(text, line=line)
        try:
            return self._codec.encode(values)
        except SchemaMismatch as error:
            raise SchemaMismatch(
                f"{self._place(line)}: {command_words(error.message)}",
                column=error.column,
                hint=error.hint,
            ) from None

    def members(self, text: str, *, line: int | None = None) -> dict[str, object]:
        """Return what one row has, as values of its columns; other members stay as they are."""
        where = self._place(line)
        # The parser would count the end of the line as another line.
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
                    hint="Include the key and every column that --columns names",
                )
        values: dict[str, object] = {}
        for name, value in members.items():
            if name in self._unasked:
                continue
            reader = self._readers.get(name)
            try:
                # The codec refuses unknown columns, and suggests the nearest name.
                values[name] = value if value is None or reader is None else reader(value)
            except Unfit as unfit:
                column = f"{name}.{unfit.path}" if unfit.path else name
                raise SchemaMismatch(
                    f"{where}: column {shown(column)}: {unfit.reason}", column=column
                ) from None
        return values

    def batch(self, rows: Sequence[bytes]) -> pa.RecordBatch:
        """Return encoded rows as a batch of the schema."""
        return self._codec.decode_many(rows)

    def values(self, row: bytes) -> dict[str, object]:
        """Return an encoded row as the values of its columns."""
        return self._codec.decode(row)

    def place_of(self, row: int) -> str:
        """Return the place of a row of the last batch; rows are counted from 0."""
        place = row - self._rows_before
        if not 0 <= place < len(self._lines_given):
            return self._source
        return self._named(self._lines_given[place])

    def stands_at(self, row: int) -> int:
        """Return the line of a row, counted from 0, of the batch that was given last."""
        return self._lines_given[row - self._rows_before]

    def places_of(self, lines: Sequence[int]) -> list[str]:
        """Return the places of lines."""
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

    def _place(self, line: int | None) -> str:
        return self._source if line is None else self._named(line)

    def _named(self, line: int) -> str:
        return f"{self._source}:{line}"

    def _line(self, content: bytes, line: int) -> bytes:
        return self.row(self.text(content, line), line=line)

    def text(self, content: bytes, line: int) -> str:
        """Return a line as text; raises InvalidArgument."""
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument(
                f"{self._named(line)}: not UTF-8, at byte {error.start:,} of the line",
                hint="Convert the file: iconv -t utf-8",
            ) from None

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
                    hint="Write one JSON object per line",
                )
            if line == 1:
                content = content.removeprefix(BYTE_ORDER_MARK)
            if content.strip():
                yield line, content


def _what_is_wrong(error: ValueError, text: str) -> str:
    if isinstance(error, JSONDecodeError) and "\n" not in text:
        return f"{error.msg}, at column {error.colno}"
    return str(error)


class JsonFileRows(JsonRows):
    """Reads rows of one schema out of JSON lines, an array, or a document of `neve scan`."""

    _is_array = False

    def _named(self, line: int) -> str:
        return f"{self._source}, row {line:,}" if self._is_array else super()._named(line)

    def texts(self, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Return the texts of rows, with their lines or numbers."""
        return self._lines(stream)

    def _lines(self, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Yield the texts of rows, with their lines, or with their numbers in an array."""
        head = [*_head(stream)]
        begin = b"".join(head).removeprefix(BYTE_ORDER_MARK).strip()
        if not begin.startswith(_ARRAY) and begin != _DOCUMENT:
            # Reading lines needs no other method of a stream.
            yield from super()._lines(cast("BinaryIO", _Rejoined(head, stream)))
            return
        self._is_array = True
        read = b"".join(head).removeprefix(BYTE_ORDER_MARK)
        if begin == _DOCUMENT:
            elements = self._elements(self._opened(read, stream), stream, end=b"}")
        else:
            elements = self._elements(read.partition(_ARRAY)[2], stream, end=b"")
        yield from enumerate(elements, start=1)

    def _opened(self, read: bytes, stream: BinaryIO) -> bytes:
        """Read a document up to its array of rows; return what was read of the array."""
        while len(read) < _HEAD_BYTES and (chunk := stream.read(_HEAD_BYTES)):
            read += chunk
            begun = _BEFORE_ROWS.match(read)
            if begun is not None:
                return read[begun.end() :]
        raise InvalidArgument(
            f'{self._source}: one JSON document, which has no array "rows"', hint=JSON_FORMS
        )

    def _elements(self, opened: bytes, stream: BinaryIO, *, end: bytes) -> Iterator[bytes]:
        """Split an array into its elements."""
        buffer, begun, at, depth, given = b"", 0, 0, 0, 0
        # Doubles the buffer each time, so that a long element is not scanned often.
        chunk = opened or stream.read(_CHUNK_BYTES)
        while chunk:
            buffer, at, begun = buffer[begun:] + chunk, at - begun, 0
            while found := _PIECE.search(buffer, at):
                piece = found[0]
                at = found.start() if piece == _UNFINISHED else found.end()
                if piece == _UNFINISHED:
                    break
                if piece in (b"[", b"{"):
                    depth += 1
                elif piece in (b"]", b"}"):
                    depth -= 1
                is_over = depth < 0
                if is_over or (piece == b"," and depth == 0):
                    element = buffer[begun : found.start()]
                    if not is_over or given or element.strip():
                        # A row becomes one line; in JSON a line break is like a space.
                        yield element.replace(b"\n", b" ").strip()
                    given, begun = given + 1, at
                if is_over:
                    self._check_end(buffer[at:], stream, end)
                    return
            else:
                at = len(buffer)
            if len(buffer) - begun > LINE_BYTES_MAX:
                raise LimitExceeded(
                    f"{self._named(given + 1)}: longer than {LINE_BYTES_MAX:,} bytes",
                    limit=LINE_BYTES_MAX,
                    hint="Look for a quote or a bracket that is never closed",
                )
            chunk = stream.read(max(_CHUNK_BYTES, len(buffer) - begun))
        raise InvalidArgument(
            f"{self._named(given + 1)}: the array ends inside it, or has no ]",
            hint="Check that the file is complete",
        )

    def _check_end(self, read: bytes, stream: BinaryIO, end: bytes) -> None:
        rest = read.strip()
        while len(rest) <= len(end) and (chunk := stream.read(_CHUNK_BYTES)):
            rest += chunk.strip()
        if rest != end:
            raise InvalidArgument(
                f"{self._source}: there is text after the end of the array", hint=JSON_FORMS
            )


class _Rejoined:
    """The lines of a stream, with those that were already read."""

    def __init__(self, head: list[bytes], stream: BinaryIO) -> None:
        self._head = head
        self._stream = stream

    def readline(self, limit: int) -> bytes:
        line = b""
        while self._head and not line.endswith(b"\n"):
            line += self._head.pop(0)
        if line.endswith(b"\n"):
            return line
        return line + self._stream.readline(max(0, limit - len(line)))


def _head(stream: BinaryIO) -> Iterator[bytes]:
    """Read up to the first line that is not blank, and only as much of it as shows the form."""
    while piece := stream.readline(_HEAD_BYTES):
        yield piece
        if piece.removeprefix(BYTE_ORDER_MARK).strip():
            return
