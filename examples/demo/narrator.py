"""The voice of the demo: sentences, lines of code and bars on a page; or silence."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.text import Text

from neve.inspect.page import PLAIN_COLUMNS, Page, clipped, wrapped

# A number that stands alone, with its unit: what the eye looks for in a line.
_NUMBERS: Final = r"(?<![\w.'-])\d[\d,.]*\d?(?: (?:µs|ms|s|kB|MB|rows/s|keys/s)\b)?(?![\w'])"
_BAR_COLUMNS: Final = 24


class ReportProgress(Protocol):
    """Is called with how many steps are done, and what comes next."""

    def __call__(self, done: int, what: str | None = None, /) -> None:
        """Show how far the work is."""


class Narrator:
    """Tells the demo on a page; without one, in silence."""

    def __init__(self, page: Page | None) -> None:
        self._page = page
        self.columns: Final = PLAIN_COLUMNS if page is None else page.columns

    def open(self, words: str) -> None:
        """Say what is going to be shown."""
        for line in wrapped(
            Text.assemble(("neve demo", "bold"), f"  {words}"), self.columns, indent=0
        ):
            self.show(line)

    def act(self, number: int, title: str, code: str = "") -> None:
        """Announce an act, with the lines that one would write oneself."""
        self.show(Text())
        heading = Text.assemble((f" {number:>2} ", "bold reverse"), (f" {title}", "bold"))
        self.show(clipped(heading, self.columns))
        for line in self._highlighted(code):
            self.show(clipped(Text.assemble(("    │ ", "dim"), line), self.columns))

    def say(self, words: str) -> None:
        """Tell one thing; what is indented stays so when it takes several lines."""
        self._tell(Text(f"    {words}"), indent=4 + len(words) - len(words.lstrip()))

    def found(self, words: str) -> None:
        """Tell one thing that was checked and is as it should be."""
        self._tell(Text.assemble(("  ✔ ", "bold green"), words), indent=4)

    def left_out(self, hint: str) -> None:
        """Say that something is not shown, and what to install to see it."""
        self._tell(Text.assemble(("  · ", "bold yellow"), (hint, "yellow")), indent=4)

    def show(self, line: Text) -> None:
        """Show one line as it is, at once."""
        if self._page is not None:
            self._page.line(line)
            self._page.flush()

    def _tell(self, text: Text, *, indent: int) -> None:
        text.highlight_regex(_NUMBERS, "cyan")
        for line in wrapped(text, self.columns, indent=indent):
            self.show(line)

    def _highlighted(self, code: str) -> list[Text]:
        if not code or self._page is None:
            return []
        if not self._page.is_terminal:
            return [Text(line) for line in code.splitlines()]
        # The sixteen colours of the terminal, which its user chose to be readable.
        text = Syntax("", "python", theme="ansi_dark").highlight(code)
        text.rstrip()
        return [*text.split("\n")]

    @contextmanager
    def progress(self, what: str, *, total: int) -> Iterator[ReportProgress]:
        """Return a function that tells how many steps are done; drawn on a terminal only."""
        if self._page is None or not self._page.is_terminal:
            yield _say_nothing
            return
        columns = (
            TextColumn("    {task.description}"),
            BarColumn(_BAR_COLUMNS),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._page.console, transient=True) as progress:
            task = progress.add_task(what, total=total)

            def tell(done: int, what: str | None = None, /) -> None:
                progress.update(task, completed=done, description=what)

            yield tell


def _say_nothing(_done: int, _what: str | None = None, /) -> None:
    return
