"""The levels of a table as a picture: lines of text for a terminal, an SVG for a page.

    memory   ▓▓                        1,204 changes not flushed
    level 0  ███· ██ █                 3 files    3,000 live rows  120 marked  81.2 kB
    level 1  ██████████ █████████████  2 files  100,000 live rows               2.4 MB

Bars are to scale by rows, a file each where there is room and one for the whole level otherwise.
What has rows is never drawn as nothing, so the smallest bars are larger than to scale.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import zip_longest
from typing import Final, NamedTuple

import pyarrow as pa

from neve.model.data_file import DataFile
from neve.model.display import counted, shown_bytes

LIVE: Final = "█"
MARKED: Final = "·"
UNFLUSHED: Final = "▓"
LEGEND: Final = f"{LIVE} live rows  {MARKED} marked as deleted  {UNFLUSHED} not flushed"

_COLUMNS: Final = 40

_LETTER_WIDTH: Final = 7
"""Of a letter of the usual fonts, rather more than less."""
_BAR_LEFT: Final = 64
_BAR_WIDTH: Final = 276
_ROW_HEIGHT: Final = 22
_BAR_HEIGHT: Final = 14
_FILE_WIDTH_MIN: Final = 2.0
_GAP: Final = 1.0
_LIVE_COLOUR: Final = "#3f88c5"
_MARKED_COLOUR: Final = "#e0a458"
_UNFLUSHED_COLOUR: Final = "#a9d3f0"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBar:
    """One data file of a picture, or several taken together."""

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
        """All of its files taken together."""
        return FileBar(
            row_count=sum(file.row_count for file in self.files),
            marked_count=sum(file.marked_count for file in self.files),
            byte_count=sum(file.byte_count for file in self.files),
        )


class PictureLine(NamedTuple):
    """One line of a picture in its parts, so that each can have its colour."""

    title: str
    bar: str
    words: str


def levels_of(files: Iterable[DataFile]) -> tuple[LevelBar, ...]:
    """Return the levels of some files, from 0 on; a level without files is left out."""
    return _by_level(
        (file.level, file.row_count, file.deleted_count, file.file_bytes) for file in files
    )


def levels_of_listing(files: pa.Table) -> tuple[LevelBar, ...]:
    """Return the levels of what `table.files()` gives."""
    names = ("level", "record_count", "deleted_count", "file_size_bytes")
    return _by_level(zip(*(files.column(name).to_pylist() for name in names), strict=True))


def picture_lines(
    levels: Sequence[LevelBar], *, unflushed: int = 0, columns: int = _COLUMNS
) -> list[PictureLine]:
    """Draw levels as lines whose parts are aligned; `unflushed` changes are a line above them."""
    most = max([unflushed, *(level.whole.row_count for level in levels)], default=0)
    bars = [_text_bar(level, most, columns) for level in levels]
    titles = [f"level {level.number}" for level in levels]
    words = _aligned_words(levels)
    if unflushed:
        titles.insert(0, "memory")
        bars.insert(0, UNFLUSHED * _cells(unflushed, most, columns))
        words.insert(0, f"{counted(unflushed, 'change')} not flushed")
    title_width, bar_width = _width(titles), _width(bars)
    return [
        PictureLine(title.ljust(title_width), bar.ljust(bar_width), text)
        for title, bar, text in zip(titles, bars, words, strict=True)
    ]


def levels_text(levels: Sequence[LevelBar], *, unflushed: int = 0, columns: int = _COLUMNS) -> str:
    """Draw levels as text, a line each; one line says so when there is nothing to draw."""
    lines = picture_lines(levels, unflushed=unflushed, columns=columns)
    return "\n".join("  ".join(line).rstrip() for line in lines) or "no rows"


def levels_svg(levels: Sequence[LevelBar], *, unflushed: int = 0) -> str:
    """Draw levels as an SVG element to be put into a page; empty when there is nothing to draw."""
    most = max([unflushed, *(level.whole.row_count for level in levels)], default=0)
    if not most:
        return ""
    rows: list[tuple[str, str, str]] = []
    if unflushed:
        width = _BAR_WIDTH * unflushed / most
        words = f"{counted(unflushed, 'change')} not flushed"
        rows.append(("memory", _rectangle(0, width, _UNFLUSHED_COLOUR, words), words))
    for level in levels:
        words = ", ".join(filter(None, _level_words(level)))
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


def _by_level(facts: Iterable[Sequence[int]]) -> tuple[LevelBar, ...]:
    found: dict[int, list[FileBar]] = {}
    for level, row_count, marked_count, byte_count in facts:
        bar = FileBar(row_count=row_count, marked_count=marked_count, byte_count=byte_count)
        found.setdefault(level, []).append(bar)
    return tuple(LevelBar(number=number, files=tuple(found[number])) for number in sorted(found))


def _level_words(level: LevelBar) -> list[str]:
    whole = level.whole
    return [
        counted(len(level.files), "file"),
        counted(whole.live_count, "live row"),
        f"{whole.marked_count:,} marked" if whole.marked_count else "",
        shown_bytes(whole.byte_count),
    ]


def _aligned_words(levels: Sequence[LevelBar]) -> list[str]:
    """Return the words of levels so that what belongs together is below one another."""
    rows = [_level_words(level) for level in levels]
    widths = [_width(column) for column in zip_longest(*rows, fillvalue="")]
    return [
        "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True) if width)
        for row in rows
    ]


# As text


def _text_bar(level: LevelBar, most: int, columns: int) -> str:
    room = columns - (len(level.files) - 1)  # between files is a gap
    if room > 0:
        bar = " ".join(_text_file(file, most, room) for file in level.files)
        if len(bar) <= columns + 1:
            return bar
    return _text_file(level.whole, most, columns)


def _text_file(file: FileBar, most: int, columns: int) -> str:
    cells = _cells(file.row_count, most, columns)
    if not file.row_count:
        return LIVE * cells
    marked = round(cells * file.marked_count / file.row_count)
    # Some of both is shown as some of both where there is room for it.
    if cells > 1:
        marked = min(max(marked, int(file.marked_count > 0)), cells - int(file.live_count > 0))
    return LIVE * (cells - marked) + MARKED * marked


def _cells(count: int, most: int, columns: int) -> int:
    return max(1, round(columns * count / most)) if most else 1


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
