"""Versions and edits as bytes: what is refused, what is kept, what is pinned."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet

from neve.errors import Corruption, InvalidArgument
from neve.manifest import mrub_pb2
from neve.manifest.mrub import decode_mrub, encode_mrub
from neve.manifest.version_codec import decode_edit, decode_version, encode_edit, encode_version
from neve.model.data_file import (
    ColumnStatistics,
    DataFile,
    FileFormat,
    PartitionValue,
    VectorRef,
    WalSegmentRef,
)
from neve.model.version import Operation, Version, VersionEdit, VersionFacts, apply_edit

GOLDENS = Path(__file__).parents[2] / "compatibility" / "mrub"
PLACE = "manifest/version/1/segments/seg-1"
FUTURE_FIELD = bytes.fromhex("a01f 2a")  # 500: 42

SEGMENT = WalSegmentRef(log_number=12, file_id="000012", first_frame=3, last_frame=8)
VECTOR = VectorRef(path="deletes/v.puffin", offset=4, length=50, cardinality=2)
FULL_FILE = DataFile(
    path="data/day=2026-11-15/a.parquet",
    file_bytes=4_096,
    row_count=10,
    level=1,
    key_min=b"\x80\x00",
    key_max=b"\x80\xff",
    sequence_min=101,
    sequence_max=110,
    format=FileFormat.DUAL,
    vector=VECTOR,
    first_row_id=0,
    footer_crc=0xFEDC_BA98,
    spec_id=2,
    partition=(
        PartitionValue(field_id=1_000, value=b"\x5c\x50\x00\x00"),
        PartitionValue(field_id=1_001, value=None),
        PartitionValue(field_id=1_002, value=b""),
    ),
    schema_id=3,
    statistics=(
        ColumnStatistics(
            field_id=1,
            compressed_bytes=300,
            value_count=10,
            null_count=0,
            nan_count=1,
            lower=b"\x01",
            upper=b"\x09",
        ),
        ColumnStatistics(
            field_id=2, compressed_bytes=0, value_count=10, null_count=10, lower=b"", upper=None
        ),
    ),
    commit_ms_min=1_700_000_000_000,
    commit_ms_max=1_700_000_000_999,
    wal_segments=(SEGMENT,),
)
BARE_FILE = DataFile(
    path="data/b.parquet", file_bytes=1, row_count=1, level=0, key_min=b"k", key_max=b"k"
)
FACTS = VersionFacts(
    operation=Operation.OVERWRITE,
    timestamp_ms=1_700_000_001_000,
    schema_id=3,
    spec_id=2,
    summary={"added-records": "11", "job": "flush"},
    wal_segments=(SEGMENT, replace(SEGMENT, log_number=13)),
)
VERSION = Version(
    number=7,
    parent=6,
    facts=FACTS,
    files={file.path: file for file in (FULL_FILE, BARE_FILE)},
    next_row_id=10,
    first_row_id=0,
)
EDIT = VersionEdit(
    base=6,
    facts=FACTS,
    added=(FULL_FILE, BARE_FILE),
    removed=("data/old.parquet", "data/older.parquet"),
    vectors={"data/kept.parquet": VECTOR},
)

HOSTILE_PATHS = ["", "/etc/passwd", "data/../../x", "data//x", "a\\b", "a\x00b", "x" * 2_000]

# Where a number stands in the messages, and what the error calls it.
NUMBERS_OF_A_COMMIT = {
    "snapshot_id": "number",
    "last_updated_ms": "timestamp_ms",
    "schema_id": "schema_id",
    "partition_spec_id": "spec_id",
    "wal_segments.1.seq": "log_number",
    "wal_segments.1.first_frame": "first_frame",
    "wal_segments.1.last_frame": "last_frame",
}
NUMBERS_OF_A_STATE = {
    **NUMBERS_OF_A_COMMIT,
    "next_row_id": "next_row_id",
    "first_row_id": "first_row_id",
}
NUMBERS_OF_A_FILE = {
    "file_size": "file_bytes",
    "num_rows": "row_count",
    "level": "level",
    "seq_min": "sequence_min",
    "seq_max": "sequence_max",
    "dv_offset": "offset",
    "dv_length": "length",
    "dv_cardinality": "cardinality",
    "first_row_id": "first_row_id",
    "data_sequence": "data_sequence",
    "spec_id": "spec_id",
    "schema_id": "schema_id",
    "commit_ms_min": "commit_ms_min",
    "commit_ms_max": "commit_ms_max",
    "partition.1.field_id": "field_id",
    "statistics.0.field_id": "field_id",
    "statistics.1.compressed_bytes": "compressed_bytes",
    "statistics.1.value_count": "value_count",
    "statistics.1.null_count": "null_count",
    "statistics.1.nan_count": "nan_count",
    "wal_segments.0.seq": "log_number",
    "wal_segments.0.first_frame": "first_frame",
    "wal_segments.0.last_frame": "last_frame",
}


def set_field(message: object, place: str, value: object) -> None:
    """Set the field at a dotted place; numbers in it are indexes."""
    *steps, name = place.split(".")
    for step in steps:
        message = message[int(step)] if step.isdecimal() else getattr(message, step)  # type: ignore[index]
    setattr(message, name, value)


def state_with(change: Callable[[mrub_pb2.Manifest], object]) -> bytes:
    """Return the frame of VERSION with its manifest changed behind the codec's back."""
    manifest = decode_mrub(encode_version(VERSION), path=PLACE)
    change(manifest)
    return encode_mrub(manifest)


def edit_with(change: Callable[[mrub_pb2.Manifest], object]) -> bytes:
    """Return the frame of EDIT with its manifest changed behind the codec's back."""
    manifest = decode_mrub(encode_edit(EDIT), path=PLACE)
    change(manifest)
    return encode_mrub(manifest)


def ref_in(manifest: mrub_pb2.Manifest, path: str) -> mrub_pb2.DataFileRef:
    return next(ref for ref in manifest.data_files if ref.path == path)


def why_refused(decode: Callable[[], object]) -> str:
    """Return the message and hint of the Corruption that decoding raises."""
    with pytest.raises(Corruption) as caught:
        decode()
    assert caught.value.path == PLACE
    return str(caught.value)


def why_version_refused(frame: bytes) -> str:
    return why_refused(lambda: decode_version(frame, path=PLACE))


def why_edit_refused(frame: bytes) -> str:
    return why_refused(lambda: decode_edit(frame, path=PLACE))


def field_numbers(message: mrub_pb2.Manifest | mrub_pb2.DataFileRef) -> list[int]:
    """Return the numbers of the fields that have no name here."""
    unknown = UnknownFieldSet(message)
    return [unknown[place].field_number for place in range(len(unknown))]


@pytest.mark.parametrize("place", NUMBERS_OF_A_STATE)
def test_a_negative_number_of_a_version_is_corruption(place: str) -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        set_field(manifest, place, -1)
        manifest.sequence_number = manifest.snapshot_id

    why = why_version_refused(state_with(change))

    assert f"{NUMBERS_OF_A_STATE[place]} -1 of version" in why


@pytest.mark.parametrize("place", NUMBERS_OF_A_FILE)
def test_a_negative_number_of_a_file_is_corruption(place: str) -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        set_field(ref_in(manifest, FULL_FILE.path), place, -1)

    expected = f"{NUMBERS_OF_A_FILE[place]} -1 of {FULL_FILE.path}"
    assert expected in why_version_refused(state_with(change))
    assert expected in why_edit_refused(edit_with(change))


@pytest.mark.parametrize(
    "place", [place for place in NUMBERS_OF_A_COMMIT if place != "snapshot_id"]
)
def test_a_negative_number_of_an_edit_is_corruption(place: str) -> None:
    why = why_edit_refused(edit_with(lambda manifest: set_field(manifest, place, -1)))

    assert f"{NUMBERS_OF_A_COMMIT[place]} -1 of the edit of version 6" in why


@pytest.mark.parametrize("place", ["dv_offset", "dv_length", "dv_cardinality"])
def test_a_negative_number_of_a_kept_files_vector_is_corruption(place: str) -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        set_field(ref_in(manifest, "data/kept.parquet"), place, -1)

    assert "-1 of data/kept.parquet" in why_edit_refused(edit_with(change))


@pytest.mark.parametrize("hostile", HOSTILE_PATHS)
@pytest.mark.parametrize("place", ["path", "dv_path"])
@pytest.mark.parametrize("path", [FULL_FILE.path, "data/old.parquet", "data/kept.parquet"])
def test_a_hostile_path_is_corruption_wherever_it_stands(
    path: str, place: str, hostile: str
) -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        set_field(ref_in(manifest, path), place, hostile)

    assert len(why_edit_refused(edit_with(change))) < 400
    if path == FULL_FILE.path:
        assert len(why_version_refused(state_with(change))) < 400


@pytest.mark.parametrize(
    ("place", "value", "word"),
    [
        ("form", 3, "form 3"),
        ("operation", "MERGE", "operation 'MERGE'"),
        ("operation", "", "operation ''"),
        ("data_files.0.status", 3, "status 3"),
        ("data_files.0.status", -1, "status -1"),
    ],
)
def test_an_unknown_word_was_written_by_a_newer_neve(place: str, value: object, word: str) -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        set_field(manifest, place, value)

    for why in (why_version_refused(state_with(change)), why_edit_refused(edit_with(change))):
        assert f"{word} is unknown" in why
        assert "newer neve" in why


@pytest.mark.parametrize("number", [-1, 3])
def test_an_unknown_file_format_was_written_by_a_newer_neve(number: int) -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        ref_in(manifest, FULL_FILE.path).format = number

    for why in (why_version_refused(state_with(change)), why_edit_refused(edit_with(change))):
        assert f"file format {number} is unknown" in why
        assert "newer neve" in why


def test_delete_files_are_refused_and_not_passed_over() -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        manifest.delete_files.add(path="data/d.parquet", content=1)

    assert "delete files" in why_version_refused(state_with(change))
    assert "delete files" in why_edit_refused(edit_with(change))


def test_a_state_and_an_edit_are_never_taken_for_one_another() -> None:
    assert "FORM_EDIT is where FORM_STATE" in why_version_refused(encode_edit(EDIT))
    assert "FORM_STATE is where FORM_EDIT" in why_edit_refused(encode_version(VERSION))


def test_a_manifest_of_merutable_is_no_version_of_neve() -> None:
    frame = (GOLDENS / "merutable-format-1.mrub").read_bytes()

    assert "FORM_UNSPECIFIED" in why_version_refused(frame)
    assert "FORM_UNSPECIFIED" in why_edit_refused(frame)


def test_damage_to_the_frame_is_corruption() -> None:
    assert "checksum" in why_version_refused(encode_version(VERSION)[:-1] + b"\x00")
    assert "checksum" in why_edit_refused(encode_edit(EDIT)[:-1] + b"\x00")


@pytest.mark.parametrize("place", ["dv_path", "dv_offset", "dv_length", "dv_cardinality"])
def test_half_a_vector_is_corruption(place: str) -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        for path in (FULL_FILE.path, "data/kept.parquet"):
            for ref in manifest.data_files:
                if ref.path == path:
                    ref.ClearField(place)

    assert "half of the vector" in why_version_refused(state_with(change))
    assert "half of the vector" in why_edit_refused(edit_with(change))


@pytest.mark.parametrize("status", [1, 2])
def test_a_state_with_a_changed_file_is_corruption(status: int) -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        manifest.data_files[0].status = status

    assert "has changed" in why_version_refused(state_with(change))


def test_a_file_named_twice_is_corruption() -> None:
    def repeat(path: str) -> Callable[[mrub_pb2.Manifest], object]:
        return lambda manifest: manifest.data_files.append(ref_in(manifest, path))

    assert "twice" in why_version_refused(state_with(repeat(BARE_FILE.path)))
    assert "adds 'data/b.parquet' 2 times" in why_edit_refused(edit_with(repeat(BARE_FILE.path)))
    assert "removes" in why_edit_refused(edit_with(repeat("data/old.parquet")))
    assert "or two" in why_edit_refused(edit_with(repeat("data/kept.parquet")))


def test_a_kept_file_without_a_vector_is_corruption() -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        manifest.data_files.add(path="data/idle.parquet")

    assert "no vector" in why_edit_refused(edit_with(change))


@pytest.mark.parametrize("path", ["data/old.parquet", "data/kept.parquet"])
def test_an_edit_cannot_change_other_facts_of_a_file_it_does_not_add(path: str) -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        ref_in(manifest, path).num_rows = 5

    assert "num_rows" in why_edit_refused(edit_with(change))


@pytest.mark.parametrize("parent", [None, 5, 7, 0, -1])
def test_an_edit_leads_from_its_base_to_the_next_version(parent: int | None) -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        manifest.ClearField("previous_snapshot_id")
        if parent is not None:
            manifest.previous_snapshot_id = parent

    assert "leads from version" in why_edit_refused(edit_with(change))


@pytest.mark.parametrize("parent", [7, 8, 0, -1])
def test_a_parent_that_is_not_before_its_version_is_corruption(parent: int) -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        manifest.previous_snapshot_id = parent

    assert f"cannot follow version {parent}" in why_version_refused(state_with(change))


def test_a_sequence_number_that_is_not_the_version_is_corruption() -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        manifest.sequence_number = 8

    assert "sequence number 8" in why_version_refused(state_with(change))
    assert "sequence number 8" in why_edit_refused(edit_with(change))


@pytest.mark.parametrize(
    "unfit",
    [
        replace(VERSION, number=0, parent=None),
        replace(VERSION, number=1 << 63),
        replace(VERSION, parent=7),
        replace(VERSION, parent=0),
        replace(VERSION, next_row_id=-1),
        replace(VERSION, files={"data/other.parquet": BARE_FILE}),
        replace(VERSION, files={"../x": replace(BARE_FILE, path="../x")}),
        replace(VERSION, facts=replace(FACTS, timestamp_ms=-1)),
        replace(VERSION, facts=replace(FACTS, schema_id=1 << 31)),
        replace(VERSION, facts=replace(FACTS, summary={"half \ud800": ""})),
        replace(VERSION, facts=replace(FACTS, unread=b"\xff")),
    ],
)
def test_a_version_that_could_not_be_read_back_is_not_written(unfit: Version) -> None:
    with pytest.raises(InvalidArgument) as caught:
        encode_version(unfit)

    assert caught.value.hint is not None


@pytest.mark.parametrize(
    "unfit",
    [
        replace(BARE_FILE, path="/absolute"),
        replace(BARE_FILE, row_count=-1),
        replace(BARE_FILE, row_count=1 << 63),
        replace(BARE_FILE, level=1 << 31),
        replace(BARE_FILE, footer_crc=1 << 32),
        replace(BARE_FILE, footer_crc=-1),
        replace(BARE_FILE, first_row_id=-1),
        replace(BARE_FILE, vector=replace(VECTOR, path="..")),
        replace(BARE_FILE, vector=replace(VECTOR, cardinality=-1)),
        replace(BARE_FILE, partition=(PartitionValue(field_id=1 << 31, value=None),)),
        replace(BARE_FILE, statistics=(replace(FULL_FILE.statistics[0], nan_count=1 << 63),)),
        replace(BARE_FILE, wal_segments=(replace(SEGMENT, file_id="\udfff"),)),
    ],
)
def test_a_file_that_could_not_be_read_back_is_not_written(unfit: DataFile) -> None:
    with pytest.raises(InvalidArgument):
        encode_version(replace(VERSION, files={unfit.path: unfit}))
    with pytest.raises(InvalidArgument):
        encode_edit(replace(EDIT, added=(unfit,)))


@pytest.mark.parametrize(
    "unfit",
    [
        replace(EDIT, base=-1),
        replace(EDIT, base=(1 << 63) - 1),
        replace(EDIT, added=(BARE_FILE, BARE_FILE)),
        replace(EDIT, removed=("data/x", "data/x")),
        replace(EDIT, removed=("data/../x",)),
        replace(EDIT, vectors={"/x": VECTOR}),
        replace(EDIT, vectors={"data/x": replace(VECTOR, path="deletes//x")}),
        replace(EDIT, vectors={"data/x": replace(VECTOR, offset=-1)}),
    ],
)
def test_an_edit_that_could_not_be_read_back_is_not_written(unfit: VersionEdit) -> None:
    with pytest.raises(InvalidArgument) as caught:
        encode_edit(unfit)

    assert caught.value.hint is not None


def test_a_version_kept_as_a_file_is_read_and_written_with_the_same_bytes() -> None:
    golden = (GOLDENS / "state-format-2.mrub").read_bytes()

    assert decode_version(golden, path=PLACE) == VERSION
    assert encode_version(VERSION) == golden


def test_an_edit_kept_as_a_file_is_read_and_written_with_the_same_bytes() -> None:
    golden = (GOLDENS / "edit-format-2.mrub").read_bytes()

    assert decode_edit(golden, path=PLACE) == EDIT
    assert encode_edit(EDIT) == golden


def test_a_reader_of_merutables_fields_finds_them_in_a_version() -> None:
    manifest = decode_mrub(encode_version(VERSION), path=PLACE)
    file = manifest.data_files[0]

    assert (manifest.snapshot_id, manifest.sequence_number) == (7, 7)
    assert manifest.previous_snapshot_id == 6
    assert (manifest.schema_id, manifest.partition_spec_id) == (3, 2)
    assert manifest.last_updated_ms == FACTS.timestamp_ms
    assert dict(manifest.properties) == FACTS.summary
    assert (manifest.next_row_id, manifest.first_row_id) == (10, 0)
    assert (file.path, file.file_size, file.num_rows) == (FULL_FILE.path, 4_096, 10)
    assert (file.level, file.seq_min, file.seq_max) == (1, 101, 110)
    assert (file.key_min, file.key_max) == (b"\x80\x00", b"\x80\xff")
    assert (file.dv_path, file.dv_offset, file.dv_length) == ("deletes/v.puffin", 4, 50)
    assert (file.status, file.format, file.first_row_id) == (0, 1, 0)


def test_an_edit_says_only_what_changes() -> None:
    manifest = decode_mrub(encode_edit(EDIT), path=PLACE)

    assert [(ref.path, ref.status) for ref in manifest.data_files] == [
        ("data/old.parquet", 2),
        ("data/older.parquet", 2),
        ("data/kept.parquet", 0),
        (FULL_FILE.path, 1),
        (BARE_FILE.path, 1),
    ]
    assert len(encode_edit(replace(EDIT, added=()))) < 300


@pytest.mark.parametrize("operation", Operation)
def test_the_first_edit_of_a_table_has_no_parent(operation: Operation) -> None:
    edit = VersionEdit(base=0, facts=replace(FACTS, operation=operation))

    manifest = decode_mrub(encode_edit(edit), path=PLACE)

    assert manifest.snapshot_id == 1
    assert not manifest.HasField("previous_snapshot_id")
    assert manifest.operation == operation.value
    assert decode_edit(encode_edit(edit), path=PLACE) == edit


def test_a_file_may_leave_and_come_back_in_one_edit() -> None:
    edit = VersionEdit(base=6, facts=FACTS, removed=(BARE_FILE.path,), added=(BARE_FILE,))

    assert decode_edit(encode_edit(edit), path=PLACE) == edit


def test_files_keep_the_order_in_which_they_were_added() -> None:
    files = [replace(BARE_FILE, path=f"data/{number}.parquet") for number in (3, 1, 2)]
    version = replace(VERSION, files={file.path: file for file in files})

    again = decode_version(encode_version(version), path=PLACE)

    assert list(again.files) == ["data/3.parquet", "data/1.parquet", "data/2.parquet"]


def test_facts_of_a_newer_neve_survive_being_folded_into_a_state() -> None:
    def change(manifest: mrub_pb2.Manifest) -> None:
        manifest.MergeFromString(FUTURE_FIELD)
        ref_in(manifest, BARE_FILE.path).MergeFromString(FUTURE_FIELD)

    first = replace(EDIT, base=0, removed=(), vectors={})
    manifest = decode_mrub(encode_edit(first), path=PLACE)
    change(manifest)
    version = apply_edit(None, decode_edit(encode_mrub(manifest), path=PLACE))
    marking = VersionEdit(base=1, facts=FACTS, vectors={BARE_FILE.path: VECTOR})
    second = apply_edit(version, marking)

    folded = decode_mrub(encode_version(version), path=PLACE)
    marked = decode_mrub(encode_version(second), path=PLACE)

    assert field_numbers(folded) == [500]
    assert [field_numbers(ref) for ref in folded.data_files] == [[], [500]]
    assert field_numbers(marked) == []
    assert [field_numbers(ref) for ref in marked.data_files] == [[], [500]]


def test_the_data_sequence_number_of_a_file_is_field_30() -> None:
    file = replace(BARE_FILE, data_sequence=300)

    payload = encode_edit(replace(EDIT, added=(file,)))

    assert bytes.fromhex("f001 ac02") in payload
    assert decode_edit(payload, path=PLACE).added == (file,)
    assert decode_edit(encode_edit(EDIT), path=PLACE).added[1].data_sequence == 0


REMEMBERED = replace(
    BARE_FILE,
    path="deletes/ab12.remembered.parquet",
    format=FileFormat.REMEMBERED,
    commit_ms_min=5,
    commit_ms_max=9,
    schema_id=3,
)


def test_remembered_deletes_are_kept_apart_from_data_files() -> None:
    version = replace(VERSION, deletes={REMEMBERED.path: REMEMBERED})
    edit = replace(
        EDIT,
        deletes_added=(REMEMBERED,),
        deletes_removed=("deletes/old.remembered.parquet", "deletes/older.remembered.parquet"),
    )

    assert decode_version(encode_version(version), path=PLACE) == version
    assert decode_edit(encode_edit(edit), path=PLACE) == edit
    assert edit.changes_files
    assert VersionEdit(base=6, facts=FACTS, deletes_added=(REMEMBERED,)).changes_files
    assert not VersionEdit(base=6, facts=FACTS).changes_files


def test_a_file_of_remembered_deletes_is_named_once() -> None:
    edit = replace(EDIT, added=(), deletes_added=(REMEMBERED, REMEMBERED))

    with pytest.raises(InvalidArgument):
        encode_edit(edit)
