"""The side of the process that is asked: one JSON line in, one JSON line out.

    asked    {"call": "commit", "arguments": {"commits": 40}}
    answer   {"result": …}, or {"error": "what went wrong"}

The first line comes unasked, when the process is ready: its greeting, as a result. The end of the
input ends the process. What libraries print goes to standard error, never between the answers.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self, TypedDict

from benchmarks.process_usage import cpu_seconds, written_bytes

Calls = Mapping[str, Callable[..., object]]


class TimedPart(TypedDict):
    """When a timed part began and ended on the machine's clock, and what it used."""

    began_at: float
    ended_at: float
    cpu_seconds: float
    written_bytes: int | None


class PartTimer:
    """Measures a block of this process as the harness's stopwatch measures its own."""

    def __init__(self) -> None:
        self.part: TimedPart = {
            "began_at": 0.0,
            "ended_at": 0.0,
            "cpu_seconds": 0.0,
            "written_bytes": None,
        }

    def __enter__(self) -> Self:
        self.part["written_bytes"] = written_bytes()
        self.part["cpu_seconds"] = cpu_seconds()
        self.part["began_at"] = time.perf_counter()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.part["ended_at"] = time.perf_counter()
        self.part["cpu_seconds"] = cpu_seconds() - self.part["cpu_seconds"]
        before, after = self.part["written_bytes"], written_bytes()
        self.part["written_bytes"] = None if before is None or after is None else after - before


def serve(greeting: object, calls: Calls) -> None:
    """Greet, then answer calls by name until the input ends."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        _answer(answers.write, {"result": greeting})
        answers.flush()
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                answer = {"result": calls[asked["call"]](**asked["arguments"])}
            except Exception as error:  # noqa: BLE001 - whatever it is, the asker must hear of it
                answer = {"error": f"{type(error).__name__}: {error}"}
            _answer(answers.write, answer)
            answers.flush()


def _answer(write: Callable[[str], object], answer: Mapping[str, object]) -> None:
    write(f"{json.dumps(answer)}\n")
