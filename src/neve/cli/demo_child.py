"""A process that the demo starts, and that never outlives it, also when the demo is interrupted."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO


@contextmanager
def child_process(
    module: str, *args: str, errors: IO[bytes] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module of ours, whose output can be read; it is killed when the block ends.

    An interrupt that comes while it starts waits until there is something to kill.
    """
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: interrupts.append(number))
    try:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", module, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            # In a session of its own, so that an interrupt from the keyboard reaches only the demo.
            start_new_session=True,
        )
    except BaseException:
        signal.signal(signal.SIGINT, before)
        raise
    with child:
        try:
            signal.signal(signal.SIGINT, before)
            if interrupts and before is not signal.SIG_IGN:
                raise KeyboardInterrupt
            yield child
        finally:
            child.kill()
