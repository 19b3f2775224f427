"""Objects as a notebook shows them: small HTML pages with pictures, all in one style.

    ┌──────────────────────────────┐
    │ Table shop.orders            │  title
    │ version 7 · 120 rows         │  line below it
    │ key         id               │  facts
    │ level 0  ▇▇▇ ▇               │  pictures
    │ column  type                 │  listings
    │ id      long                 │
    └──────────────────────────────┘

NOTEBOOK-1  Everything but `Markup` is escaped: no name that a caller chose can become HTML.
NOTEBOOK-2  A page is short: cells are cut, listings end with how many more there are.
NOTEBOOK-3  Showing an object never raises: the error is shown in its place.
NOTEBOOK-4  A page reads manifests at most: no row is read, no table is opened, nothing is written.
            If the newest state cannot be read, the last known one is shown, with the reason.

The levels of a table are a picture, an SVG for a page and lines of text for a terminal:

    memory   ▓▓                        1,204 changes not flushed
    level 0  ███· ██ █                 3 files    3,000 live rows  120 marked  81.2 kB
    level 1  ██████████ █████████████  2 files  100,000 live rows               2.4 MB

Bars are to scale by rows, one per file if there is room, otherwise one per level. A file with rows
is always visible, so the smallest bars are larger than to scale.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import Final, NamedTuple

from neve.errors import NeveError
from neve.model.data_file import DataFile
from neve.model.display import counted, shown_bytes, shown_moment
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import Column, TableSchema
from neve.model.schema_json import default_to_json
from neve.model.type_parser import type_text
from neve.model.version import Version

TABLES_SHOWN: Final = 20
"""A lake shows this many tables: each costs a read of its version store."""
ROWS_MAX: Final = 50
_NAMES_SHOWN: Final = 20
_TEXT_MAX: Final = 300
_UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"

# Colours that are readable on light and dark pages.
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

_LETTER_WIDTH: Final = 7
"""Of a letter in common fonts, rounded up."""
_BAR_LEFT: Final = 64
_BAR_WIDTH: Final = 276
_ROW_HEIGHT: Final = 22
_BAR_HEIGHT: Final = 14
_FILE_WIDTH_MIN: Final = 2.0
_GAP: Final = 1.0
_LIVE_COLOUR: Final = "#3f88c5"
_MARKED_COLOUR: Final = "#e0a458"
_UNFLUSHED_COLOUR: Final = "#a9d3f0"


@dataclass(frozen=True, slots=True)
class Markup:
    """HTML in which every text is escaped."""

    html: str


Cell = str | int | float | None | Markup
"""Content of a page: text, a number, nothing, or markup."""


def page(title: str, *parts: Markup, line: str = "") -> str:
    """Return a whole page: a title, a line below it, and its parts."""
    below = f'<div style="{_QUIET}">{_text(line)}</div>' if line else ""
    body = "".join(part.html for part in parts)
    return f'<div style="{_FRAME}"><div><b>{_text(title)}</b></div>{below}{body}</div>'


def facts(members: Mapping[str, Cell]) -> Markup:
    """Return names with their values, a row each; None and empty values are left out."""
    rows = "".join(
        f'<tr><th style="{_NAME}">{_text(name)}</th><td style="{_LEFT}">{_cell(value)}</td></tr>'
        for name, value in members.items()
        if value is not None and value != ""
    )
    return Markup(f'<table style="{_TABLE}">{rows}</table>' if rows else "")


def listing(names: Sequence[str], rows: Iterable[Sequence[Cell]], *, more: int = 0) -> Markup:
    """Return a table with a header; rows beyond a page, and `more`, are only counted."""
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
    """Return a drawing made by `levels_svg`."""
    return Markup(f'<div style="margin:0.4em 0">{svg}</div>' if svg else "")


def shown_page(title: str, make: Callable[[], str]) -> str:
    """Return the page that `make` makes; if that fails, one that says why (NOTEBOOK-3)."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - showing an object must not raise
        return page(title, warning(_reason(error)))


def _reason(error: Exception) -> str:
    name = type(error).__name__
    try:
        return str(error) if isinstance(error, NeveError) else f"{name}: {error}"
    except Exception:  # noqa: BLE001 - `str` of a foreign error may fail
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
    # Unprintable text may be half a character, which a page cannot hold.
    return escape("".join(each if each.isprintable() else _UNPRINTABLE for each in cut))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBar:
    """One data file of a picture, or several combined."""

    row_count: int
    """Rows in the file, marked ones included."""
    marked_count: int
    byte_count: int

    @property
    def live_count(self) -> int:
        """Rows that readers see."""
        return self.row_count - self.marked_count


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelBar:
    """One level of a picture."""

    number: int
    files: tuple[FileBar, ...]

    @property
    def whole(self) -> FileBar:
        """All of its files combined."""
        return FileBar(
            row_count=sum(file.row_count for file in self.files),
            marked_count=sum(file.marked_count for file in self.files),
            byte_count=sum(file.byte_count for file in self.files),
        )


def levels_of(files: Iterable[DataFile]) -> tuple[LevelBar, ...]:
    """Return the levels of some files, from 0 on; a level without files is left out."""
    return by_level(
        (file.level, file.row_count, file.deleted_count, file.file_bytes) for file in files
    )


def levels_svg(levels: Sequence[LevelBar], *, unflushed: int = 0) -> str:
    """Draw levels as an SVG element for a page; empty if there is nothing to draw."""
    most = max([unflushed, *(level.whole.row_count for level in levels)], default=0)
    if not most:
        return ""
    rows: list[tuple[str, str, str]] = []
    if unflushed:
        width = _BAR_WIDTH * unflushed / most
        words = f"{counted(unflushed, 'change')} not flushed"
        rows.append(("memory", _rectangle(0, width, _UNFLUSHED_COLOUR, words), words))
    for level in levels:
        words = ", ".join(filter(None, level_words(level)))
        rows.append((f"level {level.number}", _svg_bar(level, most), words))
    height = _ROW_HEIGHT * len(rows)
    words_left = _BAR_LEFT + _BAR_WIDTH + 12
    width_all = words_left + _LETTER_WIDTH * _width(words for _, _, words in rows)
    drawn = "".join(
        f'<g transform="translate(0,{_ROW_HEIGHT * place})">'
        f'<text x="0" y="15">{escape(title)}</text>'
        f'<g transform="translate({_BAR_LEFT},4)">{bar}</g>'
        f'<text x="{words_left}" y="15" opacity="0.75">{escape(words)}</text></g>'
        for place, (title, bar, words) in enumerate(rows)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width_all} {height}" '
        f'width="{width_all}" height="{height}" role="img" aria-label="levels" '
        f'font-family="sans-serif" font-size="12" fill="currentColor" '
        f'style="max-width:100%">{drawn}</svg>'
    )


def by_level(facts: Iterable[Sequence[int]]) -> tuple[LevelBar, ...]:
    """Return levels of files: of each its level, rows, marked rows and bytes."""
    found: dict[int, list[FileBar]] = {}
    for level, row_count, marked_count, byte_count in facts:
        bar = FileBar(row_count=row_count, marked_count=marked_count, byte_count=byte_count)
        found.setdefault(level, []).append(bar)
    return tuple(LevelBar(number=number, files=tuple(found[number])) for number in sorted(found))


def level_words(level: LevelBar) -> list[str]:
    """Return the figures of a level as words."""
    whole = level.whole
    return [
        counted(len(level.files), "file"),
        counted(whole.live_count, "live row"),
        f"{whole.marked_count:,} marked" if whole.marked_count else "",
        shown_bytes(whole.byte_count),
    ]


def _width(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)


# As SVG


def _svg_bar(level: LevelBar, most: int) -> str:
    files = level.files
    room = _BAR_WIDTH - _GAP * (len(files) - 1)
    widths = [max(room * file.row_count / most, _FILE_WIDTH_MIN) for file in files]
    if sum(widths) > room + _FILE_WIDTH_MIN:
        files = (level.whole,)
        widths = [max(_BAR_WIDTH * level.whole.row_count / most, _FILE_WIDTH_MIN)]
    left, drawn = 0.0, ""
    for file, width in zip(files, widths, strict=True):
        drawn += _svg_file(file, left, width)
        left += width + _GAP
    return drawn


def _svg_file(file: FileBar, left: float, width: float) -> str:
    words = f"{counted(file.live_count, 'live row')}, {file.marked_count:,} marked, "
    words += shown_bytes(file.byte_count)
    share = file.marked_count / file.row_count if file.row_count else 0.0
    live = _rectangle(left, width * (1 - share), _LIVE_COLOUR, words) if share < 1 else ""
    marked = _rectangle(left + width * (1 - share), width * share, _MARKED_COLOUR, words)
    return live + (marked if share else "")


def _rectangle(left: float, width: float, colour: str, words: str) -> str:
    return (
        f'<rect x="{left:.1f}" width="{max(width, 0.5):.1f}" height="{_BAR_HEIGHT}" '
        f'fill="{colour}"><title>{escape(words)}</title></rect>'
    )


def version_page(title: str, version: Version, members: Mapping[str, Cell], *notes: Markup) -> str:
    """Show a Version, with further facts."""
    return page(
        title,
        *notes,
        facts(
            {
                **members,
                "committed": commit_words(version),
                "parent": None if version.parent is None else str(version.parent),
                "summary": pair_words(version.facts.summary),
            }
        ),
        levels_part(version),
        line=size_words(version),
    )


def levels_part(version: Version, *, unflushed: int = 0) -> Markup:
    """Draw the levels of a Version."""
    return picture(levels_svg(levels_of(version.files.values()), unflushed=unflushed))


def size_words(version: Version) -> str:
    """Return the size of a Version, in one line."""
    return " · ".join(
        (
            f"version {version.number:,}",
            counted(version.row_count, "row"),
            counted(len(version.files), "file"),
            shown_bytes(byte_count(version)),
        )
    )


def byte_count(version: Version) -> int:
    """Add up the data files of a Version."""
    return sum(file.file_bytes for file in version.files.values())


def commit_words(version: Version) -> str:
    """Return when a Version was committed, and the operation."""
    return f"{shown_moment(version.facts.timestamp_ms)} · {version.facts.operation}"


def pair_words(pairs: Mapping[str, str]) -> str:
    """Return the first names with their values in one line."""
    return first_words([f"{name}={value}" for name, value in sorted(pairs.items())])


def first_words(names: Sequence[str]) -> str:
    """Return the first names in one line, and how many more there are."""
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


class ShownColumn(NamedTuple):
    """A column: its name, its type, and notes."""

    field_id: int
    name: str
    type: str
    notes: tuple[str, ...]
    """Whether it is required, its place in the key, its default, and its documentation."""


def shown_columns(schema: TableSchema) -> list[ShownColumn]:
    """Return the columns of a schema in order."""
    key = {field_id: place for place, field_id in enumerate(schema.primary_key, start=1)}
    return [
        ShownColumn(
            column.field_id, column.name, type_text(column.type), tuple(_notes(column, key))
        )
        for column in schema.columns
    ]


def _notes(column: Column, key: dict[int, int]) -> list[str]:
    notes = [] if column.nullable else ["required"]
    if column.field_id in key:
        notes.append(f"key {key[column.field_id]}" if len(key) > 1 else "key")
    if column.write_default is not None:
        notes.append(f"default {default_to_json(column.type, column.write_default)}")
    if column.doc:
        notes.append(column.doc)
    return notes


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLine:
    """One table of a lake: its newest Version, or why it cannot be read."""

    name: str
    found: Version | NeveError


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """The facts on the page of a table."""

    name: str
    location: str
    format_version: int
    properties: Mapping[str, str]
    schema: TableSchema
    spec: PartitionSpec
    sorted_by: Sequence[str]
    version: Version
    unflushed: int | None = None
    """Changes that are not in files yet; None if counting would mean reading rows."""
    problems: tuple[str, ...] = ()


def lake_page(
    location: str, namespaces: Iterable[str], tables: Iterable[TableLine], *, table_count: int
) -> str:
    """Show a lake: its namespaces, and the first of its tables."""
    rows = [_table_row(line) for line in tables]
    parts = [facts({"namespaces": first_words(sorted(namespaces))})]
    if rows:
        names = ("table", "version", "rows", "files", "size", "last commit")
        parts.append(listing(names, rows, more=table_count - len(rows)))
    count = counted(table_count, "table") if table_count else "no tables"
    return page("Lake", *parts, line=f"{location} · {count}")


def table_page(shown: ShownTable) -> str:
    """Show a table: its definition, its columns and its levels."""
    version, schema = shown.version, shown.schema
    columns = [(each.name, each.type, ", ".join(each.notes)) for each in shown_columns(schema)]
    return page(
        f"Table {shown.name}",
        *map(warning, shown.problems),
        facts(
            {
                "key": ", ".join(column.name for column in schema.key_columns),
                "partitions": ", ".join(shown.spec.texts(schema)) or "none",
                "sorted by": ", ".join(shown.sorted_by) or "key",
                "last commit": commit_words(version),
                "not flushed": None
                if shown.unflushed is None
                else counted(shown.unflushed, "change"),
                "format": f"Iceberg {shown.format_version}",
                "location": shown.location,
                "properties": pair_words(shown.properties),
            }
        ),
        levels_part(version, unflushed=shown.unflushed or 0),
        listing(("column", "type", ""), columns),
        line=size_words(version),
    )


def _table_row(line: TableLine) -> Sequence[Cell]:
    if isinstance(line.found, NeveError):
        return line.name, None, None, None, None, warning(str(line.found))
    version = line.found
    return (
        line.name,
        version.number,
        version.row_count,
        len(version.files),
        shown_bytes(byte_count(version)),
        commit_words(version),
    )
