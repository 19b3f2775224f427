"""Refused rows of an input: which ones, why, and where they are kept.

A row is `file:line`, or its number in files without lines. The first few are shown, and all are
counted. On request they are written to a file of the input's form, to be corrected and imported
again.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import BinaryIO, Final, TypeAlias

from neve.cli.command_wording import command_words
from neve.cli.row_output import new_file
from neve.errors import InvalidArgument, NeveError, SchemaMismatch
from neve.model.display import counted

PlaceOf: TypeAlias = Callable[[int], str]
"""Returns the place of a row of the input, counted from 0, such as `orders.csv:7`."""
PlacesOf: TypeAlias = Callable[[Sequence[int]], list[str]]
"""Returns the places of rows of the input, counted from 0 with those refused."""

_SHOWN_MAX: Final = 20
_COUNTED_MAX: Final = 1_000
"""A search for wrong rows stops after this many: something else must be wrong."""


class RowsRefused(SchemaMismatch):
    """Several rows do not fit; `details` has a line for each of the first ones."""

    def __init__(self, message: str, *, details: Sequence[str], hint: str) -> None:
        super().__init__(message, hint=hint)
        self.details = details


class TooManyRefused(Exception):
    """The search ends because too many rows were refused."""


class RefusedRows:
    """Collects refused rows, in the order of the input."""

    def __init__(
        self, *, path: str | None = None, stack: ExitStack | None = None, is_bounded: bool = False
    ) -> None:
        """Take the file for the rows, and whether to stop when there are too many.

        The file appears when `stack` closes, if a row was refused and nothing failed.
        """
        self.count = 0
        self.head: bytes | None = None
        """First line of the file: the names of its columns."""
        self._path = path
        self._stack = stack
        self._is_bounded = is_bounded
        self._sink: BinaryIO | None = None
        self._shown: list[tuple[int, NeveError, bool]] = []

    @property
    def keeps_text(self) -> bool:
        """Whether the rows themselves are kept."""
        return self._path is not None

    def add(self, error: NeveError, *, place: int, text: bytes, names_place: bool = False) -> None:
        """Add a row: why it was refused, its place, and its text.

        `names_place`: the message of the error already has the place.
        """
        self.count += 1
        if len(self._shown) < _SHOWN_MAX:
            self._shown.append((place, error, names_place))
        if self._path is not None:
            self._written_to(self._path).write(text.rstrip(b"\r\n") + b"\n")
        if self._is_bounded and self.count >= _COUNTED_MAX:
            raise TooManyRefused

    def details(self, places_of: PlacesOf) -> list[str]:
        """Return a line for each of the first rows: its place, and why it was refused."""
        unnamed = [place for place, _, names_place in self._shown if not names_place]
        names = dict(zip(unnamed, places_of(unnamed) if unnamed else [], strict=True))
        # Rows of one block are refused reason by reason, not in order.
        in_order = sorted(self._shown, key=lambda row: row[0])
        lines = [
            command_words(error.message)
            if names_place
            else f"{names[place]}: {command_words(error.message)}"
            for place, error, names_place in in_order
        ]
        more = self.count - len(lines)
        return [*lines, f"and {counted(more, 'more row')}"] if more else lines

    def failure(self, source: str, places_of: PlacesOf) -> SchemaMismatch:
        """Return the error of an import that wrote nothing because of these rows."""
        details = self.details(places_of)
        ways_out = "--keep-good writes the other rows, and --refused FILE keeps the wrong ones"
        if self.count == 1:
            _, error, _ = self._shown[0]
            column = error.column if isinstance(error, SchemaMismatch) else None
            hint = "" if error.hint is None else f"{_sentence(command_words(error.hint))} "
            return SchemaMismatch(
                details[0], column=column, hint=f"{hint}Nothing was written; {ways_out}"
            )
        at_least = " or more" if self._is_bounded and self.count >= _COUNTED_MAX else ""
        return RowsRefused(
            f"{self.count:,} rows{at_least} of {source} do not fit; nothing was written",
            details=details,
            hint=f"Correct them; {ways_out}",
        )

    def _written_to(self, path: str) -> BinaryIO:
        if self._sink is None:
            assert self._stack is not None, "a file has a stack that closes it"
            self._sink = self._stack.enter_context(new_file(path))
            if self.head is not None:
                self._sink.write(self.head)
        return self._sink


def nth_left(index: int, gone: Sequence[int]) -> int:
    """Return the place of item `index` among those not in `gone`, which ascends."""
    place = index
    while (beyond := index + bisect_right(gone, place)) != place:
        place = beyond
    return place


@contextmanager
def naming_the_row(place_of: PlaceOf, written: Callable[[], int]) -> Iterator[None]:
    """Add to an error the place of its row in the input, and how many rows before it were written.

    `written` counts the rows of the input that were written before the refused batch.
    """
    try:
        yield
    except SchemaMismatch as error:
        raise _placed(error, place_of, written()) from error.__cause__
    except NeveError as error:
        is_refused = isinstance(error, InvalidArgument)
        error.hint = _with_count(error.hint, written(), is_refused=is_refused)
        raise


def _placed(error: SchemaMismatch, place_of: PlaceOf, before: int) -> SchemaMismatch:
    row = None if error.row is None else before + error.row
    return SchemaMismatch(
        error.message if row is None else f"{place_of(row)}: {command_words(error.message)}",
        column=error.column,
        path=error.path,
        hint=_with_count(error.hint, before, is_refused=True),
    )


def _with_count(hint: str | None, before: int, *, is_refused: bool) -> str | None:
    if not before and not is_refused:
        return hint  # storage failed: how many rows were written is unknown
    words = "Nothing was written"
    if before:
        words = f"{counted(before, 'row')} before it {'is' if before == 1 else 'are'} written"
    return words if hint is None else f"{_sentence(command_words(hint))} {words}"


def _sentence(hint: str) -> str:
    """End a hint with a full stop, unless it ends with punctuation."""
    return hint if hint.endswith((".", "?")) else f"{hint}."
