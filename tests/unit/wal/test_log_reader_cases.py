"""Every case of LevelDB's and RocksDB's own tests of their log readers.

The names in quotes are those of the two projects' cases. LevelDB has 38; of RocksDB's own, those
about the ignorable type, the four damages that `absolute` does not ignore, growing files and
recycling apply here: 13. Each case runs in every dialect and with both headers, where it can.

The two projects' readers keep quiet about a torn tail unless they are told not to. neve's reader
always says what it met and recovery decides, so `lost` below is what theirs report and `torn` is
what they ignore.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from neve.errors import Unavailable
from neve.storage.memory_store import MemoryStore
from neve.wal.record_format import Dialect
from neve.wal.segment_reader import DamageKind, Record, SegmentReader
from neve.wal.segment_writer import SegmentWriter
from tests.conftest import Record as Scoreboard
from tests.unit.wal.byte_walker import BLOCK, FIRST, LAST, MIDDLE
from tests.unit.wal.log_bench import LAYOUTS, LOG_NUMBER, Bench, Layout, Reading, repeated

Case = Callable[[Bench], None]
CASES: dict[str, Case] = {}
STANDARD_ONLY: set[str] = set()
RECYCLABLE_ONLY: set[str] = set()


def case(name: str) -> Callable[[Case], Case]:
    """List a function as one of the two projects' cases."""

    def listed(function: Case) -> Case:
        assert name not in CASES
        CASES[name] = function
        return function

    return listed


def assert_reads(bench: Bench, *payloads: bytes) -> None:
    reading = bench.read()
    assert reading.records == list(payloads)
    assert (reading.lost, reading.torn, reading.stale) == ([], [], [])
    assert reading.end.offset == reading.end.resume_offset == len(bench.log)


# What is written is read


@case("Empty")
def an_empty_log_holds_nothing(bench: Bench) -> None:
    assert_reads(bench)


@case("ReadWrite")
def records_are_read_in_order_and_an_empty_one_is_a_record(bench: Bench) -> None:
    bench.write(b"foo", b"bar", b"", b"xxxx")
    assert_reads(bench, b"foo", b"bar", b"", b"xxxx")


@case("ManyBlocks")
def a_hundred_thousand_records_are_read(bench: Bench) -> None:
    payloads = [b"%d." % i for i in range(100_000)]
    bench.write(*payloads)
    assert_reads(bench, *payloads)


@case("Fragmentation")
def records_larger_than_a_block_are_joined(bench: Bench) -> None:
    payloads = [b"small", repeated(b"medium", 50_000), repeated(b"large", 100_000)]
    bench.write(*payloads)
    assert_reads(bench, *payloads)


@case("MarginalTrailer")
def an_empty_record_fits_exactly_into_a_tail_of_one_header(bench: Bench) -> None:
    first = repeated(b"foo", BLOCK - 2 * bench.header)
    bench.write(first)
    assert len(bench.log) == BLOCK - bench.header
    bench.write(b"", b"bar")
    assert len(bench.log) == BLOCK + bench.header + 3
    assert_reads(bench, first, b"", b"bar")


@case("MarginalTrailer2")
def a_first_of_no_bytes_in_the_tail_belongs_to_its_record(bench: Bench) -> None:
    first = repeated(b"foo", BLOCK - 2 * bench.header)
    bench.write(first)
    assert len(bench.log) == BLOCK - bench.header
    bench.write(b"bar")
    assert_reads(bench, first, b"bar")
    assert bench.read().offsets == [0, BLOCK - bench.header]


@case("ShortTrailer")
def a_tail_shorter_than_a_header_is_skipped(bench: Bench) -> None:
    first = repeated(b"foo", BLOCK - 2 * bench.header + 4)
    bench.write(first)
    assert len(bench.log) == BLOCK - bench.header + 4
    bench.write(b"", b"bar")
    assert_reads(bench, first, b"", b"bar")
    assert bench.read().offsets == [0, BLOCK, BLOCK + bench.header]


@case("AlignedEof")
def a_log_may_end_where_a_tail_would_begin(bench: Bench) -> None:
    first = repeated(b"foo", BLOCK - 2 * bench.header + 4)
    bench.write(first)
    assert_reads(bench, first)


@case("OpenForAppend")
def a_writer_goes_on_where_the_last_one_ended(bench: Bench) -> None:
    bench.write(b"hello")
    bench.reopen()
    bench.write(repeated(b"world", BLOCK))
    assert_reads(bench, b"hello", repeated(b"world", BLOCK))


@case("RandomRead")
def records_of_skewed_sizes_are_read(bench: Bench) -> None:
    sizes = random.Random(301)
    payloads = [repeated(b"%d." % i, sizes.randrange(1 << sizes.randrange(18))) for i in range(500)]
    bench.write(*payloads)
    assert_reads(bench, *payloads)


# What is damaged is dropped to the byte, with its reason


@case("ReadError")
def a_read_error_loses_a_block(bench: Bench) -> None:
    bench.write(b"foo")

    def fail(offset: int, length: int) -> bytes:
        raise Unavailable(f"bytes {offset} to {offset + length} cannot be read")

    reading = bench.read_with(fail)
    assert reading.records == []
    assert reading.lost == [(BLOCK, DamageKind.READ_ERROR)]


@case("BadRecordType")
def an_unknown_type_loses_its_payload(bench: Bench) -> None:
    bench.write(b"foo")
    bench.set_type(101)
    reading = bench.read()
    assert reading.records == []
    assert reading.lost == [(3, DamageKind.UNKNOWN_TYPE)]


@case("TruncatedTrailingRecordIsIgnored")
def a_cut_header_is_a_torn_tail(bench: Bench) -> None:
    bench.write(b"foo")
    bench.shrink(4)
    reading = bench.read()
    assert (reading.records, reading.lost) == ([], [])
    assert reading.torn == [(bench.header - 1, DamageKind.TRUNCATED_HEADER)]


@case("BadLength")
def a_length_that_leaves_the_block_loses_the_block(bench: Bench) -> None:
    bench.write(repeated(b"bar", BLOCK - bench.header), b"foo")
    bench.log[4] += 1
    reading = bench.read()
    assert reading.records == [b"foo"]
    assert reading.lost == [(BLOCK, DamageKind.BAD_LENGTH)]


@case("BadLengthAtEndIsIgnored")
def a_cut_body_is_a_torn_tail(bench: Bench) -> None:
    bench.write(b"foo")
    bench.shrink(1)
    reading = bench.read()
    assert (reading.records, reading.lost) == ([], [])
    assert reading.torn == [(bench.header + 2, DamageKind.TRUNCATED_BODY)]


@case("ChecksumMismatch")
def a_wrong_checksum_loses_the_rest_of_the_block(bench: Bench) -> None:
    bench.write(b"foo")
    bench.log[0] = (bench.log[0] + 10) % 256
    reading = bench.read()
    assert reading.records == []
    assert reading.lost == [(bench.header + 3, DamageKind.CHECKSUM_MISMATCH)]


def _a_fragment_without_a_start_is_lost(bench: Bench, kind: int) -> None:
    bench.write(b"foo")
    bench.set_type(bench.layout.type_byte(kind))
    reading = bench.read()
    assert reading.records == []
    assert reading.lost == [(3, DamageKind.MISSING_START)]


@case("UnexpectedMiddleType")
def a_middle_without_a_start_is_lost(bench: Bench) -> None:
    _a_fragment_without_a_start_is_lost(bench, MIDDLE)


@case("UnexpectedLastType")
def a_last_without_a_start_is_lost(bench: Bench) -> None:
    _a_fragment_without_a_start_is_lost(bench, LAST)


def _a_first_without_an_end_is_lost(bench: Bench, following: bytes) -> None:
    bench.write(b"foo", following)
    bench.set_type(bench.layout.type_byte(FIRST))
    reading = bench.read()
    assert reading.records == [following]
    assert reading.lost == [(3, DamageKind.MISSING_END)]


@case("UnexpectedFullType")
def a_full_ends_an_unfinished_record(bench: Bench) -> None:
    _a_first_without_an_end_is_lost(bench, b"bar")


@case("UnexpectedFirstType")
def a_first_ends_an_unfinished_record(bench: Bench) -> None:
    _a_first_without_an_end_is_lost(bench, repeated(b"bar", 100_000))


@case("MissingLastIsIgnored")
def a_record_whose_last_is_missing_is_a_torn_tail(bench: Bench) -> None:
    bench.write(repeated(b"bar", BLOCK))
    bench.shrink(2 * bench.header)
    reading = bench.read()
    assert (reading.records, reading.lost) == ([], [])
    assert reading.torn == [(BLOCK - bench.header, DamageKind.UNFINISHED_RECORD)]


@case("PartialLastIsIgnored")
def a_record_whose_last_is_cut_is_a_torn_tail(bench: Bench) -> None:
    bench.write(repeated(b"bar", BLOCK))
    bench.shrink(1)
    reading = bench.read()
    assert (reading.records, reading.lost) == ([], [])
    assert reading.torn == [
        (2 * bench.header - 1, DamageKind.TRUNCATED_BODY),
        (BLOCK - bench.header, DamageKind.UNFINISHED_RECORD),
    ]


@case("ErrorJoinsRecords")
def fragments_of_two_records_are_never_joined(bench: Bench) -> None:
    bench.write(repeated(b"foo", BLOCK), repeated(b"bar", BLOCK), b"correct")
    bench.log[BLOCK : 2 * BLOCK] = b"x" * BLOCK
    reading = bench.read()
    assert reading.records == [b"correct"]
    assert reading.lost == [
        (BLOCK, DamageKind.CHECKSUM_MISMATCH),
        (BLOCK - bench.header, DamageKind.INTERRUPTED_RECORD),
        (3 * bench.header, DamageKind.MISSING_START),
    ]


# A reader may begin anywhere


@case("SkipIntoMultiRecord")
def the_rest_of_a_record_begun_before_the_start_is_no_damage(bench: Bench) -> None:
    bench.write(repeated(b"foo", 3 * BLOCK), b"correct")
    reading = bench.read(start=BLOCK)
    assert reading.records == [b"correct"]
    assert (reading.lost, reading.torn) == ([], [])


OFFSET_SIZES: Final = (10_000, 10_000, 2 * BLOCK - 1_000, 1, 13_716, BLOCK - 7)
OFFSETS: Final = (0, 10_007, 20_014, 84_571, 84_579, 3 * BLOCK)
# start offset, index of the first record read
STARTS: Final = {
    "ReadStart": (0, 0),
    "ReadSecondOneOff": (1, 1),
    "ReadSecondTenThousand": (10_000, 1),
    "ReadSecondStart": (10_007, 1),
    "ReadThirdOneOff": (10_008, 2),
    "ReadThirdStart": (20_014, 2),
    "ReadFourthOneOff": (20_015, 3),
    "ReadFourthFirstBlockTrailer": (BLOCK - 4, 3),
    "ReadFourthMiddleBlock": (BLOCK + 1, 3),
    "ReadFourthLastBlock": (2 * BLOCK + 1, 3),
    "ReadFourthStart": (2 * (7 + 1_000) + (2 * BLOCK - 1_000) + 3 * 7, 3),
    "ReadInitialOffsetIntoBlockPadding": (3 * BLOCK - 3, 5),
    "ReadEnd": (4 * BLOCK, 6),
    "ReadPastEnd": (4 * BLOCK + 5, 6),
}


def _start_case(start: int, first: int) -> Case:
    def a_reader_begins_at_the_next_record(bench: Bench) -> None:
        bench.write(*(bytes([ord("a") + i]) * size for i, size in enumerate(OFFSET_SIZES)))
        reading = bench.read(start=start)
        assert reading.offsets == list(OFFSETS[first:])
        assert [len(record) for record in reading.records] == list(OFFSET_SIZES[first:])
        assert [record[:1] for record in reading.records] == [
            bytes([ord("a") + i]) for i in range(first, 6)
        ]
        assert (reading.lost, reading.torn) == ([], [])

    return a_reader_begins_at_the_next_record


for _name, (_start, _first) in STARTS.items():
    case(_name)(_start_case(_start, _first))
    STANDARD_ONLY.add(_name)  # the sizes are made for a header of 7 bytes


# RocksDB's own


@case("IgnorableRecordType")
def an_unknown_type_that_says_so_is_skipped(bench: Bench) -> None:
    bench.write(b"foo")
    first = len(bench.log)
    standard = Bench(Layout(bench.layout.dialect, recyclable=False))
    standard.write(b"new")
    standard.set_type(128 + 100)
    bench.log += standard.log
    bench.write(b"bar")
    reading = bench.read()
    assert (reading.records, reading.offsets) == ([b"foo", b"bar"], [0, first + 10])
    assert (reading.lost, reading.torn) == ([], [])


def _assert_refused(bench: Bench, dropped_bytes: int, kind: DamageKind) -> None:
    assert (dropped_bytes, kind) in bench.read().torn
    refusal = bench.refusal()
    assert (refusal.message, refusal.offset) == (kind.value, bench.read().end.offset)


@case("TruncatedTrailingRecordIsNotIgnored")
def absolute_recovery_refuses_a_cut_header(bench: Bench) -> None:
    bench.write(b"foo")
    bench.shrink(4)
    _assert_refused(bench, bench.header - 1, DamageKind.TRUNCATED_HEADER)


@case("BadLengthAtEndIsNotIgnored")
def absolute_recovery_refuses_a_cut_body(bench: Bench) -> None:
    bench.write(b"foo")
    bench.shrink(1)
    _assert_refused(bench, bench.header + 2, DamageKind.TRUNCATED_BODY)


@case("MissingLastIsNotIgnored")
def absolute_recovery_refuses_a_missing_last(bench: Bench) -> None:
    bench.write(repeated(b"bar", BLOCK))
    bench.shrink(2 * bench.header)
    reading = bench.read()
    assert reading.torn == [(BLOCK - bench.header, DamageKind.UNFINISHED_RECORD)]
    assert bench.refusal().message == DamageKind.UNFINISHED_RECORD.value


@case("PartialLastIsNotIgnored")
def absolute_recovery_refuses_a_cut_last(bench: Bench) -> None:
    bench.write(repeated(b"bar", BLOCK))
    bench.shrink(1)
    _assert_refused(bench, 2 * bench.header - 1, DamageKind.TRUNCATED_BODY)


@case("Recycle")
def a_recycled_log_ends_where_the_earlier_one_shows(bench: Bench) -> None:
    bench.write(b"foo", b"bar", b"baz", b"bif", b"blitz", *[b"x" * 16] * (2 * BLOCK // 16))
    recycled = Bench(bench.layout, log_number=123)
    recycled.write(b"new", b"too")  # as long as the records they cover
    recycled.log += bench.log[len(recycled.log) :]
    reading = recycled.read()
    assert reading.records == [b"new", b"too"]
    assert set(reading.stale) == {LOG_NUMBER}
    assert reading.lost == []
    assert reading.end.offset == 2 * (bench.header + 3)


RECYCLABLE_ONLY.add("Recycle")


# A growing file is read again from where the last reading says


def _tail(bench: Bench, *visible: int) -> Iterator[Reading]:
    start = 0
    for byte_count in visible:
        reading = bench.read(start=start, visible=byte_count)
        start = reading.end.resume_offset
        yield reading


def _assert_tails(bench: Bench, payloads: Sequence[bytes], *visible: int) -> None:
    readings = list(_tail(bench, *visible, len(bench.log)))
    assert [record for reading in readings for record in reading.records] == list(payloads)
    assert all(reading.lost == [] for reading in readings)
    assert readings[-1].torn == []


@case("ClearEofSingleBlock")
def a_growing_block_is_read_to_its_end(bench: Bench) -> None:
    bench.write(b"foo", b"bar", b"xxx")
    _assert_tails(bench, [b"foo", b"bar", b"xxx"], 3 + bench.header + 2, 2 * (3 + bench.header))


@case("ClearEofMultiBlock")
def a_record_cut_in_any_of_its_blocks_is_read_once_it_is_whole(bench: Bench) -> None:
    size = (BLOCK - bench.header) * 5 + 25
    payloads = [repeated(text, size) for text in (b"foo", b"bar", b"xxx")]
    bench.write(*payloads)
    first = size + 6 * bench.header
    # inside the second record's first header, at and around the ends of its blocks, inside its last
    cuts = [first + 3, 6 * BLOCK - 1, 6 * BLOCK, 6 * BLOCK + 5, 7 * BLOCK + 500, 11 * BLOCK - 4]
    _assert_tails(bench, payloads, *cuts)


def _failing(bench: Bench, *, from_byte: int) -> Callable[[int, int], bytes]:
    def read_at(offset: int, length: int) -> bytes:
        if offset >= from_byte:
            raise Unavailable("the disk did not answer")
        return bytes(bench.log[offset : offset + length])

    return read_at


@case("ClearEofError")
def a_read_error_while_tailing_repeats_and_loses_no_record(bench: Bench) -> None:
    bench.write(b"foo", b"bar")
    before = bench.read()
    bench.write(b"xxx")
    failed = bench.read_with(_failing(bench, from_byte=0), start=before.end.resume_offset)
    after = bench.read(start=failed.end.resume_offset)
    assert (before.records, failed.records, after.records) == ([b"foo", b"bar"], [], [b"xxx"])
    assert failed.lost == [(BLOCK, DamageKind.READ_ERROR)]


@case("ClearEofError2")
def a_read_error_in_a_later_block_keeps_what_was_read_before_it(bench: Bench) -> None:
    many = [repeated(b"%d," % i, BLOCK - bench.header) for i in range(80)]
    bench.write(*many)
    failed = bench.read_with(_failing(bench, from_byte=1))
    after = bench.read(start=failed.end.resume_offset)
    assert failed.records + after.records == many
    assert failed.records
    assert failed.lost == [(BLOCK, DamageKind.READ_ERROR)]


@case("TailLog_PartialHeader")
def a_record_whose_header_is_cut_is_awaited(bench: Bench) -> None:
    bench.write(b"foo")
    _assert_tails(bench, [b"foo"], 0, bench.header - 1)


@case("TailLog_FullHeader")
def a_record_whose_body_is_cut_is_awaited(bench: Bench) -> None:
    bench.write(b"foo")
    _assert_tails(bench, [b"foo"], bench.header + 1)


@case("NonBlockingReadFullRecord")
def reading_half_a_record_gives_nothing_and_the_whole_one_later(bench: Bench) -> None:
    bench.write(b"foo-bar")
    first, second = _tail(bench, bench.header - 1, len(bench.log))
    assert (first.records, second.records) == ([], [b"foo-bar"])
    assert first.end.resume_offset == 0


# Running them


def _runs(name: str, layout: Layout) -> bool:
    unfit = STANDARD_ONLY if layout.recyclable else RECYCLABLE_ONLY
    return name not in unfit


@pytest.mark.parametrize(
    ("name", "layout"),
    [(name, layout) for name in CASES for layout in LAYOUTS if _runs(name, layout)],
    ids=str,
)
def test_a_log_reader_case_holds(name: str, layout: Layout) -> None:
    CASES[name](Bench(layout))  # each case asserts


def test_every_log_reader_case_is_counted(scoreboard: Scoreboard) -> None:
    held = 0
    for name, check in CASES.items():
        check(Bench(Layout(Dialect.ROCKSDB, recyclable=name in RECYCLABLE_ONLY)))
        held += 1

    assert (len(CASES), held) == (38 + 13, 38 + 13)
    scoreboard(f"R1 log reader cases: {held} of {len(CASES)}")


def test_a_log_number_is_not_learnt_from_a_damaged_header() -> None:
    store = MemoryStore()
    writer = SegmentWriter(store.create("log"), log_number=7)
    writer.append([[b"x" * 40_000], [b"second"]])
    log = bytearray(store.get("log").payload)
    log[7] ^= 1  # the first record's log number

    reader = SegmentReader(lambda offset, length: bytes(log[offset : offset + length]))
    records = [event.payload for event in reader if isinstance(event, Record)]

    assert records == [b"second"]
    assert reader.log_number == 7
