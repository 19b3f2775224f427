"""An Iceberg table walked by hand: JSON, Avro by fastavro, Puffin by its specification.

It shares nothing with what publishes tables. It knows the members that the specification requires,
and finds rows as a reader would: data files of live entries, without the rows that deletes mark.
"""

import io
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

Record = dict[str, Any]
Lineage = dict[Any, tuple[int, int]]
"""Row id and last updated sequence number, by key."""
ROW_ID_FIELD = 2147483540
UPDATED_FIELD = 2147483539
Fetch = Callable[[str], bytes]
"""Gives the bytes at a location."""

REQUIRED = {
    "format-version", "table-uuid", "location", "last-sequence-number", "last-updated-ms",
    "last-column-id", "schemas", "current-schema-id", "partition-specs", "default-spec-id",
    "last-partition-id", "sort-orders", "default-sort-order-id",
}  # fmt: skip
LIST_REQUIRED = (
    "manifest_path", "manifest_length", "partition_spec_id", "content", "sequence_number",
    "min_sequence_number", "added_snapshot_id", "added_files_count", "existing_files_count",
    "deleted_files_count", "added_rows_count", "existing_rows_count", "deleted_rows_count",
)  # fmt: skip
MANIFEST_METADATA = {
    "schema", "schema-id", "partition-spec", "partition-spec-id", "format-version", "content",
}  # fmt: skip


@dataclass
class WalkedFile:
    """A live entry with everything inherited."""

    entry: Record
    manifest: Record
    sequence: int
    first_row_id: int | None = None

    @property
    def path(self) -> str:
        return str(self.entry["data_file"]["file_path"])


@dataclass
class WalkedSnapshot:
    """What one snapshot reads."""

    snapshot: Record
    fetch: Fetch
    data: dict[str, WalkedFile] = field(default_factory=dict)
    deletes: list[WalkedFile] = field(default_factory=list)

    def rows(self, names: Mapping[int, str]) -> pa.Table:
        """Read the rows that are left, columns by field id."""
        gone = {
            path: marked
            for each in self.deletes
            for path, marked in positions_of(each, self.fetch).items()
        }
        tables = []
        for path in self.data:
            table = pq.read_table(io.BytesIO(self.fetch(path)))
            keep = [at for at in range(table.num_rows) if at not in gone.get(path, ())]
            by_id = {field_id(column): at for at, column in enumerate(table.schema)}
            columns = {
                name: table.column(by_id[number]).take(pa.array(keep, pa.int64()))
                for number, name in names.items()
                if number in by_id
            }
            tables.append(pa.table(columns))
        return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})

    def lineage(self, key_id: int = 1) -> Lineage:
        """Return the row id and the last sequence number of each key that is left."""
        gone = {
            path: marked
            for each in self.deletes
            for path, marked in positions_of(each, self.fetch).items()
        }
        found: Lineage = {}
        for path, walked in self.data.items():
            table = pq.read_table(io.BytesIO(self.fetch(path)))
            by_id = {field_id(each): at for at, each in enumerate(table.schema)}
            count = table.num_rows
            columns = [
                table.column(by_id[number]).to_pylist() if number in by_id else [None] * count
                for number in (key_id, ROW_ID_FIELD, UPDATED_FIELD)
            ]
            assert walked.first_row_id is not None
            for at, (key, row_id, updated) in enumerate(zip(*columns, strict=True)):
                if at in gone.get(path, ()):
                    continue
                assert key not in found
                found[key] = (
                    walked.first_row_id + at if row_id is None else row_id,
                    walked.sequence if updated is None else updated,
                )
        return found


def field_id(column: "pa.Field[pa.DataType]") -> int:
    assert column.metadata is not None
    return int(column.metadata[b"PARQUET:field_id"])


def from_disk(location: str) -> bytes:
    assert location.startswith("file:///"), location
    return Path(location.removeprefix("file://")).read_bytes()


def read_avro(location: str, fetch: Fetch = from_disk) -> tuple[dict[str, str], list[Record]]:
    reader = fastavro.reader(io.BytesIO(fetch(location)))
    records: list[Record] = []
    for record in reader:
        assert isinstance(record, dict)
        records.append(record)
    return dict(reader.metadata), records


def read_metadata(location: str, fetch: Fetch = from_disk) -> Record:
    metadata: Record = json.loads(fetch(location))
    missing = REQUIRED - metadata.keys()
    assert not missing, missing
    assert metadata["format-version"] in {2, 3}
    assert {"schema", "partition-spec"}.isdisjoint(metadata)
    schemas = {each["schema-id"] for each in metadata["schemas"]}
    assert metadata["current-schema-id"] in schemas
    assert metadata["default-spec-id"] in {each["spec-id"] for each in metadata["partition-specs"]}
    orders = {each["order-id"]: each for each in metadata["sort-orders"]}
    assert metadata["default-sort-order-id"] in orders
    assert orders[0]["fields"] == []
    snapshots = {each["snapshot-id"]: each for each in metadata["snapshots"]}
    if snapshots:
        assert metadata["current-snapshot-id"] in snapshots
        assert metadata["refs"]["main"] == {
            "snapshot-id": metadata["current-snapshot-id"], "type": "branch"
        }  # fmt: skip
    for each in snapshots.values():
        assert each["schema-id"] in schemas
        assert each["sequence-number"] <= metadata["last-sequence-number"]
        assert each["summary"]["operation"] in {"append", "replace", "overwrite", "delete"}
        assert all(isinstance(value, str) for value in each["summary"].values())
        if metadata["format-version"] == 3:
            assert each["first-row-id"] + each["added-rows"] <= metadata["next-row-id"]
    assert all(ref["snapshot-id"] in snapshots for ref in metadata["refs"].values())
    times = [each["timestamp-ms"] for each in metadata["snapshot-log"]]
    assert times == sorted(times)
    for each in metadata["metadata-log"]:
        assert fetch(each["metadata-file"])
    return metadata


def walk(metadata: Record, snapshot_id: int, fetch: Fetch = from_disk) -> WalkedSnapshot:
    """Walk one snapshot, checking what the specification says on the way."""
    snapshot = next(each for each in metadata["snapshots"] if each["snapshot-id"] == snapshot_id)
    found = WalkedSnapshot(snapshot, fetch)
    header, manifests = read_avro(snapshot["manifest-list"], fetch)
    assert header["snapshot-id"] == str(snapshot_id)
    assert header["format-version"] == str(metadata["format-version"])
    for manifest in manifests:
        assert all(manifest[name] is not None for name in LIST_REQUIRED), manifest
        assert len(fetch(manifest["manifest_path"])) == manifest["manifest_length"]
        _walk_manifest(manifest, metadata, found)
    for each in found.deletes:
        for path in positions_of(each, fetch):
            data = found.data[path]
            assert data.sequence <= each.sequence
            assert data.entry["data_file"]["partition"] == each.entry["data_file"]["partition"]
    return found


def _walk_manifest(manifest: Record, metadata: Record, found: WalkedSnapshot) -> None:
    header, entries = read_avro(manifest["manifest_path"], found.fetch)
    assert header.keys() >= MANIFEST_METADATA
    assert header["content"] == ("deletes" if manifest["content"] else "data")
    assert header["partition-spec-id"] == str(manifest["partition_spec_id"])
    counts = {0: [0, 0], 1: [0, 0], 2: [0, 0]}
    sequences = []
    next_row_id = manifest.get("first_row_id")
    if metadata["format-version"] == 3:
        assert (next_row_id is None) == bool(manifest["content"])
    for entry in entries:
        file = entry["data_file"]
        counts[entry["status"]][0] += 1
        counts[entry["status"]][1] += file["record_count"]
        assert bool(file["content"]) == bool(manifest["content"])
        sequence = entry["sequence_number"]
        if entry["status"] == 1:
            assert entry["file_sequence_number"] is None
            # Only what a rollback brings back is added with the number it had.
            assert sequence is None or sequence < manifest["sequence_number"]
            sequence = manifest["sequence_number"] if sequence is None else sequence
        assert sequence is not None
        if entry["status"] == 2:
            assert entry["snapshot_id"] == manifest["added_snapshot_id"]
            continue
        assert len(found.fetch(file["file_path"])) == file["file_size_in_bytes"]
        sequences.append(sequence)
        row_id = file.get("first_row_id")
        if metadata["format-version"] == 3 and not manifest["content"] and row_id is None:
            row_id, next_row_id = next_row_id, next_row_id + file["record_count"]
        walked = WalkedFile(entry, manifest, sequence, row_id)
        if file["content"]:
            found.deletes.append(walked)
        else:
            assert walked.path not in found.data
            assert file["sort_order_id"] == 1
            found.data[walked.path] = walked
    assert counts[1] == [manifest["added_files_count"], manifest["added_rows_count"]]
    assert counts[0] == [manifest["existing_files_count"], manifest["existing_rows_count"]]
    assert counts[2] == [manifest["deleted_files_count"], manifest["deleted_rows_count"]]
    assert not sequences or min(sequences) == manifest["min_sequence_number"]


def positions_of(deletes: WalkedFile, fetch: Fetch = from_disk) -> dict[str, set[int]]:
    """Positions that a delete file marks, by data file."""
    file = deletes.entry["data_file"]
    if file["file_format"] == "PUFFIN":
        return {file["referenced_data_file"]: _vector(file, fetch)}
    rows = pq.read_table(io.BytesIO(fetch(file["file_path"])))
    ids = [field_id(column) for column in rows.schema]
    assert ids == [2147483546, 2147483545]
    paths = rows.column(0).unique().to_pylist()
    assert paths == [file["referenced_data_file"]]
    assert rows.num_rows == file["record_count"]
    bounds = {each["key"]: each["value"] for each in file["lower_bounds"]}
    assert bounds[2147483546].decode() == paths[0]
    positions = [int(each) for each in rows.column(1).to_numpy()]
    assert positions == sorted(positions)
    return {paths[0]: set(positions)}


def _vector(file: Record, fetch: Fetch) -> set[int]:
    content = fetch(file["file_path"])
    assert content[:4] == content[-4:] == b"PFA1"
    (size,) = struct.unpack_from("<i", content, len(content) - 12)
    footer = json.loads(content[-12 - size : -12])
    blob = next(each for each in footer["blobs"] if each["offset"] == file["content_offset"])
    assert blob["length"] == file["content_size_in_bytes"]
    assert blob["type"] == "deletion-vector-v1"
    assert blob["properties"] == {
        "referenced-data-file": file["referenced_data_file"],
        "cardinality": str(file["record_count"]),
    }
    raw = content[blob["offset"] : blob["offset"] + blob["length"]]
    (length,) = struct.unpack_from(">I", raw)
    checked = raw[4 : 4 + length]
    assert checked[:4] == bytes.fromhex("d1d33964")
    assert struct.unpack(">I", raw[4 + length :]) == (zlib.crc32(checked),)
    positions = set(BitMap64.deserialize(checked[4:]))
    assert len(positions) == file["record_count"]
    return positions
