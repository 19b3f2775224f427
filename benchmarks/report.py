"""Turns the JSON of a run into a page and a plot; `python -m benchmarks.report FILE.json`.

The page says only what the file says, so it can be made again at any time.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.harness import Kind, Shows
from benchmarks.result_file import (
    CandidateRecord,
    RatioRecord,
    RunRecord,
    Spread,
    WorkloadRecord,
    read_run,
)
from benchmarks.result_text import (
    NOTHING,
    RATIO_TITLES,
    count_text,
    duration_text,
    ratio_cells,
    ratio_name,
    spread_text,
    table_text,
)

_COLORS: Final = {Kind.NEVE: "#1f6feb", Kind.PEER: "#c4822e", Kind.LIMIT: "#9aa4af"}
TITLES: Final = {
    "log": "Log, key encoding and manifest",
    "table": "Table engine",
    "history": "Partitions and change feed",
    "iceberg": "Published tables",
    "sql": "SQL",
    "files": "Files in and out",
    "growth": "Growth",
    "bucket": "Table in a bucket",
    "spark": "Data pipeline on Spark",
}
"""What the page of each suite is called."""
_AXES: Final = {Shows.SECONDS: "less is better", Shows.MEGABYTES: "megabytes, less is better"}
_LINEAR_REACH: Final = 60
_BAR_INCHES: Final = 0.34
_TITLE_INCHES: Final = 0.75

_METHOD: Final = """\
Every candidate of a workload runs once in each round, in a newly drawn order, in an empty directory
on the file system above, after a sync of all file systems. Only the named operation is timed. What
was written is read back after each trial and compared; a wrong answer ends the run.

Numbers are medians over the rounds, with the smallest and largest round in brackets. Ratios are
taken round by round; a target is the design's, and is met when the median ratio reaches it.
`by CPU` is the median of the same ratio by CPU time, of all threads and children. `written` is
bytes handed to the operating system per byte of rows. Absolute numbers belong to this machine at
this hour: compare only within this page."""


def write_report(json_path: Path) -> tuple[Path, Path]:
    """Write the page and the plot of a run beside its file; gives both paths."""
    run = read_run(json_path)
    plot_path = json_path.with_suffix(".svg")
    page_path = json_path.with_suffix(".md")
    _draw(run, plot_path)
    page_path.write_text(_page(run, json_name=json_path.name, plot_name=plot_path.name))
    return page_path, plot_path


def terminal_table(workload: WorkloadRecord) -> str:
    """Return one workload as lines for a terminal."""
    width = max(len(candidate["name"]) for candidate in workload["candidates"])
    lines = [
        f"  {candidate['name']:<{width}}  {_headline(workload, candidate)}"
        for candidate in workload["candidates"]
    ]
    if workload["shows"] != Shows.MEGABYTES:
        lines += [
            f"  {candidate['name']:<{width}}  {_facts_text(candidate)}"
            for candidate in workload["candidates"]
            if candidate["facts"]
        ]
    lines += [f"  {ratio_name(ratio)}: {_ratio_text(ratio)}" for ratio in workload["ratios"]]
    return "\n".join(lines)


def _page(run: RunRecord, *, json_name: str, plot_name: str) -> str:
    title = f"{TITLES[run.get('suite', 'log')]}{', quick run' if run['quick'] else ''}"
    sections = [
        f"# {title}, {run['date']}",
        f"Made by `{run['command']}` from [{json_name}]({json_name}); do not edit.",
        _environment(run),
        f"![Rates of all candidates]({plot_name})",
        "Blue is neve, orange a peer, grey what the machine allows; the lines are the spread.",
        "## How it was measured",
        _METHOD,
        "## Ratios with a target",
        table_text(
            ("workload", *RATIO_TITLES),
            [
                (f"`{workload['name']}`", *ratio_cells(ratio))
                for workload in run["workloads"]
                for ratio in workload["ratios"]
                if ratio["target"] is not None
            ],
        ),
        *(_section(workload) for workload in run["workloads"]),
    ]
    return "\n\n".join(sections) + "\n"


def _environment(run: RunRecord) -> str:
    there = run["environment"]
    memory = there["memory_bytes"] / 2**30
    changed = "" if there["commit_is_clean"] else ", with changes that were not committed"
    libraries = ", ".join(f"{name} {version}" for name, version in there["libraries"].items())
    return table_text(
        ("", ""),
        [
            ("commit", f"`{there['commit'][:12]}`{changed}"),
            ("machine", f"{there['processor']}, {there['cores']} cores, {memory:.0f} GiB"),
            ("system", f"{there['operating_system']}, files on {there['file_system']}"),
            ("software", f"{there['python']}; {libraries}; {there['checksum']}"),
            ("load before, after", f"{_load(run['load_before'])}; {_load(run['load_after'])}"),
            ("rounds, seed, time", f"{run['rounds']}; {run['seed']}; {run['seconds']:.0f} s"),
        ],
    )


def _section(workload: WorkloadRecord) -> str:
    candidates = workload["candidates"]
    columns: list[tuple[str, Callable[[CandidateRecord], str]]] = [
        ("candidate", lambda one: one["name"]),
        *([] if workload["shows"] == Shows.MEGABYTES else _time_columns(workload["unit"])),
        *_optional_columns(candidates),
    ]
    shown = [
        (title, cell)
        for title, cell in columns
        if any(cell(candidate) != NOTHING for candidate in candidates)
    ]
    rows = [tuple(cell(candidate) for _, cell in shown) for candidate in candidates]
    parameters = ", ".join(
        f"{name.replace('_', ' ')} {value if isinstance(value, str) else _plain(value)}"
        for name, value in workload["parameters"].items()
    )
    parts = [
        f"## `{workload['name']}`",
        workload["sentence"],
        f"Parameters: {parameters}; {len(candidates[0]['rounds'])} rounds.",
        table_text(tuple(title for title, _ in shown), rows),
    ]
    if workload["ratios"]:
        cells = [ratio_cells(ratio) for ratio in workload["ratios"]]
        parts.append(table_text(RATIO_TITLES, cells))
    parts.append("\n".join(f"- {note}" for note in workload["notes"]))
    return "\n\n".join(part for part in parts if part)


def _time_columns(units: str) -> list[tuple[str, Callable[[CandidateRecord], str]]]:
    unit = units.removesuffix("s")
    return [
        ("sync", lambda one: one["sync"] or NOTHING),
        (f"{units}/s", lambda one: spread_text(one["rate"], count_text)),
        ("calls/s", _calls),
        ("MB/s", _megabytes),
        (f"time per {unit}", lambda one: duration_text(1 / one["rate"]["median"])),
        (f"CPU per {unit}", lambda one: duration_text(one["cpu_us_per_row"]["median"] / 1e6)),
        ("CPU ÷ wall", lambda one: f"{one['cpu_per_wall']['median']:.2f}"),
        ("written", _written),
    ]


def _optional_columns(
    candidates: Sequence[CandidateRecord],
) -> Iterable[tuple[str, Callable[[CandidateRecord], str]]]:
    """Columns for what only some candidates measure."""
    percentiles = dict.fromkeys(name for one in candidates for name in one["latency_us"])
    facts = dict.fromkeys(name for one in candidates for name in one["facts"])

    def latency(name: str) -> Callable[[CandidateRecord], str]:
        return lambda one: (
            duration_text(one["latency_us"][name]["median"] / 1e6)
            if name in one["latency_us"]
            else NOTHING
        )

    def fact(name: str) -> Callable[[CandidateRecord], str]:
        return lambda one: (
            f"{one['facts'][name]['median']:.1f}" if name in one["facts"] else NOTHING
        )

    yield from ((name, latency(name)) for name in percentiles)
    yield from ((name.replace("_", " "), fact(name)) for name in facts)


def _calls(candidate: CandidateRecord) -> str:
    is_one = all(one["calls"] == 1 for one in candidate["rounds"])
    return NOTHING if is_one else count_text(candidate["calls_per_second"]["median"])


def _megabytes(candidate: CandidateRecord) -> str:
    rate = candidate["megabytes_per_second"]["median"]
    return count_text(rate) if rate else NOTHING


def _written(candidate: CandidateRecord) -> str:
    spread = candidate["written_per_logical_byte"]
    return f"{spread['median']:.2f}" if spread and spread["median"] >= 0.01 else NOTHING


def _ratio_text(ratio: RatioRecord) -> str:
    _, middle, around, by_cpu, target, verdict = ratio_cells(ratio)
    aim = f", target {target}: {verdict.replace('*', '')}" if verdict else ""
    return f"{middle} ({around}), by CPU {by_cpu}{aim}"


def _facts_text(candidate: CandidateRecord) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {count_text(spread['median'])}"
        for name, spread in candidate["facts"].items()
    )


def _headline(workload: WorkloadRecord, candidate: CandidateRecord) -> str:
    if workload["shows"] == Shows.SECONDS:
        return f"{duration_text(1 / candidate['rate']['median'])} each"
    if workload["shows"] == Shows.MEGABYTES:
        return f"{count_text(candidate['facts']['megabytes']['median'])} MB"
    return f"{spread_text(candidate['rate'], count_text)} {workload['unit']}/s"


def _plain(number: float) -> str:
    return f"{number:,}"


def _load(averages: Sequence[float]) -> str:
    return " ".join(f"{average:.2f}" for average in averages)


def _draw(run: RunRecord, path: Path) -> None:
    workloads = run["workloads"]
    heights = [_TITLE_INCHES + _BAR_INCHES * len(workload["candidates"]) for workload in workloads]
    # Fixed salt and no date: the same numbers give the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "neve", "font.size": 9}):
        figure = Figure(figsize=(9, sum(heights)), layout="constrained")
        grid = figure.subplots(
            len(workloads), 1, squeeze=False, gridspec_kw={"height_ratios": heights}
        )
        for axes, workload in zip(grid[:, 0], workloads, strict=True):
            _draw_workload(axes, workload)
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def _draw_workload(axes: Axes, workload: WorkloadRecord) -> None:
    candidates = list(reversed(workload["candidates"]))
    places = range(len(candidates))
    spreads = [_shown_spread(workload, candidate) for candidate in candidates]
    middles = [spread["median"] for spread in spreads]
    axes.barh(
        places,
        middles,
        color=[_COLORS[Kind(candidate["kind"])] for candidate in candidates],
        xerr=(
            [spread["median"] - spread["minimum"] for spread in spreads],
            [spread["maximum"] - spread["median"] for spread in spreads],
        ),
        error_kw={"ecolor": "#30363d", "elinewidth": 1, "capsize": 2},
    )
    show = duration_text if workload["shows"] == Shows.SECONDS else count_text
    reach = max(spread["maximum"] for spread in spreads)
    for place, spread in zip(places, spreads, strict=True):
        axes.annotate(
            show(spread["median"]),
            (spread["maximum"], place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
        )
    axes.set_yticks(places, [candidate["name"] for candidate in candidates])
    what = _AXES.get(Shows(workload["shows"]), f"{workload['unit']}/s, more is better")
    if reach > min(middles) * _LINEAR_REACH:
        axes.set_xscale("log")
        axes.set_xlim(min(middles) / 3, reach * 5)
        what += ", logarithmic"
    else:
        axes.set_xlim(0, reach * 1.15)
    axes.xaxis.set_major_formatter(lambda value, _: show(value) if value else "0")
    axes.set_title(f"{workload['name']} ({what})", loc="left", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)


def _shown_spread(workload: WorkloadRecord, candidate: CandidateRecord) -> Spread:
    if workload["shows"] == Shows.MEGABYTES:
        return candidate["facts"]["megabytes"]
    rate = candidate["rate"]
    if workload["shows"] == Shows.RATE:
        return rate
    return Spread(
        median=1 / rate["median"], minimum=1 / rate["maximum"], maximum=1 / rate["minimum"]
    )


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(*write_report(Path(argument)), sep="\n")
