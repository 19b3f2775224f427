"""Trouble at a disk: processes that are killed, faults at a call, and what power cuts leave."""

import errno
from collections.abc import Callable
from random import Random

from neve.storage.disk import Disk
from neve.testing.disk_calls import DiskCall, HookedDisk
from neve.testing.faulty_disk import Failure, Fault, ShortWrite
from neve.testing.simulated_disk import SimulatedDisk
from tests.gates import Gate


class ProcessKilled(BaseException):
    """The process is gone; not an Exception, so that no code under test handles it."""


class MortalDisk(HookedDisk):
    """A disk whose process can be killed between two calls; the kernel then closes its files.

    What was written stays visible to the next process, synced or not.
    """

    def __init__(self, inner: Disk, kill_in: int | None = None) -> None:
        super().__init__(inner)
        self._calls_left = kill_in
        self._freed: set[int] = set()

    def kill_in(self, calls: int) -> None:
        """Kill the process before the call of this number from now on, counted from 1."""
        self._calls_left = calls

    def revive(self) -> None:
        """Begin the next process."""
        self._close_files()
        self._paths.clear()
        self._freed.clear()
        self._calls_left = None

    def before(self, call: DiskCall) -> None:
        if self._calls_left is not None:
            self._calls_left -= 1
            if self._calls_left <= 0:
                self._close_files()
                raise ProcessKilled(call)

    def _close_files(self) -> None:
        for handle in [each for each in self._paths if each not in self._freed]:
            self._freed.add(handle)
            self._inner.close(handle)


def faults_at(call: int) -> list[Fault]:
    """Return the faults to try at a call: errors that pass or last, and short writes."""
    return [
        *(
            Failure(at=call, number=number, is_lasting=is_lasting)
            for number in (errno.EIO, errno.ENOSPC, errno.EMFILE)
            for is_lasting in (False, True)
        ),
        ShortWrite(at=call, bytes_max=1),
        ShortWrite(at=call, bytes_max=7, is_lasting=True),
    ]


def check_survivors(
    gate: Gate,
    disk: SimulatedDisk,
    check: Callable[[SimulatedDisk, int], None],
    *,
    seed: int,
    cut_at: int,
    choices: int,
) -> None:
    """Check several disks that one power cut may have left; a violation says which one it was."""
    for choice in range(choices):
        survivor = disk.after_power_cut(Random(f"{seed}/{choice}"))
        try:
            check(survivor, choice)
        except AssertionError as violation:
            gate.violations += 1
            violation.add_note(f"seed {seed}, choice {choice}, cut in call {cut_at}")
            raise
        gate.cases += 1
