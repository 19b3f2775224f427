"""Commands of `neve` run in a process of their own, with the memory that each one took.

A test worker may already hold a gigabyte, and Linux counts the memory of a process as that of each
child it starts. Commands whose memory matters therefore run in one small process, line by line:

    in   ["inspect", "sst", "odd.parquet"]
    out  {"exit_code": 0, "stdout": "…", "stderr": "…", "memory_kib": 91234}
"""

import json
import re
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from click.testing import CliRunner

from neve.cli.main import cli


@dataclass(frozen=True, slots=True)
class Measured:
    """How a command ended, and the most memory that it and its children have had so far."""

    exit_code: int
    stdout: str
    stderr: str
    memory_kib: int


class MeasuredCommands:
    """The process that runs the commands; leaving it ends it."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        )
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def run(self, *arguments: str | Path) -> Measured:
        """Run one command and return how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([*map(str, arguments)]), file=self._process.stdin, flush=True)
        return Measured(**json.loads(self._process.stdout.readline()))


def peak_kib() -> int:
    """Return the most memory that this process or a child that ended has had, in KiB."""
    own = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert own is not None
    return max(int(own[1]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def main() -> None:
    """Run the commands that come, until there are no more."""
    for line in sys.stdin:
        said = CliRunner().invoke(cli, json.loads(line))
        found = Measured(said.exit_code, said.stdout, said.stderr, peak_kib())
        print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    main()
