"""GroupFacts: what the footer of a data file says of the columns of each row group.

Only primitive columns at the top have facts, and only where the footer counts as the schema does:
files of others may hold, say, timestamps in another unit. Parquet does not count NaN.
"""

from decimal import Decimal
from typing import TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq

from neve.model.plain_values import PlainValue, decimal_of, stored_type
from neve.model.pruning import ColumnFacts
from neve.model.schema import TableSchema

_Leaf: TypeAlias = tuple[int, pa.DataType]


class GroupFacts:
    """Facts by group and field id, each read once; safe for many threads."""

    def __init__(self, metadata: pq.FileMetaData, schema: TableSchema) -> None:
        self._metadata = metadata
        self._leaves = _leaves(metadata, schema)
        # Safe on its own: facts read twice are the same.
        self._known: dict[tuple[int, int], ColumnFacts] = {}

    def byte_count(self, group: int) -> int:
        """Return about how many bytes a group has in memory."""
        return int(self._metadata.row_group(group).total_byte_size)

    def of(self, group: int, field_id: int) -> ColumnFacts | None:
        """Return what is known of a column in a group; None when nothing is."""
        leaf = self._leaves.get(field_id)
        if leaf is None:
            return None
        facts = self._known.get((group, field_id))
        if facts is None:
            facts = self._read(group, *leaf)
            self._known[group, field_id] = facts
        return facts

    def _read(self, group: int, place: int, type_: pa.DataType) -> ColumnFacts:
        row_group = self._metadata.row_group(group)
        statistics = row_group.column(place).statistics
        row_count = row_group.num_rows
        if statistics is None:
            return ColumnFacts(row_count=row_count)
        lower = upper = None
        if statistics.has_min_max:
            lower = _plain(statistics.min_raw, type_)
            upper = _plain(statistics.max_raw, type_)
        null_count = statistics.null_count  # None where it was not counted
        return ColumnFacts(lower=lower, upper=upper, null_count=null_count, row_count=row_count)


def _leaves(metadata: pq.FileMetaData, schema: TableSchema) -> dict[int, _Leaf]:
    stored = metadata.schema.to_arrow_schema()
    paths = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    leaves: dict[int, _Leaf] = {}
    for column in schema.columns:
        place = paths.get(column.name)
        at = stored.get_field_index(column.name)
        if place is None or at < 0 or pa.types.is_nested(column.type):
            continue
        if stored_type(stored.field(at).type) == stored_type(column.type):
            leaves[column.field_id] = place, column.type
    return leaves


def _plain(raw: object, type_: pa.DataType) -> PlainValue | None:
    """Return a bound as a plain value; None when it is none of the column."""
    if pa.types.is_decimal(type_):
        unscaled = int.from_bytes(raw, signed=True) if isinstance(raw, bytes) else raw
        return decimal_of(unscaled, type_) if isinstance(unscaled, int) else None
    if pa.types.is_string(type_):
        try:
            return cast("bytes", raw).decode()
        except UnicodeDecodeError:
            return None
    return raw if isinstance(raw, bool | int | float | bytes | Decimal) else None
