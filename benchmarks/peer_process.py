"""A process beside the harness that is asked with JSON lines; see `benchmarks.peers.json_lines`.

It lives as long as its workload, so that starting it and importing its libraries is not measured,
and it can be asked in every round. What it times, it times itself.
"""

import functools
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from benchmarks.harness import BadTrial, Measured
from benchmarks.peers.json_lines import TimedPart

_ROOT: Final = Path(__file__).parent.parent
_ANSWER_SECONDS: Final = 300.0
_ENDING_SECONDS: Final = 30.0
_PIECE_BYTES: Final = 1 << 16
_ANSWER_BYTES_MAX: Final = 64 << 20
_SHOWN_CHARACTERS: Final = 2_000


class PeerProcess:
    """A child process; asked by one thread at a time."""

    def __init__(
        self, module: str, *, python: Path | None = None, answer_seconds: float = _ANSWER_SECONDS
    ) -> None:
        """Start `module` with a Python, this one when none is given, without waiting for it."""
        self._module = module
        self._answer_seconds = answer_seconds
        self._unread = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [str(python or sys.executable), "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=_ROOT,
        )

    @functools.cached_property
    def greeting(self) -> object:
        """What it says when it is ready; raises BadTrial when it does not come to that."""
        return self.receive()

    def ask(self, call: str, **arguments: object) -> object:
        """Ask and wait for the answer; raises BadTrial when there is none, or an error."""
        self.send(call, **arguments)
        return self.receive()

    def send(self, call: str, **arguments: object) -> None:
        """Ask without waiting for the answer, so that several processes can work at once."""
        assert self._process.stdin is not None
        _ = self.greeting  # comes first, and must not be taken for an answer
        line = json.dumps({"call": call, "arguments": arguments})
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._failed("has ended") from error

    def receive(self) -> object:
        """Wait for the answer to what was sent; raises BadTrial when there is none, or an error."""
        line = self._read_line()
        try:
            answer = cast("dict[str, object]", json.loads(line))
        except json.JSONDecodeError as error:
            raise self._failed(f"answered {line[:80]!r}, which is no JSON") from error
        if "error" in answer:
            raise self._failed(f"answered {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        """End the process by ending its input; one that does not react is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended already
            self._process.stdin.close()
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _read_line(self) -> bytes:
        """Read up to the end of a line; a silent process is killed when its time is over."""
        assert self._process.stdout is not None
        ends_at = time.monotonic() + self._answer_seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(ends_at - time.monotonic(), 0.0)):
                    self._process.kill()
                    raise self._failed(f"gave no answer for {self._answer_seconds:g} s")
                piece = os.read(self._process.stdout.fileno(), _PIECE_BYTES)
                if not piece:
                    raise self._failed("has ended")
                self._unread += piece
                if len(self._unread) > _ANSWER_BYTES_MAX:
                    self._process.kill()
                    raise self._failed(f"answered more than {_ANSWER_BYTES_MAX:,} bytes")
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _failed(self, what: str) -> BadTrial:
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()[-_SHOWN_CHARACTERS:]
        return BadTrial(f"{self._module} {what}" + (f"; it said:\n{said}" if said else ""))


def measured_together(parts: Sequence[TimedPart]) -> Measured:
    """Put together what processes measured that worked at the same time.

    Wall time is from the first beginning to the last end: all read the same clock of the machine.
    """
    written = [part["written_bytes"] for part in parts]
    return Measured(
        wall_seconds=max(part["ended_at"] for part in parts)
        - min(part["began_at"] for part in parts),
        cpu_seconds=sum(part["cpu_seconds"] for part in parts),
        written_bytes=None if None in written else sum(each or 0 for each in written),
    )
