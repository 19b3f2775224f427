"""Ctrl-C ends the process at once while nothing is begun, and is an exception in between."""

import signal
from collections.abc import Iterator

import pytest

from neve.cli.exit_codes import report_failure
from neve.cli.interrupts import end_at_once_when_interrupted, raise_when_interrupted


@pytest.fixture(autouse=True)
def handler_of_python() -> Iterator[None]:
    """Begin and end with what Python does by itself."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    # A command that begins knows of no interrupt before it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_at_once_when_interrupted()
    raise_when_interrupted()
    signal.signal(signal.SIGINT, before)


def test_between_beginning_and_end_an_interrupt_is_an_exception() -> None:
    end_at_once_when_interrupted()
    while_loading = signal.getsignal(signal.SIGINT)

    raise_when_interrupted()

    assert while_loading is not signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_error_that_a_library_made_of_an_interrupt_is_told_as_an_interrupt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    end_at_once_when_interrupted()
    raise_when_interrupted()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)

    code = report_failure(RuntimeError("Query interrupted"))

    assert (code, capsys.readouterr().err) == (130, "neve: interrupted\n")


def test_without_an_interrupt_the_same_error_is_told_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    end_at_once_when_interrupted()
    raise_when_interrupted()

    code = report_failure(RuntimeError("Query interrupted"))

    assert code == 1
    assert "unexpected RuntimeError: Query interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("chosen", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_somebody_else_has_chosen_stays(chosen: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, chosen)

    end_at_once_when_interrupted()
    raise_when_interrupted()

    assert signal.getsignal(signal.SIGINT) is chosen
