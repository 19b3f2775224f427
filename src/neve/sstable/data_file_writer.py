"""DataFileWriter: sorted rows become data files of bounded size, each with its index file.

1. Rows are collected until they fill a row group: as many as the format sets, or fewer wide ones.
2. The first group of a file decides how the file is written: rows per group, encodings,
   dictionaries (see `neve.sstable.parquet_layout`).
3. Groups are encoded one after another, in memory. A file ends when another group like the last
   would make it too large, or when rows became so much wider that its groups would be too large.
4. The finished file is sealed with checksums and stored, and then its index file.

Nothing refers to a file before a Version names it, and an index file is only a cache, so either of
them may become durable first.

Memory: the encoded file, its keys, one group of rows; for a Dual file all its rows, which go into
the index file too.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from neve.errors import InvalidArgument, NeveError, SchemaMismatch
from neve.keys.arrays import concat_keys, key_at, keys_ascend
from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.keys.key_hashes import KeyHashes
from neve.model.arrow_buffers import one_batch
from neve.model.data_file import DataFile, FileFormat, PartitionValue, WalSegmentRef
from neve.model.row_lineage import LINEAGE_NAMES, with_lineage
from neve.model.schema import TableSchema
from neve.observability.metrics import (
    SSTABLE_BYTES,
    SSTABLE_FILES,
    SSTABLE_INDEX_BYTES,
    SSTABLE_ROWS,
    NoRecorder,
    Recorder,
)
from neve.sstable.column_statistics import StatisticsCollector
from neve.sstable.data_file_footer import FooterFacts, seal
from neve.sstable.index_file import encode_index_file, has_index
from neve.sstable.key_index import KeyIndex
from neve.sstable.parquet_layout import (
    GROUP_BYTES_MAX,
    GROUPS_MAX,
    FilePlan,
    ParquetLayout,
    group_rows_for,
    group_rows_max,
)
from neve.storage.clock import IdSource
from neve.storage.object_store import NewFiles, ObjectStore, put_file
from neve.storage.table_paths import TablePaths

# A group this many times larger than it should be ends the file before it.
_OVERGROWN: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTarget:
    """Where files go, and what all of them have in common."""

    store: ObjectStore | NewFiles
    paths: TablePaths
    schema: TableSchema
    spec_id: int
    partition: tuple[PartitionValue, ...]
    partition_path: str
    level: int
    format: FileFormat
    layout: ParquetLayout
    keeps_lineage: bool = False
    """Whether rows come with the columns of their lineage, which are written too."""
    sequence_min: int = 0
    sequence_max: int = 0
    """Sequence numbers of rows that the live writer logged."""
    wal_segments: tuple[WalSegmentRef, ...] = ()

    @property
    def file_schema(self) -> pa.Schema:
        """Columns of the rows passed in, and of the files."""
        user = self.schema.arrow_schema
        return with_lineage(user) if self.keeps_lineage else user


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A stored file, with what its commit needs to know about its rows."""

    file: DataFile
    keys: KeyArray
    """Keys of all rows, ascending."""
    index: KeyIndex


class DataFileWriter:
    """Writes the files of one partition and level; used by one thread at a time."""

    def __init__(
        self,
        target: WriteTarget,
        *,
        ids: IdSource,
        encoder: KeyEncoder,
        file_bytes_max: int,
        recorder: Recorder | None = None,
    ) -> None:
        if file_bytes_max < 1:
            raise InvalidArgument(
                f"files of at most {file_bytes_max} bytes", hint="Allow at least one byte"
            )
        self._target = target
        self._file_schema = target.file_schema
        self._ids = ids
        self._encoder = encoder
        self._hashes = KeyHashes(encoder)
        self._file_bytes_max = file_bytes_max
        self._group_rows_max = group_rows_max(target.format)
        # A group is part of a file, so it is no larger.
        self._group_bytes_max = min(GROUP_BYTES_MAX, file_bytes_max)
        self._recorder = NoRecorder() if recorder is None else recorder
        self._pending = _PendingRows()
        self._last_key: bytes | None = None
        self._open: _OpenFile | None = None
        self._written: list[WrittenFile] = []
        self._stored_paths: list[str] = []

    def append(self, rows: pa.RecordBatch | pa.Table, keys: KeyArray | None = None) -> None:
        """Take rows whose keys ascend, all above the keys before; `keys` are theirs if known.

        Raises SchemaMismatch for rows of another schema, InvalidArgument for keys out of order.
        """
        if not rows.schema.equals(self._file_schema):
            raise SchemaMismatch(
                "rows do not have the schema of the file they are written to",
                hint="Pass them through normalize_batch first",
            )
        if not rows.num_rows:
            return
        if keys is None:
            keys = self._encoder.encode_arrays([rows.column(name) for name in self._encoder.names])
        self._check_keys(keys, row_count=rows.num_rows)
        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        start = 0
        for batch in batches:
            if batch.num_rows:
                self._pending.add(batch, keys.slice(start, batch.num_rows))
                start += batch.num_rows
                self._write_groups(at_end=False)

    def finish(self) -> tuple[WrittenFile, ...]:
        """Store what is left, and return all files in the order of their keys."""
        self._write_groups(at_end=True)
        self._end_file()
        return tuple(self._written)

    def abort(self) -> None:
        """Delete the stored files; nothing refers to those that cannot be deleted now."""
        for path in self._stored_paths:
            with suppress(NeveError):
                self._target.store.delete(path)
        self._pending = _PendingRows()
        self._open = None
        self._stored_paths.clear()
        self._written.clear()

    def _check_keys(self, keys: KeyArray, *, row_count: int) -> None:
        if len(keys) != row_count:
            raise InvalidArgument(f"{len(keys)} keys for {row_count} rows")
        follows = self._last_key is None or self._last_key < key_at(keys, 0)
        if not (follows and keys_ascend(keys)):
            raise InvalidArgument(
                "rows of a data file are not in the order of their keys, or a key occurs twice",
                hint="Sort by key and keep one row of each",
            )
        self._last_key = key_at(keys, -1)

    def _write_groups(self, *, at_end: bool) -> None:
        """Encode all groups that are complete; at the end, the last one as well."""
        pending = self._pending
        while pending.row_count:
            opened = self._open
            if opened is None:
                is_enough = (
                    pending.row_count >= self._group_rows_max
                    or pending.byte_count >= self._group_bytes_max
                )
                if not (is_enough or at_end):
                    return
                group_rows = group_rows_for(
                    pending.bytes_of,
                    rows_max=self._group_rows_max,
                    bytes_max=self._group_bytes_max,
                )
                if group_rows > pending.row_count and not at_end:
                    return
                group, keys = pending.take(min(group_rows, pending.row_count))
                opened = self._open = self._begin_file(group, group_rows)
            elif pending.row_count < opened.group_rows and not at_end:
                return
            else:
                rows = min(opened.group_rows, pending.row_count)
                is_overgrown = pending.bytes_of(rows) > _OVERGROWN * self._group_bytes_max
                if opened.is_full(self._file_bytes_max) or (is_overgrown and rows > 1):
                    self._end_file()
                    continue
                group, keys = pending.take(rows)
            opened.write(group, keys)
            # Only the last group of a file may be smaller than the others.
            if group.num_rows < opened.group_rows:
                self._end_file()

    def _begin_file(self, first_group: pa.RecordBatch, group_rows: int) -> "_OpenFile":
        target = self._target
        plan = target.layout.plan(
            target.schema,
            first_group,
            file_format=target.format,
            bloom=not self._hashes.is_exact,
            group_rows=group_rows,
        )
        return _OpenFile(plan)

    def _end_file(self) -> None:
        opened, self._open = self._open, None
        if opened is None:
            return
        target = self._target
        keys = opened.joined_keys()
        key_min, key_max = key_at(keys, 0), key_at(keys, -1)
        facts = FooterFacts(
            table_id=target.paths.table_id,
            level=target.level,
            sequence_min=target.sequence_min,
            sequence_max=target.sequence_max,
            key_min=key_min,
            key_max=key_max,
        )
        sealed = seal(opened.close(), self._file_schema, facts)
        file_id = self._ids.uuid().hex
        path = target.paths.data_file(file_id, partition_path=target.partition_path)
        file = DataFile(
            path=path.removeprefix(f"{target.paths.root}/"),
            file_bytes=sum(map(len, sealed.pieces)),
            row_count=len(keys),
            level=target.level,
            key_min=key_min,
            key_max=key_max,
            sequence_min=target.sequence_min,
            sequence_max=target.sequence_max,
            format=target.format,
            footer_crc=sealed.footer_crc,
            spec_id=target.spec_id,
            partition=target.partition,
            schema_id=target.schema.schema_id,
            statistics=opened.statistics.finish(sealed.metadata),
            wal_segments=target.wal_segments,
        )
        index = KeyIndex.build(keys, self._hashes)
        self._store(path, sealed.pieces)
        if has_index(file):
            index_pieces = encode_index_file(
                file=file, key_index=index, hashes=self._hashes, groups=opened.kept_groups
            )
            self._store(target.paths.index_of(path), index_pieces)
            self._recorder.add(SSTABLE_INDEX_BYTES, sum(map(len, index_pieces)))
        self._written.append(WrittenFile(file=file, keys=keys, index=index))
        self._recorder.add(SSTABLE_FILES, 1)
        self._recorder.add(SSTABLE_ROWS, file.row_count)
        self._recorder.add(SSTABLE_BYTES, file.file_bytes)

    def _store(self, path: str, pieces: Sequence[memoryview]) -> None:
        # Noted first: a write that failed may have happened.
        self._stored_paths.append(path)
        put_file(self._target.store, path, pieces)


class _PendingRows:
    """Rows with their keys that wait for a full group."""

    def __init__(self) -> None:
        self._batches: deque[tuple[pa.RecordBatch, KeyArray]] = deque()
        self.row_count = 0
        self.byte_count = 0

    def add(self, batch: pa.RecordBatch, keys: KeyArray) -> None:
        self._batches.append((batch, keys))
        self.row_count += batch.num_rows
        self.byte_count += batch.nbytes

    def bytes_of(self, rows: int) -> int:
        """Return the size of the first rows."""
        size = 0
        for batch, _ in self._batches:
            size += batch.slice(0, rows).nbytes
            rows -= batch.num_rows
            if rows <= 0:
                break
        return size

    def take(self, rows: int) -> tuple[pa.RecordBatch, KeyArray]:
        """Remove the first rows; they are copied only where they come from several batches."""
        batches: list[pa.RecordBatch] = []
        keys: list[KeyArray] = []
        self.row_count -= rows
        while rows:
            batch, batch_keys = self._batches.popleft()
            count = min(rows, batch.num_rows)
            batches.append(batch.slice(0, count))
            keys.append(batch_keys.slice(0, count))
            self.byte_count -= batches[-1].nbytes
            rows -= count
            if count < batch.num_rows:
                self._batches.appendleft((batch.slice(count), batch_keys.slice(count)))
        joined = batches[0] if len(batches) == 1 else one_batch(pa.Table.from_batches(batches))
        return joined, concat_keys(keys)


class _OpenFile:
    """One file being encoded."""

    def __init__(self, plan: FilePlan) -> None:
        self.group_rows: Final = plan.group_rows
        self.statistics: Final = StatisticsCollector(
            plan.leaves,
            bounded=frozenset(plan.statistics),
            ascending=plan.leaves[plan.sorted_by[0]].path,
        )
        self.kept_groups: Final[list[pa.RecordBatch]] = []
        self._keeps_groups = plan.format is FileFormat.DUAL
        self._user_names = [name for name in plan.schema.names if name not in LINEAGE_NAMES]
        self._keys: list[KeyArray] = []
        self._sink = pa.BufferOutputStream()
        self._writer = plan.open_writer(self._sink)
        self._group_count = 0
        self._last_group_bytes = 0

    def write(self, group: pa.RecordBatch, keys: KeyArray) -> None:
        before = self._sink.tell()
        self._writer.write_table(pa.Table.from_batches([group]), row_group_size=self.group_rows)
        self._last_group_bytes = self._sink.tell() - before
        self._group_count += 1
        self.statistics.add(group)
        self._keys.append(keys)
        if self._keeps_groups:
            self.kept_groups.append(group.select(self._user_names))

    def is_full(self, bytes_max: int) -> bool:
        """Return whether another group like the last would be too much."""
        expected = self._sink.tell() + self._last_group_bytes
        return expected > bytes_max or self._group_count >= GROUPS_MAX

    def joined_keys(self) -> KeyArray:
        return concat_keys(self._keys)

    def close(self) -> pa.Buffer:
        self._writer.close()
        return self._sink.getvalue()
