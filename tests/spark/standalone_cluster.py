"""A standalone cluster of Spark on loopback: a master and workers, each a process of its own.

Each has its own directory. Where the machine allows mounts in a namespace, a worker sees empty
directories in place of the others', and in place of the driver's.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import pyspark

from neve.spark.spark_session import find_java

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent
READY_SECONDS = 120.0
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.master.rest.enabled=false"


@dataclass(frozen=True)
class Cluster:
    """The address of a running cluster."""

    master: str
    driver: Path
    """A directory that only the driver has."""
    is_apart: bool
    """Whether workers cannot see the directories of others."""


@contextmanager
def standalone(folder: Path, *, workers: int, variables: Mapping[str, str]) -> Iterator[Cluster]:
    """Start a master and workers with one core each; they end with the block."""
    places = [folder / name for name in ("driver", "master", *map(_named, range(workers)))]
    for place in places:
        place.mkdir()
    driver, home, *others = places
    is_apart = _can_mount()
    with ExitStack() as running:
        ports = ["--port", "0", "--webui-port", "0"]
        started = _start(running, home, ["master.Master", *ports], variables, host="127.0.0.1")
        master = _address(started, home / "log")
        for number, place in enumerate(others):
            hidden = [each for each in places if each != place] if is_apart else []
            command = ["worker.Worker", *ports, "--cores", "1", "--memory", "600m"]
            command += ["--work-dir", str(place), master]
            # Each has a host of its own, or they would read each other's shuffles from the disk.
            host = f"127.0.0.{number + 2}"
            _start(running, place, command, variables, host=host, hidden=hidden)
        yield Cluster(master, driver, is_apart)


def _named(number: int) -> str:
    return f"worker-{number}"


def _start(
    running: ExitStack,
    place: Path,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    *,
    host: str,
    hidden: Sequence[Path] = (),
) -> "subprocess.Popen[bytes]":
    daemon, *rest = arguments
    program = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{daemon}"]
    command = [*program, "--host", host, *rest]
    if hidden:
        mounts = [f"mount -t tmpfs none {quote(str(each))}" for each in hidden]
        text = " && ".join([*mounts, f"exec {' '.join(map(quote, command))}"])
        command = ["unshare", "--mount", "sh", "-c", text]
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SPARK_"))
    }
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={
                **outside,
                **find_java(outside).environment,
                "SPARK_HOME": str(HOME),
                "SPARK_LOCAL_DIRS": str(place),
                "SPARK_LOCAL_IP": host,
                "SPARK_DAEMON_MEMORY": "200m",
                "SPARK_DAEMON_JAVA_OPTS": _JAVA,
                "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                **variables,
            },
        )
    running.callback(process.wait)
    # A worker ends its executors when it is asked to.
    running.callback(process.terminate)
    return process


def _address(master: "subprocess.Popen[bytes]", log: Path) -> str:
    ends_at = time.monotonic() + READY_SECONDS
    while time.monotonic() < ends_at:
        found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
        if found is not None:
            return found[1]
        try:
            master.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(log.read_text()[-3_000:])


def _can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    # The mount is gone with the process.
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
