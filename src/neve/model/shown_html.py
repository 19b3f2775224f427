"""Objects as a notebook shows them: small pages of HTML, all in one look.

    ┌──────────────────────────────┐
    │ Table shop.orders            │  title
    │ version 7 · 120 rows         │  line below it
    │ key         id               │  facts
    │ level 0  ▇▇▇ ▇               │  pictures
    │ column  type                 │  listings
    │ id      long                 │
    └──────────────────────────────┘

H1  Whatever is not `Markup` is escaped: nothing that a caller named can become HTML.
H2  A page is short: cells are cut, listings end with how many more there are.
H3  Showing an object never raises: what went wrong is shown in its place.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import Final

from neve.errors import NeveError

ROWS_MAX: Final = 50
_TEXT_MAX: Final = 300
_UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"

# Colours of the page itself, so that it is read in light and in dark.
_FRAME: Final = (
    "display:inline-block;max-width:100%;overflow-x:auto;padding:0.5em 0.9em;"
    "border:1px solid rgba(127,127,127,0.35);border-radius:6px;font-family:sans-serif;"
    "font-size:13px;line-height:1.5"
)
_QUIET: Final = "opacity:0.7"
_TABLE: Final = "border-collapse:collapse;margin:0.4em 0;font-size:inherit"
_CELL: Final = "padding:0.1em 0.9em 0.1em 0;border:none;background:none;vertical-align:top"
_LEFT: Final = f"{_CELL};text-align:left"
_RIGHT: Final = f"{_CELL};text-align:right;font-variant-numeric:tabular-nums"
_NAME: Final = f"{_LEFT};font-weight:normal;{_QUIET}"


@dataclass(frozen=True, slots=True)
class Markup:
    """HTML that was made here, every text in it escaped."""

    html: str


Cell = str | int | float | None | Markup
"""What stands in a page: text, a number, nothing, or what was made of them."""


def page(title: str, *parts: Markup, line: str = "") -> str:
    """Return a whole page: a title, a line below it, and its parts."""
    below = f'<div style="{_QUIET}">{_text(line)}</div>' if line else ""
    body = "".join(part.html for part in parts)
    return f'<div style="{_FRAME}"><div><b>{_text(title)}</b></div>{below}{body}</div>'


def facts(members: Mapping[str, Cell]) -> Markup:
    """Return names with what they are, a row each; those that are None or empty are left out."""
    rows = "".join(
        f'<tr><th style="{_NAME}">{_text(name)}</th><td style="{_LEFT}">{_cell(value)}</td></tr>'
        for name, value in members.items()
        if value is not None and value != ""
    )
    return Markup(f'<table style="{_TABLE}">{rows}</table>' if rows else "")


def listing(names: Sequence[str], rows: Iterable[Sequence[Cell]], *, more: int = 0) -> Markup:
    """Return a table with a head; of more rows than a page takes, and `more`, it says how many."""
    waiting = iter(rows)
    shown = list(islice(waiting, ROWS_MAX))
    more += sum(1 for _ in waiting)
    numeric = [
        bool(shown) and all(isinstance(row[place], int | float | None) for row in shown)
        for place in range(len(names))
    ]
    head = "".join(
        f'<th style="{_RIGHT if is_number else _LEFT};{_QUIET}">{_text(name)}</th>'
        for name, is_number in zip(names, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(_row_cells(row, numeric))}</tr>" for row in shown)
    table = f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return Markup(table + (note(f"and {more:,} more").html if more else ""))


def note(text: str) -> Markup:
    """Return a quiet line."""
    return Markup(f'<div style="{_QUIET}">{_text(text)}</div>' if text else "")


def warning(text: str) -> Markup:
    """Return a line that stands out."""
    return Markup(f'<div style="color:#c2410c">{_text(text)}</div>' if text else "")


def picture(svg: str) -> Markup:
    """Return a drawing made by `neve.notebook`."""
    return Markup(f'<div style="margin:0.4em 0">{svg}</div>' if svg else "")


def shown_page(title: str, make: Callable[[], str]) -> str:
    """Return the page that `make` makes; when that fails, one that says why (H3)."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - what is shown at a prompt must not end the program
        return page(title, warning(_reason(error)))


def _reason(error: Exception) -> str:
    name = type(error).__name__
    try:
        return str(error) if isinstance(error, NeveError) else f"{name}: {error}"
    except Exception:  # noqa: BLE001 - an error of another library may fail to say what it is
        return name


def _row_cells(row: Sequence[Cell], numeric: Sequence[bool]) -> Iterator[str]:
    for value, is_number in zip(row, numeric, strict=True):
        yield f'<td style="{_RIGHT if is_number else _LEFT}">{_cell(value)}</td>'


def _cell(value: Cell) -> str:
    match value:
        case Markup():
            return value.html
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.3f}"
        case _:
            return _text(value)


def _text(text: str) -> str:
    cut = text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
    # What does not print may be half a character, which no page can hold.
    return escape("".join(each if each.isprintable() else _UNPRINTABLE for each in cut))
