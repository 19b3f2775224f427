"""The functions of `neve.spark` on other PySparks than the one of this environment, and on S3A.

`make interop` runs this, with environments that have PySpark 3.5 and 4.0.0, and with hadoop-aws
from Maven for Java's own reads of a bucket. Without them it is skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neve.spark.spark_session import find_java
from neve.testing.s3_servers import seaweedfs

PYTHONS = "NEVE_SPARK_PYTHONS"
JARS = "NEVE_S3A_JARS"
ROOT = Path(__file__).parents[2]
PIPELINE = Path(__file__).with_name("spark_functions.py")
SECONDS = 900

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def run(python: Path, folder: Path, settings: dict[str, str], *more: str) -> str:
    """Run the pipeline with a Python; return the last line it printed."""
    (folder / "settings.json").write_text(json.dumps(settings))
    outside = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    done = subprocess.run(
        [str(python), str(PIPELINE), str(folder), *more],
        env={
            **outside,
            **find_java(outside).environment,
            "PYTHONPATH": str(ROOT / "src"),
            "PYSPARK_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("version", ["3.5.9", "4.0.0"])
def test_every_function_runs_on_another_spark(tmp_path: Path, version: str) -> None:
    pythons = dict(each.split("=", 1) for each in os.environ.get(PYTHONS, "").split() if each)
    if version not in pythons:
        pytest.skip(f"`make interop` runs this: {PYTHONS} names no Python with PySpark {version}")

    assert run(Path(pythons[version]), tmp_path, {}) == f"{version} Spark"


@pytest.mark.s3
@pytest.mark.parametrize("through", ["Spark", "Python"])
def test_java_reads_a_bucket_itself_when_it_has_the_file_system(
    tmp_path: Path, through: str
) -> None:
    jars = os.environ.get(JARS)
    if jars is None or not list(Path(jars).glob("*hadoop-aws-*.jar")):
        pytest.skip(f"`make interop` runs this: {JARS} has no hadoop-aws, which Maven has")
    with seaweedfs() as at:
        storage = at.storage_options(listing="unordered")
        options = tmp_path / "options.json"
        options.write_text(json.dumps(storage))
        settings = {"spark.driver.extraClassPath": f"{jars}/*"}
        if through == "Spark":
            prefix = "spark.hadoop.fs.s3a"
            settings |= {
                f"{prefix}.endpoint": at.endpoint,
                f"{prefix}.endpoint.region": "eu-central-1",
                f"{prefix}.path.style.access": "true",
                f"{prefix}.access.key": at.access_key_id,
                f"{prefix}.secret.key": at.secret_access_key,
                f"{prefix}.connection.ssl.enabled": "false",
            }

        printed = run(Path(sys.executable), tmp_path, settings, at.location("lake"), str(options))

    assert printed.endswith(f" {through}")
