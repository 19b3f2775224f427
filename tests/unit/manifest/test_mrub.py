"""The MRUB frame: merutable's bytes are pinned, and no damage goes unseen."""

import struct
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto
from google.protobuf.message import Message

from neve.errors import Corruption, LimitExceeded
from neve.manifest import mrub, mrub_pb2
from neve.manifest.mrub import HEADER_BYTES, TRAILER_BYTES, decode_mrub, encode_mrub

GOLDENS = Path(__file__).parents[2] / "compatibility" / "mrub"
PLACE = "manifest/version/1/segments/seg-1"

SMALLEST = mrub_pb2.Manifest(snapshot_id=1, sequence_number=1)

FILE_BYTES = bytes.fromhex(
    "0a 01 61"  # 1 path "a"
    "10 ac02"  # 2 file_size 300
    "18 07"  # 3 num_rows 7
    "20 02"  # 4 level 2
    "28 01"  # 5 seq_min 1
    "30 07"  # 6 seq_max 7
    "3a 01 6b"  # 7 key_min "k"
    "42 01 7a"  # 8 key_max "z"
    "4a 01 64"  # 9 dv_path "d"
    "50 04"  # 10 dv_offset 4
    "58 2a"  # 11 dv_length 42
    "60 01"  # 12 status 1
    "68 01"  # 13 format 1
    "70 05"  # 14 first_row_id 5
)
DELETE_FILE_BYTES = bytes.fromhex("0a 01 70  10 09  18 01")  # path "p", file_size 9, content 1
MANIFEST_BYTES = (
    bytes.fromhex(
        "08 02"  # 1 snapshot_id 2
        "10 03"  # 2 sequence_number 3
        "18 04"  # 3 schema_id 4
        "20 05"  # 4 partition_spec_id 5
        "2a 21"  # 5 data_files, 33 bytes
    )
    + FILE_BYTES
    + bytes.fromhex("32 07")  # 6 delete_files, 7 bytes
    + DELETE_FILE_BYTES
    + bytes.fromhex(
        "38 01"  # 7 previous_snapshot_id 1
        "42 01 75"  # 8 table_uuid "u"
        "48 e807"  # 9 last_updated_ms 1000
        "52 06 0a016b 120176"  # 10 properties {"k": "v"}
        "58 09"  # 11 last_column_id 9
        "60 0c"  # 12 next_row_id 12
        "68 05"  # 13 first_row_id 5
    )
)
WHOLE = mrub_pb2.Manifest(
    snapshot_id=2,
    sequence_number=3,
    schema_id=4,
    partition_spec_id=5,
    data_files=[
        mrub_pb2.DataFileRef(
            path="a",
            file_size=300,
            num_rows=7,
            level=2,
            seq_min=1,
            seq_max=7,
            key_min=b"k",
            key_max=b"z",
            dv_path="d",
            dv_offset=4,
            dv_length=42,
            status=1,
            format=1,
            first_row_id=5,
        )
    ],
    delete_files=[mrub_pb2.DeleteFileRef(path="p", file_size=9, content=1)],
    previous_snapshot_id=1,
    table_uuid="u",
    last_updated_ms=1000,
    properties={"k": "v"},
    last_column_id=9,
    next_row_id=12,
    first_row_id=5,
)


def plain_frame(payload: bytes) -> bytes:
    """Frame a payload as merutable does: format 1."""
    return struct.pack("<4sBI", b"MRUB", 1, len(payload)) + payload


def checked_frame(payload: bytes, *, format_number: int = 2) -> bytes:
    body = struct.pack("<4sBI", b"MRUB", format_number, len(payload)) + payload
    return body + struct.pack("<I", google_crc32c.value(body))


def fields(message: type[Message]) -> dict[int, str]:
    """Return the type and name of each field by its number."""
    proto = DescriptorProto()
    message.DESCRIPTOR.CopyToProto(proto)
    words = {3: "int64", 5: "int32", 7: "fixed32", 9: "string", 11: "message", 12: "bytes"}
    words[14] = "enum"
    return {
        field.number: " ".join(
            [
                *["optional"] * field.proto3_optional,
                *["repeated"] * (field.label == field.LABEL_REPEATED),
                words[field.type],
                field.name,
            ]
        )
        for field in proto.field
    }


def reserved(message: type[Message]) -> list[tuple[int, int]]:
    proto = DescriptorProto()
    message.DESCRIPTOR.CopyToProto(proto)
    return [(numbers.start, numbers.end - 1) for numbers in proto.reserved_range]


def test_a_frame_cut_off_anywhere_is_corruption() -> None:
    for frame in (encode_mrub(WHOLE), plain_frame(MANIFEST_BYTES)):
        for length in range(len(frame)):
            with pytest.raises(Corruption, match="cut off") as caught:
                decode_mrub(frame[:length], path=PLACE)
            assert caught.value.path == PLACE


def test_every_single_flipped_bit_of_format_2_is_corruption() -> None:
    frame = encode_mrub(WHOLE)

    for bit in range(len(frame) * 8):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corruption):
            decode_mrub(bytes(damaged), path=PLACE)


def test_bytes_without_the_magic_are_corruption() -> None:
    for frame in (b'{"snapshot_id": 1}', b"NEVE" + encode_mrub(SMALLEST)[4:], bytes(40)):
        with pytest.raises(Corruption, match="not a manifest") as caught:
            decode_mrub(frame, path=PLACE)
        assert caught.value.path == PLACE


def test_format_0_is_damage_and_not_of_a_newer_neve() -> None:
    with pytest.raises(Corruption, match=r"format 0 .* Restore it from a copy"):
        decode_mrub(checked_frame(MANIFEST_BYTES, format_number=0), path=PLACE)


@pytest.mark.parametrize("format_number", [3, 255])
def test_an_unknown_format_is_refused_and_a_newer_neve_asked_for(format_number: int) -> None:
    frame = checked_frame(MANIFEST_BYTES, format_number=format_number)

    with pytest.raises(Corruption, match=f"format {format_number} .* newer neve") as caught:
        decode_mrub(frame, path=PLACE)

    assert caught.value.path == PLACE


def test_a_wrong_checksum_is_corruption() -> None:
    frame = encode_mrub(WHOLE)

    with pytest.raises(Corruption, match="checksum") as caught:
        decode_mrub(frame[:-TRAILER_BYTES] + b"\x00" * TRAILER_BYTES, path=PLACE)

    assert caught.value.path == PLACE


def test_bytes_behind_format_2_are_corruption() -> None:
    with pytest.raises(Corruption, match="3 bytes come after") as caught:
        decode_mrub(encode_mrub(WHOLE) + b"abc", path=PLACE)

    assert caught.value.path == PLACE


def test_bytes_behind_format_1_are_passed_over_as_merutable_does() -> None:
    for surplus in (b"a", b"abcd", b"abcde"):
        assert decode_mrub(plain_frame(MANIFEST_BYTES) + surplus, path=PLACE) == WHOLE


def test_a_checksum_behind_format_1_shows_a_damaged_format_byte() -> None:
    damaged = bytearray(encode_mrub(WHOLE))
    damaged[4] = 1

    with pytest.raises(Corruption, match="format byte") as caught:
        decode_mrub(bytes(damaged), path=PLACE)

    assert caught.value.path == PLACE


@pytest.mark.parametrize("format_number", [1, 2])
def test_a_length_beyond_any_manifest_is_corruption(format_number: int) -> None:
    header = struct.pack("<4sBI", b"MRUB", format_number, 0xFFFF_FFFF)

    with pytest.raises(Corruption, match="claims 4,294,967,295 bytes") as caught:
        decode_mrub(header + MANIFEST_BYTES, path=PLACE)

    assert caught.value.path == PLACE


@pytest.mark.parametrize(
    "payload",
    [
        bytes.fromhex("08"),  # a field without its value
        bytes.fromhex("2a 05 0a"),  # a file longer than the payload
        bytes.fromhex("42 01 ff"),  # a table_uuid that is not UTF-8
        bytes.fromhex("0b") * 1_000,  # groups without an end, one in the other
    ],
)
def test_a_payload_that_is_no_protobuf_is_corruption(payload: bytes) -> None:
    for frame in (plain_frame(payload), checked_frame(payload)):
        with pytest.raises(Corruption, match="payload cannot be read") as caught:
            decode_mrub(frame, path=PLACE)
        assert caught.value.path == PLACE


def test_a_manifest_too_large_is_neither_written_nor_read(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = encode_mrub(WHOLE)
    monkeypatch.setattr(mrub, "MRUB_BYTES_MAX", len(MANIFEST_BYTES) - 1)

    with pytest.raises(LimitExceeded) as caught:
        encode_mrub(WHOLE)
    with pytest.raises(Corruption, match="more than allowed"):
        decode_mrub(frame, path=PLACE)

    assert (caught.value.limit, caught.value.actual) == (
        len(MANIFEST_BYTES) - 1,
        len(MANIFEST_BYTES),
    )


def test_the_smallest_manifest_has_its_golden_bytes() -> None:
    plain = bytes.fromhex("4d525542 01 04000000 08011001")
    checked = bytes.fromhex("4d525542 02 04000000 08011001 dbb8b5cc")

    assert decode_mrub(plain, path=PLACE) == SMALLEST
    assert encode_mrub(SMALLEST) == checked
    assert decode_mrub(checked, path=PLACE) == SMALLEST


def test_every_field_of_merutable_has_its_golden_bytes() -> None:
    assert len(FILE_BYTES) == 33
    assert decode_mrub(plain_frame(MANIFEST_BYTES), path=PLACE) == WHOLE
    assert encode_mrub(WHOLE) == checked_frame(MANIFEST_BYTES)


def test_a_manifest_of_merutable_kept_as_a_file_is_read() -> None:
    frame = (GOLDENS / "merutable-format-1.mrub").read_bytes()

    assert frame == plain_frame(MANIFEST_BYTES)
    assert decode_mrub(frame, path=PLACE) == WHOLE


def test_numbers_names_and_types_of_fields_never_change() -> None:
    assert fields(mrub_pb2.DataFileRef) == {
        1: "string path",
        2: "int64 file_size",
        3: "int64 num_rows",
        4: "int32 level",
        5: "int64 seq_min",
        6: "int64 seq_max",
        7: "bytes key_min",
        8: "bytes key_max",
        9: "optional string dv_path",
        10: "optional int64 dv_offset",
        11: "optional int64 dv_length",
        12: "int32 status",
        13: "optional int32 format",
        14: "optional int64 first_row_id",
        21: "fixed32 footer_crc",
        22: "int32 spec_id",
        23: "repeated message partition",
        24: "int32 schema_id",
        25: "repeated message statistics",
        26: "optional int64 dv_cardinality",
        27: "int64 commit_ms_min",
        28: "int64 commit_ms_max",
        29: "repeated message wal_segments",
        30: "int64 data_sequence",
    }
    assert fields(mrub_pb2.DeleteFileRef) == {
        1: "string path",
        2: "int64 file_size",
        3: "int32 content",
    }
    assert fields(mrub_pb2.Manifest) == {
        1: "int64 snapshot_id",
        2: "int64 sequence_number",
        3: "int32 schema_id",
        4: "int32 partition_spec_id",
        5: "repeated message data_files",
        6: "repeated message delete_files",
        7: "optional int64 previous_snapshot_id",
        8: "string table_uuid",
        9: "int64 last_updated_ms",
        10: "repeated message properties",
        11: "int32 last_column_id",
        12: "int64 next_row_id",
        13: "int64 first_row_id",
        25: "enum form",
        26: "string operation",
        27: "repeated message wal_segments",
    }


def test_numbers_and_names_inside_a_file_never_change() -> None:
    assert fields(mrub_pb2.PartitionValue) == {
        1: "int32 field_id",
        2: "optional bytes value",
    }
    assert fields(mrub_pb2.ColumnStatistics) == {
        1: "int32 field_id",
        2: "int64 compressed_bytes",
        3: "int64 value_count",
        4: "int64 null_count",
        5: "optional int64 nan_count",
        6: "optional bytes lower",
        7: "optional bytes upper",
    }
    assert fields(mrub_pb2.WalSegmentRef) == {
        1: "int64 seq",
        2: "string file_id",
        3: "int64 first_frame",
        4: "int64 last_frame",
    }
    assert dict(mrub_pb2.Form.items()) == {"FORM_UNSPECIFIED": 0, "FORM_STATE": 1, "FORM_EDIT": 2}


def test_what_merutable_may_still_use_stays_reserved() -> None:
    assert mrub_pb2.DESCRIPTOR.package == "merutable.catalog.v1"
    assert reserved(mrub_pb2.DataFileRef) == [(15, 20)]
    assert reserved(mrub_pb2.DeleteFileRef) == [(4, 10)]
    assert reserved(mrub_pb2.Manifest) == [(14, 24)]


@pytest.mark.parametrize("frame_of", [plain_frame, checked_frame])
def test_fields_of_the_future_are_kept_when_a_manifest_is_written_again(
    frame_of: Callable[[bytes], bytes],
) -> None:
    number_500, bytes_501 = bytes.fromhex("a01f 2a"), bytes.fromhex("aa1f 03 616263")
    file = bytes.fromhex("2a 09 0a0161") + bytes_501
    payload = bytes.fromhex("0801 1001") + file + number_500

    manifest = decode_mrub(frame_of(payload), path=PLACE)
    manifest.last_updated_ms = 1_000

    changed = payload.replace(number_500, bytes.fromhex("48e807") + number_500)
    assert encode_mrub(manifest) == checked_frame(changed)


def test_equal_manifests_give_equal_bytes_whatever_the_order_of_properties() -> None:
    names = [f"property-{number}" for number in range(50)]
    forth = mrub_pb2.Manifest(properties={name: name for name in names})
    back = mrub_pb2.Manifest(properties={name: name for name in reversed(names)})

    frame = encode_mrub(forth)

    assert frame == encode_mrub(back)
    assert frame.index(b"property-0") < frame.index(b"property-1") < frame.index(b"property-9")


def test_a_header_is_nine_bytes_and_a_checksum_four() -> None:
    assert len(encode_mrub(mrub_pb2.Manifest())) == HEADER_BYTES + TRAILER_BYTES == 13
