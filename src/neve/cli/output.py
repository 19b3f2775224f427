"""Where a command's words go: lines on a terminal or in a pipe, or one JSON document.

A terminal gets colours, unless NO_COLOR or TERM say otherwise; a pipe gets the same lines without
them. Lines are as wide as the terminal, in a pipe as $COLUMNS says or 100; rows of tables are never
cut. A document is written as it comes, so a long one needs no memory.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Final

from rich.console import Console
from rich.text import Text

from neve.inspect.shown_text import Json, drawn_in_ascii, is_drawable

PLAIN_COLUMNS: Final = 100
_COLUMNS_MIN: Final = 40
_COLUMNS_MAX: Final = 9_999
_COLUMNS_TEXT: Final = re.compile(r"0*[1-9][0-9]{0,3}")


class Page:
    """Standard output, line by line."""

    def __init__(self) -> None:
        self.console: Final = Console(highlight=False, soft_wrap=True)
        self.is_terminal: Final = self.console.is_terminal
        columns = self.console.width if self.is_terminal else _columns_in_a_pipe()
        self.columns: Final = min(max(_COLUMNS_MIN, columns), _COLUMNS_MAX)
        self._in_ascii = not is_drawable(self.console.encoding)

    def table_columns(self, *, wide: bool) -> int | None:
        """Return how wide the rows of a table may be; None for one line each, however long."""
        return self.columns if self.is_terminal and not wide else None

    def line(self, text: Text | str = "") -> None:
        """Write one line."""
        shown = text if isinstance(text, Text) else Text(text)
        if self._in_ascii:
            # One character for one, so that styles stay where they are.
            shown = Text(drawn_in_ascii(shown.plain), shown.style, spans=shown.spans)
        if self.is_terminal:
            self.console.print(shown)
        else:
            print(shown.plain)

    def lines(self, texts: Iterable[Text]) -> None:
        """Write several lines."""
        for text in texts:
            self.line(text)

    def flush(self) -> None:
        """Let whoever reads a pipe see the lines at once."""
        sys.stdout.flush()


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


def write_json(members: Mapping[str, Json]) -> None:
    """Write a whole document."""
    document = JsonDocument()
    document.members(members)
    document.end()


def _columns_in_a_pipe() -> int:
    wished = os.environ.get("COLUMNS", "")
    # What is no width that anybody means leaves the width as it is.
    return int(wished) if _COLUMNS_TEXT.fullmatch(wished) else PLAIN_COLUMNS
