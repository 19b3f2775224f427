"""Numbers in pages are those of the newest results, and what was not measured is said."""

import re
import shutil
from pathlib import Path

import pytest

from benchmarks.newest_results import SUITES, NewestResults
from benchmarks.pages import BLOCKS, PAGES, RESULTS, ROOT, fill_page
from benchmarks.report import TITLES
from benchmarks.result_file import RatioRecord, read_run, write_run
from benchmarks.run import SUITES as SUITES_THAT_RUN

MARK = re.compile(r"<!-- results: ([\w ]+) -->")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_says_what_the_newest_results_say(path: Path) -> None:
    page = path.read_text()

    filled = fill_page(page, NewestResults.read(RESULTS))

    assert MARK.search(page)
    assert page == filled, "run `python -m benchmarks.pages` and look at what changed"


def test_every_page_with_results_is_filled_and_every_block_is_shown() -> None:
    marked = {
        path
        for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
        if MARK.search(path.read_text())
    }

    assert marked == set(PAGES)
    assert {name for path in PAGES for name in MARK.findall(path.read_text())} == set(BLOCKS)


def test_a_number_that_was_changed_by_hand_is_put_right() -> None:
    results = NewestResults.read(RESULTS)
    page = fill_page("<!-- results: missed -->\n<!-- end of results -->\n", results)
    wrong = page.replace(" targets are met", " targets are nearly met")

    assert wrong != page
    assert fill_page(wrong, results) == page


def test_a_suite_that_was_not_run_is_said_and_stops_nothing(tmp_path: Path) -> None:
    table = max(RESULTS.glob("*-table.json"))
    shutil.copy(table, tmp_path)
    page = "".join(f"<!-- results: {name} -->\n<!-- end of results -->\n\n" for name in BLOCKS)

    filled = fill_page(page, NewestResults.read(tmp_path))

    for suite in ("spark", "log", "iceberg"):
        assert f"Not measured yet: `python -m benchmarks.run --suite {suite}`" in filled
    assert f"(benchmarks/results/{table.stem}.md)" in filled


def test_without_any_result_every_block_still_says_something(tmp_path: Path) -> None:
    nothing = NewestResults.read(tmp_path)

    assert nothing.runs == {}
    assert all(write(nothing) for write in BLOCKS.values())


def test_the_newest_date_counts_and_a_quick_run_does_not(tmp_path: Path) -> None:
    run = read_run(max(RESULTS.glob("*-table.json")))
    for date, suffix in (("2026-01-31", ""), ("2026-02-01", ""), ("2026-03-01", "-quick")):
        run["date"] = date
        write_run(run, tmp_path / f"{date}-table{suffix}.json")

    assert NewestResults.read(tmp_path).runs["table"]["date"] == "2026-02-01"


def test_a_system_that_took_no_part_has_no_column_and_is_named() -> None:
    run = read_run(max(RESULTS.glob("*-table.json")))
    for workload in run["workloads"]:
        workload["candidates"] = [
            one for one in workload["candidates"] if not one["name"].startswith("RocksDB")
        ]

    written = BLOCKS["reading"](NewestResults({"table": run}))

    titles = written.splitlines()[0]
    assert "RocksDB" not in titles
    assert "SlateDB" in titles
    assert re.search("Not measured here: RocksDB", written)


def test_one_round_has_no_spread() -> None:
    run = read_run(max(RESULTS.glob("*-iceberg.json")))
    [commits] = [one for one in run["workloads"] if one["name"] == "iceberg_commits"]
    for one in commits["candidates"]:
        one["rounds"] = one["rounds"][:1] * 3
    several = BLOCKS["iceberg commits"](NewestResults({"iceberg": run}))
    for one in commits["candidates"]:
        one["rounds"] = one["rounds"][:1]
    single = BLOCKS["iceberg commits"](NewestResults({"iceberg": run}))

    assert (several.count(" to "), "one round" in several) == (
        1 + len(commits["candidates"]),
        False,
    )
    assert (single.count(" to "), "one round" in single) == (1, True)


def test_a_result_on_spark_is_one_line_by_cpu_with_its_target(tmp_path: Path) -> None:
    run = read_run(max(RESULTS.glob("*-table.json")))
    [put] = [one for one in run["workloads"] if one["name"] == "table_put"]
    [ratio] = put["ratios"]
    others: RatioRecord = {**ratio, "to": "somebody", "target": None, "is_met": None}
    run["workloads"] = [{**put, "name": "spark_compaction", "ratios": [others, ratio]}]
    run["date"] = "2026-01-31"
    write_run(run, tmp_path / "2026-01-31-spark.json")

    shown = BLOCKS["speed"](NewestResults.read(tmp_path))

    [line] = [line for line in shown.splitlines() if "on Spark: compaction" in line]
    assert f"{ratio['cpu_ratio']['median']:.2f} times {ratio['to']}, by CPU | 3, " in line
    assert "[Data pipeline on Spark](benchmarks/results/2026-01-31-spark.md)" in shown
    assert shown.count("somebody") == 0
    assert BLOCKS["spark"](NewestResults.read(tmp_path)).count("somebody") == 1


@pytest.mark.parametrize(
    ("words", "package", "lock"),
    [
        ("RocksDB through rocksdict {}", "rocksdict", "requirements.lock"),
        ("SlateDB {}", "slatedb", "requirements-peers.lock"),
        ("pypaimon {}", "pypaimon", "requirements-pypaimon.lock"),
        ("PyIceberg {}", "pyiceberg", "requirements-peers.lock"),
        ("delta-rs (`deltalake`) {}", "deltalake", "requirements-peers.lock"),
        ("DuckLake in DuckDB {}", "duckdb", "requirements-peers.lock"),
    ],
)
def test_the_versions_that_are_compared_are_those_that_are_measured(
    words: str, package: str, lock: str
) -> None:
    page = (ROOT / "docs" / "comparison.md").read_text()
    [version] = re.findall(
        rf"^{package}(?:\[.*\])?==(\S+)", (ROOT / lock).read_text(), re.MULTILINE
    )

    assert words.format(version) in page


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="no results are named 'wind': use speed, "):
        fill_page("<!-- results: wind -->\n<!-- end of results -->", NewestResults({}))


def test_every_suite_that_runs_is_looked_for_and_has_a_title() -> None:
    assert set(SUITES) == set(SUITES_THAT_RUN) == set(TITLES)
