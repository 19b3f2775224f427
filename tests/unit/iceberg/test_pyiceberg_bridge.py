"""What PyIceberg must keep doing for us, and what others read of what we make with it."""

import io
import subprocess
import sys
from dataclasses import replace
from typing import Any, cast

import fastavro
import pytest
from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS, MANIFEST_LIST_FILE_SCHEMAS

from neve.errors import Corruption
from neve.iceberg.iceberg_file import IcebergFile
from neve.iceberg.pyiceberg_bridge import (
    ADDED,
    DELETED,
    EXISTING,
    FieldSummary,
    ManifestCodec,
    ManifestEntry,
    ManifestForm,
    ManifestRecord,
    encode_manifest_list,
    read_manifest,
    read_manifest_list,
)

SCHEMA = (
    '{"type":"struct","schema-id":3,"fields":['
    '{"id":1,"name":"id","required":true,"type":"long"},'
    '{"id":2,"name":"ts","required":false,"type":"timestamptz"},'
    '{"id":3,"name":"a-b","required":false,"type":"decimal(9, 2)"}]}'
)
FIELDS = (
    '[{"source-id":1,"field-id":1000,"name":"id_bucket","transform":"bucket[4]"},'
    '{"source-id":2,"field-id":1001,"name":"ts_day","transform":"day"}]'
)
FILE = IcebergFile(
    content=0,
    file_path="file:///a/data/1.parquet",
    file_format="PARQUET",
    partition=(3, 19_000),
    record_count=10,
    file_size_in_bytes=1_234,
    column_sizes={1: 100},
    value_counts={1: 10},
    null_value_counts={1: 0},
    nan_value_counts={},
    lower_bounds={1: b"\1" + bytes(7)},
    upper_bounds={1: b"\2" + bytes(7)},
    sort_order_id=1,
    first_row_id=70,
)
VECTOR = replace(
    FILE,
    content=1,
    file_path="file:///a/deletes/1.puffin",
    file_format="PUFFIN",
    record_count=2,
    first_row_id=None,
    referenced_data_file=FILE.file_path,
    content_offset=4,
    content_size_in_bytes=42,
)
RECORD = ManifestRecord(
    manifest_path="file:///a/metadata/m-1.avro",
    manifest_length=55,
    partition_spec_id=1,
    content=0,
    sequence_number=7,
    min_sequence_number=2,
    added_snapshot_id=7,
    added_files_count=1,
    existing_files_count=2,
    deleted_files_count=3,
    added_rows_count=4,
    existing_rows_count=5,
    deleted_rows_count=6,
    partitions=(FieldSummary(False, False, b"\0", b"\1"), FieldSummary(True, False, None, None)),
    first_row_id=70,
)


def codec(format_version: int = 3) -> ManifestCodec:
    return ManifestCodec(
        ManifestForm(
            format_version=format_version,
            schema=SCHEMA,
            schema_id=3,
            spec_id=1,
            spec_fields=FIELDS,
        )
    )


def avro(payload: bytes) -> tuple[dict[str, str], list[dict[str, Any]]]:
    reader = fastavro.reader(io.BytesIO(payload))
    return dict(reader.metadata), cast("list[dict[str, Any]]", list(reader))


def entry(file: IcebergFile, status: int = ADDED, sequence: int | None = None) -> ManifestEntry:
    return ManifestEntry(
        status=status,
        snapshot_id=7,
        sequence_number=sequence,
        file_sequence_number=sequence,
        file=file,
    )


def test_a_manifest_is_read_by_another_avro_library() -> None:
    codes = codec()
    entries = [codes.entry(entry(FILE)), codes.entry(entry(FILE, EXISTING, 5))]

    metadata, (added, carried) = avro(codes.manifest(entries, content=0))

    assert metadata["schema-id"] == "3"
    assert metadata["partition-spec"] == FIELDS
    assert metadata["content"] == "data"
    assert (added["status"], added["sequence_number"], added["file_sequence_number"]) == (
        1, None, None
    )  # fmt: skip
    assert (carried["status"], carried["sequence_number"], carried["file_sequence_number"]) == (
        0, 5, 5
    )  # fmt: skip
    assert str(added["data_file"]["partition"]["ts_day"]) == "2022-01-08"
    assert added["data_file"]["first_row_id"] == 70


def test_equal_contents_give_equal_bytes() -> None:
    one, other = (
        each.manifest([each.entry(entry(VECTOR))], content=1) for each in (codec(), codec())
    )
    assert one == other
    assert encode_list() == encode_list()


def test_entries_come_back() -> None:
    codes = codec()
    written = [entry(VECTOR), entry(VECTOR, EXISTING, 5), entry(VECTOR, DELETED, 6)]

    found = read_manifest(
        codes.manifest([codes.entry(each) for each in written], content=1), path="m"
    )

    assert [each.status for each in found] == [ADDED, EXISTING, DELETED]
    assert [each.sequence_number for each in found] == [None, 5, 6]
    assert {(each.file_path, each.content_offset) for each in found} == {(VECTOR.file_path, 4)}


def test_format_2_leaves_out_what_it_does_not_know() -> None:
    codes = codec(2)
    payload = codes.manifest([codes.entry(entry(VECTOR))], content=1)

    _, (found,) = avro(payload)

    assert {"first_row_id", "content_offset", "content_size_in_bytes"}.isdisjoint(
        found["data_file"]
    )
    assert found["data_file"]["referenced_data_file"] == FILE.file_path


def encode_list(format_version: int = 3) -> bytes:
    return encode_manifest_list(
        [RECORD], format_version=format_version, snapshot_id=7, parent_id=6, first_row_id=70
    )


@pytest.mark.parametrize("format_version", [2, 3])
def test_a_manifest_list_comes_back(format_version: int) -> None:
    expected = RECORD if format_version > 2 else replace(RECORD, first_row_id=None)
    assert read_manifest_list(encode_list(format_version), path="l") == [expected]


def test_a_list_of_no_manifests_is_a_list() -> None:
    payload = encode_manifest_list(
        [], format_version=3, snapshot_id=7, parent_id=None, first_row_id=0
    )
    assert read_manifest_list(payload, path="l") == []
    assert avro(payload)[1] == []


@pytest.mark.parametrize("cut", [0, 3, 40, -1, -20])
def test_damaged_bytes_are_corruption(cut: int) -> None:
    with pytest.raises(Corruption, match="Avro"):
        read_manifest_list(encode_list()[:cut], path="l")


def test_the_schemas_of_pyiceberg_are_those_of_the_specification() -> None:
    entries = {field.field_id: field.name for field in MANIFEST_ENTRY_SCHEMAS[3].fields}
    assert entries == {
        0: "status", 1: "snapshot_id", 3: "sequence_number", 4: "file_sequence_number",
        2: "data_file",
    }  # fmt: skip
    file = cast("Any", MANIFEST_ENTRY_SCHEMAS[3].find_field("data_file").field_type)
    assert {142, 143, 144, 145} <= {field.field_id for field in file.fields}
    assert MANIFEST_LIST_FILE_SCHEMAS[3].find_field("first_row_id").field_id == 520


def test_opening_a_table_does_not_load_pyiceberg() -> None:
    code = (
        "import sys, neve, pyarrow as pa\n"
        "lake = neve.open('memory://unloaded')\n"
        "t = lake.create_table('a.b', pa.schema([('id', pa.int64())]), ['id'])\n"
        "t.put({'id': 1}); t.close()\n"
        "sys.exit('pyiceberg' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
