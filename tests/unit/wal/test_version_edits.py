"""Fields of version edits, tag by tag, and what is said about broken ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.model.varint import encode_varint, read_varint
from neve.wal.version_edits import (
    FIELDS_MAX,
    EditField,
    Fact,
    InternalKey,
    read_version_edit,
)

KEY_A = b"\x09a" + (7 << 8 | 1).to_bytes(8, "little")
KEY_B = b"\x09b" + (9 << 8 | 0).to_bytes(8, "little")
A = InternalKey(b"a", 7, 1)
B = InternalKey(b"b", 9, 0)
FILE = (Fact("level", 2), Fact("file", 11))
KEYS = (Fact("smallest", A), Fact("largest", B))
SEQUENCES = (Fact("first_sequence", 7), Fact("last_sequence", 9))


def tag(number: int) -> bytes:
    return encode_varint(number)


def prefixed(content: bytes) -> bytes:
    return encode_varint(len(content)) + content


def test_a_tag_nobody_knows_ends_the_edit_and_is_shown() -> None:
    edit = read_version_edit(tag(2) + b"\x05" + tag(99) + b"rest")

    assert edit.unknown_tag == 99
    assert edit.problem is None
    assert edit.fields[-1] == EditField(99, "unknown", (Fact("rest", b"rest"),))


def test_an_unknown_tag_that_may_be_passed_over_does_not_end_the_edit() -> None:
    edit = read_version_edit(tag(8192 + 100) + prefixed(b"??") + tag(2) + b"\x05")

    assert edit.unknown_tag is None
    assert [field.name for field in edit.fields] == ["unknown", "log number"]
    assert edit.fields[0].facts == (Fact("value", b"??"),)


def test_a_field_that_is_cut_off_is_told_and_those_before_it_are_kept() -> None:
    edit = read_version_edit(tag(2) + b"\x05" + tag(1) + b"\x20leveldb")

    assert [field.name for field in edit.fields] == ["log number", "unreadable"]
    assert edit.problem == (
        "comparator at byte 2 of the edit: 32 bytes are announced where 7 are left"
    )


def test_a_key_without_room_for_its_sequence_is_told() -> None:
    edit = read_version_edit(tag(5) + b"\x00" + prefixed(b"short"))

    assert "has no room for its sequence" in (edit.problem or "")


def test_endless_extras_are_refused() -> None:
    extras = (tag(7) + prefixed(b"")) * 2_000

    edit = read_version_edit(tag(103) + b"\x02\x0b\x64" + KEY_A + KEY_B + b"\x07\x09" + extras)

    assert "more than 1,000 extras" in (edit.problem or "")


def test_more_fields_than_are_kept_are_counted() -> None:
    edit = read_version_edit(tag(202) * (FIELDS_MAX + 3))

    assert len(edit.fields) == FIELDS_MAX
    assert edit.omitted_count == 3


@pytest.mark.parametrize(
    ("content", "name", "facts"),
    [
        (tag(1) + prefixed(b"x.Cmp"), "comparator", (Fact("name", "x.Cmp"),)),
        (tag(2) + b"\x05", "log number", (Fact("log", 5),)),
        (tag(3) + b"\x06", "next file number", (Fact("file", 6),)),
        (tag(4) + b"\x80\x01", "last sequence", (Fact("sequence", 128),)),
        (tag(5) + b"\x02" + KEY_A, "compact cursor", (Fact("level", 2), Fact("key", A))),
        (tag(6) + b"\x02\x0b", "deleted file", FILE),
        (
            tag(7) + b"\x02\x0b\x64" + KEY_A + KEY_B,
            "new file",
            (*FILE, Fact("bytes", 100), *KEYS),
        ),
        (tag(9) + b"\x00", "previous log number", (Fact("log", 0),)),
        (tag(10) + b"\x04", "minimum log number to keep", (Fact("log", 4),)),
        (
            tag(100) + b"\x02\x0b\x64" + KEY_A + KEY_B + b"\x07\x09",
            "new file",
            (*FILE, Fact("bytes", 100), *KEYS, *SEQUENCES),
        ),
        (
            tag(102) + b"\x02\x0b\x01\x64" + KEY_A + KEY_B + b"\x07\x09",
            "new file",
            (*FILE, Fact("path", 1), Fact("bytes", 100), *KEYS, *SEQUENCES),
        ),
        (tag(200) + b"\x03", "column family", (Fact("family", 3),)),
        (tag(201) + prefixed(b"cf"), "add column family", (Fact("name", "cf"),)),
        (tag(202), "drop column family", ()),
        (tag(203) + b"\x03", "maximum column family", (Fact("family", 3),)),
        (tag(300) + b"\x01", "atomic group", (Fact("edits_left", 1),)),
        (
            tag(400) + b"\x05\x02\x64" + prefixed(b"crc") + prefixed(b"\xff") + b"\x00",
            "new blob file",
            (
                Fact("file", 5),
                Fact("blobs", 2),
                Fact("bytes", 100),
                Fact("checksum_method", "crc"),
                Fact("checksum", b"\xff"),
            ),
        ),
        (
            tag(401) + b"\x05\x02\x64" + b"\x09" + prefixed(b"!") + b"\x00",
            "blob file garbage",
            (Fact("file", 5), Fact("blobs", 2), Fact("bytes", 100), Fact("extra_9", b"!")),
        ),
        (tag(8193) + prefixed(b"id"), "database id", (Fact("name", "id"),)),
        (
            tag(8196) + b"\x05\x02\x64\x01",
            "log kept",
            (Fact("log", 5), Fact("synced_bytes", 100)),
        ),
        (tag(8197) + b"\x05", "logs deleted", (Fact("before_log", 5),)),
        (tag(8198) + prefixed(b"ts"), "full history timestamp", (Fact("value", b"ts"),)),
        (tag(8199) + prefixed(b"\x05\x01"), "log kept", (Fact("log", 5),)),
        (
            tag(8200) + prefixed(b"\x05more"),
            "logs deleted",
            (Fact("before_log", 5), Fact("rest", b"more")),
        ),
        (tag(8201) + prefixed(b"\x01"), "timestamps persisted", (Fact("value", value=True),)),
        (tag(8202) + prefixed(b"p"), "compaction progress", (Fact("value", b"p"),)),
        (tag(8203) + prefixed(b"\x64"), "compacted manifest bytes", (Fact("bytes", 100),)),
    ],
    ids=lambda value: f"tag {read_varint(value, 0)[0]}" if isinstance(value, bytes) else "",
)
def test_each_known_field_is_told_in_words(
    content: bytes, name: str, facts: tuple[Fact, ...]
) -> None:
    edit = read_version_edit(content + tag(202))

    assert edit.problem is None
    assert [field.name for field in edit.fields] == [name, "drop column family"]
    assert edit.fields[0].facts == facts


def test_the_extras_of_a_new_file_are_named() -> None:
    extras = {
        2: (b"\x01", Fact("needs_compaction", value=True)),
        3: ((5).to_bytes(8, "little"), Fact("minimum_log_to_keep", 5)),
        4: (b"\x06", Fact("oldest_blob_file", 6)),
        5: (b"\x80\x01", Fact("oldest_ancestor_time", 128)),
        6: (b"\x07", Fact("created_at", 7)),
        7: (b"\xab", Fact("checksum", b"\xab")),
        8: (b"crc", Fact("checksum_method", "crc")),
        9: (b"\x04", Fact("temperature", 4)),
        12: (bytes(16), Fact("unique_id", bytes(16))),
        13: (b"\x01", Fact("epoch", 1)),
        15: (b"\x20", Fact("tail_bytes", 32)),
        16: (b"\x00", Fact("timestamps_persisted", value=False)),
        40: (b"new", Fact("extra_40", b"new")),
        65: (b"\x02", Fact("path", 2)),
    }
    content = b"".join(tag(number) + prefixed(extra) for number, (extra, _) in extras.items())

    edit = read_version_edit(
        tag(103) + b"\x02\x0b\x64" + KEY_A + KEY_B + b"\x07\x09" + content + tag(1)
    )

    assert edit.problem is None
    expected = (*FILE, Fact("bytes", 100), *KEYS, *SEQUENCES)
    assert edit.fields[0].facts == (*expected, *(fact for _, fact in extras.values()))


@given(st.binary(max_size=200))
def test_any_bytes_are_told_without_an_error(content: bytes) -> None:
    edit = read_version_edit(content)

    assert len(edit.fields) <= len(content)
