"""What the acts of the demo share: a lake to work in, a voice, and the numbers they find."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from neve.cli.demo_table import DemoTable
from neve.cli.output import Page
from neve.cli.shown_text import Json
from neve.storage.clock import Clock
from neve.storage.local_store import LocalStore
from neve.storage.table_paths import TablePaths, log_number
from neve.wal.replay import LogFile

Advance = Callable[[int], None]


class Voice(Protocol):
    """How the demo speaks to whoever watches."""

    def act(self, number: int, title: str) -> None:
        """Announce an act."""
        ...

    def say(self, text: str) -> None:
        """Tell one thing."""
        ...

    def show(self, line: Text) -> None:
        """Show one line of a drawing."""
        ...

    def progress(self, what: str, *, total: int) -> "Progressing":
        """Show how far work with `total` steps has come."""
        ...


Progressing = "contextmanager[Advance]"
