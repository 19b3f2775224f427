"""Index files: the key index of one data file and, where reads ask for it, its rows as Arrow.

The rows of a Dual file are there from the beginning. Those of other files are added when reads by
key would decode its groups again and again. A small Columnar file has no index file: reading its
keys costs as much as opening one.

Everything is little-endian; offsets count from the beginning of the file. Head, sections and groups
begin at multiples of 64, with zeros between them.

    file
    ┌──────┬────────┬───────────┬────────┬────────┬─────────┬─────────┬───
    │ head │ hashes │ positions │ schema │ groups │ group 0 │ group 1 │ …
    └──────┴────────┴───────────┴────────┴────────┴─────────┴─────────┴───
       unless hashes are exact ┘└ only where the file holds the rows

    head, 132 bytes
    ┌─────────────────┬────────────────────────────────────────────────────────┐
    │ magic 8 bytes   │ NEVEINDX                                               │
    │ version u32     │ 1                                                      │
    │ key width u32   │ bytes of a key that is its own hash; 0: MurmurHash3    │
    │ file bytes u64  │ of this file                                           │
    │ data bytes u64  │ of the data file                                       │
    │ row count u64   │ of the data file                                       │
    │ group rows u32  │ rows of each group but the last; 0: no rows are here   │
    │ footer crc u32  │ of the data file                                       │
    │ 4 × section     │ hashes, positions, schema, groups: offset u64,         │
    │                 │ length u64, crc u32                                    │
    │ crc u32         │ of all of the head before it                           │
    └─────────────────┴────────────────────────────────────────────────────────┘

    hashes      u64 × row count, ascending              positions   u32 × row count
    schema      an Arrow IPC schema message
    groups      for each group of `group rows` rows: offset u64, length u64, crc u32
    group       an Arrow IPC record batch message, uncompressed

A section that is not there has offset, length and crc 0. Checksums are CRC32C.

SSTABLE-8  The file belongs to the data file of its size, row count and footer checksum, and to no
    other: any other head is Corruption.
SSTABLE-9  Opening checks only the head. Hashes and positions are checked on the first use of the
    key index, schema and directory on that of the first group, a group on its own; each once.
SSTABLE-10  Bytes are used only after their checksum was verified. Bytes that still break the rules
    of the key index or of Arrow are Corruption too: another program wrote them.
SSTABLE-11  An index file is a cache. A reader that finds Corruption here rebuilds it from the data
    file. A missing or damaged one costs time whenever its data file is opened, never a wrong
    answer, until `IndexFiles` writes it again.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.errors import Corruption, NeveError, NotFound
from neve.keys.arrays import concat_keys
from neve.keys.encoding import KeyEncoder
from neve.keys.key_hashes import KeyHashes
from neve.model.arrow_buffers import one_batch
from neve.model.data_file import DataFile, FileFormat
from neve.model.schema import TableSchema
from neve.sstable.data_file_footer import OpenFooter
from neve.sstable.key_index import KeyIndex
from neve.sstable.parquet_groups import ParquetGroups
from neve.storage.object_store import MapsStarts, ObjectStore, map_object, put_file
from neve.storage.table_paths import TablePaths

MAGIC: Final = b"NEVEINDX"  # on disk: never change
VERSION: Final = 1

_HEAD: Final = struct.Struct("<8sIIQQQII")  # on disk: never change
_SECTION: Final = struct.Struct("<QQI")  # on disk: never change
_GROUP: Final = struct.Struct("<QQI")  # on disk: never change
_CRC: Final = struct.Struct("<I")  # on disk: never change
_ALIGNMENT: Final = 64  # on disk: never change
_SECTION_COUNT: Final = 4
_HASH_BYTES: Final = 8  # on disk: never change
_POSITION_BYTES: Final = 4  # on disk: never change
# Rows of an index are fetched for a data file up to this size: they take several times as much.
_WHOLE_BYTES: Final = 4 << 20

HEAD_BYTES: Final = _HEAD.size + _SECTION_COUNT * _SECTION.size + _CRC.size
assert HEAD_BYTES == 132  # noqa: PLR2004 - the drawing says so

# A Columnar file with more rows has an index file.
ROWS_WITHOUT_INDEX: Final = 64

_HINT: Final = "Remove the file: neve rebuilds it from the data file"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A stretch of the file, and the checksum of its bytes."""

    offset: int
    length: int
    crc: int


_ABSENT: Final = _Piece(offset=0, length=0, crc=0)


def encode_index_file(
    *,
    file: DataFile,
    key_index: KeyIndex,
    hashes: KeyHashes,
    groups: Sequence[pa.RecordBatch] = (),
) -> tuple[memoryview, ...]:
    """Return the index file of `file`, in pieces; with `groups`, it holds the rows too.

    Groups are all rows of the file in order, in batches of one schema and, except the last, of one
    length.
    """
    assert key_index.row_count == file.row_count
    assert key_index.is_exact == hashes.is_exact
    assert sum(group.num_rows for group in groups) == (file.row_count if groups else 0)
    group_rows = groups[0].num_rows if groups else 0
    assert all(group.num_rows == group_rows for group in groups[:-1])
    output = _Output()
    sections = [
        output.add(_little_endian(key_index.hashes, "<u8")),
        _ABSENT
        if key_index.positions is None
        else output.add(_little_endian(key_index.positions, "<u4")),
    ]
    if groups:
        sections.append(output.add(groups[0].schema.serialize()))
        # Before the groups, so that reading starts with one stretch of the file; filled in later.
        at = output.reserve(len(groups) * _GROUP.size)
        directory = b"".join(
            _GROUP.pack(piece.offset, piece.length, piece.crc)
            for piece in (output.add(group.serialize()) for group in groups)
        )
        sections.append(output.fill(at, directory))
    else:
        sections += [_ABSENT, _ABSENT]
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        hashes.key_width,
        output.length,
        file.file_bytes,
        file.row_count,
        group_rows,
        file.footer_crc,
    ) + b"".join(_SECTION.pack(each.offset, each.length, each.crc) for each in sections)
    output.fill(0, head + _CRC.pack(google_crc32c.value(head)))
    return output.pieces()


def has_index(file: DataFile) -> bool:
    """Return whether a data file has an index file."""
    return file.format is FileFormat.DUAL or file.row_count > ROWS_WITHOUT_INDEX


def key_index_bytes(file: DataFile, hashes: KeyHashes) -> int:
    """Return the size of an index file without rows."""
    length = _aligned(HEAD_BYTES) + file.row_count * _HASH_BYTES
    if not hashes.is_exact:
        length = _aligned(length) + file.row_count * _POSITION_BYTES
    return length


def _little_endian(numbers: npt.NDArray[np.unsignedinteger], kind: str) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(numbers, kind).data)


class _Output:
    """Pieces of a file in order, each at its aligned place."""

    def __init__(self) -> None:
        self._pieces: list[pa.Buffer | bytes] = []
        self._numbers: dict[int, int] = {}
        self.length = 0
        self.reserve(HEAD_BYTES)

    def add(self, piece: pa.Buffer | bytes) -> _Piece:
        offset = self.reserve(len(piece))
        return self.fill(offset, piece)

    def reserve(self, length: int) -> int:
        """Reserve room for a piece that is filled in later; returns its offset."""
        padding = -self.length % _ALIGNMENT
        offset = self.length + padding
        self._pieces += [bytes(padding), b""]
        self._numbers[offset] = len(self._pieces) - 1
        self.length = offset + length
        return offset

    def fill(self, offset: int, piece: pa.Buffer | bytes) -> _Piece:
        self._pieces[self._numbers[offset]] = piece
        return _Piece(offset=offset, length=len(piece), crc=google_crc32c.value(piece))

    def pieces(self) -> tuple[memoryview, ...]:
        pieces = tuple(memoryview(piece).cast("B") for piece in self._pieces if len(piece))
        assert sum(map(len, pieces)) == self.length
        return pieces


def open_index(store: ObjectStore, path: str, *, file: DataFile, hashes: KeyHashes) -> "IndexFile":
    """Open the index file of `file` to search keys; raises NotFound, Corruption.

    A large one in a bucket is not fetched for its rows: the data file has them, compressed. Then
    only its start is read, which has the keys.
    """
    if not isinstance(store, MapsStarts):
        return open_index_file(map_object(store, path), file=file, hashes=hashes)
    length = _aligned(HEAD_BYTES) + _aligned(file.row_count * _HASH_BYTES)
    if not hashes.is_exact:
        length += file.row_count * _POSITION_BYTES
    wants_whole = file.format is FileFormat.DUAL and file.file_bytes <= _WHOLE_BYTES
    start = store.map_start(path, length=length, wants_whole=wants_whole)
    return open_index_file(pa.py_buffer(start), file=file, hashes=hashes, is_start=True)


def _aligned(length: int) -> int:
    return length + -length % _ALIGNMENT


def open_index_file(
    buffer: pa.Buffer, *, file: DataFile, hashes: KeyHashes, is_start: bool = False
) -> "IndexFile":
    """Read the head of an index file (SSTABLE-9); raises Corruption if it is not that of `file`.

    With `is_start` the buffer may be the start of the file only: then it has no rows.
    """
    if buffer.size < HEAD_BYTES:
        raise _damage(f"index file has only {buffer.size} bytes", file)
    head = buffer[:HEAD_BYTES].to_pybytes()
    magic, version, key_width, length, data_bytes, row_count, group_rows, footer_crc = (
        _HEAD.unpack_from(head)
    )
    if magic != MAGIC:
        raise _damage("index file does not begin as an index file does", file)
    crc_at = HEAD_BYTES - _CRC.size
    if google_crc32c.value(head[:crc_at]) != _CRC.unpack_from(head, crc_at)[0]:
        raise _damage("index file has a damaged head", file)
    if version != VERSION:
        raise _damage(f"index file has format {version}, not {VERSION}", file)
    if length != buffer.size and not (is_start and length > buffer.size):
        raise _damage(f"index file of {length} bytes has {buffer.size}", file)
    if (data_bytes, row_count, footer_crc) != (file.file_bytes, file.row_count, file.footer_crc):
        raise _damage("SSTABLE-8: index file belongs to another data file", file)
    if key_width != hashes.key_width:
        raise _damage("SSTABLE-8: index file belongs to another kind of key", file)
    sections = tuple(
        _Piece(offset=offset, length=size, crc=crc)
        for offset, size, crc in _SECTION.iter_unpack(head[_HEAD.size : crc_at])
    )
    rows_here = group_rows if length == buffer.size else 0
    return IndexFile(buffer, file=file, hashes=hashes, sections=sections, group_rows=rows_here)


class IndexFile:
    """An open index file; safe for many threads: two that check at once find the same."""

    __slots__ = (
        "_batches",
        "_buffer",
        "_file",
        "_is_exact",
        "_key_index",
        "_places",
        "_schema",
        "_sections",
        "group_count",
        "group_rows",
    )

    def __init__(
        self,
        buffer: pa.Buffer,
        *,
        file: DataFile,
        hashes: KeyHashes,
        sections: tuple[_Piece, ...],
        group_rows: int,
    ) -> None:
        # Fixed at construction.
        self.group_rows: Final = group_rows
        """Rows of each group except the last; 0 without rows."""
        self.group_count: Final = -(-file.row_count // group_rows) if group_rows else 0
        self._buffer: Final = buffer
        self._file: Final = file
        self._is_exact: Final = hashes.is_exact
        self._sections: Final = sections
        # Made when first needed, from bytes that never change.
        self._key_index: KeyIndex | None = None
        self._schema: pa.Schema | None = None
        self._places: tuple[_Piece, ...] | None = None
        self._batches: dict[int, pa.RecordBatch] = {}

    @property
    def has_rows(self) -> bool:
        """Whether the file holds the rows besides the key index."""
        return self.group_rows > 0

    @property
    def key_index(self) -> KeyIndex:
        """The key index; raises Corruption."""
        if self._key_index is None:
            self._key_index = self._read_key_index()
        return self._key_index

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the groups, of a file that has rows; raises Corruption."""
        assert self.has_rows
        if self._schema is None:
            section = self._checked(self._sections[2], what="schema")
            try:
                self._schema = pa.ipc.read_schema(section)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise self._damage(f"SSTABLE-10: schema is not readable: {error}") from error
        return self._schema

    def group(self, number: int) -> pa.RecordBatch:
        """Return the rows of one group of a file that has rows; raises Corruption."""
        batch = self._batches.get(number)
        if batch is None:
            batch = self._batches[number] = self._read_group(number)
        return batch

    def _read_key_index(self) -> KeyIndex:
        rows = self._file.row_count
        hashes = self._numbers(self._sections[0], "<u8", count=rows, what="hashes")
        positions = None
        if not self._is_exact:
            positions = self._numbers(self._sections[1], "<u4", count=rows, what="positions")
        try:
            return KeyIndex.checked(
                hashes.astype(np.uint64, copy=False),
                None if positions is None else positions.astype(np.uint32, copy=False),
            )
        except Corruption as error:
            raise self._damage(error.message) from error

    def _numbers(
        self, piece: _Piece, kind: str, *, count: int, what: str
    ) -> npt.NDArray[np.unsignedinteger]:
        section = self._checked(piece, what=what)
        if piece.length != count * np.dtype(kind).itemsize:
            raise self._damage(
                f"SSTABLE-10: index file has {piece.length} bytes of {what} for {count} rows"
            )
        numbers = np.frombuffer(memoryview(section), kind)
        # Bytes that were read, not mapped, may be unaligned.
        return numbers if numbers.flags.aligned else numbers.copy()

    def _read_group(self, number: int) -> pa.RecordBatch:
        assert 0 <= number < self.group_count
        schema = self.schema
        if self._places is None:
            section = self._checked(self._sections[3], what="directory of groups")
            if section.size != self.group_count * _GROUP.size:
                raise self._damage("SSTABLE-10: number of groups does not fit the rows")
            self._places = tuple(
                _Piece(offset=offset, length=length, crc=crc)
                for offset, length, crc in _GROUP.iter_unpack(section.to_pybytes())
            )
        message = self._checked(self._places[number], what=f"group {number}")
        rows = min(self.group_rows, self._file.row_count - number * self.group_rows)
        try:
            batch: pa.RecordBatch = pa.ipc.read_record_batch(message, schema)
            batch.validate(full=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damage(f"SSTABLE-10: group {number} is not rows: {error}") from error
        if batch.num_rows != rows:
            raise self._damage(
                f"SSTABLE-10: group {number} has {batch.num_rows} rows instead of {rows}"
            )
        return batch

    def _checked(self, piece: _Piece, *, what: str) -> pa.Buffer:
        """Return the bytes of a piece after verifying their checksum."""
        if piece.offset + piece.length > self._buffer.size:
            raise self._damage(
                f"SSTABLE-10: index file ends before its {what}", offset=piece.offset
            )
        found = self._buffer.slice(piece.offset, piece.length)
        if google_crc32c.value(found) != piece.crc:
            raise self._damage(f"index file has damaged {what}", offset=piece.offset)
        return found

    def _damage(self, message: str, *, offset: int | None = None) -> Corruption:
        return _damage(message, self._file, offset=offset)


def _damage(message: str, file: DataFile, *, offset: int | None = None) -> Corruption:
    return Corruption(f"{message} (index of {file.path})", offset=offset, hint=_HINT)


class IndexFiles:
    """The index files of one table's data files."""

    def __init__(self, store: ObjectStore, paths: TablePaths, encoder: KeyEncoder) -> None:
        self._store = store
        self._paths = paths
        self._encoder = encoder
        self._hashes = KeyHashes(encoder)

    def problem(self, file: DataFile, schema: TableSchema) -> NeveError | None:
        """Read the index file of a data file of this schema; returns what makes it useless."""
        if not has_index(file):
            return None
        try:
            index = open_index_file(
                map_object(self._store, self.path_of(file)), file=file, hashes=self._hashes
            )
            _ = index.key_index
            if index.has_rows or file.format is FileFormat.DUAL:
                if not index.has_rows or not index.schema.equals(schema.arrow_schema):
                    return Corruption(
                        "index file lacks the rows of its data file", path=self.path_of(file)
                    )
                for number in range(index.group_count):
                    index.group(number)
        except (NotFound, Corruption) as problem:
            return problem
        return None

    def rebuild(self, file: DataFile, schema: TableSchema, *, with_rows: bool = False) -> int:
        """Write the index file of a data file of this schema again; returns its bytes.

        A Dual file always gets its rows. Raises NotFound and Corruption of the data file.
        """
        footer = OpenFooter.read(file, store=self._store, paths=self._paths)
        parquet = ParquetGroups(
            footer, file=file, schema=schema, store=self._store, paths=self._paths
        )
        with_rows = with_rows or file.format is FileFormat.DUAL
        key_names = [column.name for column in schema.key_columns]
        names = list(schema.arrow_schema.names) if with_rows else key_names
        groups, keys = [], []
        for number in range(len(footer.group_starts) - 1):
            group = one_batch(parquet.read(range(number, number + 1), names))
            keys.append(self._encoder.encode_arrays([group.column(name) for name in key_names]))
            if with_rows:
                groups.append(group)
        pieces = encode_index_file(
            file=file,
            key_index=KeyIndex.build(concat_keys(keys), self._hashes),
            hashes=self._hashes,
            groups=groups,
        )
        put_file(self._store, self.path_of(file), pieces)
        return sum(map(len, pieces))

    def rebuild_useless(
        self, files: Iterable[DataFile], schema_of: Callable[[int], TableSchema]
    ) -> list[str]:
        """Write unusable index files again; returns the paths of their data files."""
        rebuilt = []
        for file in files:
            schema = schema_of(file.schema_id)
            if self.problem(file, schema) is not None:
                self.rebuild(file, schema)
                rebuilt.append(file.path)
        return rebuilt

    def row_bytes(self, files: Mapping[str, DataFile]) -> int:
        """Return how many bytes of index files are rows, for data files by path."""
        by_index = {self.path_of(file): file for file in files.values()}
        total = 0
        for info in self._store.list(f"{self._paths.index}/"):
            file = by_index.get(info.path)
            if file is not None:
                total += max(0, info.size - key_index_bytes(file, self._hashes))
        return total

    def path_of(self, file: DataFile) -> str:
        """Path of the index file of a data file."""
        return self._paths.index_of(file.path)
