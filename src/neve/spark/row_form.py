"""Rows in Spark's form, converted from and to rows of a table.

To a table: Spark has no UUID and no time in nanoseconds. A UUID is its 16 bytes or text, in the one
form whose order is that of the bytes: rows are divided by it before they are fitted. All else is
fitted as in any write: by name, without loss; a missing column is its default or NULL.

To Spark: it compares Arrow schemas exactly. Everything may be NULL, there is no metadata, times are
in nanoseconds, uuid is text, fixed is binary. See `neve.spark.spark_types`.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from neve.engine.applied_changes import ChangeOptions, without_column
from neve.errors import InvalidArgument, NeveError, SchemaMismatch
from neve.model.array_fit import fit_column
from neve.model.arrow_types import TypeKind, child_fields, kind_of
from neve.model.display import shown
from neve.model.schema import TableSchema, normalize_batch
from neve.model.schema_view import ArrowArray
from neve.model.suggestions import similar_name_hint
from neve.spark.spark_types import IN_UTC, quoted, spark_schema
from neve.table.schema_mapping import with_children

OWN_PREFIX = "_neve_"
_UUID_BYTES = 16
_UUID_TEXT: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def check_columns(spark_schema: StructType, schema: TableSchema) -> None:
    """Raise SchemaMismatch for columns that no row could fit; no data is read."""
    fitted(empty_batch(spark_schema), schema)


def check_key_columns(spark_schema: StructType, schema: TableSchema) -> None:
    """Raise SchemaMismatch when the key columns are missing or of another type."""
    key_columns(empty_batch(spark_schema), schema)


def check_change_columns(
    spark_schema: StructType, schema: TableSchema, options: ChangeOptions
) -> None:
    """Raise for columns that no change of a feed could fit; no data is read.

    A column that is missing from the rows is an error only of a row that is written.
    """
    names = spark_schema.names
    if options.op not in names:
        raise without_column(options.op, "operation", None, names)
    kind = spark_schema[options.op].dataType
    if not isinstance(kind, StringType):
        raise SchemaMismatch(
            f"operation column {options.op!a} is {kind.simpleString()}, not text",
            column=options.op,
            hint="Cast it to string, and pass operations= for words that neve does not know",
        )
    for name in options.order_by:
        check_order_name(name, names)
    check_key_columns(spark_schema, schema)
    stored = [each for each in spark_schema if not options.is_feed_only(each.name, schema)]
    check_columns(StructType(stored), _narrowed(schema, names))


def check_order_name(order_by: object, names: Sequence[str]) -> str:
    """Return the name of a column to order by; raises InvalidArgument when rows do not have it."""
    if not isinstance(order_by, str) or order_by not in names:
        raise InvalidArgument(
            f"order_by={order_by!a} is not a column of the rows",
            hint=similar_name_hint(str(order_by), names) or "Name a column of the rows",
        )
    return order_by


def empty_batch(spark_schema: StructType) -> pa.RecordBatch:
    """Return a batch without rows that has the columns of a DataFrame."""
    try:
        arrow = to_arrow_schema(spark_schema, **IN_UTC)
    except Exception as error:  # PySpark's error for a type that Arrow does not have
        raise SchemaMismatch(
            f"the rows have a column that Arrow cannot hold: {error}",
            hint="Cast or drop the column",
        ) from error
    return pa.RecordBatch.from_pylist([], arrow)


def fitted(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """Return rows of exactly the table's schema; raises SchemaMismatch naming column and key."""
    with _worded_for_spark(batch, schema):
        return normalize_batch(_with_uuids(batch, schema), schema)


def key_columns(batch: pa.RecordBatch, schema: TableSchema) -> list[ArrowArray]:
    """Return the key columns out of rows that may have others; raises SchemaMismatch."""
    names = batch.schema.names
    for column in schema.key_columns:
        if names.count(column.name) != 1:
            problem = "missing" if column.name not in names else "there twice"
            raise SchemaMismatch(
                f"key column {column.name!a} is {problem}",
                column=column.name,
                hint=f"Pass the columns {', '.join(each.name for each in schema.key_columns)}",
            )
    keys = [column.name for column in schema.key_columns]
    with _worded_for_spark(batch, schema):
        narrow = _with_uuids(batch.select(keys), schema)
        return [
            fit_column(narrow.column(column.name), column.arrow_field)
            for column in schema.key_columns
        ]


def source_columns(
    batch: pa.RecordBatch, schema: TableSchema, field_ids: Sequence[int]
) -> pa.RecordBatch:
    """Return some columns of rows, by field id; missing ones are their default or NULL."""
    wanted = [schema.column_by_id(field_id).name for field_id in field_ids]
    named = list(dict.fromkeys([*wanted, *(column.name for column in schema.key_columns)]))
    present = batch.select([name for name in named if name in batch.schema.names])
    return fitted(present, _narrowed(schema, named))


def _narrowed(schema: TableSchema, names: Collection[str]) -> TableSchema:
    """Return a schema with only some columns; the key is among them."""
    return TableSchema(
        columns=tuple(column for column in schema.columns if column.name in names),
        primary_key=schema.primary_key,
        schema_id=schema.schema_id,
        last_field_id=schema.last_field_id,
    )


def without_own(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows without the columns that neve added."""
    return batch.select([name for name in batch.schema.names if not name.startswith(OWN_PREFIX)])


def check_names(names: Sequence[str], *, has_case: bool = False) -> None:
    """Raise for columns whose names neve needs, or that Spark could not distinguish.

    With `has_case`, Spark's names are case-sensitive.
    """
    seen: set[str] = set()
    for name in names:
        if name.startswith(OWN_PREFIX):
            raise InvalidArgument(
                f"column {name!a} has a name that neve uses while it writes",
                hint="Rename it or drop it",
            )
        known = name if has_case else name.lower()
        if known in seen:
            raise SchemaMismatch(
                f"column {name!a} is there twice", column=name, hint="Rename one, or drop it"
            )
        seen.add(known)


@contextmanager
def _worded_for_spark(batch: pa.RecordBatch, schema: TableSchema) -> Iterator[None]:
    """Name the bad row in an error by its key, and the fix in Spark's terms.

    Spark divides rows among tasks and batches, so a row number is meaningless.
    """
    try:
        yield
    except SchemaMismatch as error:
        row, error.row = error.row, None
        name = error.column
        if name is not None and name in schema and "pyarrow." in (error.hint or ""):
            error.hint = _cast_hint(name, schema)
        elif name is not None and row is not None:
            _name_row(error, name, batch.slice(row, 1), schema)
        raise


def _name_row(
    error: SchemaMismatch, column: str, bad_row: pa.RecordBatch, schema: TableSchema
) -> None:
    """Return how to find a bad row: by its key, or by its NULL."""
    names = bad_row.schema.names
    if column in names and bad_row.column(column).null_count:
        condition = f"{quoted(column)} IS NULL"
        way = f"df.where({condition!r}) gives the rows without it"
        error.hint = way if error.hint is None else f"{error.hint}; {way}"
        return
    keys = [each.name for each in schema.key_columns]
    if keys and all(names.count(each) == 1 for each in keys):
        error.message += f", in {row_words(bad_row, schema)}"


def row_words(row: pa.RecordBatch, schema: TableSchema) -> str:
    """Return how a message names a row: by its key."""
    keys = [each.name for each in schema.key_columns]
    values = ", ".join(f"{each}={shown(row.column(each)[0].as_py())}" for each in keys)
    return f"the row with {values}"


def _cast_hint(name: str, schema: TableSchema) -> str:
    try:
        (field,) = spark_schema([schema.column(name)]).fields
    except SchemaMismatch as error:
        return error.message  # Spark has no such type
    words = field.dataType.simpleString()
    zone = ", in the zone of spark.sql.session.timeZone" if "timestamp" in words else ""
    return f"Cast it first: df.withColumn({name!r}, col({quoted(name)!r}).cast({words!r})){zone}"


def _with_uuids(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    arrays = []
    is_changed = False
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        array = column
        if name in schema and kind_of(schema.column(name).type) is TypeKind.UUID:
            if pa.types.is_string(array.type):
                array = _parsed(array, name)
            if pa.types.is_binary(array.type):
                array = _sixteen(array, name)
        is_changed = is_changed or array is not column
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names) if is_changed else batch


def _parsed(array: ArrowArray, name: str) -> ArrowArray:
    texts = cast("list[str | None]", array.to_pylist())
    # Loops over rows: Arrow does not read UUIDs.
    for row, text in enumerate(texts):
        if text is not None and not _UUID_TEXT.fullmatch(text):
            raise SchemaMismatch(
                f"column {name!a} holds text that is not a UUID",
                column=name,
                row=row,
                hint="Write it as 8-4-4-4-12 hexadecimal digits, or pass its 16 bytes",
            )
    values = [None if text is None else bytes.fromhex(text.replace("-", "")) for text in texts]
    return cast("ArrowArray", pa.array(values, pa.binary()))


def _sixteen(array: ArrowArray, name: str) -> ArrowArray:
    try:
        return cast("ArrowArray", array.cast(pa.binary(_UUID_BYTES)))
    except (pa.ArrowException, NeveError) as error:
        raise SchemaMismatch(
            f"column {name!a} holds bytes that are not a UUID", column=name, hint="Pass 16 bytes"
        ) from error


_UUID_DIGITS: Final = 36
_DASHES: Final = (8, 13, 18, 23)
_HEX: Final = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)


def spark_arrow_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the Arrow type that Spark shows for a type of a table."""
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
    """Return a schema in Spark's form."""
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
            return with_children(array, wanted, values)
        case TypeKind.MAP:
            entries = cast("pa.MapArray[Any, Any]", array)
            pairs = pa.StructArray.from_arrays(
                [_converted(entries.keys), _converted(entries.items)],
                fields=list(child_fields(wanted)),
            )
            return with_children(array, wanted, pairs)
        case _:
            return array.cast(wanted)


def _uuid_texts(stored: ArrowArray) -> ArrowArray:
    """Return uuids as text, all at once."""
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
