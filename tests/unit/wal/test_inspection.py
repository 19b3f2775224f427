"""What inspection says about whole, damaged, torn, recycled and foreign logs."""

from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import Corruption, Unavailable
from neve.model.write_batch import DeleteRows, PartialRows, UpsertRows, WriteBatch
from neve.storage.memory_store import MemoryStore
from neve.wal.batch_codec import LogStart, encode_changes, encode_put
from neve.wal.foreign_replay import ForeignReplay
from neve.wal.inspected_batch import InspectedBatch, RowsEntry
from neve.wal.inspection import (
    Block,
    DamagedPart,
    EmptyBlocks,
    InspectedDamage,
    LogicalRecord,
    LogInspection,
    PaddingPart,
    PayloadKind,
    RecordPart,
    StalePart,
    ZerosPart,
    payload_kind_of,
)
from neve.wal.log_ending import Ending, EndReason
from neve.wal.log_options import LogOptions
from neve.wal.record_format import BLOCK_BYTES, HEADER_BYTES, Dialect, RecordType
from neve.wal.replay import LogFile, RecoveryMode, Replay
from neve.wal.segment_reader import DamageKind
from tests.unit.wal.inspected_logs import (
    batch,
    damage_of,
    delete,
    ending_of,
    flipped,
    inspect,
    neve_log,
    open_log,
    physical_record,
    put,
    read_of,
    records_of,
    segment,
)


def batch_of(record: LogicalRecord) -> InspectedBatch:
    assert isinstance(record.content, InspectedBatch)
    return record.content


def blocks_of(inspection: LogInspection) -> list[Block]:
    return [block for block in inspection.blocks() if isinstance(block, Block)]


def assert_parts_tile(content: bytes) -> None:
    """Check that every byte of the file is in exactly one part."""
    at = 0
    for block in inspect(content).blocks():
        assert block.offset == at
        if isinstance(block, Block):
            for part in block.parts:
                assert part.offset == at
                assert part.byte_count > 0
                at += part.byte_count
                assert (at - 1) // BLOCK_BYTES == block.index
        at = block.offset + block.byte_count
    assert at == len(content)


# What can be wrong


def test_a_flipped_bit_is_shown_with_its_place_and_everything_behind_it_is_still_read() -> None:
    rows = [[put(b"key %d" % number, b"v" * 5_000)] for number in range(20)]
    whole = neve_log(*rows)
    second = records_of(inspect(whole))[2]

    inspection = inspect(flipped(whole, second.offset + 20))

    ending = ending_of(inspection)
    assert (ending.reason, ending.offset) == (EndReason.DAMAGE, second.offset)
    assert "rows from 2 cannot be read" in ending.detail
    first_damage = damage_of(inspection)[0]
    assert first_damage.kind is DamageKind.CHECKSUM_MISMATCH
    assert first_damage.offset == second.offset
    assert first_damage.dropped_bytes == BLOCK_BYTES - second.offset
    assert not first_damage.behind_end
    behind = [record for record in records_of(inspection) if record.behind_end]
    assert len(behind) > 5
    damaged = blocks_of(inspection)[0].parts[-1]
    assert isinstance(damaged, DamagedPart)
    assert damaged.header is not None
    assert damaged.header.length == len(second.payload)


def test_the_record_that_proves_a_loss_is_the_one_that_recovery_names() -> None:
    rows = [[put(b"key %d" % number, b"v" * 5_000)] for number in range(20)]
    whole = neve_log(*rows)
    second = records_of(inspect(whole))[2]
    damaged = flipped(whole, second.offset + 20)

    ending = ending_of(inspect(damaged))

    refusal = refusal_of(damaged)
    assert refusal is not None
    assert (ending.detail, ending.offset) == (refusal.message, refusal.offset)
    assert "rows up to 2 were durable" in ending.detail


def test_a_log_that_does_not_begin_as_itself_is_damage_as_recovery_says() -> None:
    whole = neve_log([put(b"a")], [put(b"b")], closed=False)
    rows_only = whole[records_of(inspect(whole))[1].offset :]

    ending = ending_of(inspect(rows_only))

    refusal = refusal_of(rows_only)
    assert refusal is not None
    assert refusal.message == "the file does not begin as log 1"
    assert (ending.reason, ending.detail) == (EndReason.DAMAGE, refusal.message)


def test_a_first_record_that_is_no_batch_is_damage_as_recovery_says() -> None:
    whole = segment(b"too short", dialect=Dialect.CRC32C, recyclable=True, log_number=1)

    ending = ending_of(inspect(whole))

    refusal = refusal_of(whole)
    assert refusal is not None
    assert (ending.reason, ending.detail) == (EndReason.DAMAGE, refusal.message)


def test_records_and_rows_behind_the_end_are_counted_apart() -> None:
    rows = [[put(b"key %d" % number, b"v" * 5_000)] for number in range(20)]
    whole = neve_log(*rows)
    third = records_of(inspect(whole))[3]

    ending = ending_of(inspect(flipped(whole, third.offset + 20)))

    assert ending.row_count == 2
    assert ending.record_count - ending.records_behind_end == 3
    # Three more rows lie in the rest of the damaged block, and one that crosses its end.
    assert ending.rows_behind_end == 20 - 2 - 1 - 4
    assert ending.records_behind_end == ending.rows_behind_end + 1


def test_a_record_in_the_wrong_place_is_itself_behind_the_end() -> None:
    first = neve_log([put(b"a")], [put(b"b")], [put(b"c")], closed=False)
    _, _, b, c = records_of(inspect(first))

    inspection = inspect(first[: b.offset] + first[c.offset :])

    assert [record.behind_end for record in records_of(inspection)] == [False, False, True]
    assert ending_of(inspection).rows_behind_end == 1


def test_damage_that_reading_starts_with_does_not_guess_which_rows_are_lost() -> None:
    rows = [[put(b"key %d" % number, b"v" * 5_000)] for number in range(20)]
    whole = neve_log(*rows)
    second = records_of(inspect(whole))[2]

    ending = ending_of(inspect(flipped(whole, second.offset + 20), start_offset=second.offset))

    assert ending.reason is EndReason.DAMAGE
    assert ending.detail == (
        "checksum mismatch: rows that were durable cannot be read; reading from the beginning "
        "shows which"
    )


def test_a_log_cut_inside_a_record_has_a_torn_tail() -> None:
    whole = neve_log([put(b"a")], [put(b"b")], closed=False)

    ending = ending_of(inspect(whole[:-3]))

    assert ending.reason is EndReason.TORN_TAIL
    assert ending.record_count == 2
    assert ending.row_count == 1
    assert ending.damage_count == 1
    assert ending.offset == records_of(inspect(whole))[2].offset


def test_damage_in_a_foreign_log_without_log_numbers_is_damage() -> None:
    whole = segment(batch(1, put(b"a")), batch(2, put(b"b")))

    ending = ending_of(inspect(flipped(whole, 20)))

    assert ending.reason is EndReason.DAMAGE
    assert ending.offset == 0


def test_bytes_that_cannot_be_read_from_the_disk_are_damage() -> None:
    whole = neve_log([put(b"a", b"x" * 3 * (1 << 20))])

    def read_at(offset: int, length: int) -> bytes:
        if offset >= 1 << 20:
            raise Unavailable("the disk is broken")
        return whole[offset : offset + length]

    inspection = LogInspection(read_at)

    kinds = [damage.kind for damage in damage_of(inspection)]
    assert DamageKind.READ_ERROR in kinds
    last = [*inspection.blocks()][-1]
    assert isinstance(last, Block)
    assert isinstance(last.parts[-1], DamagedPart)
    assert last.parts[-1].kind is DamageKind.READ_ERROR


def test_a_payload_that_is_no_batch_is_told_and_not_raised() -> None:
    whole = segment(b"too short", dialect=Dialect.CRC32C)

    record = records_of(inspect(whole))[0]

    assert batch_of(record).sequence is None
    assert "no room for its frame" in (batch_of(record).problem or "")
    assert ending_of(inspect(whole)).reason is EndReason.DAMAGE


def test_a_batch_of_neve_with_an_unknown_entry_keeps_its_frame() -> None:
    payload = batch(5, put(b"a"))[:8] + b"\x01\x00\x00\x00" + b"\x7f"

    record = records_of(inspect(segment(payload, dialect=Dialect.CRC32C)))[0]

    assert batch_of(record).sequence == 5
    assert batch_of(record).entry_count == 1
    assert batch_of(record).problem == "unknown batch entry 0x7f"


def test_a_record_whose_beginning_is_lost_is_reported() -> None:
    fragment = physical_record(b"middle", record_type=RecordType.MIDDLE)
    whole = fragment + segment(batch(1, put(b"a")))

    inspection = inspect(whole)

    assert [damage.kind for damage in damage_of(inspection)] == [DamageKind.MISSING_START]
    assert [record.offset for record in records_of(inspection)] == [len(fragment)]


def test_types_that_readers_pass_over_are_parts_of_their_own() -> None:
    unknown = physical_record(b"secret", record_type=200)
    whole = segment(batch(1, put(b"a"))) + unknown + unknown

    parts = blocks_of(inspect(whole))[0].parts

    assert [isinstance(part, RecordPart) and part.ignored for part in parts] == [False, True, True]
    assert damage_of(inspect(whole)) == []


def test_types_that_neve_does_not_read_are_damage_of_that_record_only() -> None:
    compression = physical_record(b"\x07\x00\x00\x00", record_type=RecordType.SET_COMPRESSION)
    strange = physical_record(b"?", record_type=77)
    whole = compression + strange + physical_record(batch(1, put(b"a")), record_type=1)

    inspection = inspect(whole)

    parts = blocks_of(inspection)[0].parts
    assert [part.byte_count for part in parts[:2]] == [len(compression), len(strange)]
    assert [damage.kind for damage in damage_of(inspection)] == [
        DamageKind.UNSUPPORTED_TYPE,
        DamageKind.UNKNOWN_TYPE,
    ]
    assert len(records_of(inspection)) == 1


def test_a_header_of_zeros_that_hides_bytes_says_so() -> None:
    whole = segment(batch(1, put(b"a"))) + bytes(HEADER_BYTES) + b"not zero" + bytes(100)

    zeros = blocks_of(inspect(whole))[0].parts[-1]

    assert isinstance(zeros, ZerosPart)
    assert zeros.hidden_bytes == len(b"not zero")


def test_a_wrong_number_in_a_damaged_first_header_does_not_hide_the_log() -> None:
    rows = [[put(b"key %d" % number, b"v" * 10_000)] for number in range(8)]
    damaged = bytearray(neve_log(*rows))
    damaged[8] ^= 0xFF  # inside the log number of the first header

    inspection = inspect(bytes(damaged))

    assert inspection.identity.log_number == 1
    assert records_of(inspection)


def test_a_gap_between_rows_is_damage() -> None:
    first = neve_log([put(b"a")], [put(b"b")], [put(b"c")], closed=False)
    a, b, c = (record for record in records_of(inspect(first))[1:])
    without_b = first[: b.offset] + first[c.offset :]

    ending = ending_of(inspect(without_b))

    assert ending.reason is EndReason.DAMAGE
    assert "row 3 follows where row 2 is due" in ending.detail
    assert ending.offset == a.offset + (b.offset - a.offset)


# What a whole log looks like


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("recyclable", [False, True])
def test_dialect_header_kind_and_number_come_from_the_first_record(
    dialect: Dialect, *, recyclable: bool
) -> None:
    whole = segment(batch(1, put(b"a")), dialect=dialect, recyclable=recyclable, log_number=7)

    identity = inspect(whole).identity

    assert identity.dialect is dialect
    assert identity.recyclable is recyclable
    assert identity.log_number == (7 if recyclable else None)
    assert batch_of(records_of(inspect(whole))[0]).entries[0].op == "put"


def test_a_closed_log_begins_with_its_start_and_ends_with_its_end() -> None:
    whole = neve_log([put(b"a", b"1"), delete(b"b")], schema_version=9)

    start, rows, end = (batch_of(record) for record in records_of(inspect(whole)))

    assert start.stamps is not None
    assert (start.stamps.log_start, start.stamps.log_end) == (LogStart(1), False)
    assert end.stamps is not None
    assert (end.stamps.log_start, end.stamps.log_end) == (None, True)
    assert end.stamps.durable_through == 2
    assert rows.stamps is not None
    assert rows.stamps.schema_version == 9
    assert (rows.sequence, rows.next_sequence) == (1, 3)
    assert [(entry.op, entry.sequence) for entry in rows.entries] == [("put", 1), ("delete", 2)]
    ending = ending_of(inspect(whole))
    assert (ending.reason, ending.offset) == (EndReason.CLOSED, len(whole))


def test_an_arrow_batch_is_shown_with_its_rows_and_columns() -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    keys = rows.select(["id"])
    changes = (UpsertRows(rows), DeleteRows(keys), PartialRows(rows, (1, 2)))

    record = records_of(inspect(neve_log(changes)))[1]

    entries = batch_of(record).entries
    assert all(isinstance(entry, RowsEntry) for entry in entries)
    assert [entry.op for entry in entries] == ["upsert rows", "delete rows", "partial rows"]
    assert [entry.sequence for entry in entries] == [1, 4, 7]
    first, _, partial = entries
    assert isinstance(first, RowsEntry)
    assert first.rows.equals(rows)
    assert isinstance(partial, RowsEntry)
    assert partial.field_ids == (1, 2)


def test_a_long_record_is_told_with_all_its_fragments() -> None:
    whole = neve_log([put(b"k", b"x" * 3 * BLOCK_BYTES)])

    record = records_of(inspect(whole))[1]

    assert [fragment.kind for fragment in record.fragments] == ["first", "middle", "middle", "last"]
    assert [fragment.block for fragment in record.fragments] == [0, 1, 2, 3]
    assert sum(fragment.length for fragment in record.fragments) == len(record.payload)
    for before, after in zip(record.fragments, record.fragments[1:], strict=False):
        assert before.end_offset == after.offset


def test_padding_is_told_where_no_header_fits() -> None:
    payload = batch(1, put(b"k", bytes(BLOCK_BYTES - HEADER_BYTES - 3 - 18)))
    assert len(payload) == BLOCK_BYTES - HEADER_BYTES - 3

    first, second = blocks_of(inspect(segment(payload, batch(2, put(b"l")))))

    assert first.parts[-1] == PaddingPart(BLOCK_BYTES - 3, 3)
    assert second.parts[0].offset == BLOCK_BYTES
    assert 0.999 < first.fill < 1


def test_preallocated_space_is_one_region_of_zeros() -> None:
    options = LogOptions(segment_bytes=10 * BLOCK_BYTES, recycle_count=1)
    whole = neve_log([put(b"a")], closed=False, options=options)

    first, rest = inspect(whole).blocks()

    assert isinstance(first, Block)
    assert isinstance(first.parts[-1], ZerosPart)
    assert rest == EmptyBlocks(
        index=1, block_count=9, offset=BLOCK_BYTES, byte_count=9 * BLOCK_BYTES
    )
    assert ending_of(inspect(whole)).reason is EndReason.UNWRITTEN


def test_records_of_the_log_that_a_recycled_file_was_before_are_stale() -> None:
    store = MemoryStore()
    log = open_log(store, options=LogOptions(segment_bytes=4 * BLOCK_BYTES, recycle_count=1))
    for number in range(80):
        log.append(encode_put(b"old %d" % number, b"x" * 1_000, schema_version=0))
    log.rotate()
    log.truncate_below(2)
    log.rotate()
    log.append(encode_changes(WriteBatch((put(b"new", b"y" * 2_000),))))
    content = store.get("000003.wal").payload

    inspection = inspect(content, log_number=3)

    parts = [part for block in blocks_of(inspection) for part in block.parts]
    assert {part.log_number for part in parts if isinstance(part, StalePart)} == {1}
    assert ending_of(inspection).reason in (EndReason.STALE, EndReason.TORN_TAIL)
    assert [batch_of(record).sequence for record in records_of(inspection)] == [81, 81]


def test_what_an_earlier_log_left_behind_a_closed_one_is_no_damage() -> None:
    old = neve_log(*[[put(b"old %d" % number, b"x" * 777)] for number in range(30)])
    new = segment_as_log_2()
    recycled = new + old[len(new) :]

    ending = ending_of(inspect(recycled, log_number=2))

    assert (ending.reason, ending.offset) == (EndReason.CLOSED, len(new))
    assert ending.damage_count == 0


def segment_as_log_2() -> bytes:
    store = MemoryStore()
    log = open_log(store, first_log=2)
    log.append(encode_put(b"new", b"y" * 2_000, schema_version=0))
    log.close()
    return store.get("000002.wal").payload


def test_reading_can_start_in_the_middle() -> None:
    whole = neve_log(*[[put(b"key %d" % number)] for number in range(10)])
    fourth = records_of(inspect(whole))[4]

    inspection = inspect(whole, start_offset=fourth.offset - 1)

    assert records_of(inspection)[0].offset == fourth.offset
    assert blocks_of(inspection)[0].offset == fourth.offset
    assert ending_of(inspection).reason is EndReason.CLOSED


EDIT = b"\x01\x1aleveldb.BytewiseComparator\x02\x05\x03\x07\x04\x00"


@pytest.mark.parametrize(
    ("content", "looked_for", "other"),
    [
        pytest.param(neve_log([put(b"a")]), PayloadKind.EDIT, PayloadKind.BATCH, id="neve's log"),
        pytest.param(neve_log([put(b"a")]), PayloadKind.BATCH, None, id="neve's log, rightly"),
        pytest.param(
            segment(batch(1, put(b"a"))), PayloadKind.EDIT, PayloadKind.BATCH, id="RocksDB's log"
        ),
        pytest.param(segment(batch(1, put(b"a"))), PayloadKind.BATCH, None, id="that, rightly"),
        pytest.param(segment(EDIT), PayloadKind.BATCH, PayloadKind.EDIT, id="a MANIFEST"),
        pytest.param(segment(EDIT), PayloadKind.EDIT, None, id="a MANIFEST, rightly"),
        pytest.param(segment(b"?"), PayloadKind.EDIT, None, id="neither"),
        pytest.param(bytes(100), PayloadKind.EDIT, None, id="no record"),
    ],
)
def test_what_a_log_holds_is_told_by_its_first_record(
    content: bytes, looked_for: PayloadKind, other: PayloadKind | None
) -> None:
    assert inspect(content, payload=looked_for).other_payload() is other


def test_a_manifest_is_known_by_its_name() -> None:
    assert payload_kind_of("MANIFEST-000005") is PayloadKind.EDIT
    assert payload_kind_of("000005.log") is PayloadKind.BATCH
    assert payload_kind_of("MANIFEST-000005.bak") is PayloadKind.BATCH


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(neve_log([put(b"a")]), True, id="a log"),
        pytest.param(flipped(segment(batch(1, put(b"a"))), 20), True, id="a damaged log"),
        pytest.param(bytes(100), True, id="zeros"),
        pytest.param(b"short", False, id="too short"),
        pytest.param(b"# A page of text\n" * 40, False, id="text"),
        pytest.param(b"PAR1\x15\x04\x15\x00" + bytes(50), False, id="parquet"),
    ],
)
def test_what_could_be_a_log_is_told_from_what_is_none(content: bytes, *, expected: bool) -> None:
    assert inspect(content).looks_like_a_log() is expected


# Whatever is in the file


ROWS = [[put(b"key %d" % number, b"v" * (number * 997 % 3_000))] for number in range(60)]
CLOSED_LOG = neve_log(*ROWS)
OPEN_LOG = neve_log(*ROWS, closed=False)
RESERVED_LOG = neve_log(*ROWS, closed=False, options=LogOptions(segment_bytes=128 << 10))
FOREIGN_LOG = segment(*[batch(number + 1, *change) for number, change in enumerate(ROWS)])
RECYCLABLE_FOREIGN_LOG = segment(
    *[batch(number + 1, *change) for number, change in enumerate(ROWS)],
    recyclable=True,
    log_number=1,
)


LOGS = {
    "closed": CLOSED_LOG,
    "open": OPEN_LOG,
    "reserved": RESERVED_LOG,
    "foreign": FOREIGN_LOG,
    "recyclable foreign": RECYCLABLE_FOREIGN_LOG,
}


@dataclass(frozen=True)
class Step:
    """One thing done to a log, at a share of its length so that any log has such a place."""

    what: str
    place: float
    source: float
    length: int

    def applied(self, content: bytearray) -> bytearray:
        at = min(len(content) - 1, int(self.place * len(content)))
        length = min(self.length, len(content) - at)
        match self.what:
            case "flip":
                content[at] ^= 1 << self.length % 8
            case "zeros":
                content[at : at + length] = bytes(length)
            case "cut":
                del content[max(1, at) :]
            case "copy":
                source = int(self.source * len(content))
                piece = content[source : source + length]
                content[at : at + len(piece)] = piece
            case _:
                content += bytes(self.length)
        return content


@dataclass(frozen=True)
class Mutant:
    log: str
    steps: tuple[Step, ...]

    @property
    def content(self) -> bytes:
        content = bytearray(LOGS[self.log])
        for step in self.steps:
            content = step.applied(content)
        return bytes(content)


def mutants(*logs: str) -> st.SearchStrategy[Mutant]:
    """Return logs with a few bits flipped, bytes zeroed, cut, copied elsewhere, or zeros behind."""
    shares = st.floats(0, 1, exclude_max=True)
    kinds = st.sampled_from(["flip", "zeros", "cut", "copy", "append"])
    steps = st.builds(
        Step, what=kinds, place=shares, source=shares, length=st.integers(1, 2 * BLOCK_BYTES)
    )
    return st.builds(
        Mutant, log=st.sampled_from(logs), steps=st.lists(steps, max_size=3).map(tuple)
    )


@given(mutants(*LOGS))
def test_the_parts_of_any_mutant_tile_its_bytes(mutant: Mutant) -> None:
    assert_parts_tile(mutant.content)


@given(st.binary(min_size=1, max_size=3_000), st.integers(0, 3_000))
def test_any_bytes_at_all_are_shown_without_an_error(content: bytes, start_offset: int) -> None:
    assert_parts_tile(content)
    inspection = inspect(content, start_offset=min(start_offset, len(content) - 1))
    assert isinstance([*inspection.records()][-1], Ending)
    assert isinstance([*inspect(content, payload=PayloadKind.EDIT).records()][-1], Ending)
    inspection.looks_like_a_log()
    for _ in inspection.blocks():
        pass


def refusal_of(content: bytes) -> Corruption | None:
    """What replay says when it refuses log 1 with this content."""
    store = MemoryStore()
    store.put("000001.wal", content)
    try:
        for _ in Replay(store, [LogFile(number=1, path="000001.wal")]):
            pass
    except Corruption as error:
        return error
    return None


def outcome(replay: Replay | ForeignReplay) -> int | None:
    """Rows a replay gives; None when it refuses."""
    try:
        return sum(logged.next_sequence - logged.sequence for logged in replay)
    except Corruption:
        return None


@given(mutants("closed", "open", "reserved"))
def test_the_ending_of_an_own_log_is_what_recovery_decides(mutant: Mutant) -> None:
    content = mutant.content
    store = MemoryStore()
    store.put("000001.wal", content)
    logs = [LogFile(number=1, path="000001.wal")]

    ending = ending_of(inspect(content, log_number=1))

    tolerant = outcome(Replay(store, logs))
    absolute = outcome(Replay(store, logs, mode=RecoveryMode.ABSOLUTE))
    assert (tolerant is None) == (ending.reason is EndReason.DAMAGE), ending
    if tolerant is not None and absolute is not None:
        assert tolerant == ending.row_count
    if ending.damage_count == 0:
        assert absolute is not None
    refusal = refusal_of(content)
    if refusal is not None:
        assert (ending.detail, ending.offset) == (refusal.message, refusal.offset)


@given(mutants("foreign", "recyclable foreign"))
def test_the_ending_of_a_foreign_log_is_what_recovery_decides(mutant: Mutant) -> None:
    content = mutant.content
    store = MemoryStore()
    store.put("000001.log", content)
    logs = [LogFile(number=1, path="000001.log")]

    ending = ending_of(inspect(content, log_number=1))

    tolerant = outcome(ForeignReplay(store, logs, dialect=Dialect.ROCKSDB))
    absolute = outcome(
        ForeignReplay(store, logs, dialect=Dialect.ROCKSDB, mode=RecoveryMode.ABSOLUTE)
    )
    assert (tolerant is None) == (ending.reason is EndReason.DAMAGE), ending
    assert (absolute is None) == (ending.damage_count > 0), ending
    if tolerant is not None:
        assert tolerant == ending.row_count


def test_every_view_can_be_asked_for_again() -> None:
    inspection = LogInspection(read_of(CLOSED_LOG))

    assert [*inspection.records()] == [*inspection.records()]
    assert [*inspection.blocks()] == [*inspection.blocks()]
    assert not any(isinstance(item, InspectedDamage) for item in inspection.records())
