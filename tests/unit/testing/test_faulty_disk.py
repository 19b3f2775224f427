"""The faulty disk: what fails, when, and what the failure leaves behind."""

import errno
from pathlib import Path

import pytest

from neve.storage.disk import write_fully
from neve.storage.posix_disk import PosixDisk
from neve.testing.disk_calls import CallKind
from neve.testing.faulty_disk import ERRNOS, Failure, FaultyDisk, ShortWrite
from neve.testing.power_loss import Survival
from neve.testing.simulated_disk import SimulatedDisk


@pytest.mark.parametrize("number", ERRNOS, ids=errno.errorcode.get)
def test_the_planned_call_fails_once_and_does_nothing(number: int) -> None:
    inner = SimulatedDisk()
    disk = FaultyDisk(inner, [Failure(at=2, number=number)])
    disk.make_directory("/a")

    with pytest.raises(OSError, match="planned") as failure:
        disk.make_directory("/b")
    disk.make_directory("/c")

    assert failure.value.errno == number
    assert failure.value.filename == "/b"
    assert [entry.name for entry in inner.list_directory("/")] == ["a", "c"]
    assert (disk.calls, disk.faults) == (3, 1)


def test_a_lasting_failure_fails_every_later_call() -> None:
    disk = FaultyDisk(SimulatedDisk(), [Failure(at=2, is_lasting=True)])
    disk.make_directory("/a")

    for _ in range(3):
        with pytest.raises(OSError, match="planned"):
            disk.list_directory("/")

    disk.plan()
    assert len(disk.list_directory("/")) == 1


def test_calls_can_be_counted_by_kind() -> None:
    disk = FaultyDisk(SimulatedDisk(), [Failure(at=2, kind=CallKind.SYNC)])
    handle = disk.create_file("/a")
    disk.write(handle, [b"x"], 0)
    disk.sync(handle)
    disk.write(handle, [b"y"], 1)

    with pytest.raises(OSError, match="planned"):
        disk.sync(handle)

    assert [call.kind for call in disk.log] == [
        CallKind.CREATE_FILE,
        CallKind.WRITE,
        CallKind.SYNC,
        CallKind.WRITE,
        CallKind.SYNC,
    ]
    assert {call.target for call in disk.log} == {"/a"}


def test_a_failed_sync_loses_the_bytes_for_good() -> None:
    inner = SimulatedDisk()
    disk = FaultyDisk(inner, [Failure(at=1, kind=CallKind.SYNC)])
    handle = disk.create_file("/a")
    disk.sync_directory("/")
    disk.write(handle, [b"lost"], 0)

    with pytest.raises(OSError, match="planned"):
        disk.sync(handle)
    disk.sync(handle)

    survivor = inner.after_power_cut(survival=Survival.EVERYTHING)
    assert disk.read(handle, 0, 10) == b"lost"
    assert survivor.stat("/a").size == 0


def test_a_failed_close_closes() -> None:
    inner = SimulatedDisk()
    disk = FaultyDisk(inner, [Failure(at=1, kind=CallKind.CLOSE)])
    handle = disk.create_file("/a")

    with pytest.raises(OSError, match="planned"):
        disk.close(handle)

    assert inner.open_handles == 0


@pytest.mark.parametrize("kind", CallKind)
def test_every_kind_of_call_can_fail(kind: CallKind) -> None:
    disk = FaultyDisk(SimulatedDisk(), [Failure(at=1, kind=kind)])
    failed: list[CallKind] = []

    def attempt(call: CallKind, *arguments: object) -> object:
        try:
            return getattr(disk, call)(*arguments)
        except OSError:
            failed.append(call)
            return getattr(disk, call)(*arguments) if call is not CallKind.CLOSE else None

    handle = attempt(CallKind.CREATE_FILE, "/a")
    attempt(CallKind.WRITE, handle, [b"x"], 0)
    attempt(CallKind.READ, handle, 0, 1)
    attempt(CallKind.MAP_FILE, handle)
    attempt(CallKind.ALLOCATE, handle, 10)
    attempt(CallKind.TRUNCATE, handle, 1)
    attempt(CallKind.SIZE, handle)
    attempt(CallKind.SYNC, handle)
    attempt(CallKind.LOCK, handle)
    attempt(CallKind.CLOSE, handle)
    attempt(CallKind.CLOSE, attempt(CallKind.OPEN_FILE, "/a"))
    attempt(CallKind.MAKE_DIRECTORY, "/d")
    attempt(CallKind.LINK, "/a", "/b")
    attempt(CallKind.RENAME, "/b", "/c")
    attempt(CallKind.REMOVE, "/c")
    attempt(CallKind.REMOVE_DIRECTORY, "/d")
    attempt(CallKind.LIST_DIRECTORY, "/")
    attempt(CallKind.SYNC_DIRECTORY, "/")
    attempt(CallKind.STAT, "/a")
    attempt(CallKind.REAL_PATH, "/a")

    assert failed == [kind]
    assert disk.process_id() == 1


def test_short_writes_on_the_real_disk_are_continued(tmp_path: Path) -> None:
    disk = FaultyDisk(PosixDisk(), [ShortWrite(at=1, bytes_max=4, is_lasting=True)])
    handle = disk.create_file(str(tmp_path / "a"))

    assert disk.write(handle, [b"012", b"345"], 0) == 4
    assert write_fully(disk, handle, [b"012", b"", b"3456789"], 0) == 10

    disk.close(handle)
    assert (tmp_path / "a").read_bytes() == b"0123456789"
    assert disk.faults == 4


def test_one_short_write_can_be_planned() -> None:
    disk = FaultyDisk(SimulatedDisk(), [ShortWrite(at=2)])
    handle = disk.create_file("/a")

    taken = [disk.write(handle, [b"abc"], 0) for _ in range(3)]

    assert taken == [3, 1, 3]
