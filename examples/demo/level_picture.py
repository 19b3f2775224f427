"""The levels of a table as text: a line for each, with a bar of its rows."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

import pyarrow as pa

from neve.model.display import counted
from neve.notebook import FileBar, LevelBar, by_level, level_words

LIVE: Final = "█"
MARKED: Final = "·"
UNFLUSHED: Final = "▓"
LEGEND: Final = f"{LIVE} live rows  {MARKED} marked as deleted  {UNFLUSHED} not flushed"

_COLUMNS: Final = 40


class PictureLine(NamedTuple):
    """One line of a picture in parts, so that each can have its own colour."""

    title: str
    bar: str
    words: str


def levels_of_listing(files: pa.Table) -> tuple[LevelBar, ...]:
    """Return the levels of a listing of `table.files()`."""
    names = ("level", "record_count", "deleted_count", "file_size_bytes")
    return by_level(zip(*(files.column(name).to_pylist() for name in names), strict=True))


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


def _aligned_words(levels: Sequence[LevelBar]) -> list[str]:
    """Return the words of levels, aligned in columns."""
    rows = [level_words(level) for level in levels]
    widths = [_width(column) for column in zip_longest(*rows, fillvalue="")]
    return [
        "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True) if width)
        for row in rows
    ]


def _text_bar(level: LevelBar, most: int, columns: int) -> str:
    room = columns - (len(level.files) - 1)  # a gap between files
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
    # If there is room, both kinds of rows are visible.
    if cells > 1:
        marked = min(max(marked, int(file.marked_count > 0)), cells - int(file.live_count > 0))
    return LIVE * (cells - marked) + MARKED * marked


def _cells(count: int, most: int, columns: int) -> int:
    return max(1, round(columns * count / most)) if most else 1


def _width(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)
