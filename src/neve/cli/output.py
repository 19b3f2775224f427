"""Where a command's words go: lines on a terminal or in a pipe, or one JSON document.

A terminal gets colours, unless NO_COLOR or TERM say otherwise; a pipe gets the same lines without
them. A document is written as it comes, so a long one needs no memory.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Final

from rich.console import Console
from rich.text import Text

from neve.cli.shown_text import Json

_PLAIN_COLUMNS: Final = 100
_COLUMNS_MIN: Final = 60


class _Terminal(Console):
    """A console that lets the command line decide what a closed pipe means."""

    def on_broken_pipe(self) -> None:
        """Tell, instead of ending the process."""
        raise BrokenPipeError


class Page:
    """Standard output, line by line."""

    def __init__(self) -> None:
        self.console: Final = _Terminal(highlight=False, soft_wrap=True)
        self.is_terminal: Final = self.console.is_terminal
        columns = self.console.width if self.is_terminal else _PLAIN_COLUMNS
        self.columns: Final = max(_COLUMNS_MIN, columns)

    def line(self, text: Text | str = "") -> None:
        """Write one line."""
        if self.is_terminal:
            self.console.print(text if isinstance(text, Text) else Text(text))
        else:
            print(text.plain if isinstance(text, Text) else text)

    def lines(self, texts: Iterable[Text]) -> None:
        """Write several lines."""
        for text in texts:
            self.line(text)


class JsonDocument:
    """One JSON object on standard output, a member at a time and an array element to a line."""

    def __init__(self) -> None:
        self._is_first = True

    def members(self, members: Mapping[str, Json]) -> None:
        """Write members whose values are at hand."""
        for name, value in members.items():
            self._begin_member(name)
            sys.stdout.write(json.dumps(value))

    def array(self, name: str, elements: Iterable[Json]) -> None:
        """Write a member that is an array, taking its elements one by one."""
        self._begin_member(name)
        sys.stdout.write("[")
        separator = "\n    "
        for element in elements:
            sys.stdout.write(f"{separator}{json.dumps(element)}")
            separator = ",\n    "
        sys.stdout.write("]")

    def end(self) -> None:
        """Close the document."""
        sys.stdout.write("{}\n" if self._is_first else "\n}\n")

    def _begin_member(self, name: str) -> None:
        sys.stdout.write(f"{'{' if self._is_first else ','}\n  {json.dumps(name)}: ")
        self._is_first = False
