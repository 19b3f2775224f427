"""Evolution: changes of a table's definition that take effect together, at the end of a block.

    with table.evolve() as e:
        e.add_column("note", "string", default="")
        e.rename_column("address.zip", "postcode")
        e.widen_column("count", "long")
        e.set_partition_by(["day(ts)"])

1. `table.evolve()` reads the newest definition. Each call changes a draft of it, so that later
   calls see what earlier ones did; what cannot be is refused by the call itself.
2. The end of the block commits the draft as one Version. A block that ends with an exception
   changes nothing, and neither does one that comes to nothing.
3. When the schema was changed by somebody else meanwhile, or partitions or sort order that the
   block changes too, the commit raises CatalogConflict, and nothing is changed.

Partitions and sort order go by columns, not by names: a rename in the same block, before or after,
does no harm.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

import pyarrow as pa

from neve.catalog.plan_change import DefinitionChange
from neve.catalog.schema_edits import (
    Position,
    add_field,
    default_field,
    drop_field,
    move_field,
    relax_field,
    rename_field,
    widen_field,
)
from neve.catalog.sort_order import SortOrder
from neve.errors import Closed, InvalidArgument
from neve.manifest.table_head import Requirements
from neve.model.display import counted
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema

Commit = Callable[[DefinitionChange, Requirements], int]
"""Commits a change of the definition; gives the Version."""


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
        """The Version that the block made, or found when it changed nothing; None before."""

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        if error is None:
            self.version = self._commit(self._change(), self._required())

    @property
    def schema(self) -> TableSchema:
        """The schema as the calls so far make it."""
        return self._schema

    def add_column(
        self,
        name: str,
        type: pa.DataType | str,  # noqa: A002 - the name of the contract
        *,
        default: object = None,
        nullable: bool = True,
    ) -> None:
        """Add a column behind the others, or with a dotted name a field to a struct.

        Rows that exist, and rows that leave the column out, have the default, or NULL. Raises
        AlreadyExists for a taken name, SchemaMismatch for a required column without a default, and
        at the end of the block for a default in a table of format version 2.
        """
        self._check_open()
        self._schema = add_field(self._schema, name, type, nullable=nullable, default=default)

    def drop_column(self, name: str) -> None:
        """Drop a column or a field; Versions that exist still show it.

        Raises SchemaMismatch for a key column and, at the end of the block, InvalidArgument for one
        that partitions or the sort order are made of.
        """
        self._check_open()
        self._schema = drop_field(self._schema, name)

    def rename_column(self, old: str, new: str) -> None:
        """Rename a column or a field; `new` is its own name, without a struct's."""
        self._check_open()
        self._schema = rename_field(self._schema, old, new)

    def move_column(
        self, name: str, *, first: bool = False, after: str | None = None, before: str | None = None
    ) -> None:
        """Put a column elsewhere in the order of columns, a field in that of its struct."""
        self._check_open()
        places = [bool(first), after is not None, before is not None].count(True)
        if places != 1:
            raise InvalidArgument(
                f"{counted(places, 'place')} given for the column instead of one",
                hint="Give one of first=True, after=… and before=…",
            )
        self._schema = move_field(self._schema, name, Position(after=after, before=before))

    def widen_column(self, name: str, type: pa.DataType | str) -> None:  # noqa: A002 - as above
        """Widen a column or field to a type that holds every value that it can have.

        int widens to long, float to double, a decimal to more digits of the same scale. Raises
        SchemaMismatch for any other type, and for key columns and keys of maps.
        """
        self._check_open()
        self._schema = widen_field(self._schema, name, type)

    def make_nullable(self, name: str) -> None:
        """Let a required column or field be NULL from now on; key columns never are."""
        self._check_open()
        self._schema = relax_field(self._schema, name)

    def set_default(self, name: str, value: object) -> None:
        """Set what a column is in rows written from now on that leave it out; None: no default.

        Rows that exist stay as they are.
        """
        self._check_open()
        self._schema = default_field(self._schema, name, value)

    def set_partition_by(self, partition_by: Sequence[str]) -> None:
        """Divide rows written from now on by fields such as `day(ts)`; files that exist stay."""
        self._check_open()
        self._spec = PartitionSpec.parse(
            partition_by,
            self._schema,
            spec_id=max(spec.spec_id for spec in self._specs) + 1,
            history=self._specs,
        )

    def set_sort_by(self, sort_by: Sequence[str]) -> None:
        """Ask engines that write to the table for rows by the first columns of its key.

        Rows of data files are in the order of the key, and stay so: any other order is refused with
        InvalidArgument. An empty list asks for none.
        """
        self._check_open()
        self._sort = SortOrder.parse(sort_by, self._schema), self._schema

    def _change(self) -> DefinitionChange:
        """Return what is asked for, in names of the final schema."""
        schema = self._schema
        is_changed = schema.columns != self._before.columns
        return DefinitionChange(
            schema=schema if is_changed else None,
            partition_by=None if self._spec is None else self._partition_texts(self._spec),
            sort_by=None if self._sort is None else self._sort_texts(*self._sort),
        )

    def _required(self) -> Requirements:
        """Return what of the definition must be as it was found: what the change builds on."""
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
                    f"a column is dropped of which partition field {field.name!a} is made",
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
