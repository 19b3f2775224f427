"""Columns of a table as Spark has them.

    neve                     Spark
    boolean … double         the same
    decimal(p,s)             decimal(p,s)
    date                     date
    time                     time(6), which Spark takes only if configured, and from 4.1 on
    timestamp                timestamp_ntz
    timestamptz              timestamp
    string                   string
    binary, fixed[n]         binary
    uuid                     string, as 8-4-4-4-12 hexadecimal digits
    list, struct, map        array, struct, map
    timestamp_ns, -tz_ns     refused: Spark keeps microseconds, and would lose the rest

In files a uuid is 16 bytes: `stored` types are those of the files.
"""

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_type

from neve.errors import SchemaMismatch
from neve.model.arrow_types import (
    ArrowField,
    TypeKind,
    child_fields,
    field_id_of,
    kind_of,
    type_name,
)
from neve.model.display import shown
from neve.model.schema import Column

FIELD_ID: Final = "parquet.field.id"
TIME_ENABLED: Final = {"spark.sql.timeType.enabled": "true"}

_PLAIN: Final[dict[TypeKind, st.DataType]] = {
    TypeKind.BOOLEAN: st.BooleanType(),
    TypeKind.INT: st.IntegerType(),
    TypeKind.LONG: st.LongType(),
    TypeKind.FLOAT: st.FloatType(),
    TypeKind.DOUBLE: st.DoubleType(),
    TypeKind.DATE: st.DateType(),
    TypeKind.TIMESTAMP: st.TimestampNTZType(),
    TypeKind.TIMESTAMPTZ: st.TimestampType(),
    TypeKind.STRING: st.StringType(),
    TypeKind.BINARY: st.BinaryType(),
    TypeKind.FIXED: st.BinaryType(),
}
if hasattr(st, "TimeType"):
    _PLAIN[TypeKind.TIME] = st.TimeType(6)
IN_UTC: Final[Mapping[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}
)
"""How PySpark is asked for Arrow types with times in UTC; older ones have no others."""
_UUID_CUTS: Final = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))


def quoted(name: str) -> str:
    """Return a column's name, quoted so that Spark keeps dots and blanks."""
    return f"`{name.replace('`', '``')}`"


def spark_schema(columns: Iterable[Column]) -> st.StructType:
    """Return columns as Spark shows them; raises SchemaMismatch.

    All may be NULL: Spark ignores whether a column of a file is required.
    """
    given = list(columns)
    _refuse_names_that_differ_by_case(given)
    return st.StructType(
        [
            st.StructField(column.name, _spark_type(column.type, column.name, stored=False))
            for column in given
        ]
    )


def stored_field(name: str, arrow_type: pa.DataType, *, field_id: int) -> st.StructField:
    """Return a column as it is in files; raises SchemaMismatch."""
    stored = _spark_type(arrow_type, name, stored=True)
    return st.StructField(name, stored, metadata={FIELD_ID: field_id})


def holds(kind: TypeKind, arrow_type: pa.DataType) -> bool:
    """Return whether a type is of a kind, or contains one that is."""
    if kind_of(arrow_type) is kind:
        return True
    return any(holds(kind, field.type) for field in child_fields(arrow_type))


def settings_for(columns: Iterable[Column]) -> dict[str, str]:
    """Return the settings without which Spark refuses these columns."""
    has_time = any(holds(TypeKind.TIME, column.type) for column in columns)
    return dict(TIME_ENABLED) if has_time else {}


def is_shown_as_stored(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark shows a column just as it is in files."""
    return stored.equals(wanted, check_metadata=True) and not holds(TypeKind.UUID, wanted)


def shown_column(value: SparkColumn, stored: pa.DataType, wanted: pa.DataType) -> SparkColumn:
    """Turn a column as it is in files, maybe of an older schema, into what Spark shows.

    Fields of structs are found by id: dropped ones are left out, new ones are NULL.
    """
    if is_shown_as_stored(stored, wanted):
        return value
    inside, asked = child_fields(stored), child_fields(wanted)
    match kind_of(wanted):
        case TypeKind.STRUCT:
            by_id = {field_id_of(field): field for field in inside}
            fields = [
                _shown_field(value, by_id.get(field_id_of(field)), field).alias(field.name)
                for field in asked
            ]
            return sf.when(value.isNotNull(), sf.struct(*fields))
        case TypeKind.LIST:
            return sf.transform(
                value, lambda each: shown_column(each, inside[0].type, asked[0].type)
            )
        case TypeKind.MAP:
            by_key = sf.transform_keys(
                value, lambda key, _: shown_column(key, inside[0].type, asked[0].type)
            )
            return sf.transform_values(
                by_key, lambda _, item: shown_column(item, inside[1].type, asked[1].type)
            )
        case TypeKind.UUID:
            digits = sf.lower(sf.hex(value))
            text = sf.concat_ws("-", *(sf.substring(digits, *cut) for cut in _UUID_CUTS))
            # Joining skips NULL, and returns an empty text for nothing.
            return sf.when(value.isNotNull(), text)
        case _:
            return value.cast(_spark_type(wanted, "", stored=False))


def given_column(value: SparkColumn, wanted: pa.DataType) -> SparkColumn:
    """Return the wanted fields of a struct, as Spark shows it, and of the structs inside."""
    if kind_of(wanted) is not TypeKind.STRUCT:
        return value
    fields = [
        given_column(value.getField(field.name), field.type).alias(field.name)
        for field in child_fields(wanted)
    ]
    return sf.when(value.isNotNull(), sf.struct(*fields))


def _shown_field(
    struct: SparkColumn, stored: "ArrowField | None", wanted: ArrowField
) -> SparkColumn:
    if stored is None:
        return sf.lit(None).cast(_spark_type(wanted.type, wanted.name, stored=False))
    return shown_column(struct.getField(stored.name), stored.type, wanted.type)


def _spark_type(arrow_type: pa.DataType, path: str, *, stored: bool) -> st.DataType:
    kind = kind_of(arrow_type)
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain
    children = child_fields(arrow_type)
    inner = [_spark_type(each.type, f"{path}.{each.name}", stored=stored) for each in children]
    match kind:
        case TypeKind.UUID:
            return st.BinaryType() if stored else st.StringType()
        case TypeKind.DECIMAL:
            assert isinstance(arrow_type, pa.Decimal128Type)
            return st.DecimalType(arrow_type.precision, arrow_type.scale)
        case TypeKind.LIST:
            return st.ArrayType(inner[0])
        case TypeKind.MAP:
            return st.MapType(inner[0], inner[1])
        case TypeKind.STRUCT:
            return st.StructType(
                [
                    st.StructField(child.name, its_type)
                    for child, its_type in zip(children, inner, strict=True)
                ]
            )
        case _:
            raise SchemaMismatch(
                f"Spark has no type for column {shown(path)}, which is {type_name(arrow_type)}",
                column=path,
                hint="Leave the column out with columns=, or keep microseconds in a new column; "
                "for a time, use PySpark 4.1 or newer",
            )


def _refuse_names_that_differ_by_case(columns: list[Column]) -> None:
    seen: dict[str, str] = {}
    for column in columns:
        other = seen.setdefault(column.name.lower(), column.name)
        if other != column.name:
            raise SchemaMismatch(
                f"Spark cannot distinguish column {shown(column.name)} from {shown(other)}",
                column=column.name,
                hint="Leave one of them out with columns=, or rename it",
            )
