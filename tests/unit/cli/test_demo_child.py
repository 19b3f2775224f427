"""Processes that the demo starts end with it, whenever it is interrupted."""

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from examples.demo.stage import child_process

STARTED = subprocess.Popen
LASTING = "http.server"


@pytest.fixture(autouse=True)
def handler_of_python() -> Iterator[None]:
    """Begin with what Python does by itself: tests in the background of a shell ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_child_is_killed_when_its_block_ends() -> None:
    with child_process(LASTING, "0", "--bind", "127.0.0.1") as child:
        assert child.poll() is None

    assert child.returncode == -signal.SIGKILL


def test_an_interrupt_while_a_child_starts_waits_until_it_can_be_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def interrupted(*args: Any, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - passed on
        child = STARTED(*args, **options)
        os.kill(os.getpid(), signal.SIGINT)
        started.append(child)
        return child

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    before = signal.getsignal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), child_process(LASTING, "0", "--bind", "127.0.0.1"):
        pytest.fail("the block was entered")

    assert started[0].returncode == -signal.SIGKILL
    assert not psutil.pid_exists(started[0].pid)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_child_that_cannot_start_leaves_interrupts_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.executable", "/nothing/here")
    before = signal.getsignal(signal.SIGINT)

    with pytest.raises(FileNotFoundError), child_process(LASTING):
        pytest.fail("the block was entered")

    assert signal.getsignal(signal.SIGINT) is before
