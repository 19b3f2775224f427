"""The JSON file of one run: everything a page or a later comparison needs.

    run
    ├── format, suite, date, command, seed, rounds, quick, seconds
    ├── environment       machine, versions, commit; never a path or a host name
    ├── load_before, load_after
    └── workloads[]
        ├── name, sentence, unit, shows, parameters, notes
        ├── candidates[]  name, kind, sync, rounds[] as measured, and their medians and spread
        └── ratios[]      of, to, by, rounds[] (pairs of one round), by wall and by CPU time, target

Rates are rows (keys, starts) per second of wall time. A spread is the smallest and the largest of
the rounds. Numbers of single rounds are kept, so that nobody has to trust the summary.
"""

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Final, NotRequired, TypedDict, cast

FORMAT: Final = 1
# What took no CPU time that a clock could see took this much at most.
_CPU_SECONDS_MIN: Final = 1e-6


class Pace(StrEnum):
    """What a ratio compares."""

    RATE = "rate"
    MEDIAN_CALL = "median call"
    """The median latency: a disk that stalls now and then does not change it."""
    MEGABYTES = "megabytes"
    """The fact of that name: less is better, as with time."""
    CPU = "CPU time"
    """CPU time of all processes: for work that shares the cores with others."""


class Spread(TypedDict):
    """What the rounds say together."""

    median: float
    minimum: float
    maximum: float


class RoundRecord(TypedDict):
    """One candidate in one round."""

    rows: int
    calls: int
    logical_bytes: int
    wall_seconds: float
    cpu_seconds: float
    written_bytes: int | None
    latency_us: dict[str, float]
    facts: dict[str, float]


class CandidateRecord(TypedDict):
    """One candidate in all rounds."""

    name: str
    kind: str
    sync: str
    rounds: list[RoundRecord]
    rate: Spread
    calls_per_second: Spread
    megabytes_per_second: Spread
    cpu_us_per_row: Spread
    cpu_per_wall: Spread
    written_per_logical_byte: Spread | None
    latency_us: dict[str, Spread]
    facts: dict[str, Spread]


class RatioRecord(TypedDict):
    """How many times as fast one candidate is as another, taken round by round.

    `ratio` is by what `by` names, wall time where it names a rate; `cpu_ratio` by CPU time of all,
    which other programs disturb less.
    """

    of: str
    to: str
    by: str
    rounds: list[float]
    ratio: Spread
    cpu_ratio: Spread
    target: float | None
    is_met: bool | None


class WorkloadRecord(TypedDict):
    """One workload with all who took part."""

    name: str
    sentence: str
    unit: str
    shows: str
    parameters: dict[str, str | int | float]
    notes: list[str]
    candidates: list[CandidateRecord]
    ratios: list[RatioRecord]


class EnvironmentRecord(TypedDict):
    """Where the run took place."""

    commit: str
    commit_is_clean: bool
    python: str
    libraries: dict[str, str]
    checksum: str
    operating_system: str
    processor: str
    cores: int
    memory_bytes: int
    file_system: str


class RunRecord(TypedDict):
    """One run of the benchmarks."""

    format: int
    suite: NotRequired[str]
    date: str
    command: str
    seed: int
    rounds: int
    quick: bool
    seconds: float
    environment: EnvironmentRecord
    load_before: list[float]
    load_after: list[float]
    workloads: list[WorkloadRecord]


def spread_of(values: Sequence[float]) -> Spread:
    """Return median, smallest and largest."""
    return Spread(median=median(values), minimum=min(values), maximum=max(values))


def summarize_candidate(
    name: str, *, kind: str, sync: str, rounds: Sequence[RoundRecord]
) -> CandidateRecord:
    """Return medians and spreads over the rounds of one candidate."""
    amplifications = [
        one["written_bytes"] / one["logical_bytes"]
        for one in rounds
        if one["written_bytes"] is not None and one["logical_bytes"]
    ]
    return CandidateRecord(
        name=name,
        kind=kind,
        sync=sync,
        rounds=list(rounds),
        rate=spread_of([one["rows"] / one["wall_seconds"] for one in rounds]),
        calls_per_second=spread_of([one["calls"] / one["wall_seconds"] for one in rounds]),
        megabytes_per_second=spread_of(
            [one["logical_bytes"] / 1e6 / one["wall_seconds"] for one in rounds]
        ),
        cpu_us_per_row=spread_of([one["cpu_seconds"] * 1e6 / one["rows"] for one in rounds]),
        cpu_per_wall=spread_of([one["cpu_seconds"] / one["wall_seconds"] for one in rounds]),
        written_per_logical_byte=spread_of(amplifications) if amplifications else None,
        latency_us={
            percentile: spread_of([one["latency_us"][percentile] for one in rounds])
            for percentile in rounds[0]["latency_us"]
        },
        facts={
            fact: spread_of([one["facts"][fact] for one in rounds]) for fact in rounds[0]["facts"]
        },
    )


def compare_candidates(
    of: CandidateRecord, to: CandidateRecord, *, target: float | None, by: Pace = Pace.RATE
) -> RatioRecord:
    """Divide round by round: what disturbs a machine disturbs neighbours alike."""
    pairs = list(zip(of["rounds"], to["rounds"], strict=True))
    return _ratio_record(
        of["name"],
        to["name"],
        ratios=[pace_of(mine, by) / pace_of(theirs, by) for mine, theirs in pairs],
        cpu_ratios=[_cpu_pace(mine) / _cpu_pace(theirs) for mine, theirs in pairs],
        target=target,
        by=by,
    )


def compare_with_time(of: CandidateRecord, seconds: float) -> RatioRecord:
    """Divide a time that a row may take by the time that it took; at least 1 is asked for."""
    return _ratio_record(
        of["name"],
        f"{seconds * 1e3:g} ms",
        ratios=[seconds * pace_of(mine, Pace.RATE) for mine in of["rounds"]],
        cpu_ratios=[seconds * _cpu_pace(mine) for mine in of["rounds"]],
        target=1.0,
        by=Pace.RATE,
    )


def pace_of(measured: RoundRecord, by: Pace) -> float:
    """Return what is compared of one round; more is better."""
    if by is Pace.MEDIAN_CALL:
        return 1e6 / measured["latency_us"]["p50"]
    if by is Pace.MEGABYTES:
        return 1 / measured["facts"]["megabytes"]
    if by is Pace.CPU:
        return _cpu_pace(measured)
    return measured["rows"] / measured["wall_seconds"]


def _cpu_pace(measured: RoundRecord) -> float:
    return measured["rows"] / max(measured["cpu_seconds"], _CPU_SECONDS_MIN)


def _ratio_record(
    of: str,
    to: str,
    *,
    ratios: list[float],
    cpu_ratios: list[float],
    target: float | None,
    by: Pace,
) -> RatioRecord:
    spread = spread_of(ratios)
    return RatioRecord(
        of=of,
        to=to,
        by=by,
        rounds=ratios,
        ratio=spread,
        cpu_ratio=spread_of(cpu_ratios),
        target=target,
        is_met=None if target is None else spread["median"] >= target,
    )


def write_run(run: RunRecord, path: Path) -> None:
    """Write the file, or replace the one of an earlier run, never in halves."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(_rounded(run), indent=1, ensure_ascii=False) + "\n")
    temporary.replace(path)


def read_run(path: Path) -> RunRecord:
    """Read a file that `write_run` wrote."""
    run = cast("RunRecord", json.loads(path.read_text()))
    if run["format"] != FORMAT:
        raise ValueError(f"{path.name} has format {run['format']}, this code reads {FORMAT}")
    return run


def _rounded(value: object) -> object:
    """Keep six significant digits: more would be noise in every diff."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return value
