"""`neve demo`: plays the acts one after the other and sums up what was measured."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
from rich.text import Text

import neve
from neve.catalog.kv_catalog import KVCatalog
from neve.cli.demo_acts import ACTS, Act
from neve.cli.demo_stage import Finding, Narrator, Stage, namespace_of
from neve.cli.demo_table import ARROW_SCHEMA, KEY, DemoTable
from neve.cli.fitted_text import wrapped
from neve.cli.output import JsonDocument, Page
from neve.errors import InvalidArgument, NotFound
from neve.observability.metrics import Counters
from neve.storage.clock import SystemClock, SystemIds

_NUMBER_COLUMNS: Final = 12


@click.command()
@click.option(
    "--lake",
    type=click.Path(path_type=str, file_okay=False),
    help="Work in this directory and leave the files there [default: one that is removed].",
)
@click.option("--json", "as_json", is_flag=True, help="Only the numbers, as one JSON document.")
def demo(*, lake: str | None, as_json: bool) -> None:
    """Show what neve does, with real files, real threads and a real crash.

    Every number is measured in this run, and every claim is checked: the demo fails if one of them
    does not hold.
    """
    page = None if as_json else Page()
    clock = SystemClock()
    began_at = clock.monotonic()
    counters, run_id = Counters(), SystemIds().uuid().hex[:8]
    with _lake(lake) as root, _opened(root, counters) as catalog:
        stage = Stage(
            root=root,
            lake=catalog,
            orders=catalog.create_table(f"{namespace_of(run_id)}.orders", ARROW_SCHEMA, KEY),
            counters=counters,
            clock=clock,
            table=DemoTable(),
            run_id=run_id,
            narrator=Narrator(page),
        )
        found = [(act, *_played(stage, number, act)) for number, act in enumerate(ACTS, start=1)]
    seconds = clock.monotonic() - began_at
    if page is None:
        _write_json(found, seconds)
    else:
        _sum_up(page, found, seconds, lake)


@contextmanager
def _lake(lake: str | None) -> Iterator[Path]:
    if lake == "":
        raise InvalidArgument(
            "--lake is given without a name", hint="Name a directory, or leave --lake out"
        )
    if lake is not None:
        yield Path(lake)
        return
    with tempfile.TemporaryDirectory(prefix="neve-demo-") as directory:
        yield Path(directory)


def _opened(root: Path, counters: Counters) -> KVCatalog:
    try:
        return neve.open(root, recorder=counters)
    except NotFound as error:
        raise InvalidArgument(
            f"no directory can be made at {root}",
            hint="Give --lake a directory on a disk that this user can write to",
        ) from error


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
    lake: str | None,
) -> None:
    page.line()
    page.line(Text("Measured in this run", "bold"))
    for finding in (each for _, _, findings in found for each in findings if each.words):
        _tell(page, f"{finding.value:,}", finding.words)
    _tell(page, f"{seconds:.1f}", "seconds in all")
    if lake is not None:
        ending = Text(f"The tables are kept: try `neve tables --lake {lake}`, `neve history`")
        page.lines(wrapped(ending, page.columns, indent=0))


def _tell(page: Page, number: str, words: str) -> None:
    line = Text.assemble((f"{number:>{_NUMBER_COLUMNS}}", "bold cyan"), f"  {words}")
    page.lines(wrapped(line, page.columns, indent=_NUMBER_COLUMNS + 2))
