"""TableFiles: the files of one table with everything that reads and writes them.

The live engine, jobs, workers and plans for other engines each make one of these from the table's
parts, and read and write files only through it:

    definitions    schemas and partition specs by id, parsed once
    context(id)    how rows are read under a schema, made once
    reader(file)   a data file, opened once; its vector with `marked` and `keep_mask`
    writers        new data files and vectors
    view(version)  the rows of a Version

A reader stays open while it is used; the most recently used of the others are kept. A data file
never changes, so there is one reader per path, whatever vector the file has in a Version.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from threading import Lock
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from neve.errors import Corruption, NeveError
from neve.keys.arrays import concat_keys, key_at, key_objects
from neve.keys.columns import KeyArray
from neve.memtable.memtable import Memtable
from neve.model.arrow_buffers import Flags, Positions
from neve.model.data_file import DataFile, FileFormat, VectorRef
from neve.model.row_rules import cutoff_at
from neve.model.schema import TableSchema
from neve.model.version import Version
from neve.observability.metrics import SSTABLE_INDEX_BYTES
from neve.sstable.data_file_reader import DataFileReader, Wanted
from neve.sstable.deletion_vector import VectorCache, bitmap_of, positions_in, superseded_rows
from neve.sstable.index_file import IndexFiles
from neve.sstable.parquet_groups import GroupCache
from neve.sstable.remembered_deletes import RememberedDeletes, read_deletes
from neve.storage.clock import IdSource
from neve.storage.object_store import CountsRequests
from neve.table.file_set import FileSet
from neve.table.file_writers import FileWriters
from neve.table.partitions import PartitionedKeys
from neve.table.row_order import (
    Orders,
    RowOrder,
    greatest,
    joined_orders,
    loses,
    no_orders,
    placed_orders,
)
from neve.table.table_context import TableContext, TableParts
from neve.table.table_view import TableView

logger = logging.getLogger(__name__)

FILE_BYTES: Final = 64 << 20
FILE_BYTES_PROPERTY: Final = "write.target-file-size-bytes"
_CACHE_BYTES: Final = 64 << 20
_READERS_KEPT: Final = 1_024


class TableFiles:
    """Files of one table; safe for many threads."""

    def __init__(
        self,
        parts: TableParts,
        schema_id: int,
        *,
        cache_bytes: int = _CACHE_BYTES,
        file_bytes: int = FILE_BYTES,
        ids: IdSource | None = None,
    ) -> None:
        """Take any schema of the table: all have the same key columns.

        `ids` name new files, by default those of the table's parts.
        """
        # Fixed at construction.
        self.parts = parts
        self.definitions = parts.definitions
        # Safe without a lock: a context made twice is the same.
        self._contexts: dict[int, TableContext] = {}
        context = self.context(schema_id)
        self.partitions = context.partitions
        """What a key says of the partition of its row."""
        self._encoder = context.encoder
        self._hashes = context.hashes
        self.writers = FileWriters(
            parts, encoder=context.encoder, file_bytes=file_bytes, ids=ids or parts.ids
        )
        self._index_files = IndexFiles(parts.objects, parts.paths, context.encoder)
        self.groups = GroupCache(cache_bytes)
        self.vectors = VectorCache(parts.objects, parts.paths, bytes_max=max(cache_bytes // 4, 1))
        # Guarded by _lock.
        self._lock = Lock()
        self._readers: OrderedDict[str, DataFileReader] = OrderedDict()
        self._remembered: OrderedDict[str, RememberedDeletes] = OrderedDict()
        self._remembered_bytes_max = max(cache_bytes // 4, 1)

    # Rows

    def context(self, schema_id: int) -> TableContext:
        """Return how rows are read under a schema; raises Corruption for an unknown one."""
        found = self._contexts.get(schema_id)
        if found is None:
            found = TableContext(self.definitions.schema(schema_id), self.definitions)
            self._contexts[schema_id] = found
        return found

    def file_set(self, version: Version, *, before: FileSet | None = None) -> FileSet:
        """Arrange the files of a Version; probes of files that `before` has are reused."""
        return FileSet(version, self, self.partitions, before=before)

    def view(self, version: Version, schema_id: int | None = None) -> TableView:
        """Return the rows of a Version's files, by default under the Version's own schema."""
        context = self.context(version.facts.schema_id if schema_id is None else schema_id)
        return TableView((), self.file_set(version), context)

    # Open files

    def reader(self, file: DataFile) -> DataFileReader:
        """Open a data file, or return the one that is open; raises NotFound, Corruption."""
        with self._lock:
            found = self._readers.get(file.path)
            if found is not None:
                self._readers.move_to_end(file.path)
                return found
        # Outside the lock: opening reads. Two threads that open one file at once use the first's.
        opened = DataFileReader(
            file,
            store=self.parts.objects,
            paths=self.parts.paths,
            schema=self.definitions.schema(file.schema_id),
            encoder=self._encoder,
            group_cache=self.groups,
            recorder=self.parts.recorder,
        )
        with self._lock:
            reader = self._readers.setdefault(file.path, opened)
            while len(self._readers) > _READERS_KEPT:
                self._readers.popitem(last=False)
        return reader

    def remembered(self, file: DataFile) -> RememberedDeletes:
        """Return the deletes of a file; those of the most recently used files are kept."""
        with self._lock:
            found = self._remembered.get(file.path)
            if found is not None:
                self._remembered.move_to_end(file.path)
                return found
        read = read_deletes(file, store=self.parts.objects, paths=self.parts.paths)
        with self._lock:
            self._remembered[file.path] = read
            size = sum(each.nbytes for each in self._remembered.values())
            while size > self._remembered_bytes_max and len(self._remembered) > 1:
                size -= self._remembered.popitem(last=False)[1].nbytes
        return read

    def found_orders(
        self, view: TableView, keys: KeyArray, order: RowOrder, sequence: int = 0
    ) -> tuple[Orders, Flags]:
        """Return how new the row or remembered delete of unique keys is, and which have a row."""
        rows, places = view.get_many(keys, sequence, columns=list(order.names))
        orders = placed_orders(len(keys), places, order.of_rows(rows))
        has_row = np.zeros(len(keys), np.bool_)
        has_row[places] = True
        absent = np.flatnonzero(~has_row)
        if len(absent):
            deletes = self._deleted_orders(view, keys.take(absent), order)
            if deletes is not None:
                orders = greatest(orders, placed_orders(len(keys), absent, deletes))
        return orders, has_row

    def _deleted_orders(self, view: TableView, keys: KeyArray, order: RowOrder) -> Orders | None:
        """Return how new the newest remembered delete of each key is; None without any."""
        files = view.files.version.deletes.values()
        found = [
            *(self.orders_in_memory(each, keys, order) for each in view.memtables),
            *(self.remembered_orders(each, keys, order) for each in files),
        ]
        known = [each for each in found if each is not None]
        return reduce(greatest, known) if known else None

    def deleted_order(self, view: TableView, key: bytes, order: RowOrder) -> bytes | None:
        """Return how new the newest remembered delete of a key is; None without one."""
        if not view.files.version.deletes and not any(
            memtable.deleted_orders for memtable in view.memtables
        ):
            return None
        keys = cast("KeyArray", pa.array([key], pa.large_binary()))
        found = self._deleted_orders(view, keys, order)
        return None if found is None else found[0].as_py()

    def orders_in_memory(
        self, memtable: Memtable, keys: KeyArray, order: RowOrder
    ) -> Orders | None:
        """Return how new the last deletes of keys in a memtable are; None without any."""
        known = memtable.deleted_orders
        if not known:
            return None
        # A loop over the keys: each is one dict lookup.
        found = pa.array(map(known.get, key_objects(keys)), pa.large_binary())
        return self.orders_under(memtable.schema, found, order)

    def joined_deletes(self, group: Sequence[DataFile], order: RowOrder) -> DataFile:
        """Write the deletes of several files as one, which is as young as the youngest."""
        keys: list[KeyArray] = []
        orders: list[Orders] = []
        for file in group:
            deletes = self.remembered(file)
            source = self.definitions.schema(file.schema_id)
            known = self.orders_under(source, deletes.orders, order)
            if known is not None:
                keys.append(deletes.keys)
                orders.append(known)
        joined = RememberedDeletes.newest(concat_keys(keys), joined_orders(orders))
        written = self.writers.deletes(joined, schema_id=order.schema.schema_id)
        return replace(
            written,
            commit_ms_min=min(file.commit_ms_min for file in group),
            commit_ms_max=max(file.commit_ms_max for file in group),
        )

    def remembered_orders(self, file: DataFile, keys: KeyArray, order: RowOrder) -> Orders | None:
        """Return how new the deletes of keys in a file are; None when it has none of them."""
        deletes = self.remembered(file)
        hits, places = deletes.find(keys)
        found = deletes.orders.take(places) if len(hits) else None
        if found is not None:
            source = self.definitions.schema(file.schema_id)
            found = self.orders_under(source, found, order)
        return None if found is None else placed_orders(len(keys), hits, found)

    def orders_under(self, source: TableSchema, found: Orders, order: RowOrder) -> Orders | None:
        """Return orders of one schema as another one has them; None if it orders otherwise."""
        if source.rules.order_by != order.schema.rules.order_by:
            return None
        if source.schema_id == order.schema.schema_id:
            return found
        columns = RowOrder(source).columns_of(found)
        wanted = pa.schema([order.schema.column(name).arrow_field for name in order.names])
        return order.of_rows(pa.table(columns, list(order.names)).cast(wanted))

    def orders_at(self, file: DataFile, positions: Positions, order: RowOrder) -> Orders:
        """Return how new the rows at positions of a data file are."""
        mapping = self.context(order.schema.schema_id).mapping_from(file.schema_id)
        names = list(order.names)
        rows = self.reader(file).take(positions, mapping.source_names(names))
        return order.of_rows(mapping.table(rows, names))

    def marked(self, file: DataFile) -> BitMap64 | None:
        """Positions that the file's vector marks; None without one."""
        return None if file.vector is None else self.vectors.positions(file)

    def keep_mask(self, file: DataFile) -> npt.NDArray[np.bool_] | None:
        """One flag per row, false for those the vector marks; None when no row is marked."""
        return None if file.vector is None else self.vectors.mask(file)

    def keys_of(self, file: DataFile, positions: Sequence[int]) -> list[bytes]:
        """Return the keys at ascending positions of a file."""
        keys = self.reader(file).keys_at(np.array(positions, np.int64))
        return [key_at(keys, place) for place in range(len(keys))]

    def superseded(self, version: Version, keys: KeyArray) -> dict[str, BitMap64]:
        """Find the live rows of ascending keys in a Version, by path of their file."""
        return superseded_rows(
            version.files.values(),
            keys,
            open_reader=self.reader,
            vector_of=self.marked,
            keys_for=PartitionedKeys(keys, self.partitions).keys_for,
        )

    def index_problem(self, file: DataFile) -> NeveError | None:
        """Read the index file of a data file whole; returns what makes it useless."""
        return self._index_files.problem(file, self.definitions.schema(file.schema_id))

    def rebuild_indexes(self, files: Iterable[DataFile]) -> list[str]:
        """Write useless index files again; returns the paths of their data files."""
        return self._index_files.rebuild_useless(files, self.definitions.schema)

    def index_once(self, version: Version, *, row_bytes_max: int | None) -> bool:
        """Write one index file that reads of a Version's files lack; False when there is none.

        Rows are added while all of them take at most `row_bytes_max`, by default as much as the
        data files of the Version. Raises Corruption for a damaged data file, once.
        """
        with self._lock:
            readers = [each for each in self._readers.values() if each.file.path in version.files]
        wanting = {each: each.wants for each in readers}
        missing = [each for each, wanted in wanting.items() if wanted is Wanted.KEYS]
        crowded = [each for each, wanted in wanting.items() if wanted is Wanted.ROWS]
        if not missing and crowded:
            if row_bytes_max is None:
                row_bytes_max = sum(file.file_bytes for file in version.files.values())
            left = row_bytes_max - self._index_files.row_bytes(version.files)
            crowded = [each for each in crowded if each.row_bytes <= left]
        for reader in (*missing, *crowded)[:1]:
            schema = self.definitions.schema(reader.file.schema_id)
            with_rows = not missing
            try:
                size = self._index_files.rebuild(reader.file, schema, with_rows=with_rows)
            except Corruption:
                reader.want_nothing()
                raise
            self.parts.recorder.add(SSTABLE_INDEX_BYTES, size)
            reader.open_index_again()
            if with_rows:
                self.groups.drop_file(reader.file.path)
            logger.info("wrote index file=%s rows=%s bytes=%d", reader.file.path, with_rows, size)
            return True
        return False

    def drop_indexes(self, paths: Iterable[str]) -> None:
        """Delete the index files of data files that only older Versions have.

        Readers of those keep what they have open, and build the others in memory. In a bucket they
        stay until their data files are deleted: requests cost more than the space.
        """
        if isinstance(self.parts.objects, CountsRequests):
            return
        for path in paths:
            if path.startswith("data/"):
                with suppress(NeveError):
                    self.parts.objects.delete(self.parts.paths.index_of(path))

    def forget(self, paths: Iterable[str]) -> None:
        """Close files that no Version in use reaches."""
        with self._lock:
            gone = [self._readers.pop(path, None) for path in paths]
        for reader in gone:
            if reader is not None:
                self.groups.drop_file(reader.file.path)

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            self._readers.clear()
            self._remembered.clear()
        self.groups.clear()
        self.vectors.clear()

    # Methods for a rebase (neve.manifest.rebase.RowLookup).

    def positions_of(self, file: DataFile, keys: KeyArray) -> BitMap64:
        """Positions of the rows of these keys in a file, marked ones included."""
        return bitmap_of(self.reader(file).positions_of(keys))

    def keys_at(self, file: DataFile, positions: BitMap64) -> KeyArray:
        """Keys of the rows at these positions."""
        return self.reader(file).keys_at(positions_in(positions))

    def vector(self, file: DataFile) -> BitMap64:
        """Positions that the file's vector marks; empty without one."""
        return self.marked(file) or BitMap64()

    def older_rows(
        self, own: DataFile, other: DataFile, schema_id: int
    ) -> tuple[BitMap64, BitMap64]:
        """Compare the live rows of two files that have one key, by the order of a schema.

        Return the positions of own rows that are older, and of the other's that are not newer. A
        row of the other that has expired is not newer than any.
        """
        schema = self.definitions.schema(schema_id)
        order = RowOrder.of(schema)
        small, large = sorted((own, other), key=lambda file: file.row_count)
        hits, places = self._find_all(large, self._all_keys(small))
        places_of = {small.path: hits, large.path: places}
        is_live = np.ones(len(hits), np.bool_)
        for file in (own, other):
            mask = None if file.vector is None else self.keep_mask(file)
            if mask is not None:
                is_live &= mask[places_of[file.path]]
        mine, theirs = places_of[own.path][is_live], places_of[other.path][is_live]
        lost = np.zeros(len(mine), np.bool_)
        if order is not None and len(mine):
            lost = loses(self._orders_in(own, mine, order), self._orders_in(other, theirs, order))
            lost &= ~self._have_expired(other, theirs, schema)
        return bitmap_of(np.sort(mine[lost])), bitmap_of(np.sort(theirs[~lost]))

    def places_in(self, file: DataFile, keys: KeyArray) -> Positions:
        """Return which of the keys a file has, marked ones included."""
        return self._find_all(file, keys)[0]

    def _all_keys(self, file: DataFile) -> KeyArray:
        if file.format is not FileFormat.REMEMBERED:
            return self.reader(file).keys_at(np.arange(file.row_count))
        width = self._encoder.width
        kind = pa.binary() if width is None else pa.binary(width)
        return cast("KeyArray", self.remembered(file).keys.cast(kind))

    def _find_all(self, file: DataFile, keys: KeyArray) -> tuple[Positions, Positions]:
        if file.format is FileFormat.REMEMBERED:
            return self.remembered(file).find(keys)
        return self.reader(file).find_many(keys, self._hashes.of(keys))

    def _orders_in(self, file: DataFile, places: Positions, order: RowOrder) -> Orders:
        if file.format is FileFormat.REMEMBERED:
            found = self.remembered(file).orders.take(places)
            known = self.orders_under(self.definitions.schema(file.schema_id), found, order)
            return no_orders(len(places)) if known is None else known
        return self.orders_at(file, places, order)

    def _have_expired(self, file: DataFile, places: Positions, schema: TableSchema) -> Flags:
        cutoff = cutoff_at(schema, self.parts.clock.now_ms())
        if cutoff is None or file.format is FileFormat.REMEMBERED:
            return np.zeros(len(places), np.bool_)
        names = [cutoff.column.name]
        mapping = self.context(schema.schema_id).mapping_from(file.schema_id)
        rows = self.reader(file).take(places, mapping.source_names(names))
        return cutoff.expired_flags(mapping.table(rows, names))

    def write_vectors(self, whole: Mapping[str, BitMap64]) -> Mapping[str, VectorRef]:
        """Write whole vectors by data file path; return where each is."""
        return self.writers.vectors(whole)
