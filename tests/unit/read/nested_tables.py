"""A table with fields inside of structs, its rows in a file, in memory or in both."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

import pyarrow as pa

import neve
from neve.model.arrow_types import ArrowField

PLACES = ("file", "memory", "both")
"""Where rows can be."""

_NUMBERS = count()
_INNER = pa.struct([("x", pa.float64()), ("zip.code", pa.int32())])
_FIELDS: list[ArrowField] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("s", pa.struct([("a", pa.int32()), ("name", pa.string()), ("in", _INNER)])),
    pa.field("s.flat", pa.int64()),
    pa.field("tags", pa.list_(pa.struct([("a", pa.int32())]))),
]


@contextmanager
def nested_table(place: str, rows: Sequence[Mapping[str, object]]) -> Iterator[neve.Table]:
    """Return a table whose rows are in a place of `PLACES`; in both, those after id 2 in memory."""
    with neve.open(f"memory://unit-nested-{next(_NUMBERS)}") as lake:
        table = lake.create_table(
            "a.b",
            pa.schema(_FIELDS),
            ["id"],
            options=neve.TableOptions(sync="none", background=False),
        )
        for row in rows:
            table.put(row)
            if place == "file" or (place == "both" and row["id"] == 2):
                table.flush()
        yield table
