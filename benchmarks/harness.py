"""Runs the candidates of a workload beside each other and checks what they answer.

Steps of a run, for each round and then each candidate, in an order drawn again every round:

1. let the disk come to rest, make an empty directory, collect garbage
2. run the trial: it prepares, does its timed part under the stopwatch, and reads back what it did
3. compare the answer with the expectation; a wrong one ends the whole run
4. remove the directory

H1  Every candidate runs once in a round before any runs in the next: what slows the machine down
    for a while slows them all.
H2  No number comes from a trial whose answer was not compared with something made independently.
H3  Only the part under the stopwatch counts: wall time, CPU time of all threads and of children,
    and bytes handed to the operating system. A part that runs in other processes is measured there
    by the same rules.
"""

import gc
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from statistics import median
from types import TracebackType
from typing import Final, Self

import numpy as np

from benchmarks.process_usage import cpu_seconds, written_bytes
from benchmarks.result_file import (
    CandidateRecord,
    Pace,
    RatioRecord,
    RoundRecord,
    WorkloadRecord,
    compare_candidates,
    compare_with_time,
    pace_of,
    summarize_candidate,
)

SEED: Final = 20_261
ROUNDS_MIN: Final = 3
_PERCENTILES: Final = (50, 95, 99)

BEST_PEER: Final = "best peer"
"""In the place of a candidate's name: the peer with the best median, known when all have run."""
FIXED_TIME: Final = "fixed time"
"""In the place of a candidate's name: a time that the design sets."""


class BadTrial(Exception):
    """A trial that measured nothing, or that gave a wrong answer."""


class Kind(StrEnum):
    """What a candidate is compared as."""

    NEVE = "neve"
    PEER = "peer"
    LIMIT = "limit"
    """The same bytes without a database: what the machine allows."""


class Shows(StrEnum):
    """Which number of a workload people look at first."""

    RATE = "rate"
    SECONDS = "seconds"
    MEGABYTES = "megabytes"
    """The fact of that name; how long it took to get there is of no interest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A timed part that ran in other processes."""

    wall_seconds: float
    cpu_seconds: float
    written_bytes: int | None


class Stopwatch:
    """Measures the one block of a trial that counts."""

    def __init__(self) -> None:
        self.wall_seconds: float | None = None
        self.cpu_seconds = 0.0
        self.written_bytes: int | None = None
        self._wall_began = 0.0
        self._cpu_began = 0.0
        self._written_before: int | None = None

    def __enter__(self) -> Self:
        if self.wall_seconds is not None:
            raise BadTrial("the stopwatch was started twice")
        self._written_before = written_bytes()
        self._cpu_began = cpu_seconds()
        self._wall_began = time.perf_counter()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.wall_seconds = time.perf_counter() - self._wall_began
        self.cpu_seconds = cpu_seconds() - self._cpu_began
        written_after = written_bytes()
        if written_after is not None and self._written_before is not None:
            self.written_bytes = written_after - self._written_before

    def take(self, elsewhere: Measured) -> None:
        """Take over what other processes measured, instead of a block of this one."""
        if self.wall_seconds is not None:
            raise BadTrial("the stopwatch was started twice")
        self.wall_seconds = elsewhere.wall_seconds
        self.cpu_seconds = elsewhere.cpu_seconds
        self.written_bytes = elsewhere.written_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a trial did in its timed part, and the answer that shows that it did."""

    rows: int
    calls: int
    logical_bytes: int
    answer: object
    expected: object
    """Equal to the answer, but never the same object: that would check nothing."""
    latencies_ns: Sequence[int] = ()
    facts: Mapping[str, float] = field(default_factory=dict)


Trial = Callable[[Path, Stopwatch], Outcome]
"""Prepares in an empty directory, works under the stopwatch, reads back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One who takes part in a workload."""

    name: str
    kind: Kind
    trial: Trial
    sync: str = ""
    """When what it writes is durable; empty where nothing is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A comparison to report: how many times as fast `of` is as `to`."""

    of: str
    to: str
    target: float | None = None
    """What the design asks for, at least."""
    by: Pace = Pace.RATE
    among: Sequence[str] = ()
    """With BEST_PEER: who counts; every peer when empty."""
    seconds: float | None = None
    """With FIXED_TIME: how long a row may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The same job for several candidates."""

    name: str
    sentence: str
    unit: str
    candidates: Sequence[Candidate]
    ratios: Sequence[Ratio] = ()
    parameters: Mapping[str, str | int | float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    shows: Shows = Shows.RATE
    uses_disk: bool = True
    rounds_factor: int = 1
    """Rounds for each one asked for: a restless disk is met with many short ones."""
    rounds_max: int | None = None
    """Never more rounds than this: what takes long, and what a clock does not decide."""
    release: Callable[[], None] = lambda: None
    """Called once when the run is over, however it ended: ends the processes of the candidates."""

    def __post_init__(self) -> None:
        names = [candidate.name for candidate in self.candidates]
        compared = {
            name
            for ratio in self.ratios
            for name in (ratio.of, ratio.to, *ratio.among)
            if name not in {BEST_PEER, FIXED_TIME}
        }
        if len(set(names)) != len(names) or not compared <= set(names):
            raise ValueError(f"{self.name}: candidates {names} do not fit the ratios {compared}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much work a run does."""

    rows: int
    """Rows written or read one at a time."""
    batches: int
    replay_batches: int
    batch_rows: int
    synced_seconds: float
    """Length of the timed part where every row waits for the disk."""
    keys: int
    """Keys encoded at once."""
    starts: int
    """Processes started in one trial."""
    commits: int = 8
    """Commits to a new table, by all committers together; a multiple of eight."""
    growth_commits: int = 8
    """Commits to a table that has files already."""
    table_files: int = 100
    """Files of a large table."""
    versions: int = 32
    """Versions behind a table that is opened."""


FULL: Final = Scale(
    rows=200_000,
    batches=50,
    replay_batches=100,
    batch_rows=10_000,
    synced_seconds=0.2,
    keys=1_000_000,
    starts=3,
    commits=32,
    growth_commits=128,
    table_files=10_000,
    versions=10_000,
)
QUICK: Final = Scale(
    rows=20_000,
    batches=5,
    replay_batches=5,
    batch_rows=10_000,
    synced_seconds=0.05,
    keys=100_000,
    starts=1,
    commits=16,
    growth_commits=32,
    table_files=1_000,
    versions=500,
)

BuildWorkload = Callable[[Scale, Path], Workload]
"""Prepares the sample of a workload; the directory stays until the workload is over."""

Progress = Callable[[str], None]
Settle = Callable[[], None]


def run_workload(
    workload: Workload,
    *,
    rounds: int,
    directory: Path,
    progress: Progress,
    settle: Settle = os.sync,
    seed: int = SEED,
    rounds_min: int = ROUNDS_MIN,
) -> WorkloadRecord:
    """Run every round of a workload inside `directory`; raises BadTrial for a wrong answer.

    `settle` is called before each trial that uses the disk, to leave it nothing else to do. The
    workload is released at the end, so it runs once.
    """
    try:
        if rounds < rounds_min:
            raise ValueError(f"{rounds} rounds say nothing about the spread; use {rounds_min}+")
        # The sample is millions of objects: the collector would walk them in every timed part.
        gc.collect()
        gc.freeze()
        measured = _run_rounds(
            workload,
            round_count=_round_count(workload, rounds),
            directory=directory / "trial",
            progress=progress,
            settle=settle,
            shuffle=Random(seed).shuffle,
        )
    finally:
        gc.unfreeze()
        workload.release()
    candidates = [
        summarize_candidate(
            candidate.name,
            kind=candidate.kind,
            sync=candidate.sync,
            rounds=measured[candidate.name],
        )
        for candidate in workload.candidates
    ]
    return WorkloadRecord(
        name=workload.name,
        sentence=workload.sentence,
        unit=workload.unit,
        shows=workload.shows,
        parameters=dict(workload.parameters),
        notes=list(workload.notes),
        candidates=candidates,
        ratios=_compare(workload.ratios, candidates),
    )


def _run_rounds(
    workload: Workload,
    *,
    round_count: int,
    directory: Path,
    progress: Progress,
    settle: Settle,
    shuffle: Callable[[list[Candidate]], None],
) -> dict[str, list[RoundRecord]]:
    measured: dict[str, list[RoundRecord]] = {
        candidate.name: [] for candidate in workload.candidates
    }
    order = list(workload.candidates)
    for number in range(1, round_count + 1):
        shuffle(order)
        for candidate in order:
            if workload.uses_disk:
                settle()
            record = _run_trial(workload.name, candidate, directory)
            measured[candidate.name].append(record)
            rate = record["rows"] / record["wall_seconds"]
            progress(
                f"{workload.name}  round {number}/{round_count}  {candidate.name}: "
                f"{rate:,.0f} {workload.unit}/s"
            )
    return measured


def _round_count(workload: Workload, rounds: int) -> int:
    count = rounds * workload.rounds_factor
    return count if workload.rounds_max is None else min(count, workload.rounds_max)


def _compare(ratios: Sequence[Ratio], candidates: Sequence[CandidateRecord]) -> list[RatioRecord]:
    by_name = {candidate["name"]: candidate for candidate in candidates}
    compared = []
    for ratio in ratios:
        of = by_name[ratio.of]
        if ratio.seconds is not None:
            compared.append(compare_with_time(of, ratio.seconds))
            continue
        to = _best_peer(ratio, candidates) if ratio.to == BEST_PEER else by_name[ratio.to]
        record = compare_candidates(of, to, target=ratio.target, by=ratio.by)
        if ratio.to == BEST_PEER:
            record["to"] = f"{to['name']} ({BEST_PEER})"
        compared.append(record)
    return compared


def _best_peer(ratio: Ratio, candidates: Sequence[CandidateRecord]) -> CandidateRecord:
    peers = [one for one in candidates if one["kind"] == Kind.PEER]
    return max(
        (one for one in peers if not ratio.among or one["name"] in ratio.among),
        key=lambda one: median(pace_of(measured, ratio.by) for measured in one["rounds"]),
    )


def _run_trial(workload: str, candidate: Candidate, directory: Path) -> RoundRecord:
    directory.mkdir()
    try:
        stopwatch = Stopwatch()
        gc.collect()
        outcome = candidate.trial(directory, stopwatch)
    finally:
        shutil.rmtree(directory)
    return _checked(f"{workload}, {candidate.name}", stopwatch, outcome)


def _checked(who: str, stopwatch: Stopwatch, outcome: Outcome) -> RoundRecord:
    if stopwatch.wall_seconds is None:
        raise BadTrial(f"{who}: nothing was timed")
    if outcome.rows < 1 or outcome.calls < 1:
        raise BadTrial(f"{who}: nothing was done in the timed part")
    if outcome.answer is outcome.expected:
        raise BadTrial(f"{who}: the answer was compared with itself")
    if outcome.answer != outcome.expected:
        raise BadTrial(f"{who}: what was read back is not what was written")
    return RoundRecord(
        rows=outcome.rows,
        calls=outcome.calls,
        logical_bytes=outcome.logical_bytes,
        wall_seconds=stopwatch.wall_seconds,
        cpu_seconds=stopwatch.cpu_seconds,
        written_bytes=stopwatch.written_bytes,
        latency_us=_percentiles_us(outcome.latencies_ns),
        facts=dict(outcome.facts),
    )


def _percentiles_us(latencies_ns: Sequence[int]) -> dict[str, float]:
    if not latencies_ns:
        return {}
    values = np.percentile(np.asarray(latencies_ns), _PERCENTILES) / 1e3
    return {
        f"p{percentile}": float(value)
        for percentile, value in zip(_PERCENTILES, values, strict=True)
    }
