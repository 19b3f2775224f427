"""A progress bar for long work, shown only if stderr is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from neve.observability.events import ignore

ReportProgress: TypeAlias = Callable[[int, int | None], None]
"""Takes how much is done, and the total; None if that is unknown."""


@contextmanager
def progress_bar(title: str) -> Iterator[ReportProgress]:
    """Show a bar during the work inside, and remove it afterwards."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield ignore
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task(title, total=None)

        def report(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total)

        yield report
