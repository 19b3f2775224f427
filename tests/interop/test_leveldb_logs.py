"""Logs that LevelDB wrote are read here, and logs written here are recovered by LevelDB."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from neve.wal.replay import RecoveryMode
from tests.conftest import Record as Scoreboard
from tests.gates import Gate
from tests.interop.foreign_logs import (
    assert_reads_whole,
    fast_folder,
    leveldb_logs,
    leveldb_recovery,
    neve_logs,
    random_batches,
    read_batches,
    rows_of,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with fast_folder() as path:
        yield path


def test_random_logs_of_leveldb_are_read_batch_for_batch(
    folder: Path, scoreboard: Scoreboard
) -> None:
    gate = Gate("R2 logs of LevelDB that are read differently", aim=200, full=2_000)
    for number in gate.seeds():
        seed = random.Random(number)
        batches = random_batches(seed, count=seed.randrange(1, 60))

        logs = leveldb_logs(folder / f"{number}", batches)

        gate.cases += len(logs)
        gate.violations += read_batches(logs, RecoveryMode.ABSOLUTE) != batches
        shutil.rmtree(folder / f"{number}")
        shutil.rmtree(folder / f"{number}-kept")

    scoreboard(gate.line())
    assert gate.violations == 0


def test_a_manifest_of_leveldb_is_a_log_without_damage(folder: Path) -> None:
    leveldb_logs(folder / "database", random_batches(random.Random(1), count=40))

    manifests = sorted((folder / "database").glob("MANIFEST-*"))

    assert manifests
    for manifest in manifests:
        assert_reads_whole(manifest.read_bytes())


def test_random_logs_of_neve_are_recovered_by_leveldb(folder: Path, scoreboard: Scoreboard) -> None:
    gate = Gate("R3 logs of neve that LevelDB recovers differently", aim=200, full=2_000)
    for number in gate.seeds():
        seed = random.Random(number)
        batches = random_batches(seed, count=seed.randrange(1, 60))

        logs = neve_logs(seed, batches)

        gate.cases += len(logs)
        gate.violations += leveldb_recovery(folder / f"{number}", logs) != rows_of(batches)
        shutil.rmtree(folder / f"{number}")

    scoreboard(gate.line())
    assert gate.violations == 0
