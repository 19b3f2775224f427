"""GivenColumns: what a partial write gave of a row; the memtable holds the row merged.

    write               row in the memtable            given
    a = 1 of key k      base row of k, a = 1           a
    b = 2 of key k      base row of k, a = 1, b = 2    a, b
    whole row k         that row                       everything: no GivenColumns

The base is whatever lies below the memtable: it may still change until the flush, and then only
what was given stays.
"""

from typing import NamedTuple


class GivenColumns(NamedTuple):
    """Columns of one row that were written since it came into the memtable; the key is not listed.

    `had_base` tells whether there was a row of the key below the memtable when it was merged,
    `version` which Version was shown then.
    """

    field_ids: frozenset[int]
    had_base: bool
    version: int

    def with_more(self, more: "GivenColumns") -> "GivenColumns":
        """Return what is given when more is written on the Version that is shown then."""
        return GivenColumns(self.field_ids | more.field_ids, self.had_base, more.version)
