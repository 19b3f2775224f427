"""What a reader of a result must know about the machine, without learning whose it is.

Never a path, a host name or a user name: results are committed.
"""

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Final

import google_crc32c

from benchmarks.result_file import EnvironmentRecord

_LIBRARIES: Final = (
    "neve",
    "pyarrow",
    "numpy",
    "google-crc32c",
    "protobuf",
    "obstore",
    "moto",
    "rocksdict",
    "lmdb",
    "duckdb",
)
_UNKNOWN: Final = "unknown"


def describe_environment(scratch: Path) -> EnvironmentRecord:
    """Describe this machine, these libraries, and the file system that `scratch` is on."""
    checkout = Path(__file__).parent
    commit = _git(checkout, "rev-parse", "HEAD")
    return EnvironmentRecord(
        commit=commit or _UNKNOWN,
        commit_is_clean=bool(commit) and not _git(checkout, "status", "--porcelain"),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        libraries={name: metadata.version(name) for name in _LIBRARIES},
        checksum=f"crc32c in {google_crc32c.implementation}",
        operating_system=_operating_system(),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        file_system=file_system_of(scratch, mounts=Path("/proc/mounts").read_text()),
    )


def load_averages() -> list[float]:
    """Runnable processes over the last 1, 5 and 15 minutes."""
    return list(os.getloadavg())


def file_system_of(directory: Path, *, mounts: str) -> str:
    """Kind of file system a directory is on, by the table of mounts."""
    place = directory.resolve()
    kind, depth = _UNKNOWN, -1
    for line in mounts.splitlines():
        _, point, point_kind, *_ = line.split()
        mounted = Path(point.replace("\\040", " "))
        # A later mount on the same point hides the earlier one.
        if place.is_relative_to(mounted) and len(mounted.parts) >= depth:
            kind, depth = point_kind, len(mounted.parts)
    return kind


def _operating_system() -> str:
    # Only the numbers: what follows them may name an owner's own kernel.
    number = re.match(r"\d+(\.\d+)*", platform.release())
    return f"{platform.system()} {number.group() if number else _UNKNOWN} {platform.machine()}"


def _processor() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1) if found else platform.machine()


def _git(checkout: Path, *arguments: str) -> str:
    """Ask git; empty when there is no git or no repository, as in an unpacked archive."""
    try:
        answer = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(checkout), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
