"""What a process has used so far; the standard library only, for peers in another environment."""

import resource
import time
from pathlib import Path
from typing import Final

_PROCESS_IO: Final = Path("/proc/self/io")


def cpu_seconds() -> float:
    """CPU time of all threads, and of children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def written_bytes() -> int | None:
    """Bytes this process has handed to write calls so far; None where the kernel does not say."""
    try:
        lines = _PROCESS_IO.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("wchar:")), None)
