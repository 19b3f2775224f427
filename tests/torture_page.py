"""Write the page of one run of `make torture`: each figure with its aim and what was reached.

    python -m tests.torture_page .scratch/scoreboard.jsonl SECONDS

Each line of the file holds the scoreboard and the outcomes of one pytest run. What is written
below the table by hand stays: a shortfall is explained there.
"""

import argparse
import json
import os
import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

PAGE = Path(__file__).parents[1] / "docs" / "torture.md"
LINE = re.compile(
    r"(?P<id>R\d+) (?P<figure>.*?):? (?P<found>[\d,]+) of (?P<cases>[\d,]+)"
    r"(?: \((?P<rest>.*)\))?$"
)
AIM = re.compile(r"aim ([\d,]+)")
REMARKS = "## Shortfalls"


class Run(TypedDict):
    """What one pytest run left in the file."""

    lines: list[str]
    outcomes: dict[str, int]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the scoreboard: cases tried, violations found, the aim when there is one."""

    number: str
    name: str
    found: str
    cases: str
    aim: str

    @property
    def is_short(self) -> bool:
        """Whether fewer cases were tried than aimed at."""
        return bool(self.aim) and count(self.cases) < count(self.aim)

    def row(self) -> str:
        """Return the figure as a row of the page's table."""
        reached = f"**{self.cases}**" if self.is_short else self.cases
        return f"| {self.number} | {self.name} | {self.aim or '–'} | {reached} | {self.found} |"


def count(text: str) -> int:
    """Return the number that a text with thousands separators says."""
    return int(text.replace(",", ""))


def parsed(line: str) -> Figure | None:
    """Return the figure of a line, or None for a line that counts nothing."""
    match = LINE.match(line)
    if match is None:
        return None
    aim = AIM.search(match["rest"] or "")
    return Figure(
        match["id"], match["figure"], match["found"], match["cases"], aim[1] if aim else ""
    )


def page(runs: list[Run], *, seconds: int, box: str, remarks: str) -> str:
    """Return the whole page."""
    lines = sorted({line for run in runs for line in run["lines"]})
    figures = sorted(filter(None, map(parsed, lines)), key=lambda f: (int(f.number[1:]), f.name))
    others = [line for line in lines if parsed(line) is None]
    outcomes = ", ".join(
        f"{sum(run['outcomes'][word] for run in runs):,} {word}"
        for word in ("passed", "failed", "error", "skipped")
    )
    day = time.strftime("%Y-%m-%d")
    python = platform.python_version()
    boxed = "without a limit of time" if box == "inf" else f"with {box} seconds for each figure"
    body = "\n".join(figure.row() for figure in figures)
    return f"""# Torture

`make torture` runs the reliability scoreboard at its full counts. This run: {day},
{boxed}, {seconds // 60} minutes in all on {os.cpu_count()} cores, Python {python}.
Tests: {outcomes}.

A case is one power cut, one damaged file, one interleaved world, one killed process. "Found" counts
violations: lost or foreign rows, wrong answers, untyped errors. Figures in bold ended before their
aim because their time was up.

| id | figure | aim | cases | found |
| --- | --- | --- | --- | --- |
{body}

{"".join(f"- {line}" + chr(10) for line in others)}
{remarks}"""


def main() -> None:
    """Read the scoreboard, write the page, keep the remarks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("scoreboard", type=Path)
    parser.add_argument("seconds", type=int)
    given = parser.parse_args()
    runs: list[Run] = [json.loads(line) for line in given.scoreboard.read_text().splitlines()]
    before = PAGE.read_text() if PAGE.exists() else ""
    remarks = before[before.index(REMARKS) :] if REMARKS in before else f"{REMARKS}\n\nNone yet.\n"
    box = os.environ.get("NEVE_TORTURE_SECONDS", "inf")
    PAGE.write_text(page(runs, seconds=given.seconds, box=box, remarks=remarks))
    print(f"{PAGE.name} is written")


if __name__ == "__main__":
    main()
