"""The manifest store on S3 servers: racing writers, and faults on the real client's requests."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from random import Random
from threading import Event
from typing import Final

import pytest

from neve.errors import Conflict, OutcomeUnknown, Unavailable
from neve.manifest.manifest_store import ManifestStore, StoreOptions
from neve.manifest.sessions import WriteSession
from neve.storage.object_store import ObjectStore
from neve.storage.open_store import open_store
from neve.testing.faulty_store import Fault, Operation, PlannedFault, StoreCall
from neve.testing.s3_servers import MotoServer, S3Endpoint
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.conftest import Record
from tests.crash.manifest_model import COUNTERS, Ledger, count
from tests.gates import TORTURE, Gate, count_of

pytestmark = pytest.mark.s3

WRITERS: Final = 16 if TORTURE else 8
COMMITS_EACH: Final = count_of(gate=25, full=200)
PREFIX: Final = "manifest/t"
# Writers that never rest may keep one of them waiting for as long as the whole race takes.
PATIENCE: Final = StoreOptions(commit_seconds=3_600) if TORTURE else StoreOptions()

Opener = Callable[[], ObjectStore]


def add(marker: str, session: WriteSession) -> int:
    number = int(session.get("counter") or b"0") + 1
    session.put("counter", b"%d" % number)
    session.put(f"mark/{marker}", b"%d" % number)
    return number


class Race:
    """Writers with clients of their own who take turns between one shared key and their own."""

    def __init__(self, opened: Opener, *, writers: int, commits_each: int) -> None:
        self._opened = opened
        self._writers = writers
        self._commits_each = commits_each

    def check(self) -> str:
        """Let them race, assert that nothing was lost, and return the figures."""
        with ThreadPoolExecutor(self._writers) as threads:
            outcomes = list(threads.map(self._write, range(self._writers)))
        session = ManifestStore(self._opened(), PREFIX).open()
        marks = {key.removeprefix("mark/"): int(value) for key, value in session.scan("mark/")}
        told = {marker: number for _, numbers in outcomes for marker, number in numbers.items()}
        lost = sum(marks.get(marker) != number for marker, number in told.items())
        repeated = len(told) - len(set(told.values()))
        false_conflicts = sum(conflicts for conflicts, _ in outcomes)
        assert (lost, repeated, false_conflicts) == (0, 0, 0)
        assert sorted(marks.values()) == list(range(1, len(told) + 1))
        assert session.segment == self._writers * self._commits_each
        return f"lost {lost}, repeated {repeated}, false conflicts {false_conflicts}"

    def _write(self, writer: int) -> tuple[int, dict[str, int]]:
        store = ManifestStore(self._opened(), PREFIX, options=PATIENCE)
        conflicts, numbers = 0, {}
        for turn in range(self._commits_each):
            if turn % 2:
                session = store.write()
                session.put(f"own/{writer}", session.get(f"own/{writer}") or b"")
                try:
                    store.commit(session)
                except Conflict:
                    conflicts += 1
            else:
                marker = f"{writer}/{turn}"
                numbers[marker] = store.transact(partial(add, marker))
            if turn % 10 == writer % 10:
                store.checkpoint()
                store.collect_once()
        return conflicts, numbers


# R15


def test_racing_writers_lose_nothing_and_meet_no_false_conflict(
    moto: MotoServer, prefix: str, scoreboard: Record
) -> None:
    def opened() -> ObjectStore:
        return open_store(moto.at.location(prefix), storage_options=moto.at.storage_options())

    outcome = Race(opened, writers=WRITERS, commits_each=COMMITS_EACH).check()

    scoreboard(f"R15 manifest on moto, {WRITERS} writers × {COMMITS_EACH} commits: {outcome}")


def test_racing_writers_on_seaweedfs_do_neither(
    seaweed: S3Endpoint, prefix: str, scoreboard: Record
) -> None:
    def opened() -> ObjectStore:
        options = seaweed.storage_options(listing="unordered")
        return open_store(seaweed.location(prefix), storage_options=options)

    writers, commits_each = (8, 50) if TORTURE else (4, 10)
    outcome = Race(opened, writers=writers, commits_each=commits_each).check()

    scoreboard(f"R15 manifest on SeaweedFS, {writers} writers × {commits_each} commits: {outcome}")


# R16


def client(server: MotoServer, prefix: str, timeout_seconds: float = 0.5) -> ObjectStore:
    """Open a store whose patience is thirty seconds of a clock that needs no waiting."""
    return open_store(
        server.at.location(prefix),
        storage_options=server.at.storage_options(timeout_seconds=f"{timeout_seconds:g}"),
        clock=SimulatedClock(),
        ids=SeededIds(),
    )


def manifest(
    server: MotoServer, prefix: str, seed: int, timeout_seconds: float = 0.5
) -> ManifestStore:
    store = client(server, prefix, timeout_seconds)
    return ManifestStore(store, PREFIX, clock=SimulatedClock(), ids=SeededIds(seed))


TARGETS: Final = {
    "segment": (Operation.PUT_IF_ABSENT, "segments/"),
    "first HEAD": (Operation.PUT_IF_ABSENT, "HEAD"),
    "HEAD": (Operation.PUT_IF_MATCH, "HEAD"),
    "checkpoint": (Operation.PUT_IF_ABSENT, "checkpoints/"),
    "HEAD of a checkpoint": (Operation.PUT_IF_MATCH, "HEAD"),
}


class Cell:
    """One fault on one kind of object, with or without a rival who comes first."""

    def __init__(
        self, server: MotoServer, prefix: str, fault: Fault, target: str, *, has_rival: bool
    ) -> None:
        self._server = server
        self._prefix = prefix
        self._fault = fault
        self._target = target
        # A request of the writer waits for all of the rival's: only the fault may end it early.
        patience = 0.5 if fault is Fault.TIMEOUT else 60
        self._rival = manifest(server, prefix, 2, patience) if has_rival else None
        self._writer = manifest(server, prefix, 1, patience)
        self._rival_is_done = Event()
        self._struck: list[StoreCall] = []

    def is_right(self, times: int) -> bool:
        """Act under the fault; whether everything happened exactly once and was told so."""
        before = 0
        if self._target != "first HEAD":
            before = self._writer.transact(partial(add, "before"))
        self._strike(times)
        told = self._act()
        assert self._rival is None or self._rival_is_done.wait(60)
        self._server.application.follow([])
        # What the server still holds back lands before this write, and must not undo anything.
        client(self._server, self._prefix).put("flush", b"")
        session = manifest(self._server, self._prefix, 3).open()
        rivals = 1 if self._rival is not None else 0
        marks = {key: int(value) for key, value in session.scan("mark/")}
        total = before + rivals + (told is not None)
        return (
            len(self._struck) > 0
            and sorted(marks.values()) == list(range(1, total + 1))
            and session.segment == total
            and (told is None or marks["mark/mine"] == told)
        )

    def _act(self) -> int | None:
        if "checkpoint" not in self._target:
            return self._writer.transact(partial(add, "mine"))
        assert self._writer.checkpoint() or self._rival is not None
        self._writer.collect_once()
        return None

    def _strike(self, times: int) -> None:
        operation, path = TARGETS[self._target]
        fault = PlannedFault(
            fault=self._fault,
            operation=operation,
            path_prefix=f"{self._prefix}/{PREFIX}/{path}",
            times=times,
        )

        def come_first(call: StoreCall) -> None:
            if call.fault is None:
                return
            self._struck.append(call)
            if self._rival is not None and len(self._struck) == 1:
                self._rival.transact(partial(add, "rival"))
                self._rival_is_done.set()

        self._server.application.follow([fault], before_call=come_first)


def cells(fault: Fault) -> Iterator[tuple[str, bool, int]]:
    # Each strike of a time-out costs the client's whole time-out.
    strikes = (1,) if fault is Fault.TIMEOUT else (1, 4)
    for target in TARGETS:
        for has_rival in (False, True):
            for times in strikes:
                yield target, has_rival, times


@pytest.mark.parametrize("fault", Fault)
def test_no_fault_on_any_kind_of_object_loses_or_repeats_a_commit(
    moto: MotoServer, prefix: str, fault: Fault, scoreboard: Record
) -> None:
    wrong = []
    cases = 0
    for target, has_rival, times in cells(fault):
        cases += 1
        cell = Cell(moto, f"{prefix}/{cases}", fault, target, has_rival=has_rival)
        if not cell.is_right(times):
            wrong.append((target, has_rival, times))

    scoreboard(f"R16 manifest on S3, fault {fault} × every object: {len(wrong)} of {cases}")
    assert wrong == []


def run_schedule(server: MotoServer, prefix: str, seed: int) -> int:
    """Let writers and upkeep race under a random plan; gives how many commits were tried."""
    random = Random(seed)
    plan = [
        PlannedFault(fault=random.choice(ANSWERED_BY_THE_SERVER), call=number)
        for number in range(1, 400)
        if random.random() < 0.2
    ]
    ledger = Ledger()
    server.application.follow(plan)

    def write(writer: int) -> None:
        store = manifest(server, prefix, seed * 10 + writer)
        for turn in range(3):
            counter = COUNTERS[(writer + turn) % 2]
            marker = f"{counter}/{writer}.{turn}"
            try:
                store.transact(partial(count, marker))
            except OutcomeUnknown:
                continue
            except (Conflict, Unavailable):
                ledger.refused.add(marker)
            else:
                ledger.acknowledged.add(marker)

    def keep_up(_: int) -> None:
        store = manifest(server, prefix, seed * 10 + 9)
        for _turn in range(2):
            with suppress(Unavailable, OutcomeUnknown):
                store.checkpoint()
                store.collect_once()

    with ThreadPoolExecutor(4) as threads:
        for done in [*(threads.submit(write, n) for n in range(3)), threads.submit(keep_up, 0)]:
            done.result()
    client(server, prefix).put("flush", b"")
    server.application.follow([])
    session = manifest(server, prefix, seed * 10 + 8).open()
    ledger.check(dict(session.scan("")), seen=ledger.acknowledged)
    return 9


ANSWERED_BY_THE_SERVER: Final = [fault for fault in Fault if fault is not Fault.TIMEOUT]


def test_racing_writers_under_random_faults_are_told_the_truth(
    moto: MotoServer, prefix: str, scoreboard: Record
) -> None:
    gate = Gate("R16 manifest commits under random S3 faults, answers not true", 400, 10_000)

    for seed in gate.seeds():
        gate.cases += run_schedule(moto, f"{prefix}/{seed}", seed)

    scoreboard(gate.line())
    assert gate.cases
