"""The page and the plot say what the JSON of a run says."""

from pathlib import Path

import pytest

from benchmarks.harness import Kind, Shows
from benchmarks.report import terminal_table, write_report
from benchmarks.result_file import (
    FORMAT,
    EnvironmentRecord,
    RoundRecord,
    RunRecord,
    WorkloadRecord,
    compare_candidates,
    read_run,
    summarize_candidate,
    write_run,
)


def measured(rate: int, *, latency_us: dict[str, float] | None = None) -> list[RoundRecord]:
    return [
        RoundRecord(
            rows=rate,
            calls=rate,
            logical_bytes=rate * 100,
            wall_seconds=wall,
            cpu_seconds=wall / 2,
            written_bytes=rate * 150,
            latency_us=latency_us or {},
            facts={},
        )
        for wall in (0.5, 1.0, 2.0)
    ]


def sample_run(*, target: float) -> RunRecord:
    mine = summarize_candidate(
        "neve log",
        kind=Kind.NEVE,
        sync="none",
        rounds=measured(300_000, latency_us={"p50": 12.0}),
    )
    theirs = summarize_candidate(
        "RocksDB put", kind=Kind.PEER, sync="none", rounds=measured(150_000)
    )
    workload = WorkloadRecord(
        name="append_rows",
        sentence="Rows, one append each.",
        unit="rows",
        shows=Shows.RATE,
        parameters={"rows": 300_000},
        notes=["RocksDB keeps rows in memory too."],
        candidates=[mine, theirs],
        ratios=[compare_candidates(mine, theirs, target=target)],
    )
    return RunRecord(
        format=FORMAT,
        date="2026-11-15",
        command="python -m benchmarks.run",
        seed=1,
        rounds=3,
        quick=False,
        seconds=12.0,
        environment=EnvironmentRecord(
            commit="0123456789abcdef",
            commit_is_clean=True,
            python="CPython 3.11",
            libraries={"pyarrow": "26"},
            checksum="crc32c in c",
            operating_system="Linux 6 x86_64",
            processor="a processor",
            cores=2,
            memory_bytes=1 << 34,
            file_system="ext4",
        ),
        load_before=[0.1, 0.2, 0.3],
        load_after=[1.1, 1.2, 1.3],
        workloads=[workload],
    )


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    run = sample_run(target=1.0)
    run["format"] = FORMAT + 1
    path = tmp_path / "run.json"
    write_run(run, path)

    with pytest.raises(ValueError, match=rf"run.json has format {FORMAT + 1}"):
        read_run(path)


def test_a_run_is_read_as_it_was_written_to_six_digits(tmp_path: Path) -> None:
    run = sample_run(target=1.0)
    path = tmp_path / "deep" / "run.json"

    write_run(run, path)

    (candidate, _) = read_run(path)["workloads"][0]["candidates"]
    assert read_run(path)["environment"] == run["environment"]
    assert candidate["rate"] == {"median": 3e5, "minimum": 1.5e5, "maximum": 6e5}
    assert candidate["cpu_us_per_row"]["median"] == 1.66667
    assert [found.name for found in path.parent.iterdir()] == ["run.json"]


@pytest.mark.parametrize(("target", "verdict"), [(2.0, "met"), (2.5, "**missed** by 20%")])
def test_the_page_says_whether_a_target_is_met(tmp_path: Path, target: float, verdict: str) -> None:
    path = tmp_path / "2026-11-15-log.json"
    write_run(sample_run(target=target), path)

    page_path, plot_path = write_report(path)

    page = page_path.read_text()
    ratio = f"neve log ÷ RocksDB put | 2.00 | 2.00 to 2.00 | 2.00 | ≥ {target:g} | {verdict} |"
    assert f"| `append_rows` | {ratio}" in page
    assert f"]({plot_path.name})" in page


def test_the_page_shows_medians_spread_and_what_only_some_measure(tmp_path: Path) -> None:
    path = tmp_path / "2026-11-15-log.json"
    write_run(sample_run(target=1.0), path)

    page_path, _ = write_report(path)

    lines = page_path.read_text().splitlines()
    mine = next(line for line in lines if line.startswith("| neve log | none"))
    theirs = next(line for line in lines if line.startswith("| RocksDB put | none"))
    assert "| 300,000 (150,000 to 600,000) |" in mine
    assert mine.endswith("| 3.33 µs | 1.67 µs | 0.50 | 1.50 | 12 µs |")
    assert theirs.endswith("| – |")


def test_the_same_file_gives_the_same_page_and_plot(tmp_path: Path) -> None:
    path = tmp_path / "2026-11-15-log.json"
    write_run(sample_run(target=1.0), path)

    first = [made.read_bytes() for made in write_report(path)]
    again = [made.read_bytes() for made in write_report(path)]

    assert first == again


def test_the_terminal_shows_rates_and_ratios() -> None:
    (workload,) = sample_run(target=3.0)["workloads"]

    text = terminal_table(workload)

    assert "neve log     300,000 (150,000 to 600,000) rows/s" in text
    assert "neve log ÷ RocksDB put: 2.00 (2.00 to 2.00), by CPU 2.00, target ≥ 3: missed" in text
