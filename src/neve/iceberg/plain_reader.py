"""PlainReader: reads published tables by Iceberg's specification alone.

It shares no code with the engine: it parses JSON, Avro, Puffin and vectors itself, and Arrow alone
reads Parquet. So writer and checker cannot be wrong in the same way. It is made for checking, not
for speed.

    document (JSON) ──► manifest list (Avro) ──► manifests (Avro) ──► data files and deletes
                                                                      └► rows without deleted ones

Damage and disagreement are Corruption; a missing file is the NotFound of the fetch.

A vector in a Puffin file; length and checksum are big-endian, the rest little-endian:

    ┌────────────┬─────────────┬───────────┬──────────────────────────┬───────────┐
    │ length u32 │ D1 D3 39 64 │ count u64 │ count × (high u32, low)  │ crc32 u32 │
    └────────────┴─────────────┴───────────┴──────────────────────────┴───────────┘
"""

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.errors import Corruption, NeveError
from neve.sstable.parquet_groups import read_parquet

Record: TypeAlias = dict[str, Any]
Fetch: TypeAlias = Callable[[str], bytes]
"""Returns the bytes at a location; raises NotFound."""
Positions: TypeAlias = npt.NDArray[np.uint64]

_AVRO_MAGIC: Final = b"Obj\x01"
_AVRO_SYNC_BYTES: Final = 16
_BLOCK_BYTES_MAX: Final = 1 << 30
_PUFFIN_MAGIC: Final = b"PFA1"
_PUFFIN_TAIL: Final = struct.Struct("<i4s4s")
_VECTOR_MAGIC: Final = bytes.fromhex("d1d33964")
_VECTOR_TYPE: Final = "deletion-vector-v1"
_PLAIN_COOKIE: Final = 12346
_RUNS_COOKIE: Final = 12347
_OFFSETS_FROM: Final = 4
_ARRAY_MAX: Final = 4096
_BITMAP_BYTES: Final = 8192
_DELETED: Final = 2
_PATH_ID, _POSITION_ID = 2147483546, 2147483545
_DOCUMENT_MEMBERS: Final = (
    "format-version", "table-uuid", "location", "last-sequence-number", "last-updated-ms",
    "last-column-id", "schemas", "current-schema-id", "partition-specs", "default-spec-id",
    "last-partition-id", "sort-orders", "default-sort-order-id",
)  # fmt: skip
_UNREADABLE: Final = (
    ValueError, KeyError, IndexError, TypeError, struct.error, zlib.error, RecursionError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A live entry of a manifest."""

    path: str
    """Location, as the manifest spells it."""
    row_count: int
    file_bytes: int
    entry: Mapping[str, Any]


@dataclass(slots=True)
class PlainSnapshot:
    """What one snapshot reads."""

    document: Record
    snapshot: Record
    manifests: list[str] = field(default_factory=list)
    data: dict[str, PlainFile] = field(default_factory=dict)
    deletes: dict[str, PlainFile] = field(default_factory=dict)
    """By the data file they belong to."""

    @property
    def snapshot_id(self) -> int:
        """Its id, which is the number of its Version."""
        return int(self.snapshot["snapshot-id"])


class PlainReader:
    """Reads one published table; for one thread. Manifests are cached."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._manifests: dict[str, tuple[int, list[Record]]] = {}
        self.lists_read = 0

    @property
    def manifests_read(self) -> int:
        """How many manifests were read."""
        return len(self._manifests)

    def document(self, location: str) -> Record:
        """Read a table's metadata; raises Corruption."""
        with _parsing(location):
            document = json.loads(self._fetch(location))
            missing = [name for name in _DOCUMENT_MEMBERS if name not in document]
            if missing:
                raise Corruption(f"the document has no {missing[0]!a}", path=location)
            ids = {each["snapshot-id"] for each in document.get("snapshots", [])}
            named = [each["snapshot-id"] for each in document.get("refs", {}).values()]
            current = document.get("current-snapshot-id")
            if current is not None and current != -1:
                named.append(current)
            if not ids.issuperset(named):
                raise Corruption(
                    "the document names a snapshot that it does not list", path=location
                )
            return dict(document)

    def snapshot(self, document: Record, snapshot_id: int) -> PlainSnapshot:
        """Walk one snapshot down to its files; raises Corruption."""
        found = next(each for each in document["snapshots"] if each["snapshot-id"] == snapshot_id)
        walked = PlainSnapshot(document, found)
        location = str(found["manifest-list"])
        self.lists_read += 1
        with _parsing(location):
            for manifest in read_avro(self._fetch(location)):
                path = str(manifest["manifest_path"])
                walked.manifests.append(path)
                self._walk_manifest(manifest, path, walked)
            unowned = walked.deletes.keys() - walked.data.keys()
            if unowned:
                raise Corruption(
                    f"deletes belong to a file the snapshot does not have: {min(unowned)}",
                    path=location,
                )
        return walked

    def _walk_manifest(self, manifest: Record, path: str, walked: PlainSnapshot) -> None:
        size, entries = self._entries(path)
        if size != manifest["manifest_length"]:
            raise Corruption(
                f"the manifest has {size:,} bytes, not {manifest['manifest_length']:,}", path=path
            )
        counts = [0, 0, 0]
        for entry in entries:
            counts[entry["status"]] += 1
            if entry["status"] == _DELETED:
                continue
            file = entry["data_file"]
            live = PlainFile(
                file["file_path"], file["record_count"], file["file_size_in_bytes"], file
            )
            of = file["referenced_data_file"] if manifest["content"] else live.path
            files = walked.deletes if manifest["content"] else walked.data
            if of in files:
                raise Corruption(f"the snapshot lists {of} twice", path=path)
            files[of] = live
        expected = [manifest[f"{kind}_files_count"] for kind in ("existing", "added", "deleted")]
        if counts != expected:
            raise Corruption(f"the manifest has {counts} entries, not {expected}", path=path)

    def _entries(self, path: str) -> tuple[int, list[Record]]:
        known = self._manifests.get(path)
        if known is None:
            with _parsing(path):
                payload = self._fetch(path)
                known = len(payload), read_avro(payload)
            self._manifests[path] = known
        return known

    def rows(self, snapshot: PlainSnapshot, file: PlainFile) -> tuple[pa.Table, Positions]:
        """Read a data file as it is, and the positions of its live rows; raises Corruption."""
        payload = self._fetch(file.path)
        if len(payload) != file.file_bytes:
            raise Corruption(
                f"the file has {len(payload):,} bytes, not {file.file_bytes:,}", path=file.path
            )
        with _parsing(file.path):
            table = read_parquet(payload)
        if table.num_rows != file.row_count:
            raise Corruption(
                f"the file has {table.num_rows:,} rows, not {file.row_count:,}", path=file.path
            )
        keep = np.ones(table.num_rows, np.bool_)
        deletes = snapshot.deletes.get(file.path)
        if deletes is not None:
            marked = self._positions(deletes, file.path)
            if len(marked) != deletes.row_count or (
                len(marked) and int(marked.max()) >= table.num_rows
            ):
                raise Corruption("deletes are not of this file", path=deletes.path)
            keep[marked] = False
        return table, np.flatnonzero(keep).astype(np.uint64)

    def _positions(self, deletes: PlainFile, of: str) -> Positions:
        payload = self._fetch(deletes.path)
        with _parsing(deletes.path):
            if deletes.entry["file_format"] != "PUFFIN":
                table = read_parquet(payload, verify=False)
                by_id = {field_id(each): at for at, each in enumerate(table.schema)}
                if set(table.column(by_id[_PATH_ID]).unique().to_pylist()) - {of}:
                    raise Corruption("deletes name another file", path=deletes.path)
                found: Positions = table.column(by_id[_POSITION_ID]).to_numpy().astype(np.uint64)
                return np.unique(found)
            start = deletes.entry["content_offset"]
            length = deletes.entry["content_size_in_bytes"]
            blob = next(
                (
                    each
                    for each in puffin_blobs(payload)
                    if (each["offset"], each["length"]) == (start, length)
                ),
                None,
            )
            if blob is None or blob["properties"]["referenced-data-file"] != of:
                raise Corruption("the Puffin footer does not have this vector", path=deletes.path)
            return vector_positions(payload[start : start + length])


def field_id(column: "pa.Field[pa.DataType]") -> int | None:
    """Return the Iceberg id of a Parquet column; None when it has none."""
    text = (column.metadata or {}).get(b"PARQUET:field_id")
    return None if text is None else int(text)


class _parsing:  # noqa: N801 - reads as a word: with _parsing(path)
    """Turns any error while parsing bytes into Corruption."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, (*_UNREADABLE, pa.ArrowException)) and not isinstance(
            error, NeveError
        ):
            raise Corruption(f"the file cannot be read: {error!r}", path=self._path) from error


# Avro


def read_avro(payload: bytes) -> list[Record]:
    """Read all records of an Avro object container file; raises ValueError and its kin."""
    if payload[:4] != _AVRO_MAGIC:
        raise ValueError("it does not begin as Avro does")
    source = _Bytes(payload, 4)
    header = source.value({"type": "map", "values": "bytes"}, {})
    schema = json.loads(header["avro.schema"])
    codec = header.get("avro.codec", b"null")
    if codec not in {b"null", b"deflate"}:
        raise ValueError(f"the codec {codec!a} is not known")
    sync = source.take(_AVRO_SYNC_BYTES)
    records: list[Record] = []
    while source.at < len(payload):
        count, size = source.long(), source.long()
        block = source.take(size)
        if codec == b"deflate":
            unpacking = zlib.decompressobj(wbits=-15)
            block = unpacking.decompress(block, _BLOCK_BYTES_MAX)
            if not unpacking.eof:
                raise ValueError("a block is cut off or too large")
        inside = _Bytes(block, 0)
        names: dict[str, Any] = {}
        records.extend(inside.value(schema, names) for _ in range(count))
        if inside.at != len(block) or source.take(_AVRO_SYNC_BYTES) != sync:
            raise ValueError("a block does not end where it should")
    return records


class _Bytes:
    """Avro's binary encoding, read from the front."""

    def __init__(self, payload: bytes, at: int) -> None:
        self._payload = payload
        self.at = at

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self._payload):
            raise ValueError("it ends too early")
        piece, self.at = self._payload[self.at : end], end
        return piece

    def long(self) -> int:
        shift = result = 0
        while True:
            (byte,) = self.take(1)
            result |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (result >> 1) ^ -(result & 1)
            shift += 7

    def value(self, schema: Any, names: dict[str, Any]) -> Any:  # noqa: ANN401 - as the schema says
        if isinstance(schema, list):
            return self.value(schema[self.long()], names)
        if isinstance(schema, str):
            return self.value(names[schema], names) if schema in names else self._plain(schema)
        kind = schema["type"]
        if "name" in schema and kind in {"record", "fixed", "enum"}:
            names[schema["name"]] = schema
        match kind:
            case "record":
                return {each["name"]: self.value(each["type"], names) for each in schema["fields"]}
            case "array":
                return [
                    item for count in self._counts() for item in self._items(count, schema, names)
                ]
            case "map":
                return {
                    self._plain("string"): self.value(schema["values"], names)
                    for count in self._counts()
                    for _ in range(count)
                }
            case "fixed":
                return self.take(schema["size"])
            case "enum":
                return schema["symbols"][self.long()]
            case _:
                return self.value(kind, names)

    def _items(self, count: int, schema: Any, names: dict[str, Any]) -> list[Any]:  # noqa: ANN401
        return [self.value(schema["items"], names) for _ in range(count)]

    def _counts(self) -> Iterator[int]:
        while count := self.long():
            if count < 0:
                self.long()  # bytes of the block, for readers that skip it
            yield abs(count)

    def _plain(self, kind: str) -> object:
        match kind:
            case "null":
                return None
            case "boolean":
                return self.take(1) != b"\0"
            case "int" | "long":
                return self.long()
            case "float":
                return struct.unpack("<f", self.take(4))[0]
            case "double":
                return struct.unpack("<d", self.take(8))[0]
            case "bytes":
                return self.take(self.long())
            case "string":
                return self.take(self.long()).decode()
            case _:
                raise ValueError(f"the Avro type {kind!a} is not known")


# Puffin and vectors


def puffin_blobs(payload: bytes) -> list[Record]:
    """Return the deletion vectors that a Puffin file lists; raises ValueError."""
    end = len(payload) - _PUFFIN_TAIL.size
    size, flags, magic = _PUFFIN_TAIL.unpack_from(payload, end)
    start = end - size
    if {payload[:4], payload[start - 4 : start], magic} != {_PUFFIN_MAGIC} or flags != bytes(4):
        raise ValueError("the Puffin file does not have its magic where it belongs")
    return [
        each for each in json.loads(payload[start:end])["blobs"] if each["type"] == _VECTOR_TYPE
    ]


def vector_positions(blob: bytes) -> Positions:
    """Return the positions that a deletion vector marks, ascending; raises ValueError."""
    (length,) = struct.unpack_from(">I", blob)
    (crc,) = struct.unpack_from(">I", blob, len(blob) - 4)
    if length != len(blob) - 8 or blob[4:8] != _VECTOR_MAGIC or zlib.crc32(blob[4:-4]) != crc:
        raise ValueError("the vector's length, magic or checksum is wrong")
    (count,) = struct.unpack_from("<Q", blob, 8)
    offset, found = 16, []
    for _ in range(count):
        (high,) = struct.unpack_from("<I", blob, offset)
        lows, offset = _roaring(blob, offset + 4)
        found.append(lows + np.uint64(high << 32))
    if offset != len(blob) - 4:
        raise ValueError("the vector has bytes after its end")
    return np.concatenate(found) if found else np.zeros(0, np.uint64)


def _roaring(blob: bytes, start: int) -> tuple[Positions, int]:
    """Read a 32-bit Roaring bitmap in its portable form; returns its values and where it ends."""
    (cookie,) = struct.unpack_from("<I", blob, start)
    offset = start + 4
    if cookie & 0xFFFF == _RUNS_COOKIE:
        size = (cookie >> 16) + 1
        flags = int.from_bytes(blob[offset : offset + (size + 7) // 8], "little")
        offset += (size + 7) // 8
        has_offsets = size >= _OFFSETS_FROM
    elif cookie == _PLAIN_COOKIE:
        (size,) = struct.unpack_from("<I", blob, offset)
        flags, has_offsets = 0, True
        offset += 4
    else:
        raise ValueError(f"a bitmap begins with {cookie}")
    heads = list(struct.iter_unpack("<HH", blob[offset : offset + 4 * size]))
    offset += 4 * size + (4 * size if has_offsets else 0)
    values: list[Positions] = []
    for number, (high, less_one) in enumerate(heads):
        if flags >> number & 1:
            (runs,) = struct.unpack_from("<H", blob, offset)
            pairs = np.frombuffer(blob, "<u2", 2 * runs, offset + 2).reshape(-1, 2)
            steps = [np.arange(int(a), int(a) + int(b) + 1) for a, b in pairs]
            lows, used = np.concatenate(steps), 2 + 4 * runs
        elif less_one < _ARRAY_MAX:
            used = 2 * (less_one + 1)
            lows = np.frombuffer(blob, "<u2", less_one + 1, offset)
        else:
            used = _BITMAP_BYTES
            bits = np.frombuffer(blob, np.uint8, used, offset)
            lows = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        if len(lows) != less_one + 1:
            raise ValueError("a container of a bitmap does not have as many values as it says")
        values.append(lows.astype(np.uint64) + np.uint64(high << 16))
        offset += used
    return (np.concatenate(values) if values else np.zeros(0, np.uint64)), offset
