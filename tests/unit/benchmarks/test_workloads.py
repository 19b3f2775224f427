"""Every workload runs with all its candidates and reads back what it wrote."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import Scale, run_workload
from benchmarks.iceberg_suite import ICEBERG_WORKLOADS
from benchmarks.peer_environment import PeerEnvironment
from benchmarks.run import WORKLOADS, main

TINY = Scale(
    rows=300,
    batches=3,
    replay_batches=3,
    batch_rows=200,
    synced_seconds=0.01,
    keys=1_000,
    starts=1,
)


EVERY = {**WORKLOADS, **ICEBERG_WORKLOADS}


@pytest.fixture(autouse=True)
def only_peers_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetch nothing: peers take part where their environment was made before."""
    monkeypatch.setattr(PeerEnvironment, "prepare", lambda self, _say: self.is_ready())


@pytest.mark.parametrize("name", EVERY)
def test_every_candidate_gives_the_right_answer(tmp_path: Path, name: str) -> None:
    workload = replace(EVERY[name](TINY, tmp_path), rounds_factor=1, uses_disk=False)

    record = run_workload(workload, rounds=3, directory=tmp_path, progress=lambda _line: None)

    assert record["name"] == name
    assert all(candidate["rate"]["minimum"] > 0 for candidate in record["candidates"])
    assert all(ratio["ratio"]["minimum"] > 0 for ratio in record["ratios"])


def test_too_few_rounds_are_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--rounds", "2"])

    assert "use 3+" in capsys.readouterr().err


def test_a_partial_run_writes_only_where_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Path(__file__).parents[3] / "benchmarks" / "results"
    before = sorted(results.glob("*"))

    assert main(["--quick", "--rounds", "3", "--only", "encode_keys"]) == 0
    assert main(["--quick", "--rounds", "3", "--only", "encode_keys", "--out", str(tmp_path)]) == 0

    assert sorted(results.glob("*")) == before
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".md", ".svg"]
    assert "nothing was written" in capsys.readouterr().out
