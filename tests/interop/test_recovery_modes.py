"""Damaged logs: neve's four recovery modes give what RocksDB's four give, key for key.

A log is cut at a byte, has one bit flipped, a stretch of it overwritten, or a record or block taken
out; alone, or followed by a healthy log. Each damaged set is replayed by neve and by RocksDB in
each of the four modes; both must refuse, or both must hold the same rows up to the same sequence.

One class is left out, because RocksDB never answers: in a log of standard records, a record type
that turns into a recyclable one behind the first whole record. RocksDB 9.8.4 reads that header
again and again; `test_rocksdb_spins_on_the_damage_that_is_left_out` shows it.
"""

import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pytest

from neve.errors import Corruption
from neve.model.write_batch import DeleteRow, PutRow
from neve.storage.memory_store import MemoryStore
from neve.wal.record_format import Dialect
from neve.wal.replay import RecoveryMode
from neve.wal.segment_writer import SegmentWriter
from tests.conftest import Record as Scoreboard
from tests.gates import Gate
from tests.interop.foreign_logs import (
    FIRST_LOG,
    Batch,
    NoAnswer,
    Recovered,
    Refused,
    RocksDBOracle,
    Verdict,
    fast_folder,
    replay_of,
    rows_after,
)
from tests.unit.wal.byte_walker import BLOCK, FULL, LAST, walk

SECOND_LOG: Final = FIRST_LOG + 1
RECYCLABLE_TYPES: Final = (5, 6, 7, 8, 11)

Logs = Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class Damaged:
    """A set of logs, and what was done to it."""

    what: str
    logs: Logs


@pytest.fixture(scope="module")
def oracle() -> Iterator[RocksDBOracle]:
    with fast_folder() as folder, RocksDBOracle(folder) as rocksdb:
        yield rocksdb


# Healthy logs


def batches_of(*sizes: int, sequence: int = 1, prefix: bytes = b"") -> list[Batch]:
    """Make a batch for each size of value; each third one deletes the key before it as well."""
    batches = []
    for index, size in enumerate(sizes):
        put = PutRow(prefix + b"%d" % index, random.Random(size).randbytes(size))
        rows = (put, DeleteRow(prefix + b"%d" % (index - 1))) if index % 3 == 2 else (put,)
        batches.append(Batch(sequence, rows))
        sequence += len(rows)
    return batches


def written(
    batches: Sequence[Batch], *, number: int = FIRST_LOG, over: bytes | None = None
) -> bytes:
    """Return a log of the batches; with `over`, of recyclable records on top of those bytes."""
    return log_of([batch.payload() for batch in batches], number=number, over=over)


def log_of(
    payloads: Sequence[bytes], *, number: int = FIRST_LOG, over: bytes | None = None
) -> bytes:
    store = MemoryStore()
    if over is None:
        file = store.create("log")
    else:
        store.put("old", over)
        file = store.recycle("old", new_path="log")
    writer = SegmentWriter(
        file, log_number=number, dialect=Dialect.ROCKSDB, recyclable=over is not None
    )
    writer.append([(payload,) for payload in payloads])
    return store.get("log").payload


@dataclass(frozen=True, slots=True)
class Healthy:
    """A log before it is damaged."""

    batches: tuple[Batch, ...]
    log: bytes
    """Recycled logs have an earlier log's records behind their own."""
    headers: tuple[int, ...]
    """Where its own records begin."""
    spinning: frozenset[tuple[int, int]]
    """Flips, as byte and bit, that RocksDB does not answer."""


def healthy(batches: Sequence[Batch], *, over: bytes | None = None) -> Healthy:
    records = walk(written(batches, over=None if over is None else b""), dialect="rocksdb").records
    first_end = next(record.end for record in records if record.kind in (FULL, LAST))
    return Healthy(
        batches=tuple(batches),
        log=written(batches, over=over),
        headers=tuple(record.offset for record in records),
        spinning=frozenset(
            (record.offset + 6, bit)
            for record in records
            for bit in range(8)
            if record.log_number is None
            and record.offset >= first_end
            and record.type_byte ^ 1 << bit in RECYCLABLE_TYPES
        ),
    )


# Rows begin at the log's number, so that a standard record turned recyclable shows, in the place of
# a log number, the very one that a reader of this log looks for.
SMALL: Final = batches_of(5, 0, 9, 3, 6, sequence=FIRST_LOG)
LARGE: Final = batches_of(40_000, 3, 12_000, 0, 500, 25_000, 90, sequence=FIRST_LOG)
EARLIER: Final = written(batches_of(*[4] * 5), number=FIRST_LOG - 1, over=b"")
EARLIER_LARGE: Final = written(
    batches_of(30_000, 2_000, 31_000, 700, 40_000), number=FIRST_LOG - 1, over=b""
)

SMALL_STANDARD: Final = healthy(SMALL)
SMALL_RECYCLED: Final = healthy(SMALL[:-1], over=EARLIER)
LARGE_STANDARD: Final = healthy(LARGE)
LARGE_RECYCLED: Final = healthy(LARGE[:-2], over=EARLIER_LARGE)


# Damage


def cut(before: Healthy, at: int) -> Damaged:
    return Damaged(f"cut at {at}", {FIRST_LOG: before.log[:at]})


def flipped(before: Healthy, at: int, bit: int) -> Damaged:
    log = bytearray(before.log)
    log[at] ^= 1 << bit
    return Damaged(f"bit {bit} of byte {at} flipped", {FIRST_LOG: bytes(log)})


def smeared(before: Healthy, start: int, end: int, filling: bytes) -> Damaged:
    log = bytearray(before.log)
    log[start:end] = filling * (min(end, len(log)) - start)
    return Damaged(f"{filling!r} from {start} to {end}", {FIRST_LOG: bytes(log)})


def without(before: Healthy, start: int, end: int) -> Damaged:
    log = before.log[:start] + before.log[end:]
    return Damaged(f"{start} to {end} taken out", {FIRST_LOG: log})


def every_damage(before: Healthy) -> list[Damaged]:
    """Cut at every byte and flip every bit, in an order that mixes them."""
    found = [cut(before, at) for at in range(len(before.log))]
    found += [
        flipped(before, at, bit)
        for at in range(len(before.log))
        for bit in range(8)
        if (at, bit) not in before.spinning
    ]
    random.Random(len(found)).shuffle(found)
    return found


def every_header_flip(before: Healthy) -> list[Damaged]:
    """Flip every bit of every header, in an order that mixes them."""
    found = [
        flipped(before, header + at, bit)
        for header in before.headers
        for at in range(11)
        for bit in range(8)
        if (header + at, bit) not in before.spinning
    ]
    random.Random(len(found)).shuffle(found)
    return found


def some_damage(seed: random.Random, before: Healthy) -> Damaged:
    """Damage a log anywhere, more often near the beginning of a record."""
    header = seed.choice(before.headers)
    at = seed.choice(
        (seed.randrange(len(before.log)), min(header + seed.randrange(12), len(before.log) - 1))
    )
    block = at // BLOCK * BLOCK
    match seed.randrange(5):
        case 0:
            return cut(before, max(0, at - seed.randrange(4)))
        case 1:
            end = at + seed.choice((1, 7, 100, BLOCK, 2 * BLOCK))
            return smeared(before, at, end, seed.choice((b"\0", b"x")))
        case 2:
            return smeared(before, block, block + BLOCK, seed.choice((b"\0", b"x")))
        case 3:
            return without(before, block, block + BLOCK)
        case _:
            bit = seed.randrange(8)
            return cut(before, at) if (at, bit) in before.spinning else flipped(before, at, bit)


def followed(seed: random.Random, before: Healthy, damaged: Damaged) -> Damaged:
    """Add a healthy log that goes on behind the first, or where one of its batches began.

    The latter is what a database leaves that was opened with damage and then written to. Its keys
    are others: RocksDB 9.8.4 would order two values of a key by sequence and not by log.
    """
    begins = [batch.sequence for batch in before.batches] + [before.batches[-1].next_sequence] * 4
    sequence = seed.choice(begins)
    second = written(batches_of(3, 8, 1, sequence=sequence, prefix=b"second"), number=SECOND_LOG)
    what = f"{damaged.what}, followed by a log from row {sequence}"
    return Damaged(what, {**damaged.logs, SECOND_LOG: second})


ORDERED: Final = {
    0: every_damage(SMALL_STANDARD),
    1: every_damage(SMALL_RECYCLED),
    2: every_header_flip(LARGE_STANDARD),
    3: every_header_flip(LARGE_RECYCLED),
}
ALL_LOGS: Final = (SMALL_STANDARD, SMALL_RECYCLED, LARGE_STANDARD, LARGE_RECYCLED)


def damaged_set(number: int) -> Damaged:
    """Return the damaged logs of a number; none of the ordered ones is left out or comes twice."""
    index, kind = divmod(number, 6)
    if kind in ORDERED and index < len(ORDERED[kind]):
        return ORDERED[kind][index]
    seed = random.Random(number)
    before = seed.choice(ALL_LOGS)
    damaged = some_damage(seed, before)
    return damaged if kind == 5 else followed(seed, before, damaged)


# Judging


def verdict_of_neve(logs: Logs, mode: RecoveryMode) -> Recovered | Refused:
    replay = replay_of(logs, mode, Dialect.ROCKSDB)
    try:
        batches = list(replay)
    except Corruption as refusal:
        return Refused(str(refusal))
    rows = rows_after(change for logged in batches for change in logged.batch.changes)
    return Recovered(rows, max((logged.next_sequence - 1 for logged in batches), default=0))


def agree(ours: Verdict, theirs: Verdict) -> bool:
    if isinstance(theirs, Refused) and theirs.message.startswith("Corruption: "):
        return isinstance(ours, Refused)
    return ours == theirs


def brief(verdict: Verdict) -> str:
    if isinstance(verdict, Recovered):
        return f"{sorted(verdict.rows)} up to {verdict.last_sequence}"
    return str(verdict)


def disagreements(oracle: RocksDBOracle, damaged: Damaged) -> list[str]:
    theirs = oracle.verdicts(damaged.logs)
    ours = {mode: verdict_of_neve(damaged.logs, mode) for mode in RecoveryMode}
    return [
        f"{mode}, {damaged.what}: neve {brief(ours[mode])}, RocksDB {brief(theirs[mode])}"
        for mode in RecoveryMode
        if not agree(ours[mode], theirs[mode])
    ]


def test_the_modes_agree_with_rocksdb_on_damaged_logs(
    oracle: RocksDBOracle, scoreboard: Scoreboard
) -> None:
    gate = Gate("R4 damaged logs judged differently from RocksDB", aim=2_000, full=40_000)
    found: list[str] = []
    for number in gate.seeds():
        found += [f"{number}: {text}" for text in disagreements(oracle, damaged_set(number))]
        gate.cases += len(RecoveryMode)
        gate.violations = len(found)

    scoreboard(gate.line())
    assert found == []


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"short", id="shorter than a frame"),
        pytest.param(struct.pack("<QI", 1 << 57, 1) + b"\x01\x01a\x01b", id="sequence too large"),
        pytest.param(struct.pack("<QI", 11, 0), id="no entries"),
        pytest.param(struct.pack("<QI", 11, 1) + b"\x70\x01a\x01b", id="unknown entry"),
        pytest.param(struct.pack("<QI", 11, 1) + b"\x01\x01a\x02b", id="value cut off"),
        pytest.param(struct.pack("<QI", 11, 1) + b"\x01\x7fa", id="key cut off"),
        pytest.param(struct.pack("<QI", 11, 1) + b"\x01\xff", id="length cut off"),
        pytest.param(struct.pack("<QI", 11, 2) + b"\x01\x01a\x01b", id="fewer than counted"),
        pytest.param(struct.pack("<QI", 11, 1) + b"\x00\x01a\x00\x01b", id="more than counted"),
    ],
)
def test_the_modes_agree_with_rocksdb_on_records_that_are_whole_and_wrong(
    oracle: RocksDBOracle, payload: bytes
) -> None:
    first, last = Batch(10, (PutRow(b"a", b"1"),)), Batch(12, (PutRow(b"c", b"3"),))
    log = log_of([first.payload(), payload, last.payload()])

    assert disagreements(oracle, Damaged("content", {FIRST_LOG: log})) == []


def test_rocksdb_opened_for_writing_judges_as_it_does_opened_for_reading(
    oracle: RocksDBOracle,
) -> None:
    for number in range(60):
        damaged = damaged_set(number)
        reading = oracle.verdicts(damaged.logs)
        writing = oracle.verdicts(damaged.logs, writable=True)

        assert writing == reading, damaged.what


def test_rocksdb_spins_on_the_damage_that_is_left_out() -> None:
    at, bit = min(SMALL_STANDARD.spinning)
    damaged = flipped(SMALL_STANDARD, at, bit)
    mode = RecoveryMode.TOLERATE_TORN_TAIL

    with fast_folder() as folder, RocksDBOracle(folder, answer_seconds=1.5) as oracle:
        assert oracle.verdicts({FIRST_LOG: SMALL_STANDARD.log}, modes=[mode]) != {mode: NoAnswer()}
        theirs = oracle.verdicts(damaged.logs, modes=[mode])
    ours = verdict_of_neve(damaged.logs, mode)

    assert theirs == {mode: NoAnswer()}
    assert isinstance(ours, Refused)
