"""Suggestions for an unknown name: "did you mean", or the names that exist."""

import difflib
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final

from neve.model.display import shown

_COMPARED_MAX: Final = 1_000
_LISTED_MAX: Final = 10
# Comparing costs the product of both lengths; no name in a lake is that long.
_LETTERS_MAX: Final = 1_024


def similar_name(name: str, names: Collection[str]) -> str | None:
    """Return the most similar of `names`, preferring one that differs only in case, or None."""
    if len(name) > _LETTERS_MAX:
        return None
    folded = name.casefold()
    similar = [each for each in names if each.casefold() == folded]
    if not similar:
        similar = difflib.get_close_matches(name, islice(names, _COMPARED_MAX), n=1)
    return similar[0] if similar else None


def similar_name_hint(name: str, names: Collection[str], *, is_quoted: bool = True) -> str | None:
    """Suggest the most similar of `names`, as a question; None when none is similar."""
    similar = similar_name(name, names)
    return None if similar is None else suggestion(similar, is_quoted=is_quoted)


def suggestion(similar: str, *, is_quoted: bool = True) -> str:
    """Suggest a name, as a question."""
    return f"Did you mean {shown(similar) if is_quoted else similar}?"


def known_names_hint(name: str, names: Sequence[str], *, where: str = "The table") -> str:
    """Suggest the most similar of `names`; when none is similar, list them."""
    listed = ", ".join(map(shown, names[:_LISTED_MAX]))
    more = len(names) - _LISTED_MAX
    more_words = f" and {more:,} more" if more > 0 else ""
    return similar_name_hint(name, names) or f"{where} has {listed}{more_words}"
