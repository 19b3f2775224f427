"""Ctrl-C ends the process at once while nothing is begun, and is an exception in between."""

import signal
from collections.abc import Iterator

import pytest

from neve.cli.interrupts import end_at_once_when_interrupted, raise_when_interrupted


@pytest.fixture(autouse=True)
def handler_of_python() -> Iterator[None]:
    """Begin and end with what Python does by itself."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_between_beginning_and_end_an_interrupt_is_an_exception() -> None:
    end_at_once_when_interrupted()
    while_loading = signal.getsignal(signal.SIGINT)

    raise_when_interrupted()

    assert while_loading is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("chosen", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_somebody_else_has_chosen_stays(chosen: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, chosen)

    end_at_once_when_interrupted()
    raise_when_interrupted()

    assert signal.getsignal(signal.SIGINT) is chosen
