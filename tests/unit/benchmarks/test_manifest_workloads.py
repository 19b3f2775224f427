"""The manifest workloads count what they say they count, and go on without peers."""

import json
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import manifest_commits
from benchmarks.harness import (
    QUICK,
    BadTrial,
    Candidate,
    Kind,
    Measured,
    Outcome,
    Scale,
    Stopwatch,
    Workload,
    run_workload,
)
from benchmarks.manifest_commits import build_manifest_commits, commit_in_threads
from benchmarks.manifest_growth import build_manifest_growth
from benchmarks.manifest_table import (
    BenchTable,
    CountingStore,
    Traffic,
    data_file,
    file_path,
    read_newest,
    tiny_appends,
    tiny_rewrites,
)
from benchmarks.peer_environment import PEERS, PYPAIMON, PeerEnvironment
from benchmarks.peer_process import PeerProcess, measured_together
from benchmarks.peers.json_lines import TimedPart
from benchmarks.peers.one_row import one_row
from benchmarks.report import terminal_table
from benchmarks.result_file import (
    Pace,
    RoundRecord,
    WorkloadRecord,
    compare_candidates,
    summarize_candidate,
)
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore

ROOT = Path(__file__).parents[3]
TINY = replace(QUICK, commits=8, growth_commits=4, table_files=30)


def run(workload: Workload, directory: Path) -> WorkloadRecord:
    return run_workload(
        workload,
        rounds=3,
        directory=directory,
        progress=lambda _line: None,
        settle=lambda: None,
    )


def part(*, began_at: float, ended_at: float, written_bytes: int | None = 10) -> TimedPart:
    return TimedPart(
        began_at=began_at, ended_at=ended_at, cpu_seconds=0.5, written_bytes=written_bytes
    )


def without_peers(
    monkeypatch: pytest.MonkeyPatch, directory: Path, *, scale: Scale = TINY
) -> Workload:
    monkeypatch.setattr(
        manifest_commits, "PeerEnvironment", lambda: PeerEnvironment(directory / "nowhere")
    )
    return build_manifest_commits(scale, directory)


# What is counted


def test_commits_that_never_happened_are_noticed(tmp_path: Path) -> None:
    trial = commit_in_threads(
        4, lambda _directory: MemoryStore(), choose=lambda _table: lambda _tiny, base: base
    )
    workload = Workload(
        name="idle",
        sentence="Commits nothing.",
        unit="commits",
        candidates=[Candidate(name="idler", kind=Kind.NEVE, trial=trial)],
    )

    with pytest.raises(BadTrial, match="idler: what was read back"):
        run(workload, tmp_path)


def test_a_commit_of_the_only_committer_costs_one_read_and_two_writes() -> None:
    objects = CountingStore(MemoryStore())
    table = BenchTable(objects)
    base = table.create()
    before = objects.traffic

    for tiny in tiny_appends(range(5)):
        base = table.append_alone(tiny, base)

    traffic = objects.traffic.since(before)
    assert (traffic.reads, traffic.writes) == (5, 10)
    assert traffic.per_commit(5)["object_bytes_per_commit"] == traffic.written_bytes / 5


def test_every_call_of_a_store_is_counted_once() -> None:
    objects = CountingStore(MemoryStore())

    tag = objects.put("a", b"12")
    objects.put_if_absent("b", b"345")
    objects.put_if_match("a", b"6", tag=tag)
    objects.delete("b")
    assert objects.traffic == Traffic(reads=0, writes=4, written_bytes=6)

    objects.get("a")
    objects.get_if_changed("a", tag=tag)
    objects.get_range("a", start=0, length=1)
    objects.size("a")
    assert [found.path for found in objects.list("")] == ["a"]
    assert objects.traffic == Traffic(reads=5, writes=4, written_bytes=6)


def test_threads_commit_every_row_once(tmp_path: Path) -> None:
    stopwatch = Stopwatch()
    trial = commit_in_threads(16, lambda directory: LocalStore(str(directory)), threads=8)

    outcome = trial(tmp_path, stopwatch)

    assert outcome.answer == outcome.expected == read_newest(LocalStore(str(tmp_path)))
    assert len(outcome.latencies_ns) == 16
    assert outcome.facts["writes_per_commit"] > 0


def test_the_facts_of_a_file_are_those_of_its_row() -> None:
    (row,) = one_row(1_234).to_pylist()
    bounds = [column.lower for column in data_file(1_234).statistics]

    assert bounds == [
        struct.pack("<q", row["id"]),
        row["name"].encode()[:16],
        struct.pack("<d", row["score"]),
        struct.pack("<i", row["visits"]),
        row["payload"][:16],
    ]


def test_checkpoints_are_published_where_they_are_counted_and_nowhere_else(tmp_path: Path) -> None:
    record = run(build_manifest_growth(TINY, tmp_path), tmp_path)

    counts = {
        candidate["name"]: candidate["facts"]["checkpoints"]["minimum"]
        for candidate in record["candidates"]
    }
    assert {name: bool(count) for name, count in counts.items()} == {
        f"{verb} {where}, {files} files": where == "in memory with checkpoints"
        for verb in ("append", "compact")
        for where in ("on disk", "in memory", "in memory with checkpoints")
        for files in (10, 30)
    }
    assert {ratio["of"]: ratio["target"] for ratio in record["ratios"] if ratio["target"]} == {
        "append on disk, 30 files": 0.5,
        "compact on disk, 30 files": 0.5,
    }
    assert "on disk, 30 files ÷ append on disk, 10 files, median call" in terminal_table(record)


def test_threads_that_share_a_handle_need_fewer_writes_than_commits(tmp_path: Path) -> None:
    trial = commit_in_threads(64, lambda directory: LocalStore(str(directory)), threads=8)

    outcome = trial(tmp_path, Stopwatch())

    assert outcome.facts["writes_per_commit"] < 2


def test_rewrites_leave_as_many_files_as_there_were(tmp_path: Path) -> None:
    objects = LocalStore(str(tmp_path))
    table = BenchTable(objects)
    base = table.create([data_file(number, level=1) for number in range(3)])

    for tiny in tiny_rewrites(7, files=3):
        base = table.rewrite(tiny, base)

    assert read_newest(objects) == (8, [file_path(number) for number in (7, 8, 9)])


# Comparing by the median call


def test_one_stalled_call_does_not_change_a_ratio_of_median_calls() -> None:
    def rounds(*, wall: float, median_us: float) -> list[RoundRecord]:
        return [
            RoundRecord(
                rows=100,
                calls=100,
                logical_bytes=0,
                wall_seconds=wall,
                cpu_seconds=0.1,
                written_bytes=None,
                latency_us={"p50": median_us},
                facts={},
            )
        ] * 3

    stalled = summarize_candidate(
        "stalled", kind=Kind.NEVE, sync="", rounds=rounds(wall=9.0, median_us=500.0)
    )
    steady = summarize_candidate(
        "steady", kind=Kind.NEVE, sync="", rounds=rounds(wall=0.1, median_us=1_000.0)
    )

    by_rate = compare_candidates(stalled, steady, target=1.0)
    by_median = compare_candidates(stalled, steady, target=1.0, by=Pace.MEDIAN_CALL)

    assert by_rate["is_met"] is False
    assert by_median["ratio"]["median"] == pytest.approx(2.0)
    assert by_median["by"] == "median call"


# Parts that run in other processes


def test_processes_together_take_from_the_first_beginning_to_the_last_end() -> None:
    measured = measured_together(
        [part(began_at=10.0, ended_at=11.0), part(began_at=10.5, ended_at=12.0)]
    )

    assert measured == Measured(wall_seconds=2.0, cpu_seconds=1.0, written_bytes=20)


def test_written_bytes_are_unknown_when_one_process_does_not_know() -> None:
    parts = [part(began_at=0, ended_at=1), part(began_at=0, ended_at=1, written_bytes=None)]

    assert measured_together(parts).written_bytes is None


def test_a_stopwatch_takes_either_a_block_or_what_others_measured() -> None:
    elsewhere = Measured(wall_seconds=2.0, cpu_seconds=1.0, written_bytes=None)
    stopwatch = Stopwatch()
    stopwatch.take(elsewhere)

    assert (stopwatch.wall_seconds, stopwatch.cpu_seconds) == (2.0, 1.0)
    with pytest.raises(BadTrial, match="started twice"):
        stopwatch.take(elsewhere)
    with pytest.raises(BadTrial, match="started twice"), stopwatch:
        pass


@pytest.mark.parametrize("rounds", [2, 3])
def test_a_workload_is_released_however_its_run_ends(tmp_path: Path, rounds: int) -> None:
    released: list[str] = []

    def failing(_directory: Path, _stopwatch: Stopwatch) -> Outcome:
        raise OSError("no space")

    workload = Workload(
        name="failing",
        sentence="Fails.",
        unit="rows",
        candidates=[Candidate(name="one", kind=Kind.NEVE, trial=failing)],
        release=lambda: released.append("released"),
    )

    with pytest.raises((OSError, ValueError)):
        run_workload(workload, rounds=rounds, directory=tmp_path, progress=lambda _line: None)

    assert released == ["released"]


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        ("benchmarks.peers.nobody", "has ended; it said:\n.*No module named"),
        ("this", "which is no JSON"),
        ("json.tool", "gave no answer for 0.5 s"),
    ],
)
def test_a_process_that_does_not_greet_is_reported(module: str, complaint: str) -> None:
    process = PeerProcess(module, answer_seconds=0.5 if module == "json.tool" else 60.0)
    try:
        with pytest.raises(BadTrial, match=f"(?s)^{module} .*{complaint}"):
            process.ask("anything")
    finally:
        process.close()


def test_a_call_that_fails_is_reported_and_the_process_lives_on(tmp_path: Path) -> None:
    BenchTable(LocalStore(str(tmp_path))).create()
    process = PeerProcess("benchmarks.peers.neve_committer")
    try:
        with pytest.raises(BadTrial, match="InvalidArgument: the location is empty"):
            process.ask("open", location="", storage_options={})
        assert process.ask("open", location=str(tmp_path), storage_options={}) == 1
    finally:
        process.close()


def test_what_a_call_prints_is_never_taken_for_an_answer() -> None:
    program = (
        "from benchmarks.peers.json_lines import serve\n"
        "serve('ready', {'shout': lambda word: print(word)})"
    )
    asked = json.dumps({"call": "shout", "arguments": {"word": "noise"}})

    finished = subprocess.run(
        [sys.executable, "-c", program],
        input=f"{asked}\n",
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )

    assert finished.stdout.splitlines() == ['{"result": "ready"}', '{"result": null}']
    assert finished.stderr == "noise\n"


# The peers' environment


def test_without_their_environment_peers_are_left_out_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = without_peers(monkeypatch, tmp_path)
    workload.release()

    assert [one.name for one in workload.candidates if one.kind is Kind.PEER] == []
    assert workload.parameters["peers"] == "left out"
    assert any("did not take part" in note for note in workload.notes)


@pytest.mark.parametrize("name", [PEERS, PYPAIMON])
def test_an_environment_is_made_once_and_again_when_its_lock_changes(
    tmp_path: Path, name: str
) -> None:
    said: list[str] = []
    lock = tmp_path / f"requirements-{name}.lock"
    lock.write_text("# nobody\n")
    environment = PeerEnvironment(tmp_path, name)

    assert not environment.is_ready()
    assert environment.prepare(said.append)
    assert environment.is_ready()
    assert environment.prepare(said.append)
    assert len(said) == 1
    hidden = (tmp_path / f".venv-{name}" / ".gitignore").read_text()
    assert hidden.splitlines()[-1] == "*"  # newer Pythons write a comment above it

    lock.write_text("# nobody, but another one\n")
    assert not environment.is_ready()


def test_an_environment_that_cannot_be_made_is_not_used(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "requirements-peers.lock").write_text("this is no requirement\n")
    environment = PeerEnvironment(tmp_path)

    assert not environment.prepare(said.append)

    assert not environment.is_ready()
    assert "left out" in said[-1]


@pytest.mark.parametrize(
    ("environment", "names"),
    [(PEERS, {"deltalake", "pyiceberg"}), (PYPAIMON, {"pypaimon", "pypaimon-rust"})],
)
def test_the_lock_of_the_peers_has_hashes_and_names_no_host(
    environment: str, names: set[str]
) -> None:
    lines = (ROOT / f"requirements-{environment}.lock").read_text().splitlines()
    packages = [line for line in lines if line and not line.startswith((" ", "#"))]

    assert names <= {line.partition("==")[0] for line in packages}
    assert all("==" in line and line.endswith("\\") for line in packages)
    assert [line for line in lines if "://" in line or "index-url" in line] == []
