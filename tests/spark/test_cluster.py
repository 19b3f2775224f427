"""Spark on a cluster of two workers that share nothing with the driver but a bucket."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neve.spark.spark_session import find_java
from neve.storage.open_store import open_store
from neve.testing.s3_servers import S3Endpoint, seaweedfs
from tests.gates import TORTURE
from tests.spark.standalone_cluster import ROOT, standalone

pytestmark = [
    pytest.mark.s3,
    pytest.mark.skipif(
        sys.platform != "linux", reason="needs /proc, and more than one address on loopback"
    ),
]

ROWS = 200_000 if TORTURE else 1_000
SECONDS = 14_000 if TORTURE else 500


def drive(at: S3Endpoint, folder: Path, *, deaths: bool) -> list[str]:
    """Run the driver; return what it printed."""
    # No keys: each process takes those of its environment.
    options = at.storage_options(listing="unordered")
    keys = {
        f"AWS_{name.upper()}": options.pop(name) for name in ("access_key_id", "secret_access_key")
    }
    location = at.location("cluster/lake")
    with standalone(folder, workers=2, variables=keys) as cluster:
        outside = {name: each for name, each in os.environ.items() if not name.startswith("AWS_")}
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "tests.spark.cluster_driver"),
                *(cluster.master, location, json.dumps(options), str(ROWS)),
                "deaths" if deaths else "none",
            ],
            cwd=cluster.driver,
            env={
                **outside,
                **find_java(outside).environment,
                **keys,
                "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert ran.returncode == 0, _short(ran.stderr)
        assert f"sees {not cluster.is_apart}" in ran.stdout
        assert at.secret_access_key not in ran.stdout + ran.stderr
        for log in folder.rglob("std*"):
            assert at.secret_access_key not in log.read_text()
    # Each died once, in the middle of its job.
    marks = open_store(location, storage_options={**options, **plain(keys)})
    assert [marks.size(f"killed-{each}") for each in ("executor", "worker")] == [16, 16]
    return ran.stdout.splitlines()


def _short(text: str) -> str:
    """Return the end of what a driver says, without Java's frames."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("at ")]
    return "\n".join(lines)[-6_000:]


def plain(keys: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("AWS_").lower(): value for name, value in keys.items()}


def test_jobs_survive_a_dead_executor_and_a_lost_worker(tmp_path: Path) -> None:
    with seaweedfs() as at:
        printed = drive(at, tmp_path, deaths=True)

    assert printed[-1].startswith("rows ")
