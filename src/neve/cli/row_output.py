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

Lines of CSV and JSON are written column by column. Values have the forms of `neve.cli.value_forms`.
Arrow writes those that it writes in the same form; the others of a column, such as 1e300, texts
with quotes and years after 9999, are written one by one, and put in their places. Nested values are
always written one by one.
"""

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.cells import cell_len
from rich.text import Text

from neve.cli.value_forms import json_values, text_of
from neve.errors import InvalidArgument, Unavailable
from neve.inspect.page import wrapped
from neve.inspect.shown_text import Json, shown_text
from neve.model.arrow_types import TypeKind, kind_of
from neve.model.plain_values import stored_array
from neve.model.scalar_values import PYTHON_MICROSECONDS
from neve.model.schema_view import ArrowArray

_Flags: TypeAlias = npt.NDArray[np.bool_]
_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Write: TypeAlias = Callable[[Json], str]

_TEXT: Final = pa.large_string()
_NAIVE: Final[dict[TypeKind, pa.DataType]] = {
    TypeKind.TIMESTAMP: pa.timestamp("us"),
    TypeKind.TIMESTAMPTZ: pa.timestamp("us"),
    TypeKind.TIMESTAMP_NS: pa.timestamp("ns"),
    TypeKind.TIMESTAMPTZ_NS: pa.timestamp("ns"),
}
_ZONED: Final = frozenset({TypeKind.TIMESTAMPTZ, TypeKind.TIMESTAMPTZ_NS})
_COUNTED: Final = frozenset({TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ})
_BARE: Final = frozenset(
    {TypeKind.BOOLEAN, TypeKind.INT, TypeKind.LONG, TypeKind.FLOAT, TypeKind.DOUBLE}
)
"""Kinds whose JSON has no quotes, besides values that are written one by one."""
_DAY_MICROSECONDS: Final = 86_400_000_000
# Between these, Arrow and Python write a fraction with the same digits and without an exponent.
_FRACTION_MIN, _FRACTION_MAX = 1e-4, 1e9
# Python writes whole numbers below this without an exponent.
_WHOLE_MAX: Final = 1e15
_UUID_DASHES: Final = (8, 13, 18, 23)
_UUID_CHARACTERS: Final = 36
_FIRST_PRINTED, _LAST_PRINTED = 0x21, 0x7E


def _bytes_in(contents: bytes) -> _Flags:
    found = np.zeros(256, np.bool_)
    found[[*contents]] = True
    return found


_CSV_QUOTED: Final = _bytes_in(b'",\r\n')
_JSON_ESCAPED: Final = _bytes_in(b'"\\') | ~_bytes_in(bytes(range(0x20, 0x7F)))
_HEX: Final = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)


def csv_cell(value: Json) -> str:
    """Return a value as a cell of CSV."""
    if value is None:
        return ""
    text = text_of(value)
    if text and text == text.strip() and {'"', ",", "\r", "\n"}.isdisjoint(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def csv_lines(batch: pa.RecordBatch) -> memoryview:
    """Return rows as lines of CSV."""
    cells: list[str | ArrowArray] = []
    for column in batch.columns:
        cells += [",", _csv_cells(column)]
    return _joined([*cells[1:], "\n"])


def json_lines(batch: pa.RecordBatch, *, begin: str, end: str) -> memoryview:
    """Return rows as objects of JSON, each after `begin` and before `end`."""
    pieces: list[str | ArrowArray] = []
    separator = f"{begin}{{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        pieces += [f"{separator}{json.dumps(name)}: ", _json_cells(column)]
        separator = ", "
    return _joined([*pieces, f"}}{end}"])


def _joined(pieces: Sequence["str | ArrowArray"]) -> memoryview:
    """Return the memory of columns and constants, one after the other in each row."""
    ends, data = _memory(_concatenated(*pieces))
    return data[ends[0] : ends[-1]].data


def _concatenated(*pieces: "str | ArrowArray") -> ArrowArray:
    """Join texts row by row; NULL if one of them is NULL."""
    arguments = [pa.scalar(each, _TEXT) if isinstance(each, str) else each for each in pieces]
    return cast(
        "ArrowArray",
        pc.call_function("binary_join_element_wise", [*arguments, pa.scalar("", _TEXT)]),
    )


def _memory(texts: ArrowArray) -> tuple[npt.NDArray[np.int64], _Bytes]:
    """Return where texts begin and end, and their bytes."""
    _, offsets, data = texts.buffers()
    assert offsets is not None, "large texts have offsets"
    ends = np.frombuffer(cast("memoryview[int]", offsets), np.int64)
    memory = np.frombuffer(cast("memoryview[int]", data or b""), np.uint8)
    return ends[texts.offset : texts.offset + len(texts) + 1], memory


def _text_array(ends: npt.NDArray[np.int64], data: _Bytes, like: ArrowArray) -> ArrowArray:
    """Return texts that are NULL where another array is."""
    validity = None
    if like.null_count:
        is_valid = like.is_valid().to_numpy(zero_copy_only=False)
        validity = pa.py_buffer(np.packbits(is_valid, bitorder="little").data)
    buffers = [validity, pa.py_buffer(ends.data), pa.py_buffer(data.data)]
    return pa.Array.from_buffers(_TEXT, len(like), buffers)


def _csv_cells(array: ArrowArray) -> ArrowArray:
    kind = kind_of(array.type)
    if kind in {TypeKind.STRING, TypeKind.BINARY}:
        texts = _texts(array, kind)
        return _filled(_replaced(texts, _odd_in_csv(texts), array, csv_cell), "")
    written, odd = _written(array, kind)
    return _filled(_replaced(written, odd, array, csv_cell), "")


def _json_cells(array: ArrowArray) -> ArrowArray:
    kind = kind_of(array.type)
    if kind is TypeKind.STRING:
        texts = _texts(array, kind)
        odd = _having(texts, _JSON_ESCAPED)
        return _filled(_replaced(_quoted(texts), odd, array, json.dumps), "null")
    written, odd = _written(array, kind)
    if kind not in _BARE:
        written = _quoted(written)
    return _filled(_replaced(written, odd, array, json.dumps), "null")


def _quoted(texts: ArrowArray) -> ArrowArray:
    return _concatenated('"', texts, '"')


def _filled(texts: ArrowArray, null: str) -> ArrowArray:
    return cast("ArrowArray", texts.fill_null(null)) if texts.null_count else texts


def _replaced(written: ArrowArray, odd: _Flags, values: ArrowArray, write: _Write) -> ArrowArray:
    """Write the odd values of a column one by one; NULL stays NULL."""
    if not odd.any():
        return written
    mask = pa.array(odd)
    one_by_one = json_values(values.filter(mask))
    texts = pa.array([None if each is None else write(each) for each in one_by_one], _TEXT)
    return cast("ArrowArray", pc.replace_with_mask(written, mask, texts))


def _odd_in_csv(texts: ArrowArray) -> _Flags:
    """Find cells that CSV quotes, and those whose first or last character may be a space."""
    odd = _having(texts, _CSV_QUOTED)
    ends, data = _memory(texts)
    starts, stops = ends[:-1], ends[1:]
    is_empty = starts == stops
    some = np.flatnonzero(~is_empty)
    for at in (starts[some], stops[some] - 1):
        character = data[at]
        odd[some] |= (character < _FIRST_PRINTED) | (character > _LAST_PRINTED)
    odd |= is_empty
    return odd


def _having(texts: ArrowArray, searched: _Flags) -> _Flags:
    """Find the texts that have one of the bytes."""
    ends, data = _memory(texts)
    found = np.zeros(len(texts), np.bool_)
    places = np.flatnonzero(searched[data[ends[0] : ends[-1]]]) + ends[0]
    found[np.searchsorted(ends, places, side="right") - 1] = True
    return found


def _texts(array: ArrowArray, kind: TypeKind) -> ArrowArray:
    if kind is TypeKind.STRING:
        return cast("ArrowArray", array.cast(_TEXT))
    return _hexadecimal(cast("ArrowArray", array.cast(pa.large_binary())))


def _hexadecimal(contents: ArrowArray) -> ArrowArray:
    ends, data = _memory(contents)
    digits = _HEX[data[ends[0] : ends[-1]]]
    return _text_array((ends - ends[0]) * 2, digits.ravel(), contents)


def _written(array: ArrowArray, kind: TypeKind) -> tuple[ArrowArray, _Flags]:
    """Return the texts of values without quotes, and which of them are to be written one by one."""
    none = np.zeros(len(array), np.bool_)
    match kind:
        case TypeKind.BOOLEAN | TypeKind.INT | TypeKind.LONG:
            return cast("ArrowArray", array.cast(_TEXT)), none
        case TypeKind.FLOAT | TypeKind.DOUBLE:
            return _float_texts(cast("ArrowArray", array.cast(pa.float64())))
        case TypeKind.DECIMAL:
            texts = cast("ArrowArray", array.cast(_TEXT))
            return texts, _having(texts, _bytes_in(b"Ee"))
        case TypeKind.DATE | TypeKind.TIME:
            return cast("ArrowArray", array.cast(_TEXT)), _far(array, kind)
        case TypeKind.UUID:
            return _uuid_texts(array), none
        case TypeKind.BINARY | TypeKind.FIXED:
            return _hexadecimal(cast("ArrowArray", array.cast(pa.large_binary()))), none
        case kind if kind in _NAIVE:
            naive = cast("ArrowArray", array.view(pa.int64()).view(_NAIVE[kind]))
            texts = cast("ArrowArray", pc.binary_replace_slice(naive.cast(_TEXT), 10, 11, "T"))
            return (_concatenated(texts, "+00:00") if kind in _ZONED else texts), _far(array, kind)
        case _:
            return cast("ArrowArray", pa.nulls(len(array), _TEXT)), ~none


def _far(array: ArrowArray, kind: TypeKind) -> _Flags:
    """Find dates and moments that Python cannot hold: they are written as numbers."""
    if kind not in _COUNTED:
        return np.zeros(len(array), np.bool_)
    first, last = PYTHON_MICROSECONDS
    numbers = array.view(pa.int32() if kind is TypeKind.DATE else pa.int64())
    if kind is TypeKind.DATE:
        first, last = first // _DAY_MICROSECONDS, last // _DAY_MICROSECONDS
    counts = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return (counts < first) | (counts > last)


def _float_texts(array: ArrowArray) -> tuple[ArrowArray, _Flags]:
    texts = cast("ArrowArray", array.cast(_TEXT))
    numbers = cast("npt.NDArray[np.float64]", array.fill_null(0.5).to_numpy(zero_copy_only=False))
    size = np.abs(numbers)
    is_whole = (size < _WHOLE_MAX) & (np.trunc(numbers) == numbers)
    odd = ~is_whole & ~((size >= _FRACTION_MIN) & (size < _FRACTION_MAX))
    odd |= np.signbit(numbers) & (numbers == 0)
    if is_whole.any():
        # Python writes 5.0 where Arrow writes 5.
        integers = pa.array(np.where(is_whole, numbers, 0).astype(np.int64)).cast(_TEXT)
        whole = _concatenated(cast("ArrowArray", integers), ".0")
        texts = cast("ArrowArray", pc.if_else(pa.array(is_whole), whole, texts))
    return texts, odd


def _uuid_texts(array: ArrowArray) -> ArrowArray:
    contents = stored_array(array).cast(pa.large_binary()).fill_null(bytes(16))
    ends, data = _memory(cast("ArrowArray", contents))
    digits = _HEX[data[ends[0] : ends[-1]]].reshape(len(array), 32)
    characters = np.full((len(array), _UUID_CHARACTERS), ord("-"), np.uint8)
    is_digit = np.ones(_UUID_CHARACTERS, np.bool_)
    is_digit[[*_UUID_DASHES]] = False
    characters[:, is_digit] = digits
    offsets = np.arange(len(array) + 1, dtype=np.int64) * _UUID_CHARACTERS
    return _text_array(offsets, characters.ravel(), array)


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
