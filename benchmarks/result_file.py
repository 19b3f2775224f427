"""The JSON file of one run: everything a page or a later comparison needs.

    run
    ├── format, date, command, seed, rounds, quick, seconds
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
from typing import Final, TypedDict, cast

FORMAT: Final = 1


class Pace(StrEnum):
    """What a ratio compares."""

    RATE = "rate"
    MEDIAN_CALL = "median call"
    """The median latency: a disk that stalls now and then does not change it."""


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

    `ratio` is by wall time, of all calls or of the median one; `cpu_ratio` by CPU time of all,
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
    """Give median, smallest and largest."""
    return Spread(median=median(values), minimum=min(values), maximum=max(values))


def summarize_candidate(
    name: str, *, kind: str, sync: str, rounds: Sequence[RoundRecord]
) -> CandidateRecord:
    """Give medians and spreads over the rounds of one candidate."""
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
    ratios = [_pace(mine, by) / _pace(theirs, by) for mine, theirs in pairs]
    cpu_ratios = [
        (mine["rows"] / mine["cpu_seconds"]) / (theirs["rows"] / theirs["cpu_seconds"])
        for mine, theirs in pairs
    ]
    spread = spread_of(ratios)
    return RatioRecord(
        of=of["name"],
        to=to["name"],
        by=by,
        rounds=ratios,
        ratio=spread,
        cpu_ratio=spread_of(cpu_ratios),
        target=target,
        is_met=None if target is None else spread["median"] >= target,
    )


def _pace(measured: RoundRecord, by: Pace) -> float:
    if by is Pace.MEDIAN_CALL:
        return 1e6 / measured["latency_us"]["p50"]
    return measured["rows"] / measured["wall_seconds"]


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
