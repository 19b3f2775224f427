"""The harness measures nothing it has not checked, and compares only within a round."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import (
    BadTrial,
    Candidate,
    Kind,
    Outcome,
    Ratio,
    Stopwatch,
    Trial,
    Workload,
    run_workload,
)
from benchmarks.result_file import (
    Pace,
    RoundRecord,
    WorkloadRecord,
    compare_candidates,
    spread_of,
    summarize_candidate,
)


def outcome(
    *,
    rows: int = 1,
    answer: object = (1, 2),
    expected: object = None,
    latencies: Sequence[int] = (),
) -> Outcome:
    return Outcome(
        rows=rows,
        calls=rows,
        logical_bytes=100 * rows,
        answer=answer,
        expected=[1, 2] if expected is None else expected,
        latencies_ns=latencies,
    )


def right(directory: Path, stopwatch: Stopwatch) -> Outcome:
    with stopwatch:
        (directory / "rows").write_bytes(b"12")
    return outcome(answer=[1, 2])


def workload(*trials: Trial, ratios: Sequence[Ratio] = ()) -> Workload:
    return Workload(
        name="sample",
        sentence="A sample.",
        unit="rows",
        candidates=[
            Candidate(name=f"candidate {number}", kind=Kind.NEVE, trial=trial)
            for number, trial in enumerate(trials)
        ],
        ratios=ratios,
    )


def run(
    job: Workload, directory: Path, *, rounds: int = 3, seed: int = 1
) -> tuple[WorkloadRecord, list[str]]:
    lines: list[str] = []
    record = run_workload(
        job,
        rounds=rounds,
        directory=directory,
        progress=lines.append,
        settle=lambda: None,
        seed=seed,
    )
    return record, lines


def round_record(*, rows: int = 100, wall: float = 1.0, cpu: float = 1.0) -> RoundRecord:
    return RoundRecord(
        rows=rows,
        calls=rows,
        logical_bytes=rows * 100,
        wall_seconds=wall,
        cpu_seconds=cpu,
        written_bytes=None,
        latency_us={},
        facts={},
    )


def test_a_wrong_answer_ends_the_run_and_names_the_candidate(tmp_path: Path) -> None:
    def wrong(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        with stopwatch:
            pass
        return outcome(answer=[1, 3])

    with pytest.raises(BadTrial, match="sample, candidate 1: what was read back"):
        run(workload(right, wrong), tmp_path)


def test_an_answer_compared_with_itself_is_refused(tmp_path: Path) -> None:
    def vain(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        with stopwatch:
            rows = [1, 2]
        return outcome(answer=rows, expected=rows)

    with pytest.raises(BadTrial, match="compared with itself"):
        run(workload(vain), tmp_path)


def test_a_trial_that_times_nothing_is_refused(tmp_path: Path) -> None:
    def untimed(_directory: Path, _stopwatch: Stopwatch) -> Outcome:
        return outcome(answer=[1, 2])

    with pytest.raises(BadTrial, match="nothing was timed"):
        run(workload(untimed), tmp_path)


def test_a_trial_that_does_nothing_is_refused(tmp_path: Path) -> None:
    def idle(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        with stopwatch:
            pass
        return outcome(rows=0, answer=[1, 2])

    with pytest.raises(BadTrial, match="nothing was done"):
        run(workload(idle), tmp_path)


def test_a_stopwatch_takes_one_time_only() -> None:
    stopwatch = Stopwatch()
    with stopwatch:
        pass

    with pytest.raises(BadTrial, match="started twice"), stopwatch:
        pass


def test_fewer_than_three_rounds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 rounds say nothing"):
        run(workload(right), tmp_path, rounds=2)


def test_a_ratio_of_somebody_who_does_not_take_part_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit the ratios"):
        workload(right, ratios=[Ratio(of="candidate 0", to="nobody")])


def test_a_failed_trial_leaves_no_directory(tmp_path: Path) -> None:
    def failing(directory: Path, _stopwatch: Stopwatch) -> Outcome:
        (directory / "half").write_bytes(b"written")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        run(workload(failing), tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_every_trial_begins_in_an_empty_directory(tmp_path: Path) -> None:
    found: list[list[str]] = []

    def looking(directory: Path, stopwatch: Stopwatch) -> Outcome:
        found.append([path.name for path in directory.iterdir()])
        return right(directory, stopwatch)

    run(workload(looking, looking), tmp_path)

    assert found == [[]] * 6


def test_all_candidates_run_in_a_round_before_the_next_begins(tmp_path: Path) -> None:
    record, lines = run(workload(right, right, right), tmp_path, rounds=4)

    numbers = [line.split("round ")[1].split("/")[0] for line in lines]
    assert numbers == [number for number in "1234" for _ in range(3)]
    assert [len(candidate["rounds"]) for candidate in record["candidates"]] == [4, 4, 4]
    for at in range(0, 12, 3):
        assert len({line.split("candidate ")[1][0] for line in lines[at : at + 3]}) == 3


def test_the_order_changes_between_rounds_and_is_fixed_by_the_seed(tmp_path: Path) -> None:
    def order(seed: int) -> list[str]:
        _, lines = run(workload(*[right] * 6), tmp_path, seed=seed)
        return [line.split("candidate ")[1][0] for line in lines]

    first = order(seed=7)

    assert order(seed=7) == first
    assert first[:6] != first[6:12]


@pytest.mark.parametrize(("uses_disk", "settled"), [(True, 6), (False, 0)])
def test_the_disk_comes_to_rest_before_each_trial_that_uses_it(
    tmp_path: Path, *, uses_disk: bool, settled: int
) -> None:
    calls: list[str] = []
    job = replace(workload(right, right), uses_disk=uses_disk)

    run_workload(
        job,
        rounds=3,
        directory=tmp_path,
        progress=lambda _line: None,
        settle=lambda: calls.append("settled"),
    )

    assert len(calls) == settled


def test_the_stopwatch_counts_written_bytes_and_cpu_of_its_block_only(tmp_path: Path) -> None:
    stopwatch = Stopwatch()
    (tmp_path / "before").write_bytes(bytes(1 << 20))
    with stopwatch:
        (tmp_path / "inside").write_bytes(bytes(10_000))
        sum(range(100_000))
    (tmp_path / "after").write_bytes(bytes(1 << 20))

    assert stopwatch.wall_seconds is not None
    assert stopwatch.wall_seconds > 0
    assert stopwatch.cpu_seconds > 0
    assert stopwatch.written_bytes is None or 10_000 <= stopwatch.written_bytes < 20_000


def test_latencies_become_percentiles(tmp_path: Path) -> None:
    def measured(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        with stopwatch:
            pass
        return outcome(answer=[1, 2], latencies=[number * 1_000 for number in range(101)])

    record, _ = run(workload(measured), tmp_path)

    latency = record["candidates"][0]["latency_us"]
    assert {name: spread["median"] for name, spread in latency.items()} == {
        "p50": 50.0,
        "p95": 95.0,
        "p99": 99.0,
    }


def test_a_ratio_is_taken_within_each_round() -> None:
    slow_later = [round_record(wall=wall) for wall in (1.0, 10.0, 100.0)]
    twice_as_fast = [round_record(wall=wall / 2) for wall in (1.0, 10.0, 100.0)]
    mine = summarize_candidate("mine", kind=Kind.NEVE, sync="", rounds=twice_as_fast)
    theirs = summarize_candidate("theirs", kind=Kind.PEER, sync="", rounds=slow_later)

    ratio = compare_candidates(mine, theirs, target=2.0)

    assert ratio["ratio"] == {"median": 2.0, "minimum": 2.0, "maximum": 2.0}
    assert ratio["is_met"] is True


def test_a_target_above_the_median_ratio_is_missed() -> None:
    theirs = summarize_candidate(
        "theirs", kind=Kind.PEER, sync="", rounds=[round_record() for _ in range(3)]
    )
    mine = summarize_candidate(
        "mine",
        kind=Kind.NEVE,
        sync="",
        rounds=[round_record(wall=wall, cpu=0.25) for wall in (0.1, 1.0, 1.0)],
    )

    ratio = compare_candidates(mine, theirs, target=1.5)

    assert ratio["ratio"]["maximum"] == 10.0
    assert ratio["cpu_ratio"]["median"] == 4.0
    assert ratio["is_met"] is False


@pytest.mark.parametrize(("target", "is_met"), [(4.0, True), (4.1, False)])
def test_a_target_by_cpu_time_is_judged_by_nothing_else(target: float, *, is_met: bool) -> None:
    mine, theirs = (
        summarize_candidate(name, kind=kind, sync="", rounds=[round_record(wall=wall, cpu=cpu)])
        for name, kind, wall, cpu in (
            ("mine", Kind.NEVE, 100.0, 0.5),
            ("theirs", Kind.PEER, 1.0, 2.0),
        )
    )

    ratio = compare_candidates(mine, theirs, target=target, by=Pace.CPU)

    assert ratio["ratio"]["median"] == ratio["cpu_ratio"]["median"] == 4.0
    assert ratio["is_met"] is is_met


def test_a_spread_is_median_smallest_and_largest() -> None:
    assert spread_of([5.0, 1.0, 9.0, 2.0]) == {"median": 3.5, "minimum": 1.0, "maximum": 9.0}
