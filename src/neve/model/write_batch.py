"""Write batches: the changes that become visible together, before they have sequence numbers.

A batch is a list of changes under one schema version. Each changed row takes one sequence number,
in the order of the batch; a later change of the same key wins. The number of an application's batch
takes one, too.
"""

from dataclasses import dataclass
from typing import NewType

import pyarrow as pa

from neve.errors import InvalidArgument

SequenceNumber = NewType("SequenceNumber", int)

# The internal key keeps 56 bits for the sequence; the last value is the seek sentinel.
SEQUENCE_MAX = SequenceNumber((1 << 56) - 2)
SCHEMA_VERSION_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class PutRow:
    """One row by its encoded key; the value is in the row codec."""

    key: bytes
    value: bytes

    @property
    def row_count(self) -> int:
        """Sequence numbers this change takes."""
        return 1


@dataclass(frozen=True, slots=True)
class DeleteRow:
    """One row to remove, by its encoded key."""

    key: bytes

    @property
    def row_count(self) -> int:
        """Sequence numbers this change takes."""
        return 1


@dataclass(frozen=True, slots=True)
class UpsertRows:
    """Whole rows as one Arrow batch."""

    rows: pa.RecordBatch

    @property
    def row_count(self) -> int:
        """Sequence numbers this change takes."""
        return self.rows.num_rows


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Keys to remove, as one Arrow batch of the key columns."""

    keys: pa.RecordBatch

    @property
    def row_count(self) -> int:
        """Sequence numbers this change takes."""
        return self.keys.num_rows


@dataclass(frozen=True, slots=True)
class PartialRows:
    """Rows with only the columns in `field_ids` (and the key).

    They also hold the required columns, as they were when the row was written.
    """

    rows: pa.RecordBatch
    field_ids: tuple[int, ...]

    @property
    def row_count(self) -> int:
        """Sequence numbers this change takes."""
        return self.rows.num_rows


@dataclass(frozen=True, slots=True)
class AppliedBatch:
    """The number of a batch of an application: its rows are the other changes of the write."""

    application: str
    batch: int

    @property
    def row_count(self) -> int:
        """Sequence numbers this change takes."""
        return 1


Change = PutRow | DeleteRow | UpsertRows | DeleteRows | PartialRows | AppliedBatch


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Changes that are logged, applied and seen together or not at all."""

    changes: tuple[Change, ...]
    schema_version: int = 0
    transaction: str | None = None
    """The transaction over several tables that these are a part of: they count if it is decided."""

    def __post_init__(self) -> None:
        if not 0 <= self.schema_version <= SCHEMA_VERSION_MAX:
            raise InvalidArgument(f"schema version {self.schema_version} is out of range")

    @property
    def row_count(self) -> int:
        """Sequence numbers the batch takes."""
        return sum(change.row_count for change in self.changes)
