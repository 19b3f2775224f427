"""Whole key columns to keys and back, without a Python loop over rows.

A key is cut into segments: runs of fixed-width columns, and columns whose width varies.

    (int64, int32, string, string, date32)
    ┌───────────────┬───────────────┬───────┬───────────────┬───────┬─────────┐
    │ run, 12 bytes │ escaped bytes │ 00 00 │ escaped bytes │ 00 00 │ run, 4  │
    └───────────────┴───────────────┴───────┴───────────────┴───────┴─────────┘

Encoding: a run is one packed NumPy record per row whose big-endian fields are filled column by
column. Arrow then joins runs, texts and terminators in one pass; only texts that hold a NUL byte
are copied before that, to escape it. A key that is a single run is returned as it is.

Decoding: one pass finds every NUL byte that no FF follows. The first of these at or after the
beginning of a text is its end, so one sorted search finds the ends of all rows, and Arrow copies
the texts between.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias, TypeVar, assert_never, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.stride_tricks import sliding_window_view

from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.keys.arrays import key_spans
from neve.keys.columns import (
    KEY_BYTES_MAX,
    NUL,
    NUL_ESCAPED,
    TERMINATOR,
    ArrowArray,
    ArrowColumn,
    KeyArray,
    KeyColumn,
    KeyKind,
)
from neve.model.array_fit import first_bad_row
from neve.model.arrow_buffers import Flags, Positions, fixed_bytes
from neve.model.display import counted, listed, shown, shown_type

Bytes: TypeAlias = npt.NDArray[np.uint8]
Records: TypeAlias = npt.NDArray[np.void]
Words: TypeAlias = npt.NDArray[np.unsignedinteger]
Element = TypeVar("Element", bound=np.generic)

# Arrow's values are little-endian, as are the machines that neve runs on.
_BYTE: Final = np.dtype(np.uint8)
_U32: Final = np.dtype("<u4")
_U64: Final = np.dtype("<u8")

# Arrow's 32-bit offsets reach this far; longer columns need the large types.
_OFFSET_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Run:
    """Adjacent fixed-width columns, and the packed record of one row; fields "0", "1", …."""

    columns: tuple[KeyColumn, ...]
    record: np.dtype[np.void]


_Segment: TypeAlias = _Run | KeyColumn


class KeyVectors:
    """Encodes and decodes the keys of many rows at once."""

    __slots__ = ("_columns", "_segments")

    def __init__(self, columns: Sequence[KeyColumn]) -> None:
        self._columns = tuple(columns)
        segments: list[_Segment] = []
        for is_fixed, group in groupby(columns, key=lambda column: column.width is not None):
            neighbours = tuple(group)
            segments += [_Run(neighbours, _record_of(neighbours))] if is_fixed else neighbours
        self._segments = tuple(segments)

    def encode(self, arrays: Sequence[ArrowColumn]) -> KeyArray:
        """Return one key per row: fixed-size binary for a single run, otherwise binary."""
        if len(arrays) != len(self._columns):
            raise InvalidArgument(
                f"{counted(len(arrays), 'array')} for a key of "
                f"{counted(len(self._columns), 'column')}",
                hint=f"Pass {listed([each.name for each in self._columns])}, in this order",
            )
        columns = [_checked(*pair) for pair in zip(self._columns, arrays, strict=True)]
        rows, *others = sorted({len(column) for column in columns})
        if others:
            raise InvalidArgument(
                f"key arrays have different lengths: {[rows, *others]}",
                hint="Pass arrays of the same rows",
            )
        if isinstance(self._segments[0], _Run) and len(self._segments) == 1:
            records = _fill(self._segments[0], columns, rows)
            key_type = pa.binary(records.itemsize)
            keys = pa.Array.from_buffers(key_type, rows, [None, _buffer(records)])
            return cast("pa.FixedSizeBinaryArray", keys)
        return self._join(columns, rows)

    def _join(self, columns: Sequence[ArrowArray], rows: int) -> KeyArray:
        # Sizes first: whether 32-bit offsets suffice must be known before anything is built.
        total = 0
        for column, array in zip(self._columns, columns, strict=True):
            if column.width is None:
                text = _text_bytes(array)
                total += text.size + _nul_count(text) + rows * len(TERMINATOR)
            else:
                total += rows * column.width
        binary = _binary_type(total)
        remaining = iter(columns)
        pieces: list[ArrowArray | pa.Scalar[pa.DataType]] = []
        for segment in self._segments:
            if isinstance(segment, _Run):
                run_arrays = [next(remaining) for _ in segment.columns]
                pieces.append(_as_binary(_fill(segment, run_arrays, rows), binary))
            else:
                pieces += [_escaped(next(remaining), binary), pa.scalar(TERMINATOR, binary)]
        separator = pa.scalar(b"", binary)
        keys: KeyArray = pc.binary_join_element_wise(*pieces, separator)  # type: ignore[type-var, assignment]
        _check_lengths(keys)
        return keys

    def decode(self, keys: ArrowArray) -> list[ArrowArray]:
        """Return the key columns of many keys; raises Corruption naming the first bad row."""
        data, starts, ends = _spans(keys)
        if not starts.size:
            return [pa.array([], column.type) for column in self._columns]
        _refuse_rows(ends - starts > KEY_BYTES_MAX, f"key has more than {KEY_BYTES_MAX} bytes")
        has_text = any(isinstance(segment, KeyColumn) for segment in self._segments)
        stops = _unescaped_nuls(data) if has_text else starts[:0]
        columns: list[ArrowArray] = []
        at = starts
        for segment in self._segments:
            if isinstance(segment, _Run):
                width = segment.record.itemsize
                _refuse_rows(at + width > ends, "key ends too early")
                records = _windows(data, at, width).view(segment.record)[:, 0]
                columns += [
                    _restored(column, records[str(number)])
                    for number, column in enumerate(segment.columns)
                ]
                at = at + width
            else:
                end = _text_ends(segment, data, stops, starts=at, limits=ends)
                columns.append(_texts(segment, data, starts=at, ends=end))
                at = end + len(TERMINATOR)
        _refuse_rows(at != ends, "key has bytes left over")
        return columns


def first_invalid_row(array: ArrowArray) -> int | None:
    """Return the first row whose value its Arrow type forbids, such as text that is not UTF-8."""
    if _is_valid(array):
        return None
    return first_bad_row(len(array), lambda rows: _is_valid(array.slice(0, rows)))


def _is_valid(array: ArrowArray) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _record_of(columns: Sequence[KeyColumn]) -> np.dtype[np.void]:
    """Lay out one row of a run: packed, big-endian, in key order."""
    fields: list[tuple[str, str, int]] = []
    for number, column in enumerate(columns):
        match column.kind:
            case KeyKind.FIXED | KeyKind.UUID:
                fields.append((str(number), f"V{column.width}", 1))
            case KeyKind.DECIMAL:
                fields.append((str(number), ">u8", 2))
            case _:
                fields.append((str(number), f">u{column.width}", 1))
    # A count of 1 would make NumPy warn; a plain field has none.
    return np.dtype([field if field[2] > 1 else field[:2] for field in fields])


def _checked(column: KeyColumn, array: ArrowColumn) -> ArrowArray:
    """Return one contiguous array of plain storage, with every value fit for a key."""
    if not isinstance(array, pa.Array | pa.ChunkedArray):
        raise column.refuses(f"got {type(array).__name__}", hint="Pass an Arrow array")
    if array.type != column.type:
        raise column.refuses(
            f"got an array of {shown_type(array.type)}",
            hint=f"Cast it to {shown_type(column.type)} first",
        )
    if array.null_count:
        row = pc.index(array.is_null(), pa.scalar(value=True)).as_py()
        raise column.refuses("is NULL", hint="Pass a value for each row", row=row)
    whole = _combined(column, array) if isinstance(array, pa.ChunkedArray) else array
    invalid = first_invalid_row(whole)
    if invalid is not None:
        raise column.refuses(
            "holds a value its type forbids",
            hint="Text must be UTF-8, decimals fit their precision, and times be within a day",
            row=invalid,
        )
    return whole.storage if isinstance(whole, pa.ExtensionArray) else whole


def _combined(column: KeyColumn, array: "pa.ChunkedArray[pa.Scalar[pa.DataType]]") -> ArrowArray:
    if column.width is None and array.nbytes > _OFFSET_MAX:
        large = pa.large_string() if column.kind is KeyKind.TEXT else pa.large_binary()
        return array.cast(large).combine_chunks()
    return array.combine_chunks()


def _fill(run: _Run, arrays: Sequence[ArrowArray], rows: int) -> Records:
    records = np.empty(rows, dtype=run.record)
    for number, pair in enumerate(zip(run.columns, arrays, strict=True)):
        records[str(number)] = _ordered(*pair)
    return records


def _ordered(column: KeyColumn, array: ArrowArray) -> npt.NDArray[np.generic]:
    """Return a column's values as unsigned words, or raw bytes, in the order of the values."""
    match column.kind:
        case KeyKind.BOOL:
            return array.to_numpy(zero_copy_only=False)
        case KeyKind.INTEGER | KeyKind.DATE | KeyKind.TIME | KeyKind.TIMESTAMP:
            words = _stored_words(column, array)
            return words ^ _sign(words)
        case KeyKind.FLOAT:
            return _ordered_floats(column, array)
        case KeyKind.DECIMAL:
            return _ordered_decimals(column, array)
        case KeyKind.FIXED | KeyKind.UUID:
            return _stored(array, np.dtype(f"V{column.width}"))
        case KeyKind.TEXT | KeyKind.BINARY:
            raise AssertionError(column)
    assert_never(column.kind)


def _ordered_floats(column: KeyColumn, array: ArrowArray) -> Words:
    words = _stored_words(column, array).copy()
    nan = np.isnan(_as_floats(words))
    if nan.any():
        raise column.refuses(
            "is NaN",
            hint="Pass a number: a key has an order and NaN has none",
            row=int(nan.argmax()),
        )
    sign = _sign(words)
    words[words == sign] = 0  # -0.0 and +0.0 are one key
    # Negative numbers get all bits inverted, the others only the sign.
    words ^= np.where(words >= sign, ~(words & 0), sign)
    return words


def _ordered_decimals(column: KeyColumn, array: ArrowArray) -> Words:
    halves = _stored(array, _U64, per_row=2).reshape(-1, 2)[:, ::-1].copy()
    halves[:, 0] ^= _sign(halves)
    # Arrow's validation accepts one value of too many digits, the lowest: -2^127.
    lowest = ~halves.any(axis=1)
    if lowest.any():
        raise column.refuses(
            "holds a value its type forbids",
            hint="Decimals must fit their precision",
            row=int(lowest.argmax()),
        )
    return halves


def _restored(column: KeyColumn, field: Words) -> ArrowArray:
    """Undo `_ordered` for one column."""
    match column.kind:
        case KeyKind.BOOL:
            _refuse_rows(field > 1, f"no bool in key column {shown(column.name)}")
            return pa.array(field.astype(np.bool_))
        case KeyKind.INTEGER | KeyKind.DATE | KeyKind.TIME | KeyKind.TIMESTAMP:
            words = field.astype(field.dtype.newbyteorder("="))
            words ^= _sign(words)
            return _array_of(column, words)
        case KeyKind.FLOAT:
            words = field.astype(field.dtype.newbyteorder("="))
            sign = _sign(words)
            words ^= np.where(words >= sign, sign, ~(words & 0))
            unwritten = np.isnan(_as_floats(words)) | (words == sign)
            _refuse_rows(unwritten, f"NaN or -0.0 in key column {shown(column.name)}")
            return _array_of(column, words)
        case KeyKind.DECIMAL:
            lowest: Flags = (field == 0).all(axis=1)
            _refuse_rows(lowest, f"too many digits in key column {shown(column.name)}")
            halves = field[:, ::-1].astype(_U64, order="C")
            halves[:, 1] ^= _sign(halves)
            return _array_of(column, halves)
        case KeyKind.FIXED | KeyKind.UUID:
            return _array_of(column, np.ascontiguousarray(field))
        case KeyKind.TEXT | KeyKind.BINARY:
            raise AssertionError(column)
    assert_never(column.kind)


def _array_of(column: KeyColumn, stored: npt.NDArray[np.generic]) -> ArrowArray:
    rows = len(stored)
    if column.kind is KeyKind.UUID:
        raw = pa.Array.from_buffers(pa.binary(16), rows, [None, _buffer(stored)])
        return pa.ExtensionArray.from_storage(pa.uuid(), raw)
    array = pa.Array.from_buffers(column.type, rows, [None, _buffer(stored)])
    invalid = first_invalid_row(array)
    if invalid is not None:
        raise Corruption(
            f"no {shown_type(column.type)} in key column {shown(column.name)}, in row {invalid}"
        )
    return array


def _sign(words: Words) -> np.unsignedinteger:
    return words.dtype.type(1 << (8 * words.itemsize - 1))


def _as_floats(words: Words) -> npt.NDArray[np.floating]:
    return words.view(np.float32 if words.itemsize == _U32.itemsize else np.float64)


def _stored_words(column: KeyColumn, array: ArrowArray) -> Words:
    return _stored(array, _U32 if column.width == _U32.itemsize else _U64)


def _stored(
    array: ArrowArray, element: np.dtype[Element], *, per_row: int = 1
) -> npt.NDArray[Element]:
    """View the fixed-width values of an array, which may be a slice, without copying."""
    return fixed_bytes(array, width=element.itemsize * per_row).reshape(-1).view(element)


def _view(buffer: pa.Buffer | None, element: np.dtype[Element]) -> npt.NDArray[Element]:
    if buffer is None:  # an empty array may have no buffers
        return np.empty(0, element)
    usable = buffer.size // element.itemsize
    return np.frombuffer(memoryview(buffer), element, count=usable)


def _buffer(stored: npt.NDArray[np.generic]) -> pa.Buffer:
    return pa.py_buffer(cast("Any", stored))  # stubs know no buffers


def _binary_type(total_bytes: int) -> pa.DataType:
    return pa.binary() if total_bytes <= _OFFSET_MAX else pa.large_binary()


def _offset_element(text_type: pa.DataType) -> np.dtype[np.signedinteger]:
    is_large = pa.types.is_large_binary(text_type) or pa.types.is_large_string(text_type)
    return np.dtype(np.int64) if is_large else np.dtype(np.int32)


def _offsets(array: ArrowArray) -> npt.NDArray[np.signedinteger]:
    if not len(array):  # an empty array may have no offsets
        return np.zeros(1, np.int32)
    offsets = _view(array.buffers()[1], _offset_element(array.type))
    return offsets[array.offset : array.offset + len(array) + 1]


def _text_bytes(array: ArrowArray) -> Bytes:
    """View the bytes of all values of a text or binary array, which may be a slice."""
    offsets = _offsets(array)
    return _view(array.buffers()[2], _BYTE)[offsets[0] : offsets[-1]]


def _nul_count(text: Bytes) -> int:
    return text.size - int(np.count_nonzero(text))


def _escaped(array: ArrowArray, binary: pa.DataType) -> ArrowArray:
    raw = array.cast(binary)
    if not _nul_count(_text_bytes(array)):
        return raw
    return _replaced(raw, NUL, NUL_ESCAPED)


def _replaced(array: ArrowArray, pattern: bytes, replacement: bytes) -> ArrowArray:
    # The stubs know this function for text only; Arrow has it for binary as well.
    return pc.replace_substring(array, pattern, replacement)  # type: ignore[type-var]


def _as_binary(records: Records, binary: pa.DataType) -> ArrowArray:
    offsets = np.arange(len(records) + 1, dtype=_offset_element(binary)) * records.itemsize
    buffers = [None, _buffer(offsets), _buffer(records)]
    return pa.Array.from_buffers(binary, len(records), buffers)


def _check_lengths(keys: ArrowArray) -> None:
    lengths = np.diff(_offsets(keys))
    too_long = lengths > KEY_BYTES_MAX
    if too_long.any():
        row = int(too_long.argmax())
        raise LimitExceeded(
            f"the key of row {row} has {lengths[row]} bytes",
            limit=KEY_BYTES_MAX,
            actual=int(lengths[row]),
            hint=f"Use shorter key values: a key has at most {KEY_BYTES_MAX} bytes",
        )


def _refuse_rows(bad: Flags, what: str) -> None:
    if bad.any():
        raise Corruption(f"{what}, in row {int(bad.argmax())}")


def _spans(keys: ArrowArray) -> tuple[Bytes, Positions, Positions]:
    """Return the bytes of all keys and where each begins and ends in them."""
    if not isinstance(keys, pa.Array):
        raise InvalidArgument(f"keys are {type(keys).__name__}", hint="Pass one Arrow array")
    if keys.null_count:
        raise InvalidArgument("keys hold a NULL", hint="Drop the rows without a key first")
    if not pa.types.is_fixed_size_binary(keys.type):
        if not pa.types.is_binary(keys.type) and not pa.types.is_large_binary(keys.type):
            raise InvalidArgument(
                f"keys are {keys.type}, not binary", hint="Pass keys that encode_arrays made"
            )
        if not _is_valid(keys):
            raise Corruption("offsets of a key array are damaged")
    return key_spans(cast("KeyArray", keys))


def _windows(data: Bytes, starts: Positions, width: int) -> Bytes:
    """Return `width` bytes from each start; the caller has checked that they exist."""
    if data.size == starts.size * width:  # the windows cover the data: no copy
        return data.reshape(-1, width)
    return sliding_window_view(data, width)[starts]


def _unescaped_nuls(data: Bytes) -> Positions:
    """Return the positions of NUL bytes that FF does not follow, ascending."""
    nul, escape = NUL_ESCAPED
    nuls = np.flatnonzero(data == nul).astype(np.int64, copy=False)
    followers = data[np.minimum(nuls + 1, data.size - 1)]
    unescaped: Positions = nuls[followers != escape]
    return unescaped


def _text_ends(
    column: KeyColumn, data: Bytes, stops: Positions, *, starts: Positions, limits: Positions
) -> Positions:
    """Return where the terminator of each row's text is."""
    # The pad means "no stop left"; it lies after the limit of every row.
    padded: Positions = np.append(stops, data.size)
    ends: Positions = padded[np.searchsorted(stops, starts)]
    _refuse_rows(ends + 1 >= limits, f"key ends inside column {shown(column.name)}")
    _refuse_rows(data[ends + 1] != 0, f"bad escape in key column {shown(column.name)}")
    return ends


def _texts(column: KeyColumn, data: Bytes, *, starts: Positions, ends: Positions) -> ArrowArray:
    """Return the unescaped values between `starts` and `ends`."""
    total = int((ends - starts).sum())
    if total > _OFFSET_MAX:
        raise LimitExceeded(
            f"key column {shown(column.name)} has {total} bytes in all",
            limit=_OFFSET_MAX,
            actual=total,
            hint="Decode fewer keys at a time",
        )
    # An array over the same bytes alternates texts and the gaps between; take every second value.
    binary = _binary_type(data.size)
    edges = np.append(np.column_stack((starts, ends)), data.size).astype(_offset_element(binary))
    buffers = [None, _buffer(edges), _buffer(data)]
    by_turns: ArrowArray = pa.Array.from_buffers(binary, 2 * len(starts), buffers)
    array: ArrowArray = by_turns.take(np.arange(0, 2 * len(starts), 2)).cast(pa.binary())
    if _nul_count(_text_bytes(array)):
        array = _replaced(array, NUL_ESCAPED, NUL)
    array = array.view(column.type)
    invalid = first_invalid_row(array)
    if invalid is not None:
        raise Corruption(f"key column {shown(column.name)} is not UTF-8, in row {invalid}")
    return array
