"""Deletion vectors: the rows of a data file that are no longer live; their bytes, cache and search.

    blob of type deletion-vector-v1
    ┌────────────┬─────────────┬────────┬────────────┐
    │ length u32 │ D1 D3 39 64 │ vector │ CRC-32 u32 │  length and checksum big-endian
    └────────────┴─────────────┴────────┴────────────┘
                 └─ length bytes, checked ─┘

    vector, little-endian
    ┌───────────┬─────────────────────────────────────────┐
    │ count u64 │ count × { high u32, 32-bit bitmap }     │  high parts ascending
    └───────────┴─────────────────────────────────────────┘

A position is `high << 32 | low`; a bitmap holds the low parts in Roaring's portable format. neve
writes no bitmap without positions, and encodes runs. Other writers write empty bitmaps too.

SSTABLE-15  The length counts magic and vector, and the blob is exactly 8 bytes longer.
SSTABLE-16  The checksum is CRC-32 (IEEE) of magic and vector.
SSTABLE-17  The vector ends with its last bitmap; positions are below 2^63.
SSTABLE-18  A vector marks as many rows as its reference says, all of them rows of its data file.

Bytes that break a rule are Corruption; no number decides an allocation before it is checked.

`VectorCache` keeps the vectors of one table, least recently used out first. File and offset
identify a vector, and its bytes never change, so no entry is stale. Two threads that miss at once
both read, and one entry stays.

A commit is clean when no key has two live rows. A writer that adds or deletes rows looks up the
older live rows of their keys here, and marks them in the same commit:

    keys, sorted        b  d  e  k  m  q  z
    file 1  [c … l]        d  e  k             looked up in its index: positions 17, 40
    file 2  [n … o]                            not opened: no key in its bounds
    file 3  [a … z]                            not opened: of a partition that none of them is in
"""

import struct
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from neve.errors import Corruption, LimitExceeded
from neve.keys.arrays import within
from neve.keys.columns import KeyArray
from neve.model.data_file import DataFile, VectorRef
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths, join_path

_MAGIC: Final = b"\xd1\xd3\x39\x64"  # on disk: never change
_U32: Final = struct.Struct(">I")  # on disk: never change
_COUNT: Final = struct.Struct("<Q")  # on disk: never change
_HEAD_BYTES: Final = _U32.size + len(_MAGIC)

# An empty 32-bit bitmap: high part, cookie, number of containers.
_EMPTY_BITMAP_BYTES: Final = 12

_POSITIONS_END: Final = 1 << 63

VECTOR_BYTES_MIN: Final = _HEAD_BYTES + _COUNT.size + _U32.size
# Enough for a billion rows, however the marked ones are spread.
VECTOR_BYTES_MAX: Final = 128 << 20

# The magic of a Puffin file, before which no blob can begin.
_OFFSET_MIN: Final = 4


def encode_vector(positions: BitMap64) -> bytes:
    """Return the blob of a vector; equal positions have equal bytes."""
    compact = positions.copy()
    compact.run_optimize()
    checked = _MAGIC + compact.serialize()
    blob_bytes = len(checked) + 2 * _U32.size
    if blob_bytes > VECTOR_BYTES_MAX:
        raise LimitExceeded(
            f"a deletion vector of {blob_bytes:,} bytes is too large",
            limit=VECTOR_BYTES_MAX,
            actual=blob_bytes,
            hint="Write smaller data files, or compact the file whose rows are marked",
        )
    return b"".join((_U32.pack(len(checked)), checked, _U32.pack(zlib.crc32(checked))))


def decode_vector(blob: bytes, *, path: str | None = None, offset: int = 0) -> BitMap64:
    """Return the positions in a blob, which begins at `offset` of `path`; raises Corruption."""
    if not VECTOR_BYTES_MIN <= len(blob) <= VECTOR_BYTES_MAX:
        raise Corruption(
            f"a deletion vector cannot have {len(blob):,} bytes", path=path, offset=offset
        )
    (length,) = _U32.unpack_from(blob)
    if length != len(blob) - 2 * _U32.size:
        raise Corruption(
            f"the deletion vector says it has {length:,} bytes, but has "
            f"{len(blob) - 2 * _U32.size:,}",
            path=path,
            offset=offset,
        )
    if blob[_U32.size : _HEAD_BYTES] != _MAGIC:
        raise Corruption("these bytes are not a deletion vector", path=path, offset=offset)
    checked = memoryview(blob)[_U32.size : -_U32.size]
    (checksum,) = _U32.unpack_from(blob, len(blob) - _U32.size)
    if zlib.crc32(checked) != checksum:
        raise Corruption("the checksum of a deletion vector is wrong", path=path, offset=offset)
    return _read_bitmaps(bytes(checked[len(_MAGIC) :]), path, offset + _HEAD_BYTES)


def read_vector(
    store: ObjectStore, paths: TablePaths, ref: VectorRef, *, row_count: int | None = None
) -> BitMap64:
    """Read the vector that a Version refers to; raises Corruption, or NotFound for its file.

    With `row_count`, that of the data file, a position after its last row is Corruption too.
    """
    path = join_path(paths.root, ref.path)
    if ref.offset < _OFFSET_MIN or not VECTOR_BYTES_MIN <= ref.length <= VECTOR_BYTES_MAX:
        raise Corruption(
            f"no deletion vector of {ref.length:,} bytes can begin at byte {ref.offset:,}",
            path=path,
            hint="Check the table's manifest: its reference to the vector is damaged",
        )
    blob = store.get_range(path, start=ref.offset, length=ref.length)
    if len(blob) != ref.length:
        raise Corruption(
            f"the file ends {ref.length - len(blob):,} bytes before its deletion vector does",
            path=path,
            offset=ref.offset,
        )
    positions = decode_vector(blob, path=path, offset=ref.offset)
    check_marked(positions, ref, row_count=row_count, path=path)
    return positions


def check_marked(
    positions: BitMap64, ref: VectorRef, *, row_count: int | None, path: str | None = None
) -> None:
    """Raise Corruption when a vector does not match its reference (SSTABLE-18)."""
    if len(positions) != ref.cardinality:
        raise Corruption(
            f"the deletion vector marks {len(positions):,} rows, not {ref.cardinality:,}",
            path=path or ref.path,
            offset=ref.offset,
        )
    if row_count is not None and positions and positions.max() >= row_count:
        raise Corruption(
            f"the deletion vector marks row {positions.max():,} of {row_count:,}",
            path=path or ref.path,
            offset=ref.offset,
        )


def bitmap_of(positions: npt.NDArray[np.int64]) -> BitMap64:
    """Return positions as a bitmap; they may be in any order and repeat."""
    assert not len(positions) or positions.min() >= 0
    # The bitmap takes an array of the standard library as a whole, anything else one by one.
    return BitMap64(array("Q", positions.astype(np.uint64, copy=False).tobytes()))


def positions_in(bitmap: BitMap64) -> npt.NDArray[np.int64]:
    """Return the positions of a bitmap, ascending; all of them are below 2^63."""
    return np.frombuffer(bitmap.to_array(), dtype=np.int64)


def keep_mask(positions: BitMap64, file: DataFile) -> npt.NDArray[np.bool_]:
    """Return True for each row of a file that no position marks; raises Corruption for others."""
    # First, so that a few bytes of runs never become a huge array.
    if positions and positions.max() >= file.row_count:
        raise Corruption(
            f"row {positions.max():,} of {file.row_count:,} is marked as deleted", path=file.path
        )
    mask = np.ones(file.row_count, dtype=np.bool_)
    mask[positions_in(positions)] = False
    return mask


def _read_bitmaps(vector: bytes, path: str | None, offset: int) -> BitMap64:
    try:
        # It checks order and kind of containers, counts, and the end of the bytes.
        positions = BitMap64.deserialize(vector)
    except ValueError as error:
        raise Corruption(
            f"the bitmaps of a deletion vector cannot be read: {error}", path=path, offset=offset
        ) from error
    (count,) = _COUNT.unpack_from(vector)
    rewritten = positions.serialize()
    (filled,) = _COUNT.unpack_from(rewritten)
    if len(vector) != len(rewritten) + (count - filled) * _EMPTY_BITMAP_BYTES:
        raise Corruption(
            "the bitmaps of a deletion vector do not fill it", path=path, offset=offset
        )
    if positions and positions.max() >= _POSITIONS_END:
        raise Corruption(
            f"a deletion vector marks row {positions.max():,}", path=path, offset=offset
        )
    return positions


_Key = tuple[str, int]

# What an entry costs besides its bitmap and its mask.
_ENTRY_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class _Entry:
    vector: BitMap64
    vector_bytes: int
    mask: npt.NDArray[np.bool_] | None = None

    @property
    def byte_count(self) -> int:
        mask_bytes = 0 if self.mask is None else self.mask.nbytes
        return _ENTRY_BYTES + self.vector_bytes + mask_bytes


class VectorCache:
    """Returns the vector of a data file, and the mask of its live rows. Safe for many threads.

    Its results are shared: a bitmap from here must never be changed.
    """

    def __init__(self, store: ObjectStore, paths: TablePaths, bytes_max: int) -> None:
        # Fixed at construction.
        self._store = store
        self._paths = paths
        self._bytes_max = bytes_max
        # Guarded by _lock; the entry used last is at the end.
        self._lock = Lock()
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._byte_count = 0

    @property
    def byte_count(self) -> int:
        """Bytes that the cache holds."""
        with self._lock:
            return self._byte_count

    def positions(self, file: DataFile) -> BitMap64:
        """Return the marked positions of a file; raises Corruption, or NotFound for the vector."""
        return BitMap64() if file.vector is None else self._entry(file, file.vector).vector

    def mask(self, file: DataFile) -> npt.NDArray[np.bool_] | None:
        """Return True for each live row, read-only; None when no row is marked."""
        if file.vector is None:
            return None
        entry = self._entry(file, file.vector)
        if entry.mask is not None:
            return entry.mask
        mask = keep_mask(entry.vector, file)
        mask.flags.writeable = False
        self._keep(file.vector, _Entry(entry.vector, entry.vector_bytes, mask))
        return mask

    def remember(self, file: DataFile, vector: BitMap64) -> None:
        """Keep a vector that was just written, so that no reader has to read it."""
        if file.vector is not None:
            check_marked(vector, file.vector, row_count=file.row_count)
            self._keep(file.vector, _Entry(vector, file.vector.length))

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._entries.clear()
            self._byte_count = 0

    def _entry(self, file: DataFile, ref: VectorRef) -> _Entry:
        key = (ref.path, ref.offset)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry
        # Outside the lock: a slow store does not block readers of cached vectors.
        vector = read_vector(self._store, self._paths, ref, row_count=file.row_count)
        entry = _Entry(vector, ref.length)
        self._keep(ref, entry)
        return entry

    def _keep(self, ref: VectorRef, entry: _Entry) -> None:
        key = (ref.path, ref.offset)
        with self._lock:
            before = self._entries.pop(key, None)
            if before is not None:
                self._byte_count -= before.byte_count
            self._entries[key] = entry
            self._byte_count += entry.byte_count
            while self._byte_count > self._bytes_max:
                _, dropped = self._entries.popitem(last=False)
                self._byte_count -= dropped.byte_count


class FindsPositions(Protocol):
    """An open data file, as far as it matters here: a `DataFileReader`."""

    def positions_of(self, keys: KeyArray) -> npt.NDArray[np.int64]:
        """Positions of the rows that have one of these keys, ascending."""


def superseded_rows(
    files: Iterable[DataFile],
    keys: KeyArray,
    *,
    open_reader: Callable[[DataFile], FindsPositions],
    vector_of: Callable[[DataFile], BitMap64 | None],
    keys_for: Callable[[DataFile], KeyArray] | None = None,
) -> dict[str, BitMap64]:
    """Return the live rows of ascending `keys` by path of their file; others are left out.

    `vector_of` returns the rows of a file that are marked already, and so no longer live. Only
    files whose bounds hold one of the keys are opened. `keys_for` returns the keys that may be in a
    file's partition, where the key determines it.
    """
    found: dict[str, BitMap64] = {}
    if not len(keys):
        return found
    for file in files:
        wanted = keys if keys_for is None else keys_for(file)
        inside = within(wanted, file.key_min, file.key_max)
        if inside.start == inside.stop:
            continue
        positions = open_reader(file).positions_of(
            wanted.slice(inside.start, inside.stop - inside.start)
        )
        if not len(positions):
            continue
        live = BitMap64(positions.astype(np.uint64))
        marked = vector_of(file)
        if marked is not None:
            live -= marked
        if live:
            found[file.path] = live
    return found
