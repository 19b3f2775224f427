"""Spark 3.5 with Iceberg's own runtime reads every published Version as neve does.

`make interop` runs this, with an environment that has that Spark; without one it is skipped.
"""

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from neve.spark.spark_session import find_java
from tests.interop.iceberg_history import History
from tests.interop.iceberg_readers import Rows
from tests.interop.iceberg_walk import read_metadata
from tests.interop.published_versions import PARTITIONS, published_numbers, rows_of

ENVIRONMENT = "NEVE_INTEROP_PYTHON"
JAR = "iceberg-spark-runtime-3.5_2.12-1.10.2.jar"
READER = Path(__file__).with_name("spark35_reader.py")
READ_SECONDS = 500

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def interop_python() -> Path:
    python = os.environ.get(ENVIRONMENT)
    if python is None:
        pytest.skip(f"`make interop` runs this: {ENVIRONMENT} names no Python with Spark 3.5")
    return Path(python)


@dataclass
class Reads:
    """What Spark is to read, and what neve reads."""

    folder: Path
    lakes: dict[str, str] = field(default_factory=dict)
    reads: list[dict[str, str]] = field(default_factory=list)
    expected: list[Rows] = field(default_factory=list)

    def add(self, expected: Rows, **what: str) -> None:
        self.reads.append({**what, "out": str(self.folder / f"read{len(self.reads)}")})
        self.expected.append(expected)

    def add_table(self, name: str, history: History) -> None:
        """Read the head by its folder and by SQL, and every listed Version by SQL."""
        table = history.table
        metadata = read_metadata(table.iceberg_metadata())
        self.lakes[name] = str(self.folder / name)
        sql = f"SELECT * FROM {name}.tables.`{table.table_id}`"
        self.add(rows_of(table), location=metadata["location"])
        self.add(rows_of(table), query=sql)
        for number in published_numbers(table, metadata):
            self.add(rows_of(table, number), query=f"{sql} VERSION AS OF {number}")

    def run(self, python: Path) -> str:
        """Have Spark read it all; gives its version."""
        tasks = self.folder / "tasks.json"
        tasks.write_text(json.dumps({"lakes": self.lakes, "reads": self.reads}))
        (jar,) = python.parent.parent.glob(f"lib/python*/site-packages/*/jars/{JAR}")
        outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            [str(python), str(READER), str(tasks), str(jar), str(self.folder / "scratch")],
            env={
                **outside,
                **find_java(outside).environment,
                "PYSPARK_PYTHON": str(python),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=READ_SECONDS,
        )
        assert done.returncode == 0, done.stderr[-4_000:]
        return done.stdout.strip()

    def check(self) -> None:
        """Compare what Spark wrote with what neve reads."""
        for read, expected in zip(self.reads, self.expected, strict=True):
            paths = sorted(Path(read["out"]).glob("*.parquet"))
            found = [row for path in paths for row in pq.read_table(path).to_pylist()]
            assert sorted(found, key=lambda row: row["id"]) == expected, read


def test_spark_sql_reads_every_published_version_after_random_histories(
    tmp_path: Path, interop_python: Path
) -> None:
    reads = Reads(tmp_path)
    for format_version in (3, 2):
        for kind, partition_by in PARTITIONS.items():
            name = f"{kind}{format_version}"
            history = History(
                tmp_path / name,
                seed=30 + format_version,
                format_version=format_version,
                partition_by=partition_by,
            )
            for _ in range(20):
                history.step()
            reads.add_table(name, history)
            history.close()

    assert reads.run(interop_python).startswith("3.5.")

    assert len(reads.reads) > 30
    reads.check()
