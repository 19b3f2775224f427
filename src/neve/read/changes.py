"""Changes of rows between Versions of a table, as Arrow: the content of a change feed.

For each commit, in the order of commits:

1. Read the rows it removed and added, as sorted runs (see `neve.read.change_rows`).
2. Cut all runs into windows of keys (see `neve.keys.merge`), and sort the rows of a window once. A
   key on both sides is an update, one that was only added an insert, one that was only removed a
   delete.

        removed   b  d  e              b  update_preimage, update_postimage
        added     a  b  e  f           a  insert    d  delete    …

3. For an update the row before comes first. After a rollback, equal rows are left out.
4. In a table whose rows expire, one more column says of each delete whether the row had expired.

Live changes are those of a commit that is not made yet: it would add the rows in memory, and remove
the rows of files with keys that were written or deleted. Version and time of them are NULL.

READ-C1  Within a commit, rows are ordered by key.
READ-C2  No window holds more than a block of rows of each run, and one of small blocks, for any
         commit.
READ-C3  Rows of two commits are never in one batch.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import SchemaMismatch
from neve.keys.merge import Window, ordered_windows, rows_by_key
from neve.keys.order import paired_order
from neve.model.arrow_buffers import Flags, Positions
from neve.model.arrow_types import ArrowField
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray
from neve.read.change_plan import CommitChanges
from neve.read.change_rows import ChangeRows
from neve.read.memory_rows import MemoryRows

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
EXPIRED: Final = "_expired"

_DELETE, _INSERT, _BEFORE, _AFTER = range(4)
_WORDS: Final = ("delete", "insert", "update_preimage", "update_postimage")
_BATCH_ROWS: Final = 65_536
_GATHERED_ROWS: Final = 16_384
_GATHERED_BYTES: Final = 8 << 20

_Codes = npt.NDArray[np.int8]


def feed_schema(schema: TableSchema, *, live: bool = False) -> pa.Schema:
    """Return the columns of a feed: those of the table, and those that say what happened.

    They are three, and a fourth where rows expire. Version and time are NULL for live changes
    only. Raises SchemaMismatch when the table has a column of such a name.
    """
    added: list[ArrowField] = [
        pa.field(CHANGE_TYPE, pa.string(), nullable=False),
        pa.field(COMMIT_VERSION, pa.int64(), nullable=live),
        pa.field(COMMIT_TIMESTAMP, pa.timestamp("ms", tz="UTC"), nullable=live),
    ]
    if schema.rules.ttl is not None:
        added.append(pa.field(EXPIRED, pa.bool_(), nullable=False))
    for field in added:
        if field.name in schema.arrow_schema.names:
            raise SchemaMismatch(
                f"the table has a column {field.name!a}, which a change feed adds",
                column=field.name,
                hint="Rename the column: a feed has its own of that name",
            )
    return pa.schema([*schema.arrow_schema, *added])


def change_batches(
    commit: CommitChanges, rows: ChangeRows, schema: pa.Schema, *, memory: MemoryRows | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of one commit, by key, in the schema of a feed; no batch is empty.

    `memory` has rows that it adds, beside those of files.
    """
    taken, brought = rows.runs(commit.taken), rows.runs(commit.brought)
    if memory is not None:
        brought.append(rows.run_in_memory(memory))
    codec = rows.context.codec if commit.drops_equal else None
    labels = _Labels(commit, schema)
    with closing(ordered_windows([*taken, *brought])) as windows:
        joined = (part for window in windows for part in _joined(window, len(taken), codec))
        labelled = (labels.on(table, codes) for table, codes in joined)
        for table in _gathered(labelled):
            yield from table.to_batches(max_chunksize=_BATCH_ROWS)


def _joined(
    window: Window, first_brought: int, codec: RowCodec | None
) -> Iterator[tuple[pa.Table, _Codes | int]]:
    """Yield the rows of both sides by key, and what happened to each or to all.

    With a codec, keys whose rows are equal on both sides are left out.
    """
    taken = [block for number, block in window if number < first_brought]
    brought = [block for number, block in window if number >= first_brought]
    if not taken or not brought:
        what = _DELETE if taken else _INSERT
        yield from ((table, what) for table in rows_by_key(taken or brought))
        return
    order, paired = paired_order([keys for _, keys in taken], [keys for _, keys in brought])
    rows = pa.concat_tables([each for each, _ in (*taken, *brought)])
    taken_count = sum(len(keys) for _, keys in taken)
    if codec is not None and paired.any():
        kept = _differ(rows, order, paired, codec)
        order, paired = order[kept], paired[kept]
    codes = (order >= taken_count).astype(np.int8)  # _DELETE or _INSERT
    codes[paired] += _BEFORE  # _BEFORE or _AFTER
    yield rows.take(order), codes


def _differ(rows: pa.Table, order: Positions, paired: Flags, codec: RowCodec) -> Flags:
    """Return which places in the order are not half of a pair of equal rows."""
    places = np.flatnonzero(paired).reshape(-1, 2)
    before, after = rows.take(order[places[:, 0]]), rows.take(order[places[:, 1]])
    kept = np.ones(len(order), np.bool_)
    kept[places[equal_rows(before, after, codec)]] = False
    return kept


def equal_rows(before: pa.Table, after: pa.Table, codec: RowCodec) -> Flags:
    """Return row by row whether two tables of one schema have the same values."""
    is_same = np.ones(before.num_rows, np.bool_)
    is_plain = True
    for left, right in zip(before.columns, after.columns, strict=True):
        if pa.types.is_nested(left.type) or isinstance(left.type, pa.BaseExtensionType):
            is_plain = False
            continue
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        equal = pc.coalesce(pc.equal(left, right), both_null)
        is_same &= equal.to_numpy()
    # Bytes decide it for every type, nested ones and NaN too.
    unsure = np.flatnonzero(~is_same) if is_plain else np.arange(before.num_rows)
    if len(unsure):
        encoded = map(
            bytes.__eq__,
            _encoded(before.take(unsure), codec),
            _encoded(after.take(unsure), codec),
        )
        is_same[unsure] = np.fromiter(encoded, np.bool_, len(unsure))
    return is_same


def _encoded(rows: pa.Table, codec: RowCodec) -> list[bytes]:
    encoded: list[bytes] = []
    for batch in rows.to_batches():
        encoded += codec.encode_batch(batch)
    return encoded


class _Labels:
    """The columns that say what happened, for the rows of one commit."""

    __slots__ = ("_is_expiry", "_schema", "_timestamp", "_version")

    def __init__(self, commit: CommitChanges, schema: pa.Schema) -> None:
        self._schema = schema
        self._is_expiry = pa.scalar(commit.is_expiry)
        self._version = pa.scalar(commit.version, pa.int64())
        self._timestamp = pa.scalar(commit.timestamp_ms, pa.timestamp("ms", tz="UTC"))

    def on(self, table: pa.Table, codes: _Codes | int) -> pa.Table:
        """Append the labels to the columns of rows."""
        count = table.num_rows
        labels: list[ArrowArray] = [
            _words(codes, count),
            pa.repeat(self._version, count),
            pa.repeat(self._timestamp, count),
        ]
        if len(self._schema) > table.num_columns + len(labels):
            # A commit that removes expired rows does nothing else.
            labels.append(pa.repeat(self._is_expiry, count))
        return pa.table([*table.columns, *labels], schema=self._schema)


def _words(codes: _Codes | int, count: int) -> "pa.Array[pa.StringScalar]":
    if isinstance(codes, int):
        return pa.repeat(pa.scalar(_WORDS[codes], pa.string()), count)
    return pa.array(_WORDS, pa.string()).take(codes)


def _gathered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Join small tables until they are worth a batch; no input table is empty."""
    waiting: list[pa.Table] = []
    row_count = byte_count = 0
    for table in tables:
        if not table.num_rows:
            continue
        waiting.append(table)
        row_count += table.num_rows
        byte_count += table.nbytes
        if row_count >= _GATHERED_ROWS or byte_count >= _GATHERED_BYTES:
            yield _one(waiting)
            waiting, row_count, byte_count = [], 0, 0
    if waiting:
        yield _one(waiting)


def _one(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
