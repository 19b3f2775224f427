"""`start_up`: how long a process takes until neve, or a peer, is ready."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness import (
    Candidate,
    Kind,
    Outcome,
    Ratio,
    Scale,
    Shows,
    Stopwatch,
    Trial,
    Workload,
)

_READY: Final = "ready"
_IMPORTS: Final = (
    ("import neve", Kind.NEVE, "import neve"),
    ("import neve's log", Kind.NEVE, "import neve.storage.local_store, neve.wal.write_ahead_log"),
    ("import rocksdict", Kind.PEER, "import rocksdict"),
    ("import duckdb", Kind.PEER, "import duckdb"),
    ("import pyarrow and numpy", Kind.LIMIT, "import numpy, pyarrow"),
    ("bare Python", Kind.LIMIT, "pass"),
)


def build_start_up(scale: Scale, _directory: Path) -> Workload:
    """Processes that import a library, or show the help of the command line."""
    neve = Path(sys.executable).with_name("neve")
    candidates = [
        Candidate(
            name=name,
            kind=kind,
            trial=_starting(
                [sys.executable, "-c", f"{statement}\nprint({_READY!r})"],
                scale.starts,
                first_word=_READY,
            ),
        )
        for name, kind, statement in _IMPORTS
    ]
    help_page = Candidate(
        name="neve --help",
        kind=Kind.NEVE,
        trial=_starting([str(neve), "--help"], scale.starts, first_word="Usage:"),
    )
    return Workload(
        name="start_up",
        sentence="From starting a process to its end, with the files in memory.",
        unit="starts",
        candidates=(help_page, *candidates),
        ratios=(Ratio(of="import neve's log", to="import pyarrow and numpy"),),
        parameters={"starts_per_trial": scale.starts},
        notes=(
            "`import neve's log` needs Arrow and NumPy, so it cannot be quicker than they are.",
        ),
        shows=Shows.SECONDS,
        uses_disk=False,
    )


def _starting(command: Sequence[str], starts: int, *, first_word: str) -> Trial:
    def start(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        pages: list[str] = []
        with stopwatch:
            for _ in range(starts):
                finished = subprocess.run(command, capture_output=True, text=True, check=True)
                pages.append(finished.stdout)
        return Outcome(
            rows=starts,
            calls=starts,
            logical_bytes=0,
            answer=[page.split(maxsplit=1)[0] for page in pages],
            expected=[first_word] * starts,
        )

    return start
