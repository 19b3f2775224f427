"""LocalStore on the machine's own disk: many processes, killed processes, real limits."""

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

import neve
from neve.errors import Closed, Fenced, NeveError, OutcomeUnknown, Unavailable
from neve.storage.local_store import LocalStore, content_tag
from tests.conftest import Record
from tests.gates import TORTURE

PROCESSES = 8
COMMITS_EACH = 1_000 if TORTURE else 50
KILLS = 100 if TORTURE else 10
WAIT_SECONDS = 120

PREAMBLE = """
import sys
from neve.errors import NeveError
from neve.storage.local_store import LocalStore
root, me, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = LocalStore(root)
def say(text): print(text, flush=True)
say("ready")
sys.stdin.readline()
"""

COMMIT_TO_SLOTS = """
number = 0
for commit in range(count):
    while True:
        number += 1
        if store.put_if_absent(f"segments/{number:06d}", f"{me} {commit}".encode()):
            break
"""

COUNT_WITH_TAGS = """
for turn in range(count):
    while True:
        found = store.get("head")
        claim = f"{int(found.payload.split()[0]) + 1} {me} {turn}".encode()
        if store.put_if_match("head", claim, tag=found.tag):
            break
"""

WRITE_UNTIL_KILLED = """
import hashlib
for number in range(1_000_000):
    body = f"{me} {number} ".encode() * 2_000
    store.put_if_absent(f"objects/{me}-{number:06d}", hashlib.sha256(body).digest() + body)
    body = body[::-1]
    store.put("objects/same", hashlib.sha256(body).digest() + body)
    say(number)
"""

HOLD_A_LOCK = """
lock = store.lock("wal/LOCK")
say("held")
sys.stdin.readline()
"""

HOLD_A_LOCK_AND_FORK = """
import os
lock = store.lock("wal/LOCK")
if os.fork() == 0:
    say("child lives")
    sys.stdin.read()
    os._exit(0)
os.wait()
"""

RUN_INTO_LIMITS = """
import os, resource
store.put("d/witness", b"unchanged")
def attempt(name, call):
    try:
        call()
        say(f"{name} worked")
    except NeveError as error:
        say(f"{name} {type(error).__name__}: {error.hint}")
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
attempt("large put", lambda: store.put("d/x", bytes(2_000_000)))
attempt("large file", lambda: store.create("d/log", preallocate_bytes=2_000_000))
attempt("small put", lambda: store.put("d/small", b"1"))
hogs = []
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
while True:
    try:
        hogs.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        break
for name, call in {
    "put": lambda: store.put("d/x", b"1"),
    "put_if_absent": lambda: store.put_if_absent("d/x", b"1"),
    "get": lambda: store.get("d/witness"),
    "list": lambda: list(store.list("")),
    "delete": lambda: store.delete("d/witness"),
    "create": lambda: store.create("d/log"),
    "lock": lambda: store.lock("d/LOCK"),
}.items():
    attempt(name, call)
for hog in hogs:
    os.close(hog)
attempt("afterwards", lambda: store.put("d/after", b"1"))
say(sorted(os.listdir(f"{root}/d")))
"""


LIVE_WITHOUT_LINUX_CALLS = """
import fcntl, os
for call in ("fdatasync", "posix_fallocate", "pwritev"):
    if hasattr(os, call):
        delattr(os, call)
fcntl.F_FULLFSYNC = 51  # as macOS has it; Linux answers EINVAL, as a share there may
import neve, pyarrow
columns = pyarrow.schema([("id", pyarrow.int64()), ("name", pyarrow.string())])
lake = neve.open(f"{root}/lake")
table = lake.create_table("a.b", columns, ["id"])
table.upsert([{"id": number, "name": f"flushed {number}"} for number in range(count)])
table.flush()
table.upsert([{"id": number, "name": f"logged {number}"} for number in range(0, count, 2)])
say("acknowledged")
sys.stdin.readline()
"""


class Worker:
    """A Python process of its own that works on a store."""

    def __init__(self, script: str, lake: Path, name: object = "worker", count: int = 1) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + script, str(lake), str(name), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.hear() == "ready"

    def start(self) -> None:
        self._stdin.write("go\n")
        self._stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> str:
        """Kill it, and give what it still said."""
        self.process.kill()
        said, _ = self.process.communicate(timeout=WAIT_SECONDS)
        return said

    def end(self) -> str:
        """Wait for it, and give what it said."""
        said, errors = self.process.communicate(timeout=WAIT_SECONDS)
        assert self.process.returncode == 0, errors
        return said

    @property
    def _stdin(self) -> IO[str]:
        assert self.process.stdin is not None
        return self.process.stdin


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def run_together(script: str, lake: Path) -> None:
    workers = [Worker(script, lake, name, COMMITS_EACH) for name in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.end()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_whole(content: bytes) -> bool:
    return hashlib.sha256(content[32:]).digest() == content[:32]


# Many processes


def test_processes_that_commit_at_once_lose_and_repeat_nothing(
    lake: Path, scoreboard: Record
) -> None:
    store = LocalStore(str(lake))

    run_together(COMMIT_TO_SLOTS, lake)

    commits = [store.get(info.path).payload for info in store.list("segments/")]
    names = [info.path for info in store.list("segments/")]
    expected = {
        f"{name} {commit}".encode() for name in range(PROCESSES) for commit in range(COMMITS_EACH)
    }
    lost = len(expected - set(commits))
    repeated = len(commits) - len(set(commits))
    gaps = int(names[-1].removeprefix("segments/")) - len(names)
    scoreboard(
        f"R14 local store, {PROCESSES} processes × {COMMITS_EACH} creations: "
        f"lost {lost}, repeated {repeated}, gaps {gaps}"
    )
    assert (lost, repeated, gaps) == (0, 0, 0)


def test_processes_that_count_at_once_lose_no_update(lake: Path, scoreboard: Record) -> None:
    store = LocalStore(str(lake))
    store.put("head", b"0")

    run_together(COUNT_WITH_TAGS, lake)

    reached = int(store.get("head").payload.split()[0])
    lost = PROCESSES * COMMITS_EACH - reached
    scoreboard(f"R14 local store, {PROCESSES} processes × {COMMITS_EACH} replacements: lost {lost}")
    assert lost == 0
    assert {path.name for path in lake.iterdir()} == {"head", ".lock"}


# Killed processes


def test_a_killed_writer_leaves_no_part_of_an_object(lake: Path, scoreboard: Record) -> None:
    store = LocalStore(str(lake))
    acknowledged: set[str] = set()

    for kill in range(KILLS):
        worker = Worker(WRITE_UNTIL_KILLED, lake, kill)
        worker.start()
        said = [worker.hear() for _ in range(1 + kill % 7)] + worker.kill().split()
        acknowledged |= {f"objects/{kill}-{int(number):06d}" for number in said}

    found = {info.path: store.get(info.path).payload for info in store.list("objects/")}
    lost = len(acknowledged - found.keys())
    torn = sum(not is_whole(content) for content in found.values())
    scoreboard(f"R8 local store, {KILLS} kills: lost {lost} of {len(acknowledged):,}, torn {torn}")
    assert (lost, torn) == (0, 0)
    store.sweep_temporaries(modified_before_ms=1 << 60)
    assert {path.name for path in (lake / "objects").iterdir() if path.name.startswith(".")} == {
        ".lock"
    }
    # The last holder of the directory's lock is dead, and it is free.
    store.put("objects/same", b"x")


def test_a_lock_is_freed_when_its_holder_is_killed(lake: Path) -> None:
    store = LocalStore(str(lake))
    holder = Worker(HOLD_A_LOCK, lake)
    holder.start()
    assert holder.hear() == "held"

    with pytest.raises(Fenced, match="wal/LOCK"):
        store.lock("wal/LOCK")
    holder.kill()

    store.lock("wal/LOCK").release()


def test_a_child_of_the_holder_does_not_keep_the_lock_alive(lake: Path) -> None:
    store = LocalStore(str(lake))
    holder = Worker(HOLD_A_LOCK_AND_FORK, lake)
    holder.start()
    assert holder.hear() == "child lives"
    with pytest.raises(Fenced):
        store.lock("wal/LOCK")

    holder.process.kill()
    holder.process.wait(WAIT_SECONDS)

    # The child still runs: it holds our pipe open until it is told to end.
    store.lock("wal/LOCK").release()
    assert holder.process.communicate(timeout=WAIT_SECONDS)[0] == ""


# Real limits


def test_limits_of_the_process_are_typed_errors_that_leave_nothing(lake: Path) -> None:
    worker = Worker(RUN_INTO_LIMITS, lake)
    worker.start()

    said = worker.end().splitlines()

    assert [line.split(":")[0] for line in said[:-2]] == [
        "large put Unavailable",
        "large file Unavailable",
        "small put worked",
        "put Unavailable",
        "put_if_absent Unavailable",
        "get Unavailable",
        "list Unavailable",
        "delete Unavailable",
        "create Unavailable",
        "lock Unavailable",
    ]
    assert "ulimit -f" in said[0]
    assert all("ulimit -n" in line for line in said[3:-2])
    assert said[-2] == "afterwards worked"
    assert said[-1] == "['.lock', 'after', 'small', 'witness']"


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """Mount a disk of one megabyte, where this user may."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_refuses_writes_and_keeps_what_it_has(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as place:
        store = LocalStore(str(place / "lake"))
        tag = store.put("d/witness", b"unchanged")
        before = {path.name for path in (place / "lake" / "d").iterdir()}

        calls: list[Callable[[], object]] = [
            lambda: store.put("d/x", bytes(2_000_000)),
            lambda: store.put_if_absent("d/x", bytes(2_000_000)),
            lambda: store.put_if_match("d/witness", bytes(2_000_000), tag=tag),
        ]
        for call in calls:
            with pytest.raises(Unavailable, match="space"):
                call()
        # A log reserves its first part at once, and the rest as it is used.
        store.put("filler", bytes(900_000))
        with pytest.raises(Unavailable, match="space"):
            store.create("d/log", preallocate_bytes=2_000_000)
        store.delete("filler")

        assert {path.name for path in (place / "lake" / "d").iterdir()} == before
        assert store.get("d/witness").tag == content_tag(b"unchanged")
        store.put("d/x", bytes(500_000))


def test_a_log_on_a_full_disk_is_poisoned_and_deleting_makes_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as place:
        store = LocalStore(str(place / "lake"))
        file = store.create("wal/log")
        piece = bytes(range(256)) * 100

        def append_for_ever() -> None:
            while True:
                file.append([piece])

        with pytest.raises((Unavailable, OutcomeUnknown)):
            append_for_ever()
        with pytest.raises(Closed):
            file.append([b"x"])
        file.close()

        kept = file.position // len(piece)
        assert kept > 30
        assert store.get("wal/log").payload[: file.position] == piece * kept
        store.delete("wal/log")
        store.put("wal/object", bytes(500_000))


def test_opening_writing_and_closing_a_thousand_times_leaks_nothing(lake: Path) -> None:
    store = LocalStore(str(lake))
    store.put("d/x", b"")
    before = open_descriptors()

    for number in range(1_000):
        again = LocalStore(str(lake))
        lock = again.lock("d/LOCK")
        file = again.create(f"d/{number}")
        file.append([b"x"])
        file.close()
        again.put_if_absent("d/x", b"")
        try:
            again.get("d/missing")
        except NeveError:
            again.delete(f"d/{number}")
        lock.release()

    assert open_descriptors() == before
    assert {path.name for path in (lake / "d").iterdir()} == {"x", "LOCK", ".lock"}


def test_rows_outlive_a_process_that_had_no_calls_of_linux(tmp_path: Path) -> None:
    worker = Worker(LIVE_WITHOUT_LINUX_CALLS, tmp_path, count=1_000)
    worker.start()
    assert worker.hear() == "acknowledged"
    worker.kill()

    with neve.open(tmp_path / "lake") as lake, lake.table("a.b") as table:
        rows = table.scan().to_arrow().sort_by("id").to_pylist()

    assert rows == [
        {"id": number, "name": f"{'flushed' if number % 2 else 'logged'} {number}"}
        for number in range(1_000)
    ]
