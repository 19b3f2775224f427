"""Real processes that write to one bucket: killed, paused, and committing side by side."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import neve
from tests.conftest import Record
from tests.crash.killed_writer import THREADS, Place
from tests.crash.test_table_kills import (
    SCHEMA,
    History,
    Nursery,
    check_by_key,
    kill_once,
    rows_of,
)
from tests.gates import TORTURE, Gate, count_of

pytestmark = pytest.mark.s3

BY_HAND = neve.TableOptions(background=False)


@pytest.fixture(params=["moto", "seaweed"])
def place(request: pytest.FixtureRequest, prefix: str) -> Place:
    """Return a lake with one empty table, on either server."""
    if request.param == "moto":
        at, more = request.getfixturevalue("moto").at, {}
    else:
        at, more = request.getfixturevalue("seaweed"), {"listing": "unordered"}
    made = Place(at.location(prefix), at.storage_options(**more))
    with made.opened() as lake:
        lake.create_table("a.b", SCHEMA, ["thread", "id"])
    return made


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.end()


def test_no_kill_loses_an_acknowledged_change_of_a_bucket(
    place: Place, nursery: Nursery, scoreboard: Record, request: pytest.FixtureRequest
) -> None:
    server = request.node.callspec.id
    gate = Gate(f"R8 bucket ({server}), SIGKILLs: lost, phantom or torn", 200, 2_000)
    history = History()
    for seed in gate.seeds():
        done = kill_once(nursery, place, seed, history.counts)
        with place.opened() as lake, lake.table("a.b", options=BY_HAND) as table:
            found = rows_of(table)
            for thread in range(THREADS):
                gate.violations += not history.follow(thread, done[thread], found[thread])
            assert gate.violations == 0, f"seed {seed}"
            if seed % 10 == 0:
                check_by_key(table, history.rows, Random(seed))
                table.verify()
        gate.cases += 1
    scoreboard(f"{gate.line()}, {history.acknowledged:,} acknowledged")


def paused_once(
    nursery: Nursery, place: Place, seed: int, history: History
) -> tuple[list[int], list[dict[str, tuple[int, str]]]]:
    """Stop a writer, take over, and let it go on; return what it acknowledged, and the rows."""
    done = [0] * THREADS
    pid = nursery.begin(place, seed, history.counts)
    # After a change, the writer has the table open.
    moment = Random(seed).choice((1, 2, 5, 20, 60))
    while sum(done) < moment:
        kind, number = nursery.hear()
        assert kind == "done", f"the writer ended by itself: {kind} {number}"
        done[int(number)] += 1
    os.kill(pid, signal.SIGSTOP)
    try:
        with place.opened() as lake, lake.table("a.b", options=BY_HAND) as table:
            found = rows_of(table)
    finally:
        os.kill(pid, signal.SIGCONT)
    while True:
        # It meets a fence, and every thread of it ends.
        kind, number = nursery.hear()
        if kind == "gone":
            return done, found
        if kind == "done":
            done[int(number)] += 1
        else:
            assert any(each in number for each in ("Fenced", "Closed", "OutcomeUnknown")), number


def test_a_writer_that_was_stopped_acknowledges_nothing_after_a_takeover(
    place: Place, nursery: Nursery, scoreboard: Record, request: pytest.FixtureRequest
) -> None:
    server = request.node.callspec.id
    gate = Gate(f"R17 bucket ({server}), stopped writers, rows after a takeover", 10, 200)
    history = History()
    for seed in gate.seeds():
        done, found = paused_once(nursery, place, seed, history)
        for thread in range(THREADS):
            gate.violations += not history.follow(thread, done[thread], found[thread])
        assert gate.violations == 0, f"seed {seed}"
        gate.cases += 1
    with place.opened() as lake, lake.table("a.b", options=BY_HAND) as table:
        assert rows_of(table) == history.rows
        table.verify()
    scoreboard(gate.line())


COMMITTERS = "from tests.integration.test_bucket_processes import commit_side_by_side as run; run()"
PROCESSES = 8


def commit_side_by_side() -> None:
    """Fork processes that each commit batches of their own keys to the table."""
    location, given, commits = sys.argv[1:]
    place = Place(location, json.loads(given))
    children = []
    for process in range(PROCESSES):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                commit_batches(place, process, int(commits))
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    sys.exit(max(codes))


def commit_batches(place: Place, process: int, commits: int) -> None:
    lake = place.opened()
    for number in range(commits):
        row = {"thread": process, "id": f"k{number}", "stamp": number, "text": "own"}
        common = {"thread": -1, "id": f"k{number}", "stamp": process, "text": "common"}
        # A retry commits the same job once.
        for _ in range(2):
            with lake.bulk("a.b", job_id=f"{process}-{number}", upkeep=False) as job:
                job.upsert([row, common])


def test_processes_that_commit_side_by_side_lose_and_double_nothing(
    place: Place, scoreboard: Record, request: pytest.FixtureRequest
) -> None:
    commits = count_of(gate=2, full=200)
    with place.opened() as lake, lake.table("a.b", options=BY_HAND) as table:
        before = table.version
        subprocess.run(
            [sys.executable, "-c", COMMITTERS, place.location, json.dumps(place.storage_options),
             str(commits)],
            check=True,
            timeout=3_600 if TORTURE else 300,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        # The live writer was there all the time, and goes on.
        table.put({"thread": 99, "id": "live", "stamp": 0, "text": "live"})
        table.flush()
        found = table.scan().to_arrow().to_pylist()
        after = table.version
        table.verify()

    expected = Counter(f"{process} k{number}" for process in range(PROCESSES)
                       for number in range(commits))  # fmt: skip
    expected += Counter(f"-1 k{number}" for number in range(commits))
    expected["99 live"] = 1
    counted = Counter(f"{row['thread']} {row['id']}" for row in found)
    wrong = sum(((expected - counted) + (counted - expected)).values())
    made = after - before - 1
    server = request.node.callspec.id
    scoreboard(
        f"R15 bucket ({server}), {PROCESSES} processes × {commits} commits: {wrong} rows lost or "
        f"doubled, {made - PROCESSES * commits} commits lost or doubled"
    )
    assert wrong == 0
    assert made == PROCESSES * commits
