"""How results are put into words: three significant digits, units that fit, ratios with verdicts.

Everything that shows a result says it with these, so that two pages never say it differently.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from benchmarks.harness import Shows
from benchmarks.result_file import CandidateRecord, Pace, RatioRecord, Spread, WorkloadRecord

NOTHING: Final = "–"
RATIO_TITLES: Final = ("ratio", "median", "rounds", "by CPU", "target", "")


def table_text(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def count_text(number: float) -> str:
    """Return a number with three significant digits."""
    if number >= 1e6:
        return f"{number / 1e6:.3g} M" if number < 1e9 else f"{number / 1e6:,.0f} M"
    return f"{float(f'{number:.3g}'):,.0f}" if number >= 100 else f"{number:.3g}"


def duration_text(seconds: float) -> str:
    """Return a time in the unit in which it is at least one."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def spread_text(spread: Spread, show: Callable[[float], str]) -> str:
    """Return a median, with the smallest and largest round in brackets."""
    return f"{show(spread['median'])} ({show(spread['minimum'])} to {show(spread['maximum'])})"


def median_text(workload: WorkloadRecord, candidate: CandidateRecord) -> str:
    """Return the one number that a workload is about, with its unit."""
    if workload["shows"] == Shows.SECONDS:
        return duration_text(1 / candidate["rate"]["median"])
    if workload["shows"] == Shows.MEGABYTES:
        return f"{count_text(candidate['facts']['megabytes']['median'])} MB"
    return f"{count_text(candidate['rate']['median'])}/s"


def ratio_name(ratio: RatioRecord) -> str:
    """Say what a ratio compares."""
    measure = "" if ratio["by"] == Pace.RATE else f", {ratio['by']}"
    return f"{ratio['of']} ÷ {ratio['to']}{measure}"


def ratio_cells(ratio: RatioRecord) -> tuple[str, ...]:
    """Return a ratio as the cells below RATIO_TITLES."""
    spread = ratio["ratio"]
    target, verdict = NOTHING, ""
    if ratio["target"] is not None:
        target = f"≥ {ratio['target']:.3g}"
        missed = 1 - spread["median"] / ratio["target"]
        verdict = "met" if ratio["is_met"] else f"**missed** by {missed:.0%}"
    return (
        ratio_name(ratio),
        f"{spread['median']:.2f}",
        f"{spread['minimum']:.2f} to {spread['maximum']:.2f}",
        f"{ratio['cpu_ratio']['median']:.2f}",
        target,
        verdict,
    )
