"""LocalStore: the contracts, and what only a store on a disk can get wrong."""

import errno
import multiprocessing
import os
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from neve.errors import (
    AlreadyExists,
    Closed,
    Corruption,
    Fenced,
    InvalidArgument,
    LimitExceeded,
    NeveError,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from neve.storage.disk import error_from_disk
from neve.storage.local_store import LocalStore, content_tag
from neve.storage.object_store import AppendFiles, ObjectStore
from neve.storage.posix_disk import PosixDisk
from neve.testing.append_contract import AppendFilesContract
from neve.testing.disk_calls import CallKind
from neve.testing.faulty_disk import Failure, Fault, FaultyDisk, ShortWrite
from neve.testing.interleaving import InterleavedDisk, Interleaving
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import SimulatedDisk
from neve.testing.store_contract import ObjectStoreContract
from tests.conftest import Record
from tests.unit.storage.test_posix_disk import run_as_macos
from tests.unit.storage.test_table_paths import HOSTILE_PATHS


class TestObjectsOnTheRealDisk(ObjectStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(str(tmp_path / "lake"))


class TestObjectsOnTheDiskOfMacOS(ObjectStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        run_as_macos(monkeypatch)
        return LocalStore(str(tmp_path / "lake"))


class TestObjectsOnTheSimulatedDisk(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return LocalStore("/lake", disk=SimulatedDisk())


class TestFilesOnTheRealDisk(AppendFilesContract):
    @pytest.fixture
    def files(self, tmp_path: Path) -> tuple[AppendFiles, ObjectStore]:
        store = LocalStore(str(tmp_path / "lake"))
        return store, store


class TestFilesOnTheDiskOfMacOS(AppendFilesContract):
    @pytest.fixture
    def files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> tuple[AppendFiles, ObjectStore]:
        run_as_macos(monkeypatch)
        store = LocalStore(str(tmp_path / "lake"))
        return store, store


class TestFilesOnTheSimulatedDisk(AppendFilesContract):
    @pytest.fixture
    def files(self) -> tuple[AppendFiles, ObjectStore]:
        store = LocalStore("/lake", disk=SimulatedDisk())
        return store, store


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def store(lake: Path) -> LocalStore:
    return LocalStore(str(lake))


def faulty_store(*plan: Fault) -> tuple[LocalStore, FaultyDisk, SimulatedDisk]:
    """Return a store with a directory in it, whose later calls on the disk fail as planned."""
    simulated = SimulatedDisk()
    disk = FaultyDisk(simulated)
    store = LocalStore("/lake", disk=disk, ids=SeededIds(1), clock=SimulatedClock())
    store.put("directory/witness", b"unchanged")
    disk.plan(*plan)
    return store, disk, simulated


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


# Opening


@pytest.mark.parametrize("root", ["", "a\0b", "a\ud800b"], ids=ascii)
def test_a_root_that_is_no_name_is_refused(root: str) -> None:
    with pytest.raises(InvalidArgument):
        LocalStore(root)


def test_a_missing_root_is_made_with_all_above_it(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "a" / "b" / "lake"))

    store.put("x", b"1")

    assert (tmp_path / "a" / "b" / "lake" / "x").read_bytes() == b"1"


def test_a_missing_root_can_be_an_error(lake: Path) -> None:
    with pytest.raises(NotFound) as failure:
        LocalStore(str(lake), create=False)

    assert failure.value.path == str(lake.resolve())
    assert not lake.exists()


@pytest.mark.parametrize("below", ["", "/lake"])
def test_a_root_that_is_a_file_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(InvalidArgument):
        LocalStore(f"{tmp_path}/file{below}")


def test_a_directory_above_the_root_that_is_not_ours_need_not_be_synced() -> None:
    simulated = SimulatedDisk()
    LocalStore("/srv/lake", disk=simulated).put("x", b"1")
    for number in (errno.EACCES, errno.EROFS, errno.EINVAL):
        disk = FaultyDisk(simulated, [Failure(at=1, kind=CallKind.SYNC_DIRECTORY, number=number)])

        LocalStore("/srv/lake", disk=disk).put("x", b"2")

        assert disk.faults == 1


def test_a_directory_made_for_the_root_has_to_be_synced() -> None:
    for number in (errno.EACCES, errno.EROFS, errno.EIO):
        disk = FaultyDisk(
            SimulatedDisk(), [Failure(at=1, kind=CallKind.SYNC_DIRECTORY, number=number)]
        )
        store = LocalStore("/srv/lake", disk=disk)

        with pytest.raises(Unavailable):
            store.put("x", b"1")
        store.put("x", b"2")


def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    store = LocalStore(str(tmp_path / "link"))
    store.put("x", b"1")

    assert (tmp_path / "real" / "x").read_bytes() == b"1"
    assert store.location == (tmp_path.resolve() / "real").as_uri()


def test_a_location_with_odd_characters_is_a_proper_uri(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "a b#c%d"))

    assert store.location.endswith("/a%20b%23c%25d")
    assert store.location.startswith("file:///")


def test_files_are_for_their_owner_only(store: LocalStore, lake: Path) -> None:
    store.put("a/b/object", b"1")
    store.create("a/b/log").close()
    store.lock("a/LOCK").release()

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [lake, *lake.rglob("*")]}

    assert modes
    for path, mode in modes.items():
        assert mode == (0o700 if path.is_dir() else 0o600)


# Names


def test_nothing_but_the_object_and_the_lock_file_is_left(store: LocalStore, lake: Path) -> None:
    tag = store.put("directory/x", b"1")
    store.put_if_match("directory/x", b"2", tag=tag)
    store.put_if_match("directory/x", b"3", tag=tag)
    store.put_if_absent("directory/x", b"4")
    store.put_if_absent("directory/y", b"5")

    assert names_in(lake / "directory") == {"x", "y", ".lock"}


def test_the_store_keeps_its_own_names_to_itself(store: LocalStore) -> None:
    store.lock("LOCK").release()

    calls: list[Callable[[], object]] = [
        lambda: store.put("LOCK", b""),
        lambda: store.put_if_absent("a/LOCK", b""),
        lambda: store.put_if_match("LOCK", b"", tag=content_tag(b"")),
        lambda: store.create("LOCK"),
        lambda: store.recycle("LOCK", new_path="a/log"),
        lambda: store.lock("a/lock"),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument):
            call()

    assert list(store.list("")) == []


def test_a_listing_shows_only_objects(store: LocalStore, lake: Path) -> None:
    store.put("a/object", b"1")
    store.lock("a/LOCK").release()
    (lake / "a" / ".tmp-left").write_bytes(b"half")
    (lake / "a" / "link").symlink_to("object")
    (lake / "a" / "outside").symlink_to("/")
    (lake / "a" / "new\nline").write_bytes(b"")
    os.mkfifo(lake / "a" / "pipe")
    (lake / "empty").mkdir()

    assert [info.path for info in store.list("")] == ["a/object"]


def test_a_listing_reads_a_directory_only_when_it_gets_there(store: LocalStore) -> None:
    store.put("a/1", b"")
    store.put("b/1", b"")

    listing = store.list("")
    first = next(listing)
    store.put("b/2", b"")

    assert [first.path, *(info.path for info in listing)] == ["a/1", "b/1", "b/2"]


def test_a_deep_path_is_listed_and_read(store: LocalStore) -> None:
    path = "/".join(["d"] * 500)
    store.put(path, b"deep")

    assert [info.path for info in store.list("d/d")] == [path]
    assert store.get(path).payload == b"deep"


def test_an_object_and_a_directory_cannot_share_a_name(store: LocalStore) -> None:
    store.put("object", b"1")
    store.put("directory/x", b"2")

    calls: list[Callable[[], object]] = [
        lambda: store.put("object/below", b""),
        lambda: store.put("object/below/deeper", b""),
        lambda: store.put_if_absent("object/below", b""),
        lambda: store.create("object/below"),
        lambda: store.put("directory", b""),
        lambda: store.put_if_absent("directory", b""),
        lambda: store.recycle("object", new_path="directory"),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument) as refusal:
            call()
        assert refusal.value.hint

    store.delete("directory")
    store.delete("object/below")
    assert [info.path for info in store.list("")] == ["directory/x", "object"]


def test_no_hostile_path_reaches_the_disk(scoreboard: Record) -> None:
    disk = SimulatedDisk()
    store = LocalStore("/lake", disk=disk)
    store.put("witness", b"unchanged")
    before = disk.log
    attempts = 0

    for path in HOSTILE_PATHS:
        calls: list[Callable[[], object]] = [
            partial(store.get, path),
            partial(store.get_if_changed, path, tag=""),
            partial(store.get_range, path, start=0, length=1),
            partial(store.size, path),
            partial(store.put, path, b""),
            partial(store.put_if_absent, path, b""),
            partial(store.put_if_match, path, b"", tag=""),
            partial(store.delete, path),
            partial(store.create, path),
            partial(store.recycle, path, new_path="new"),
            partial(store.recycle, "witness", new_path=path),
            partial(store.make_durable, path),
            partial(store.lock, path),
        ]
        for call in calls:
            attempts += 1
            with pytest.raises(InvalidArgument):
                call()

    scoreboard(f"R23 hostile paths of the local store that reached the disk: 0 of {attempts:,}")
    assert disk.log == before


# Links


def test_a_link_out_of_the_store_is_refused_before_anything_is_read(
    store: LocalStore, lake: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store.put("directory/x", b"1")
    (lake / "directory" / "down").symlink_to(outside)
    (lake / "file").symlink_to(outside / "secret")
    tag = content_tag(b"secret")

    for path in ("directory/down/secret", "file", "directory/down/secret/deeper", "file/below"):
        calls: list[Callable[[], object]] = [
            partial(store.get, path),
            partial(store.get_if_changed, path, tag=tag),
            partial(store.get_range, path, start=0, length=1),
            partial(store.size, path),
            partial(store.put_if_absent, path, b"x"),
            partial(store.put_if_match, path, b"x", tag=tag),
            partial(store.recycle, path, new_path="new"),
        ]
        for call in calls:
            with pytest.raises(Corruption) as refusal:
                call()
            assert refusal.value.hint
    writes: list[Callable[[], object]] = [
        lambda: store.put("directory/down/new", b"x"),
        lambda: store.create("directory/down/new"),
        lambda: store.lock("directory/down/LOCK"),
        lambda: store.delete("directory/down/secret"),
        lambda: list(store.list("directory/down/")),
    ]
    for write in writes:
        with pytest.raises(Corruption):
            write()

    assert names_in(outside) == {"secret"}
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_link_planted_after_the_directory_was_used_is_refused(
    store: LocalStore, lake: Path, tmp_path: Path
) -> None:
    store.put("directory/x", b"1")
    (lake / "directory").rename(tmp_path / "moved")
    (lake / "directory").symlink_to(tmp_path / "moved")

    with pytest.raises(Corruption):
        store.get("directory/x")
    with pytest.raises(Corruption):
        store.put("directory/y", b"2")


def test_a_link_in_place_of_an_object_is_replaced_not_followed(
    store: LocalStore, lake: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_bytes(b"secret")
    (lake / "x").symlink_to(tmp_path / "outside")
    (lake / "y").symlink_to(tmp_path / "outside")

    store.put("x", b"1")
    store.delete("y")

    assert store.get("x").payload == b"1"
    assert (tmp_path / "outside").read_bytes() == b"secret"


# Limits


def test_an_object_beyond_the_limit_is_neither_written_nor_read(lake: Path) -> None:
    small = LocalStore(str(lake), object_bytes_max=10)
    LocalStore(str(lake)).put("large", b"x" * 11)

    for call in (
        lambda: small.get("large"),
        lambda: small.put("new", b"x" * 11),
        lambda: small.put_if_absent("new", b"x" * 11),
    ):
        with pytest.raises(LimitExceeded) as refusal:
            call()
        assert (refusal.value.limit, refusal.value.actual) == (10, 11)

    assert small.get_range("large", start=5, length=100) == b"x" * 6
    small.put("new", b"x" * 10)


def test_a_huge_sparse_file_costs_no_memory(store: LocalStore, lake: Path) -> None:
    store.put("x", b"1")
    os.truncate(lake / "x", 1 << 40)

    with pytest.raises(LimitExceeded):
        store.get("x")
    assert store.get_range("x", start=0, length=4) == b"1\0\0\0"


def test_a_stuck_writer_is_waited_for_and_then_reported() -> None:
    disk, clock = SimulatedDisk(), SimulatedClock()
    store = LocalStore("/lake", disk=disk, clock=clock, lock_wait_seconds=5.0)
    tag = store.put("directory/x", b"1")
    stuck = disk.open_file("/lake/directory/.lock", writable=True)
    assert disk.lock(stuck)

    calls: list[Callable[[], object]] = [
        lambda: store.put("directory/x", b"2"),
        lambda: store.put_if_match("directory/x", b"2", tag=tag),
        lambda: store.delete("directory/x"),
    ]
    for call in calls:
        begun = clock.monotonic()
        with pytest.raises(Unavailable) as failure:
            call()
        assert 5.0 <= clock.monotonic() - begun < 5.1
        assert failure.value.path == "directory/.lock"

    disk.close(stuck)
    assert store.get("directory/x").payload == b"1"
    assert names_on(disk, "/lake/directory") == [".lock", "x"]
    store.put("directory/x", b"2")


def names_on(disk: SimulatedDisk, directory: str) -> list[str]:
    return sorted(entry.name for entry in disk.list_directory(directory))


# Temporary files


def test_left_over_temporary_files_are_swept_by_age() -> None:
    clock = SimulatedClock()
    disk = SimulatedDisk(clock=clock)
    store = LocalStore("/lake", disk=disk, clock=clock)
    store.put("a/b/object", b"1")
    for name in ("/lake/.tmp-1", "/lake/a/b/.tmp-2"):
        disk.close(disk.create_file(name))
    clock.advance(3_600)
    disk.close(disk.create_file("/lake/a/.tmp-young"))

    before_ms = clock.now_ms() - 1_800_000
    below = store.sweep_temporaries("a", modified_before_ms=before_ms)
    swept = store.sweep_temporaries(modified_before_ms=before_ms)

    assert below == ("a/b/.tmp-2",)
    assert swept == (".tmp-1",)
    assert store.sweep_temporaries("none", modified_before_ms=before_ms) == ()
    assert names_on(disk, "/lake/a") == [".tmp-young", "b"]
    assert store.get("a/b/object").payload == b"1"


def test_a_name_in_use_as_temporary_file_is_passed_over() -> None:
    disk = SimulatedDisk()
    LocalStore("/lake", disk=disk)
    used = SeededIds(3)
    for _ in range(5):
        disk.close(disk.create_file(f"/lake/.tmp-{used.uuid().hex}"))

    LocalStore("/lake", disk=disk, ids=SeededIds(3)).put("x", b"1")

    assert LocalStore("/lake", disk=disk).get("x").payload == b"1"


def test_a_writer_whose_temporary_file_was_swept_is_told() -> None:
    _, _, simulated = faulty_store()
    interleaving = Interleaving(0)
    disk = InterleavedDisk(simulated, interleaving)
    store = LocalStore("/lake", disk=disk, ids=SeededIds(9), clock=SimulatedClock())
    sweeper = LocalStore("/lake", disk=simulated)

    def sweep() -> None:
        while not sweeper.sweep_temporaries(modified_before_ms=1 << 60):
            interleaving.switch("look again")

    outcomes = interleaving.run(
        {"writer": lambda: store.put("directory/x", b"1"), "sweeper": sweep}
    )

    assert isinstance(outcomes["writer"].error, Unavailable)
    assert [info.path for info in store.list("directory/")] == ["directory/witness"]


def test_directories_removed_from_outside_are_made_again(store: LocalStore, lake: Path) -> None:
    store.put("a/b/x", b"1")
    store.delete("a/b/x")
    (lake / "a" / "b" / ".lock").unlink()
    (lake / "a" / "b").rmdir()

    with pytest.raises(Unavailable):
        store.put("a/b/x", b"2")
    store.put("a/b/x", b"3")

    assert store.get("a/b/x").payload == b"3"


# Failing disks


def test_short_writes_are_continued() -> None:
    store, disk, _ = faulty_store(ShortWrite(at=1, bytes_max=3, is_lasting=True))
    file = store.create("directory/log")

    store.put("directory/x", b"0123456789")
    file.append([b"abcde", b"", b"fgh"])
    file.append([b"ijklm"])

    assert store.get("directory/x").payload == b"0123456789"
    assert store.get("directory/log").payload == b"abcdefghijklm"
    assert file.position == 13
    assert disk.faults > 5


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "space"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "ulimit"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "kernel log"),
        (errno.EACCES, "permission to"),
        (errno.EROFS, "read-only"),
        (errno.EXDEV, "one file system"),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else "",
)
def test_a_failed_write_leaves_nothing_and_says_what_to_do(number: int, hint: str) -> None:
    for kind in (CallKind.CREATE_FILE, CallKind.WRITE, CallKind.SYNC, CallKind.LINK):
        store, _, simulated = faulty_store(Failure(at=1, kind=kind, number=number))

        with pytest.raises(Unavailable) as failure:
            store.put_if_absent("directory/x", b"1")

        assert hint in str(failure.value)
        assert failure.value.path == "directory/x"
        assert names_on(simulated, "/lake/directory") == [".lock", "witness"]
        assert simulated.open_handles == 0


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOENT, NotFound),
        (errno.EISDIR, InvalidArgument),
        (errno.ENOTDIR, InvalidArgument),
        (errno.ENAMETOOLONG, InvalidArgument),
        (errno.ELOOP, Corruption),
        (errno.EINVAL, Corruption),
        (errno.EBADF, Closed),
        (errno.ENOLCK, Unavailable),
        (errno.ETIMEDOUT, Unavailable),
        (None, Unavailable),
    ],
)
def test_every_errno_is_a_typed_error_with_its_path(
    number: int | None, expected: type[NeveError]
) -> None:
    error = OSError("odd") if number is None else OSError(number, os.strerror(number))

    found = error_from_disk(error, doing="read an object", path="a/b")

    assert type(found) is expected
    assert found.path == "a/b"
    assert "read an object" in str(found)


def test_a_failed_sync_of_the_directory_leaves_the_outcome_unknown() -> None:
    calls: list[Callable[[LocalStore], object]] = [
        lambda store: store.put("directory/x", b"1"),
        lambda store: store.put_if_absent("directory/x", b"1"),
        lambda store: store.put_if_match("directory/witness", b"1", tag=content_tag(b"unchanged")),
        lambda store: store.create("directory/x"),
        lambda store: store.recycle("directory/witness", new_path="directory/x"),
    ]
    for call in calls:
        store, _, simulated = faulty_store(Failure(at=1, kind=CallKind.SYNC_DIRECTORY))

        with pytest.raises(OutcomeUnknown):
            call(store)

        assert simulated.open_handles == 0


def test_a_full_disk_does_not_keep_files_from_being_deleted() -> None:
    store, disk, simulated = faulty_store(
        Failure(at=1, kind=CallKind.CREATE_FILE, number=errno.ENOSPC, is_lasting=True)
    )
    simulated.remove("/lake/directory/.lock")

    store.delete("directory/witness")

    assert disk.faults == 1
    assert names_on(simulated, "/lake/directory") == []


def test_a_full_disk_refuses_to_preallocate_and_leaves_no_file() -> None:
    store, _, simulated = faulty_store(Failure(at=1, kind=CallKind.ALLOCATE, number=errno.ENOSPC))

    with pytest.raises(Unavailable):
        store.create("directory/log", preallocate_bytes=100)

    assert names_on(simulated, "/lake/directory") == [".lock", "witness"]
    assert simulated.open_handles == 0
    store.create("directory/log", preallocate_bytes=100).close()


def test_many_new_objects_take_one_sync_of_each_directory() -> None:
    store, disk, simulated = faulty_store()
    files = [(f"data/p={n % 2}/{n}", (b"row ", str(n).encode())) for n in range(100)]
    begun = len(disk.log)

    store.put_new(files)

    calls = disk.log[begun:]
    assert sum(call.kind is CallKind.SYNC for call in calls) == 100
    synced = [call.target for call in calls if call.kind is CallKind.SYNC_DIRECTORY]
    assert synced.count("/lake/data") == 1
    assert {synced.count(f"/lake/data/p={n}") for n in range(2)} == {1}
    assert simulated.open_handles == 0
    survivor = LocalStore("/lake", disk=simulated.after_power_cut())
    assert {info.path for info in survivor.list("data/")} == {path for path, _ in files}
    assert survivor.get("data/p=1/3").payload == b"row 3"


def test_a_new_object_does_not_replace_another_one() -> None:
    store, _, simulated = faulty_store()

    with pytest.raises(AlreadyExists):
        store.put_new([("directory/new", (b"1",)), ("directory/witness", (b"2",))])

    assert store.get("directory/witness").payload != b"2"
    assert not [name for name in names_on(simulated, "/lake/directory") if name.startswith(".tmp")]
    assert simulated.open_handles == 0


@pytest.mark.parametrize("kind", [CallKind.WRITE, CallKind.SYNC, CallKind.LINK])
def test_new_objects_that_cannot_be_written_leave_no_temporary_file(kind: CallKind) -> None:
    store, _, simulated = faulty_store(Failure(at=2, kind=kind, number=errno.ENOSPC))

    with pytest.raises(Unavailable):
        store.put_new([(f"directory/{n}", (b"1",)) for n in range(3)])

    assert not [name for name in names_on(simulated, "/lake/directory") if name.startswith(".tmp")]
    assert simulated.open_handles == 0


def test_a_preallocated_file_reserves_its_space_as_it_is_used() -> None:
    store, disk, _ = faulty_store()
    file = store.create("directory/log", preallocate_bytes=1 << 20)

    for _ in range(20):
        file.append([bytes(50_000)])

    reserved = [call.numbers[0] for call in disk.log if call.kind is CallKind.ALLOCATE]
    assert reserved == [384 << 10, 768 << 10, 1 << 20]
    assert store.size("directory/log") == 1 << 20
    file.close()


def test_a_large_append_reserves_all_the_space_it_needs() -> None:
    store, disk, _ = faulty_store()
    file = store.create("directory/log", preallocate_bytes=4 << 20)

    file.append([bytes(3 << 20)])

    reserved = [call.numbers[0] for call in disk.log if call.kind is CallKind.ALLOCATE]
    assert reserved == [384 << 10, (3 << 20) + (256 << 10)]
    file.close()


def test_a_recycled_file_reserves_its_space_again() -> None:
    store, disk, _ = faulty_store()
    store.create("directory/old").close()

    store.recycle("directory/old", new_path="directory/log", preallocate_bytes=1 << 20).close()

    assert [call.numbers[0] for call in disk.log if call.kind is CallKind.ALLOCATE] == [384 << 10]
    assert store.size("directory/log") == 1 << 20


def test_where_no_more_space_can_be_reserved_the_write_decides() -> None:
    store, _, _ = faulty_store(Failure(at=2, kind=CallKind.ALLOCATE, number=errno.ENOSPC))
    file = store.create("directory/log", preallocate_bytes=1 << 20)

    file.append([b"x" * 200_000])
    file.append([b"y" * 200_000])

    assert store.get("directory/log").payload.startswith(b"x" * 200_000 + b"y" * 200_000)
    file.close()


@pytest.mark.parametrize(
    ("number", "expected"), [(errno.ENOSPC, Unavailable), (errno.EIO, OutcomeUnknown)]
)
def test_a_failed_append_poisons_the_file(number: int, expected: type[NeveError]) -> None:
    store, _, _ = faulty_store(Failure(at=2, kind=CallKind.WRITE, number=number))
    file = store.create("directory/log")
    file.append([b"first"])

    with pytest.raises(expected):
        file.append([b"second"])

    calls: list[Callable[[], None]] = [
        lambda: file.append([b"third"]),
        file.sync,
        file.truncate_to_position,
    ]
    for call in calls:
        with pytest.raises(Closed, match="failed"):
            call()
    assert store.get("directory/log").payload == b"first"
    file.close()


def test_an_append_that_stops_half_way_has_an_unknown_outcome() -> None:
    store, _, _ = faulty_store(
        ShortWrite(at=1, bytes_max=4), Failure(at=2, kind=CallKind.WRITE, number=errno.ENOSPC)
    )
    file = store.create("directory/log")

    with pytest.raises(OutcomeUnknown):
        file.append([b"0123456789"])

    with pytest.raises(Closed):
        file.append([b"x"])
    assert store.get("directory/log").payload == b"0123"
    file.close()


def test_a_failed_sync_poisons_the_file_and_is_not_tried_again() -> None:
    store, disk, simulated = faulty_store(Failure(at=1, kind=CallKind.SYNC))
    file = store.create("directory/log")
    file.append([b"lost"])

    with pytest.raises(OutcomeUnknown):
        file.sync()
    with pytest.raises(Closed):
        file.sync()
    file.close()

    assert sum(call.kind is CallKind.SYNC for call in disk.log) == 1
    survivor = LocalStore("/lake", disk=simulated.after_power_cut())
    assert survivor.get("directory/log").payload == b""


def test_a_failed_cut_is_reported_and_can_be_tried_again() -> None:
    store, _, _ = faulty_store(Failure(at=2, kind=CallKind.TRUNCATE))
    file = store.create("directory/log", preallocate_bytes=100)
    file.append([b"abc"])

    with pytest.raises(Unavailable):
        file.truncate_to_position()
    file.truncate_to_position()

    assert store.get("directory/log").payload == b"abc"
    file.close()


def test_a_disk_that_takes_no_bytes_is_not_asked_for_ever() -> None:
    store, _, _ = faulty_store(ShortWrite(at=1, bytes_max=0, is_lasting=True))

    with pytest.raises(Unavailable, match="wrote no bytes"):
        store.put("directory/x", b"1")


# Many at once


@pytest.mark.parametrize("seed", range(25))
def test_in_every_order_of_calls_one_create_wins(seed: int) -> None:
    interleaving = Interleaving(seed)
    simulated = SimulatedDisk()
    LocalStore("/lake", disk=simulated)

    def create(name: str) -> bool:
        disk = InterleavedDisk(simulated, interleaving)
        store = LocalStore("/lake", disk=disk, ids=SeededIds(ord(name)), clock=SimulatedClock())
        return store.put_if_absent("slots/1", name.encode()) is not None

    outcomes = interleaving.run({name: partial(create, name) for name in "abc"})

    winners = [name for name, outcome in outcomes.items() if outcome.result()]
    assert len(winners) == 1
    found = LocalStore("/lake", disk=simulated).get("slots/1").payload
    assert found == winners[0].encode()


@pytest.mark.parametrize("seed", range(25))
def test_in_every_order_of_calls_replacing_and_deleting_agree(seed: int) -> None:
    interleaving = Interleaving(seed)
    simulated = SimulatedDisk()
    tag = LocalStore("/lake", disk=simulated).put("d/head", b"0")

    def opened(number: int) -> LocalStore:
        disk = InterleavedDisk(simulated, interleaving)
        return LocalStore("/lake", disk=disk, ids=SeededIds(number), clock=SimulatedClock())

    def replace(number: int) -> bool:
        store = opened(number)
        return store.put_if_match("d/head", b"%d" % number, tag=tag) is not None

    def delete() -> bool:
        opened(9).delete("d/head")
        return True

    outcomes = interleaving.run(
        {"1": lambda: replace(1), "2": lambda: replace(2), "delete": delete}
    )

    winners = [name for name in ("1", "2") if outcomes[name].result()]
    assert len(winners) <= 1
    assert outcomes["delete"].result()
    # The one deletion came before or after the one replacement; either way nothing is left.
    assert list(LocalStore("/lake", disk=simulated).list("d/")) == []


def test_threads_of_two_stores_lose_no_update(lake: Path) -> None:
    stores = [LocalStore(str(lake)) for _ in range(2)]
    stores[0].put("d/counter", b"0")

    def count(store: LocalStore, name: int) -> None:
        for turn in range(20):
            while True:
                found = store.get("d/counter")
                number = int(found.payload.split()[0]) + 1
                claim = b"%d by %d in %d" % (number, name, turn)
                if store.put_if_match("d/counter", claim, tag=found.tag) is not None:
                    break

    threads = [threading.Thread(target=count, args=(stores[name % 2], name)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert stores[0].get("d/counter").payload.split()[0] == b"80"


# Forked children


def test_a_forked_child_has_neither_the_lock_nor_the_log(store: LocalStore) -> None:
    lock = store.lock("wal/LOCK")
    file = store.create("wal/log")
    file.append([b"parent"])
    answers: multiprocessing.Queue[str] = multiprocessing.get_context("fork").Queue()

    def try_everything() -> None:
        for call in (lock.release, lambda: file.append([b"child"]), lambda: store.lock("wal/LOCK")):
            try:
                call()
                answers.put("worked")
            except NeveError as error:
                answers.put(type(error).__name__)

    child = multiprocessing.get_context("fork").Process(target=try_everything)
    child.start()
    found = [answers.get() for _ in range(3)]
    child.join()

    assert found == ["Closed", "Closed", "Fenced"]
    assert store.get("wal/log").payload == b"parent"
    with pytest.raises(Fenced):
        store.lock("wal/LOCK")
    lock.release()
    file.close()


def test_a_taken_log_name_is_refused_with_its_path(store: LocalStore) -> None:
    store.create("wal/000001.wal").close()

    with pytest.raises(AlreadyExists) as refusal:
        store.create("wal/000001.wal")

    assert refusal.value.path == "wal/000001.wal"


def test_a_closed_log_reserves_no_space_under_its_old_handle(tmp_path: Path) -> None:
    reserved: list[int] = []

    class Noting(PosixDisk):
        def allocate(self, handle: int, length: int) -> None:
            reserved.append(length)
            super().allocate(handle, length)

    store = LocalStore(str(tmp_path), disk=Noting())
    log = store.create("a.wal", preallocate_bytes=4 << 20)
    log.append((b"x" * 1000,))
    log.close()
    reserved.clear()

    with pytest.raises(Closed):
        log.append((b"x" * (1 << 20),))

    assert reserved == []
