"""ImportedRows: the rows of a file in batches that fit a table, whatever the file's form.

    form      names                               is read
    csv       .csv, .tsv                          in blocks of some megabytes
    jsonl     .jsonl, .ndjson, .json              line by line; an array, row by row
    parquet   .parquet, .pq                       batch by batch
    arrow     .arrow, .feather, .ipc, .arrows     batch by batch; an IPC file or stream

CSV and JSON lines may be compressed: .gz, .bz2, .zst, .lz4. No more than a few batches are in
memory, however long the file is. Parquet and Arrow are decoded in a child process, see
`neve.inspect.decoder_process`.
"""

import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final, Literal, cast

import pyarrow as pa

from neve.cli.csv_rows import CsvRows
from neve.cli.json_rows import JsonFileRows
from neve.cli.refused_rows import PlaceOf, PlacesOf, RefusedRows
from neve.errors import InvalidArgument, NeveError, NotFound, Unavailable
from neve.inspect.decoder_child import SCHEMA, DecoderTask
from neve.inspect.decoder_process import DecoderFailed, DecoderProcess, memory_for
from neve.model.schema import TableSchema

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
    """What a file is."""

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
"""Forms with lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRows:
    """Batches to come, and how far they are."""

    batches: Iterator[pa.RecordBatch]
    position: Callable[[], int]
    """Bytes that were read so far."""
    byte_count: int | None
    """Length of the file; None where nobody knows it."""
    source: str
    """How messages name the file."""
    place_of: PlaceOf
    """Names the place of one of the rows that were given last."""
    stands_at: Callable[[int], int]
    """Gives where one of the rows that were given last stands among all."""
    places_of: PlacesOf
    """Names the places of rows as they stand."""
    text_of: Callable[[int], bytes]
    """Gives one of the rows that were given last as it stands in the file."""


def form_of(path: str) -> ImportForm:
    """Tell the form of a file by its name; raises InvalidArgument."""
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
            "standard input does not say in which format it is"
            if path == STANDARD_INPUT
            else f"the name {path} does not say in which format the file is",
            hint=f"Say --format {', '.join(ImportForm)}",
        )
    return form


def source_of(path: str) -> str:
    """Return how messages name a file."""
    return "standard input" if path == STANDARD_INPUT else path


def delimiter_of(path: str, wished: str | None) -> str:
    """Return what separates the cells of a CSV file."""
    return wished or (_TAB if ".tsv" in Path(path).suffixes else ",")


def opened_text(path: str, form: ImportForm, stack: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    """Open a file, as it is and unpacked; raises typed errors, also while it is read."""
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
    """Open a file of rows; raises typed errors, also while batches are taken.

    `columns` are those that are wanted besides the key, in files of text: others are not read.
    `refused` takes rows that are wrong; without it the first one is an error.
    """
    source = source_of(path)
    with ExitStack() as stack, _typed_failures(source):
        raw = _opened(path, stack)
        # Before anybody reads ahead.
        byte_count = _length(raw)
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
    """Rows of files without lines: they are named by their numbers, and have no text."""

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
        # What cannot be unpacked is an OSError of Arrow's, without the system's number.
        known = _damaged if error.errno is None else _cannot_read
        raise known(error, source) from error


def _damaged(error: Exception, source: str) -> NeveError:
    return InvalidArgument(
        f"{source} cannot be read: {str(error).partition(chr(10))[0]}",
        hint="Check that the file is whole, and its form: --format says another one",
    )


def _opened(path: str, stack: ExitStack) -> BinaryIO:
    if path != STANDARD_INPUT:
        return stack.enter_context(Path(path).open("rb"))
    if sys.stdin is None:
        raise InvalidArgument("there is no standard input", hint="Name a file")
    return cast("BinaryIO", sys.stdin.buffer)


def _opened_again(path: str) -> BinaryIO:
    return _unpacked(Path(path).open("rb"), path)


def _length(raw: BinaryIO) -> int | None:
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
        """Take an open file; it is kept in a temporary file first when it has no handle."""
        if form is ImportForm.PARQUET and not raw.seekable():
            raise InvalidArgument(
                "Parquet cannot be read from a pipe", hint="Write it to a file, and name that file"
            )
        self._file = _with_handle(raw, stack)
        self._form = form
        self._source = source
        self._memory_bytes = memory_for(_length(self._file), memory_limit)
        self._position = 0

    def position(self) -> int:
        """Return how many bytes of the file were read."""
        return self._position

    def schema(self) -> pa.Schema:
        """Return the schema that the file has; raises typed errors."""
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
                f"this user may not read {source}", hint="Ask its owner for the right"
            )
        case _:
            return Unavailable(
                f"could not read {source}: {error.strerror or error}",
                hint="Find the cause, then try again: rows that are written again stay the same",
            )
