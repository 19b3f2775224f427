"""The system calls: how files are opened, and what a forked child may do with them."""

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from neve.storage.disk import FileKind, read_fully, write_fully
from neve.storage.posix_disk import PosixDisk

MACOS_FULL_SYNC = 51


def leave_out(monkeypatch: pytest.MonkeyPatch, *calls: str) -> None:
    """Make the system one that does not have these calls."""
    for call in calls:
        monkeypatch.delattr(os, call, raising=False)


def run_as_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what macOS does not have, and name what it has instead.

    Linux answers F_FULLFSYNC with EINVAL, as a file system does that cannot flush its drive.
    """
    leave_out(monkeypatch, "fdatasync", "posix_fallocate", "pwritev")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", MACOS_FULL_SYNC, raising=False)


SYSTEMS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "this system": lambda _patch: None,
    "without Linux calls": lambda patch: leave_out(
        patch, "fdatasync", "posix_fallocate", "preadv", "pwritev"
    ),
    "as macOS": run_as_macos,
}


@pytest.fixture(params=list(SYSTEMS))
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> PosixDisk:
    SYSTEMS[request.param](monkeypatch)
    return PosixDisk()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path


def test_only_the_owner_may_open_what_is_made(disk: PosixDisk, place: Path) -> None:
    disk.make_directory(str(place / "directory"))
    disk.close(disk.create_file(str(place / "file")))

    assert stat.S_IMODE((place / "directory").stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "file").stat().st_mode) == 0o600


def test_the_umask_can_only_take_rights_away(disk: PosixDisk, place: Path) -> None:
    before = os.umask(0o200)
    try:
        disk.close(disk.create_file(str(place / "file")))
    finally:
        os.umask(before)

    assert stat.S_IMODE((place / "file").stat().st_mode) == 0o400


def test_handles_do_not_survive_exec(disk: PosixDisk, place: Path) -> None:
    created = disk.create_file(str(place / "file"))
    opened = disk.open_file(str(place / "file"))
    writable = disk.open_file(str(place / "file"), writable=True)

    for handle in (created, opened, writable):
        assert fcntl.fcntl(handle, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        disk.close(handle)


def test_a_link_is_never_followed(disk: PosixDisk, place: Path) -> None:
    (place / "outside").write_bytes(b"secret")
    (place / "link").symlink_to(place / "outside")
    (place / "directory link").symlink_to(place)
    attempts: list[Callable[[], object]] = [
        lambda: disk.open_file(str(place / "link")),
        lambda: disk.open_file(str(place / "link"), writable=True),
        lambda: disk.create_file(str(place / "link")),
        lambda: disk.sync_directory(str(place / "directory link")),
    ]

    for attempt in attempts:
        with pytest.raises(OSError, match="link") as failure:
            attempt()
        assert failure.value.errno in {errno.ELOOP, errno.EEXIST, errno.ENOTDIR}

    assert disk.stat(str(place / "link")).kind is FileKind.LINK
    disk.remove(str(place / "link"))
    assert (place / "outside").read_bytes() == b"secret"


def test_a_planted_pipe_does_not_stop_the_reader(disk: PosixDisk, place: Path) -> None:
    os.mkfifo(place / "pipe")

    handle = disk.open_file(str(place / "pipe"))

    with pytest.raises(OSError, match="Invalid argument"):
        disk.size(handle)
    disk.close(handle)


def test_a_directory_is_not_a_file(disk: PosixDisk, place: Path) -> None:
    handle = disk.open_file(str(place))

    with pytest.raises(IsADirectoryError):
        disk.size(handle)
    disk.close(handle)


def test_every_kind_of_entry_is_told_apart(disk: PosixDisk, place: Path) -> None:
    (place / "file").write_bytes(b"12345")
    (place / "directory").mkdir()
    (place / "link").symlink_to("file")
    os.mkfifo(place / "pipe")
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(str(place / "socket"))

        kinds = {entry.name: entry.kind for entry in disk.list_directory(str(place))}

    expected = {
        "file": FileKind.FILE,
        "directory": FileKind.DIRECTORY,
        "link": FileKind.LINK,
        "pipe": FileKind.OTHER,
        "socket": FileKind.OTHER,
    }
    assert kinds == expected
    assert {name: disk.stat(str(place / name)).kind for name in expected} == expected
    assert disk.stat(str(place / "file")).size == 5


def test_a_write_takes_at_most_as_many_pieces_as_the_kernel(disk: PosixDisk, place: Path) -> None:
    handle = disk.create_file(str(place / "file"))
    pieces = [b"ab"] * 3_000

    assert disk.write(handle, pieces, 0) == 2_048
    assert write_fully(disk, handle, pieces, 0) == 6_000
    assert disk.write(handle, [], 0) == 0

    assert read_fully(disk, handle, 0, 10_000) == b"ab" * 3_000
    disk.close(handle)


def test_allocating_only_makes_a_file_longer(disk: PosixDisk, place: Path) -> None:
    handle = disk.create_file(str(place / "file"))
    disk.write(handle, [b"abc"], 0)

    disk.allocate(handle, 10_000)
    disk.allocate(handle, 100)

    assert disk.size(handle) == 10_000
    assert disk.read(handle, 0, 5) == b"abc\0\0"
    disk.truncate(handle, 2)
    assert disk.read(handle, 0, 5) == b"ab"
    disk.close(handle)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_cannot_allocate_still_gives_the_size(
    place: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_arguments: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    disk = PosixDisk()
    handle = disk.create_file(str(place / "file"))

    disk.allocate(handle, 1_000)
    disk.allocate(handle, 10)

    assert disk.size(handle) == 1_000
    disk.close(handle)


def test_a_full_disk_is_not_taken_for_one_that_cannot_allocate(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    disk = PosixDisk()
    handle = disk.create_file(str(place / "file"))

    with pytest.raises(OSError, match="No space"):
        disk.allocate(handle, 1_000)

    disk.close(handle)


# What makes bytes durable


class Calls:
    """The calls that ask for durability, recorded; F_FULLFSYNC fails when an error is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failure: int | None = None) -> None:
        self.made: list[str] = []
        for name in ("fsync", "fdatasync"):
            if hasattr(os, name):
                monkeypatch.setattr(os, name, lambda _handle, name=name: self.made.append(name))

        def full_sync(_handle: int, command: int) -> int:
            assert command == MACOS_FULL_SYNC
            self.made.append("F_FULLFSYNC")
            if failure is not None:
                raise OSError(failure, os.strerror(failure))
            return 0

        monkeypatch.setattr(fcntl, "fcntl", full_sync)


@pytest.mark.parametrize(
    ("system", "of_bytes", "of_entries"),
    [
        ("this system", "fdatasync", "fsync"),
        ("without Linux calls", "fsync", "fsync"),
        ("as macOS", "F_FULLFSYNC", "F_FULLFSYNC"),
    ],
)
def test_each_system_syncs_with_the_call_that_reaches_its_drive(
    place: Path, monkeypatch: pytest.MonkeyPatch, system: str, of_bytes: str, of_entries: str
) -> None:
    SYSTEMS[system](monkeypatch)
    calls = Calls(monkeypatch)
    disk = PosixDisk()
    handle = disk.create_file(str(place / "file"))

    disk.sync(handle)
    disk.sync_directory(str(place))

    assert calls.made == [of_bytes, of_entries]
    disk.close(handle)


@pytest.mark.parametrize(
    ("system", "made"),
    [
        ("this system", []),
        ("without Linux calls", ["fsync", "fsync"]),
        ("as macOS", ["F_FULLFSYNC", "F_FULLFSYNC"]),
    ],
)
def test_a_durable_write_needs_no_sync_where_the_system_has_a_flag_for_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, system: str, made: list[str]
) -> None:
    SYSTEMS[system](monkeypatch)
    calls = Calls(monkeypatch)
    disk = PosixDisk()
    handle = disk.create_file(str(place / "file"))

    assert disk.write_durably(handle, b"first", 0) == 5
    assert disk.write_durably(handle, b"second", 5) == 6

    assert disk.read(handle, 0, 20) == b"firstsecond"
    assert calls.made == made
    disk.close(handle)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_a_file_system_that_refuses_the_flag_is_written_and_synced(
    place: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    calls = Calls(monkeypatch)
    disk = PosixDisk()
    handle = disk.create_file(str(place / "file"))
    asked: list[int] = []

    def refuse(_handle: int, _pieces: object, _offset: int, flags: int) -> int:
        asked.append(flags)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwritev", refuse)
    assert disk.write_durably(handle, b"first", 0) == 5
    assert disk.write_durably(handle, b"second", 5) == 6

    assert disk.read(handle, 0, 20) == b"firstsecond"
    assert calls.made == ["fdatasync", "fdatasync"]
    assert asked == [os.RWF_DSYNC]
    disk.close(handle)


def test_a_durable_write_that_fails_is_not_tried_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = PosixDisk()
    handle = disk.create_file(str(place / "file"))

    def fail(_handle: int, _pieces: object, _offset: int, _flags: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwritev", fail)
    with pytest.raises(OSError, match="Input/output"):
        disk.write_durably(handle, b"first", 0)

    assert disk.size(handle) == 0
    disk.close(handle)


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_share_that_cannot_flush_its_drive_is_synced_as_well_as_it_can(
    place: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    run_as_macos(monkeypatch)
    calls = Calls(monkeypatch, failure=number)
    disk = PosixDisk()
    handle = disk.create_file(str(place / "file"))

    disk.sync(handle)
    disk.sync_directory(str(place))

    assert calls.made == ["F_FULLFSYNC", "fsync"] * 2
    disk.close(handle)


def test_a_drive_that_fails_to_write_is_not_taken_for_one_that_cannot_flush(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as_macos(monkeypatch)
    calls = Calls(monkeypatch, failure=errno.EIO)
    disk = PosixDisk()
    handle = disk.create_file(str(place / "file"))

    with pytest.raises(OSError, match="Input/output"):
        disk.sync(handle)
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_directory(str(place))

    assert calls.made == ["F_FULLFSYNC"] * 2
    disk.close(handle)


def test_two_opens_of_one_file_exclude_each_other(disk: PosixDisk, place: Path) -> None:
    first = disk.create_file(str(place / "LOCK"))
    second = disk.open_file(str(place / "LOCK"), writable=True)

    assert disk.lock(first)
    assert disk.lock(first)
    assert not disk.lock(second)
    disk.close(first)
    assert disk.lock(second)
    disk.close(second)


def test_a_forked_child_can_neither_write_nor_keep_the_lock(disk: PosixDisk, place: Path) -> None:
    log = disk.create_file(str(place / "log"))
    lock = disk.create_file(str(place / "LOCK"))
    assert disk.lock(lock)
    disk.write(log, [b"parent"], 0)
    report_reader, report_writer = os.pipe()
    done_reader, done_writer = os.pipe()

    child = os.fork()
    if child == 0:
        try:
            disk.write(log, [b"child!"], 0)
            answer = b"wrote"
        except OSError as error:
            answer = errno.errorcode[error.errno or 0].encode()
        os.write(report_writer, answer)
        os.close(done_writer)
        os.read(done_reader, 1)
        os._exit(0)

    assert os.read(report_reader, 100) == b"EBADF"
    assert disk.read(log, 0, 100) == b"parent"
    # The child still lives, with all it inherited, and yet the parent alone frees the lock.
    disk.close(lock)
    again = disk.open_file(str(place / "LOCK"), writable=True)
    assert disk.lock(again)
    os.close(done_writer)
    os.waitpid(child, 0)
    disk.close(again)
    disk.close(log)
    for handle in (report_reader, report_writer, done_reader):
        os.close(handle)


def test_names_are_linked_renamed_and_removed(disk: PosixDisk, place: Path) -> None:
    (place / "a").write_bytes(b"1")
    (place / "b").write_bytes(b"2")

    disk.link(str(place / "a"), str(place / "c"))
    with pytest.raises(FileExistsError):
        disk.link(str(place / "a"), str(place / "b"))
    disk.rename(str(place / "a"), str(place / "b"))
    disk.remove(str(place / "c"))
    disk.sync_directory(str(place))

    assert {path.name: path.read_bytes() for path in place.iterdir()} == {"b": b"1"}


def test_the_real_path_has_no_links_and_need_not_exist(disk: PosixDisk, place: Path) -> None:
    (place / "real").mkdir()
    (place / "link").symlink_to("real")

    found = disk.real_path(f"{place}/link/../link/new")

    assert found == f"{place.resolve()}/real/new"
    assert disk.process_id() == os.getpid()
