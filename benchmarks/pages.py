"""Puts measured numbers into pages: `python -m benchmarks.pages` writes, a test compares.

A page says where numbers belong, and which:

    <!-- results: writing -->

    | … |                               written here; edits are lost

    <!-- end of results -->

The numbers are those of the newest result of each suite, so after a run of benchmarks this is the
only command that pages need. What was not measured is said, not left out.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness import Shows
from benchmarks.newest_results import Found, NewestResults
from benchmarks.report import TITLES
from benchmarks.result_file import CandidateRecord, Pace, RatioRecord
from benchmarks.result_text import (
    NOTHING,
    RATIO_TITLES,
    count_text,
    duration_text,
    median_text,
    ratio_cells,
    ratio_name,
    spread_text,
    table_text,
)

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "benchmarks" / "results"
PAGES: Final = (ROOT / "README.md", ROOT / "docs" / "comparison.md")

_BLOCK: Final = re.compile(
    r"(<!-- results: (?P<name>[\w ]+) -->\n).*?(<!-- end of results -->)", re.DOTALL
)
_PEERS: Final = (
    "RocksDB",
    "SlateDB",
    "pypaimon",
    "PyIceberg",
    "delta-rs",
    "DuckLake",
    "DuckDB",
    "LMDB",
    "SQLite",
)
_OLD: Final = "neve, old files, no cache"
# Notes on candidates and columns that only the page of the run shows.
_ELSEWHERE: Final = ("`bare ", "The target ", "The time to open ", "Stores that know rows ")


@dataclass(frozen=True, slots=True)
class Line:
    """A workload of the table suite as a line of numbers, a column for each system."""

    title: str
    workload: str
    mine: str = "neve"
    detail: str = ""
    """What stands behind the names of peers, where they take part in several ways."""


WRITING: Final = (
    Line("single put, not synced", "table_put"),
    Line("single put, durable, 1 thread", "table_put_synced", "neve, 1 thread", "1 thread"),
    Line("single put, durable, 16 threads", "table_put_synced", "neve, 16 threads", "16 threads"),
    Line("upsert of 10,000-row batches, durable", "table_upsert"),
    Line("the same until flushed and clean", "table_upsert_settled"),
    Line("apply of 10,000 changes with deletes", "table_apply"),
    Line("the same until flushed and published", "table_apply", "neve, settled"),
    Line("delete a tenth of the rows by key", "table_delete"),
)
READING: Final = (
    Line("row by key, warm", "table_get"),
    Line("row by key, warm, old files", "table_get", "neve, old files"),
    Line("first rows by key after a cold open", "table_get_first"),
    Line("1,000 rows by key in one call", "table_get_many"),
    Line("all rows as Arrow", "table_scan"),
    Line("all rows as Arrow, old files, no cache", "table_scan", _OLD),
    Line("all rows after a tenth was updated", "table_scan_updated"),
    Line("the same, old files, no cache", "table_scan_updated", _OLD),
    Line("a hundredth of the keys", "table_scan_range"),
    Line("the same, old files, no cache", "table_scan_range", _OLD),
    Line("sum of one column", "table_sum"),
    Line("the same, old files, no cache", "table_sum", _OLD),
)
KEEPING: Final = (
    Line("open with 100,000 rows in the log, read one", "table_reopen"),
    Line("bytes on disk, made as few as can be", "table_disk"),
)


def fill_page(page: str, results: NewestResults) -> str:
    """Return the page with its numbers put in again."""

    def filled(block: re.Match[str]) -> str:
        write = BLOCKS.get(block["name"])
        if write is None:
            raise ValueError(f"no results are named {block['name']!r}: use {', '.join(BLOCKS)}")
        return f"{block[1]}\n{write(results)}\n\n{block[3]}"

    return _BLOCK.sub(filled, page)


def main() -> int:
    """Write every page again; gives the exit code."""
    results = NewestResults.read(RESULTS)
    for path in PAGES:
        before = path.read_text()
        after = fill_page(before, results)
        path.write_text(after)
        print(f"{path.relative_to(ROOT)}: {'as it was' if before == after else 'written'}")
    return 0


# What the blocks say


def _lines_block(lines: Sequence[Line]) -> Callable[[NewestResults], str]:
    def write(results: NewestResults) -> str:
        cells = [_line_cells(results, line) for line in lines]
        # A workload that is newer than the results has no line yet.
        rows = [each for each in cells if set(each[1:]) != {NOTHING}] or cells
        # A system that no line of the block measures has no column.
        shown = [
            place for place in range(len(rows[0])) if any(row[place] != NOTHING for row in rows)
        ]
        titles = ("", "neve", *_PEERS)
        table = table_text(
            [titles[place] for place in shown], [[row[place] for place in shown] for row in rows]
        )
        absent = [titles[place] for place in range(len(titles)) if place not in shown]
        workloads = [results.workload("table", line.workload) for line in lines]
        notes = [
            note
            for workload in workloads
            for note in (workload["notes"] if workload else ())
            if not note.startswith(_ELSEWHERE)
        ]
        if absent:
            notes.append(f"Not measured here: {', '.join(absent)}.")
        return "\n\n".join([table, _bullets(notes)])

    return write


def _line_cells(results: NewestResults, line: Line) -> list[str]:
    peers = [f"{peer}, {line.detail}" if line.detail else peer for peer in _PEERS]
    found = [results.candidate("table", line.workload, name) for name in (line.mine, *peers)]
    best = max((_worth(one) for one in found if one), default=None)
    cells = [NOTHING if one is None else median_text(one.workload, one.candidate) for one in found]
    return [
        line.title,
        *(
            f"**{cell}**" if one and _worth(one) == best else cell
            for one, cell in zip(found, cells, strict=True)
        ),
    ]


def _worth(found: Found) -> float:
    """Return what the number of a line says; more is better."""
    if found.workload["shows"] == Shows.MEGABYTES:
        return -found.candidate["facts"][Pace.MEGABYTES]["median"]
    return found.candidate["rate"]["median"]


def _workload_block(suite: str, name: str) -> Callable[[NewestResults], str]:
    def write(results: NewestResults) -> str:
        workload = results.workload(suite, name)
        if workload is None:
            return _missing(suite)
        unit = workload["unit"].removesuffix("s")
        rows = [
            (
                one["name"],
                one["sync"] or NOTHING,
                _rate_text(one),
                duration_text(one["cpu_us_per_row"]["median"] / 1e6),
            )
            for one in workload["candidates"]
        ]
        titles = ("", "synced", f"{workload['unit']}/s", f"CPU per {unit}")
        parts = [workload["sentence"], table_text(titles, rows)]
        if all(_is_single(one) for one in workload["candidates"]):
            parts.append(_bullets(["Measured in one round, so there is no spread."]))
        return "\n\n".join(parts)

    return write


def _rate_text(candidate: CandidateRecord) -> str:
    if _is_single(candidate):
        return count_text(candidate["rate"]["median"])
    return spread_text(candidate["rate"], count_text)


def _is_single(candidate: CandidateRecord) -> bool:
    return len(candidate["rounds"]) == 1


def _spark_block(results: NewestResults) -> str:
    run = results.runs.get("spark")
    if run is None:
        return _missing("spark")
    rows = [
        (f"{workload['sentence']}", *ratio_cells(ratio))
        for workload in run["workloads"]
        for ratio in workload["ratios"]
    ]
    return table_text(("", *RATIO_TITLES), rows)


def _missed_block(results: NewestResults) -> str:
    targets = list(results.targets())
    missed = [one for one in targets if not one[2]["is_met"]]
    rows = [
        (
            f"`{workload['name']}` ({suite})",
            ratio_name(ratio),
            f"{ratio['ratio']['median']:.2f}",
            f"≥ {ratio['target']:.3g}",
        )
        for suite, workload, ratio in missed
    ]
    counted = f"{len(targets) - len(missed)} of {len(targets)} targets are met; these are missed:"
    return "\n\n".join([counted, table_text(("workload", "ratio", "measured", "target"), rows)])


def _sources_block(results: NewestResults) -> str:
    rows = []
    for suite, run in results.runs.items():
        there = run["environment"]
        libraries = ", ".join(
            f"{name} {version}"
            for name, version in there["libraries"].items()
            if name in {"pyarrow", "rocksdict", "lmdb", "duckdb"}
        )
        machine = f"{there['processor']}, {there['cores']} cores, {there['file_system']}"
        page = f"`benchmarks/results/{run['date']}-{suite}.md`"
        rows.append((suite, page, str(run["rounds"]), machine, f"{there['python']}, {libraries}"))
    return table_text(("suite", "page with every number", "rounds", "machine", "software"), rows)


def _speed_block(results: NewestResults) -> str:
    links = ", ".join(
        f"[{TITLES[suite]}](benchmarks/results/{run['date']}-{suite}.md)"
        for suite, run in results.runs.items()
    )
    table = table_text(
        ("a million rows of 140 bytes", "neve", "beside", "aim"), _speed_rows(results)
    )
    return f"Every number, the spread and the method: {links}.\n\n{table}"


def _speed_rows(results: NewestResults) -> list[Sequence[str]]:
    def median(workload: str, name: str = "neve", suite: str = "table") -> str:
        found = results.candidate(suite, workload, name)
        return NOTHING if found is None else median_text(found.workload, found.candidate)

    def beside(
        title: str,
        workload: str,
        *,
        mine: str = "neve",
        to: str | None = None,
        suite: str = "table",
        also: str = "",
    ) -> Sequence[str]:
        ratio = results.ratio(suite, workload, of=mine, to=to)
        compared = times_text(ratio) + (f"; {also}" if also else "")
        return (title, median(workload, mine, suite), compared, aim_text(ratio))

    lmdb = results.ratio("table", "table_get", to="LMDB")
    synced = {
        threads: times_text(
            results.ratio(
                "table", "table_put_synced", of=f"neve, {threads}", to=f"RocksDB, {threads}"
            )
        )
        for threads in ("1 thread", "16 threads")
    }
    rows = [
        beside("durable upsert of 10,000-row batches", "table_upsert"),
        beside("the same until flushed and clean", "table_upsert_settled"),
        beside("get by key, warm", "table_get", to="RocksDB", also=times_text(lmdb)),
        beside("1,000 rows by key in one call", "table_get_many"),
        beside("scan to Arrow, with the cache", "table_scan"),
        beside("scan to Arrow, old files, no cache", "table_scan", mine=_OLD),
        beside("sum of a column, old files, no cache", "table_sum", mine=_OLD),
        beside("delete a tenth of the rows by key", "table_delete"),
        beside("single put, not synced", "table_put"),
        *(
            beside(
                f"single put, synced, {threads}",
                "table_put_synced",
                mine=f"neve, {threads}",
                to="bare fdatasync",
                also=compared,
            )
            for threads, compared in synced.items()
        ),
        beside("bytes on disk after clean-up", "table_disk", to="PyIceberg"),
        beside(
            "rows of one day out of 100, 10 M rows",
            "table_days",
            mine="neve, partitioned by day",
            to="neve, not partitioned",
            suite="history",
        ),
        beside(
            "small commits, each published as an Iceberg snapshot",
            "iceberg_commits",
            to="PyIceberg append",
            suite="iceberg",
        ),
    ]
    return rows + _spark_rows(results)


def _spark_rows(results: NewestResults) -> list[Sequence[str]]:
    """Rows of the pipeline, by CPU: Java, driver and workers share the cores."""
    rows: list[Sequence[str]] = []
    for title, workload, mine in (
        ("on Spark: scan with a tenth of dead rows", "spark_scan", "neve, 10 % dead"),
        ("on Spark: upsert of a hundredth of the rows", "spark_upsert_1", "neve"),
        ("on Spark: compaction", "spark_compaction", "neve"),
    ):
        found = results.candidate("spark", workload, mine)
        ratios = (
            [ratio for ratio in found.workload["ratios"] if ratio["of"] == mine] if found else []
        )
        if found is None or not ratios:
            continue
        # Of several comparisons the one that the design set a target for.
        ratio = next((one for one in ratios if one["target"] is not None), ratios[0])
        compared = f"{_times(ratio['cpu_ratio']['median'])} {ratio['to']}, by CPU"
        shown = median_text(found.workload, found.candidate)
        rows.append((title, shown, compared, aim_text(ratio)))
    return rows


def times_text(ratio: RatioRecord | None) -> str:
    """Say a ratio in words; less than one is said, too."""
    if ratio is None:
        return NOTHING
    if ratio["by"] == Pace.MEGABYTES:
        return f"{_times(1 / ratio['ratio']['median'])} the bytes of {ratio['to']}"
    return f"{_times(ratio['ratio']['median'])} {ratio['to']}"


def _times(number: float) -> str:
    return f"{number:.0f} times" if number >= 10 else f"{number:.2f} times"


def aim_text(ratio: RatioRecord | None) -> str:
    """Say which ratio the design asks for, and whether it is reached."""
    if ratio is None or ratio["target"] is None:
        return NOTHING
    aim = f"{ratio['target']:.2g}"
    if ratio["by"] == Pace.MEGABYTES:
        aim = f"at most {1 / ratio['target']:.2g}"
    return f"{aim}, {'met' if ratio['is_met'] else '**missed**'}"


def _missing(suite: str) -> str:
    return (
        f"Not measured yet: `python -m benchmarks.run --suite {suite}` makes the result, "
        "`python -m benchmarks.pages` puts it here."
    )


def _bullets(notes: Sequence[str]) -> str:
    return "\n".join(f"- {note}" for note in dict.fromkeys(notes))


BLOCKS: Final[Mapping[str, Callable[[NewestResults], str]]] = {
    "speed": _speed_block,
    "sources": _sources_block,
    "writing": _lines_block(WRITING),
    "reading": _lines_block(READING),
    "keeping": _lines_block(KEEPING),
    "iceberg commits": _workload_block("iceberg", "iceberg_commits"),
    "iceberg scan": _workload_block("iceberg", "iceberg_scan"),
    "manifest commits": _workload_block("log", "manifest_commits"),
    "spark": _spark_block,
    "missed": _missed_block,
}


if __name__ == "__main__":
    sys.exit(main())
