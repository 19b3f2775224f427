"""DataFileReader: single rows, many rows, ranges and key positions of one open data file.

Rows come from one of two places, and are the same in both:

    index file    rows that were made ready, mapped into memory: nothing is decoded
    data file     whole row groups, decoded; those of point reads are kept in the group cache

The key index comes from the index file. A missing, damaged or foreign index file is not an error:
keys are read from the data file and indexed again, and rows come from there too. The reader notes
what it misses (`wants`), so that the owner of the table may write the index file.

SSTABLE-5  Opening compares size and footer checksum with the Version's facts about the file.
SSTABLE-6  With any byte damaged, a read returns the rows that were written or raises Corruption.
SSTABLE-7  The position that `find` returns was compared with the row's key, unless it is its own
           hash.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from functools import cached_property, partial
from threading import Lock
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from neve.errors import Corruption, InvalidArgument, NotFound, SchemaMismatch
from neve.kernel import kernel
from neve.keys.arrays import key_at, keys_ascend, same_keys
from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.keys.key_hashes import Hashes, KeyHashes
from neve.model.array_fit import empty_rows
from neve.model.arrow_buffers import Positions, one_batch, position_array
from neve.model.data_file import DataFile
from neve.model.row_lineage import LINEAGE_NAMES, LINEAGE_SCHEMA
from neve.model.schema import TableSchema
from neve.observability.metrics import (
    SSTABLE_GROUPS_DECODED,
    SSTABLE_INDEX_REBUILDS,
    NoRecorder,
    Recorder,
)
from neve.sstable.data_file_footer import GroupFacts, OpenFooter
from neve.sstable.index_file import IndexFile, has_index, open_index
from neve.sstable.key_index import KeyIndex
from neve.sstable.parquet_groups import CachedGroup, GroupCache, ParquetGroups
from neve.sstable.row_cells import Row, RowCells, RowGetter
from neve.sstable.row_gather import Gather, GatherSource
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths

Side: TypeAlias = Literal["left", "right"]

# A range over groups of at most this many rows uses the group cache.
_CACHED_RANGE_ROWS: Final = 131_072
# Rows are worth an index when each group was decoded so often: the cache is too small for them.
_DECODED_TIMES: Final = 3


class Wanted(Enum):
    """What an index file lacks."""

    NOTHING = "nothing"
    KEYS = "keys"
    ROWS = "rows"


class DataFileReader:
    """An immutable file; safe for many threads: two that make a part at once make the same."""

    def __init__(
        self,
        file: DataFile,
        *,
        store: ObjectStore,
        paths: TablePaths,
        schema: TableSchema,
        encoder: KeyEncoder,
        group_cache: GroupCache,
        recorder: Recorder | None = None,
    ) -> None:
        """Open a file written with this schema; raises NotFound, Corruption (SSTABLE-5)."""
        # Fixed at construction.
        self.file: Final = file
        self._path = file.path
        self._store = store
        self._paths = paths
        self._schema = schema
        self._encoder = encoder
        self._hashes = KeyHashes(encoder)
        self._recorder = NoRecorder() if recorder is None else recorder
        # The file's own names: a key column may have been renamed since.
        self._key_names = [column.name for column in schema.key_columns]
        # Safe without the lock.
        self._cache = group_cache
        self._footer = OpenFooter.read(file, store=store, paths=paths)
        # Made when first needed. Guarded by _lock: whether the index file is usable.
        self._lock = Lock()
        self._is_index_open = False
        self._index: IndexFile | None = None
        self._has_index_rows = False
        self._is_damaged = False
        self._key_index: KeyIndex | None = None
        # Counts that may miss some: they only decide whether an index is worth its space.
        self._decoded_groups = 0
        self._decoded_bytes = 0
        self._getters: dict[int, RowGetter] = {}
        self._key_getters: dict[int, RowGetter] = {}
        self._sources: dict[int, GatherSource] = {}
        self._uniform_rows = 0

    @property
    def wants(self) -> Wanted:
        """What reads of this file would be faster with."""
        if self._is_damaged or not has_index(self.file):
            return Wanted.NOTHING
        if self._is_index_open and self._index is None:
            return Wanted.KEYS
        is_worth_it = self._decoded_groups >= _DECODED_TIMES * self.group_count
        # An index file has rows in groups of one length: those of some other writers are not.
        can_have_rows = bool(self._uniform_rows) and not self._has_index_rows
        return Wanted.ROWS if is_worth_it and can_have_rows else Wanted.NOTHING

    @property
    def row_bytes(self) -> int:
        """About how many bytes all rows take when they are decoded; 0 when none was."""
        groups = self._decoded_groups
        return self._decoded_bytes * self.group_count // groups if groups else 0

    def want_nothing(self) -> None:
        """Want no index any more: the data file is damaged, and none can be made of it."""
        self._is_damaged = True

    def open_index_again(self) -> None:
        """Use an index file that was written since the file was opened."""
        with self._lock:
            self._is_index_open = False
            self._decoded_groups = self._decoded_bytes = 0
        self._open_index()

    # How single rows are read: made for the first one.

    @cached_property
    def _cells(self) -> RowCells:
        return RowCells(self._schema)

    @cached_property
    def _key_cells(self) -> RowCells:
        return RowCells(_key_part(self._schema))

    # Groups

    @property
    def group_count(self) -> int:
        """Number of row groups."""
        return len(self._starts) - 1

    @property
    def group_rows(self) -> int:
        """Rows of every group except the last; of the largest one in files of other writers."""
        starts = self._starts
        return self._uniform_rows or max(np.diff(starts).tolist(), default=1)

    @property
    def is_local(self) -> bool:
        """Whether reading does not wait for a network."""
        return self._parquet.is_local

    @property
    def group_starts(self) -> tuple[int, ...]:
        """Position of the first row of each group, and the number of rows."""
        return self._starts

    @cached_property
    def group_facts(self) -> GroupFacts:
        """Facts in the footer about the columns of each group."""
        return GroupFacts(self._footer.metadata, self._schema)

    @property
    def dictionary_columns(self) -> frozenset[str]:
        """Columns of text that are stored as dictionaries."""
        return self._parquet.dictionary_columns

    def group(self, n: int) -> pa.RecordBatch:
        """Return a row group with all columns in the file's schema; raises Corruption."""
        return self._whole_group(n).batch

    def read(
        self,
        columns: Sequence[str] | None,
        *,
        start: int,
        stop: int,
        use_threads: bool = True,
        dictionaries: Collection[str] = (),
    ) -> pa.Table:
        """Return rows from `start` up to `stop` with these columns, None for all.

        Columns of text in `dictionaries` may be returned as dictionaries. Raises NotFound for a
        column the file does not have, Corruption.
        """
        if not 0 <= start <= stop <= self.file.row_count:
            raise InvalidArgument(
                f"rows {start} to {stop} of a file of {self.file.row_count}",
                path=self.file.path,
                hint=f"Ask for rows from 0 to {self.file.row_count}",
            )
        names = self._names(columns)
        if start == stop:
            return empty_rows(self._arrow_schema(names))
        groups = range(self._group_of(start), self._group_of(stop - 1) + 1)
        table = self._read_mapped(groups, names)
        if table is None:
            table = self._read_cached(groups, names, stop - start)
        if table is None:
            # Without columns only the number of rows is needed, and the key column has it.
            table = self._parquet.read(
                groups,
                names or self._key_names,
                use_threads=use_threads,
                dictionaries=dictionaries,
            )
            table = table.select(names)
        return table.slice(start - self._starts[groups[0]], stop - start)

    def stored_lineage(self, *, start: int, stop: int) -> pa.Table | None:
        """Return the columns of row lineage of rows [start, stop); None when there are none."""
        if not self._parquet.has_lineage:
            return None
        if start == stop:
            return LINEAGE_SCHEMA.empty_table()
        groups = range(self._group_of(start), self._group_of(stop - 1) + 1)
        stored = self._parquet.read(groups, LINEAGE_NAMES)
        return stored.slice(start - self._starts[groups[0]], stop - start)

    def take(self, positions: Positions, columns: Sequence[str] | None) -> pa.Table:
        """Return the rows at these positions, in their order, with these columns, None for all."""
        names = self._names(columns)
        if not len(positions):
            return empty_rows(self._arrow_schema(names))
        return self._take(positions, names, self._groups_with(names))

    def gather(self, positions: Positions, gather: Gather) -> None:
        """Add the rows at these positions, which ascend, to those of other files."""
        self._gather(positions, self._groups_with(gather.names), gather)

    # Keys

    @property
    def key_index(self) -> KeyIndex:
        """The key index; made from the data file when the index file is unusable."""
        if self._key_index is None:
            self._key_index = self._open_key_index()
        return self._key_index

    def find(self, key: bytes) -> int:
        """Return the position of a key's row, or -1."""
        return self.find_hash(key, self._hashes.one(key))

    def finder(self) -> Callable[[bytes, int], int]:
        """Return the quickest function that does what `find_hash` does."""
        index = self.key_index
        return index.exact_finder() if index.is_exact else self.find_hash

    def compiled_rows(self, marked: BitMap64 | None) -> "kernel.FileRows | None":
        """Return the compiled search for rows that are not marked; None where there is none."""
        index = self.key_index
        starts = self._starts  # decides whether groups are uniform
        if not index.is_exact or not self._uniform_rows or len(starts) < 1:
            return None
        return kernel.FileRows(index.hashes, self._uniform_rows, self._getters, marked, self.row)

    def find_hash(self, key: bytes, key_hash: int) -> int:
        """Return the position of a key's row, or -1, where the key's hash is known."""
        index = self._key_index
        if index is None:
            index = self.key_index
        if index.is_exact:
            return index.find_one(key_hash)
        # There is nearly always at most one candidate.
        for position in index.candidates(key_hash):
            # The caller wants the row next: a decoded group has it at hand.
            n, i = self._place_of(position)
            get = self._key_getter(n) if self._has_index_rows else self._getter(n)
            if self._key_of(get, i, position) == key:
                return position
        return -1

    def find_many(self, keys: KeyArray, hashes: Hashes) -> tuple[Positions, Positions]:
        """Find the rows of keys in any order: places of the keys found, and their positions.

        `hashes` are the hashes of the keys. Places ascend.
        """
        places, positions = self.key_index.find_many(hashes)
        if self.key_index.is_exact or not len(places):
            return places, positions
        is_same = same_keys(self.keys_at(positions), keys.take(position_array(places)))
        return places[is_same], positions[is_same]

    def positions_of(self, keys: KeyArray) -> Positions:
        """Return the positions of the rows that have one of these keys, ascending."""
        _, positions = self.find_many(keys, self._hashes.of(keys))
        return np.unique(positions)

    def keys_at(self, positions: Positions) -> KeyArray:
        """Return the keys of the rows at these positions, in their order."""
        if not len(positions):
            rows = self._arrow_schema(self._key_names).empty_table()
        else:
            rows = self._take(positions, self._key_names, self._groups_with(self._key_names))
        return self._encoder.encode_arrays([rows.column(name) for name in self._key_names])

    def key_bound(self, key: bytes, *, side: Side) -> int:
        """Return the position of the first row whose key is not below `key`; right: is above it.

        `key` may be any bytes, such as the bound of a range.
        """
        index = self.key_index
        if index.is_exact:
            return index.lower_bound(self._hashes.first(key, after=side == "right"))
        # Group by group first, so that the keys of few groups are decoded.
        low, high = 0, self.group_count
        while low < high:
            middle = (low + high) // 2
            if self._is_before(self._starts[middle], key, side):
                low = middle + 1
            else:
                high = middle
        start, stop = self._starts[max(low - 1, 0)], self._starts[low]
        while start < stop:
            middle = (start + stop) // 2
            if self._is_before(middle, key, side):
                start = middle + 1
            else:
                stop = middle
        return start

    # Rows

    def row(self, position: int) -> Row:
        """Return one row as Python values, those of `neve.model.row_codec`."""
        rows = self._uniform_rows
        n, i = divmod(position, rows) if rows else self._place_of(position)
        get = self._getters.get(n)
        if get is not None:
            return get(i)
        if self._is_index_open and not self._has_index_rows:
            cached = self._cache.hit((self._path, n, ()))
            if cached is not None and cached.read_row is not None:
                return cached.read_row(i)
        return self._getter(n)(i)

    def verify(self) -> None:
        """Read the whole file and check it against all known facts; raises Corruption naming it.

        1. Size and footer (SSTABLE-5), checksums of all bytes.
        2. Every row can be decoded, and their number is right.
        3. Keys ascend, between the bounds in the Version.
        """
        OpenFooter.read(self.file, store=self._store, paths=self._paths)
        self._parquet.verify()
        last: bytes | None = None
        names = list(self._schema.arrow_schema.names)
        names += LINEAGE_NAMES if self._parquet.has_lineage else ()
        for n in range(self.group_count):
            rows = self._parquet.read(range(n, n + 1), names)
            keys = self._encoder.encode_arrays([rows.column(name) for name in self._key_names])
            first = key_at(keys, 0)
            if last is None and first != self.file.key_min:
                raise self._damage("first key of the data file is not its lowest key")
            if (last is not None and first <= last) or not keys_ascend(keys):
                raise self._damage(f"keys do not ascend in row group {n}")
            last = key_at(keys, -1)
        if last != self.file.key_max:
            raise self._damage("last key of the data file is not its highest key")

    # Where rows come from

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """Position of the first row of each group, and the number of rows."""
        starts = self._footer.group_starts
        rows = starts[1] if len(starts) > 1 else 0
        is_uniform = all(start == n * rows for n, start in enumerate(starts[:-1]))
        self._uniform_rows = rows if is_uniform and starts[-1] <= (len(starts) - 1) * rows else 0
        return starts

    @cached_property
    def _parquet(self) -> ParquetGroups:
        return ParquetGroups(
            self._footer,
            file=self.file,
            schema=self._schema,
            store=self._store,
            paths=self._paths,
        )

    @property
    def _rows_are_mapped(self) -> bool:
        if not self._is_index_open:
            self._open_index()
        return self._has_index_rows

    def _place_of(self, position: int) -> tuple[int, int]:
        """Return the group of a row, and its place there."""
        rows = self._uniform_rows
        if rows:
            return divmod(position, rows)
        n = self._group_of(position)
        return n, position - self._starts[n]

    def _group_of(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1

    def _open_index(self) -> IndexFile | None:
        """Return the index file, opened once; None when it is missing or unusable."""
        with self._lock:
            if self._is_index_open:
                return self._index
            if not has_index(self.file):
                self._is_index_open = True
                return None
            path = self._paths.index_of(self.file.path)
            try:
                index = open_index(self._store, path, file=self.file, hashes=self._hashes)
                # Rows of another schema, or other groups, cannot replace those of the file.
                self._has_index_rows = (
                    index.has_rows
                    and index.group_rows == self.group_rows
                    and index.schema.equals(self._schema.arrow_schema)
                )
                self._index = index
            except (NotFound, Corruption):
                self._recorder.add(SSTABLE_INDEX_REBUILDS, 1)
            self._is_index_open = True
            return self._index

    def _open_key_index(self) -> KeyIndex:
        index = self._open_index()
        if index is not None:
            try:
                return index.key_index
            except Corruption:
                self._recorder.add(SSTABLE_INDEX_REBUILDS, 1)
        rows = self._parquet.read(range(self.group_count), self._key_names)
        keys = self._encoder.encode_arrays([rows.column(name) for name in self._key_names])
        return KeyIndex.build(keys, self._hashes)

    def _mapped_group(self, n: int) -> pa.RecordBatch | None:
        """Return a group from the index file; None once a group of it is damaged."""
        assert self._index is not None
        try:
            return self._index.group(n)
        except Corruption:
            self._recorder.add(SSTABLE_INDEX_REBUILDS, 1)
            self._has_index_rows = False
            return None

    def _read_mapped(self, groups: range, names: Sequence[str]) -> pa.Table | None:
        if not self._rows_are_mapped:
            return None
        batches: list[pa.RecordBatch] = []
        for n in groups:
            batch = self._mapped_group(n)
            if batch is None:
                return None
            batches.append(batch)
        return pa.Table.from_batches(batches).select(names)

    def _read_cached(self, groups: range, names: Sequence[str], row_count: int) -> pa.Table | None:
        """Return groups from the cache for a short range, which is often read again; None: read it.

        Missing groups are decoded for the cache when all columns are asked for, and only for ranges
        that begin or end inside a group: a full scan caches nothing.
        """
        whole_rows = self._starts[groups.stop] - self._starts[groups.start]
        if whole_rows > _CACHED_RANGE_ROWS or row_count == whole_rows:
            return None
        if len(names) < len(self._schema.columns) and not all(
            self._cache.find(self.file.path, n) for n in groups
        ):
            return None
        return pa.Table.from_batches([self._cached_group(n).batch for n in groups]).select(names)

    def _cached_group(self, n: int) -> CachedGroup:
        return self._cache.load(self.file.path, n, lambda: self._decode_rows(n))

    def _decode_rows(self, n: int) -> pa.RecordBatch:
        batch = self._decode(n, self._schema.arrow_schema.names)
        self._decoded_groups += 1
        self._decoded_bytes += batch.nbytes
        return batch

    def _whole_group(self, n: int) -> GatherSource:
        """Return a group with all columns."""
        return self._mapped_source(n) or self._cached_group(n)

    def _groups_with(self, names: Sequence[str]) -> Callable[[int], GatherSource]:
        """Return the function from a number to a group with these columns, and perhaps others.

        Only these are decoded, unless they are most of the columns or the group is there.
        """
        if not names or len(names) * 2 > len(self._schema.columns):
            return self._whole_group
        return partial(self._some_columns, names=tuple(names))

    def _some_columns(self, n: int, names: tuple[str, ...]) -> GatherSource:
        found = self._mapped_source(n) or self._cache.find(self.file.path, n)
        return self._cached_columns(n, names) if found is None else found

    def _mapped_source(self, n: int) -> GatherSource | None:
        if not self._rows_are_mapped:
            return None
        found = self._sources.get(n)
        if found is None:
            batch = self._mapped_group(n)
            if batch is None:
                return None
            found = self._sources[n] = GatherSource(batch)
        return found

    def _cached_columns(self, n: int, names: tuple[str, ...]) -> CachedGroup:
        return self._cache.load(self.file.path, n, lambda: self._decode(n, names), names)

    def _decode(self, n: int, names: Sequence[str]) -> pa.RecordBatch:
        self._recorder.add(SSTABLE_GROUPS_DECODED, 1)
        return one_batch(self._parquet.read(range(n, n + 1), names))

    def _getter(self, n: int) -> RowGetter:
        if self._rows_are_mapped:
            batch = self._mapped_group(n)
            if batch is not None:
                self._getters[n] = self._cells.bind(batch)
                return self._getters[n]
        # Only the cache holds the group, so that it can release it.
        cached = self._cached_group(n)
        if cached.read_row is None:
            cached.read_row = self._cells.bind(cached.batch)
            self._cache.share((self._path, n, ()), cached, self._getters)
        return cached.read_row

    def _key_getter(self, n: int) -> RowGetter:
        """Return the function from a row's place in a group to its key columns."""
        found = self._key_getters.get(n)
        if found is not None:
            return found
        if self._rows_are_mapped:
            batch = self._mapped_group(n)
            if batch is not None:
                found = self._key_getters[n] = self._key_cells.bind(batch.select(self._key_names))
                return found
        cached = self._cached_columns(n, tuple(self._key_names))
        if cached.read_row is None:
            cached.read_row = self._key_cells.bind(cached.batch)
        return cached.read_row

    def _take(
        self,
        positions: Positions,
        names: Sequence[str],
        group: Callable[[int], GatherSource],
    ) -> pa.Table:
        if not (positions[:-1] <= positions[1:]).all():
            order = np.argsort(positions)
            back = np.empty(len(order), np.int64)
            back[order] = np.arange(len(order))
            return self._take(positions[order], names, group).take(position_array(back))
        gather = Gather(self._arrow_schema(names))
        self._gather(positions, group, gather)
        return gather.result()

    def _gather(
        self, positions: Positions, group: Callable[[int], GatherSource], gather: Gather
    ) -> None:
        starts = np.array(self._starts)
        ends = np.searchsorted(positions, starts)
        # One iteration per group that holds one of the positions.
        for n in np.flatnonzero(ends[:-1] < ends[1:]).tolist():
            gather.add(group(n), positions[ends[n] : ends[n + 1]] - starts[n])

    def _key_of(self, get: RowGetter, i: int, position: int) -> bytes:
        try:
            row = get(i)
            return self._encoder.encode([row[name] for name in self._key_names])
        except SchemaMismatch:
            # A date or moment that Python cannot hold, but Arrow can.
            return key_at(self.keys_at(np.array([position])), 0)

    def _is_before(self, position: int, key: bytes, side: Side) -> bool:
        n, i = self._place_of(position)
        found = self._key_of(self._key_getter(n), i, position)
        return found < key or (side == "right" and found == key)

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        if columns is None:
            return list(self._schema.arrow_schema.names)
        return [self._schema.column(name).name for name in columns]

    def _arrow_schema(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self._schema.arrow_schema.field(name) for name in names])

    def _damage(self, message: str) -> Corruption:
        return Corruption(
            message,
            path=f"{self._paths.root}/{self.file.path}",
            hint="Restore it from a copy, or roll back to a Version without it",
        )


def _key_part(schema: TableSchema) -> TableSchema:
    """Return the schema of the key columns alone, in key order."""
    return TableSchema(
        columns=schema.key_columns,
        primary_key=schema.primary_key,
        schema_id=schema.schema_id,
        last_field_id=schema.last_field_id,
    )
