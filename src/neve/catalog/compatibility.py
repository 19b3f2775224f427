"""Compatibility: which schema may follow which, and the commit of a changed definition.

Every row that was written under an earlier schema can still be read:

CATALOG-26  The key stays: the same fields, in the same order, of the same types. Keys are compared
            as bytes, so even a wider type would not do.
CATALOG-27  An id means one field forever: `last_field_id` never decreases, and a field that is not
            in the current schema has an id that was never used.
CATALOG-28  A field that stays keeps its type, or gets one that Iceberg promotes it to.
CATALOG-29  A field that may be NULL stays so: rows with NULL may exist.
CATALOG-30  A new field may be NULL, or is a column with an initial default. The initial default of
            a field that stays never changes.
CATALOG-31  Format version 2 has no nanoseconds and no initial defaults.
CATALOG-32  The keys of a map keep their type: another type could make different keys equal.
CATALOG-33  A key column has no write default: all rows that leave it out would be one row.

A change of a table's definition is planned on its current state as one commit:

CATALOG-D1  The change is a separate Version, operation EVOLVE, that adds and removes no file.
CATALOG-D2  A new schema is made from the current one and has its id; CatalogConflict when the table
            has another schema by now. It gets the next id.
CATALOG-D3  Partitions that the table had before get their old spec id; new ones get the next id.
CATALOG-D4  The current spec and sort order must be valid in the new schema too. Columns of the sort
            order may be renamed; it follows.
CATALOG-D5  A change that changes nothing makes no commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from neve.catalog.sort_order import SortOrder
from neve.catalog.stored_table import TableState
from neve.errors import CatalogConflict, InvalidArgument, SchemaMismatch
from neve.manifest.commit import CommitPlan
from neve.manifest.table_head import HeadChange, Retention
from neve.model.arrow_types import (
    NESTED_KINDS,
    ArrowField,
    TypeKind,
    child_fields,
    field_id_of,
    kind_of,
    type_name,
    widens_to,
)
from neve.model.field_ids import walk_fields
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import Column, TableSchema
from neve.model.transforms import Identity
from neve.model.version import Operation, VersionEdit, VersionFacts

FORMAT_WITH_DEFAULTS: Final = 3

WIDENINGS: Final = "int widens to long, float to double, a decimal to more digits of the same scale"
_NANOSECOND_KINDS: Final = frozenset({TypeKind.TIMESTAMP_NS, TypeKind.TIMESTAMPTZ_NS})


def check_evolution(before: TableSchema, after: TableSchema) -> None:
    """Check all rules except CATALOG-31; raises SchemaMismatch, InvalidArgument."""
    _check_key(before, after)
    if after.last_field_id < before.last_field_id:
        raise InvalidArgument(
            f"CATALOG-27: the last field id would go back from {before.last_field_id} to "
            f"{after.last_field_id}",
            hint="Make the new schema from the current one with dataclasses.replace",
        )
    old_fields = _fields_by_id(before)
    for path, field in walk_fields(tuple(after.arrow_schema)):
        field_id = field_id_of(field)
        assert field_id is not None, "a schema has checked its ids"
        old = old_fields.get(field_id)
        if old is not None:
            _check_kept(path, old, field)
        elif field_id <= before.last_field_id:
            raise InvalidArgument(
                f"CATALOG-27: field {path!a} has id {field_id}, which another field had",
                hint=f"Give new fields ids from {before.last_field_id + 1} on",
            )
    for column in after.columns:
        _check_defaults(before, column, old_fields)


def check_format(schema: TableSchema, format_version: int) -> None:
    """Check CATALOG-31; raises SchemaMismatch."""
    if format_version >= FORMAT_WITH_DEFAULTS:
        return
    for path, field in walk_fields(tuple(schema.arrow_schema)):
        if kind_of(field.type) in _NANOSECOND_KINDS:
            raise _not_in_format(path, f"is {type_name(field.type)}", format_version)
    for column in schema.columns:
        if column.initial_default is not None:
            raise _not_in_format(
                column.name,
                "has an initial default",
                format_version,
                otherwise=", or add it without a default and set one for later rows",
            )


def _check_key(before: TableSchema, after: TableSchema) -> None:
    if before.primary_key != after.primary_key:
        raise SchemaMismatch(
            f"CATALOG-26: the key would change from {_key_words(before)} to {_key_words(after)}",
            hint="To change the key, make a new table and copy the rows",
        )
    for old, new in zip(before.key_columns, after.key_columns, strict=True):
        if old.type != new.type:
            raise SchemaMismatch(
                f"CATALOG-26: key column {new.name!a} would change from {type_name(old.type)} to "
                f"{type_name(new.type)}",
                column=new.name,
                hint="To change the type of a key, make a new table and copy the rows",
            )
        if new.write_default is not None and new.write_default != old.write_default:
            raise default_of_key(new.name)


def default_of_key(name: str) -> SchemaMismatch:
    """Return the error for a default of a key column (CATALOG-33)."""
    return SchemaMismatch(
        f"CATALOG-33: column {name!a} is in the key and cannot have a default",
        column=name,
        hint="Write the key of every row: all rows that leave it out would be one row",
    )


def _check_kept(path: str, old: ArrowField, new: ArrowField) -> None:
    old_kind, new_kind = kind_of(old.type), kind_of(new.type)
    nested = old_kind in NESTED_KINDS or new_kind in NESTED_KINDS
    if nested:
        fits = old_kind is new_kind and _keeps_parts(old, new)
    else:
        fits = widens_to(old.type, new.type)
    if not fits:
        raise SchemaMismatch(
            f"CATALOG-28: field {path!a} cannot change from {old.type} to {new.type}",
            column=path,
            hint=WIDENINGS,
        )
    if old_kind is TypeKind.MAP:
        old_key, new_key = child_fields(old.type)[0], child_fields(new.type)[0]
        if old_key.type != new_key.type:
            raise SchemaMismatch(
                f"CATALOG-32: the keys of map {path!a} cannot change from {old_key.type} to "
                f"{new_key.type}",
                column=path,
                hint="Add a column with the map you want",
            )
    if old.nullable and not new.nullable:
        raise SchemaMismatch(
            f"CATALOG-29: field {path!a} may be NULL and cannot be required now",
            column=path,
            hint="Keep it nullable, or add a new column: rows with NULL may exist",
        )


def _keeps_parts(old: ArrowField, new: ArrowField) -> bool:
    """Whether the element of a list, or key and value of a map, are still the same fields."""
    if kind_of(old.type) is TypeKind.STRUCT:
        return True
    old_ids = [field_id_of(part) for part in child_fields(old.type)]
    return old_ids == [field_id_of(part) for part in child_fields(new.type)]


def _check_defaults(before: TableSchema, column: Column, old_fields: dict[int, ArrowField]) -> None:
    if column.field_id in old_fields:
        if before.column_by_id(column.field_id).initial_default != column.initial_default:
            raise SchemaMismatch(
                f"CATALOG-30: the initial default of column {column.name!a} cannot change",
                column=column.name,
                hint="Change the write default: rows older than the column use the initial one",
            )
    elif not column.nullable and column.initial_default is None:
        raise _required_without_default(column.name)
    for path, field in walk_fields(child_fields(column.type), below=f"{column.name}."):
        is_new = field_id_of(field) not in old_fields
        if is_new and column.field_id in old_fields and not field.nullable:
            raise _required_without_default(path)


def _required_without_default(path: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"CATALOG-30: the new field {path!a} is required, but existing rows do not have it",
        column=path,
        hint="Make it nullable, or give a new column an initial default",
    )


def _not_in_format(
    path: str, what: str, format_version: int, *, otherwise: str = ""
) -> SchemaMismatch:
    return SchemaMismatch(
        f"CATALOG-31: column {path!a} {what}, which format version {format_version} does not have",
        column=path,
        hint=f"Set the property format-version to {FORMAT_WITH_DEFAULTS}{otherwise}",
    )


def _fields_by_id(schema: TableSchema) -> dict[int, ArrowField]:
    return {
        field_id: field
        for _, field in walk_fields(tuple(schema.arrow_schema))
        if (field_id := field_id_of(field)) is not None
    }


def _key_words(schema: TableSchema) -> str:
    return ", ".join(column.name for column in schema.key_columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChange:
    """The requested changes; None leaves a part unchanged."""

    schema: TableSchema | None = None
    partition_by: Sequence[str] | None = None
    sort_by: Sequence[str] | None = None
    retention: Retention | None = None


def plan_change(
    state: TableState, asked: DefinitionChange, *, format_version: int
) -> CommitPlan | None:
    """Plan a change on a state; None when there is nothing to change (CATALOG-D5).

    Raises CatalogConflict (CATALOG-D2), and SchemaMismatch, InvalidArgument or NotFound for an
    impossible change.
    """
    schema = _next_schema(state, asked.schema, format_version)
    spec = _next_spec(state, schema, asked.partition_by)
    sort_order = _next_sort_order(state, schema, asked.sort_by)
    retention = asked.retention or state.head.retention
    changed = {
        "schema": schema is not state.schema,
        "partition-spec": spec is not state.spec,
        "sort-order": sort_order != state.sort_order,
        "retention": retention != state.head.retention,
    }
    words = [name for name, is_changed in changed.items() if is_changed]
    if not words:
        return None
    facts = VersionFacts(
        operation=Operation.EVOLVE,
        timestamp_ms=0,  # the commit sets it
        schema_id=schema.schema_id,
        spec_id=spec.spec_id,
        summary={"changed": ",".join(words)},
    )
    return CommitPlan(
        edits=[VersionEdit(base=state.head.current_version, facts=facts)],
        change=HeadChange(
            schema_id=schema.schema_id,
            spec_id=spec.spec_id,
            sort_order=str(sort_order),
            retention=retention,
        ),
        schema=schema.to_json() if changed["schema"] else None,
        spec=None if spec.spec_id in state.specs else spec.to_json(),
    )


def _next_schema(state: TableState, asked: TableSchema | None, format_version: int) -> TableSchema:
    present = state.schema
    if asked is None:
        return present
    if asked.schema_id != present.schema_id:
        raise CatalogConflict(
            f"the schema was made from schema {asked.schema_id}, but the table now has schema "
            f"{present.schema_id}",
            keys=("schema_id",),
            hint="Read the table's schema again and repeat the change on it",
        )
    if asked == present:
        return present
    check_evolution(present, asked)
    check_format(asked, format_version)
    return replace(asked, schema_id=max(state.schemas) + 1)


def _next_spec(
    state: TableState, schema: TableSchema, partition_by: Sequence[str] | None
) -> PartitionSpec:
    if partition_by is None:
        _check_spec_fits(state.spec, schema)
        return state.spec
    history = [state.specs[number] for number in sorted(state.specs)]
    spec = PartitionSpec.parse(partition_by, schema, spec_id=max(state.specs) + 1, history=history)
    known = (each for each in reversed([*history, state.spec]) if each.fields == spec.fields)
    return next(known, spec)


def _check_spec_fits(spec: PartitionSpec, schema: TableSchema) -> None:
    """Check that partition fields have their columns and free names (CATALOG-D4)."""
    columns = {column.field_id: column for column in schema.columns}
    names = {column.name: column.field_id for column in schema.columns}
    for field in spec.fields:
        column = columns.get(field.source_id)
        if column is None:
            raise InvalidArgument(
                f"partition field {field.name!a} uses a column that is dropped",
                hint="Change the partitions in the same step, or before",
            )
        field.transform.check_source(column.type, column=column.name)
        taken_by = names.get(field.name)
        is_its_own = isinstance(field.transform, Identity) and taken_by == field.source_id
        if taken_by is not None and not is_its_own:
            raise InvalidArgument(
                f"column {field.name!a} has the name of a partition field",
                hint="Choose another name for the column",
            )


def _next_sort_order(
    state: TableState, schema: TableSchema, sort_by: Sequence[str] | None
) -> SortOrder:
    if sort_by is not None:
        return SortOrder.parse(sort_by, schema)
    return state.sort_order.renamed(state.schema, schema)
