"""The Spark workloads give right answers, with all candidates that need no other environment."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.harness import Kind, run_workload
from benchmarks.peer_environment import PeerEnvironment
from benchmarks.report import terminal_table
from benchmarks.spark_bench import SparkBench, SparkScale
from benchmarks.spark_peers import LEFT_OUT
from benchmarks.spark_suite import SPARK_WITH_PEERS, SPARK_WORKLOADS

TINY = SparkScale(rows=2_000, planned_files=(2, 4))


@pytest.fixture(scope="module")
def bench(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkBench]:
    """Yield the tables of the benchmarks, small, without peers."""
    directory = tmp_path_factory.mktemp("benchmarks")
    bench = SparkBench(directory / "bench", TINY, PeerEnvironment(directory / "nowhere"))
    bench.session = spark  # shared, so it is not closed with the rest
    yield bench
    bench.peers.close()
    bench.running.close()


@pytest.mark.parametrize("name", SPARK_WORKLOADS)
def test_every_candidate_gives_the_right_answer(
    bench: SparkBench, tmp_path: Path, name: str
) -> None:
    workload = replace(SPARK_WORKLOADS[name](bench), uses_disk=False)

    record = run_workload(
        workload, rounds=1, directory=tmp_path, progress=lambda _line: None, rounds_min=1
    )

    assert record["candidates"][0]["kind"] == Kind.NEVE
    assert all(candidate["rate"]["minimum"] > 0 for candidate in record["candidates"])
    assert all(ratio["cpu_ratio"]["minimum"] > 0 for ratio in record["ratios"])
    assert (LEFT_OUT in record["notes"]) == (name in SPARK_WITH_PEERS)
    assert "neve" in terminal_table(record)
