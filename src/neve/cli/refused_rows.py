"""Which row of an input was refused: named as `file:line`, and how far the writing had come."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from neve.errors import NeveError, SchemaMismatch
from neve.model.shown_value import counted

PlaceOf: TypeAlias = Callable[[int], str]
"""Names the place of a row of the input, counted from 0, such as `orders.csv:7`."""


@contextmanager
def telling_the_row(place_of: PlaceOf, written: Callable[[], int]) -> Iterator[None]:
    """Add to an error where in the input its row is, and how many rows before it are written.

    `written` counts the rows of the input that are written, before those that were refused.
    """
    try:
        yield
    except SchemaMismatch as error:
        raise _placed(error, place_of, written()) from error.__cause__
    except NeveError as error:
        error.hint = _with_count(error.hint, written())
        raise


def _placed(error: SchemaMismatch, place_of: PlaceOf, before: int) -> SchemaMismatch:
    row = None if error.row is None else before + error.row
    return SchemaMismatch(
        error.message if row is None else f"{place_of(row)}: {error.message}",
        column=error.column,
        path=error.path,
        hint=_with_count(error.hint, before),
    )


def _with_count(hint: str | None, before: int) -> str | None:
    if not before:
        return hint
    words = f"{counted(before, 'row')} before it {'is' if before == 1 else 'are'} written"
    return words if hint is None else f"{hint.removesuffix('.')}. {words}"
