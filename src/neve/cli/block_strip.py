"""A block of a log drawn to scale in one line, and what its characters mean."""

from itertools import groupby
from typing import Final, assert_never

from rich.text import Text

from neve.wal.inspection import (
    Block,
    DamagedPart,
    PaddingPart,
    Part,
    RecordPart,
    StalePart,
    ZerosPart,
)
from neve.wal.record_format import BLOCK_BYTES

STRIP_COLUMNS_MAX: Final = 64
STRIP_MEANINGS: Final = {
    "█": "█▓ records",
    "▁": "▁ padding",
    "·": "· zeros",
    "~": "~ an earlier log",
    "✗": "✗ damaged",
}


def strip_of(block: Block, *, columns: int) -> Text:
    """Draw a block to scale, a character for each of its `columns` parts."""
    step = BLOCK_BYTES / columns
    base = block.index * BLOCK_BYTES
    cells = [(" ", "")] * columns
    weight = [0] * columns
    for number, part in enumerate(block.parts):
        symbol, style, rank = _symbol(part, number)
        first = int((part.offset - base) / step)
        last = int((part.offset + part.byte_count - 1 - base) / step)
        for at in range(first, min(last, columns - 1) + 1):
            if rank > weight[at]:
                cells[at] = (symbol, style)
                weight[at] = rank
    runs = ((symbol * len([*run]), style) for (symbol, style), run in groupby(cells))
    return Text.assemble(*runs)


def _symbol(part: Part, number: int) -> tuple[str, str, int]:
    """Return the symbol of a part, its style, and its rank where several share a character."""
    match part:
        case RecordPart():
            return ("█", "cyan", 3) if number % 2 == 0 else ("▓", "blue", 3)
        case DamagedPart():
            return ("✗", "bold red", 5)
        case StalePart():
            return ("~", "yellow", 4)
        case PaddingPart():
            return ("▁", "dim", 2)
        case ZerosPart():
            return ("·", "dim", 1)
        case _:
            assert_never(part)
