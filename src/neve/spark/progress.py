"""A line on the driver's terminal for jobs that take long; nothing where there is no terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
"""Told how much of how much is done; of what, the call says."""

_WIDTH: Final = 30


@contextmanager
def shown(title: str, progress: Progress | None) -> Iterator[Progress]:
    """Return who is told of progress: the one given, or a bar that goes away with the work."""
    if progress is not None:
        yield progress
        return
    terminal = sys.stderr
    if not terminal.isatty():
        yield _say_nothing
        return

    def draw(done: int, total: int) -> None:
        share = done / total if total else 1.0
        bar = "━" * int(share * _WIDTH)
        terminal.write(f"\r\x1b[K{title} {bar:<{_WIDTH}} {share:4.0%}")
        terminal.flush()

    try:
        yield draw
    finally:
        terminal.write("\r\x1b[K")
        terminal.flush()


def _say_nothing(_done: int, _total: int) -> None:
    return
