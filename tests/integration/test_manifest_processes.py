"""The manifest store in processes of their own: many at once, killed ones, and paused ones."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import IO, Final

import pytest

from neve.manifest.manifest_store import ManifestStore
from neve.manifest.sessions import WriteSession
from neve.storage.local_store import LocalStore
from tests.conftest import Record
from tests.gates import TORTURE

PROCESSES: Final = 8
COMMITS_EACH: Final = 1_000 if TORTURE else 50
KILLS: Final = 100 if TORTURE else 6
PAUSES: Final = 200 if TORTURE else 12
WAIT_SECONDS: Final = 600 if TORTURE else 120
PREFIX: Final = "manifest/t"
SEGMENTS: Final = f"{PREFIX}/segments/"

PREAMBLE = """
import os, signal, sys
from functools import partial
from neve.errors import Conflict
from neve.manifest.manifest_store import ManifestStore
from neve.storage.local_store import LocalStore
from neve.testing.faulty_store import FaultyStore, Operation

root, me, count, stop_at = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
stops = []

def say(text):
    print(text, flush=True)

def stop(place):
    if place == stop_at and not stops:
        stops.append(place)
        os.kill(os.getpid(), signal.SIGSTOP)

def before_call(call):
    if call.operation is Operation.PUT_IF_ABSENT and "/segments/" in call.path:
        stop("before its segment")
    if call.operation is Operation.PUT_IF_MATCH:
        stop("before HEAD")

def add(marker, session):
    number = int(session.get("counter") or b"0") + 1
    session.put("counter", b"%d" % number)
    session.put(f"mark/{marker}", b"%d" % number)
    stop("after reading")
    return number

store = ManifestStore(FaultyStore(LocalStore(root), before_call=before_call), "manifest/t")
store.read()
say("ready")
sys.stdin.readline()
"""

COUNT_TOGETHER = """
for turn in range(count):
    say(store.transact(partial(add, f"{me}/{turn}")))
    if turn % 10 == int(me) % 10:
        store.checkpoint()
        store.collect_once()
"""

COMMIT_APART = """
for turn in range(count):
    session = store.write()
    session.put(f"own/{me}", b"%d" % (int(session.get(f"own/{me}") or b"0") + 1))
    try:
        store.commit(session)
    except Conflict as conflict:
        say(conflict.keys)
"""

COMMIT_ONCE = """
say(store.transact(partial(add, me)))
"""

COMMIT_BY_HAND = """
session = store.write()
add(me, session)
try:
    say(f"segment {store.commit(session)}")
except Conflict as conflict:
    say(f"conflict {conflict.keys}")
"""


class Worker:
    """A Python process of its own that works on a store."""

    def __init__(
        self, script: str, lake: Path, name: object, count: int = 1, stop_at: str = ""
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + script, str(lake), str(name), str(count), stop_at],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start(self) -> None:
        assert self.hear() == "ready"
        stdin: IO[str] | None = self.process.stdin
        assert stdin is not None
        stdin.write("go\n")
        stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def wait_until_stopped(self) -> None:
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

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


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def add(marker: str, session: WriteSession) -> int:
    number = int(session.get("counter") or b"0") + 1
    session.put("counter", b"%d" % number)
    session.put(f"mark/{marker}", b"%d" % number)
    return number


def marks(store: ManifestStore) -> dict[str, int]:
    """Return each marker's number, after checking that they count without gap or repetition."""
    session = store.open()
    found = {key.removeprefix("mark/"): int(value) for key, value in session.scan("mark/")}
    assert sorted(found.values()) == list(range(1, len(found) + 1))
    assert int(session.get("counter") or b"0") == len(found)
    return found


def run_together(script: str, lake: Path) -> list[str]:
    workers = [Worker(script, lake, name, COMMITS_EACH) for name in range(PROCESSES)]
    for worker in workers:
        worker.start()
    return [worker.end() for worker in workers]


# R14


def test_processes_that_change_the_same_key_lose_repeat_and_skip_nothing(
    lake: Path, scoreboard: Record
) -> None:
    said = run_together(COUNT_TOGETHER, lake)

    store = ManifestStore(LocalStore(str(lake)), PREFIX)
    found = marks(store)
    told = {
        f"{name}/{turn}": int(number)
        for name, lines in enumerate(said)
        for turn, number in enumerate(lines.split())
    }
    total = PROCESSES * COMMITS_EACH
    lost = sum(found.get(marker) != number for marker, number in told.items())
    repeated = len(told) - len(set(told.values()))
    gaps = store.read().segment - total
    scoreboard(
        f"R14 manifest, {PROCESSES} processes × {COMMITS_EACH} commits of one key: "
        f"lost {lost}, repeated {repeated}, gaps {gaps}"
    )
    assert len(told) == len(found) == total
    assert (lost, repeated, gaps) == (0, 0, 0)


def test_processes_that_change_keys_of_their_own_are_never_told_of_a_conflict(
    lake: Path, scoreboard: Record
) -> None:
    conflicts = sum(len(lines.splitlines()) for lines in run_together(COMMIT_APART, lake))

    session = ManifestStore(LocalStore(str(lake)), PREFIX).open()
    counts = {key: int(value) for key, value in session.scan("own/")}
    scoreboard(
        f"R14 manifest, {PROCESSES} processes × {COMMITS_EACH} commits of keys of their own: "
        f"false conflicts {conflicts}"
    )
    assert conflicts == 0
    assert counts == {f"own/{name}": COMMITS_EACH for name in range(PROCESSES)}
    assert session.segment == PROCESSES * COMMITS_EACH


# Killed processes


def test_a_killed_writer_loses_nothing_it_was_told_and_stops_nobody(
    lake: Path, scoreboard: Record
) -> None:
    store = ManifestStore(LocalStore(str(lake)), PREFIX)
    told: dict[str, int] = {}

    for kill in range(KILLS):
        worker = Worker(COUNT_TOGETHER, lake, kill, 1_000_000)
        worker.start()
        heard = [worker.hear() for _ in range(1 + 5 * (kill % 4))]
        numbers = [*heard, *worker.kill().split()]
        told |= {f"{kill}/{turn}": int(number) for turn, number in enumerate(numbers)}
        told[f"between/{kill}"] = store.transact(partial(add, f"between/{kill}"))

    found = marks(store)
    lost = sum(found.get(marker) != number for marker, number in told.items())
    scoreboard(f"R8 manifest, {KILLS} kills: lost {lost} of {len(told):,} acknowledged commits")
    assert lost == 0
    assert len(found) <= len(told) + KILLS  # at most the one that was under way


# R17


def commit_checkpoint_and_collect(store: ManifestStore, turn: int) -> None:
    """Go on without the paused one until its slot is folded and gone."""
    for number in range(3):
        store.transact(partial(add, f"others/{turn}/{number}"))
    assert store.checkpoint()
    assert store.collect_once() >= 3
    assert not list(store.log.objects.list(SEGMENTS))


PLACES: Final = {
    "after reading": ("after reading", COMMIT_ONCE),
    "after reading, by hand": ("after reading", COMMIT_BY_HAND),
    "before its segment": ("before its segment", COMMIT_ONCE),
    "before HEAD": ("before HEAD", COMMIT_ONCE),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_paused_writer_finds_out_what_became_of_its_commit(
    lake: Path, place: str, scoreboard: Record
) -> None:
    stop_at, script = PLACES[place]
    store = ManifestStore(LocalStore(str(lake)), PREFIX)
    store.transact(partial(add, "first"))

    for turn in range(PAUSES // len(PLACES)):
        sleeper = Worker(script, lake, f"sleeper{turn}", stop_at=stop_at)
        sleeper.start()
        sleeper.wait_until_stopped()
        before = len(marks(store))
        commit_checkpoint_and_collect(store, turn)
        sleeper.resume()
        said = sleeper.end().strip()

        found = marks(store)
        number = found.get(f"sleeper{turn}")
        if stop_at == "before HEAD":
            # Its slot was decided before it slept: the others committed behind it.
            assert (said, number) == (str(before), before)
        elif script is COMMIT_BY_HAND:
            assert said == "conflict ('counter',)"
            assert number is None
        else:
            assert (said, number) == (str(before + 4), before + 4)
        assert len(found) == before + 3 + (number is not None and number > before)

    scoreboard(f"R17 manifest writers paused {place}: 0 of {PAUSES // len(PLACES)} misled")
