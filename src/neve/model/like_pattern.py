r"""LikePattern: what `like` compares text with, as in SQL.

    %           any characters, or none
    _           exactly one character, of any number of bytes
    \% \_ \\    the sign itself; a backslash before anything else is a backslash

A pattern matches the whole text, and capital letters differ from small ones.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from neve.errors import LimitExceeded

# Arrow compiles a pattern before it asks a row; one of 100,000 wildcards it cannot compile.
LIKE_PATTERN_MAX: Final = 1_000

_ANY: Final = "%"
_ONE: Final = "_"
_ESCAPE: Final = "\\"
_SIGNS: Final = frozenset({_ANY, _ONE, _ESCAPE})


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A pattern in pieces: pairs of a text and whether it is a wildcard."""

    pieces: tuple[tuple[str, bool], ...]

    @classmethod
    def parse(cls, pattern: str) -> "LikePattern":
        """Read a pattern; raises LimitExceeded for one that is too long to be compiled."""
        if len(pattern) > LIKE_PATTERN_MAX:
            raise LimitExceeded(
                "the pattern of like is too long",
                limit=LIKE_PATTERN_MAX,
                actual=len(pattern),
                hint="Compare with = for a whole text, or shorten the pattern",
            )
        pieces: list[tuple[str, bool]] = []
        text = ""
        at = 0
        while at < len(pattern):
            sign = pattern[at]
            if sign == _ESCAPE and pattern[at + 1 : at + 2] in _SIGNS:
                at += 1
                text += pattern[at]
            elif sign in (_ANY, _ONE):
                if text:
                    pieces.append((text, False))
                    text = ""
                # Two in a row mean what one of them means.
                if sign == _ONE or not pieces or pieces[-1] != (_ANY, True):
                    pieces.append((sign, True))
            else:
                text += sign
            at += 1
        if text:
            pieces.append((text, False))
        return cls(tuple(pieces))

    def __str__(self) -> str:
        return "".join(text if is_sign else escaped(text) for text, is_sign in self.pieces)

    @property
    def prefix(self) -> str:
        """The text that everything begins with that matches."""
        return self.pieces[0][0] if self.pieces and not self.pieces[0][1] else ""

    @property
    def is_text(self) -> bool:
        """Whether only the prefix itself matches."""
        return not any(is_sign for _, is_sign in self.pieces)

    @property
    def is_prefix(self) -> bool:
        """Whether everything matches that begins with the prefix."""
        return self.pieces[bool(self.prefix) :] == ((_ANY, True),)


def escaped(text: str) -> str:
    """Return a pattern that only this text matches."""
    return "".join(f"{_ESCAPE}{sign}" if sign in _SIGNS else sign for sign in text)


@lru_cache(maxsize=256)
def like_regex(pattern: str) -> str:
    """Return a pattern as a regular expression for Arrow."""
    pieces = LikePattern.parse(pattern).pieces
    # It is looked for anywhere in the text, so wildcards at the ends need no words.
    begins = "" if pieces and pieces[0] == (_ANY, True) else r"\A"
    ends = "" if pieces and pieces[-1] == (_ANY, True) else r"\z"
    middle = pieces[not begins : len(pieces) - (not ends and len(pieces) > 1)]
    words = "".join(_regex_of(text, is_sign=is_sign) for text, is_sign in middle)
    return f"(?s){begins}{words}{ends}"


def _regex_of(text: str, *, is_sign: bool) -> str:
    if is_sign:
        return ".*" if text == _ANY else "."
    return "".join(
        sign if sign.isalnum() or not sign.isascii() else f"\\x{ord(sign):02x}" for sign in text
    )
