"""TableSession: the stores of the table benchmarks, each in a process, with their tables.

    sample      rows, made once
    loaded      a table per store, filled on first use
    updated     the same after a tenth of its rows was replaced
    unclosed    what the disk holds of a table with unflushed rows whose process is gone

Filling takes longer than most of what is measured, so workloads share these tables and nobody
changes them: what writes gets a copy.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, cast

from benchmarks.harness import Candidate, Kind, Outcome, Stopwatch, Trial
from benchmarks.peer_environment import PEERS, PYPAIMON, PeerEnvironment
from benchmarks.peer_process import PeerProcess, measured_together
from benchmarks.peers.table_calls import Reply
from benchmarks.table_sample import ROW_BYTES, SMALL_SHARE, TableSample

BATCH_ROWS: Final = 10_000
_ANSWER_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePeer:
    """A store that takes part, and how much it is given to do."""

    name: str
    module: str
    lives_in: str | None = None
    """Which environment of the peers it is in; None is neve's own."""
    is_movable: bool = True
    """Whether a copy of its directory is a table too."""
    small: bool = False
    """Whether it holds only one row in SMALL_SHARE."""
    load_share: int = 1
    """Rows that it is loaded with under the clock: one in so many."""
    gets: int = 20_000
    first_gets: int = 1_000
    sync: str = "each batch"
    """What is on the disk for sure when a call that writes a batch returns."""


NEVE: Final = TablePeer(name="neve", module="table_neve")
ROCKSDB: Final = TablePeer(name="RocksDB", module="table_rocksdb")
LMDB: Final = TablePeer(name="LMDB", module="table_lmdb")
SQLITE: Final = TablePeer(name="SQLite", module="table_sqlite", load_share=5)
DUCKDB: Final = TablePeer(name="DuckDB", module="table_duckdb", gets=500, first_gets=100)
SLATEDB: Final = TablePeer(
    name="SlateDB",
    module="table_slatedb",
    lives_in=PEERS,
    small=True,
    load_share=50,
    gets=500,
    first_gets=100,
    sync="never",
)
DELTA: Final = TablePeer(
    name="delta-rs", module="table_delta", lives_in=PEERS, gets=40, first_gets=10, sync="never"
)
PYICEBERG: Final = TablePeer(
    name="PyIceberg",
    module="table_pyiceberg",
    lives_in=PEERS,
    is_movable=False,
    gets=4,
    first_gets=3,
)
PAIMON: Final = TablePeer(
    name="pypaimon",
    module="table_pypaimon",
    lives_in=PYPAIMON,
    gets=40,
    first_gets=10,
    sync="data files only",
)
DUCKLAKE: Final = TablePeer(
    name="DuckLake",
    module="table_ducklake",
    lives_in=PEERS,
    load_share=5,
    gets=100,
    first_gets=10,
    sync="catalog only",
)
ALL_PEERS: Final = (ROCKSDB, LMDB, SQLITE, DUCKDB, SLATEDB, DELTA, PYICEBERG, PAIMON, DUCKLAKE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScale:
    """How much work the table benchmarks do."""

    rows: int
    unflushed_rows: int
    put_seconds: float
    synced_seconds: float
    read_seconds: float
    """How long short reads are repeated."""
    growth_rows: Sequence[int]
    """Sizes of the tables whose growth is looked at."""
    growth_columns: Sequence[int]
    """Numbers of columns of the tables whose growth is looked at, the key among them."""
    growth_files: Sequence[int] = ()
    """Numbers of files of the tables whose growth is looked at."""


def _environment(name: str) -> PeerEnvironment:
    return PeerEnvironment(name=name)


@dataclass(eq=False)
class TableSession:
    """Everything that workloads share; close it in the end."""

    directory: Path
    scale: TableScale
    chosen: Sequence[TablePeer] = ALL_PEERS
    environment: Callable[[str], PeerEnvironment] = _environment

    def __post_init__(self) -> None:
        self._processes: dict[str, PeerProcess] = {}
        self._ready: set[Path] = set()
        self.loads: dict[str, list[Reply]] = {}
        self._ending = ExitStack()

    def close(self) -> None:
        """End every process and remove every table."""
        self._ending.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    @cached_property
    def sample(self) -> TableSample:
        """Rows that everybody is given."""
        self.directory.mkdir(parents=True, exist_ok=True)
        return TableSample.make(self.directory / "sample", self.scale.rows)

    def peers(self, *wanted: TablePeer) -> list[TablePeer]:
        """Return those who can take part."""
        return [peer for peer in wanted if peer in self.chosen and self.has_home(peer)]

    def has_home(self, peer: TablePeer) -> bool:
        """Whether the environment of a peer is there."""
        return peer.lives_in is None or self.environment(peer.lives_in).is_ready()

    def rows_of(self, peer: TablePeer) -> int:
        """Rows that a peer's table is loaded with."""
        return max(self.scale.rows // (SMALL_SHARE if peer.small else 1), 1)

    # Asking

    def ask(self, peer: TablePeer, call: str, **arguments: object) -> object:
        """Ask a peer's process; it is started when it is asked first."""
        process = self._processes.get(peer.name)
        if process is None:
            process = PeerProcess(
                f"benchmarks.peers.{peer.module}",
                python=self.environment(peer.lives_in).python if peer.lives_in else None,
                answer_seconds=_ANSWER_SECONDS,
            )
            self._processes[peer.name] = process
            self._ending.callback(process.close)
        return process.ask(call, **arguments)

    def timed(self, stopwatch: Stopwatch, peer: TablePeer, call: str, **arguments: object) -> Reply:
        """Ask for something that the peer times, and take its time."""
        reply = cast("Reply", self.ask(peer, call, **arguments))
        stopwatch.take(measured_together([reply["timed"]]))
        return reply

    # Tables

    def loaded(self, peer: TablePeer, kind: str = "plain") -> Path:
        """Return the directory of a loaded table, for as long as nobody writes there."""
        place = self.directory / "loaded" / f"{peer.name}-{kind}"
        if place not in self._ready:
            rows = self.rows_of(peer)
            self._make(place, peer, kind, "load", rows=rows, batch_rows=BATCH_ROWS)
        return place

    def updated(self, peer: TablePeer, kind: str = "plain") -> Path:
        """Return the directory of an updated table, for as long as nobody writes there."""
        place = self.directory / "updated" / f"{peer.name}-{kind}"
        if place not in self._ready:
            rows = self.rows_of(peer)
            self._make(place, peer, kind, "load", rows=rows, batch_rows=BATCH_ROWS)
            self._make(place, peer, kind, "update", batch_rows=BATCH_ROWS)
        return place

    def unclosed(self, peer: TablePeer) -> Path:
        """Return the directory of a table that was not closed."""
        place = self.directory / "unclosed" / peer.name
        if place not in self._ready:
            living = self.directory / "living" / peer.name
            living.mkdir(parents=True)
            self.ask(
                peer,
                "leave_unclosed",
                directory=str(living),
                image=str(place),
                kind="plain",
                sample=str(self.sample.directory),
                rows=self.scale.unflushed_rows,
                batch_rows=BATCH_ROWS,
            )
            shutil.rmtree(living)
            self._ready.add(place)
        return place

    def copy(self, peer: TablePeer, to: Path, kind: str = "plain") -> Path:
        """Return a writer's own copy of a loaded table."""
        place = to / "table"
        if peer.is_movable:
            shutil.copytree(self.loaded(peer, kind), place)
            # Nobody reads the copy, whoever has the original open.
            for lease in place.glob("manifest/version/*/leases/*"):
                lease.unlink()
        else:
            rows = self.rows_of(peer)
            self._make(place, peer, kind, "load", rows=rows, batch_rows=BATCH_ROWS)
        return place

    def _make(
        self, place: Path, peer: TablePeer, kind: str, call: str, **arguments: object
    ) -> None:
        place.mkdir(parents=True, exist_ok=True)
        sample = str(self.sample.directory)
        self.ask(peer, call, directory=str(place), kind=kind, sample=sample, **arguments)
        self._ready.add(place)


def candidate(
    peer: TablePeer, trial: Trial, *, detail: str = "", sync: str = "", kind: Kind | None = None
) -> Candidate:
    """Name a candidate after its peer."""
    return Candidate(
        name=f"{peer.name}, {detail}" if detail else peer.name,
        kind=kind or (Kind.NEVE if peer is NEVE else Kind.PEER),
        trial=trial,
        sync=sync,
    )


def outcome(reply: Reply, expected: str, *, facts: Mapping[str, float] | None = None) -> Outcome:
    """Return what a timed call did, beside what it should have done."""
    return Outcome(
        rows=reply["rows"],
        calls=reply["calls"],
        logical_bytes=reply["rows"] * ROW_BYTES,
        answer=reply["answer"],
        expected=expected,
        latencies_ns=reply["latencies_ns"],
        facts={**reply["facts"], **(facts or {})},
    )


def left_out(session: TableSession) -> Sequence[str]:
    """Say who did not take part, and why."""
    missing: dict[str, list[str]] = {}
    for peer in session.chosen:
        if peer.lives_in is not None and not session.has_home(peer):
            missing.setdefault(peer.lives_in, []).append(peer.name)
    return [
        f"{', '.join(names)} did not take part: `.venv-{home}` could not be made."
        for home, names in missing.items()
    ]
