"""The demo as a whole: plays the acts one after the other and sums up what was measured."""

import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.text import Text

import neve
from examples.demo.acts import ACTS, Act
from examples.demo.level_picture import LEGEND, MARKED, picture_lines
from examples.demo.narrator import Narrator
from examples.demo.order_rows import ARROW_SCHEMA, KEY, PARTITIONS, DemoTable
from examples.demo.stage import (
    Finding,
    Found,
    LevelsFound,
    Stage,
    Timing,
    namespace_of,
    shown_seconds,
)
from neve.catalog.lake import Lake
from neve.errors import InvalidArgument, NotFound
from neve.inspect.page import JsonDocument, Page, clipped, wrapped
from neve.inspect.shown_text import Json
from neve.notebook import levels_svg
from neve.observability.metrics import Counters
from neve.storage.clock import SystemClock, SystemIds

_NUMBER_COLUMNS: Final = 12
_TIME_COLUMNS: Final = 9
_RATE_COLUMNS: Final = 16
_BAR_COLUMNS_MIN: Final = 8
_BAR_COLUMNS_MAX: Final = 48
_MARGIN: Final = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """An act that was played, how long it took, and what it found."""

    act: Act
    seconds: float
    found: tuple[Found, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Its numbers, one by one."""
        return tuple(
            finding
            for each in self.found
            for finding in (each.findings if isinstance(each, Timing) else (each,))
            if isinstance(finding, Finding)
        )


def write_json(played: Sequence[Played], seconds: float) -> None:
    """Write the numbers of a run as one document."""
    document = JsonDocument()
    document.members({"seconds": round(seconds, 3)})
    document.array(
        "acts",
        (
            {
                "name": each.act.name,
                "seconds": round(each.seconds, 3),
                "findings": {finding.name: finding.value for finding in each.findings},
            }
            for each in played
        ),
    )
    document.array("levels", (level for found in _levels(played) for level in _level_facts(found)))
    document.end()


def sum_up(page: Page, played: Sequence[Played], seconds: float) -> None:
    """Show what was measured, and draw the levels."""
    page.line()
    page.line(Text("Measured in this run", "bold"))
    timings = [each for act in played for each in act.found if isinstance(each, Timing)]
    width = max((len(each.what) for each in timings), default=0)
    page.line(Text(_timing_line("", "p50", "p99", "rows/s", width), "dim"))
    for each in timings:
        times = (shown_seconds(each.latency.p50), shown_seconds(each.latency.p99))
        line = Text(_timing_line(each.what, *times, f"{each.rows_per_second:,.0f}", width))
        line.stylize("cyan", len(_MARGIN) + width)
        page.line(clipped(line, page.columns))
    page.line()
    for finding in (each for act in played for each in act.findings if each.words):
        _tell(page, f"{finding.value:,}", finding.words)
    _tell(page, f"{seconds:.1f}", "seconds in all")
    for found in _levels(played):
        _draw(page, found)


def write_svg(played: Sequence[Played], path: Path) -> None:
    """Write the picture of the levels as a file of its own."""
    for found in _levels(played):
        path.write_text(levels_svg(found.levels, unflushed=found.unflushed) + "\n")


def _levels(played: Sequence[Played]) -> list[LevelsFound]:
    return [each for act in played for each in act.found if isinstance(each, LevelsFound)]


def _level_facts(found: LevelsFound) -> list[dict[str, Json]]:
    return [
        {
            "level": level.number,
            "files": len(level.files),
            "rows": level.whole.live_count,
            "marked_rows": level.whole.marked_count,
            "bytes": level.whole.byte_count,
        }
        for level in found.levels
    ]


def _draw(page: Page, found: LevelsFound) -> None:
    page.line()
    page.line(Text("The table of orders, level by level", "bold"))
    # How wide bars are changes nothing about the words beside them.
    narrow = picture_lines(found.levels, unflushed=found.unflushed, columns=1)
    taken = max(len(line.title) + len(line.words) for line in narrow) + len(_MARGIN) * 3
    columns = min(max(page.columns - taken - 1, _BAR_COLUMNS_MIN), _BAR_COLUMNS_MAX)
    for title, bar, words in picture_lines(
        found.levels, unflushed=found.unflushed, columns=columns
    ):
        drawn = Text(bar, "blue")
        drawn.highlight_regex(f"{MARKED}+", "yellow")
        line = Text.assemble(_MARGIN, (title, "bold"), _MARGIN, drawn, _MARGIN, words)
        page.line(clipped(line, page.columns))
    page.line(Text(f"{_MARGIN}{LEGEND}", "dim"))


def _timing_line(what: str, p50: str, p99: str, rate: str, width: int) -> str:
    times = f"{p50:>{_TIME_COLUMNS}}{p99:>{_TIME_COLUMNS}}"
    return f"{_MARGIN}{what:<{width}}{times}{rate:>{_RATE_COLUMNS}}"


def _tell(page: Page, number: str, words: str) -> None:
    line = Text.assemble((f"{number:>{_NUMBER_COLUMNS}}", "bold cyan"), f"  {words}")
    page.lines(wrapped(line, page.columns, indent=_NUMBER_COLUMNS + 2))


def play(*, lake: str | None = None, as_json: bool = False) -> None:
    """Play every act in a lake at this path, or in one that is removed at the end.

    The story goes to standard output; with `as_json`, only its numbers do.
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


def _opened(root: Path, counters: Counters) -> Lake:
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
