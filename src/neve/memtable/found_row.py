"""What a memtable knows of a key: its row in one of two forms, or that it was deleted."""

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from neve.memtable.found_row import GivenColumns


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
