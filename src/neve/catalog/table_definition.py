"""TableDefinition: a table as somebody asks for it, checked before anything is written."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from neve.catalog.compatibility import check_format
from neve.catalog.known_properties import check_properties, format_version_of, retention_of
from neve.catalog.schema_input import SchemaInput, arrow_schema_of
from neve.catalog.sort_order import SortOrder
from neve.catalog.table_meta import TableMeta
from neve.catalog.table_name import TableName
from neve.errors import InvalidArgument
from neve.manifest.table_head import Retention
from neve.model.arrow_types import type_name
from neve.model.display import listed
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema

_SCHEMA_VERSION_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """Name, columns, key, partitions, order and properties of a table to be."""

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
        properties: Mapping[str, str] | None = None,
        schema_version: int = 0,
    ) -> "TableDefinition":
        """Check what was asked for; raises InvalidArgument, SchemaMismatch, NotFound."""
        table_name = TableName.parse(name)
        checked = check_properties(properties or {})
        columns = _table_schema(schema, primary_key, schema_version)
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
        """How much history is to be kept."""
        return retention_of(self.properties)

    def as_meta(self, *, table_id: str, table_uuid: UUID, now_ms: int) -> TableMeta:
        """Return what the catalog keeps of the table once it has an id."""
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
        """Name what is otherwise in a table that exists; properties aside, which may change."""
        key = tuple(column.name for column in self.schema.key_columns)
        same_key = (key, self.schema.primary_key) == (meta.primary_key, meta.schema.primary_key)
        different = {
            "key layout": not same_key,
            # The fingerprint covers the key too; where the key differs, that says more.
            "schema fingerprint": same_key and self.schema.fingerprint() != meta.fingerprint,
            "schema version": self.schema.schema_id != meta.schema_version,
            "partition spec": _divisions(self.spec) != _divisions(meta.spec),
            "sort order": str(self.sort_order) != meta.sort_order,
            "retention": self.retention != meta.retention,
        }
        return tuple(name for name, differs in different.items() if differs)

    def unlike(self, meta: TableMeta) -> tuple[str, ...]:
        """Say in words what is otherwise in a table that exists, by the names of its columns.

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
    # Not bool, which counts as int, nor what only the type checker would refuse.
    if type(schema_version) is not int or not 0 <= schema_version <= _SCHEMA_VERSION_MAX:
        raise InvalidArgument(
            f"the schema version cannot be {schema_version!a}",
            hint=f"Count from 0 to {_SCHEMA_VERSION_MAX:,}",
        )
    return replace(columns, schema_id=schema_version)


def _divided_by(spec: PartitionSpec, schema: TableSchema) -> str:
    return ", ".join(
        f"{field.transform} of {schema.column_by_id(field.source_id).name!a}"
        for field in spec.fields
    )


def _divisions(spec: PartitionSpec) -> tuple[tuple[int, str], ...]:
    """Return what a spec does, whatever ids its fields have."""
    return tuple((field.source_id, str(field.transform)) for field in spec.fields)
