"""Bytes and values as people and programs read them.

INSPECT-6  Bytes are text if they are UTF-8 and every character is printable, otherwise
           hexadecimal, and the output always shows which.
INSPECT-7  No control character from a file reaches a terminal.
INSPECT-8  If the output's encoding lacks the characters of drawings, each becomes one of ASCII.
"""

import datetime as dt
import decimal
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

_DRAWN: Final = "╭╰╮╯│─┊█▓▁·✗✔…×µ"
_IN_ASCII: Final = str.maketrans(_DRAWN, "++\\/|-:#=_.x*>xu")


class ShownBytes(NamedTuple):
    """Bytes as they are shown."""

    form: Literal["text", "hex"]
    shown: str

    def to_json(self) -> Json:
        """Return an object that names the form."""
        return {self.form: self.shown}

    def clipped(self, length: int) -> str:
        """Return one short line: text in quotation marks, hexadecimal after `0x`."""
        text = f'"{self.shown}"' if self.form == "text" else f"0x{self.shown}"
        return text if len(text) <= length else f"{text[: length - 1]}…"


def show_bytes(content: bytes, *, hex_only: bool = False) -> ShownBytes:
    """Return bytes as text if they are printable, otherwise as hexadecimal."""
    if not hex_only:
        try:
            text = content.decode()
        except UnicodeDecodeError:
            pass
        else:
            if text.isprintable():
                return ShownBytes("text", text)
    return ShownBytes("hex", content.hex())


def shown_text(text: str) -> str:
    """Return a text with every unprintable character escaped."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )


def is_drawable(encoding: str) -> bool:
    """Whether an encoding has the characters of drawings."""
    try:
        _DRAWN.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def drawn_in_ascii(text: str) -> str:
    """Return a text of the same length, its drawing characters replaced by ASCII."""
    return text.translate(_IN_ASCII)


def value_to_json(value: object, *, hex_only: bool = False) -> Json:
    """Return a value of a row as JSON; dates, and numbers that JSON lacks, become text."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return value
        case bytes():
            return show_bytes(value, hex_only=hex_only).to_json()
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case decimal.Decimal() | uuid.UUID():
            return str(value)
        case Mapping():
            return {
                str(name): value_to_json(each, hex_only=hex_only) for name, each in value.items()
            }
        case Sequence():
            return [value_to_json(each, hex_only=hex_only) for each in value]
        case _:
            return str(value)


def value_to_text(value: object, *, length: int) -> str:
    """Return a value of a row as one short line without control characters."""
    match value:
        case bytes():
            return show_bytes(value).clipped(length)
        case str():
            text = f'"{shown_text(value)}"'
        case None:
            text = "null"
        case _:
            text = shown_text(str(value))
    return text if len(text) <= length else f"{text[: length - 1]}…"
