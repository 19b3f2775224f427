"""Batches of RocksDB and LevelDB, tag by tag, and what is said about broken ones."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.wal.inspected_batch import ENTRIES_MAX, Entry, NamedBytes, read_foreign_batch


def payload(*entries: bytes, sequence: int = 10, count: int | None = None) -> bytes:
    return struct.pack("<QI", sequence, len(entries) if count is None else count) + b"".join(
        entries
    )


def named(**fields: bytes) -> tuple[NamedBytes, ...]:
    return tuple(NamedBytes(name, content) for name, content in fields.items())


def test_a_tag_nobody_knows_is_shown_with_everything_behind_it() -> None:
    batch = read_foreign_batch(payload(b"\x00\x01a", b"\x7e\xff\x00"))

    assert batch.unknown_tag == 0x7E
    assert batch.problem is None
    assert batch.entries[1] == Entry("unknown", 0x7E, None, None, named(rest=b"\xff\x00"))


def test_an_entry_that_is_cut_off_is_told_and_those_before_it_are_kept() -> None:
    batch = read_foreign_batch(payload(b"\x00\x01a", b"\x01\x01b\x05xy"))

    assert [entry.op for entry in batch.entries] == ["delete"]
    assert batch.problem == "entry 1 (put): 5 bytes are announced where 2 are left"


def test_a_batch_shorter_than_its_frame_has_no_sequence() -> None:
    batch = read_foreign_batch(b"\x00" * 11)

    assert batch.sequence is None
    assert batch.next_sequence is None
    assert batch.problem == "a batch of 11 bytes has no room for its frame"


def test_a_count_that_disagrees_with_the_entries_is_told() -> None:
    batch = read_foreign_batch(payload(b"\x00\x01a", count=2))

    assert len(batch.entries) == 1
    assert batch.problem == "a batch announced with 2 entries has 1"


def test_more_entries_than_are_kept_are_counted() -> None:
    batch = read_foreign_batch(payload(b"\x0d" * (ENTRIES_MAX + 5), count=0))

    assert len(batch.entries) == ENTRIES_MAX
    assert batch.omitted_count == 5
    assert batch.problem is None


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (b"\x00\x01k", Entry("delete", 0x00, 10, None, named(key=b"k"))),
        (b"\x01\x01k\x02vv", Entry("put", 0x01, 10, None, named(key=b"k", value=b"vv"))),
        (b"\x02\x01k\x01+", Entry("merge", 0x02, 10, None, named(key=b"k", value=b"+"))),
        (b"\x04\x07\x01k", Entry("delete", 0x04, 10, 7, named(key=b"k"))),
        (b"\x05\x07\x01k\x01v", Entry("put", 0x05, 10, 7, named(key=b"k", value=b"v"))),
        (b"\x06\x07\x01k\x01+", Entry("merge", 0x06, 10, 7, named(key=b"k", value=b"+"))),
        (b"\x07\x01k", Entry("single delete", 0x07, 10, None, named(key=b"k"))),
        (b"\x08\x80\x01\x01k", Entry("single delete", 0x08, 10, 128, named(key=b"k"))),
        (b"\x0e\x07\x01a\x01b", Entry("delete range", 0x0E, 10, 7, named(key=b"a", end_key=b"b"))),
        (b"\x0f\x01a\x01b", Entry("delete range", 0x0F, 10, None, named(key=b"a", end_key=b"b"))),
        (b"\x10\x02\x01k\x01i", Entry("put blob index", 0x10, 10, 2, named(key=b"k", value=b"i"))),
        (b"\x11\x01k\x01i", Entry("put blob index", 0x11, 10, None, named(key=b"k", value=b"i"))),
        (b"\x16\x01k\x01e", Entry("put entity", 0x16, 10, None, named(key=b"k", value=b"e"))),
        (b"\x17\x02\x01k\x01e", Entry("put entity", 0x17, 10, 2, named(key=b"k", value=b"e"))),
        (b"\x18\x01k\x01t", Entry("timed put", 0x18, 10, None, named(key=b"k", value=b"t"))),
        (b"\x19\x02\x01k\x01t", Entry("timed put", 0x19, 10, 2, named(key=b"k", value=b"t"))),
    ],
    ids=lambda value: f"{value[0]:02x}" if isinstance(value, bytes) else "",
)
def test_an_entry_that_changes_a_row_takes_a_sequence_number(entry: bytes, expected: Entry) -> None:
    batch = read_foreign_batch(payload(entry))

    assert batch.entries == (expected,)
    assert batch.next_sequence == 11
    assert batch.problem is None


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (b"\x03\x04blob", Entry("log data", 0x03, None, None, named(blob=b"blob"))),
        (b"\x09", Entry("begin prepare", 0x09, None, None, ())),
        (b"\x0a\x02id", Entry("end prepare", 0x0A, None, None, named(transaction=b"id"))),
        (b"\x0b\x02id", Entry("commit", 0x0B, None, None, named(transaction=b"id"))),
        (b"\x0c\x02id", Entry("rollback", 0x0C, None, None, named(transaction=b"id"))),
        (b"\x0d", Entry("noop", 0x0D, None, None, ())),
        (b"\x12", Entry("begin persisted prepare", 0x12, None, None, ())),
        (b"\x13", Entry("begin unprepare", 0x13, None, None, ())),
        (
            b"\x15\x02ts\x02id",
            Entry("commit at", 0x15, None, None, named(timestamp=b"ts", transaction=b"id")),
        ),
    ],
    ids=lambda value: f"{value[0]:02x}" if isinstance(value, bytes) else "",
)
def test_an_entry_that_changes_no_row_takes_no_sequence_number(
    entry: bytes, expected: Entry
) -> None:
    batch = read_foreign_batch(payload(entry, b"\x00\x01z", count=1))

    assert batch.entries[0] == expected
    assert batch.entries[1].sequence == 10
    assert batch.next_sequence == 11
    assert batch.problem is None


@given(st.binary(max_size=200))
def test_any_bytes_are_told_without_an_error(content: bytes) -> None:
    batch = read_foreign_batch(content)

    assert len(batch.entries) <= len(content)
