"""What Ctrl-C does, from the first moment of the process to the last.

    while modules are loaded     the process exits at once: nothing has started yet
    while a command runs         KeyboardInterrupt: the command closes what it opened, and the root
                                 reports in one line how far it came, even if other code replaced
                                 the exception
    after a command              the process exits at once: everything is written

The exit code is always 130, and there is no traceback. Where interrupts are ignored, as in a
shell's background jobs, they stay ignored.
"""

import os
import signal
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
"""Exit code of an interrupted command, as shells count it."""

_STANDARD_ERROR: Final = 2
_received: Final[list[int]] = []


def end_at_once_when_interrupted() -> None:
    """Let Ctrl-C end the process with one line, before a command starts or after it is done."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _raise):
        signal.signal(signal.SIGINT, _end)


def raise_when_interrupted() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again: from here on there is something to close."""
    if signal.getsignal(signal.SIGINT) is _end:
        _received.clear()
        signal.signal(signal.SIGINT, _raise)


def was_interrupted() -> bool:
    """Whether Ctrl-C came while the command ran.

    Code that calls Python from C may turn the KeyboardInterrupt into an error of its own.
    """
    return bool(_received)


def forget_interrupts() -> None:
    """Go on after an interrupt that ended only what was running, as in a shell."""
    _received.clear()


def _raise(number: int, _frame: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt


def _end(_signal: int, _frame: FrameType | None) -> None:
    os.write(_STANDARD_ERROR, b"neve: interrupted\n")
    os._exit(INTERRUPTED)
