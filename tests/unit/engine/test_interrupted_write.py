"""Ctrl-C while a write is on its way to the disk: what the next calls say, and the way back."""

import pytest

import neve
from neve.errors import Closed
from neve.storage.local_store import LocalStore
from neve.testing.disk_calls import CallKind, DiskCall, HookedDisk
from neve.testing.simulated_disk import SimulatedDisk
from tests.unit.engine.tables import a_catalog, a_table


class InterruptedDisk(HookedDisk):
    """Is interrupted at the next sync of a log, when it is told to."""

    is_armed = False

    def before(self, call: DiskCall) -> None:
        if self.is_armed and call.kind is CallKind.SYNC and "/wal/" in call.target:
            self.is_armed = False
            raise KeyboardInterrupt


def test_a_table_is_written_again_once_every_handle_was_closed_as_the_error_says() -> None:
    disk = InterruptedDisk(SimulatedDisk())
    lake = a_catalog(LocalStore("/lake", disk=disk))
    options = neve.TableOptions(background=False)
    first = a_table(lake, options=options)
    first.put({"id": 1, "v": 1, "text": ""})
    second = lake.table("a.b")
    disk.is_armed = True

    with pytest.raises(KeyboardInterrupt):
        first.put({"id": 2, "v": 2, "text": ""})
    for handle in (first, second, lake.table("a.b")):
        with pytest.raises(Closed, match="close every handle of the table, then reopen it"):
            handle.put({"id": 3, "v": 3, "text": ""})
        assert handle.get(1) is not None
        handle.close()

    with lake.table("a.b", options=options) as again:
        again.put({"id": 3, "v": 3, "text": ""})
        assert again.get(1) == {"id": 1, "v": 1, "text": ""}
        assert again.get(3) == {"id": 3, "v": 3, "text": ""}
