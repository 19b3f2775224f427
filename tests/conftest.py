"""What every test folder shares: Hypothesis profiles, the scoreboard, lakes that end."""

import gc
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from neve.storage.memory_store import forget_memory_stores

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(
    "ci",
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("nightly", max_examples=5_000, deadline=None)
settings.register_profile("boxed", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

Record = Callable[[str], None]
SCOREBOARD_FILE = os.environ.get("NEVE_SCOREBOARD")
_FORGOTTEN_SECONDS = 30
OUTCOMES = ("passed", "failed", "error", "skipped")


@pytest.fixture(autouse=True)
def _lakes_in_memory_end() -> Iterator[None]:
    """Let the lakes at `memory://…` end with the test that made them."""
    yield
    forget_memory_stores()


@pytest.fixture
def no_forgotten() -> None:
    """Wait for what earlier tests forgot to close: it ends in threads of its own."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "neve-forgotten":
            thread.join(_FORGOTTEN_SECONDS)


@pytest.fixture
def scoreboard(record_property: Callable[[str, object], None]) -> Record:
    """Return a function that adds one line to the scoreboard at the end of the run."""

    def add(line: str) -> None:
        record_property("scoreboard", line)

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = sorted(
        str(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == "scoreboard"
    )
    if lines:
        terminalreporter.section("reliability scoreboard")
        for line in lines:
            terminalreporter.write_line(line)
    is_worker = hasattr(terminalreporter.config, "workerinput")  # the controller has it all
    if SCOREBOARD_FILE and not is_worker:
        counts = {word: len(terminalreporter.stats.get(word, ())) for word in OUTCOMES}
        with Path(SCOREBOARD_FILE).open("a") as file:
            file.write(json.dumps({"lines": lines, "outcomes": counts}) + "\n")
