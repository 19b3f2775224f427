"""The simulated disk: the same answers as the real one, and an honest loss of power."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.storage.disk import Disk
from neve.storage.posix_disk import PosixDisk
from neve.testing.disk_calls import CHANGES, SYNCS, CallKind
from neve.testing.power_loss import Survival
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import PowerCut, SimulatedDisk

CHOICES = 400


def write_file(disk: Disk, path: str, payload: bytes, *, synced: bool = True) -> None:
    handle = disk.create_file(path)
    disk.write(handle, [payload], 0)
    if synced:
        disk.sync(handle)
    disk.close(handle)


def content(disk: Disk, path: str) -> bytes | None:
    try:
        handle = disk.open_file(path)
    except FileNotFoundError:
        return None
    found = disk.read(handle, 0, 1 << 20)
    disk.close(handle)
    return found


def names(disk: Disk, path: str = "/") -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in disk.list_directory(path)))


def survivors(disk: SimulatedDisk, look: Callable[[SimulatedDisk], object]) -> set[object]:
    """Everything that can be seen after a power cut."""
    return {look(disk.after_power_cut(Random(seed))) for seed in range(CHOICES)}


# Agreement with the real disk

PATHS = st.sampled_from(["a", "b", "d", "d/a", "d/b", "e", "e/a", "a/x", "missing/x"])
PAYLOADS = st.binary(max_size=20)
STEPS = st.one_of(
    st.tuples(st.just("make_directory"), st.sampled_from(["d", "e", "a", "d/a"])),
    st.tuples(st.just("create_file"), PATHS),
    st.tuples(st.just("open_file"), PATHS),
    st.tuples(st.just("write"), st.integers(0, 3), PAYLOADS, st.integers(0, 30)),
    st.tuples(st.just("read"), st.integers(0, 3), st.integers(0, 30), st.integers(0, 30)),
    st.tuples(st.just("allocate"), st.integers(0, 3), st.integers(1, 40)),
    st.tuples(st.just("truncate"), st.integers(0, 3), st.integers(0, 40)),
    st.tuples(st.just("size"), st.integers(0, 3)),
    st.tuples(st.just("sync"), st.integers(0, 3)),
    st.tuples(st.just("lock"), st.integers(0, 3)),
    st.tuples(st.just("close"), st.integers(0, 3)),
    st.tuples(st.just("link"), PATHS, PATHS),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("remove"), PATHS),
    st.tuples(st.just("list_directory"), PATHS),
    st.tuples(st.just("sync_directory"), PATHS),
    st.tuples(st.just("stat"), PATHS),
)


class Player:
    """Plays steps on a disk; a handle is meant by its number in the order of opening."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk = disk
        self.root = root
        self.handles: list[int] = []

    def play(self, step: tuple[object, ...]) -> object:
        try:
            return self._play(step)
        except OSError as error:
            return errno.errorcode[error.errno or 0]

    def close_all(self) -> None:
        for handle in self.handles:
            self.disk.close(handle)

    def _play(self, step: tuple[object, ...]) -> object:
        kind, *arguments = step
        match kind, arguments:
            case "create_file", [str(path)]:
                self.handles.append(self.disk.create_file(self._at(path)))
                return "opened"
            case "open_file", [str(path)]:
                if self.disk.stat(self._at(path)).kind == "directory":
                    return "a directory"
                self.handles.append(self.disk.open_file(self._at(path), writable=True))
                return "opened"
            case "write", [int(handle), bytes(payload), int(offset)]:
                return self.disk.write(self._handle(handle), [payload[:5], payload[5:]], offset)
            case "close", [int(handle)]:
                self.disk.close(self.handles.pop(handle % len(self.handles)))
                return None
            case "link" | "rename", [str(source), str(target)]:
                if self.disk.stat(self._at(source)).kind == "directory":
                    return "a directory"
                return getattr(self.disk, str(kind))(self._at(source), self._at(target))
            case "remove", [str(path)]:
                self.disk.remove(self._at(path))
                return None
            case "list_directory", [str(path)]:
                entries = self.disk.list_directory(self._at(path))
                return sorted((entry.name, entry.kind) for entry in entries)
            case "stat", [str(path)]:
                status = self.disk.stat(self._at(path))
                return (status.kind, status.size if status.kind == "file" else None)
            case _, [str(path)]:
                return getattr(self.disk, str(kind))(self._at(path))
            case _, [int(handle), *numbers]:
                return getattr(self.disk, str(kind))(self._handle(handle), *numbers)
            case _:
                raise AssertionError(step)

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _handle(self, number: int) -> int:
        return self.handles[number % len(self.handles)]


@given(st.lists(STEPS, max_size=40))
def test_every_call_answers_as_the_real_disk_does(steps: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as directory:
        real = Player(PosixDisk(), str(Path(directory).resolve()))
        simulated = Player(SimulatedDisk(), "")

        for step in steps:
            if isinstance(step[1], int) and not real.handles:
                continue
            assert simulated.play(step) == real.play(step), step

        real.close_all()


# Bytes


def test_synced_bytes_survive_and_unsynced_ones_may_not() -> None:
    disk = SimulatedDisk()
    handle = disk.create_file("/a")
    disk.sync_directory("/")
    disk.write(handle, [b"kept"], 0)
    disk.sync(handle)
    disk.write(handle, [b"lost"], 4)

    found = survivors(disk, lambda survivor: content(survivor, "/a"))

    assert all(isinstance(image, bytes) and image.startswith(b"kept") for image in found)
    assert {b"kept", b"keptlost", b"kept\0\0\0\0", b"keptl", b"kept\0\0\0t"} <= found


def test_a_write_over_synced_bytes_can_be_torn_at_any_byte() -> None:
    disk = SimulatedDisk()
    write_file(disk, "/a", b"old!")
    disk.sync_directory("/")
    handle = disk.open_file("/a", writable=True)
    disk.write(handle, [b"NEW."], 0)

    found = survivors(disk, lambda survivor: content(survivor, "/a"))

    prefixes = {b"NEW."[:cut] + b"old!"[cut:] for cut in range(5)}
    suffixes = {b"old!"[:cut] + b"NEW."[cut:] for cut in range(5)}
    assert found == prefixes | suffixes


def test_sectors_of_a_large_write_survive_in_any_order() -> None:
    disk = SimulatedDisk()
    handle = disk.create_file("/a")
    disk.sync_directory("/")
    disk.write(handle, [b"1" * 512 + b"2" * 512 + b"3" * 512], 0)

    found = survivors(disk, lambda survivor: content(survivor, "/a"))

    assert bytes(1_024) + b"3" * 512 in found
    assert b"1" * 512 + bytes(512) + b"3" * 512 in found


def test_unsynced_sizes_are_not_promised_either() -> None:
    disk = SimulatedDisk()
    handle = disk.create_file("/a")
    disk.sync_directory("/")
    disk.write(handle, [b"12345678"], 0)
    disk.sync(handle)

    disk.truncate(handle, 4)
    assert survivors(disk, lambda survivor: content(survivor, "/a")) == {b"1234", b"12345678"}
    disk.sync(handle)
    disk.allocate(handle, 6)
    assert survivors(disk, lambda survivor: content(survivor, "/a")) == {b"1234", b"1234\0\0"}
    disk.sync(handle)
    assert survivors(disk, lambda survivor: content(survivor, "/a")) == {b"1234\0\0"}


def test_a_failed_sync_loses_bytes_that_processes_still_see() -> None:
    disk = SimulatedDisk()
    handle = disk.create_file("/a")
    disk.sync_directory("/")
    disk.write(handle, [b"lost"], 0)

    disk.lose_unsynced(handle)
    disk.sync(handle)

    assert disk.read(handle, 0, 10) == b"lost"
    assert survivors(disk, lambda survivor: content(survivor, "/a")) == {b""}


# Names


def test_a_name_needs_the_sync_of_its_directory() -> None:
    disk = SimulatedDisk()
    write_file(disk, "/a", b"synced")

    assert survivors(disk, names) == {(), ("a",)}
    disk.sync_directory("/")
    assert survivors(disk, names) == {("a",)}
    disk.remove("/a")
    assert survivors(disk, names) == {(), ("a",)}


def test_a_lost_directory_takes_everything_in_it_along() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    write_file(disk, "/d/a", b"synced")
    disk.sync_directory("/d")

    found = survivors(
        disk, lambda survivor: content(survivor, "/d/a") if names(survivor) else "no directory"
    )

    assert found == {"no directory", b"synced"}


def test_a_rename_leaves_the_old_or_the_new_name() -> None:
    disk = SimulatedDisk()
    write_file(disk, "/old", b"moved")
    write_file(disk, "/new", b"replaced")
    disk.sync_directory("/")

    disk.rename("/old", "/new")

    found = survivors(disk, lambda survivor: (content(survivor, "/old"), content(survivor, "/new")))
    assert found == {(b"moved", b"replaced"), (None, b"moved")}


def test_a_rename_between_directories_needs_the_sync_of_both() -> None:
    disk = SimulatedDisk()
    for directory in ("/from", "/to"):
        disk.make_directory(directory)
    write_file(disk, "/from/a", b"moved")
    for directory in ("/", "/from"):
        disk.sync_directory(directory)

    def look(survivor: SimulatedDisk) -> object:
        return content(survivor, "/from/a"), content(survivor, "/to/a")

    disk.rename("/from/a", "/to/a")
    assert survivors(disk, look) == {(b"moved", None), (None, b"moved")}
    disk.sync_directory("/to")
    assert survivors(disk, look) == {(b"moved", None), (None, b"moved")}
    disk.sync_directory("/from")
    assert survivors(disk, look) == {(None, b"moved")}


def test_changes_of_different_names_are_lost_in_any_combination() -> None:
    disk = SimulatedDisk()
    for name in "abc":
        write_file(disk, f"/{name}", b"")

    found = survivors(disk, names)

    assert len(found) == 8


def test_changes_of_one_name_are_kept_in_order() -> None:
    disk = SimulatedDisk()
    write_file(disk, "/a", b"first")
    disk.sync_directory("/")
    disk.rename("/a", "/b")
    write_file(disk, "/a", b"second")

    found = survivors(disk, lambda survivor: (content(survivor, "/a"), content(survivor, "/b")))

    assert found == {(b"first", None), (None, b"first"), (b"second", b"first")}


def test_two_names_of_one_file_still_share_it() -> None:
    disk = SimulatedDisk()
    write_file(disk, "/a", b"unsynced", synced=False)
    disk.link("/a", "/b")
    disk.sync_directory("/")

    for seed in range(20):
        survivor = disk.after_power_cut(Random(seed))
        assert content(survivor, "/a") == content(survivor, "/b")
        handle = survivor.open_file("/a", writable=True)
        survivor.write(handle, [b"both"], 0)
        found = content(survivor, "/b")
        assert found is not None
        assert found[:4] == b"both"


# Power


def test_the_power_goes_off_in_the_call_asked_for_and_stays_off() -> None:
    disk = SimulatedDisk().power_cut_at(2)
    handle = disk.create_file("/a")

    with pytest.raises(PowerCut):
        disk.write(handle, [b"x"], 0)
    for call in (lambda: disk.close(handle), lambda: disk.list_directory("/")):
        with pytest.raises(PowerCut):
            call()

    assert disk.calls == 2


def test_a_call_the_power_went_off_in_may_have_had_its_effect() -> None:
    disk = SimulatedDisk().power_cut_at(1)

    with pytest.raises(PowerCut):
        disk.create_file("/a")

    assert survivors(disk, names) == {(), ("a",)}


def test_a_sync_the_power_went_off_in_promises_nothing() -> None:
    disk = SimulatedDisk().power_cut_at(4)
    handle = disk.create_file("/a")
    disk.sync_directory("/")
    disk.write(handle, [b"x"], 0)

    with pytest.raises(PowerCut):
        disk.sync(handle)

    assert survivors(disk, lambda survivor: content(survivor, "/a")) == {b"", b"x", b"\0"}


def test_no_handler_of_errors_catches_a_power_cut() -> None:
    assert not issubclass(PowerCut, Exception)


def test_the_power_cut_frees_locks_and_handles() -> None:
    disk = SimulatedDisk()
    handle = disk.create_file("/LOCK")
    disk.sync_directory("/")
    assert disk.lock(handle)

    survivor = disk.after_power_cut()

    assert survivor.open_handles == 0
    assert survivor.lock(survivor.open_file("/LOCK", writable=True))


@pytest.mark.parametrize(
    ("survival", "expected"),
    [
        (Survival.NOTHING, (b"", None)),
        (Survival.EVERYTHING, (b"bytes", b"")),
        (Survival.ONLY_BYTES, (b"bytes", None)),
        (Survival.ONLY_NAMES, (b"", b"")),
    ],
)
def test_how_much_survives_can_be_chosen(
    survival: Survival, expected: tuple[bytes | None, ...]
) -> None:
    disk = SimulatedDisk()
    handle = disk.create_file("/a")
    disk.sync_directory("/")
    disk.write(handle, [b"bytes"], 0)
    disk.close(disk.create_file("/b"))

    survivor = disk.after_power_cut(Random(0), survival=survival)

    assert (content(survivor, "/a"), content(survivor, "/b")) == expected


def test_the_disk_that_lost_power_is_not_changed_by_looking() -> None:
    disk = SimulatedDisk()
    write_file(disk, "/a", b"x" * 100, synced=False)

    first = survivors(disk, lambda survivor: content(survivor, "/a"))
    handle = disk.after_power_cut(Random(1), survival=Survival.EVERYTHING).open_file("/a")

    assert handle
    assert survivors(disk, lambda survivor: content(survivor, "/a")) == first


def test_a_left_out_sync_reports_success_and_does_nothing() -> None:
    disk = SimulatedDisk().without(CallKind.SYNC, 2).without(CallKind.SYNC_DIRECTORY, 1)
    write_file(disk, "/a", b"1")
    disk.sync_directory("/")
    assert () in survivors(disk, names)
    disk.sync_directory("/")
    write_file(disk, "/b", b"2")
    disk.sync_directory("/")

    assert disk.syncs() == (
        (CallKind.SYNC, 1),
        (CallKind.SYNC, 2),
        (CallKind.SYNC_DIRECTORY, 1),
        (CallKind.SYNC_DIRECTORY, 2),
        (CallKind.SYNC_DIRECTORY, 3),
    )
    assert survivors(disk, lambda survivor: content(survivor, "/a")) == {b"1"}
    assert b"" in survivors(disk, lambda survivor: content(survivor, "/b"))


def test_only_syncs_can_be_left_out() -> None:
    with pytest.raises(ValueError, match="write"):
        SimulatedDisk().without(CallKind.WRITE, 1)


# Replay


def play_seeded(seed: int) -> SimulatedDisk:
    rng = Random(seed)
    disk = SimulatedDisk(seed)
    for number in range(50):
        name = f"/{rng.randrange(8)}"
        match rng.randrange(4):
            case 0 if name[1:] not in names(disk):
                write_file(disk, name, rng.randbytes(300), synced=rng.random() < 0.5)
            case 1 if name[1:] in names(disk):
                disk.rename(name, f"/{number}")
            case 2 if name[1:] in names(disk):
                disk.remove(name)
            case _:
                disk.sync_directory("/")
    return disk


def image(disk: SimulatedDisk) -> list[tuple[str, bytes | None]]:
    return [(name, content(disk, f"/{name}")) for name in names(disk)]


@pytest.mark.parametrize("seed", range(10))
def test_the_same_seed_gives_the_same_bytes(seed: int) -> None:
    first, second = play_seeded(seed), play_seeded(seed)

    assert first.log == second.log
    assert image(first.after_power_cut()) == image(second.after_power_cut())
    assert image(first.after_power_cut(Random(7))) == image(second.after_power_cut(Random(7)))


def test_every_call_is_in_the_log() -> None:
    disk = SimulatedDisk()
    disk.real_path("x")
    write_file(disk, "/a", b"123")

    assert disk.calls == len(disk.log) == 5
    assert [call.kind for call in disk.log] == [
        CallKind.REAL_PATH,
        CallKind.CREATE_FILE,
        CallKind.WRITE,
        CallKind.SYNC,
        CallKind.CLOSE,
    ]
    assert disk.log[2].numbers == (0, 3)
    assert SYNCS < CHANGES < set(CallKind)


def test_closed_and_read_only_handles_are_bad() -> None:
    disk = SimulatedDisk()
    write_file(disk, "/a", b"")
    read_only = disk.open_file("/a")

    for call in (
        lambda: disk.write(read_only, [b"x"], 0),
        lambda: disk.sync(99),
        lambda: disk.close(99),
        lambda: disk.size(99),
    ):
        with pytest.raises(OSError, match="Bad file") as failure:
            call()
        assert failure.value.errno == errno.EBADF


def test_many_threads_may_use_it() -> None:
    disk = SimulatedDisk()

    def work(name: int) -> None:
        for number in range(50):
            write_file(disk, f"/{name}-{number}", b"x")
            disk.sync_directory("/")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(names(disk.after_power_cut(Random(0), survival=Survival.NOTHING))) == 200


# Time and ids


def test_sleeping_moves_the_clock_and_takes_no_time() -> None:
    clock = SimulatedClock(now_ms=1_000)

    clock.sleep(2.5)
    clock.set_now_ms(10)
    clock.advance(0.001)

    assert clock.now_ms() == 11
    assert clock.monotonic() == pytest.approx(2.501)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


def test_seeded_ids_repeat_with_their_seed_only() -> None:
    def draw(ids: SeededIds) -> list[object]:
        return [ids.uuid(), ids.jitter(), ids.uuid()]

    assert draw(SeededIds(1)) == draw(SeededIds(1))
    assert draw(SeededIds(1)) != draw(SeededIds(2))
    assert SeededIds(3).uuid().version == 4
    assert 0 <= SeededIds(4).jitter() < 1
