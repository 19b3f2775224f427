"""What the acts of the demo share: a lake to work in, a voice, and the numbers they find."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from neve.catalog.kv_catalog import KVCatalog
from neve.catalog.table import Table
from neve.cli.demo_table import DemoTable, by_key
from neve.cli.fitted_text import wrapped
from neve.cli.output import PLAIN_COLUMNS, Page
from neve.errors import Corruption
from neve.observability.metrics import Counters
from neve.storage.clock import Clock


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
    """The lake of one run of the demo, its table of orders, and the tools to work on them."""

    root: Path
    lake: KVCatalog
    orders: Table
    counters: Counters
    """Takes the metrics of the lake's tables."""
    clock: Clock
    table: DemoTable
    run_id: str
    """Part of every name, so that runs in one lake do not meet."""
    narrator: Narrator

    def name(self, table: str) -> str:
        """Full name of a table of this run."""
        return f"{namespace_of(self.run_id)}.{table}"

    @contextmanager
    def timed(self) -> Iterator[Callable[[], float]]:
        """Give a function that tells the seconds since the beginning, or until the end."""
        began_at = self.clock.monotonic()
        ended_at: list[float] = []
        try:
            yield lambda: (ended_at or [self.clock.monotonic()])[0] - began_at
        finally:
            ended_at.append(self.clock.monotonic())


def namespace_of(run_id: str) -> str:
    """Namespace of the tables of one run."""
    return f"demo_{run_id}"


def check_equal(found: pa.Table, due: pa.Table, what: str) -> None:
    """Raise Corruption unless the rows found, in whatever order, are exactly those due."""
    if found.num_rows != due.num_rows:
        raise Corruption(f"{what}: {found.num_rows:,} rows, {due.num_rows:,} are due")
    if not by_key(found).equals(due):
        raise Corruption(f"{what}: a row is not what was written")


def check(claim: object, what: str) -> None:
    """Raise Corruption when something the demo claims does not hold."""
    if not claim:
        raise Corruption(what, hint="This must never happen: please report it with the lake")
