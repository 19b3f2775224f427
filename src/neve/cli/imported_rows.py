"""The rows of a file, in batches that fit a table: ImportedRows for every form, CsvRows for CSV.

    form      names                               is read
    csv       .csv, .tsv                          in blocks of some megabytes
    jsonl     .jsonl, .ndjson, .json              line by line; an array, row by row
    parquet   .parquet, .pq                       batch by batch
    arrow     .arrow, .feather, .ipc, .arrows     batch by batch; an IPC file or stream

CSV and JSON lines may be compressed: .gz, .bz2, .zst, .lz4. Only a few batches are in memory at a
time. Parquet and Arrow are decoded in a child process, see `neve.inspect.decoder_process`.

The first line of a CSV file names columns of the table, in any order; the others get their default
or NULL. A cell holds a value in its text form, see `neve.cli.value_forms`. An empty cell is NULL,
and "" is an empty text. Cells are converted column by column. If that fails, they are converted
again cell by cell, which accepts more forms and finds the cell that is wrong.

A wrong row is reported with the line it begins on, as `file:line`. The file is read again to find
it, because empty lines and line breaks in cells count. An input that cannot be read again, such as
a pipe, is assumed to have one line per row.
"""

import codecs
import csv
import io
import re
import shutil
import sys
import tempfile
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeAlias, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from neve.cli.command_wording import command_words
from neve.cli.json_rows import JsonFileRows, codec_of
from neve.cli.refused_rows import PlaceOf, PlacesOf, RefusedRows, nth_left
from neve.cli.value_forms import MOMENTS, cast_moments, text_reader
from neve.errors import (
    InvalidArgument,
    LimitExceeded,
    NeveError,
    NotFound,
    SchemaMismatch,
    Unavailable,
)
from neve.inspect.decoder_child import SCHEMA, DecoderTask
from neve.inspect.decoder_process import DecoderFailed, DecoderProcess, memory_for
from neve.model.arrow_types import NESTED_KINDS, TypeKind, kind_of
from neve.model.display import shown
from neve.model.scalar_values import Unfit
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray
from neve.model.suggestions import similar_name_hint

_HINT: Final = "Check the delimiter, and that the file is UTF-8 and has a header line"
_BLOCK_BYTES: Final = 16 << 20
_HEAD_BYTES: Final = 1 << 16
_COLUMNS_MIN_MAX: Final = 10_000
_FLOATS: Final = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_DELIMITERS: Final = (",", ";", "\t", "|")
# Arrow counts the header as row 1, and does not count empty lines.
_WRONG_ROW: Final = re.compile(r"CSV parse error: Row #(\d+): (.*)", re.DOTALL)

OpenAgain: TypeAlias = Callable[[], BinaryIO]
"""Opens the file again, from its beginning."""


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
        refused: RefusedRows | None = None,
    ) -> None:
        """Take the schema, and the name of the file in messages.

        With `columns`, only these and the key are read. With `refused`, wrong rows go there, and
        the others are read.
        """
        self._schema = schema
        self._source = source
        self._delimiter = delimiter
        self._codec = codec_of(schema, columns)
        self._readers = {column.name: text_reader(column.type) for column in schema.columns}
        self._needed = None if columns is None else self._codec.schema.arrow_schema.names
        # Names that are not in the table are refused one by one, after all are read.
        self._columns_max = _COLUMNS_MIN_MAX + 2 * len(schema.columns)
        self._open_again = open_again
        self._refused = refused
        # Places of skipped rows: those with a wrong number of cells, and all.
        self._cut_off: list[int] = []
        self._gone: list[int] = []
        self._unsaid: list[tuple[int, str, str]] = []
        # The last batch: how many rows came before it, and its cells.
        self._given_before = 0
        self._given: pa.RecordBatch | None = None

    def batches(self, stream: BinaryIO) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stream in batches of some megabytes; raises typed errors."""
        head, stream = _first_line(stream)
        columns = head.count(self._delimiter.encode()) + 1
        if columns > self._columns_max:
            raise LimitExceeded(
                f"the first line of {self._source} names {columns:,} columns",
                limit=self._columns_max,
                actual=columns,
                hint=_HINT,
            )
        try:
            reader = self._open(stream)
            self._check_names(reader.schema.names)
            if self._refused is not None:
                self._refused.head = self._line(reader.schema.names)
            before = 0
            for batch in reader:
                self._refuse_cut_off()
                converted = self._converted(batch, before)
                yield converted
                self._given_before += converted.num_rows
                before += batch.num_rows
            self._refuse_cut_off()
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise self._unreadable(str(error)) from error

    def place_of(self, row: int) -> str:
        """Return the line a row begins on; rows are counted from 0, without skipped ones."""
        return self.places_of([self.stands_at(row)])[0]

    def stands_at(self, row: int) -> int:
        """Return the number of a row in the file, from 0 below the header, with skipped ones."""
        return nth_left(row, self._gone)

    def places_of(self, rows: Sequence[int]) -> list[str]:
        """Return the lines that rows begin on, by their numbers in the file."""
        lines = {row: row + 2 for row in rows}
        if self._open_again is not None:
            lines |= _lines_of_rows(self._open_again(), self._delimiter, frozenset(rows))
        return [f"{self._source}:{lines[row]}" for row in rows]

    def text_of(self, row: int) -> bytes:
        """Return a row of the last batch as a line of CSV."""
        assert self._given is not None, "rows were given"
        (cells,) = self._given.slice(row - self._given_before, 1).to_pylist()
        return self._line([*cells.values()])

    def _line(self, cells: Sequence[str | None]) -> bytes:
        return f"{self._delimiter.join(map(self._cell, cells))}\n".encode()

    def _cell(self, text: str | None) -> str:
        if text is None:
            return ""
        if text and text == text.strip() and not {'"', "\r", "\n", self._delimiter} & set(text):
            return text
        doubled = text.replace('"', '""')
        return f'"{doubled}"'

    def _cut_off_row(self, row: pcsv.InvalidRow) -> Literal["skip", "error"]:
        """Decide about a row whose number of cells differs from the header."""
        if self._refused is None or row.number is None:
            return "error"
        self._cut_off.append(row.number - 2)
        self._gone.append(row.number - 2)
        words = f"Expected {row.expected_columns} columns, got {row.actual_columns}"
        self._unsaid.append((row.number - 2, words, row.text))
        return "skip"

    def _refuse_cut_off(self) -> None:
        """Refuse the rows that were skipped while a block was read, before the header was known."""
        for place, words, text in self._unsaid:
            assert self._refused is not None, "without it no row is skipped"
            error = SchemaMismatch(words, hint=_HINT)
            self._refused.add(error, place=place, text=text.encode())
        self._unsaid = []

    def _unreadable(self, reason: str) -> InvalidArgument:
        wrong = _WRONG_ROW.fullmatch(reason)
        if wrong is None:
            first_line = reason.partition("\n")[0]
            return InvalidArgument(
                f"{self._source} cannot be read as CSV: {first_line}", hint=_HINT
            )
        (place,), reason = self.places_of([int(wrong[1]) - 2]), wrong[2].partition("\n")[0]
        return InvalidArgument(f"{place}: {reason}", hint=_HINT)

    def _open(self, stream: BinaryIO) -> pcsv.CSVStreamingReader:
        texts = {column.name: pa.string() for column in self._schema.columns}
        # Arrow fails to report a row whose bytes are not text, so no such byte reaches it.
        source = pa.PythonFile(cast("io.IOBase", stream), mode="r")
        checked = pa.TransformInputStream(source, self._text_checker())
        return pcsv.open_csv(
            cast("BinaryIO", checked),
            read_options=pcsv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=pcsv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                invalid_row_handler=self._cut_off_row,
            ),
            convert_options=pcsv.ConvertOptions(
                column_types=texts,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _text_checker(self) -> Callable[[pa.Buffer], pa.Buffer]:
        """Return what passes on the next bytes of a file, and raises where they are not UTF-8."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        lines = 1

        def checked(piece: pa.Buffer) -> pa.Buffer:
            nonlocal lines
            data = memoryview(piece)
            try:
                lines += decoder.decode(data, final=not data).count("\n")
            except UnicodeDecodeError as error:
                line = lines + error.object[: error.start].count(b"\n")
                raise InvalidArgument(
                    f"{self._source}:{line} is not UTF-8", hint="Convert the file to UTF-8"
                ) from error
            return piece

        return checked

    def _check_names(self, names: list[str]) -> None:
        counts = Counter(names)
        for name in names:
            if name not in self._schema:
                raise SchemaMismatch(
                    f"column {shown(name)} of {self._source} is not in the table",
                    column=name,
                    hint=self._other_delimiter(name)
                    or similar_name_hint(name, self._schema.arrow_schema.names)
                    or "Check the first line of the file, which names its columns",
                )
            if counts[name] > 1:
                raise SchemaMismatch(
                    f"column {shown(name)} is in {self._source} twice", column=name
                )

        for name in self._needed or ():
            if name not in counts:
                raise SchemaMismatch(
                    f"column {shown(name)} is missing from {self._source}",
                    column=name,
                    hint="Include the key and every column that --columns names",
                )

    def _other_delimiter(self, name: str) -> str | None:
        """Suggest a delimiter that splits the name into names of columns."""
        for mark in _DELIMITERS:
            parts = [part.strip().strip('"') for part in name.split(mark)]
            if (
                mark != self._delimiter
                and len(parts) > 1
                and any(part in self._schema for part in parts)
            ):
                said = "$'\\t'" if mark == "\t" else f"'{mark}'"
                return f"Its cells seem to have another delimiter: use --delimiter {said}"
        return None

    def _converted(self, given: pa.RecordBatch, before: int) -> pa.RecordBatch:
        cells = given if self._needed is None else given.select(self._needed)
        self._given = given
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
        wrong: list[int] = []
        for number, row in enumerate(zip(*texts, strict=True)):
            values: dict[str, object] = {}
            try:
                for name, read, text in zip(names, readers, row, strict=True):
                    values[name] = None if text is None else _value(name, read, text)
                rows.append(self._codec.encode(values))
            except SchemaMismatch as error:
                place = nth_left(before + number, self._cut_off)
                if self._refused is None:
                    raise SchemaMismatch(
                        f"{self.places_of([place])[0]}: {command_words(error.message)}",
                        column=error.column,
                        hint=error.hint,
                    ) from None
                self._refused.add(error, place=place, text=self._given_line(number))
                wrong.append(number)
                insort(self._gone, place)
        self._keep_given(wrong)
        # As above, the table fills in columns that the file does not have.
        return self._codec.decode_many(rows).select(names)

    def _given_line(self, number: int) -> bytes:
        """Return a row of the current batch as a line."""
        return self.text_of(self._given_before + number)

    def _keep_given(self, wrong: Sequence[int]) -> None:
        """Drop the cells of skipped rows."""
        if wrong and self._given is not None:
            kept = sorted({*range(self._given.num_rows)}.difference(wrong))
            self._given = self._given.take(pa.array(kept, pa.int64()))


def _first_line(stream: BinaryIO) -> tuple[bytes, BinaryIO]:
    """Read the first line of a stream; return it, and the stream including it."""
    head = b""
    while b"\n" not in head and len(head) < _BLOCK_BYTES and (more := stream.read(_HEAD_BYTES)):
        head += more
    return head.partition(b"\n")[0], cast("BinaryIO", io.BufferedReader(_Rejoined(head, stream)))


class _Rejoined(io.RawIOBase):
    """A stream, with the bytes that were already read from it."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        super().__init__()
        self._head = head
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, target: object, /) -> int:
        view = memoryview(cast("bytearray", target))
        content = self._head[: len(view)] or self._stream.read(len(view))
        self._head = self._head[len(view) :]
        view[: len(content)] = content
        return len(content)


def _value(name: str, read: Callable[[str], object], text: str) -> object:
    try:
        return read(text)
    except Unfit as unfit:
        column = f"{name}.{unfit.path}" if unfit.path else name
        raise SchemaMismatch(f"column {shown(column)}: {unfit.reason}", column=column) from None


def _lines_of_rows(stream: BinaryIO, delimiter: str, rows: frozenset[int]) -> dict[int, int]:
    """Find the lines that rows begin on, and close the stream; rows not found are left out."""
    found: dict[int, int] = {}
    # The header is row -1.
    place, lines_before = -1, 0
    with (
        io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="") as texts,
        suppress(csv.Error),  # such as a cell longer than this reader allows
    ):
        reader = csv.reader(texts, delimiter=delimiter)
        # Slow, but it runs once, for a message.
        for cells in reader:
            if cells:
                if place in rows:
                    found[place] = lines_before + 1
                    if len(found) == len(rows):
                        break
                place += 1
            lines_before = reader.line_num
    return found


def _column(texts: ArrowArray, arrow_type: pa.DataType) -> ArrowArray:
    """Convert a column of cells at once; raises ValueError or ArrowException if it cannot."""
    kind = kind_of(arrow_type)
    if kind in NESTED_KINDS:
        raise ValueError(f"cells of {kind} are converted one by one")
    if kind in {TypeKind.BINARY, TypeKind.FIXED}:
        contents = [None if each is None else bytes.fromhex(each) for each in _texts(texts)]
        return pa.array(contents, arrow_type)
    if isinstance(arrow_type, pa.UuidType):
        uuids = [None if each is None else UUID(each).bytes for each in _texts(texts)]
        return pa.ExtensionArray.from_storage(arrow_type, pa.array(uuids, pa.binary(16)))
    if kind in MOMENTS:
        return cast_moments(texts, arrow_type)
    if kind in _FLOATS:
        return _floats(texts, arrow_type)
    if isinstance(arrow_type, pa.Decimal128Type):
        # Arrow moves the point without a check: 76 digits hold whatever it makes of 38.
        texts = texts.cast(pa.decimal256(arrow_type.precision, arrow_type.scale))
    elif kind is TypeKind.BOOLEAN:
        _check_all(pc.is_in(pc.utf8_lower(texts), pa.array(["true", "false"])), texts)
    elif kind is not TypeKind.STRING:
        # Arrow reads 0x1F as 31.
        _check_all(pc.invert(pc.match_substring(texts, "x", ignore_case=True)), texts)
    return cast("ArrowArray", pc.cast(texts, arrow_type))


def _floats(texts: ArrowArray, arrow_type: pa.DataType) -> ArrowArray:
    doubles = texts.cast(pa.float64())
    converted = doubles.cast(arrow_type, safe=False)
    named = pc.is_in(texts, pa.array(["NaN", "Infinity", "-Infinity"]))
    _check_all(pc.or_(pc.is_finite(converted), named), texts)
    # A whole number has no sign at zero.
    is_zero = pc.and_(
        pc.equal(doubles, pa.scalar(0.0)), pc.match_substring_regex(texts, "^-[^.eE]*$")
    )
    _check_all(pc.invert(is_zero), texts)
    return cast("ArrowArray", converted)


def _check_all(is_good: object, texts: ArrowArray) -> None:
    """Raise ValueError unless all cells that are not NULL are good."""
    good = cast("pa.BooleanArray", is_good)
    if pc.any(pc.and_(pc.invert(good), texts.is_valid())).as_py():
        raise ValueError("a cell has another form")


def _texts(texts: ArrowArray) -> list[str | None]:
    return cast("list[str | None]", texts.to_pylist())


STANDARD_INPUT: Final = "-"
_COMPRESSIONS: Final[dict[str, Literal["gzip", "bz2", "zstd", "lz4"]]] = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".lz4": "lz4",
}
_ARCHIVES: Final = frozenset({".zip", ".tar", ".tgz", ".7z", ".rar"})
_TAB: Final = "\t"


class ImportForm(StrEnum):
    """The format of a file."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    ARROW = "arrow"


_SUFFIXES: Final = {
    ".csv": ImportForm.CSV,
    ".tsv": ImportForm.CSV,
    ".json": ImportForm.JSONL,
    ".jsonl": ImportForm.JSONL,
    ".ndjson": ImportForm.JSONL,
    ".parquet": ImportForm.PARQUET,
    ".pq": ImportForm.PARQUET,
    ".arrow": ImportForm.ARROW,
    ".arrows": ImportForm.ARROW,
    ".feather": ImportForm.ARROW,
    ".ipc": ImportForm.ARROW,
}
TEXT_FORMS: Final = frozenset({ImportForm.CSV, ImportForm.JSONL})
"""Forms that have lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRows:
    """The batches of a file, and how far it was read."""

    batches: Iterator[pa.RecordBatch]
    position: Callable[[], int]
    """Bytes read so far."""
    byte_count: int | None
    """Length of the file; None if unknown."""
    source: str
    """The name of the file in messages."""
    place_of: PlaceOf
    """Returns the line or number of a row of the last batch, as text."""
    stands_at: Callable[[int], int]
    """Returns the number of a row of the last batch among all rows."""
    places_of: PlacesOf
    """Returns lines or numbers of rows by their numbers among all rows, as text."""
    text_of: Callable[[int], bytes]
    """Returns the text of a row of the last batch."""


def form_of(path: str) -> ImportForm:
    """Return the form of a file by its name; raises InvalidArgument."""
    name = Path(path)
    if name.suffix.lower() in _COMPRESSIONS:
        name = name.with_suffix("")
    form = _SUFFIXES.get(name.suffix.lower())
    if name.suffix.lower() in _ARCHIVES:
        raise InvalidArgument(
            f"{path} is an archive, which may hold many files",
            hint=f"Unpack it, or send one file: unzip -p {path} | neve import TABLE - --format csv",
        )
    if form is None:
        raise InvalidArgument(
            "the format of standard input is unknown"
            if path == STANDARD_INPUT
            else f"the name {path} does not show the format of the file",
            hint=f"Use --format {', '.join(ImportForm)}",
        )
    return form


def source_of(path: str) -> str:
    """Return the name of a file in messages."""
    return "standard input" if path == STANDARD_INPUT else path


def delimiter_of(path: str, wished: str | None) -> str:
    """Return what separates the cells of a CSV file."""
    return wished or (_TAB if ".tsv" in Path(path).suffixes else ",")


def opened_text(path: str, form: ImportForm, stack: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    """Open a file, raw and unpacked; raises typed errors, also while it is read."""
    stack.enter_context(_typed_failures(source_of(path)))
    raw = _opened(path, stack)
    return raw, _unpacked(raw, path) if form in TEXT_FORMS else raw


@contextmanager
def open_rows(
    path: str,
    form: ImportForm,
    schema: TableSchema,
    *,
    batch_rows: int,
    delimiter: str | None,
    memory_limit: int | None = None,
    columns: Sequence[str] | None = None,
    refused: RefusedRows | None = None,
) -> Iterator[ImportedRows]:
    """Open a file of rows; raises typed errors, also while batches are read.

    `columns` are those to read besides the key, in text files. `refused` takes wrong rows; without
    it the first one is an error.
    """
    source = source_of(path)
    with ExitStack() as stack, _typed_failures(source):
        raw = _opened(path, stack)
        # Before a reader reads ahead.
        byte_count = length_of(raw)
        stream = raw
        if form in TEXT_FORMS:
            stream = _unpacked(raw, path)
        reader: CsvRows | JsonFileRows | _NumberedRows = _NumberedRows(source)
        position: Callable[[], int] = raw.tell if raw.seekable() else lambda: 0
        match form:
            case ImportForm.CSV:
                mark = delimiter_of(path, delimiter)
                reader = CsvRows(
                    schema,
                    source=source,
                    delimiter=mark,
                    columns=columns,
                    open_again=None if path == STANDARD_INPUT else lambda: _opened_again(path),
                    refused=refused,
                )
                batches = reader.batches(stream)
            case ImportForm.JSONL:
                reader = JsonFileRows(schema, source=source, columns=columns, refused=refused)
                batches = reader.batches(stream, batch_rows=batch_rows)
            case ImportForm.PARQUET | ImportForm.ARROW:
                decoded = DecodedFile(
                    raw, form, source=source, memory_limit=memory_limit, stack=stack
                )
                batches, position = decoded.batches(batch_rows), decoded.position
        yield ImportedRows(
            batches=_cut(batches, batch_rows),
            position=position,
            byte_count=byte_count,
            source=source,
            place_of=reader.place_of,
            stands_at=reader.stands_at,
            places_of=reader.places_of,
            text_of=reader.text_of,
        )


class _NumberedRows:
    """Rows of files without lines: messages name them by number, and they have no text."""

    def __init__(self, source: str) -> None:
        self._source = source

    def place_of(self, row: int) -> str:
        return f"{self._source}, row {row + 1:,}"

    def stands_at(self, row: int) -> int:
        return row

    def places_of(self, rows: Sequence[int]) -> list[str]:
        return [self.place_of(row) for row in rows]

    def text_of(self, row: int) -> bytes:
        raise AssertionError(f"row {row} of {self._source} has no text")


@contextmanager
def _typed_failures(source: str) -> Iterator[None]:
    try:
        yield
    except NeveError:
        raise
    except pa.ArrowException as error:
        raise _damaged(error, source) from error
    except OSError as error:
        # Arrow raises an OSError without errno for what it cannot unpack.
        known = _damaged if error.errno is None else _cannot_read
        raise known(error, source) from error


def _damaged(error: Exception, source: str) -> NeveError:
    return InvalidArgument(
        f"{source} cannot be read: {str(error).partition(chr(10))[0]}",
        hint="Check that the file is complete, or use another --format",
    )


def _opened(path: str, stack: ExitStack) -> BinaryIO:
    if path != STANDARD_INPUT:
        return stack.enter_context(Path(path).open("rb"))
    if sys.stdin is None:
        raise InvalidArgument("there is no standard input", hint="Name a file")
    return cast("BinaryIO", sys.stdin.buffer)


def _opened_again(path: str) -> BinaryIO:
    return _unpacked(Path(path).open("rb"), path)


def length_of(raw: BinaryIO) -> int | None:
    """Return how many bytes a file has; None if it cannot be known."""
    if not raw.seekable():
        return None
    here = raw.tell()
    length = raw.seek(0, io.SEEK_END)
    raw.seek(here)
    return length


def _unpacked(raw: BinaryIO, path: str) -> BinaryIO:
    compression = _COMPRESSIONS.get(Path(path).suffix.lower())
    if compression is None:
        return raw
    unpacked = pa.CompressedInputStream(cast("io.IOBase", raw), compression)
    return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", unpacked)))


class DecodedFile:
    """A Parquet or Arrow file that a child process decodes."""

    def __init__(
        self,
        raw: BinaryIO,
        form: ImportForm,
        *,
        source: str,
        memory_limit: int | None,
        stack: ExitStack,
    ) -> None:
        """Take an open file; one without a handle is copied to a temporary file first."""
        if form is ImportForm.PARQUET and not raw.seekable():
            raise InvalidArgument(
                "Parquet cannot be read from a pipe", hint="Write it to a file, and name that file"
            )
        self._file = _with_handle(raw, stack)
        self._form = form
        self._source = source
        self._memory_bytes = memory_for(length_of(self._file), memory_limit)
        self._position = 0

    def position(self) -> int:
        """Return how many bytes of the file were read so far."""
        return self._position

    def schema(self) -> pa.Schema:
        """Return the schema of the file; raises typed errors."""
        with self._typed_failures(), self._process("schema", 1) as process:
            return next(process.frames()).reader().schema

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Return the rows of the file; raises typed errors."""
        with self._typed_failures(), self._process("batches", batch_rows) as process:
            for frame in process.frames():
                self._position = frame.position
                if frame.kind != SCHEMA:
                    yield from frame.reader()

    def _process(self, task: str, batch_rows: int) -> DecoderProcess:
        if self._file.seekable():
            self._file.seek(0)
        asked = DecoderTask(
            task=task,
            form=self._form,
            path=self._source,
            memory_bytes=self._memory_bytes,
            batch_rows=batch_rows,
        )
        return DecoderProcess(asked, file=self._file.fileno())

    @contextmanager
    def _typed_failures(self) -> Iterator[None]:
        try:
            yield
        except DecoderFailed as error:
            if error.is_limit:
                raise error.limit_exceeded(self._source, self._memory_bytes) from None
            raise _damaged(error, self._source) from None


def _with_handle(raw: BinaryIO, stack: ExitStack) -> BinaryIO:
    try:
        raw.fileno()
    except OSError:
        kept = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - by the stack
        shutil.copyfileobj(raw, kept)
        kept.seek(0)
        return cast("BinaryIO", kept)
    return raw


def _cut(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Cut batches that are too large; rows keep their order."""
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _cannot_read(error: OSError, source: str) -> NeveError:
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return NotFound(f"there is no file {source}", hint="Check the spelling")
        case IsADirectoryError():
            return InvalidArgument(f"{source} is a directory", hint="Name one file in it")
        case PermissionError():
            return Unavailable(
                f"this user may not read {source}", hint="Ask its owner for permission"
            )
        case _:
            return Unavailable(
                f"could not read {source}: {error.strerror or error}",
                hint="Find the cause, then try again: writing a row twice is harmless",
            )
