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

Arrow reads lines as columns where it reads exactly what is read line by line:

    JSON of a column          read as                    left to the other way
    boolean, int, string      itself
    float, double             double                     NaN, Infinity, zero with a sign
    decimal                   a wider decimal            too many digits
    date, time, timestamp     text, which is cast        another form than 2024-01-31T22:31:08.5
    uuid, binary, fixed       text, value by value
    list, struct              itself, by these rules     with other types inside
    map                                                  always

Arrow does not know a missing member from null, so lines without a value for a column that has a
default, or is never NULL, are left to the other way, too.

JSON-1  Lines that Arrow reads are one object each. Arrow ignores line breaks between tokens. But if
        every line begins with { and ends with }, then a line that ends inside an object would be
        followed by { where JSON has a comma or a bracket. So each line has one object or more, and
        if there are as many objects as lines, each has one.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from json import JSONDecodeError
from operator import methodcaller
from typing import BinaryIO, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.json as pjson

from neve.cli.command_wording import command_words
from neve.cli.refused_rows import RefusedRows
from neve.cli.value_forms import MOMENTS, cast_moments, json_reader, parse_json
from neve.engine.row_input import given_columns, narrowed_codec
from neve.errors import InvalidArgument, LimitExceeded, NeveError, SchemaMismatch
from neve.model.array_fit import fit_column
from neve.model.arrow_buffers import one_batch
from neve.model.arrow_types import ArrowField, TypeKind, child_fields, kind_of
from neve.model.display import shown
from neve.model.exact_columns import exact_column
from neve.model.row_codec import RowCodec
from neve.model.scalar_values import Unfit
from neve.model.schema import Column, TableSchema
from neve.model.schema_view import ArrowArray

_PLAIN: Final = frozenset({TypeKind.BOOLEAN, TypeKind.INT, TypeKind.LONG, TypeKind.STRING})
_FLOATS: Final = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_SPACE: Final = methodcaller("strip", b" \t\r\n")
_BLOCK_BYTES_MIN: Final = 1 << 10


class _Unlike(ValueError):
    """Arrow may have read something else than the other way does."""


_REFUSALS: Final = (pa.ArrowException, NeveError, Unfit, ValueError, OverflowError)


class JsonColumns:
    """Reads lines of one schema, many at a time."""

    def __init__(self, schema: TableSchema, wanted: TableSchema, needed: Sequence[str]) -> None:
        """Take the table's schema, that of the batches, and members that each line must have."""
        self._wanted = wanted
        self._required = {*needed} | {
            column.name
            for column in wanted.columns
            if not column.nullable or column.write_default is not None
        }
        fields = [_field_of(column) for column in schema.columns]
        self._options = (
            None
            if any(field is None for field in fields)
            else pjson.ParseOptions(
                explicit_schema=pa.schema(cast("list[ArrowField]", fields)),
                unexpected_field_behavior="error",
            )
        )

    def read(self, lines: Sequence[bytes]) -> pa.RecordBatch | None:
        """Return the rows of lines, none of them blank; None if they are to be read one by one."""
        if self._options is None:
            return None
        stripped = [*map(_SPACE, lines)]
        block = b"\n".join(stripped)
        if (
            not block.startswith(b"{")
            or not block.endswith(b"}")
            or block.count(b"}\n{") != len(lines) - 1
        ):
            return None
        try:
            block.decode()
            table = pjson.read_json(
                cast("BinaryIO", pa.BufferReader(block)),
                read_options=pjson.ReadOptions(
                    use_threads=False, block_size=max(_BLOCK_BYTES_MIN, len(block) + 1)
                ),
                parse_options=self._options,
            )
            if table.num_rows != len(lines):
                return None
            columns = [self._column(table, column) for column in self._wanted.columns]
        except _REFUSALS:
            return None
        return pa.RecordBatch.from_arrays(columns, schema=self._wanted.arrow_schema)

    def _column(self, table: pa.Table, column: Column) -> ArrowArray:
        array = pa.concat_arrays(table.column(column.name).chunks)
        if array.null_count and column.name in self._required:
            raise _Unlike
        return _converted(array, column)


def _field_of(column: Column) -> "ArrowField | None":
    """Return how Arrow reads a column; None if it cannot."""
    kind = kind_of(column.type)
    if kind is TypeKind.MAP:
        return None
    if kind in {TypeKind.LIST, TypeKind.STRUCT}:
        nested = _nested_type(column.type)
        return None if nested is None else pa.field(column.name, nested)
    if kind in _PLAIN:
        return pa.field(column.name, column.type)
    if isinstance(column.type, pa.Decimal128Type):
        # Arrow moves the point without a check: 76 digits hold whatever it makes of 38.
        wide = pa.decimal256(column.type.precision, column.type.scale)
        return pa.field(column.name, wide)
    return pa.field(column.name, pa.float64() if kind in _FLOATS else pa.string())


def _nested_type(arrow_type: pa.DataType) -> pa.DataType | None:
    kind = kind_of(arrow_type)
    if kind in _PLAIN or kind is TypeKind.DOUBLE:
        return arrow_type
    if kind not in {TypeKind.LIST, TypeKind.STRUCT}:
        return None
    members = [(each.name, _nested_type(each.type)) for each in child_fields(arrow_type)]
    if any(each is None for _, each in members):
        return None
    fields = [pa.field(name, cast("pa.DataType", each)) for name, each in members]
    return pa.list_(fields[0]) if kind is TypeKind.LIST else pa.struct(fields)


def _converted(array: ArrowArray, column: Column) -> ArrowArray:
    """Return what Arrow read as values of the column; raises one of `_REFUSALS`."""
    kind = kind_of(column.type)
    if kind in _PLAIN:
        return array
    if kind in MOMENTS:
        return cast_moments(array, column.type)
    if kind in {TypeKind.UUID, TypeKind.BINARY, TypeKind.FIXED}:
        read = json_reader(column.type)
        texts = cast("list[str | None]", array.to_pylist())
        values = [None if text is None else read(text) for text in texts]
        exact = exact_column(values, column.arrow_field)
        if exact is None:
            raise _Unlike
        return exact
    if kind is TypeKind.DECIMAL:
        array.validate(full=True)
        return cast("ArrowArray", array.cast(column.type))
    _check_numbers(array)
    if kind is TypeKind.FLOAT:
        array = cast("ArrowArray", array.cast(pa.float32(), safe=False))
        _check_numbers(array, is_rounded=True)
    return fit_column(array, column.arrow_field)


def _check_numbers(array: ArrowArray, *, is_rounded: bool = False) -> None:
    """Refuse floats that Arrow accepts as bare words, or that lose the sign of an integer zero."""
    if isinstance(array, pa.StructArray):
        for child in array.flatten():
            _check_numbers(child)
    elif isinstance(array, pa.ListArray):
        _check_numbers(array.flatten())
    elif pa.types.is_floating(array.type):
        numbers = array.drop_null().to_numpy(zero_copy_only=False)
        if not np.isfinite(numbers).all():
            raise _Unlike
        if not is_rounded and np.signbit(numbers[numbers == 0]).any():
            raise _Unlike


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
        return one_batch(pa.Table.from_batches(pieces))

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
