"""Found: what a memtable knows of a key, its row in one of two forms, or that it was deleted."""

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa


class GivenColumns(NamedTuple):
    """Columns of one row that were written since it came into the memtable; the key is not listed.

        write               row in the memtable            given
        a = 1 of key k      base row of k, a = 1           a
        b = 2 of key k      base row of k, a = 1, b = 2    a, b
        whole row k         that row                       everything: no GivenColumns

    The memtable holds the row merged. The base is what lies below the memtable: it may still change
    until the flush, and then only what was given stays. `had_base` says whether there was a row of
    the key below the memtable when it was merged, `version` which Version was shown then.
    """

    field_ids: frozenset[int]
    had_base: bool
    version: int

    def with_more(self, more: "GivenColumns") -> "GivenColumns":
        """Return what is given when more is written on the Version that is shown then."""
        return GivenColumns(self.field_ids | more.field_ids, self.had_base, more.version)


class Deleted(Enum):
    """The one mark of a key whose newest change is a delete."""

    DELETED = "deleted"


DELETED: Final = Deleted.DELETED


class BatchRow(NamedTuple):
    """A row that lies in an Arrow batch."""

    batch: pa.RecordBatch
    row: int
    given: GivenColumns | None = None
    """What was given of the row; None for all of it."""


# bytes are a row in the row codec
Found: TypeAlias = bytes | BatchRow | Deleted
