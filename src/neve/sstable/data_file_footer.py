"""Bytes of a data file: an ordinary Parquet file with more facts in its footer.

    ┌──────┬─────────────┬─────┬─────────────┬─────────────────┬──────────┬────────────┬──────┐
    │ PAR1 │ row group 0 │  …  │ row group n │ page indexes,   │ metadata │ length u32 │ PAR1 │
    │      │ chunk chunk │     │ chunk chunk │ bloom filters   │ (Thrift) │            │      │
    └──────┴─────────────┴─────┴─────────────┴─────────────────┴──────────┴────────────┴──────┘
             └─ a checksum for each chunk ─┘   └─ and one ─┘     └─ footer: its checksum is ─┘
                in the metadata                  for these          in the manifest

Rows ascend by key, one row per key. Columns are the user's, each with its Iceberg field id; after
them, in a file of rows that a rewrite moved, the two of `neve.model.row_lineage`. Row groups have
the same number of rows, a power of two of at most 65,536, except the last.

The metadata has these texts by key, besides what every Parquet file has:

    neve.format              1
    neve.table-id            id of the table
    neve.level               level the file was written for
    neve.sequence-min, -max  sequence numbers of the rows, 0 when the live writer did not log them
    neve.key-min, -max       keys of the first and last row, in hexadecimal
    neve.checksums           Base64 of CRC-32C, u32 each: of the chunks, group by group and leaf by
                             leaf, then of everything between the last chunk and the footer

A chunk is all pages of one column in one row group, with their headers. Parquet's own checksums
are there too, for other readers; they cover the pages but not their headers.

SSTABLE-1  The file has the size and the footer checksum of its Version, and begins with PAR1.
SSTABLE-2  Chunks follow one another from byte 4, without gaps.
SSTABLE-3  It has as many rows as its Version says.
SSTABLE-4  Offsets and lengths are checked against the size of the file before they are used.

Files of other writers have no `neve.checksums`, and perhaps gaps: their pages are verified.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Final, TypeAlias, cast

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from neve.errors import Corruption
from neve.model.data_file import ColumnStatistics, DataFile
from neve.model.plain_values import PlainValue, decimal_of, is_nan, less, stored_type
from neve.model.pruning import ColumnFacts
from neve.model.schema import TableSchema
from neve.sstable.column_statistics import lower_bound, upper_bound
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths, join_path

MAGIC: Final = b"PAR1"
TRAILER_BYTES: Final = 8  # length and magic
FORMAT: Final = "1"

_FORMAT_KEY: Final = "neve.format"  # on disk: never change
_CHECKSUMS_KEY: Final = "neve.checksums"  # on disk: never change
# Most footers are shorter, so that one read fetches them whole.
_TAIL_BYTES: Final = 64 << 10

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterFacts:
    """The facts in the footer of a data file."""

    table_id: str
    level: int
    sequence_min: int
    sequence_max: int
    key_min: bytes
    key_max: bytes

    def texts(self) -> dict[str, str]:
        """Return the facts as they are stored."""
        return {
            _FORMAT_KEY: FORMAT,
            "neve.table-id": self.table_id,
            "neve.level": str(self.level),
            "neve.sequence-min": str(self.sequence_min),
            "neve.sequence-max": str(self.sequence_max),
            "neve.key-min": self.key_min.hex(),
            "neve.key-max": self.key_max.hex(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedFile:
    """The bytes of a whole data file."""

    pieces: tuple[memoryview, ...]
    footer_crc: int
    metadata: pq.FileMetaData


def seal(body: pa.Buffer, schema: pa.Schema, facts: FooterFacts) -> SealedFile:
    """Return a Parquet file, written with this schema, its final footer.

    1. Read the metadata, and find where the chunks are.
    2. Checksum the chunks, and the bytes between the last of them and the footer.
    3. Write an empty file that has the texts, and add the row groups to its metadata.
    4. Replace the footer with that.
    """
    metadata = pq.read_metadata(pa.BufferReader(body))
    chunks = chunk_places(metadata)
    footer_at = body.size - TRAILER_BYTES - _footer_length(body)
    ends = np.append(chunks.starts.ravel(), footer_at)
    assert ends[0] == len(MAGIC), "SSTABLE-2"
    tail_at = int(chunks.starts[-1, -1] + chunks.lengths[-1, -1])
    assert (np.diff(ends[:-1]) == chunks.lengths.ravel()[:-1]).all(), "SSTABLE-2"
    pieces = [
        body.slice(start, length)
        for start, length in zip(
            chunks.starts.ravel().tolist(), chunks.lengths.ravel().tolist(), strict=True
        )
    ]
    pieces.append(body.slice(tail_at, footer_at - tail_at))
    checksums = np.array([google_crc32c.value(piece) for piece in pieces], "<u4")
    texts = {**facts.texts(), _CHECKSUMS_KEY: base64.b64encode(checksums.tobytes()).decode()}
    final = _empty_metadata(schema, texts)
    final.append_row_groups(metadata)
    written = pa.BufferOutputStream()
    final.write_metadata_file(written)
    footer = written.getvalue().slice(len(MAGIC))
    return SealedFile(
        pieces=(memoryview(body.slice(0, footer_at)), memoryview(footer)),
        footer_crc=google_crc32c.value(footer),
        metadata=final,
    )


def _empty_metadata(schema: pa.Schema, texts: dict[str, str]) -> pq.FileMetaData:
    sink = pa.BufferOutputStream()
    writer = pq.ParquetWriter(
        sink, schema, version="2.6", store_schema=False, store_decimal_as_integer=True
    )
    writer.add_key_value_metadata(texts)
    writer.close()
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


def _footer_length(body: pa.Buffer) -> int:
    return int.from_bytes(body.slice(body.size - TRAILER_BYTES, 4).to_pybytes(), "little")


@dataclass(frozen=True, slots=True)
class ChunkPlaces:
    """Where each chunk begins and how long it is: a line per row group, a place per leaf."""

    starts: Offsets
    lengths: Offsets


def chunk_places(metadata: pq.FileMetaData) -> ChunkPlaces:
    """Read where the chunks of a file are, unchecked; raises Corruption where some are missing."""
    shape = (metadata.num_row_groups, metadata.num_columns)
    starts = np.zeros(shape, np.int64)
    lengths = np.zeros(shape, np.int64)
    # One iteration per chunk; each takes a few microseconds.
    for group in range(shape[0]):
        row_group = metadata.row_group(group)
        if row_group.num_columns != shape[1]:
            raise Corruption(
                f"SSTABLE-4: row group {group} has {row_group.num_columns} columns "
                f"instead of {shape[1]}"
            )
        for at in range(shape[1]):
            chunk = row_group.column(at)
            start = chunk.data_page_offset
            dictionary = chunk.dictionary_page_offset
            starts[group, at] = start if not dictionary else min(start, dictionary)
            lengths[group, at] = chunk.total_compressed_size
    return ChunkPlaces(starts, lengths)


class OpenFooter:
    """The footer of a data file, checked against its Version (SSTABLE-1, SSTABLE-3)."""

    def __init__(self, file: DataFile, path: str, footer: bytes) -> None:
        self._file = file
        self._path = path
        self._footer = footer

    @classmethod
    def read(cls, file: DataFile, *, store: ObjectStore, paths: TablePaths) -> "OpenFooter":
        """Fetch the end of a data file; raises NotFound, or Corruption for other bytes."""
        path = join_path(paths.root, file.path)
        start = max(0, file.file_bytes - _TAIL_BYTES)
        # One byte more than expected, to notice a file that is too long.
        tail = store.get_range(path, start=start, length=file.file_bytes - start + 1)
        if len(tail) != file.file_bytes - start:
            raise Corruption(
                f"SSTABLE-1: data file does not have its {file.file_bytes} bytes",
                path=path,
                hint="Restore it from a copy, or roll back to a Version without it",
            )
        length = TRAILER_BYTES + int.from_bytes(tail[-TRAILER_BYTES:-4], "little")
        if tail[-4:] != MAGIC or length + len(MAGIC) > file.file_bytes:
            raise Corruption("SSTABLE-1: data file does not end as Parquet does", path=path)
        if length > len(tail):
            tail = store.get_range(path, start=file.file_bytes - length, length=length)
        footer = tail[-length:]
        if file.footer_crc and google_crc32c.value(footer) != file.footer_crc:
            raise Corruption(
                "SSTABLE-1: data file has a damaged footer",
                path=path,
                offset=file.file_bytes - length,
            )
        return cls(file, path, footer)

    @property
    def crc(self) -> int:
        """Checksum of the footer, as a Version has it."""
        return int(google_crc32c.value(self._footer))

    @property
    def offset(self) -> int:
        """Where the footer begins in the file."""
        return self._file.file_bytes - len(self._footer)

    @cached_property
    def metadata(self) -> pq.FileMetaData:
        """What Parquet says about the file; raises Corruption."""
        try:
            metadata = pq.read_metadata(pa.BufferReader(MAGIC + self._footer))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise Corruption(
                f"footer of the data file cannot be read: {error}", path=self._path
            ) from error
        if metadata.num_rows != self._file.row_count:
            raise Corruption(
                f"SSTABLE-3: data file has {metadata.num_rows} rows "
                f"instead of {self._file.row_count}",
                path=self._path,
            )
        return metadata

    @cached_property
    def group_starts(self) -> tuple[int, ...]:
        """Position of the first row of each group, and the number of rows; raises Corruption."""
        metadata = self.metadata
        starts = [0]
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            if rows <= 0:
                raise Corruption(f"SSTABLE-4: a row group has {rows} rows", path=self._path)
            starts.append(starts[-1] + rows)
        if starts[-1] != metadata.num_rows:
            raise Corruption(
                f"SSTABLE-3: row groups have {starts[-1]} rows instead of {metadata.num_rows}",
                path=self._path,
            )
        return tuple(starts)

    @cached_property
    def chunks(self) -> ChunkPlaces:
        """Where the chunks are, all inside the file; raises Corruption."""
        places = chunk_places(self.metadata)
        starts, lengths = places.starts, places.lengths
        # Both are below 2^63, so compare without adding.
        is_inside = (starts >= len(MAGIC)) & (lengths >= 0) & (lengths <= self.offset - starts)
        if not is_inside.all():
            raise Corruption("SSTABLE-4: a chunk lies outside the data file", path=self._path)
        return places

    @cached_property
    def checksums(self) -> npt.NDArray[np.uint32] | None:
        """Checksums of the chunks, then of what follows them; None in files of other writers."""
        texts = self.metadata.metadata or {}
        text = texts.get(_CHECKSUMS_KEY.encode())
        if text is None:
            return None
        try:
            found = np.frombuffer(base64.b64decode(text, validate=True), "<u4")
        except (binascii.Error, ValueError) as error:
            raise Corruption(
                "checksums of the data file cannot be read", path=self._path
            ) from error
        if len(found) != self.chunks.starts.size + 1:
            raise Corruption(
                f"data file has {len(found)} checksums for {self.chunks.starts.size} chunks",
                path=self._path,
            )
        return found.astype(np.uint32, copy=False)


_Leaf: TypeAlias = tuple[int, pa.DataType]


class GroupFacts:
    """Facts in the footer about the columns of each row group, read once; safe for many threads.

    Only top-level primitive columns have facts, and only where footer and schema agree: files of
    other writers may hold, say, timestamps in another unit. Parquet does not count NaN.
    """

    def __init__(self, metadata: pq.FileMetaData, schema: TableSchema) -> None:
        self._metadata = metadata
        self._leaves = _leaves(metadata, schema)
        # Safe without a lock: facts read twice are the same.
        self._known: dict[tuple[int, int], ColumnFacts] = {}

    def byte_count(self, group: int) -> int:
        """Return about how many bytes a group has in memory."""
        return int(self._metadata.row_group(group).total_byte_size)

    def of(self, group: int, field_id: int) -> ColumnFacts | None:
        """Return what is known about a column in a group, or None."""
        leaf = self._leaves.get(field_id)
        if leaf is None:
            return None
        facts = self._known.get((group, field_id))
        if facts is None:
            facts = self._read(group, *leaf)
            self._known[group, field_id] = facts
        return facts

    def of_file(self) -> tuple[ColumnStatistics, ...]:
        """Return what the footer says of whole columns; those that it says too little of are out.

        For files of other writers: neve computes what it keeps of its own files.
        """
        found: list[ColumnStatistics] = []
        groups = range(self._metadata.num_row_groups)
        for field_id, (place, type_) in sorted(self._leaves.items()):
            facts = [self._read(group, place, type_) for group in groups]
            nulls = [each.null_count for each in facts if each.null_count is not None]
            if len(nulls) < len(facts):
                continue
            with_values = [each for each in facts if each.null_count != each.row_count]
            lowest, highest = _extremes(with_values)
            chunks = (self._metadata.row_group(group).column(place) for group in groups)
            found.append(
                ColumnStatistics(
                    field_id=field_id,
                    compressed_bytes=sum(chunk.total_compressed_size for chunk in chunks),
                    value_count=sum(each.row_count or 0 for each in facts),
                    null_count=sum(nulls),
                    lower=None if lowest is None else lower_bound(lowest, type_),
                    upper=None if highest is None else upper_bound(highest, type_),
                )
            )
        return tuple(found)

    def _read(self, group: int, place: int, type_: pa.DataType) -> ColumnFacts:
        row_group = self._metadata.row_group(group)
        statistics = row_group.column(place).statistics
        row_count = row_group.num_rows
        if statistics is None:
            return ColumnFacts(row_count=row_count)
        lower = upper = None
        if statistics.has_min_max:
            lower = _plain(statistics.min_raw, type_)
            upper = _plain(statistics.max_raw, type_)
        null_count = statistics.null_count  # None where it was not counted
        return ColumnFacts(lower=lower, upper=upper, null_count=null_count, row_count=row_count)


def _leaves(metadata: pq.FileMetaData, schema: TableSchema) -> dict[int, _Leaf]:
    stored = metadata.schema.to_arrow_schema()
    paths = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    leaves: dict[int, _Leaf] = {}
    for column in schema.columns:
        place = paths.get(column.name)
        at = stored.get_field_index(column.name)
        if place is None or at < 0 or pa.types.is_nested(column.type):
            continue
        if plain_type(stored.field(at).type) == plain_type(column.type):
            leaves[column.field_id] = place, column.type
    return leaves


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return one type for all that Parquet stores in the same way."""
    if pa.types.is_large_string(type_):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(type_) else stored_type(type_)


def _extremes(groups: Sequence[ColumnFacts]) -> tuple[PlainValue | None, PlainValue | None]:
    """Return the bounds of all groups; None unless each of them has both."""
    lowest: PlainValue | None = None
    highest: PlainValue | None = None
    for each in groups:
        lower, upper = each.lower, each.upper
        if lower is None or upper is None or is_nan(lower) or is_nan(upper):
            return None, None
        lowest = lower if lowest is None or less(lower, lowest) else lowest
        highest = upper if highest is None or less(highest, upper) else highest
    return lowest, highest


def _plain(raw: object, type_: pa.DataType) -> PlainValue | None:
    """Return a bound as a plain value; None when it is not a value of the column."""
    if pa.types.is_decimal(type_):
        unscaled = int.from_bytes(raw, signed=True) if isinstance(raw, bytes) else raw
        return decimal_of(unscaled, type_) if isinstance(unscaled, int) else None
    if pa.types.is_string(type_):
        try:
            return cast("bytes", raw).decode()
        except UnicodeDecodeError:
            return None
    return raw if isinstance(raw, bool | int | float | bytes | Decimal) else None
