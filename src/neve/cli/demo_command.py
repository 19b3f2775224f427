"""`neve demo`: plays the demo of a checkout; the demo itself is an example, outside the package."""

import importlib
import sys
from pathlib import Path
from typing import Final

import click

from neve.errors import NotFound

_CHECKOUT: Final = Path(__file__).parents[3]


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
    does not hold. It is part of neve's sources (`examples/demo`), not of the installed package.
    """
    if not (_CHECKOUT / "examples" / "demo").is_dir():
        raise NotFound(
            "the demo is not part of the installed package",
            hint="Run `make demo`, or `python examples/demo`, in a checkout of neve's sources",
        )
    sys.path.insert(0, str(_CHECKOUT))
    importlib.import_module("examples.demo.command").play(lake=lake, as_json=as_json)
