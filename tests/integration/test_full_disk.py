"""A disk that is full or read-only: reading goes on, cleaning up works, errors say what it is."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.errors import StorageFull, StorageReadOnly, Unavailable
from neve.storage.local_store import LocalStore
from neve.testing.disk_calls import CallKind, DiskCall, HookedDisk
from neve.testing.faulty_disk import Failure, FaultyDisk
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import SimulatedDisk

_COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "name": pa.string()}
_SCHEMA = pa.schema(_COLUMNS)
_OPTIONS = neve.TableOptions(background=False)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def _rows(mark: str) -> list[dict[str, object]]:
    return [{"id": at, "name": f"{mark}{at}" * 20} for at in range(500)]


class FaultyLake:
    """A lake on a simulated disk that can be made full."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.disk = FaultyDisk(SimulatedDisk(clock=self.clock))
        ids = SeededIds(0)
        store = LocalStore("/lake", disk=self.disk, clock=self.clock, ids=ids)
        self.lake = Lake(store, clock=self.clock, ids=ids)
        self.table = self.lake.create_table("a.t", _SCHEMA, ["id"], options=_OPTIONS)
        self.table.upsert(_rows("a"))
        self.table.flush()

    def fill(self, number: int) -> None:
        """Let every new file fail from now on."""
        self.disk.plan(Failure(at=1, kind=CallKind.CREATE_FILE, number=number, is_lasting=True))


@pytest.fixture
def faulty() -> Iterator[FaultyLake]:
    made = FaultyLake()
    yield made
    made.disk.plan()
    made.lake.close()


@pytest.mark.parametrize("number", _FULL)
def test_reads_of_a_writers_handle_go_on_when_no_lease_can_be_written(
    faulty: FaultyLake, number: int
) -> None:
    faulty.fill(number)
    table = faulty.table
    assert table.scan().to_arrow().num_rows == 500
    assert table.get(7) == {"id": 7, "name": "a7" * 20}
    with table.snapshot() as snapshot:
        assert snapshot.scan().to_arrow().num_rows == 500
    assert table.changes(0).read_all().num_rows == 500


def test_a_reader_without_a_written_lease_keeps_its_files_from_collectors_of_its_process(
    faulty: FaultyLake,
) -> None:
    faulty.fill(errno.ENOSPC)
    snapshot = faulty.table.snapshot()
    faulty.disk.plan()
    faulty.table.upsert(_rows("b"))
    faulty.table.compact(full=True)
    assert [lease.holder for lease in faulty.table.expire(keep_last=1).leases] == [
        "process 1 on a simulated machine"
    ]
    faulty.table.collect_garbage(dry_run=False)
    assert snapshot.scan().to_arrow().column("name").to_pylist() == [
        row["name"] for row in _rows("a")
    ]
    snapshot.close()
    faulty.table.expire(keep_last=1)
    assert faulty.table.collect_garbage(dry_run=False).file_count


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, StorageFull, "No space left"),
        (errno.EDQUOT, StorageFull, "quota"),
        (errno.EROFS, StorageReadOnly, "Read-only file system"),
    ],
)
def test_a_commit_on_a_full_disk_fails_at_once_and_names_the_condition(
    faulty: FaultyLake, number: int, kind: type[Unavailable], words: str
) -> None:
    faulty.fill(number)
    begun = faulty.clock.monotonic()
    with pytest.raises(kind, match=words) as caught:
        faulty.table.tag("now")
    assert faulty.clock.monotonic() - begun < 1
    assert "manifest/" in str(caught.value.path)
    assert caught.value.hint


# On a real file system of its own


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 72 MiB; only root may, and not in every container."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a small file system")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=72m", "none", str(place)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        yield place
    finally:
        # Lazily: Arrow may still map files, and lets go of them when it collects its garbage.
        subprocess.run(["/bin/umount", "-l", str(place)], check=True)


class FullFolder(HookedDisk):
    """A disk that takes no new files in folders of some name while it is full."""

    folder = "/metadata/"
    is_full = False

    def before(self, call: DiskCall) -> None:
        if self.is_full and call.kind is CallKind.CREATE_FILE and self.folder in call.target:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), call.target)


def test_expire_reports_that_publishing_waits_and_garbage_stays_until_it_is_done() -> None:
    clock, ids = SimulatedClock(), SeededIds(0)
    disk = FullFolder(SimulatedDisk(clock=clock))
    store = LocalStore("/lake", disk=disk, clock=clock, ids=ids)
    with Lake(store, clock=clock, ids=ids) as lake:
        table = lake.create_table("a.t", _SCHEMA, ["id"], options=_OPTIONS)
        for mark in "ab":
            table.upsert(_rows(mark))
            table.flush()
        table.compact(full=True)
        disk.is_full = True

        report = table.expire(keep_last=1)
        assert report.expired_versions
        assert report.is_publishing_due
        with pytest.raises(StorageFull, match="No space left"):
            table.collect_garbage(dry_run=False)

        disk.is_full = False
        assert table.collect_garbage(dry_run=False).file_count
        assert not table.expire(keep_last=1).is_publishing_due
        assert table.verify(independent=True).is_sound


def _made(place: Path) -> neve.Catalog:
    lake = neve.open(place / "lake")
    lake.create_table("a.t", schema=_SCHEMA, primary_key=["id"])
    with lake.table("a.t", options=_OPTIONS) as table:
        for mark in "abcdef":
            table.upsert(_rows(mark))
            table.flush()
        table.compact(full=True)
    return lake


def _fill(place: Path, *, leave_bytes: int = 0) -> None:
    """Write a file until there is no more room, then cut it by some bytes."""
    with (place / "fill").open("wb", buffering=0) as file:
        with suppress(OSError):
            while file.write(bytes(4096)):
                pass
        file.truncate(file.tell() - leave_bytes)


def test_a_live_writer_on_a_full_disk_reads_expires_and_frees_space(small_disk: Path) -> None:
    with _made(small_disk) as lake, lake.table("a.t", options=_OPTIONS) as table:
        _fill(small_disk)
        assert os.statvfs(small_disk).f_bavail == 0
        assert table.scan().to_arrow().num_rows == 500
        assert table.verify().is_sound
        report = table.expire(keep_last=1)
        assert report.expired_versions
        assert not report.is_publishing_due
        assert table.collect_garbage(dry_run=False).file_count
        assert os.statvfs(small_disk).f_bavail > 0
        assert table.verify(independent=True).is_sound
        table.put({"id": 1, "name": "after"})
        assert table.get(1) == {"id": 1, "name": "after"}
        with lake.table("a.t", read_only=True) as reader:
            assert reader.get(1) == {"id": 1, "name": "after"}


def test_a_table_is_opened_and_cleaned_up_with_256_kib_left(small_disk: Path) -> None:
    _made(small_disk).close()
    _fill(small_disk, leave_bytes=256 << 10)
    with neve.open(small_disk / "lake") as lake, lake.table("a.t", options=_OPTIONS) as table:
        assert table.expire(keep_last=1).expired_versions
        assert table.collect_garbage(dry_run=False).file_count
        assert table.scan().to_arrow().num_rows == 500


def test_a_full_disk_is_read_by_a_handle_for_reading(small_disk: Path) -> None:
    _made(small_disk).close()
    _fill(small_disk)
    with neve.open(small_disk / "lake") as lake:
        with lake.table("a.t", read_only=True) as table:
            assert table.scan().to_arrow().num_rows == 500
        with pytest.raises(StorageFull, match="No space left") as caught:
            lake.table("a.t", options=_OPTIONS).put({"id": 1, "name": "a"})
        assert "256 KiB" in str(caught.value)
        assert "read_only=True" in str(caught.value)


def test_a_read_only_file_system_is_read_and_refuses_writers_by_name(small_disk: Path) -> None:
    _made(small_disk).close()
    subprocess.run(["/bin/mount", "-o", "remount,bind,ro", str(small_disk)], check=True)
    with neve.open(small_disk / "lake") as lake:
        with pytest.raises(StorageReadOnly, match="read_only=True"):
            lake.table("a.t", options=_OPTIONS)
        with lake.table("a.t", read_only=True) as table:
            assert table.scan().to_arrow().num_rows == 500
            assert table.get(3) is not None
            assert table.verify(independent=True).is_sound
            with table.snapshot() as snapshot:
                assert snapshot.scan().to_arrow().num_rows == 500
