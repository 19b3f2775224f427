"""SortOrder: the order in which other engines should write rows: that of the key, or none.

    key (city, id)    []                city        city,id        as the table's head keeps it
                      no order          by city     by the key

Rows of every data file are in key order: merging, point reads and pruning rely on it. So a table
can only ask for that order. It is published as Iceberg's default sort order, which engines that
write to a table follow; DuckDB does not write to tables that have one.

CATALOG-34  Every column exists, is primitive, and is named once.
CATALOG-35  A name that has a comma or begins with `-` is ambiguous here, and is refused.
CATALOG-36  The columns are the first ones of the key, in its order, and ascending. The first
            release took any order and sorted nothing by it: such an order has no effect, and the
            next change removes it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from neve.errors import InvalidArgument
from neve.model.arrow_types import NESTED_KINDS, kind_of
from neve.model.schema import TableSchema

_DESCENDING: Final = "-"
_SEPARATOR: Final = ","


@dataclass(frozen=True, slots=True)
class SortField:
    """One column of a sort order."""

    column: str
    descending: bool = False

    def __str__(self) -> str:
        return f"{_DESCENDING if self.descending else ''}{self.column}"


@dataclass(frozen=True, slots=True)
class SortOrder:
    """Columns to sort by, the most significant first; empty for no order."""

    fields: tuple[SortField, ...] = ()

    @classmethod
    def parse(cls, texts: Sequence[str], schema: TableSchema) -> "SortOrder":
        """Read names of columns; raises InvalidArgument, NotFound."""
        if isinstance(texts, str):
            raise InvalidArgument(
                "sort columns were given as one text", hint=f"Pass a list: [{texts[:64]!r}]"
            )
        if not isinstance(texts, Iterable):
            raise InvalidArgument(
                f"sort columns are a list, not {type(texts).__name__}", hint="Write ['id']"
            )
        order = cls(tuple(_parse_field(text, schema) for text in texts))
        order.check(schema)
        if not order.is_of_key(schema):
            key = [column.name for column in schema.key_columns]
            raise InvalidArgument(
                f"CATALOG-36: rows of data files are in the order of the key {key}, not by "
                f"{str(order)!r}",
                hint=f"Leave the sort order out, or use the first columns of the key: {key}. Make "
                "a column the first one of the key to have rows sorted by it",
            )
        return order

    @classmethod
    def from_text(cls, text: str) -> "SortOrder":
        """Read what `str` returns."""
        return cls(
            tuple(
                SortField(part.removeprefix(_DESCENDING), part.startswith(_DESCENDING))
                for part in text.split(_SEPARATOR)
                if part
            )
        )

    def check(self, schema: TableSchema) -> None:
        """Check CATALOG-34 and CATALOG-35; raises InvalidArgument, NotFound."""
        seen: set[str] = set()
        for field in self.fields:
            column = schema.column(field.column)
            if kind_of(column.type) in NESTED_KINDS:
                raise InvalidArgument(
                    f"column {column.name!a} is a {kind_of(column.type)} and has no order",
                    hint="Sort by a primitive column",
                )
            if field.column in seen:
                raise InvalidArgument(
                    f"column {field.column!a} is in the sort order twice", hint="Name it once"
                )
            if _SEPARATOR in field.column or field.column.startswith(_DESCENDING):
                raise InvalidArgument(
                    f"a table cannot be sorted by column {field.column!a}: its name has a comma or "
                    "begins with '-'",
                    hint="Rename the column, or sort by another",
                )
            seen.add(field.column)

    def is_of_key(self, schema: TableSchema) -> bool:
        """Return whether rows in key order are also in this order (CATALOG-36)."""
        key = [column.name for column in schema.key_columns]
        columns = [field.column for field in self.fields]
        return columns == key[: len(columns)] and not any(each.descending for each in self.fields)

    def renamed(self, before: TableSchema, after: TableSchema) -> "SortOrder":
        """Return the same order under the names of a newer schema; raises InvalidArgument."""
        names = {column.field_id: column.name for column in after.columns}
        fields = []
        for field in self.fields:
            field_id = before.column(field.column).field_id
            if field_id not in names:
                raise InvalidArgument(
                    f"column {field.column!a} is dropped, but the table is sorted by it",
                    hint="Change the sort order in the same step, or before",
                )
            fields.append(SortField(names[field_id], field.descending))
        order = SortOrder(tuple(fields))
        order.check(after)
        return order

    def __str__(self) -> str:
        return _SEPARATOR.join(map(str, self.fields))


def _parse_field(text: str, schema: TableSchema) -> SortField:
    if not isinstance(text, str):
        raise InvalidArgument(f"a sort column is text, not {type(text).__name__}", hint='"id"')
    # A column of exactly this name comes first, whatever it begins with; `check` judges the name.
    if text in schema:
        return SortField(text)
    return SortField(text.removeprefix(_DESCENDING), text.startswith(_DESCENDING))
