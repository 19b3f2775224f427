"""Rows as lines of CSV or JSON, column by column.

Values have the forms of `neve.cli.value_forms`. Arrow writes those that it writes in the same form.
The others of a column, such as 1e300, texts with quotes and years after 9999, are written one by
one, and put in their places. Nested values are always written one by one.

    CSV    1,ada,9.50                                      NULL is empty; "" is an empty text
    JSON   {"id": 1, "name": "ada", "amount": "9.50"}
"""

import json
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.cli.value_forms import json_values, text_of
from neve.inspect.shown_text import Json
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
