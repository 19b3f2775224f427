"""What a store must do to take part in the table benchmarks, in its own words where it has some.

A store holds the rows of one directory. `synced` writes are durable when the call returns; others
when the operating system likes. A store says which of its forms of a row is natural to it: single
rows are made ready in that form before the clock runs, batches and keys come as Arrow.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pyarrow as pa

from benchmarks.peers.table_rows import Keys, Row, row_tuples


class TableStore(ABC):
    """One table, open; used by one thread unless it says otherwise."""

    @abstractmethod
    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        """Open the table in a directory, or create it."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""

    # Single rows

    def as_rows(self, rows: pa.Table) -> Sequence[object]:
        """Return rows in the form that `put` takes."""
        return row_tuples(rows)

    def put(self, row: object) -> None:
        """Write one row."""
        raise NotImplementedError

    def get(self, key: int) -> object:
        """Read one row, in any form that holds all its values."""
        raise NotImplementedError

    def as_tuple(self, key: int, found: object) -> Row:
        """Return what `get` gave for a key as a tuple."""
        return key, *cast("tuple[str, float, int, bytes]", found)

    # Many rows

    def load(self, rows: pa.Table, batch_rows: int) -> None:
        """Fill an empty table by the quickest way that gives the same table; nobody times it."""
        ordered = rows.sort_by("id")
        for start in range(0, ordered.num_rows, batch_rows):
            self.upsert(ordered.slice(start, batch_rows))
        self.settle()

    def upsert(self, rows: pa.Table) -> None:
        """Write rows, all or none, each replacing the one of its key."""
        raise NotImplementedError

    def update(self, rows: pa.Table, batch_rows: int) -> None:
        """Bring updates into a loaded table; nobody times it."""
        for start in range(0, rows.num_rows, batch_rows):
            self.upsert(rows.slice(start, batch_rows))
        self.settle()

    def commit(self, rows: pa.Table) -> None:
        """Add rows as one commit that a reader elsewhere sees."""
        self.upsert(rows)
        self.settle()

    def requests(self) -> Mapping[str, int] | None:
        """Return how many requests its server has had, by kind; None where there is no server."""
        return None

    def settle(self) -> None:  # noqa: B027 - some stores have nothing to do
        """Bring everything written into its lasting form."""

    def apply(self, changes: pa.Table) -> None:
        """Write changes, all or none: the newest of each key, an upsert or a delete."""
        raise NotImplementedError

    def delete(self, keys: Keys) -> None:
        """Delete the rows of keys, all or none."""
        raise NotImplementedError

    def get_many(self, keys: Sequence[int]) -> pa.Table:
        """Read the rows of keys, in any order."""
        raise NotImplementedError

    def get_tuples(self, keys: Sequence[int]) -> Sequence[Row]:
        """Read the rows of keys as tuples, for stores that do that faster than Arrow."""
        raise NotImplementedError

    @abstractmethod
    def scan(self) -> pa.Table:
        """Read all rows, in any order."""

    def scan_range(self, first: int, end: int) -> pa.Table:
        """Read the rows from a key to another without that one."""
        raise NotImplementedError

    def sum_score(self) -> float:
        """Add up one column."""
        raise NotImplementedError

    def tidy(self) -> None:
        """Make it as small as it gets."""
        self.settle()

    def read_bare(self) -> pa.Table:
        """Read the same files without the store, for those that consist of Parquet."""
        raise NotImplementedError
