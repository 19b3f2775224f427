"""Evolution: changes of a table's definition that take effect together, at the end of a block.

    with table.evolve() as e:
        e.add_column("note", "string", default="")
        e.rename_column("address.zip", "postcode")
        e.widen_column("count", "long")
        e.set_partition_by(["day(ts)"])

1. `table.evolve()` reads the newest definition. Each call changes a draft of it, so later calls see
   the effect of earlier ones. A call refuses an impossible change at once.
2. The end of the block commits the draft as one Version. A block that ends with an exception, or
   that changes nothing, makes none.
3. When another process has changed the schema since, or partitions or sort order that the block
   changes too, the commit raises CatalogConflict, and nothing changes.

Partitions and sort order refer to columns, not names: a rename in the same block does not affect
them. Fields are named as in Iceberg: `amount`, `address.street`, `tags.element`, `prices.value`. A
field that is added below a list or a map goes into the struct that is its element or its value.

The functions each make one change of a schema, or raise. `neve.catalog.compatibility` numbers the
rules, and checks every schema again when it is committed.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Self, TypeVar

import pyarrow as pa

from neve.catalog.compatibility import WIDENINGS, DefinitionChange, default_of_key
from neve.catalog.sort_order import SortOrder
from neve.errors import AlreadyExists, Closed, InvalidArgument, NotFound, SchemaMismatch
from neve.manifest.table_head import Requirements
from neve.model.arrow_types import (
    NESTED_KINDS,
    ArrowField,
    TypeKind,
    child_fields,
    field_id_of,
    kind_of,
    normalize_type,
    type_name,
    widens_to,
    with_child_fields,
)
from neve.model.display import counted, shown
from neve.model.field_ids import walk_fields, with_fresh_ids
from neve.model.partition_spec import PartitionSpec
from neve.model.row_rules import AskedRules
from neve.model.schema import Column, TableSchema
from neve.model.suggestions import known_names_hint, similar_name_hint
from neve.model.type_parser import parse_type

_KEEPS_KEY = "To change the key, make a new table and copy the rows"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class _Found:
    """A field of a schema and its path."""

    path: str
    steps: tuple[int, ...]
    """Places from the columns down, each among its siblings."""
    field: ArrowField
    parent: "ArrowField | None"
    """The field it is inside; None for a column."""

    @property
    def place(self) -> int:
        return self.steps[-1]

    @property
    def below(self) -> str:
        """Prefix of the full names of its siblings."""
        return self.path.removesuffix(self.field.name)

    @property
    def has_role(self) -> bool:
        """Whether it is the element of a list, or key or value of a map, and so has no name."""
        return self.parent is not None and kind_of(self.parent.type) is not TypeKind.STRUCT


@dataclass(frozen=True, slots=True)
class Position:
    """Where a field goes among its siblings: first, or right after or before another one."""

    after: str | None = None
    before: str | None = None


def add_field(
    schema: TableSchema,
    path: str,
    type_: pa.DataType | str,
    *,
    nullable: bool,
    default: object,
) -> TableSchema:
    """Add a column, or a field inside one, after its siblings."""
    parent, name = _home_of(schema, path)
    below = "" if parent is None else f"{parent.path}."
    _check_free(schema, f"{below}{name}")
    if not nullable and default is None:
        raise SchemaMismatch(
            f"CATALOG-30: the new field {shown(path)} is required, but existing rows do not have "
            "it",
            column=path,
            hint="Make it nullable"
            if parent is not None
            else "Make it nullable, or give it a default, which those rows then have",
        )
    wanted = type_of(type_, path=path)
    first_id = schema.last_field_id + 1
    bare = pa.field(name, wanted, nullable=nullable)
    (field,) = with_fresh_ids((bare,), itertools.count(first_id))
    last_id = max(field_id_of(each) or 0 for _, each in walk_fields((field,)))
    roomy = replace(schema, last_field_id=last_id)
    if parent is not None:
        if default is not None:
            raise InvalidArgument(
                f"field {shown(path)} is inside a column and cannot have a default",
                hint="Make it nullable: only columns have defaults",
            )
        return _with_type_at(
            roomy, parent.steps, lambda old: pa.struct([*child_fields(old), field])
        )
    column = Column(
        field_id=first_id,
        name=name,
        type=field.type,
        nullable=nullable,
        initial_default=default,
        write_default=default,
    )
    return replace(roomy, columns=(*schema.columns, column))


def drop_field(schema: TableSchema, path: str) -> TableSchema:
    """Drop a field; its id is never used again."""
    found = _find(schema, path)
    _refuse_role(found, "dropped", hint=f"Drop {shown(found.below[:-1])} as a whole")
    siblings = _siblings(schema, found)
    if found.parent is not None and len(siblings) == 1:
        raise InvalidArgument(
            f"field {shown(path)} is the only one of its struct",
            hint=f"Drop {shown(found.below[:-1])} instead",
        )
    if found.parent is None and field_id_of(found.field) in schema.primary_key:
        raise SchemaMismatch(
            f"CATALOG-26: column {shown(path)} is in the key and cannot be dropped",
            column=path,
            hint=_KEEPS_KEY,
        )
    use = schema.rules.uses.get(field_id_of(found.field) or 0) if found.parent is None else None
    if use is not None:
        raise SchemaMismatch(
            f"column {shown(path)} {use} and cannot be dropped",
            column=path,
            hint="Change the rule in the same block first: set_order_by, set_merge or set_ttl",
        )
    kept = [at for at in range(len(siblings)) if at != found.place]
    return _arranged(schema, found, kept)


def rename_field(schema: TableSchema, path: str, new: str) -> TableSchema:
    """Rename a field; it stays where it is."""
    found = _find(schema, path)
    _refuse_role(found, "renamed", hint="Rename a column, or a field of a struct")
    name = _text(new, what="name").removeprefix(found.below)
    if "." in name:
        raise InvalidArgument(
            f"the new name {shown(new)} of field {shown(path)} has a dot",
            hint="A field stays where it is: write only the last part of the name, such as "
            f"{shown(name.rpartition('.')[2] or 'zip')}",
        )
    if name != found.field.name:
        _check_free(schema, f"{found.below}{name}")
    return _with_field(schema, found, found.field.with_name(name))


def move_field(schema: TableSchema, path: str, position: Position) -> TableSchema:
    """Move a field among its siblings."""
    found = _find(schema, path)
    _refuse_role(found, "moved", hint="Move a column, or a field of a struct")
    siblings = [each.name for each in _siblings(schema, found)]
    others = [at for at in range(len(siblings)) if at != found.place]
    anchor = position.after if position.before is None else position.before
    if anchor is None:
        return _arranged(schema, found, [found.place, *others])
    name = _text(anchor, what="neighbour").removeprefix(found.below)
    if name not in siblings:
        raise NotFound(
            f"field {shown(path)} has no sibling {shown(anchor)}",
            hint=similar_name_hint(name, siblings)
            or f"Name one of its siblings: {', '.join(map(shown, siblings[:20]))}",
        )
    if name == found.field.name:
        raise InvalidArgument(
            f"field {shown(path)} cannot be moved beside itself", hint="Name another field"
        )
    place = others.index(siblings.index(name)) + (position.before is None)
    return _arranged(schema, found, [*others[:place], found.place, *others[place:]])


def widen_field(schema: TableSchema, path: str, type_: pa.DataType | str) -> TableSchema:
    """Widen a field to a type that holds every value it can have, and more."""
    found = _find(schema, path)
    wanted = type_of(type_, path=path)
    present = found.field.type
    nested = kind_of(present) in NESTED_KINDS or kind_of(wanted) in NESTED_KINDS
    if nested or not widens_to(present, wanted):
        raise SchemaMismatch(
            f"CATALOG-28: field {shown(path)} cannot change from {type_name(present)} to "
            f"{type_name(wanted)}",
            column=path,
            hint="Change the fields inside, one by one"
            if kind_of(present) in NESTED_KINDS
            else f"{WIDENINGS}; for anything else add a column and copy the values",
        )
    if found.parent is None and field_id_of(found.field) in schema.primary_key:
        raise SchemaMismatch(
            f"CATALOG-26: column {shown(path)} is in the key, and its type cannot change",
            column=path,
            hint=_KEEPS_KEY,
        )
    _refuse_map_key(found)
    return _with_field(schema, found, found.field.with_type(wanted))


def relax_field(schema: TableSchema, path: str) -> TableSchema:
    """Make a required field nullable."""
    found = _find(schema, path)
    if found.parent is None and field_id_of(found.field) in schema.primary_key:
        raise SchemaMismatch(
            f"CATALOG-26: column {shown(path)} is in the key and is never NULL",
            column=path,
            hint=_KEEPS_KEY,
        )
    _refuse_map_key(found)
    return _with_field(schema, found, found.field.with_nullable(True))


def default_field(schema: TableSchema, path: str, value: object) -> TableSchema:
    """Set the default of a column for rows written from now on; None removes it."""
    found = _find(schema, path)
    if found.parent is not None:
        raise InvalidArgument(
            f"field {shown(path)} is inside a column and cannot have a default",
            hint="Set the default of a column instead",
        )
    if value is not None and field_id_of(found.field) in schema.primary_key:
        raise default_of_key(path)
    columns = list(schema.columns)
    columns[found.place] = replace(columns[found.place], write_default=value)
    return replace(schema, columns=tuple(columns))


def type_of(type_: pa.DataType | str, *, path: str) -> pa.DataType:
    """Read a type, given as an Arrow type or in Iceberg's words; raises InvalidArgument."""
    if isinstance(type_, str):
        return normalize_type(parse_type(type_), column=path)
    if isinstance(type_, pa.DataType):
        return normalize_type(type_, column=path)
    raise InvalidArgument(
        f"the type of field {shown(path)} is given as {type(type_).__name__}",
        hint='Pass an Arrow type such as pa.int64(), or Iceberg\'s word for it: "long"',
    )


def _text(given: object, *, what: str) -> str:
    if not isinstance(given, str):
        raise InvalidArgument(f"a {what} is text, not {type(given).__name__}", hint='Write "zip"')
    return given


def _all_fields(schema: TableSchema) -> dict[str, _Found]:
    found: dict[str, _Found] = {}

    def visit(
        fields: Sequence[ArrowField],
        below: str,
        steps: tuple[int, ...],
        parent: "ArrowField | None",
    ) -> None:
        for at, field in enumerate(fields):
            path = f"{below}{field.name}"
            found[path] = _Found(path, (*steps, at), field, parent)
            visit(child_fields(field.type), f"{path}.", (*steps, at), field)

    visit(tuple(schema.arrow_schema), "", (), None)
    return found


def _find(schema: TableSchema, path: str) -> _Found:
    fields = _all_fields(schema)
    found = fields.get(_text(path, what="field name"))
    if found is None:
        raise NotFound(
            f"no field is named {shown(path)}", hint=known_names_hint(path, list(fields))
        )
    return found


def _home_of(schema: TableSchema, path: str) -> tuple[_Found | None, str]:
    """Return the struct a new field goes into (None: the top level), and its own name."""
    parent_path, dot, name = _text(path, what="field name").rpartition(".")
    if not dot:
        return None, name
    parent = _find(schema, parent_path)
    _refuse_map_key(parent)
    if kind_of(parent.field.type) in {TypeKind.LIST, TypeKind.MAP}:
        inner = child_fields(parent.field.type)[-1]
        parent = _find(schema, f"{parent_path}.{inner.name}")
    if kind_of(parent.field.type) is not TypeKind.STRUCT:
        raise InvalidArgument(
            f"field {shown(parent.path)} is a {type_name(parent.field.type)} and has no fields",
            hint="Add to a struct, or add a column whose name has no dot",
        )
    return parent, name


def _check_free(schema: TableSchema, path: str) -> None:
    if path in _all_fields(schema):
        raise AlreadyExists(
            f"the field {shown(path)} already exists",
            hint="Choose another name, or drop or rename that field first",
        )


def _refuse_role(found: _Found, what: str, *, hint: str) -> None:
    if found.has_role:
        raise InvalidArgument(
            f"field {shown(found.path)} is a part of its {_kind_above(found)} and cannot be {what}",
            hint=hint,
        )


def _refuse_map_key(found: _Found) -> None:
    if found.parent is not None and kind_of(found.parent.type) is TypeKind.MAP and not found.place:
        raise SchemaMismatch(
            f"CATALOG-32: {shown(found.path)} is the key of a map and cannot change",
            column=found.path,
            hint="Add a column with the map you want",
        )


def _kind_above(found: _Found) -> str:
    assert found.parent is not None
    return kind_of(found.parent.type).value


def _siblings(schema: TableSchema, found: _Found) -> Sequence[ArrowField]:
    if found.parent is None:
        return list(schema.arrow_schema)
    return child_fields(found.parent.type)


def _arranged(schema: TableSchema, found: _Found, places: Sequence[int]) -> TableSchema:
    """Return the schema with a field's siblings in another order, or with fewer of them."""
    if found.parent is None:
        return replace(schema, columns=_taken(schema.columns, places))
    return _with_type_at(
        schema,
        found.steps[:-1],
        lambda old: with_child_fields(old, _taken(child_fields(old), places)),
    )


def _taken(items: Sequence[Item], places: Sequence[int]) -> tuple[Item, ...]:
    return tuple(items[at] for at in places)


def _with_field(schema: TableSchema, found: _Found, field: ArrowField) -> TableSchema:
    """Return the schema with a field of another name, type or nullability in the same place."""
    if found.parent is not None:
        return _with_type_at(
            schema, found.steps[:-1], lambda old: _with_child(old, found.place, field)
        )
    columns = list(schema.columns)
    columns[found.place] = replace(
        columns[found.place], name=field.name, type=field.type, nullable=field.nullable
    )
    return replace(schema, columns=tuple(columns))


def _with_type_at(
    schema: TableSchema, steps: Sequence[int], change: Callable[[pa.DataType], pa.DataType]
) -> TableSchema:
    columns = list(schema.columns)
    column = columns[steps[0]]
    columns[steps[0]] = replace(column, type=_changed_inside(column.type, steps[1:], change))
    return replace(schema, columns=tuple(columns))


def _changed_inside(
    type_: pa.DataType, steps: Sequence[int], change: Callable[[pa.DataType], pa.DataType]
) -> pa.DataType:
    if not steps:
        return change(type_)
    child = child_fields(type_)[steps[0]]
    inner = child.with_type(_changed_inside(child.type, steps[1:], change))
    return _with_child(type_, steps[0], inner)


def _with_child(type_: pa.DataType, place: int, field: ArrowField) -> pa.DataType:
    fields = list(child_fields(type_))
    fields[place] = field
    return with_child_fields(type_, tuple(fields))


Commit = Callable[[DefinitionChange, Requirements], int]
"""Commits a change of the definition; returns the Version."""


class Evolution:
    """A draft of a table's next definition; used by one thread, once."""

    def __init__(
        self,
        schema: TableSchema,
        *,
        specs: Sequence[PartitionSpec],
        found: Requirements,
        commit: Commit,
    ) -> None:
        self._before = schema
        self._specs = specs
        self._found = found
        self._commit = commit
        self._schema = schema
        self._spec: PartitionSpec | None = None
        self._sort: tuple[SortOrder, TableSchema] | None = None
        self._is_over = False
        self.version: int | None = None
        """The Version that the block made, or the current one; None before the end."""

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._is_over = True
        if error is None:
            self.version = self._commit(self._change(), self._required())

    @property
    def schema(self) -> TableSchema:
        """The schema after the calls so far."""
        return self._schema

    def add_column(
        self,
        name: str,
        type: pa.DataType | str,  # noqa: A002 - the name of the contract
        *,
        default: object = None,
        nullable: bool = True,
    ) -> None:
        """Add a column after the others, or with a dotted name a field to a struct.

        Existing rows, and rows that leave the column out, have the default, or NULL. Raises
        AlreadyExists for a taken name, SchemaMismatch for a required column without a default, and
        at the end of the block for a default in a table of format version 2.
        """
        self._check_open()
        self._schema = add_field(self._schema, name, type, nullable=nullable, default=default)

    def drop_column(self, name: str) -> None:
        """Drop a column or a field; existing Versions still show it.

        Raises SchemaMismatch for a key column and, at the end of the block, InvalidArgument for a
        column that partitions or the sort order use.
        """
        self._check_open()
        self._schema = drop_field(self._schema, name)

    def rename_column(self, old: str, new: str) -> None:
        """Rename a column or a field; `new` is its name without the struct's."""
        self._check_open()
        self._schema = rename_field(self._schema, old, new)

    def move_column(
        self, name: str, *, first: bool = False, after: str | None = None, before: str | None = None
    ) -> None:
        """Move a column in the order of columns, or a field in that of its struct."""
        self._check_open()
        places = [bool(first), after is not None, before is not None].count(True)
        if places != 1:
            raise InvalidArgument(
                f"{counted(places, 'place')} given for the column instead of one",
                hint="Pass one of first=True, after=… and before=…",
            )
        self._schema = move_field(self._schema, name, Position(after=after, before=before))

    def widen_column(self, name: str, type: pa.DataType | str) -> None:  # noqa: A002 - as above
        """Widen a column or field to a type that holds all of its values.

        int widens to long, float to double, a decimal to more digits of the same scale. Raises
        SchemaMismatch for any other type, and for key columns and keys of maps.
        """
        self._check_open()
        self._schema = widen_field(self._schema, name, type)

    def make_nullable(self, name: str) -> None:
        """Make a required column or field nullable; key columns cannot be."""
        self._check_open()
        self._schema = relax_field(self._schema, name)

    def set_default(self, name: str, value: object) -> None:
        """Set the default of a column for rows written from now on; None: no default.

        Existing rows do not change.
        """
        self._check_open()
        self._schema = default_field(self._schema, name, value)

    def set_partition_by(self, partition_by: Sequence[str]) -> None:
        """Partition rows written from now on by fields such as `day(ts)`; existing files stay."""
        self._check_open()
        self._spec = PartitionSpec.parse(
            partition_by,
            self._schema,
            spec_id=max(spec.spec_id for spec in self._specs) + 1,
            history=self._specs,
        )

    def set_sort_by(self, sort_by: Sequence[str]) -> None:
        """Ask engines that write to the table to sort by the first columns of its key.

        Rows of data files are always in key order: any other order raises InvalidArgument. An empty
        list asks for no order.
        """
        self._check_open()
        self._sort = SortOrder.parse(sort_by, self._schema), self._schema

    def set_order_by(
        self, order_by: str | Sequence[str], *, keep_deletes: str | timedelta | None = None
    ) -> None:
        """Let the change with the greatest values of these columns win; an empty list: the last.

        Deletes are remembered for `keep_deletes`; without it, as long as before, or for 7 days.
        Those that were remembered under other columns are forgotten.
        """
        self._set_rules(AskedRules(order_by=order_by, keep_deletes=keep_deletes))

    def set_merge(self, merge: Mapping[str, str]) -> None:
        """Set the merge functions, by column; columns that are not named keep the last value.

        The functions are last, last_non_null, first, sum, min, max, bool_and and bool_or.
        """
        self._set_rules(AskedRules(merge=merge))

    def set_ttl(self, ttl: tuple[str, str | timedelta] | None) -> None:
        """Let rows expire some time after a timestamp column: `("ts", "90 days")`; None: never."""
        self._set_rules(AskedRules(ttl=ttl or ()))

    def _set_rules(self, asked: AskedRules) -> None:
        self._check_open()
        self._schema = replace(self._schema, rules=asked.on(self._schema))

    def _change(self) -> DefinitionChange:
        """Return the requested changes, in names of the final schema."""
        schema, before = self._schema, self._before
        is_changed = (schema.columns, schema.rules) != (before.columns, before.rules)
        return DefinitionChange(
            schema=schema if is_changed else None,
            partition_by=None if self._spec is None else self._partition_texts(self._spec),
            sort_by=None if self._sort is None else self._sort_texts(*self._sort),
        )

    def _required(self) -> Requirements:
        """Return the parts of the definition that the change depends on."""
        found = self._found
        return replace(
            found,
            spec_id=None if self._spec is None else found.spec_id,
            sort_order=None if self._sort is None else found.sort_order,
        )

    def _partition_texts(self, spec: PartitionSpec) -> list[str]:
        for field in spec.fields:
            if not any(column.field_id == field.source_id for column in self._schema.columns):
                raise InvalidArgument(
                    f"partition field {field.name!a} uses a column that is dropped",
                    hint="Partition by other columns, or keep the column",
                )
        return spec.texts(self._schema)

    def _sort_texts(self, order: SortOrder, named_in: TableSchema) -> list[str]:
        return [str(field) for field in order.renamed(named_in, self._schema).fields]

    def _check_open(self) -> None:
        if self._is_over:
            raise Closed(
                "the block of this evolution has ended",
                hint="Begin another one: with table.evolve() as e",
            )
