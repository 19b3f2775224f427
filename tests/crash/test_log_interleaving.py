"""Group commit with threads that take turns at every disk call and lock, as a seed decides."""

from collections.abc import Callable
from random import Random

from neve.errors import NeveError
from neve.model.write_batch import PutRow
from neve.storage.local_store import LocalStore
from neve.testing.interleaving import InterleavedDisk, Interleaving
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import PowerCut, SimulatedDisk
from neve.wal.log_options import LogOptions, LogPlace, LogTools, SyncPolicy
from neve.wal.replay import Replay
from neve.wal.write_ahead_log import WriteAheadLog
from tests.crash.log_history import ROOT, find_logs, log_path
from tests.gates import Gate
from tests.unit.wal.builders import Counting, KeyOf, put

Record = Callable[[str], None]

WRITERS = 3
COUNTERS = 2
APPENDS = 4
ALL_APPENDS = (WRITERS + COUNTERS) * APPENDS


class SharedLog:
    """One log with several writers and one that rotates and truncates; remembers every answer."""

    def __init__(
        self, seed: int, *, cut_at: int | None = None, sync: SyncPolicy = SyncPolicy.GROUP
    ) -> None:
        self.disk = SimulatedDisk(seed)
        self.interleaving = Interleaving(seed)
        self.acknowledged: dict[int, str] = {}
        self.numbers: dict[str, int] = {}
        self.applied: list[int] = []
        store = self._store(InterleavedDisk(self.disk, self.interleaving))
        self.log = WriteAheadLog(
            LogPlace(logs=store, log_path=log_path),
            next_log_number=1,
            next_sequence=1,
            options=LogOptions(sync=sync, segment_bytes=32 << 10, preallocate=False),
            tools=LogTools(
                clock=SimulatedClock(), ids=SeededIds(seed), make_latch=self.interleaving.lock
            ),
        )
        if cut_at is not None:
            self.disk.power_cut_at(self.disk.calls + cut_at)

    def _store(self, disk: InterleavedDisk | SimulatedDisk) -> LocalStore:
        return LocalStore(ROOT, disk=disk, ids=SeededIds(1), clock=SimulatedClock())

    def run(self) -> None:
        actors: dict[str, Callable[[], None]] = {
            f"writer {name}": lambda name=name: self._write(name)  # type: ignore[misc]
            for name in range(WRITERS)
        }
        for name in range(COUNTERS):
            actors[f"counter {name}"] = self._count
        actors["rotator"] = self._rotate
        for outcome in self.interleaving.run(actors).values():
            if outcome.error is not None and not isinstance(outcome.error, PowerCut | NeveError):
                raise outcome.error

    def _write(self, name: int) -> None:
        for index in range(APPENDS):
            key = f"{name}-{index}"
            # Without its key, a decision of the same group waits for it.
            written = KeyOf(key) if index % 2 else None
            sequence = 0
            if name % 2:
                # In one step, if no one else is at work.
                sequence = self.log.append_put(key.encode(), b"value", 1, self._show)
            sequence = sequence or self.log.append(put(key), self.applied.append, written)
            self.acknowledged[sequence] = key

    def _show(self, sequence: int, _key: bytes, _value: bytes) -> None:
        self.applied.append(sequence)

    def _count(self) -> None:
        for _ in range(APPENDS):
            sequence = self.log.append_decided(Counting("n", self.numbers))
            assert sequence is not None
            self.acknowledged[sequence] = "n"

    def _rotate(self) -> None:
        for _ in range(2):
            self.log.rotate()
            # Nothing is flushed, so only logs without a row may go.
            self.log.truncate_below(self.log.floor_for(0))

    def recovered(self, disk: SimulatedDisk) -> dict[int, str]:
        store = self._store(disk)
        found = {}
        for logged in Replay(store, find_logs(store)):
            (change,) = logged.batch.changes
            assert isinstance(change, PutRow)
            found[int(logged.sequence)] = change.key.decode()
        return found


def test_interleaved_writers_lose_nothing_and_are_applied_in_order(scoreboard: Record) -> None:
    gate = Gate("R13 interleaved group commits: violations", aim=1_000, full=20_000)

    for seed in gate.seeds():
        shared = SharedLog(seed, sync=SyncPolicy.GROUP if seed % 2 else SyncPolicy.NONE)
        shared.run()
        gate.cases += 1

        assert len(shared.acknowledged) == ALL_APPENDS
        assert shared.numbers == {"n": COUNTERS * APPENDS}
        assert shared.applied == sorted(shared.applied)
        assert shared.recovered(shared.disk) == shared.acknowledged

    scoreboard(gate.line())


def test_a_power_cut_among_interleaved_writers_keeps_every_answer(scoreboard: Record) -> None:
    gate = Gate("R5 power cuts among interleaved group commits: violations", aim=2_000, full=50_000)

    for seed in gate.seeds():
        rng = Random(seed)
        shared = SharedLog(seed, cut_at=rng.randint(1, 45))
        shared.run()
        for _ in range(10):
            found = shared.recovered(shared.disk.after_power_cut(rng))
            gate.cases += 1
            assert shared.acknowledged.items() <= found.items()
            assert sorted(found) == list(range(1, len(found) + 1))

    scoreboard(gate.line())


def test_one_seed_gives_one_trace(scoreboard: Record) -> None:
    gate = Gate("R13 interleaved seeds whose two runs differ", aim=20, full=500)

    for seed in gate.seeds():
        first, second = SharedLog(seed), SharedLog(seed)
        first.run()
        second.run()
        gate.cases += 1
        assert first.interleaving.trace == second.interleaving.trace
        assert first.disk.log == second.disk.log

    scoreboard(gate.line())


def test_appends_that_wait_together_share_a_sync() -> None:
    shared = SharedLog(3)
    syncs_before = len([call for call in shared.disk.log if call.kind == "sync"])

    shared.run()

    syncs = len([call for call in shared.disk.log if call.kind == "sync"]) - syncs_before
    assert syncs < ALL_APPENDS
