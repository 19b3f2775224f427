"""What the Spark workloads share: expected answers, CPU of all processes, peers with tables."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.harness import BadTrial, Stopwatch, Workload, run_workload
from benchmarks.peer_environment import PeerEnvironment
from benchmarks.result_file import CandidateRecord
from benchmarks.spark_bench import Keys, SparkBench, SparkScale, rows_of, timed
from benchmarks.spark_peers import DELTA, PYICEBERG, Merging, SparkPeers

ROWS = 800


@dataclass(frozen=True, slots=True)
class OwnEnvironment(PeerEnvironment):
    """The environment of the tests, which has delta-rs too."""

    @property
    def python(self) -> Path:
        return Path(sys.executable)

    def is_ready(self) -> bool:
        return True


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[SparkBench]:
    """Yield the tables of the benchmarks, of which only those without Spark are made here."""
    scale = SparkScale(rows=ROWS, planned_files=())
    bench = SparkBench(tmp_path / "bench", scale, OwnEnvironment())
    yield bench
    bench.close()


def merging_of(bench: SparkBench, changes: Path, keys: Keys) -> Merging:
    return Merging(
        base=bench.plain,
        changes=changes,
        changed_rows=len(keys),
        row_bytes=60,
        expected=bench.answer_after(keys),
    )


def run(peers: SparkPeers, merging: Merging, directory: Path) -> CandidateRecord:
    """Let delta-rs merge once."""
    workload = Workload(
        name="merge",
        sentence="Merge.",
        unit="rows",
        candidates=peers.candidates(merging, DELTA),
        uses_disk=False,
    )
    record = run_workload(
        workload, rounds=1, directory=directory, progress=lambda _line: None, rounds_min=1
    )
    return record["candidates"][0]


def newest_of(*tables: pa.Table) -> pa.Table:
    """Return the newest row of each key, the slow way."""
    newest = {row["id"]: row for table in tables for row in table.to_pylist()}
    return pa.Table.from_pylist(list(newest.values()), tables[0].schema)


def added_up(table: pa.Table) -> tuple[int, int, int]:
    return table.num_rows, pc.sum(table["stamp"]).as_py(), pc.sum(table["id"]).as_py()


def test_a_wrong_answer_of_a_peer_ends_the_run(bench: SparkBench, tmp_path: Path) -> None:
    merging = merging_of(bench, bench.changes(10), bench.changed_keys(1))

    with pytest.raises(BadTrial, match="delta-rs merge: what was read back is not what was"):
        run(bench.peers, merging, tmp_path)


def test_a_peer_merges_into_the_loaded_table_whatever_it_merged_before(
    bench: SparkBench, tmp_path: Path
) -> None:
    first = merging_of(bench, bench.changes(10), bench.changed_keys(10))
    second = merging_of(bench, bench.merged(), bench.merged_keys())

    for merging in (first, second):
        found = run(bench.peers, merging, tmp_path)

        assert found["name"] == DELTA.name
        assert found["rounds"][0]["rows"] == ROWS // 10
        assert found["rounds"][0]["cpu_seconds"] > 0


def test_without_their_environment_no_peer_takes_part(bench: SparkBench) -> None:
    merging = merging_of(bench, bench.changes(10), bench.changed_keys(10))
    peers = SparkPeers(bench.directory / "peers", PeerEnvironment(bench.directory / "nowhere"))

    assert not peers.is_ready()
    assert not peers.candidates(merging, DELTA, PYICEBERG)


def test_what_changes_add_up_to_is_what_the_newest_rows_add_up_to(bench: SparkBench) -> None:
    base = pq.read_table(bench.plain)

    for keys, changes in (
        (bench.changed_keys(1), bench.changes(1)),
        (bench.changed_keys(10), bench.changes(10)),
        (bench.merged_keys(), bench.merged()),
    ):
        newest = newest_of(base, pq.read_table(changes))
        assert bench.answer_after(keys) == added_up(newest)
        assert added_up(base) == bench.base_answer() != added_up(newest)


def test_what_runs_add_up_to_is_what_the_newest_rows_add_up_to(bench: SparkBench) -> None:
    runs = [pq.read_table(path) for path in sorted(bench.runs.iterdir())]

    newest = newest_of(*runs)

    assert bench.runs_answer() == added_up(newest)
    assert newest.num_rows < sum(run.num_rows for run in runs)


def test_half_of_what_is_merged_is_new(bench: SparkBench) -> None:
    keys = bench.merged_keys()

    assert len(np.unique(keys)) == len(keys) == ROWS // 10
    assert np.count_nonzero(keys >= ROWS) == ROWS // 20
    assert rows_of(keys, stamp=2).equals(pq.read_table(bench.merged()))


BUSY = """
import sys, time
sys.stdin.readline()
until = time.process_time() + 0.3
while time.process_time() < until:
    pass
print(flush=True)
sys.stdin.read()
"""


def busy_child() -> subprocess.Popen[bytes]:
    """Start a child that works when it is told, says so, and leaves when its input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def let_work(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"\n")
    child.stdin.flush()
    assert child.stdout.readline() == b"\n"


def test_the_cpu_time_of_a_child_is_counted() -> None:
    stopwatch = Stopwatch()

    with busy_child() as child:
        with timed(stopwatch):
            let_work(child)
        child.communicate()

    assert stopwatch.cpu_seconds > 0.25  # the kernel counts in hundredths


def test_a_child_that_ends_meanwhile_takes_nothing_away() -> None:
    stopwatch = Stopwatch()

    with busy_child() as child:
        let_work(child)
        with timed(stopwatch):
            child.communicate()

    assert stopwatch.cpu_seconds >= 0
