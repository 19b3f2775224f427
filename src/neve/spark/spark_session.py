"""`neve.spark.session`: a SparkSession that fits neve, on one machine or on a cluster.

1. A running session is taken as it is; only what reads of neve tables need is switched on in it.
2. Otherwise one is started: on this machine, unless a `master` or a `remote` says where, with a
   Java from `neve.spark.spark_session` and, on this machine, with this Python in the workers.

`config` wins over every default.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from neve.errors import InvalidArgument, Unavailable
from neve.spark.spark_session import find_java

# What reading and writing neve's tables relies on; each may change while a session runs.
NEEDED: Final = {
    # Columns are found by field id: a renamed column is still the same one.
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    # Without it Spark refuses a Python source that can take filters.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Listing a thousand named files in a job takes seconds, in the driver a quarter of one.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

# What a new session has besides, wherever it runs.
_DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

# What a driver that is started here has besides.
_DRIVER_DEFAULTS: Final = {
    # A Python traceback is read with a deep regular expression when a stream stops.
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
    server. `config` are settings of Spark, and win over neve's. Raises Unavailable when there is no
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
            # A server that is started with these settings refuses to be given them once more.
            warnings.filterwarnings("ignore", message="Failed to set spark", category=UserWarning)
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            raise Unavailable(
                f"Spark did not start: {error}",
                hint="What Java printed on standard error says why",
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
    """Decide what is started; raises Unavailable when it needs a Java and there is none."""
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
    """Switch on in a session what reads and writes of neve tables need; gives the session."""
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
    """Set variables while Spark starts, and put back what there was."""
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
