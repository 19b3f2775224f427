"""A change of a table's definition, planned on the table's present state as one commit.

D1  The change is a Version of its own, operation EVOLVE, that adds and removes no file.
D2  A new schema is made out of the present one and bears its id; when the table has another by
    then, that is CatalogConflict. It gets the next id.
D3  Partitions as the table had before get their old spec id again; new ones the next id.
D4  The present spec and sort order must make sense in the new schema too. Columns that the sort
    order names may be renamed; it follows.
D5  What changes nothing is no commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from neve.catalog.compatibility import check_evolution, check_format
from neve.catalog.sort_order import SortOrder
from neve.catalog.stored_table import TableState
from neve.errors import CatalogConflict, InvalidArgument
from neve.manifest.table_head import HeadChange, Retention
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.model.transforms import Identity
from neve.model.version import Operation, VersionEdit, VersionFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChange:
    """What is asked for; None leaves a part as it is."""

    schema: TableSchema | None = None
    partition_by: Sequence[str] | None = None
    sort_by: Sequence[str] | None = None
    retention: Retention | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChange:
    """The commit that makes a change."""

    edit: VersionEdit
    head_change: HeadChange
    schema_json: str | None
    """A schema that the table did not have before."""
    spec_json: str | None
    """A partition spec that the table did not have before."""


def plan_change(
    state: TableState, asked: DefinitionChange, *, format_version: int
) -> PlannedChange | None:
    """Plan a change on a state; None when there is nothing to change (D5).

    Raises CatalogConflict (D2), and SchemaMismatch, InvalidArgument or NotFound for a change that
    cannot be.
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
        timestamp_ms=0,  # set by the commit
        schema_id=schema.schema_id,
        spec_id=spec.spec_id,
        summary={"changed": ",".join(words)},
    )
    return PlannedChange(
        edit=VersionEdit(base=state.head.current_version, facts=facts),
        head_change=HeadChange(
            schema_id=schema.schema_id,
            spec_id=spec.spec_id,
            sort_order=str(sort_order),
            retention=retention,
        ),
        schema_json=schema.to_json() if changed["schema"] else None,
        spec_json=None if spec.spec_id in state.specs else spec.to_json(),
    )


def _next_schema(state: TableState, asked: TableSchema | None, format_version: int) -> TableSchema:
    present = state.schema
    if asked is None:
        return present
    if asked.schema_id != present.schema_id:
        raise CatalogConflict(
            f"the schema was made out of schema {asked.schema_id}, and the table has "
            f"{present.schema_id} now",
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
    """Check that partitions can be made of a schema's columns, and named beside them (D4)."""
    columns = {column.field_id: column for column in schema.columns}
    names = {column.name: column.field_id for column in schema.columns}
    for field in spec.fields:
        column = columns.get(field.source_id)
        if column is None:
            raise InvalidArgument(
                f"a column is dropped of which partition field {field.name!a} is made",
                hint="Change the partitions in the same step, or before",
            )
        field.transform.check_source(column.type, column=column.name)
        taken_by = names.get(field.name)
        is_its_own = isinstance(field.transform, Identity) and taken_by == field.source_id
        if taken_by is not None and not is_its_own:
            raise InvalidArgument(
                f"column {field.name!a} is named as a partition field is",
                hint="Choose another name for the column",
            )


def _next_sort_order(
    state: TableState, schema: TableSchema, sort_by: Sequence[str] | None
) -> SortOrder:
    if sort_by is not None:
        return SortOrder.parse(sort_by, schema)
    return state.sort_order.renamed(state.schema, schema)
