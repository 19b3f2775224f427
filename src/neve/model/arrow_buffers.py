"""An Arrow column's memory as NumPy arrays, and back, where Arrow has no kernel or a slow one.

`pa.array` takes a flag at a time, and imports pandas where that is installed, which costs the first
caller a quarter of a second. What is made here shares the memory of its NumPy array.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import LimitExceeded
from neve.model.schema_view import ArrowArray

Flags: TypeAlias = npt.NDArray[np.bool_]
Positions: TypeAlias = npt.NDArray[np.int64]

DECIMAL_BYTES: Final = 16
_INT32_BITS: Final = 32
_ARRAY_BYTES_MAX: Final = (1 << 31) - 1


def integers(array: ArrowArray) -> npt.NDArray[np.int64]:
    """Integers, dates, times or timestamps as 64-bit numbers; 0 in place of NULL."""
    numbers: ArrowArray = array.view(
        pa.int32() if array.type.bit_width == _INT32_BITS else pa.int64()
    )
    if array.null_count > 0:
        numbers = pc.fill_null(numbers, 0)  # type: ignore[arg-type]  # takes a value too
    return numbers.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def flag_array(flags: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    """Return flags as Arrow has them, in bits."""
    bits = pa.py_buffer(np.packbits(flags, bitorder="little").data)
    return cast("pa.BooleanArray", pa.Array.from_buffers(pa.bool_(), len(flags), [None, bits]))


def position_array(positions: npt.NDArray[np.int64]) -> pa.Int64Array:
    """Return positions as Arrow has them."""
    assert positions.dtype == np.int64
    buffer = pa.py_buffer(np.ascontiguousarray(positions).data)
    return cast("pa.Int64Array", pa.Array.from_buffers(pa.int64(), len(positions), [None, buffer]))


def exact_array(values: Sequence[Any], kind: pa.DataType) -> ArrowArray:
    """Return Python values of exactly one type as Arrow: int64, string or binary, none of it None.

    Raises OverflowError for a number that is too large, ValueError for a text that is not Unicode.
    """
    if pa.types.is_int64(kind):
        return position_array(np.array(values, np.int64))
    if pa.types.is_string(kind):
        values = [text.encode() for text in values]
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum([*map(len, values)], out=ends[1:])
    if ends[-1] > _ARRAY_BYTES_MAX:
        raise OverflowError(f"an array of {ends[-1]} bytes")
    buffers = [None, pa.py_buffer(ends.astype(np.int32).data), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def fixed_bytes(array: ArrowArray, *, width: int) -> npt.NDArray[np.uint8]:
    """Values of a fixed-width column as a matrix of bytes; anything in place of NULL."""
    # Of a column of any width this would be its offsets.
    assert array.type.bit_width == 8 * width, f"{array.type} does not have {width} bytes"
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros((len(array), width), dtype=np.uint8)
    start, length = array.offset * width, len(array) * width
    flat = np.frombuffer(memoryview(buffer), dtype=np.uint8)[start : start + length]
    return flat.reshape(len(array), width)


def decimal_halves(
    array: ArrowArray,
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Low and high half of each 128-bit unscaled number; anything in place of NULL."""
    words = fixed_bytes(array, width=DECIMAL_BYTES).view("<u8")
    return words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)


def decimals_of_halves(
    low: npt.NDArray[np.uint64], high: npt.NDArray[np.uint64], type_: pa.DataType
) -> ArrowArray:
    """Build a decimal column from the halves of its unscaled numbers."""
    words = np.empty((len(low), 2), dtype="<u8")
    words[:, 0] = low
    words[:, 1] = high
    return pa.Array.from_buffers(type_, len(low), [None, pa.py_buffer(words.tobytes())])


def with_nulls_of(source: ArrowArray, result: ArrowArray) -> ArrowArray:
    """Put NULL into a result wherever its source has it."""
    if source.null_count == 0:
        return result
    restored: ArrowArray = pc.if_else(source.is_valid(), result, pa.scalar(None, result.type))
    return restored


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table as one batch; raises LimitExceeded beyond 32-bit offsets."""
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise LimitExceeded(
            f"a batch of {table.nbytes} bytes",
            limit=_ARRAY_BYTES_MAX,
            actual=table.nbytes,
            hint="Write fewer rows at once; for a file of a table, compact the table",
        )
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
