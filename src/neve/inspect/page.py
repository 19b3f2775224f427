"""The output of a command, as lines or one JSON document, and the tree of an inspected file.

A terminal gets colours, unless NO_COLOR or TERM disable them; a pipe gets the same lines without
them. Lines are as wide as the terminal, in a pipe $COLUMNS or 100; rows of tables are never cut. A
document is written piece by piece, so a long one needs no memory. Lines are clipped with an
ellipsis, or wrapped between words. Some characters are two columns wide, and some none.

A tree is a drawing for people, or JSON for programs:

    Tree                 name  facts                      {members,
    ├── Group            ╭─ 2 row groups                   "row_groups": [
    │   ├── Part         │ 0  2,048 rows · …                 {…},
    │   └── Part         │ 1  952 rows · …                   {…}],
    └── verdicts         ✔ 4 chunks are whole              more members}

The parts of a group with a title share a box; otherwise each part with lines has its own. Parts
are read once, one by one, so that a large file needs no memory; `verdicts` are read last.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from neve.inspect.shown_text import Json, drawn_in_ascii, is_drawable, shown_text

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
        """Return the maximum width of table rows; None for one line each, however long."""
        return self.columns if self.is_terminal and not wide else None

    def line(self, text: Text | str = "") -> None:
        """Write one line."""
        shown = text if isinstance(text, Text) else Text(text)
        if self._in_ascii:
            # Character by character, so that styles stay in place.
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
        """Flush, so that the reader of a pipe sees the lines at once."""
        sys.stdout.flush()


class JsonDocument:
    """One JSON object on standard output, a member at a time, one line per array element."""

    def __init__(self) -> None:
        self._is_first = True

    def members(self, members: Mapping[str, Json]) -> None:
        """Write members with their values."""
        for name, value in members.items():
            self._begin_member(name)
            sys.stdout.write(json.dumps(value))

    def array(self, name: str, elements: Iterable[Json]) -> None:
        """Write a member that is an array, element by element."""
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
    # A text that is not a number is ignored.
    return int(wished) if _COLUMNS_TEXT.fullmatch(wished) else PLAIN_COLUMNS


def clipped(text: Text, columns: int) -> Text:
    """Return the text, clipped to `columns` with an ellipsis."""
    if cell_len(text.plain) <= columns:
        return text
    fitted = text.copy()
    fitted.truncate(columns, overflow="ellipsis")
    return fitted


def wrapped(text: Text, columns: int, *, indent: int) -> Iterator[Text]:
    """Yield the text in lines of at most `columns`, all but the first indented."""
    margin = ""
    rest = text
    while cell_len(rest.plain) > columns - len(margin):
        at = _break_at(rest.plain, columns - len(margin))
        yield Text.assemble(margin, _stripped(rest[:at], end=True))
        rest = _stripped(rest[at:], end=False)
        margin = " " * indent
    yield Text.assemble(margin, rest)


def _break_at(plain: str, columns: int) -> int:
    """Find the last place between words that leaves a line of at most `columns`."""
    used = fitting = 0
    for character in plain:
        used += cell_len(character)
        if used > columns:
            break
        fitting += 1
    words_begin = len(plain) - len(plain.lstrip())
    between_words = plain.rfind(" ", words_begin, fitting + 1)
    # A word longer than a line is broken at the end of the line.
    return between_words if between_words > 0 else max(1, fitting)


def _stripped(text: Text, *, end: bool) -> Text:
    plain = text.plain
    return text[: len(plain.rstrip())] if end else text[len(plain) - len(plain.lstrip()) :]


_CORNER: Final = "╭─ "
_BAR: Final = "│ "
_END: Final = "╰─"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a drawing: wrapped with an indent, or clipped if there is none."""

    text: Text
    indent: int | None = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing in a file: an element in JSON; in a drawing lines, and the title of their box."""

    json: Json
    """None if it is only drawn."""
    title: Line | None = None
    lines: Iterable[Line] = ()
    is_box: bool = True
    """Whether it has a box even without lines; otherwise its title is a line by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Parts of one kind: an array in JSON, one or many boxes in a drawing.

    Without a name it is only drawn: its facts are among the members of the tree.
    """

    name: str | None
    parts: Iterable[Part]
    title: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """What is in one file."""

    name: str
    facts: Sequence[str]
    members: Mapping[str, Json]
    groups: Sequence[Group]
    intro: Sequence[Line] = ()
    """Lines before the first box."""
    last_members: Callable[[], Mapping[str, Json]] = dict
    verdicts: Callable[[], Iterable[Line]] = tuple
    find_problems: Callable[[], Sequence[str]] = tuple
    """Returns what is wrong with the file, after all parts were read."""


def damaged(text: str) -> Line:
    """Return a line for a problem."""
    return Line(Text(f"✗ {shown_text(text)}", "bold red"))


def write_tree(tree: Tree) -> None:
    """Write a tree as one JSON document."""
    document = JsonDocument()
    document.members(tree.members)
    for group in tree.groups:
        if group.name is not None:
            listed = (part.json for part in group.parts if part.json is not None)
            document.array(group.name, listed)
    document.members(tree.last_members())
    document.end()


def draw_tree(tree: Tree) -> None:
    """Draw a tree, each line as wide as the page at most."""
    page = Page()
    page.lines(_drawing(tree, page.columns))


def _drawing(tree: Tree, columns: int) -> Iterator[Text]:
    title = Text.assemble((shown_text(tree.name), "bold"), (f"  {' · '.join(tree.facts)}", "dim"))
    yield from wrapped(title, columns, indent=2)
    for line in tree.intro:
        yield from _fitted(line, columns)
    for group in tree.groups:
        if group.title is not None:
            lines = (line for part in group.parts for line in part.lines)
            yield from _box(group.title, lines, columns)
            continue
        for part in group.parts:
            if part.title is None:
                continue
            if part.is_box:
                yield from _box(part.title.text, part.lines, columns)
            else:
                yield from _fitted(part.title, columns)
    for verdict in tree.verdicts():
        yield from _fitted(verdict, columns)


def _box(title: Text, lines: Iterable[Line], columns: int) -> Iterator[Text]:
    corner = _CORNER
    for piece in wrapped(title, columns - len(corner), indent=0):
        yield Text.assemble((corner, "dim"), piece)
        corner = f"{_BAR} "
    for line in lines:
        for piece in _fitted(line, columns - len(_BAR)):
            yield Text.assemble((_BAR, "dim"), piece)
    yield Text(_END, "dim")


def _fitted(line: Line, columns: int) -> Iterator[Text]:
    if line.indent is None:
        yield clipped(line.text, columns)
    else:
        yield from wrapped(line.text, columns, indent=line.indent)
