"""The tree of an inspected file, and its one renderer: a drawing for people, JSON for programs.

    Tree                 name  facts                      {members,
    ├── Group            ╭─ 2 row groups                   "row_groups": [
    │   ├── Part         │ 0  2,048 rows · …                 {…},
    │   └── Part         │ 1  952 rows · …                   {…}],
    └── verdicts         ✔ 4 chunks are whole              more members}

The parts of a group with a title share a box; otherwise each part with lines has one of its own.
Parts are taken once, one by one, so that a large file needs no memory; what is known only at the
end is asked for when all of them were taken.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from neve.inspect.page import JsonDocument, Page, clipped, wrapped
from neve.inspect.shown_text import Json, shown_text

_CORNER: Final = "╭─ "
_BAR: Final = "│ "
_END: Final = "╰─"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a drawing: broken between words after so many spaces, or clipped without."""

    text: Text
    indent: int | None = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing in a file: an element in JSON; in a drawing lines, and the title of their box."""

    json: Json
    """None for what is only drawn."""
    title: Line | None = None
    lines: Iterable[Line] = ()
    is_box: bool = True
    """Whether it has a box, also without lines; otherwise its title is a line by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Parts of one kind: an array in JSON, in a drawing one box, or many.

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
    """Return what is wrong with the file, when all parts were taken."""


def damaged(text: str) -> Line:
    """Return the line of something that is wrong."""
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
