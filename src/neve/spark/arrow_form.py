"""Rows of a table in the very Arrow form that Spark takes from Python.

Spark compares schemas to the letter: everything may be NULL, no metadata, times in nanoseconds,
uuid as text, fixed as binary. See `neve.spark.spark_types` for what becomes of each type.
"""

from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.model.arrow_types import TypeKind, child_fields, kind_of
from neve.model.schema_view import ArrowArray

_UUID_BYTES: Final = 16
_UUID_DIGITS: Final = 36
_DASHES: Final = (8, 13, 18, 23)
_HEX: Final = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)


def spark_arrow_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the Arrow type of what Spark shows for a type of a table."""
    children = [spark_arrow_type(child.type) for child in child_fields(arrow_type)]
    match kind_of(arrow_type):
        case TypeKind.UUID:
            return pa.string()
        case TypeKind.FIXED:
            return pa.binary()
        case TypeKind.TIME:
            return pa.time64("ns")
        case TypeKind.LIST:
            return cast("pa.DataType", pa.list_(pa.field("element", children[0])))
        case TypeKind.MAP:
            key = pa.field("key", children[0], nullable=False)
            return cast("pa.DataType", pa.map_(key, pa.field("value", children[1])))
        case TypeKind.STRUCT:
            names = [child.name for child in child_fields(arrow_type)]
            return pa.struct([pa.field(*each) for each in zip(names, children, strict=True)])
        case _:
            return arrow_type


def spark_arrow_schema(schema: pa.Schema) -> pa.Schema:
    """Return the Arrow schema in which Spark takes rows of a schema."""
    return pa.schema([pa.field(each.name, spark_arrow_type(each.type)) for each in schema])


def spark_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in Spark's form."""
    arrays = [_converted(array) for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=spark_arrow_schema(batch.schema))


def spark_table(table: pa.Table) -> pa.Table:
    """Return rows in Spark's form."""
    schema = spark_arrow_schema(table.schema)
    return pa.Table.from_batches([spark_batch(each) for each in table.to_batches()], schema=schema)


def _converted(array: ArrowArray) -> ArrowArray:
    wanted = spark_arrow_type(array.type)
    if array.type.equals(wanted, check_metadata=True):
        return array
    match kind_of(array.type):
        case TypeKind.UUID:
            return _uuid_texts(cast("pa.ExtensionArray[Any]", array).storage)
        case TypeKind.STRUCT:
            struct = cast("pa.StructArray", array)
            children = [_converted(struct.field(at)) for at in range(struct.type.num_fields)]
            mask = struct.is_null() if struct.null_count else None
            fields = list(child_fields(wanted))
            return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
        case TypeKind.LIST:
            values = _converted(cast("pa.ListArray[Any]", array).values)
            return _with_children(array, wanted, values)
        case TypeKind.MAP:
            entries = cast("pa.MapArray[Any, Any]", array)
            pairs = pa.StructArray.from_arrays(
                [_converted(entries.keys), _converted(entries.items)],
                fields=list(child_fields(wanted)),
            )
            return _with_children(array, wanted, pairs)
        case _:
            return array.cast(wanted)


def _with_children(array: ArrowArray, wanted: pa.DataType, children: ArrowArray) -> ArrowArray:
    """Return the same lists of other children: validity, lengths and offset stay what they are."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        wanted, len(array), [validity, offsets], offset=array.offset, children=[children]
    )


def _uuid_texts(stored: ArrowArray) -> ArrowArray:
    """Write uuids out, all at once."""
    values = stored.buffers()[1]
    if not len(stored) or values is None:
        return pa.nulls(len(stored), pa.string())
    first = stored.offset * _UUID_BYTES
    given = np.frombuffer(memoryview(values), np.uint8, len(stored) * _UUID_BYTES, first)
    digits = _HEX[given].reshape(len(stored), 2 * _UUID_BYTES)
    texts = np.insert(digits, [at - nth for nth, at in enumerate(_DASHES)], ord("-"), axis=1)
    offsets = np.arange(len(stored) + 1, dtype=np.int32) * _UUID_DIGITS
    buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(np.ascontiguousarray(texts).data)]
    written = pa.Array.from_buffers(pa.string(), len(stored), buffers)
    if not stored.null_count:
        return written
    return cast("ArrowArray", pc.if_else(stored.is_valid(), written, pa.scalar(None, pa.string())))
