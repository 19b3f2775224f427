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
column. Blank lines are skipped. Only one batch of the input is in memory at a time. Arrow reads
lines where it reads what this module would, see `neve.cli.json_columns`.

If only some columns are written, an object must have the key and all of these; its other columns
are ignored.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from json import JSONDecodeError
from typing import BinaryIO, Final

import pyarrow as pa

from neve.cli.command_wording import command_words
from neve.cli.json_columns import JsonColumns
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

# Arrow reads so many bytes at a time. Where it cannot, the lines are split into parts, and the few
# lines of the last part are read one by one.
_READ_BYTES: Final = 4 << 20
_PARTS: Final = 16
_ONE_BY_ONE_MAX: Final = 16

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
        self._columns = JsonColumns(schema, self._codec.schema, self._needed)
        # The last batch: how many rows came before it, and its lines.
        self._rows_before = 0
        self._given = _Lines()

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

    def rows_of(self, batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
        """Yield the rows of a batch as the values of their columns."""
        return map(self._codec.decode, self._codec.encode_batch(batch))

    def place_of(self, row: int) -> str:
        """Return the place of a row of the last batch; rows are counted from 0."""
        place = row - self._rows_before
        if not 0 <= place < len(self._given.numbers):
            return self._source
        return self._named(self._given.numbers[place])

    def stands_at(self, row: int) -> int:
        """Return the line of a row, counted from 0, of the batch that was given last."""
        return self._given.numbers[row - self._rows_before]

    def places_of(self, lines: Sequence[int]) -> list[str]:
        """Return the places of lines."""
        return [*map(self._named, lines)]

    def text_of(self, row: int) -> bytes:
        """Return the line of a row, counted from 0, of the batch that was given last."""
        return self._given.contents[row - self._rows_before]

    def batches(self, stream: BinaryIO, *, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stream of lines in batches."""
        source = self._lines(stream)
        pieces: list[pa.RecordBatch] = []
        good, size = _Lines(), 0
        while True:
            lines = _Lines()
            missing = batch_rows - len(good.numbers)
            failure = lines.fill(source, missing, min(_READ_BYTES, BATCH_BYTES - size))
            is_over = not lines.numbers
            size += lines.size
            # A row is refused before what follows it fails.
            is_row = self._read(lines, pieces, good)
            if failure is not None:
                raise failure
            if is_over:
                break
            if len(good.numbers) >= batch_rows or (size >= BATCH_BYTES and is_row):
                yield self._noted(pieces, good)
                pieces, good, size = [], _Lines(), 0
        if pieces:
            yield self._noted(pieces, good)

    def _read(self, lines: "_Lines", pieces: list[pa.RecordBatch], good: "_Lines") -> bool:
        """Add the rows of lines; return whether the last one is a row. Raises typed errors."""
        count = len(lines.numbers)
        batch = self._columns.read(lines.contents) if count else None
        if batch is not None:
            pieces.append(batch)
            good.extend(lines)
            return True
        is_row = False
        if count > _ONE_BY_ONE_MAX:
            # Arrow reads all but the part with the line that it cannot read.
            step = -(-count // _PARTS)
            for start in range(0, count, step):
                is_row = self._read(lines.cut(start, start + step), pieces, good)
            return is_row
        rows: list[bytes] = []
        for line, content in zip(lines.numbers, lines.contents, strict=True):
            try:
                rows.append(self._line(content, line))
            except (InvalidArgument, SchemaMismatch) as error:
                if self._refused is None:
                    raise
                self._refused.add(error, place=line, text=content, names_place=True)
                is_row = False
            else:
                good.add(line, content)
                is_row = True
        if rows:
            pieces.append(self.batch(rows))
        return is_row

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

    def _noted(self, pieces: list[pa.RecordBatch], lines: "_Lines") -> pa.RecordBatch:
        self._rows_before += len(self._given.numbers)
        self._given = lines
        if len(pieces) == 1:
            return pieces[0]
        (batch,) = pa.Table.from_batches(pieces).combine_chunks().to_batches()
        return batch

    def _lines(self, stream: BinaryIO, head: Sequence[bytes] = ()) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a stream that are not blank; `head` was already read from it."""
        rest = iter(partial(stream.readline, LINE_BYTES_MAX + 1), b"")
        for line, content in enumerate(chain(head, rest), start=1):
            if len(content) > LINE_BYTES_MAX:
                raise LimitExceeded(
                    f"{self._source}:{line}: longer than {LINE_BYTES_MAX:,} bytes",
                    limit=LINE_BYTES_MAX,
                    hint="Write one JSON object per line",
                )
            text = content.removeprefix(BYTE_ORDER_MARK) if line == 1 else content
            if text and not text.isspace():
                yield line, text


class _Lines:
    """Lines with their numbers."""

    __slots__ = ("contents", "numbers", "size")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.contents: list[bytes] = []
        self.size = 0
        """Bytes that `fill` took."""

    def fill(
        self, source: Iterator[tuple[int, bytes]], count: int, bytes_max: int
    ) -> Exception | None:
        """Take lines up to a count, or until they have so many bytes; return what went wrong."""
        try:
            for number, content in islice(source, count):
                self.add(number, content)
                self.size += len(content)
                if self.size >= bytes_max:
                    break
        except Exception as error:  # noqa: BLE001 - raised after these lines are read
            return error
        return None

    def add(self, number: int, content: bytes) -> None:
        """Add one line."""
        self.numbers.append(number)
        self.contents.append(content)

    def extend(self, lines: "_Lines") -> None:
        """Add lines."""
        self.numbers += lines.numbers
        self.contents += lines.contents

    def cut(self, start: int, stop: int) -> "_Lines":
        """Return some of the lines."""
        part = _Lines()
        part.numbers = self.numbers[start:stop]
        part.contents = self.contents[start:stop]
        return part


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

    def _lines(self, stream: BinaryIO, head: Sequence[bytes] = ()) -> Iterator[tuple[int, bytes]]:
        """Yield the texts of rows, with their lines, or with their numbers in an array."""
        head = [*head, *_head(stream)]
        begin = b"".join(head).removeprefix(BYTE_ORDER_MARK).strip()
        if not begin.startswith(_ARRAY) and begin != _DOCUMENT:
            if head and not head[-1].endswith(b"\n"):
                head[-1] += stream.readline(LINE_BYTES_MAX + 1 - len(head[-1]))
            yield from super()._lines(stream, head)
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


def _head(stream: BinaryIO) -> Iterator[bytes]:
    """Read up to the first line that is not blank, and only as much of it as shows the form."""
    while piece := stream.readline(_HEAD_BYTES):
        yield piece
        if piece.removeprefix(BYTE_ORDER_MARK).strip():
            return
