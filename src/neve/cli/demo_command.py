"""`neve demo`: plays the acts one after the other and sums up what was measured."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.text import Text

from neve.cli.demo_acts import ACTS, Act
from neve.cli.demo_stage import Finding, Narrator, Stage
from neve.cli.demo_table import DemoTable
from neve.cli.output import JsonDocument, Page
from neve.storage.clock import SystemClock, SystemIds
from neve.storage.local_store import LocalStore


@click.command()
@click.option(
    "--lake",
    type=click.Path(path_type=Path, file_okay=False),
    help="Work in this directory and leave the files there [default: one that is removed].",
)
@click.option("--json", "as_json", is_flag=True, help="Only the numbers, as one JSON document.")
def demo(*, lake: Path | None, as_json: bool) -> None:
    """Show what neve does, with real files, real threads and a real crash.

    Every number is measured in this run, and every claim is checked: the demo fails if one of them
    does not hold.
    """
    page = None if as_json else Page()
    clock = SystemClock()
    began_at = clock.monotonic()
    with _lake(lake) as root:
        stage = Stage(
            root=root,
            store=LocalStore(str(root)),
            clock=clock,
            table=DemoTable(),
            run_id=SystemIds().uuid().hex[:8],
            narrator=Narrator(page),
        )
        found = [(act, *_played(stage, number, act)) for number, act in enumerate(ACTS, start=1)]
    seconds = clock.monotonic() - began_at
    if page is None:
        _write_json(found, seconds)
    else:
        _sum_up(page, found, seconds, lake)


@contextmanager
def _lake(lake: Path | None) -> Iterator[Path]:
    if lake is not None:
        yield lake
        return
    with tempfile.TemporaryDirectory(prefix="neve-demo-") as directory:
        yield Path(directory)


def _played(stage: Stage, number: int, act: Act) -> tuple[float, tuple[Finding, ...]]:
    stage.narrator.act(number, act.title)
    began_at = stage.clock.monotonic()
    findings = act.play(stage)
    return stage.clock.monotonic() - began_at, findings


def _write_json(found: list[tuple[Act, float, tuple[Finding, ...]]], seconds: float) -> None:
    document = JsonDocument()
    document.members({"seconds": round(seconds, 3)})
    document.array(
        "acts",
        (
            {
                "name": act.name,
                "seconds": round(act_seconds, 3),
                "findings": {finding.name: finding.value for finding in findings},
            }
            for act, act_seconds, findings in found
        ),
    )
    document.end()


def _sum_up(
    page: Page,
    found: list[tuple[Act, float, tuple[Finding, ...]]],
    seconds: float,
    lake: Path | None,
) -> None:
    page.line()
    page.line(Text("Measured in this run", "bold"))
    for finding in (each for _, _, findings in found for each in findings):
        value = finding.value
        number = ("no", "yes")[value] if isinstance(value, bool) else f"{value:,}"
        page.line(Text.assemble((f"{number:>14}", "bold cyan"), f"  {finding.words}"))
    page.line(Text(f"{seconds:>14.1f}  seconds in all"))
    if lake is not None:
        page.line(Text(f"The files are in {lake}; try `neve inspect wal` on one of them"))
