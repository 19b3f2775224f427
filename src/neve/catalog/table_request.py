"""TableRequest: the request for a new table, checked before anything is written.

A schema can be any of these. They also decide which columns may be NULL:

    pyarrow.Schema, TableSchema      as declared
    pyarrow.Table, RecordBatch       as declared by their schema
    pandas, Polars, …                the types of its columns; all may be NULL
    {"id": "long", "name": str}      all may be NULL, except a type followed by `!`: "long!"
    a dataclass or TypedDict         a field with `| None` or NotRequired may be NULL

Columns of the primary key are never NULL. A type in a dict is an Arrow type, text as in `evolve`
(see `neve.model.type_parser`), or a Python type:

    bool  int  float  str  bytes     boolean, long, double, string, binary
    date  time  datetime  UUID       date, time, timestamptz, uuid
    list[int]  dict[str, int]        a list, a map
    a dataclass or TypedDict         a struct

Decimal does not say how many digits it has and is refused; write "decimal(18,2)".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from types import NoneType, UnionType
from typing import Final, TypeAlias, Union, cast, get_args, get_origin, get_type_hints, is_typeddict
from uuid import UUID

import pyarrow as pa

from neve.catalog.compatibility import check_format
from neve.catalog.known_properties import check_properties, format_version_of, retention_of
from neve.catalog.sort_order import SortOrder
from neve.catalog.table_meta import TableMeta
from neve.catalog.table_name import TableName
from neve.engine.row_input import ArrowStream
from neve.errors import InvalidArgument, LimitExceeded
from neve.manifest.table_head import Retention
from neve.model.arrow_types import NESTING_MAX, PLAIN_TYPES, ArrowField, TypeKind, type_name
from neve.model.display import listed, shown
from neve.model.partition_spec import PartitionSpec
from neve.model.row_rules import AskedRules, rule_texts
from neve.model.schema import TableSchema
from neve.model.type_parser import REQUIRED, parse_type

SchemaInput: TypeAlias = (
    pa.Schema | TableSchema | pa.Table | pa.RecordBatch | ArrowStream | Mapping[str, object] | type
)
"""What `create_table` accepts as a schema."""

_PANDAS_INDEX: Final = re.compile(r"__index_level_[0-9]+__")
_ACCEPTED: Final = (
    "Pass a pyarrow.Schema, a dict such as {'id': int, 'name': str}, a data frame, or a dataclass"
)
_PYTHON_TYPES: Final[dict[object, TypeKind]] = {
    bool: TypeKind.BOOLEAN,
    int: TypeKind.LONG,
    float: TypeKind.DOUBLE,
    str: TypeKind.STRING,
    bytes: TypeKind.BINARY,
    date: TypeKind.DATE,
    time: TypeKind.TIME,
    datetime: TypeKind.TIMESTAMPTZ,
    UUID: TypeKind.UUID,
}


def arrow_schema_of(given: object) -> pa.Schema:
    """Return the columns as an Arrow schema; raises InvalidArgument with the column."""
    if isinstance(given, pa.Schema):
        return given
    if isinstance(given, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return given.schema
    if isinstance(given, Mapping):
        return pa.schema([_field_of(name, asked) for name, asked in given.items()])
    if _is_record(given):
        return pa.schema(_record_fields(cast("type", given), where="", depth=1))
    if isinstance(given, ArrowStream):
        return _frame_schema(given)
    is_query = callable(getattr(given, "collect", None))
    raise InvalidArgument(
        f"a schema cannot be read from {_named(given)}",
        hint="Run the query first: pass frame.collect()" if is_query else _ACCEPTED,
    )


def _frame_schema(frame: ArrowStream) -> pa.Schema:
    try:
        schema = pa.RecordBatchReader.from_stream(frame).schema
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"the columns of a {type(frame).__name__} could not be read: {error}", hint=_ACCEPTED
        ) from error
    # The index of a pandas frame numbers rows; one without a name is not a column.
    return pa.schema([each for each in schema if not _PANDAS_INDEX.fullmatch(each.name)])


def _field_of(name: object, asked: object) -> ArrowField:
    if not isinstance(name, str):
        raise InvalidArgument(
            f"a column name is text, not {_named(name)} {shown(name)}", hint="Name columns by text"
        )
    if isinstance(asked, pa.DataType):
        return pa.field(name, asked)
    if isinstance(asked, str):
        text = asked.strip()
        return pa.field(
            name, parse_type(text.removesuffix(REQUIRED)), nullable=not text.endswith(REQUIRED)
        )
    inner, _ = _without_none(asked)
    return pa.field(name, _python_type(inner, where=name, depth=1))


def _python_type(asked: object, *, where: str, depth: int) -> pa.DataType:
    if depth > NESTING_MAX:
        raise LimitExceeded(
            f"column {shown(where)} is nested too deeply",
            limit=NESTING_MAX,
            hint="Flatten it; a class cannot contain itself",
        )
    if isinstance(asked, pa.DataType):
        return asked
    kind = _PYTHON_TYPES.get(asked) if isinstance(asked, type) else None
    if kind is not None:
        return PLAIN_TYPES[kind]
    if _is_record(asked):
        return pa.struct(_record_fields(cast("type", asked), where=f"{where}.", depth=depth))
    inside = get_args(asked)
    match get_origin(asked), len(inside):
        case (origin, 1) if origin is list:
            element = _inner_field("element", inside[0], where=where, depth=depth)
            return cast("pa.DataType", pa.list_(element))
        case (origin, 2) if origin is dict:
            key = _inner_field("key", inside[0], where=where, depth=depth)
            value = _inner_field("value", inside[1], where=where, depth=depth)
            return cast("pa.DataType", pa.map_(key.with_nullable(False), value))
    raise InvalidArgument(
        f"column {shown(where)} has the type {_named(asked)}, which is not a column type",
        hint=_type_hint(asked),
    )


def _inner_field(name: str, asked: object, *, where: str, depth: int) -> ArrowField:
    inner, nullable = _without_none(asked)
    type_ = _python_type(inner, where=f"{where}.{name}", depth=depth + 1)
    return pa.field(name, type_, nullable=nullable)


def _record_fields(record: type, *, where: str, depth: int) -> list[ArrowField]:
    """Return the fields of a dataclass or TypedDict, as annotated."""
    try:
        hints: dict[str, object] = get_type_hints(record)
    except (NameError, TypeError) as error:
        raise InvalidArgument(
            f"the types of {record.__name__} could not be read: {error}",
            hint="Define the class, and what it names, at the top of a module",
        ) from error
    if is_dataclass(record):
        names, optional = [each.name for each in fields(record)], frozenset[str]()
    else:
        names = list(hints)
        optional = cast("frozenset[str]", getattr(record, "__optional_keys__", frozenset()))
    made: list[ArrowField] = []
    for name in names:
        inner, nullable = _without_none(hints[name])
        type_ = _python_type(inner, where=f"{where}{name}", depth=depth + 1)
        made.append(pa.field(name, type_, nullable=nullable or name in optional))
    return made


def _without_none(asked: object) -> tuple[object, bool]:
    """Remove None from `X | None`; also return whether it was there."""
    if get_origin(asked) not in (Union, UnionType):
        return asked, False
    others = [each for each in get_args(asked) if each is not NoneType]
    # A union of several other types is refused later.
    return (others[0], True) if len(others) == 1 else (asked, True)


def _is_record(asked: object) -> bool:
    return isinstance(asked, type) and (is_dataclass(asked) or is_typeddict(asked))


def _type_hint(asked: object) -> str:
    if asked is Decimal:
        return 'Say how many digits it has: "decimal(18,2)"'
    if asked in (list, dict):
        return "Say what is inside: list[int], dict[str, int]"
    if not isinstance(asked, type) and hasattr(asked, "__len__"):
        return "A dict of values is data: pass pa.table(…) of it"
    return 'Use a Python type such as int or str, an Arrow type, or text such as "long"'


def _named(asked: object) -> str:
    """Name a type, or the type of a value."""
    if isinstance(asked, type) and get_origin(asked) is None:
        return asked.__name__
    return shown(asked) if get_origin(asked) is not None else type(asked).__name__


_SCHEMA_VERSION_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """Name, columns, key, partitions, order and properties of a new table."""

    name: TableName
    schema: TableSchema
    spec: PartitionSpec
    sort_order: SortOrder
    properties: Mapping[str, str]

    @classmethod
    def of(
        cls,
        name: str,
        schema: SchemaInput,
        primary_key: str | Sequence[str],
        *,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        rules: AskedRules | None = None,
        properties: Mapping[str, str] | None = None,
        schema_version: int = 0,
    ) -> "TableRequest":
        """Check a request; raises InvalidArgument, SchemaMismatch, NotFound."""
        table_name = TableName.parse(name)
        checked = check_properties(properties or {})
        columns = _table_schema(schema, primary_key, schema_version)
        if rules is not None:
            columns = replace(columns, rules=rules.on(columns))
        check_format(columns, format_version_of(checked))
        return cls(
            name=table_name,
            schema=columns,
            spec=PartitionSpec.parse(partition_by, columns),
            sort_order=SortOrder.parse(sort_by, columns),
            properties=checked,
        )

    @property
    def retention(self) -> Retention:
        """How much history to keep."""
        return retention_of(self.properties)

    def as_meta(self, *, table_id: str, table_uuid: UUID, now_ms: int) -> TableMeta:
        """Return the catalog's record of the table once it has an id."""
        return TableMeta(
            name=str(self.name),
            table_id=table_id,
            table_uuid=str(table_uuid),
            schemas=(self.schema,),
            schema_version=self.schema.schema_id,
            specs=(self.spec,),
            spec_id=self.spec.spec_id,
            sort_order=str(self.sort_order),
            properties=self.properties,
            retention=self.retention,
            updated_ms=now_ms,
        )

    def differences(self, meta: TableMeta) -> tuple[str, ...]:
        """Name the parts that differ from an existing table; ignores properties."""
        key = tuple(column.name for column in self.schema.key_columns)
        same_key = (key, self.schema.primary_key) == (meta.primary_key, meta.schema.primary_key)
        different = {
            "key layout": not same_key,
            # The fingerprint covers the key too; a different key says more.
            "schema fingerprint": same_key and self.schema.fingerprint() != meta.fingerprint,
            "schema version": self.schema.schema_id != meta.schema_version,
            "partition spec": _divisions(self.spec) != _divisions(meta.spec),
            "sort order": str(self.sort_order) != meta.sort_order,
            "retention": self.retention != meta.retention,
        }
        return tuple(name for name, differs in different.items() if differs)

    def unlike(self, meta: TableMeta) -> tuple[str, ...]:
        """Describe the differences to an existing table, by the names of its columns.

        Field ids, the order of columns, defaults and properties do not count.
        """
        here, there = self.schema, meta.schema
        found: list[str] = []
        key = tuple(column.name for column in here.key_columns)
        if key != meta.primary_key:
            found.append(f"the primary key is {listed(meta.primary_key)}, not {listed(key)}")
        for column in here.columns:
            if column.name not in there:
                found.append(f"it has no column {column.name!a}")
                continue
            other = there.column(column.name)
            if other.type != column.type:
                was, asked = type_name(other.type), type_name(column.type)
                found.append(f"column {column.name!a} is {was}, not {asked}")
            elif other.nullable != column.nullable:
                words = "may be NULL" if other.nullable else "may not be NULL"
                found.append(f"column {column.name!a} {words}")
        found += [
            f"it also has a column {column.name!a}"
            for column in there.columns
            if column.name not in here
        ]
        if _rule_words(here) != _rule_words(there):
            found.append(f"its rules are {_rule_words(there)}, not {_rule_words(here)}")
        was, asked = _divided_by(meta.spec, there), _divided_by(self.spec, here)
        if was != asked:
            found.append(f"it is partitioned by {was or 'nothing'}, not by {asked or 'nothing'}")
        if str(self.sort_order) != meta.sort_order:
            was, asked = meta.sort_order, str(self.sort_order)
            found.append(f"it is sorted by {was or 'nothing'}, not by {asked or 'nothing'}")
        return tuple(found)


def _table_schema(
    schema: SchemaInput, primary_key: str | Sequence[str], schema_version: int
) -> TableSchema:
    if not isinstance(primary_key, Iterable):
        raise InvalidArgument(
            f"a primary key is a column or a list of columns, not {type(primary_key).__name__}",
            hint="Write 'id' or ['id']",
        )
    names = [primary_key] if isinstance(primary_key, str) else list(primary_key)
    if isinstance(schema, TableSchema):
        key = [column.name for column in schema.key_columns]
        if names != key:
            raise InvalidArgument(
                f"the primary key is {names!a}, but the schema's own is {key!a}",
                hint="Pass the same columns in the same order",
            )
        columns = schema
    else:
        columns = TableSchema.from_arrow(arrow_schema_of(schema), primary_key=names)
    # Refuse bool, which counts as int, and what only the type checker would refuse.
    if type(schema_version) is not int or not 0 <= schema_version <= _SCHEMA_VERSION_MAX:
        raise InvalidArgument(
            f"the schema version {schema_version!a} is invalid",
            hint=f"Count from 0 to {_SCHEMA_VERSION_MAX:,}",
        )
    return replace(columns, schema_id=schema_version)


def _rule_words(schema: TableSchema) -> str:
    return "; ".join(f"{name} {text}" for name, text in rule_texts(schema).items()) or "none"


def _divided_by(spec: PartitionSpec, schema: TableSchema) -> str:
    return ", ".join(
        f"{field.transform} of {schema.column_by_id(field.source_id).name!a}"
        for field in spec.fields
    )


def _divisions(spec: PartitionSpec) -> tuple[tuple[int, str], ...]:
    """Return the sources and transforms of a spec, without the ids of its fields."""
    return tuple((field.source_id, str(field.transform)) for field in spec.fields)
