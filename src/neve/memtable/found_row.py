"""Found: what a memtable holds for a key: its row in one of two forms, or a delete."""

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa


class GivenColumns(NamedTuple):
    """Columns of one row that were written since it entered the memtable, without the key.

        write               row in the memtable            given
        a = 1 of key k      base row of k, a = 1           a
        b = 2 of key k      base row of k, a = 1, b = 2    a, b
        whole row k         that row                       everything: no GivenColumns

    The memtable holds the merged row. The base is the row below the memtable: it may still change
    until the flush, and then only the given columns stay. `had_base` says whether there was a base
    when the row was merged, `version` which Version was current then.
    """

    field_ids: frozenset[int]
    had_base: bool
    version: int

    def with_more(self, more: "GivenColumns") -> "GivenColumns":
        """Return the given columns after a later write, on the Version that is current then."""
        return GivenColumns(self.field_ids | more.field_ids, self.had_base, more.version)


class Deleted(Enum):
    """The marker of a key whose newest change is a delete."""

    DELETED = "deleted"


DELETED: Final = Deleted.DELETED


class BatchRow(NamedTuple):
    """A row in an Arrow batch."""

    batch: pa.RecordBatch
    row: int
    given: GivenColumns | None = None
    """The written columns of the row; None for all."""


# bytes are a row in the row codec
Found: TypeAlias = bytes | BatchRow | Deleted
