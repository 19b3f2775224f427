"""The log when calls of the disk fail: typed errors, nothing acknowledged is lost, no hang."""

import errno
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from random import Random

import pytest

from neve.errors import Closed, NeveError, OutcomeUnknown, Unavailable
from neve.model.write_batch import PutRow
from neve.storage.local_store import LocalStore
from neve.testing.disk_calls import CallKind
from neve.testing.faulty_disk import Failure, Fault, FaultyDisk, ShortWrite
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import SimulatedDisk
from neve.wal.log_options import LogOptions, SyncPolicy
from tests.crash.disk_trouble import faults_at
from tests.crash.log_history import ROOT, History, Violation, check_recovery, live
from tests.gates import Gate
from tests.unit.wal.builders import open_log, put

Record = Callable[[str], None]


def store_on(disk: FaultyDisk) -> LocalStore:
    return LocalStore(ROOT, disk=disk, ids=SeededIds(1), clock=SimulatedClock())


def live_with(fault: Fault | None, seed: int) -> tuple[SimulatedDisk, FaultyDisk, History]:
    """Live one generation; a refused recovery because of the fault itself is no violation."""
    disk = SimulatedDisk(seed)
    faulty = FaultyDisk(disk, [fault] if fault is not None else [])
    history = History()
    with suppress(NeveError, Violation):
        live(faulty, history, seed)
    return disk, faulty, history


def test_an_error_at_any_call_loses_nothing_that_was_acknowledged(scoreboard: Record) -> None:
    gate = Gate("R7 log I/O errors: silent loss, wrong state or hang", aim=2_000, full=20_000)

    for seed in gate.seeds():
        _, clean, _ = live_with(None, seed)
        for call in range(1, clean.calls + 1):
            for fault in faults_at(call):
                disk, _, history = live_with(fault, seed)
                check_recovery(disk, deepcopy(history), seed)
                check_recovery(disk.after_power_cut(Random(f"{seed}-{call}")), history, seed)
                gate.cases += 1

    scoreboard(gate.line())
    assert gate.cases


def test_a_failed_sync_tells_the_group_and_poisons_the_log() -> None:
    disk = FaultyDisk(SimulatedDisk(), [Failure(at=2, kind=CallKind.SYNC)])
    log = open_log(store_on(disk), options=LogOptions(sync=SyncPolicy.ALWAYS))
    log.append(put("a"))

    with pytest.raises(OutcomeUnknown) as caught:
        log.append(put("b"))

    assert (caught.value.first_sequence, caught.value.last_sequence) == (2, 2)
    with pytest.raises(Closed, match="reopen"):
        log.append(put("c"))
    with pytest.raises(Closed):
        log.rotate()
    log.close()


def test_a_full_disk_at_rotation_leaves_the_full_log_in_use() -> None:
    failure = Failure(at=2, kind=CallKind.CREATE_FILE, number=errno.ENOSPC)
    disk = FaultyDisk(SimulatedDisk(), [failure])
    log = open_log(store_on(disk), options=LogOptions(sync=SyncPolicy.ALWAYS, preallocate=False))
    log.append(put("a"))

    with pytest.raises(Unavailable, match="No space"):
        log.rotate()

    assert log.append(put("b")) == 2
    assert log.rotate() == 1
    assert log.append(put("c")) == 3


def test_a_batch_that_meets_a_full_disk_is_refused_and_the_next_one_is_not() -> None:
    """The log is full, so the append rotates; once there is space again, it goes on."""
    failure = Failure(at=2, kind=CallKind.CREATE_FILE, number=errno.ENOSPC)
    disk = FaultyDisk(SimulatedDisk(), [failure])
    options = LogOptions(sync=SyncPolicy.ALWAYS, segment_bytes=32 << 10, preallocate=False)
    log = open_log(store_on(disk), options=options)
    log.append(put("a", bytes(40_000)))

    with pytest.raises(Unavailable):
        log.append(put("b"))

    assert log.append(put("b")) == 2
    assert log.active_log_number == 2


def test_short_writes_are_continued() -> None:
    disk = FaultyDisk(SimulatedDisk(), [ShortWrite(at=1, bytes_max=5, is_lasting=True)])
    log = open_log(store_on(disk), options=LogOptions(sync=SyncPolicy.ALWAYS, preallocate=False))

    log.append(put("a", b"v" * 50))
    log.close()

    history = History(required_through=1)
    history.submitted[1] = (PutRow(b"a", b"v" * 50),)
    assert check_recovery(disk, history) == 2


def test_a_log_that_cannot_be_made_says_so() -> None:
    failure = Failure(at=1, kind=CallKind.CREATE_FILE, number=errno.EACCES)
    disk = FaultyDisk(SimulatedDisk(), [failure])

    with pytest.raises(Unavailable) as caught:
        open_log(store_on(disk))

    assert caught.value.path == "wal/000001.wal"


def test_a_sync_that_fails_while_a_full_log_is_closed_leaves_the_new_rows_unwritten() -> None:
    disk = FaultyDisk(SimulatedDisk(), [Failure(at=1, kind=CallKind.SYNC)])
    options = LogOptions(sync=SyncPolicy.NONE, segment_bytes=32 << 10, preallocate=False)
    log = open_log(store_on(disk), options=options)
    log.append(put("a", bytes(40_000)))

    with pytest.raises(Closed, match="reopen"):
        log.append(put("b"))


def test_a_directory_sync_that_fails_at_rotation_ends_the_log_and_reopening_goes_on() -> None:
    simulated = SimulatedDisk()
    store = store_on(FaultyDisk(simulated))
    open_log(store, options=LogOptions(preallocate=False)).close()
    syncs = len([call for call in simulated.log if call.kind is CallKind.SYNC_DIRECTORY])
    disk = FaultyDisk(SimulatedDisk(), [Failure(at=syncs + 1, kind=CallKind.SYNC_DIRECTORY)])
    log = open_log(store_on(disk), options=LogOptions(sync=SyncPolicy.ALWAYS, preallocate=False))
    log.append(put("a"))

    with pytest.raises(OutcomeUnknown):
        log.rotate()
    with pytest.raises(Closed, match="reopen"):
        log.append(put("b"))

    log.close()
    again = open_log(store_on(disk), number=3, sequence=2)
    assert again.append(put("b")) == 2


def test_closing_a_log_that_failed_gives_its_file_back() -> None:
    simulated = SimulatedDisk()
    disk = FaultyDisk(simulated, [Failure(at=1, kind=CallKind.SYNC)])
    log = open_log(store_on(disk), options=LogOptions(sync=SyncPolicy.ALWAYS))
    with pytest.raises(OutcomeUnknown):
        log.append(put("a"))

    log.close()

    assert simulated.open_handles == 0


def test_a_rotation_that_fails_keeps_no_file_open() -> None:
    simulated = SimulatedDisk()
    disk = FaultyDisk(simulated, [Failure(at=1, kind=CallKind.SYNC)])
    log = open_log(store_on(disk), options=LogOptions(sync=SyncPolicy.NONE))
    log.append(put("a"))
    with pytest.raises(OutcomeUnknown):
        log.rotate()

    log.close()

    assert simulated.open_handles == 0
