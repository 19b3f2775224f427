"""`neve demo`: plays the acts one after the other and sums up what was measured."""

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from examples.demo.acts import ACTS, Act
from examples.demo.narrator import Narrator
from examples.demo.order_rows import ARROW_SCHEMA, KEY, PARTITIONS, DemoTable
from examples.demo.stage import Stage, namespace_of
from rich.text import Text

import neve
from neve.catalog.kv_catalog import KVCatalog
from neve.cli.demo_command import Played, sum_up, write_json, write_svg
from neve.errors import InvalidArgument, NotFound
from neve.inspect.page import Page, wrapped
from neve.observability.metrics import Counters
from neve.storage.clock import SystemClock, SystemIds


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
    narrator = Narrator(page)
    narrator.open(f"{len(ACTS)} acts on real files; numbers are measured, every ✔ is checked")
    with _lake(lake) as root, _opened(root, counters) as catalog:
        stage = Stage(
            root=root,
            lake=catalog,
            orders=catalog.create_table(
                f"{namespace_of(run_id)}.orders", ARROW_SCHEMA, KEY, partition_by=PARTITIONS
            ),
            counters=counters,
            clock=clock,
            table=DemoTable(),
            run_id=run_id,
            narrator=narrator,
        )
        played = [_played(stage, number, act) for number, act in enumerate(ACTS, start=1)]
        picture = root / f"levels-{run_id}.svg"
        write_svg(played, picture)
    seconds = clock.monotonic() - began_at
    if page is None:
        write_json(played, seconds)
        return
    sum_up(page, played, seconds)
    if lake is None:
        _say_how_to_keep(page)
    else:
        _say_what_is_kept(page, lake, picture)


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


def _played(stage: Stage, number: int, act: Act) -> Played:
    stage.narrator.act(number, act.title, act.code)
    began_at = stage.clock.monotonic()
    found = act.play(stage)
    return Played(act=act, seconds=stage.clock.monotonic() - began_at, found=found)


def _say_what_is_kept(page: Page, lake: str, picture: Path) -> None:
    page.line()
    words = f"Kept in {lake}, the picture as {picture.name}. Look around:"
    page.lines(wrapped(Text(words), page.columns, indent=0))
    page.line(f"  neve tables --lake {shlex.quote(lake)}")


def _say_how_to_keep(page: Page) -> None:
    page.line()
    page.line("To keep the tables and look around:")
    page.line("  neve demo --lake ./lake")
    page.line("  neve tables --lake ./lake")
