"""ParquetGroups reads and verifies row groups of a data file; GroupCache keeps decoded ones.

1. Find the chunks of the wanted columns, and join adjacent ones.
2. Fetch each stretch with one call to the store; a local one reads all of them into one buffer.
3. Compare the checksum of each chunk; in files of other writers, Arrow compares those of the pages.
4. Let Arrow decode the groups from the fetched bytes, without copying them.
5. Cast to the schema the file was written with: Parquet loses a few names of nested types.

Plain values of a local file (`neve.sstable.parquet_pages`) are not decoded. They are read to where
they stay, aligned and all groups in one array, and compared with their checksums there:

    file      ┌ before │ values 0 ┐ …     ┌ before │ values 1 ┐ …
    array     ┌ values 0 │ values 1 │ …

Files are read, never mapped: one that another program has cut is Corruption, and its pages are in
memory only once. Memory comes from Arrow's pool, which has used it before: pages that are new to a
process cost ten times as much as reading into them.

Large runs of groups, and those in a bucket, are fetched and decoded in parallel, so that one waits
for the store while others compute; so are the columns of a single large group. `ParquetGroups`
keeps only where plain values lie. The cache holds groups of Columnar files and evicts the least
recently used one; it does not keep a group larger than the whole cache.

SSTABLE-31  Only threads of Python hold fetched bytes, and each is joined before its result is
    returned. A thread of Arrow's own pool may release them later, while the interpreter ends, and
    that aborts the process.
SSTABLE-25  An entry of a dropped file never comes back: a group whose decoding began before the
    drop is returned to its caller, and not kept.
SSTABLE-26  The bytes of all entries are never more than `bytes_max`.
"""

import io
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise, product
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq

from neve.errors import Corruption
from neve.kernel import is_compiled, kernel
from neve.model.data_file import DataFile
from neve.model.row_lineage import LINEAGE_NAMES, with_lineage
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray
from neve.sstable.data_file_footer import MAGIC, OpenFooter
from neve.sstable.parquet_pages import plain_pieces
from neve.sstable.row_gather import GatherSource
from neve.storage.object_store import ObjectStore, ReadsInto, Stretch
from neve.storage.table_paths import TablePaths, join_path

# Chunks this close to each other are fetched together: cheaper than two requests.
_GAP_BYTES_MAX: Final = 32 << 10
_PARALLEL_BYTES: Final = 2 << 20
"""Stored bytes of a local run, or of one group, from which threads gain more than they cost."""
_UUID_BYTES: Final = 16
_HINT: Final = "Restore it from a copy, or roll back to a Version without it"

_Share = TypeVar("_Share")


def read_parquet(
    payload: bytes, *, verify: bool = True, metadata: pq.FileMetaData | None = None
) -> pa.Table:
    """Read a whole Parquet file from memory; `verify` compares checksums where pages have them.

    Only this thread decodes: one of Arrow's own may outlive the call and abort the interpreter at
    exit (SSTABLE-31). `metadata` is a footer that was read before. Raises what Arrow raises.
    """
    source = pa.BufferReader(payload)
    opened = pq.ParquetFile(source, metadata=metadata, page_checksum_verification=verify)
    return opened.read(use_threads=False)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Bytes of a file and where they begin in it."""

    start: int
    content: pa.Buffer


class _Window(io.RawIOBase):
    """Fetched stretches of a file, as a file that Arrow reads from."""

    def __init__(self, stretches: Sequence[_Stretch], *, size: int) -> None:
        super().__init__()
        self._stretches = stretches
        self._starts = [stretch.start for stretch in stretches]
        self._size = size
        self._at = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a position."""
        if whence == io.SEEK_SET:
            self._at = offset
        elif whence == io.SEEK_CUR:
            self._at += offset
        else:
            self._at = self._size + offset
        return self._at

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def read_buffer(self, length: int) -> pa.Buffer:
        """Read without copying: Arrow prefers this to `read`."""
        place = bisect_right(self._starts, self._at) - 1
        if place < 0:
            raise OSError(f"read before the fetched bytes, at {self._at}")
        stretch = self._stretches[place]
        start = self._at - stretch.start
        if start + length > stretch.content.size:
            raise OSError(f"read beyond the fetched bytes, at {self._at}")
        self._at += length
        return stretch.content.slice(start, length)

    def read(self, size: int = -1, /) -> bytes:
        """Read a copy."""
        return self.read_buffer(size).to_pybytes()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True


class ParquetGroups:
    """Row groups of one data file; safe for many threads."""

    def __init__(
        self,
        footer: OpenFooter,
        *,
        file: DataFile,
        schema: TableSchema,
        store: ObjectStore,
        paths: TablePaths,
    ) -> None:
        self.footer: Final = footer
        self._file = file
        self._schema = with_lineage(schema.arrow_schema)
        self._store = store
        self._path = join_path(paths.root, file.path)
        parquet_schema = footer.metadata.schema
        self._leaf_paths = [
            parquet_schema.column(at).path for at in range(footer.metadata.num_columns)
        ]
        # Safe without a lock: what is found twice is the same. By group and leaf.
        self._plain_pieces: dict[tuple[int, int], tuple[int, ...] | None] = {}

    @property
    def is_local(self) -> bool:
        """Whether reading does not wait for a network."""
        return isinstance(self._store, ReadsInto)

    def read(
        self,
        groups: range,
        names: Sequence[str],
        *,
        use_threads: bool = True,
        dictionaries: Collection[str] = (),
    ) -> pa.Table:
        """Return whole groups, at least one, with these columns; raises Corruption.

        `dictionaries` are columns of text that are returned as dictionaries, see
        `dictionary_columns`; other ones would be encoded for it.
        """
        fields = [self._schema.field(name) for name in names]
        schema = pa.schema([dictionary_field(each, dictionaries) for each in fields])
        self._leaves(names)
        plain: dict[str, ArrowArray] = {}
        for field in schema:
            column = self._read_plain(groups, field)
            if column is not None:
                plain[field.name] = column
        if not plain:
            return self._decode(groups, schema, use_threads=use_threads)
        others = [field for field in schema if field.name not in plain]
        columns: dict[str, ArrowArray | pa.ChunkedArray[Any]] = {**plain}
        if others:
            decoded = self._decode(groups, pa.schema(others), use_threads=use_threads)
            columns.update(zip(decoded.column_names, decoded.columns, strict=True))
        return pa.table([columns[name] for name in names], schema=schema)

    def _decode(self, groups: range, schema: pa.Schema, *, use_threads: bool) -> pa.Table:
        leaves = self._leaves(schema.names)
        stored = self.footer.chunks.lengths[groups.start : groups.stop, leaves].sum()
        is_large = use_threads and bool(stored >= _PARALLEL_BYTES)
        if len(groups) == 1:
            workers = min(len(schema), pa.cpu_count()) if is_large else 1
            return self._read_run(groups, leaves, schema, workers=workers)
        if not use_threads or (self.is_local and not is_large):
            return self._read_run(groups, leaves, schema)
        workers = min(len(groups), pa.cpu_count() + 1)
        read = partial(self._read_run, leaves=leaves, schema=schema)
        return pa.concat_tables(_side_by_side(read, _runs(groups, workers)))

    @cached_property
    def dictionary_columns(self) -> frozenset[str]:
        """Columns of text that are stored as dictionaries."""
        metadata = self.footer.metadata
        if not metadata.num_row_groups:
            return frozenset()
        group = metadata.row_group(0)
        return frozenset(
            path
            for at, path in enumerate(self._leaf_paths)
            if path in self._schema.names
            and pa.types.is_string(self._schema.field(path).type)
            and "RLE_DICTIONARY" in group.column(at).encodings
        )

    @property
    def has_lineage(self) -> bool:
        """Whether the file has the columns of row lineage."""
        return set(LINEAGE_NAMES) <= set(self._leaf_paths)

    def verify(self) -> None:
        """Check every byte that a checksum covers, and the magic; raises Corruption (SSTABLE-1)."""
        if self._fetch(0, len(MAGIC)).content.to_pybytes() != MAGIC:
            raise self._damage("SSTABLE-1: data file does not begin as Parquet does", offset=0)
        checksums, chunks = self.footer.checksums, self.footer.chunks
        if checksums is None:
            return
        for group in range(len(chunks.starts)):
            leaves, alone = range(len(self._leaf_paths)), range(group, group + 1)
            self._check(self._fetch_chunks(alone, leaves), alone, leaves)
        tail_at = int(chunks.starts[-1, -1] + chunks.lengths[-1, -1])
        tail = self._fetch(tail_at, self.footer.offset - tail_at)
        if google_crc32c.value(tail.content) != checksums[-1]:
            raise self._damage("page index of the data file is damaged", offset=tail_at)

    def _leaves(self, names: Sequence[str]) -> list[int]:
        leaves: set[int] = set()
        for name in names:
            found = self._leaves_below.get(name)
            if found is None:
                raise self._damage(f"data file has no column {name!a}")
            leaves.update(found)
        return sorted(leaves)

    @cached_property
    def _leaves_below(self) -> dict[str, list[int]]:
        """Leaves by each prefix of their path: `a.list.element` by `a`, `a.list` and itself.

        A column with a dot in its name may look like one inside another: then both are read.
        """
        below: dict[str, list[int]] = {}
        for at, path in enumerate(self._leaf_paths):
            below.setdefault(path, []).append(at)
            end = path.rfind(".")
            while end >= 0:
                below.setdefault(path[:end], []).append(at)
                end = path.rfind(".", 0, end)
        return below

    def _read_run(
        self, groups: range, leaves: Sequence[int], schema: pa.Schema, *, workers: int = 1
    ) -> pa.Table:
        """Read consecutive groups, with one Arrow reader for each worker."""
        stretches = self._fetch_chunks(groups, leaves)
        self._check(stretches, groups, leaves)
        if workers == 1:
            return self._read_columns(schema, stretches, groups)
        read = partial(self._read_columns, stretches=stretches, groups=groups)
        shares = [pa.schema([*schema][at::workers]) for at in range(workers)]
        columns = {
            name: column
            for table in _side_by_side(read, shares)
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
        return pa.table([columns[name] for name in schema.names], schema=schema)

    def _read_columns(
        self, schema: pa.Schema, stretches: Sequence[_Stretch], groups: range
    ) -> pa.Table:
        footer = self.footer
        window = _Window(stretches, size=self._file.file_bytes)
        try:
            opened = pq.ParquetFile(
                pa.PythonFile(window, mode="r"),
                metadata=footer.metadata,
                page_checksum_verification=footer.checksums is None,
                pre_buffer=False,
                read_dictionary=[each.name for each in schema if pa.types.is_dictionary(each.type)],
            )
            decoded = opened.read_row_groups(list(groups), columns=schema.names, use_threads=False)
            table = _fit(decoded, schema)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise self._damage(f"{_shown(groups)} cannot be read: {error}") from error
        rows = footer.group_starts[groups.stop] - footer.group_starts[groups.start]
        if table.num_rows != rows:
            raise self._damage(f"{_shown(groups)} has {table.num_rows} rows instead of {rows}")
        return table

    def _fetch_chunks(self, groups: range, leaves: Sequence[int]) -> list[_Stretch]:
        chunks = self.footer.chunks
        spans: list[list[int]] = []
        for start, length in sorted(
            (int(chunks.starts[group, leaf]), int(chunks.lengths[group, leaf]))
            for group in groups
            for leaf in leaves
        ):
            if spans and start - spans[-1][1] <= _GAP_BYTES_MAX:
                spans[-1][1] = max(spans[-1][1], start + length)
            else:
                spans.append([start, start + length])
        store = self._store
        if not isinstance(store, ReadsInto):
            return [self._fetch(start, end - start) for start, end in spans]
        content = pa.allocate_buffer(sum(end - start for start, end in spans))
        view, at = memoryview(content).cast("B"), 0
        wanted: list[Stretch] = []
        stretches: list[_Stretch] = []
        for start, end in spans:
            stretches.append(_Stretch(start, content.slice(at, end - start)))
            wanted.append((start, (view[at : at + end - start],)))
            at += end - start
        if not store.read_into(self._path, wanted):
            raise self._shorter(spans[0][0])
        return stretches

    def _read_plain(self, groups: range, field: "pa.Field[Any]") -> "ArrowArray | None":
        """Return a column whose values are read to where they stay; None: it is decoded."""
        store, width = self._store, _plain_width(field.type)
        if width is None or self.footer.checksums is None or not isinstance(store, ReadsInto):
            return None
        leaf, *others = self._leaves_below[field.name]
        if others or self.footer.metadata.schema.column(leaf).name != field.name:
            return None
        layouts = self._plain_layouts(groups, leaf, width)
        if layouts is None:
            return None
        # Bytes before values, and values: the memory of both, and how much of it is taken.
        memory = [pa.allocate_buffer(sum(sum(each[nth::2]) for each in layouts)) for nth in (0, 1)]
        views, ends = [memoryview(each).cast("B") for each in memory], [0, 0]
        wanted: list[Stretch] = []
        chunks: list[list[pa.Buffer]] = []
        # One iteration per page; few groups have more than one.
        for group, layout in zip(groups, layouts, strict=True):
            pieces, chunk = [], []
            for place, length in enumerate(layout):
                nth = place % 2
                start, ends[nth] = ends[nth], ends[nth] + length
                pieces.append(views[nth][start : ends[nth]])
                chunk.append(memory[nth].slice(start, length))
            wanted.append((int(self.footer.chunks.starts[group, leaf]), pieces))
            chunks.append(chunk)
        if not store.read_into(self._path, wanted):
            raise self._shorter(wanted[0][0])
        for group, chunk in zip(groups, chunks, strict=True):
            self._compare(group, leaf, chunk)
        stored = field.type.storage_type if isinstance(field.type, pa.UuidType) else field.type
        values = pa.Array.from_buffers(stored, ends[1] // width, [None, memory[1]], null_count=0)
        if stored is field.type:
            return values
        return pa.ExtensionArray.from_storage(field.type, values)

    def _plain_layouts(self, groups: range, leaf: int, width: int) -> list[tuple[int, ...]] | None:
        """Return how the chunks of a column divide (SSTABLE-29); None unless all are plain."""
        layouts: list[tuple[int, ...]] = []
        for group in groups:
            try:
                layout = self._plain_pieces[group, leaf]
            except KeyError:
                layout = self._plain_layout(group, leaf, width)
                self._plain_pieces[group, leaf] = layout
            if layout is None:
                return None
            layouts.append(layout)
        return layouts

    def _plain_layout(self, group: int, leaf: int, width: int) -> tuple[int, ...] | None:
        metadata, starts = self.footer.metadata, self.footer.group_starts
        if metadata.row_group(group).column(leaf).compression != "UNCOMPRESSED":
            return None
        alone = range(group, group + 1)
        (stretch,) = self._fetch_chunks(alone, [leaf])
        self._check([stretch], alone, [leaf])
        return plain_pieces(
            stretch.content.to_pybytes(),
            width=width,
            row_count=starts[group + 1] - starts[group],
            is_nullable=metadata.schema.column(leaf).max_definition_level > 0,
        )

    def _shorter(self, offset: int) -> Corruption:
        return self._damage("SSTABLE-1: data file has become shorter", offset=offset)

    def _fetch(self, start: int, length: int) -> _Stretch:
        content = self._store.get_range(self._path, start=start, length=length)
        if len(content) != length:
            raise self._shorter(start)
        return _Stretch(start, pa.py_buffer(content))

    def _check(self, stretches: Sequence[_Stretch], groups: range, leaves: Sequence[int]) -> None:
        checksums, chunks = self.footer.checksums, self.footer.chunks
        if checksums is None:
            return
        starts = [stretch.start for stretch in stretches]
        for group, leaf in product(groups, leaves):
            start = int(chunks.starts[group, leaf])
            stretch = stretches[bisect_right(starts, start) - 1]
            chunk = stretch.content.slice(start - stretch.start, int(chunks.lengths[group, leaf]))
            self._compare(group, leaf, [chunk])

    def _compare(self, group: int, leaf: int, chunk: Sequence[pa.Buffer]) -> None:
        """Compare a chunk, in pieces, with its checksum."""
        checksums = self.footer.checksums
        assert checksums is not None
        found = 0
        for piece in chunk:
            found = google_crc32c.extend(found, piece)
        if found != checksums[group * len(self._leaf_paths) + leaf]:
            raise self._damage(
                f"column {self._leaf_paths[leaf]!a} of row group {group} is damaged",
                offset=int(self.footer.chunks.starts[group, leaf]),
            )

    def _damage(self, message: str, *, offset: int | None = None) -> Corruption:
        return Corruption(message, path=self._path, offset=offset, hint=_HINT)


def dictionary_field(field: "pa.Field[Any]", dictionaries: Collection[str]) -> "pa.Field[Any]":
    """Return the field of a column that may be returned as a dictionary."""
    if field.name not in dictionaries:
        return field
    return field.with_type(pa.dictionary(pa.int32(), field.type))


def _plain_width(kind: pa.DataType) -> int | None:
    """Return the bytes of a value that Parquet and Arrow write alike, and not as differences."""
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return kind.bit_width // 8
    if isinstance(kind, pa.UuidType):
        return _UUID_BYTES
    return kind.byte_width if pa.types.is_fixed_size_binary(kind) else None


def _runs(groups: range, count: int) -> list[range]:
    """Split groups into this many runs of about the same length."""
    cuts = [groups.start + len(groups) * at // count for at in range(count + 1)]
    return [range(start, stop) for start, stop in pairwise(cuts)]


def _side_by_side(read: Callable[[_Share], pa.Table], shares: Sequence[_Share]) -> list[pa.Table]:
    with ThreadPoolExecutor(len(shares), thread_name_prefix="neve-decode") as pool:
        return list(pool.map(read, shares))


def _shown(groups: range) -> str:
    if len(groups) == 1:
        return f"row group {groups[0]}"
    return f"a run of row groups, {groups[0]} to {groups[-1]},"


def _fit(decoded: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast columns to exactly the fields of a schema; raises ValueError when they cannot be."""
    columns = []
    for field in schema:
        column = decoded.column(field.name)
        if not field.nullable and column.null_count:
            raise ValueError(f"column {field.name!a} has NULL")
        # Casting nested types only restores the names and ids inside, without a copy.
        if column.type != field.type or pa.types.is_nested(field.type):
            column = column.cast(field.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


Row: TypeAlias = dict[str, object]
Part: TypeAlias = tuple[str, int, tuple[str, ...]]
"""Path of a file, number of a group, and its columns; empty means all of them."""


class CachedGroup(GatherSource):
    """One decoded group, and the function that reads its rows, once made."""

    __slots__ = ("getters", "read_row")

    def __init__(self, batch: pa.RecordBatch) -> None:
        # Slices of larger memory keep all of it alive.
        super().__init__(batch, batch.get_total_buffer_size())
        self.read_row: Callable[[int], Row] | None = None
        self.getters: dict[int, Callable[[int], Row]] | None = None
        """Where a reader of the file finds the function without asking the cache."""

    def reads(self) -> int:
        """Return how many rows were read without asking the cache, since the last call."""
        rows = None if self.getters is None else self.compiled_rows
        return 0 if rows is None else rows.reads()

    @property
    def compiled_rows(self) -> "kernel.BatchRows | None":
        """What `read_row` is of, where the compiled kernel reads the rows."""
        rows = getattr(self.read_row, "__self__", None)
        return rows if is_compiled and isinstance(rows, kernel.BatchRows) else None


class _Loading:
    """One decoding in progress."""

    __slots__ = ("is_stale",)

    def __init__(self) -> None:
        self.is_stale = False


class GroupCache:
    """Decoded groups by file and number; safe for many threads.

    The group that was used last is dropped last. Where the compiled kernel reads rows, it counts
    them and does not ask the cache each time: a group that is due to be dropped, and was read since
    it was last looked at, is kept for another turn.
    """

    def __init__(self, bytes_max: int) -> None:
        # Fixed at construction.
        self._bytes_max = bytes_max
        # Guarded by _lock; the entry used last is at the end.
        self._lock = Lock()
        self._entries: OrderedDict[Part, CachedGroup] = OrderedDict()
        self._byte_count = 0
        self._hits = 0
        self._misses = 0
        self._loading: dict[str, set[_Loading]] = {}

    @property
    def byte_count(self) -> int:
        """Bytes that the cache holds."""
        with self._lock:
            return self._byte_count

    @property
    def hits_and_misses(self) -> tuple[int, int]:
        """How many groups were there when they were needed, and how many were not."""
        with self._lock:
            for part, entry in list(self._entries.items()):
                self._was_read_locked(part, entry)
            return self._hits, self._misses

    def find(self, path: str, group: int) -> CachedGroup | None:
        """Return a cached group with all columns, or None."""
        part = (path, group, ())
        with self._lock:
            entry = self._entries.get(part)
            if entry is not None:
                self._entries.move_to_end(part)
            return entry

    def hit(self, part: Part) -> CachedGroup | None:
        """Return a cached group that is needed, or None; for single rows, which ask most often."""
        with self._lock:
            found = self._entries.get(part)
            if found is not None:
                self._entries.move_to_end(part)
                self._hits += 1
            return found

    def share(
        self, part: Part, group: CachedGroup, getters: dict[int, Callable[[int], Row]]
    ) -> None:
        """Let a reader keep the compiled function of a group for as long as it is cached."""
        rows = group.compiled_rows
        if rows is None:
            return
        with self._lock:
            if self._entries.get(part) is group:
                group.getters = getters
                getters[part[1]] = rows.counted_row

    def load(
        self,
        path: str,
        group: int,
        decode: Callable[[], pa.RecordBatch],
        names: tuple[str, ...] = (),
    ) -> CachedGroup:
        """Return a group, decoding it when it is not cached; raises what decoding raises."""
        part = (path, group, names)
        found = self.hit(part)
        if found is not None:
            return found
        loading = _Loading()
        with self._lock:
            self._misses += 1
            self._loading.setdefault(path, set()).add(loading)
        try:
            # Outside the lock: no thread waits for another's decoding.
            entry = CachedGroup(decode())
        except BaseException:
            with self._lock:
                self._end_loading_locked(path, loading)
            raise
        with self._lock:
            self._end_loading_locked(path, loading)
            if not loading.is_stale:
                self._keep_locked(part, entry)
        return entry

    def drop_file(self, path: str) -> None:
        """Drop the groups of a file, including those being decoded."""
        with self._lock:
            for loading in self._loading.get(path, ()):
                loading.is_stale = True
            for part in [part for part in self._entries if part[0] == path]:
                self._dropped_locked(part, self._entries.pop(part))

    def clear(self) -> None:
        """Drop everything, including what is being decoded."""
        with self._lock:
            for loadings in self._loading.values():
                for loading in loadings:
                    loading.is_stale = True
            while self._entries:
                self._dropped_locked(*self._entries.popitem())

    def _end_loading_locked(self, path: str, loading: _Loading) -> None:
        loadings = self._loading[path]
        loadings.discard(loading)
        if not loadings:
            del self._loading[path]

    def _keep_locked(self, part: Part, entry: CachedGroup) -> None:
        if entry.byte_count > self._bytes_max:
            return
        before = self._entries.pop(part, None)
        if before is not None:
            self._dropped_locked(part, before)
        self._entries[part] = entry
        self._byte_count += entry.byte_count
        turns = len(self._entries)
        while self._byte_count > self._bytes_max:
            oldest = next(iter(self._entries.items()))
            turns -= 1
            if turns < 0 or not self._was_read_locked(*oldest):
                self._dropped_locked(oldest[0], self._entries.pop(oldest[0]))

    def _was_read_locked(self, part: Part, entry: CachedGroup) -> bool:
        """Count the rows that were read since the last look; they make it the last one used."""
        reads = entry.reads()
        self._hits += reads
        if reads:
            self._entries.move_to_end(part)
        return reads > 0

    def _dropped_locked(self, part: Part, entry: CachedGroup) -> None:
        self._hits += entry.reads()
        self._byte_count -= entry.byte_count
        if entry.getters is not None:
            entry.getters.pop(part[1], None)
