"""All uses of PyIceberg: Avro records of manifests, and scans of other writers' Iceberg tables.

PyIceberg knows Iceberg's Avro schemas and how to encode a record; it writes no format 3, no delete
manifests, and one block per entry. So neve uses its schemas and record codec, and writes the file
around the records here:

    ┌──────┬─────────────┬─────────┬────────────────────────────────────────────────┬─────────┐
    │ Obj1 │ metadata    │ sync 16 │ count varint │ size varint │ deflated records  │ sync 16 │
    └──────┴─────────────┴─────────┴────────────────────────────────────────────────┴─────────┘
            count, { key, value }…, 0    └─ one block of all records ─┘

The sync marker is a hash of the file's content, so equal contents make equal bytes.

PyIceberg takes one to two seconds to load, so it is loaded with the first manifest.
"""

import hashlib
import importlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from neve.errors import Corruption, InvalidArgument
from neve.iceberg.iceberg_file import IcebergFile

EXISTING: Final = 0
ADDED: Final = 1
DELETED: Final = 2

_MAGIC: Final = b"Obj\x01"  # on disk: never change
_SYNC_BYTES: Final = 16
_WINDOW_RAW: Final = -15  # deflate without a zlib header, as Avro has it
_LEVEL: Final = 3

# Fields of `data_file` that format 2 does not know.
_NOT_IN_FORMAT_2: Final = frozenset({"first_row_id", "content_offset", "content_size_in_bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One entry of a manifest that is written; numbers that are None are inherited."""

    status: int
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    file: IcebergFile


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEntry:
    """The parts of an entry that are read, before inheritance."""

    status: int
    snapshot_id: int | None
    sequence_number: int | None
    file_path: str
    file_bytes: int
    content_offset: int | None
    row_count: int = 0
    content_size: int | None = None
    content: int = 0
    """0 for data, 1 for position deletes, 2 for equality deletes."""
    file_format: str = ""
    equality_ids: tuple[int, ...] = ()
    referenced_data_file: str | None = None


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """Values of one partition field in a manifest."""

    contains_null: bool
    contains_nan: bool
    lower_bound: bytes | None
    upper_bound: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRecord:
    """One manifest as a manifest list describes it; names are Iceberg's."""

    manifest_path: str
    manifest_length: int
    partition_spec_id: int
    content: int
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    added_files_count: int
    existing_files_count: int
    deleted_files_count: int
    added_rows_count: int
    existing_rows_count: int
    deleted_rows_count: int
    partitions: tuple[FieldSummary, ...]
    first_row_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestForm:
    """What the manifests of one spec have in common."""

    format_version: int
    schema: str
    """JSON of a schema that has the spec's source columns."""
    schema_id: int
    spec_id: int
    spec_fields: str
    """JSON of the spec's fields."""


class ManifestCodec:
    """Writes the entries and the manifests of one form."""

    def __init__(self, form: ManifestForm) -> None:
        self._form = form
        manifest, schemas = load("pyiceberg.manifest"), load("pyiceberg.schema")
        schema = schemas.Schema.model_validate_json(form.schema)
        spec = load("pyiceberg.partitioning").PartitionSpec(
            *json.loads(form.spec_fields), spec_id=form.spec_id
        )
        partition = spec.partition_type(schema)
        entry_schema = _entry_schema(form.format_version, partition)
        self._writer = load("pyiceberg.avro.resolver").construct_writer(entry_schema)
        self._file_fields = [
            field.name for field in entry_schema.find_field("data_file").field_type.fields
        ]
        self._avro_schema = _avro_schema(entry_schema, "manifest_entry")
        assert manifest.ManifestEntryStatus.DELETED == DELETED

    def entry(self, entry: ManifestEntry) -> bytes:
        """Return the bytes of one entry."""
        file = entry.file
        values = [getattr(file, name, None) for name in self._file_fields]
        record = (
            entry.status,
            entry.snapshot_id,
            entry.sequence_number,
            entry.file_sequence_number,
            values,
        )
        return _encoded(self._writer, record)

    def manifest(self, entries: Sequence[bytes], *, content: int) -> bytes:
        """Return the bytes of a manifest."""
        form = self._form
        return _container(
            entries,
            {
                "schema": form.schema,
                "schema-id": str(form.schema_id),
                "partition-spec": form.spec_fields,
                "partition-spec-id": str(form.spec_id),
                "format-version": str(form.format_version),
                "content": "deletes" if content else "data",
                "avro.schema": self._avro_schema,
            },
        )


def encode_manifest_list(
    manifests: Iterable[ManifestRecord],
    *,
    format_version: int,
    snapshot_id: int,
    parent_id: int | None,
    first_row_id: int,
) -> bytes:
    """Return the bytes of the manifest list of a snapshot, whose sequence number is its id."""
    writer, names, avro_schema = _list_writer(format_version)
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(snapshot_id),
        "format-version": str(format_version),
        "avro.schema": avro_schema,
    }
    if format_version > 2:  # noqa: PLR2004 - format 2 knows no row ids
        metadata["first-row-id"] = str(first_row_id)
    records = []
    for manifest in manifests:
        values = [getattr(manifest, name, None) for name in names]
        values[names.index("partitions")] = [
            (each.contains_null, each.contains_nan, each.lower_bound, each.upper_bound)
            for each in manifest.partitions
        ]
        records.append(_encoded(writer, values))
    return _container(records, metadata)


def read_manifest(payload: bytes, *, path: str) -> list[ReadEntry]:
    """Read the entries of a manifest; raises Corruption."""
    # PyIceberg cannot skip maps and structs, so entries are read whole.
    schema = load("pyiceberg.manifest").MANIFEST_ENTRY_SCHEMAS[3]
    names = [field.name for field in schema.find_field("data_file").field_type.fields]
    at = {name: place for place, name in enumerate(names)}
    found = []
    for record in _records(payload, schema, path):
        file = record[4]
        content = file[at["content"]]
        file_format = file[at["file_format"]]
        found.append(
            ReadEntry(
                status=record[0],
                snapshot_id=record[1],
                sequence_number=record[2],
                file_path=file[at["file_path"]],
                file_bytes=file[at["file_size_in_bytes"]],
                content_offset=file[at["content_offset"]],
                row_count=int(file[at["record_count"]] or 0),
                content_size=file[at["content_size_in_bytes"]],
                content=int(content or 0),
                file_format=str(getattr(file_format, "value", file_format)),
                equality_ids=tuple(file[at["equality_ids"]] or ()),
                referenced_data_file=file[at["referenced_data_file"]],
            )
        )
    return found


def read_manifest_list(payload: bytes, *, path: str) -> list[ManifestRecord]:
    """Read a manifest list; raises Corruption."""
    schema = load("pyiceberg.manifest").MANIFEST_LIST_FILE_SCHEMAS[3]
    names = [field.name for field in schema.fields]
    known = {field.name for field in fields(ManifestRecord)}
    found = []
    for record in _records(payload, schema, path):
        values = {name: record[at] for at, name in enumerate(names) if name in known}
        values["partitions"] = tuple(
            FieldSummary(each[0], bool(each[1]), each[2], each[3])
            for each in values["partitions"] or ()
        )
        found.append(ManifestRecord(**values))
    return found


def _entry_schema(format_version: int, partition: Any) -> Any:  # noqa: ANN401 - PyIceberg's own
    manifest, types = load("pyiceberg.manifest"), load("pyiceberg.types")
    file = manifest.data_file_with_partition(partition, 3)
    if format_version == 2:  # noqa: PLR2004
        file = types.StructType(
            *(each for each in file.fields if each.name not in _NOT_IN_FORMAT_2)
        )
    return manifest.manifest_entry_schema_with_data_file(format_version, file)


@lru_cache(maxsize=4)
def _list_writer(format_version: int) -> tuple[Any, list[str], str]:
    schema = load("pyiceberg.manifest").MANIFEST_LIST_FILE_SCHEMAS[format_version]
    writer = load("pyiceberg.avro.resolver").construct_writer(schema)
    names = [field.name for field in schema.fields]
    return writer, names, _avro_schema(schema, "manifest_file")


def _avro_schema(schema: Any, name: str) -> str:  # noqa: ANN401 - PyIceberg's own
    conversion = load("pyiceberg.utils.schema_conversion").AvroSchemaConversion()
    return json.dumps(conversion.iceberg_to_avro(schema, schema_name=name), separators=(",", ":"))


def _encoded(writer: Any, record: Sequence[object]) -> bytes:  # noqa: ANN401 - PyIceberg's own
    stream = io.BytesIO()
    writer.write(load("pyiceberg.avro.encoder").BinaryEncoder(stream), record)
    return stream.getvalue()


def _container(records: Sequence[bytes], metadata: Mapping[str, str]) -> bytes:
    """Return an Avro file of records."""
    content = b"".join(records)
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_RAW)
    block = packer.compress(content) + packer.flush()
    members = {**metadata, "avro.codec": "deflate"}
    header = [_MAGIC, _varint(len(members))]
    for key, value in members.items():
        for text in (key.encode(), value.encode()):
            header += (_varint(len(text)), text)
    header.append(_varint(0))
    start = b"".join(header)
    sync = hashlib.sha256(start + content).digest()[:_SYNC_BYTES]
    # A file without records has no block: some readers refuse an empty one.
    parts = (_varint(len(records)), _varint(len(block)), block, sync) if records else ()
    return b"".join((start, sync, *parts))


def _varint(number: int) -> bytes:
    """Return a count in Avro's zig-zag form."""
    rest = number << 1
    digits = bytearray()
    while rest > 0x7F:  # noqa: PLR2004 - seven bits each
        digits.append(rest & 0x7F | 0x80)
        rest >>= 7
    digits.append(rest)
    return bytes(digits)


def _records(payload: bytes, schema: Any, path: str) -> list[Any]:  # noqa: ANN401
    avro = load("pyiceberg.avro.file")
    try:
        with avro.AvroFile(_Bytes(payload, path), schema) as reader:
            records, marker = list(reader), reader.header.sync
    except Exception as error:  # a library may raise anything for damaged bytes
        raise Corruption(f"an Avro file cannot be read: {error}", path=path) from error
    # PyIceberg's decoder may read on after the end of a file that was cut within its last marker.
    if not payload.endswith(marker):
        raise Corruption("an Avro file cannot be read: its end is missing", path=path)
    return records


class _Bytes:
    """What PyIceberg reads from: an input file that is in memory."""

    def __init__(self, payload: bytes, location: str) -> None:
        self._payload = payload
        self.location = location

    def open(self, seekable: bool = True) -> io.BytesIO:  # noqa: ARG002 - PyIceberg's signature
        """Return its bytes as a stream."""
        return io.BytesIO(self._payload)


@lru_cache(maxsize=32)
def load(name: str) -> Any:  # noqa: ANN401 - a module
    """Load a module of PyIceberg, or one that comes with it, when it is first needed."""
    return importlib.import_module(name)


@dataclass(frozen=True, slots=True)
class ForeignTask:
    """One data file of a scan, with its deletes, as PyIceberg planned it."""

    file_bytes: int
    planned: object


@dataclass(frozen=True, slots=True)
class ForeignScan:
    """Files of an Iceberg table that neve did not write; a worker reads them with `read`."""

    location: str
    schema: pa.Schema
    metadata: Any
    properties: Mapping[str, str]
    tasks: tuple[ForeignTask, ...]

    def read(self) -> Iterator[pa.RecordBatch]:
        """Return the live rows: columns by field id, deletes applied."""
        arrow_io = load("pyiceberg.io.pyarrow")
        load_file_io = load("pyiceberg.io").load_file_io
        always = load("pyiceberg.expressions").AlwaysTrue()
        file_io = load_file_io(dict(self.properties), self.location)
        scan = arrow_io.ArrowScan(self.metadata, file_io, self.metadata.schema(), always)
        yield from scan.to_record_batches([task.planned for task in self.tasks])


def plan_foreign_scan(location: str) -> ForeignScan:
    """Plan a scan of the current snapshot; raises InvalidArgument for deletes that cannot apply."""
    tables = load("pyiceberg.table")
    arrow_io = load("pyiceberg.io.pyarrow")
    table = tables.StaticTable.from_metadata(location)
    try:
        planned = list(table.scan().plan_files())
    except ValueError as error:
        raise InvalidArgument(
            f"the table has deletes that PyIceberg cannot apply: {error}",
            path=location,
            hint="Compact it with its own engine first: that applies equality deletes",
        ) from error
    return ForeignScan(
        location=location,
        schema=arrow_io.schema_to_pyarrow(table.schema(), include_field_ids=False),
        metadata=table.metadata,
        properties=dict(table.io.properties),
        tasks=tuple(ForeignTask(int(task.file.file_size_in_bytes), task) for task in planned),
    )
