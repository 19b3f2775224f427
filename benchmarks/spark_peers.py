"""SparkPeers: libraries that merge the same changes into the same rows, without Spark.

    <module>-kept/   a peer's table of all rows, as it was loaded
    <module>/        where it works: put back from the kept one before each trial, outside the clock

A table is put back to where it was made, because Iceberg's metadata names its files by absolute
paths. Each peer is a process in the peers' environment, and measures itself.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypedDict, cast

from benchmarks.harness import Candidate, Kind, Outcome, Stopwatch
from benchmarks.peer_environment import PeerEnvironment
from benchmarks.peer_process import PeerProcess, measured_together
from benchmarks.peers.json_lines import TimedPart

_ANSWER_SECONDS: Final = 1_800.0
LEFT_OUT: Final = "delta-rs and PyIceberg did not take part: `.venv-peers` could not be made."


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPeer:
    """A library, and the way in which it merges."""

    name: str
    module: str
    way: str
    sync: str


DELTA: Final = SparkPeer(name="delta-rs merge", module="spark_delta", way="merge", sync="never")
PYICEBERG: Final = SparkPeer(
    name="PyIceberg overwrite", module="spark_pyiceberg", way="overwrite", sync="catalog only"
)
PYICEBERG_UPSERT: Final = SparkPeer(
    name="PyIceberg upsert", module="spark_pyiceberg", way="upsert", sync="catalog only"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """What everybody who merges is given, and what the table must be afterwards."""

    base: Path
    """Rows of the table, as Parquet files."""
    changes: Path
    changed_rows: int
    row_bytes: int
    expected: tuple[int, int, int]
    """Rows, sum of stamps, sum of ids."""


class _MergeReply(TypedDict):
    timed: TimedPart
    answer: list[int]


class SparkPeers:
    """The processes and the tables of the peers; close it in the end."""

    def __init__(self, directory: Path, environment: PeerEnvironment) -> None:
        self._directory = directory
        self._environment = environment
        self._processes: dict[str, PeerProcess] = {}

    def close(self) -> None:
        """End every process; one that is asked again is started again."""
        while self._processes:
            self._processes.popitem()[1].close()

    def is_ready(self) -> bool:
        """Whether the environment of the peers is there."""
        return self._environment.is_ready()

    def candidates(self, merging: Merging, *wanted: SparkPeer) -> Sequence[Candidate]:
        """Return those who take part; nobody without their environment."""
        if not self.is_ready():
            return ()
        return [
            Candidate(
                name=peer.name,
                kind=Kind.PEER,
                trial=partial(self._merge, peer=peer, merging=merging),
                sync=peer.sync,
            )
            for peer in wanted
        ]

    def _merge(
        self, _directory: Path, stopwatch: Stopwatch, *, peer: SparkPeer, merging: Merging
    ) -> Outcome:
        place = self._put_back(peer, merging.base)
        changes = str(merging.changes)
        found = self._ask(peer, "merge", directory=str(place), changes=changes)
        reply = cast("_MergeReply", found)
        stopwatch.take(measured_together([reply["timed"]]))
        return Outcome(
            rows=merging.changed_rows,
            calls=1,
            logical_bytes=merging.changed_rows * merging.row_bytes,
            answer=tuple(reply["answer"]),
            expected=merging.expected,
        )

    def _put_back(self, peer: SparkPeer, base: Path) -> Path:
        """Return the place of a table of all rows that nobody has changed."""
        place = self._directory / peer.module
        kept = self._directory / f"{peer.module}-kept"
        shutil.rmtree(place, ignore_errors=True)
        if not kept.exists():
            place.mkdir(parents=True)
            self._ask(peer, "load", directory=str(place), rows=str(base))
            place.rename(kept)
        shutil.copytree(kept, place)
        return place

    def _ask(self, peer: SparkPeer, call: str, **arguments: object) -> object:
        process = self._processes.get(peer.module)
        if process is None:
            process = PeerProcess(
                f"benchmarks.peers.{peer.module}",
                python=self._environment.python,
                answer_seconds=_ANSWER_SECONDS,
            )
            self._processes[peer.module] = process
        return process.ask(call, way=peer.way, **arguments)
