"""What the acts of the demo share: a lake to work in, a voice, and the numbers they find."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from neve.cli.demo_table import DemoTable
from neve.cli.fitted_text import wrapped
from neve.cli.output import PLAIN_COLUMNS, Page
from neve.storage.clock import Clock
from neve.storage.local_store import LocalStore
from neve.storage.table_paths import TablePaths, log_number
from neve.wal.replay import LogFile


@dataclass(frozen=True, slots=True)
class Finding:
    """One number an act measured; with words, it is told once more at the end."""

    name: str
    value: int | float | bool
    words: str = ""


class Narrator:
    """Tells the demo on a page; without one, in silence."""

    def __init__(self, page: Page | None) -> None:
        self._page = page
        self.columns: Final = PLAIN_COLUMNS if page is None else page.columns

    def act(self, number: int, title: str) -> None:
        """Announce an act."""
        self.show(Text())
        self.show(Text.assemble((f" {number} ", "bold reverse"), (f" {title}", "bold")))

    def say(self, words: str) -> None:
        """Tell one thing; what is indented stays so when it takes several lines."""
        self._tell(Text(f"    {words}"), indent=4 + len(words) - len(words.lstrip()))

    def found(self, words: str) -> None:
        """Tell one thing that was checked and is as it should be."""
        self._tell(Text.assemble(("  ✔ ", "bold green"), words), indent=4)

    def show(self, line: Text) -> None:
        """Show one line as it is, at once."""
        if self._page is not None:
            self._page.line(line)
            self._page.flush()

    def _tell(self, text: Text, *, indent: int) -> None:
        for line in wrapped(text, self.columns, indent=indent):
            self.show(line)

    @contextmanager
    def progress(self, what: str, *, total: int) -> Iterator[Callable[[int], None]]:
        """Give a function that tells how many steps are done; drawn on a terminal only."""
        if self._page is None or not self._page.is_terminal:
            yield lambda _done: None
            return
        columns = (TextColumn("    {task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self._page.console, transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.update(task, completed=done)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The lake of one run of the demo, and the tools to work on it."""

    root: Path
    store: LocalStore
    clock: Clock
    table: DemoTable
    run_id: str
    """Part of every table id, so that runs in one lake do not meet."""
    narrator: Narrator

    def paths(self, act: str) -> TablePaths:
        """Where the files of an act's table are."""
        return TablePaths(f"demo-{self.run_id}-{act}")

    def logs(self, paths: TablePaths) -> list[LogFile]:
        """Give the logs of a table, in the order of their numbers."""
        found = []
        for info in self.store.list(f"{paths.wal}/"):
            number = log_number(info.path)
            if number is not None:
                found.append(LogFile(number=number, path=info.path))
        return sorted(found, key=lambda log: log.number)
