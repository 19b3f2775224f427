"""Lines made to fit: clipped with an ellipsis, or broken between words.

Widths are those of a terminal, where some characters take two columns and some none.
"""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text


def clipped(text: Text, columns: int) -> Text:
    """Return the text, what is beyond `columns` replaced by an ellipsis."""
    if cell_len(text.plain) <= columns:
        return text
    fitted = text.copy()
    fitted.truncate(columns, overflow="ellipsis")
    return fitted


def wrapped(text: Text, columns: int, *, indent: int) -> Iterator[Text]:
    """Yield the text in lines of at most `columns`, all but the first behind `indent` spaces."""
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
    # A word longer than a line is broken where the line ends.
    return between_words if between_words > 0 else max(1, fitting)


def _stripped(text: Text, *, end: bool) -> Text:
    plain = text.plain
    return text[: len(plain.rstrip())] if end else text[len(plain) - len(plain.lstrip()) :]
