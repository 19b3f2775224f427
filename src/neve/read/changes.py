"""Changes of rows between Versions of a table, as Arrow: what a change feed gives.

For each commit, in the order of commits:

1. The rows it took away and those it brought, each side by key (see `neve.read.change_rows`).
2. Both sides are joined in windows of keys. A key on both was updated, one that was only brought is
   an insert, one that was only taken away a delete.

        taken     b  d  e              b  update_preimage, update_postimage
        brought   a  b  e  f           a  insert    d  delete    …

3. Of an update the row before comes first. After a rollback, equal rows are left out.

C1  Within a commit rows come by key, and never in another order.
C2  No window holds more than one block of rows of each side, whatever the commit is; small ones
    are joined, up to some thousand rows.
C3  Rows of two commits are never in one batch.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import SchemaMismatch
from neve.model.arrow_types import ArrowField
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema
from neve.read.change_plan import CommitChanges
from neve.read.change_rows import ChangeRows
from neve.read.row_keys import Flags, Positions, RowKeys, SortKey, paired_order

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"

_DELETE, _INSERT, _BEFORE, _AFTER = range(4)
_WORDS: Final = ("delete", "insert", "update_preimage", "update_postimage")
_BATCH_ROWS: Final = 65_536
_GATHERED_ROWS: Final = 16_384
_GATHERED_BYTES: Final = 8 << 20

_Codes = npt.NDArray[np.int8]


def feed_schema(schema: TableSchema) -> pa.Schema:
    """Give the columns of a feed: those of the table, and three that say what happened.

    Raises SchemaMismatch when the table has a column of such a name.
    """
    added: list[ArrowField] = [
        pa.field(CHANGE_TYPE, pa.string(), nullable=False),
        pa.field(COMMIT_VERSION, pa.int64(), nullable=False),
        pa.field(COMMIT_TIMESTAMP, pa.timestamp("ms", tz="UTC"), nullable=False),
    ]
    for field in added:
        if field.name in schema.arrow_schema.names:
            raise SchemaMismatch(
                f"the table has a column {field.name!a}, which a change feed adds",
                column=field.name,
                hint="rename the column: a feed has its own of that name",
            )
    return pa.schema([*schema.arrow_schema, *added])


def change_batches(commit: CommitChanges, rows: ChangeRows) -> Iterator[pa.RecordBatch]:
    """Give the changes of one commit, by key; no batch is empty."""
    schema = feed_schema(rows.context.schema)
    with (
        closing(rows.by_key(commit.taken)) as taken,
        closing(rows.by_key(commit.brought)) as brought,
    ):
        sides = _Side(taken, rows), _Side(brought, rows)
        codec = rows.context.codec if commit.drops_equal else None
        joined = (window.joined(codec) for window in _windows(*sides))
        labelled = (_labelled(table, codes, commit, schema) for table, codes in joined)
        for table in _gathered(labelled):
            yield from table.to_batches(max_chunksize=_BATCH_ROWS)


class _Side:
    """Rows of one side on their way: the block that is held, and what comes behind it."""

    __slots__ = ("_empty", "_rows", "_tables", "keys", "rows")

    def __init__(self, tables: Iterator[pa.Table], rows: ChangeRows) -> None:
        self._tables = tables
        self._rows = rows
        self._empty = rows.context.schema.arrow_schema.empty_table()
        self.rows = self._empty
        self.keys: RowKeys | None = None
        """None: nothing is held."""

    def hold(self) -> bool:
        """Hold the next block when there is none; False when the side has ended."""
        if self.keys is None:
            found = next(self._tables, None)
            if found is not None:
                self.rows = found
                self.keys = self._rows.keys(found)
        return self.keys is not None

    def cut(self, last: SortKey) -> tuple[pa.Table, RowKeys | None]:
        """Take the rows up to a key, and that one."""
        if self.keys is None:
            return self._empty, None
        place = self.keys.count_below(last, inclusive=True)
        taken = self.rows.slice(0, place), self.keys.between(0, place)
        if place == len(self.keys):
            self.rows, self.keys = self._empty, None
        else:
            self.rows, self.keys = self.rows.slice(place), self.keys.between(place, len(self.keys))
        return taken


class _Window:
    """Rows of both sides between two keys, complete."""

    __slots__ = ("_brought", "_brought_keys", "_taken", "_taken_keys")

    def __init__(
        self, taken: tuple[pa.Table, RowKeys | None], brought: tuple[pa.Table, RowKeys | None]
    ) -> None:
        self._taken, self._taken_keys = taken
        self._brought, self._brought_keys = brought

    def joined(self, codec: RowCodec | None) -> tuple[pa.Table, _Codes]:
        """Give the rows of both sides by key, and what happened to each.

        With a codec, keys whose rows are equal on both sides are left out.
        """
        taken, brought = self._taken, self._brought
        if self._taken_keys is None or not taken.num_rows:
            return brought, np.full(brought.num_rows, _INSERT, np.int8)
        if self._brought_keys is None or not brought.num_rows:
            return taken, np.full(taken.num_rows, _DELETE, np.int8)
        order, paired = paired_order(self._taken_keys, self._brought_keys)
        if codec is not None and paired.any():
            kept = self._differ(order, paired, codec)
            order, paired = order[kept], paired[kept]
        is_brought = order >= taken.num_rows
        codes = is_brought.astype(np.int8)  # _DELETE or _INSERT
        codes[paired] += _BEFORE  # _BEFORE or _AFTER
        return pa.concat_tables([taken, brought]).take(order), codes

    def _differ(self, order: Positions, paired: Flags, codec: RowCodec) -> Flags:
        """Tell which places in the order are no half of a pair of equal rows."""
        places = np.flatnonzero(paired).reshape(-1, 2)
        before = self._taken.take(order[places[:, 0]])
        after = self._brought.take(order[places[:, 1]] - self._taken.num_rows)
        kept = np.ones(len(order), np.bool_)
        kept[places[_equal_rows(before, after, codec)]] = False
        return kept


def _equal_rows(before: pa.Table, after: pa.Table, codec: RowCodec) -> Flags:
    """Tell row by row whether two tables of one schema have the same values."""
    is_same = np.ones(before.num_rows, np.bool_)
    is_plain = True
    for left, right in zip(before.columns, after.columns, strict=True):
        if pa.types.is_nested(left.type) or isinstance(left.type, pa.BaseExtensionType):
            is_plain = False
            continue
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        equal = pc.coalesce(pc.equal(left, right), both_null)
        is_same &= equal.to_numpy()
    # Bytes say it of every type, nested ones and NaN too.
    unsure = np.flatnonzero(~is_same) if is_plain else np.arange(before.num_rows)
    if len(unsure):
        encoded = map(
            bytes.__eq__,
            _encoded(before.take(unsure), codec),
            _encoded(after.take(unsure), codec),
        )
        is_same[unsure] = np.fromiter(encoded, np.bool_, len(unsure))
    return is_same


def _windows(taken: _Side, brought: _Side) -> Iterator[_Window]:
    while True:
        held = [side.keys for side in (taken, brought) if side.hold() and side.keys is not None]
        if not held:
            return
        # Up to the smaller of both last keys nothing more can come on either side.
        last = min(keys.at(-1) for keys in held)
        yield _Window(taken.cut(last), brought.cut(last))


def _encoded(rows: pa.Table, codec: RowCodec) -> list[bytes]:
    encoded: list[bytes] = []
    for batch in rows.to_batches():
        encoded += codec.encode_batch(batch)
    return encoded


def _labelled(table: pa.Table, codes: _Codes, commit: CommitChanges, schema: pa.Schema) -> pa.Table:
    count = table.num_rows
    labels = [
        pa.array(_WORDS, pa.string()).take(codes),
        pa.repeat(pa.scalar(commit.version, pa.int64()), count),
        pa.repeat(pa.scalar(commit.timestamp_ms, pa.timestamp("ms", tz="UTC")), count),
    ]
    return pa.table([*table.columns, *labels], schema=schema)


def _gathered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Join small tables until they are worth a batch; no table that is given is empty."""
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
