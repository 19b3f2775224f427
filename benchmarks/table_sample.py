"""Rows for the table benchmarks, drawn from one seed, and what a right answer looks like.

    id        even numbers in a random order, so that odd ones are missing
    name      12 to 28 hexadecimal digits
    score     float64 below 1,000
    visits    int32 below 1,000
    payload   100 hexadecimal digits: half of their bytes can be pressed out

Expectations are made from these rows with Arrow alone, never with a store.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness import SEED
from benchmarks.peers.table_rows import (
    BASE,
    CHANGES,
    DELETE,
    KEYS,
    ORDER,
    SCHEMA,
    UPDATES,
    digest,
    read_rows,
    shown_sum,
    write_rows,
)

KEY_COUNT: Final = 100_000
SMALL_SHARE: Final = 10
"""Slow stores hold one row in this many."""
WIDE_ROWS: Final = 10
SPREAD_ROWS: Final = 2
"""Rows of tables with many columns."""
ROW_BYTES: Final = 8 + 20 + 8 + 4 + 100
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_PAYLOAD_BYTES: Final = 100
_NAME_LENGTHS: Final = (12, 29)
_UPDATED: Final = 10
_CHANGED: Final = 5
_INSERTED: Final = 0.2
_DELETED: Final = 0.2
CHANGE_WINDOW: Final = 10_000
"""Changes arrive out of order only within so many."""
_STRIDE: Final = 999_983


def make_rows(ids: npt.NDArray[np.int64], generator: np.random.Generator) -> pa.Table:
    """Draw a row for each id."""
    count = len(ids)
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(generator.integers(*_NAME_LENGTHS, count), out=ends[1:])
    names = _DIGITS[generator.integers(0, 16, ends[-1], dtype=np.uint8)]
    payload_ends = np.arange(count + 1, dtype=np.int32) * np.int32(_PAYLOAD_BYTES)
    payloads = _DIGITS[generator.integers(0, 16, count * _PAYLOAD_BYTES, dtype=np.uint8)]
    return pa.table(
        [
            pa.array(ids),
            _texts(pa.string(), ends, names),
            pa.array(generator.random(count) * 1_000),
            pa.array(generator.integers(0, 1_000, count, dtype=np.int32)),
            _texts(pa.binary(), payload_ends, payloads),
        ],
        schema=SCHEMA,
    )


def make_changes(ids: npt.NDArray[np.int64], generator: np.random.Generator) -> pa.Table:
    """Draw a feed of changes to rows with these ids: updates, inserts, and deletes of some.

    Keys occur several times. Within a window of a batch's size the order of arrival is not that of
    the changes; across windows it is.
    """
    count = max(len(ids) // _CHANGED, 1)
    draw = generator.random(count)
    # Odd ids are not in the base; half of the deletes are of rows that were inserted here.
    new = generator.integers(0, len(ids), count) * 2 + 1
    is_new = (draw < _INSERTED) | (draw > 1 - _DELETED / 2)
    chosen = np.where(is_new, new, generator.choice(ids, count))
    op = np.where(draw > 1 - _DELETED, DELETE, np.where(is_new, "c", "u"))
    rows = make_rows(chosen, generator)
    feed = pa.table(
        [pa.array(op.tolist(), pa.string()), pa.array(np.arange(1, count + 1)), *rows.columns],
        names=["op", ORDER, *SCHEMA.names],
    )
    starts = np.arange(count) // CHANGE_WINDOW
    return feed.take(np.lexsort((generator.random(count), starts)))


def last_of_each(changes: pa.Table) -> pa.Table:
    """Return the last change of each key."""
    _, places = np.unique(changes["id"].to_numpy()[::-1], return_index=True)
    return changes.take(changes.num_rows - 1 - places)


def _texts(
    kind: pa.DataType, ends: npt.NDArray[np.int32], content: npt.NDArray[np.uint8]
) -> "pa.Array[Any]":
    buffers = [None, pa.py_buffer(ends.data), pa.py_buffer(content.data)]
    return pa.Array.from_buffers(kind, len(ends) - 1, buffers)


@dataclass(frozen=True)
class TableSample:
    """The files of a sample, and digests of what stores must answer."""

    directory: Path

    @classmethod
    def make(cls, directory: Path, rows: int) -> "TableSample":
        """Write the files of a sample."""
        generator = np.random.default_rng(SEED)
        ids = generator.permutation(rows).astype(np.int64) * 2
        updated = generator.choice(ids, max(rows // _UPDATED, 1), replace=False)
        # From the first rows, in no order too: stores that hold only some have those.
        first = ids[: max(rows // SMALL_SHARE, 1)]
        keys = generator.choice(first, min(KEY_COUNT, len(first)), replace=False)
        directory.mkdir()
        write_rows(directory / BASE, make_rows(ids, generator))
        write_rows(directory / UPDATES, make_rows(updated, generator))
        write_rows(directory / KEYS, pa.table({"id": keys}))
        write_rows(directory / CHANGES, make_changes(ids, np.random.default_rng((SEED, rows))))
        return cls(directory)

    @cached_property
    def base(self) -> pa.Table:
        """Every row."""
        return read_rows(self.directory / BASE)

    @cached_property
    def updates(self) -> pa.Table:
        """Rows that replace others."""
        return read_rows(self.directory / UPDATES)

    @cached_property
    def keys(self) -> list[int]:
        """Keys to ask for, none twice."""
        return cast("list[int]", read_rows(self.directory / KEYS).column("id").to_pylist())

    def loaded(self, rows: int) -> pa.Table:
        """Return the rows of a table that was loaded with the first of them."""
        return self.base.slice(0, rows)

    @cached_property
    def updated(self) -> pa.Table:
        """All rows after the updates."""
        return pa.concat_tables([without(self.base, self.updates.column("id")), self.updates])

    @cached_property
    def changes(self) -> pa.Table:
        """A feed of changes to the base, in the order of its arrival."""
        return read_rows(self.directory / CHANGES)

    def applied(self) -> str:
        """Return the digest of all rows after the changes, each key as its newest one says."""
        newest = last_of_each(self.changes.sort_by(ORDER))
        left = newest.filter(pc.not_equal(newest["op"], pa.scalar(DELETE)))
        return digest(self._replaced(newest, left))

    def upserted(self) -> str:
        """Return the digest of all rows after those of the changes were upserted as they came."""
        newest = last_of_each(self.changes)
        return digest(self._replaced(newest, newest))

    def _replaced(self, changed: pa.Table, left: pa.Table) -> pa.Table:
        kept = without(self.base, changed["id"])
        return pa.concat_tables([kept, left.select(SCHEMA.names).cast(SCHEMA)])

    def written(self, rows: int, shares: Sequence[int]) -> str:
        """Return the digest of what threads have written, each so many of its share."""
        threads = len(shares)
        places = np.concatenate(
            [np.arange(count, dtype=np.int64) * threads + at for at, count in enumerate(shares)]
        )
        return digest(self.loaded(rows).take(pa.array(places)))


def without(rows: pa.Table, ids: "pa.ChunkedArray[Any]") -> pa.Table:
    """Return the rows that have none of these ids."""
    return rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=ids.combine_chunks())))


def of_keys(rows: pa.Table, keys: Sequence[int]) -> pa.Table:
    """Return the rows of keys, in their order; all must be there."""
    places = pc.index_in(pa.array(keys, pa.int64()), value_set=rows.column("id").combine_chunks())
    return rows.take(places)


def between(rows: pa.Table, first: int, end: int) -> pa.Table:
    """Return the rows with ids from the first to the end without it."""
    ids = rows.column("id")
    return rows.filter(
        pc.and_(pc.greater_equal(ids, pa.scalar(first)), pc.less(ids, pa.scalar(end)))
    )


def score_sum(rows: pa.Table) -> str:
    """Return the sum of the scores, as it is compared."""
    return shown_sum(float(pc.sum(rows.column("score")).as_py()))


def grown_rows(start: int, stop: int, *, rows: int) -> pa.Table:
    """Return some rows of a table that is too large to be made at once: ids in no order."""
    places = np.arange(start, stop, dtype=np.int64)
    # A prime that divides no size in use visits every id once, far from the one before.
    ids = places * _STRIDE % rows * 2
    return make_rows(ids, np.random.default_rng((SEED, start)))


def grown_total(rows: int, *, batch_rows: int) -> str:
    """Return what a scan of a grown table must add up to."""
    visits = 0
    for start in range(0, rows, batch_rows):
        made = grown_rows(start, min(start + batch_rows, rows), rows=rows)
        visits += int(pc.sum(made.column("visits")).as_py())
    return shown_total(rows, rows * (rows - 1), visits)


def wide_total(columns: int) -> str:
    """Return what a scan of a wide table must add up to."""
    total = sum(range(WIDE_ROWS))
    return shown_total(WIDE_ROWS, total, (columns - 1) * total)


def spread_total(files: int, *, partitions: int) -> str:
    """Return what a scan of a table of many files must add up to."""
    rows = SPREAD_ROWS * files
    parts = rows // partitions * sum(range(partitions))
    return shown_total(rows, rows * (rows - 1) // 2, parts)


def shown_total(rows: int, ids: int, visits: int) -> str:
    """Return what is compared of a grown table: rows, sum of ids, sum of visits."""
    return f"{rows} rows, ids {ids}, visits {visits}"
