"""Names, values and types as error messages show them: short and on one line.

Any argument may end up in a message: a text of megabytes, an int that Python refuses to print, a
type of thousands of fields. The attributes of an error keep the full values.
"""

import reprlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

_TEXT_MAX: Final = 80
_TYPE_MAX: Final = 200
_NAMES_MAX: Final = 5
# Python refuses to print an int of thousands of digits; it is unreadable long before that.
_INT_BITS_MAX: Final = 256
_UNITS: Final = ("kB", "MB", "GB", "TB", "PB")
_UNIT_STEP: Final = 1_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_reader: Final = reprlib.Repr()
_reader.maxother = _TEXT_MAX
_reader.maxlong = _TEXT_MAX


def shown(value: object) -> str:
    """Quote a name or a value as `repr` does, cut where it grows too long to read."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        start = value[:_TEXT_MAX]
        text = repr(bytes(start) if isinstance(start, memoryview) else start)
        return text if len(value) <= _TEXT_MAX else f"{text}…"
    if isinstance(value, int) and value.bit_length() > _INT_BITS_MAX:
        return f"an int of {value.bit_length():,} bits"
    try:
        return " ".join(_reader.repr(value).split("\n"))
    except ValueError:
        # An int too long to print, inside another value.
        return f"a {type(value).__name__} too long to show"


def listed(names: Sequence[str]) -> str:
    """Quote the first of some names, and say how many more there are."""
    first = ", ".join(map(shown, names[:_NAMES_MAX]))
    return first if len(names) <= _NAMES_MAX else f"{first} and {len(names) - _NAMES_MAX} more"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which takes an s in the plural."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def shown_bytes(count: int) -> str:
    """Return a size in the largest unit that it fills: 812 bytes, 1.2 kB, 3.4 MB."""
    size, unit = float(count), ""
    for larger in _UNITS:
        # 1000.0 of a unit is shown as 1.0 of the next.
        if size < _UNIT_STEP - 0.05:
            break
        size, unit = size / _UNIT_STEP, larger
    return f"{size:,.1f} {unit}" if unit else counted(count, "byte")


def shown_moment(milliseconds: int) -> str:
    """Spell a time as ISO 8601 in UTC; a number too large for that stays one."""
    try:
        return (EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{milliseconds} ms"


def shown_type(arrow_type: object) -> str:
    """Return the text of an Arrow type, cut where it grows too long to read."""
    text = str(arrow_type)
    return text if len(text) <= _TYPE_MAX else f"{text[:_TYPE_MAX]}…"
