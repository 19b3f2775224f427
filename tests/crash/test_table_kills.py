"""Tables whose writers are killed by SIGKILL, over and over, with background work on (R8).

A nursery process forks one writer per kill, so that a kill costs no start of Python. Two threads of
a writer each have keys of their own and follow a fixed list of changes, one after the other; each
change that returned is acknowledged through a pipe. The seed decides the moment of the kill:

    changes of a thread   0 1 2 3 4 5 6 …
    acknowledged          0 1 2 3
    state after reopening that of 0 … 3, or of 0 … 4 when change 4 had reached the log
"""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import IO

import pyarrow as pa

import neve
from neve.testing.clean_reader import CleanReader
from tests.conftest import Record
from tests.crash.killed_writer import (
    CHANGE_KINDS,
    THREADS,
    Place,
    Rows,
    apply_change,
    change_of,
)
from tests.gates import Gate

WAIT_SECONDS = 60
WRITER = "from tests.crash.killed_writer import nursery; nursery()"
COLUMNS: dict[str, pa.DataType] = {
    "thread": pa.int32(),
    "id": pa.string(),
    "stamp": pa.int64(),
    "text": pa.string(),
}
SCHEMA = pa.schema(COLUMNS)


class Nursery:
    """A process that forks writers when it is told to."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        self.output = self._pipe(self.process.stdout)
        self._rest = b""

    def begin(self, place: Place, seed: int, starts: list[int]) -> int:
        """Fork a writer; gives its process id."""
        given = json.dumps(place.storage_options)
        words = [place.location, given, str(seed), *map(str, starts)]
        stdin = self._pipe(self.process.stdin)
        stdin.write("\t".join(words).encode() + b"\n")
        stdin.flush()
        kind, pid = self.hear()
        assert kind == "writer"
        return int(pid)

    def hear(self) -> tuple[str, str]:
        """Wait for a line of a writer or of the nursery."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.output], [], [], WAIT_SECONDS)
            assert ready, "the writer says nothing"
            piece = os.read(self.output.fileno(), 65_536)
            assert piece, "the nursery died"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        kind, _, number = line.decode().partition(" ")
        return kind, number

    def end(self) -> None:
        """End it."""
        self._pipe(self.process.stdin).close()
        self.process.wait(WAIT_SECONDS)
        self.output.close()

    def _pipe(self, pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe


class History:
    """What must be in the table: per thread the rows and how many changes made them."""

    def __init__(self) -> None:
        self.rows: list[Rows] = [{} for _ in range(THREADS)]
        self.counts = [0] * THREADS
        self.acknowledged = 0

    def follow(self, thread: int, done: int, found: Rows) -> bool:
        """Apply the changes that were acknowledged, and the one after them if it is there."""
        rows = self.rows[thread]
        for place in range(done):
            apply_change(rows, change_of(thread, self.counts[thread] + place))
        self.counts[thread] += done
        self.acknowledged += done
        if rows == found:
            return True
        apply_change(rows, change_of(thread, self.counts[thread]))
        self.counts[thread] += 1
        return rows == found


def kill_once(nursery: Nursery, place: Place, seed: int, starts: list[int]) -> list[int]:
    """Let a writer work until a moment that the seed decides; gives what it acknowledged."""
    random = Random(seed)
    moment = random.choice((0, 1, 2, 5, 20, 60, 150))
    done = [0] * THREADS
    pid = nursery.begin(place, seed, starts)
    while sum(done) < moment:
        kind, number = nursery.hear()
        assert kind == "done", f"the writer ended by itself: {kind} {number}"
        done[int(number)] += 1
    os.kill(pid, signal.SIGKILL)
    while True:
        # What it had said before it was killed counts as well.
        kind, number = nursery.hear()
        if kind == "gone":
            assert int(number) == -signal.SIGKILL, f"the writer ended by itself: {number}"
            return done
        assert kind == "done", f"the writer ended by itself: {kind} {number}"
        done[int(number)] += 1


def rows_of(table: neve.Table) -> list[Rows]:
    found: list[Rows] = [{} for _ in range(THREADS)]
    for row in table.scan().to_arrow().to_pylist():
        assert row["id"] not in found[row["thread"]], "one live row per key"
        found[row["thread"]][row["id"]] = (row["stamp"], row["text"])
    return found


def check_by_key(table: neve.Table, expected: list[Rows], random: Random) -> None:
    """Compare reading by key, rows that are there and some that are not, with what must be."""
    keys = [(thread, f"k{random.randrange(400)}") for thread in range(THREADS) for _ in range(8)]
    many = table.get_many(keys, with_missing=True).to_pylist()
    for (thread, name), row in zip(keys, many, strict=True):
        wanted = expected[thread].get(name)
        single = table.get((thread, name))
        assert (None if single is None else (single["stamp"], single["text"])) == wanted
        assert (row["stamp"], row["text"]) == (wanted or (None, None))


def check_every_version(table: neve.Table) -> None:
    stored = table._open.stored
    reader = CleanReader(stored.objects, stored.paths.root, ["thread", "id"])
    for version in stored.versions.each_version_in(stored.versions.store.read()):
        reader.rows(version)


def test_no_kill_loses_an_acknowledged_change_or_leaves_half_of_one(
    tmp_path: Path, scoreboard: Record
) -> None:
    gate = Gate("R8 table, SIGKILLs: lost, phantom or torn", aim=200, full=2_000)
    nursery = Nursery()
    history, lake = History(), tmp_path / "lake-0"
    acknowledged = 0
    try:
        for seed in gate.seeds():
            if seed % 50 == 0:
                acknowledged += history.acknowledged
                history, lake = History(), tmp_path / f"lake-{seed}"
                with neve.open(lake) as catalog:
                    catalog.create_table("a.b", SCHEMA, ["thread", "id"])
            done = kill_once(nursery, Place(str(lake)), seed, history.counts)
            with neve.open(lake) as catalog, catalog.table("a.b") as table:
                found = rows_of(table)
                for thread in range(THREADS):
                    gate.violations += not history.follow(thread, done[thread], found[thread])
                    assert gate.violations == 0, f"seed {seed}, thread {thread}"
                check_by_key(table, history.rows, Random(seed))
                if seed % 10 == 9:
                    table.verify()
                    check_every_version(table)
            gate.cases += 1
    finally:
        nursery.end()
    acknowledged += history.acknowledged
    scoreboard(f"{gate.line()}, {acknowledged:,} acknowledged")
    assert gate.violations == 0


def test_every_kind_of_change_is_among_those_that_are_killed() -> None:
    kinds = {change_of(thread, place)[0] for thread in range(THREADS) for place in range(200)}

    assert kinds == set(CHANGE_KINDS)
