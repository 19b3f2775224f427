"""A change feed through every way of writing, beside each other, with killed processes.

After each life of the feed, both tables equal an oracle that is a plain dict, as neve reads them
and as PyIceberg and DuckDB do. In each life the writer is killed by SIGKILL once, sometimes the
process beside it as well; both go on with the first chunk that was not acknowledged.
"""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import neve
from tests.conftest import Record
from tests.gates import Gate
from tests.integration.change_feeds import (
    ALONE,
    BESIDE,
    EVENTS_PER_LIFE,
    LIVE,
    OPTIONS,
    ORDERS,
    TOTALS,
    Orders,
    Totals,
    arrived,
    chunks_of,
    create_tables,
    follow_orders,
    follow_totals,
)
from tests.interop.iceberg_readers import open_duckdb, read_pyiceberg

WAIT_SECONDS = 120
NURSERY = "from tests.integration.change_feeds import nursery; nursery()"
SEED = 0


class Worker:
    """A process that brings the chunks of its ways into the tables, and is killed now and then."""

    def __init__(self, role: str, lake: Path) -> None:
        self.role, self.lake = role, lake
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        self._rest = b""
        self.pid = 0
        self.last = -1
        """The last chunk that was acknowledged."""

    def begin(self, life: int) -> None:
        """Begin with the first chunk of a life that was not acknowledged."""
        assert self.process.stdin is not None
        words = [self.role, str(self.lake), str(SEED), str(life), str(self.last)]
        self.process.stdin.write("\t".join(words).encode() + b"\n")
        self.process.stdin.flush()
        kind, number = self._hear()
        assert kind == "worker"
        self.pid = int(number)

    def work(self, chunks: int | None = None) -> bool:
        """Wait for some chunks, or for all; return whether there may be more."""
        done = 0
        while chunks is None or done < chunks:
            kind, number = self._hear()
            if kind == "gone":
                assert int(number) == 0, f"the {self.role} worker ended with {number}"
                return False
            assert kind == "done", f"{self.role}: {kind} {number}"
            self.last = int(number)
            done += 1
        return True

    def kill(self) -> bool:
        """End it at once; what it had said before counts. False when it had ended by itself."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        while True:
            kind, number = self._hear()
            if kind == "gone":
                assert int(number) in (-signal.SIGKILL, 0)
                return int(number) != 0
            assert kind == "done", f"{self.role}: {kind} {number}"
            self.last = int(number)

    def _hear(self) -> tuple[str, str]:
        output = self.process.stdout
        assert output is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([output], [], [], WAIT_SECONDS)
            assert ready, f"the {self.role} worker says nothing"
            piece = os.read(output.fileno(), 65_536)
            assert piece, "the nursery died"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        kind, _, number = line.decode().partition(" ")
        return kind, number

    def end(self) -> None:
        """End the process that forks."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(WAIT_SECONDS)
        finally:
            self.process.stdout.close()


def live_through(life: int, live: Worker, beside: Worker) -> int:
    """Bring one life of the feed into the tables; return how many processes were killed."""
    random = Random(f"kills {SEED} {life}")
    chunks = chunks_of(SEED, life)
    count = sum(chunk.way in LIVE for chunk in chunks)
    live.begin(life)
    beside.begin(life)
    kills = 0
    if live.work(random.randrange(count)):
        kills += live.kill()
    if random.random() < 0.4 and beside.work(random.randrange(3)):
        kills += beside.kill()
        beside.begin(life)
    for chunk in chunks:
        if chunk.way in ALONE:
            ALONE[chunk.way](live.lake, chunk)
    live.begin(life)
    live.work()
    beside.work()
    return kills


def check(lake: Path, orders: Orders, totals: Totals, folder: Path) -> None:
    """Compare both tables with the oracle, in neve and in other engines."""
    live = [row for _, row in orders.values() if row is not None]
    expected = {
        ORDERS: sorted(live, key=lambda row: str(row["id"]).zfill(9)),
        TOTALS: [totals[key] for key in sorted(totals)],
    }
    with neve.open(lake) as catalog, open_duckdb(folder) as duckdb:
        for name, rows in expected.items():
            with catalog.table(name, options=OPTIONS) as table:
                found = table.scan().to_arrow().sort_by("id").to_pylist()
                assert [each["id"] for each in found] == [each["id"] for each in rows]
                assert found == rows
                table.flush()
                assert table.scan().to_arrow().sort_by("id").to_pylist() == rows
                location = table.iceberg_metadata()
                assert not table.verify().problems
            assert read_pyiceberg(location, None) == rows
            assert duckdb.read(location, None) == rows


def test_every_way_leads_to_what_the_oracle_says(tmp_path: Path, scoreboard: Record) -> None:
    gate = Gate(
        "R12 change feed, killed writers: events unlike the oracle", aim=50_000, full=1_000_000
    )
    lake = tmp_path / "lake"
    with neve.open(lake) as catalog:
        create_tables(catalog)
    orders: Orders = {}
    totals: Totals = {}
    kills = 0
    live, beside = Worker("live", lake), Worker("beside", lake)
    try:
        for life in gate.seeds():
            kills += live_through(life, live, beside)
            events = arrived(SEED, life)
            follow_orders(orders, events)
            follow_totals(totals, events)
            check(lake, orders, totals, tmp_path / "duckdb")
            gate.cases += len(events)
    finally:
        live.end()
        beside.end()
    scoreboard(f"{gate.line()}, {kills} kills")


def test_a_feed_takes_every_way_and_has_what_makes_feeds_hard() -> None:
    events = arrived(SEED, 1)
    newest: dict[int, int] = {}
    late = early = 0
    for event in events:
        before = newest.get(event.key, -1)
        late += not event.is_delete and event.lsn < before
        early += event.is_delete and event.lsn > before and event.key not in newest
        newest[event.key] = max(before, event.lsn)

    assert {chunk.way for chunk in chunks_of(SEED, 1)} == {*LIVE, *BESIDE, *ALONE}
    assert len(events) > len(set(events)) > EVENTS_PER_LIFE
    assert min(late, early) > 100
