"""BulkRows: one task's share of a job: writes its rows to files, and finds what they supersede.

    rows, in the order of their keys ──► one row per key ──► files per partition ──► BulkWork
                                                                  └──► older rows of their keys

Rows come in batches of the table's schema. Keys are looked up file by file in the key indexes of
the Version that the job works on, without reading a data file.

JOBS-P1  Keys ascend, and each comes once; where rows come partition by partition, within each of
         them.
JOBS-P2  No two tasks of a job have rows of one key: the division of rows ensures that.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from neve.errors import InvalidArgument
from neve.jobs.run import BulkWork, JobBase
from neve.keys.arrays import concat_keys, same_keys
from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.model.data_file import DataFile, PartitionValue
from neve.sstable.data_file_writer import DataFileWriter
from neve.sstable.parquet_groups import one_batch
from neve.table.partitions import split_by_partition

KeyedRows = tuple[pa.RecordBatch, KeyArray]

_EXAMPLES_MAX: Final = 5


class BulkRows:
    """Takes the rows of one task, in order; for one thread."""

    def __init__(self, base: JobBase, *, by_partition: bool) -> None:
        """Begin; with `by_partition`, rows of one partition come together."""
        self._base = base
        self._by_partition = by_partition
        self._open: dict[tuple[PartitionValue, ...], DataFileWriter] = {}
        self._files: list[DataFile] = []
        self._marked: dict[str, BitMap64] = {}
        self._deleted: list[KeyArray] = []
        self._seen: list[KeyArray] = []

    def upsert(self, rows: pa.RecordBatch, keys: KeyArray) -> None:
        """Take rows of the base's schema with their keys (JOBS-P1); raises SchemaMismatch."""
        if not rows.num_rows:
            return
        base = self._base
        table = pa.Table.from_batches([rows])
        last: tuple[PartitionValue, ...] = ()
        last_position = -1
        for partition in split_by_partition(table, base.spec, base.schema):
            writer = self._open.get(partition.values)
            if writer is None:
                writer = self._open[partition.values] = base.data_files(partition)
            positions = partition.positions
            if positions is None:
                writer.append(table, keys)
                continue
            writer.append(table.take(positions), keys.take(positions))
            if positions[-1] > last_position:
                last, last_position = partition.values, int(positions[-1])
        if self._by_partition and last_position >= 0:
            for values in [each for each in self._open if each != last]:
                self._end(self._open.pop(values))

    def delete(self, keys: KeyArray) -> None:
        """Delete the rows of ascending keys."""
        if len(keys):
            self._deleted.append(keys)
            self._mark(keys)

    def see(self, keys: KeyArray) -> None:
        """Record keys whose rows the job read and leaves alone."""
        if len(keys):
            self._seen.append(keys)

    def finish(self) -> BulkWork:
        """End the last files and return the work of this task."""
        while self._open:
            _, writer = self._open.popitem()
            self._end(writer)
        return BulkWork(
            files=tuple(self._files),
            marked=self._marked,
            deleted_keys=tuple(self._deleted),
            seen_keys=tuple(self._seen),
        )

    def abort(self) -> None:
        """Delete what was written; what cannot be deleted now is garbage."""
        for writer in self._open.values():
            writer.abort()
        self._open.clear()
        self._base.files.writers.discard_files(self._files)
        self._files.clear()

    def _end(self, writer: DataFileWriter) -> None:
        for written in writer.finish():
            self._files.append(written.file)
            self._mark(written.keys)

    def _mark(self, keys: KeyArray) -> None:
        for path, positions in self._base.superseded(keys).items():
            self._marked[path] = self._marked.get(path, BitMap64()) | positions


def keyed_rows(rows: pa.RecordBatch, encoder: KeyEncoder) -> KeyedRows:
    """Return rows of the table's schema with their keys."""
    return rows, encoder.encode_arrays([rows.column(name) for name in encoder.names])


def last_of_each(
    pieces: Iterable[KeyedRows], encoder: KeyEncoder, *, refuses_more: bool
) -> Iterator[KeyedRows]:
    """Yield each key once, with the last of its rows, which lie next to each other.

    `refuses_more` raises InvalidArgument instead, with examples, when a key has several rows.
    """
    held: KeyedRows | None = None
    for piece in pieces:
        rows, keys = piece
        if not rows.num_rows:
            continue
        if held is not None:
            # The last row of the previous piece may have the same key.
            rows = one_batch(pa.Table.from_batches([held[0], rows]))
            keys = concat_keys([held[1], keys])
        count = rows.num_rows
        is_last = np.ones(count, np.bool_)
        is_last[:-1] = ~same_keys(keys.slice(0, count - 1), keys.slice(1))
        repeats = int(count - is_last.sum())
        if repeats and refuses_more:
            raise duplicate_keys(keys.filter(pa.array(~is_last)), encoder)
        held = rows.slice(count - 1), keys.slice(count - 1)
        is_last[-1] = False
        if repeats:
            chosen = pa.array(is_last)
            yield rows.filter(chosen), keys.filter(chosen)
        else:
            yield rows.slice(0, count - 1), keys.slice(0, count - 1)
    if held is not None:
        yield held


def sorted_by_key(pieces: Iterable[KeyedRows], *, order_by: Sequence[str] = ()) -> KeyedRows | None:
    """Sort all rows of a task by key, and rows of one key by columns; None without rows.

    Rows that are equal in all of them keep their order.
    """
    whole = [piece for piece in pieces if piece[0].num_rows]
    if not whole:
        return None
    rows = one_batch(pa.Table.from_batches([piece[0] for piece in whole]))
    keys = concat_keys([piece[1] for piece in whole])
    table = pa.table({"key": keys.cast(pa.large_binary())})
    for place, name in enumerate(order_by):
        by = rows.column(name)
        # NULL comes first.
        table = table.append_column(f"known{place}", pc.is_valid(by))
        table = table.append_column(f"by{place}", by)
    order: list[tuple[str, Literal["ascending", "descending"]]]
    order = [(name, "ascending") for name in table.column_names]
    try:
        places = pc.sort_indices(table, sort_keys=order)
    except pa.ArrowException as error:
        raise InvalidArgument(
            f"rows cannot be ordered by {', '.join(map(ascii, order_by))}: {error}",
            hint="Name columns of numbers, times or text",
        ) from error
    return rows.take(places), keys.take(places)


def duplicate_keys(keys: KeyArray, encoder: KeyEncoder) -> InvalidArgument:
    """Return the error for keys with several rows in the input."""
    some = keys.unique().slice(0, _EXAMPLES_MAX)
    shown = [encoder.decode(key) for key in some.to_pylist() if isinstance(key, bytes)]
    words = ", ".join(repr(each[0] if len(each) == 1 else tuple(each)) for each in shown)
    return InvalidArgument(
        f"the input has several rows of one key, such as {words}",
        hint="Pass order_by, a column that says which row is newest, or remove the others",
    )
