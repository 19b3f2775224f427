"""The newest result of each suite, and what pages ask of it.

    benchmarks/results/<date>-<suite>.json      the newest date of a suite counts

A suite without a file, a workload that a run left out and a peer that did not take part are no
error: whoever asks for a number of theirs gets none, and says so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.result_file import (
    CandidateRecord,
    RatioRecord,
    RunRecord,
    WorkloadRecord,
    read_run,
)

SUITES: Final = ("table", "history", "growth", "iceberg", "sql", "files", "bucket", "log", "spark")
_BEST_PEER: Final = " (best peer)"


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate, with the workload it took part in."""

    workload: WorkloadRecord
    candidate: CandidateRecord


@dataclass(frozen=True, slots=True)
class NewestResults:
    """One run per suite that has any."""

    runs: Mapping[str, RunRecord]

    @classmethod
    def read(cls, directory: Path) -> "NewestResults":
        """Read the newest file of each suite; quick runs do not count."""
        runs = {}
        for suite in SUITES:
            # Names begin with the date, so the last one in order is the newest.
            found = sorted(directory.glob(f"????-??-??-{suite}.json"))
            if found:
                runs[suite] = read_run(found[-1])
        return cls(runs)

    def workload(self, suite: str, name: str) -> WorkloadRecord | None:
        """Return a workload, if it was run."""
        run = self.runs.get(suite)
        workloads = run["workloads"] if run else []
        return next((one for one in workloads if one["name"] == name), None)

    def candidate(self, suite: str, workload: str, name: str) -> Found | None:
        """Return a candidate, if it took part."""
        found = self.workload(suite, workload)
        candidates = found["candidates"] if found else []
        one = next((one for one in candidates if one["name"] == name), None)
        return None if found is None or one is None else Found(found, one)

    def ratio(
        self, suite: str, workload: str, *, of: str = "neve", to: str | None = None
    ) -> RatioRecord | None:
        """Return a ratio, if it was taken; to the best peer, unless one is named."""
        found = self.workload(suite, workload)
        for ratio in found["ratios"] if found else []:
            is_asked_for = ratio["to"].endswith(_BEST_PEER) if to is None else ratio["to"] == to
            if ratio["of"] == of and is_asked_for:
                return ratio
        return None

    def targets(self) -> Iterator[tuple[str, WorkloadRecord, RatioRecord]]:
        """Yield every ratio that has a target, with its suite and workload."""
        for suite, run in self.runs.items():
            for workload in run["workloads"]:
                for ratio in workload["ratios"]:
                    if ratio["target"] is not None:
                        yield suite, workload, ratio
