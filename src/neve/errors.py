"""Every error a caller can catch, grouped by what the caller does next.

The tree, with the exit code the command line gives each group:

    NeveError
    │   fix the call (2)
    ├── InvalidArgument        an argument that can never be right
    ├── SchemaMismatch         rows or columns that do not fit the table's schema
    ├── NotFound               the thing named does not exist
    ├── AlreadyExists          the name is taken
    │   try again (3)
    ├── Conflict               somebody else committed first; nothing was written
    │   └── CatalogConflict    the same, for names and definitions of tables
    ├── Unavailable            storage did not answer, or cannot do what is needed
    │   ├── StorageFull        no space, or no quota, is left; free some first
    │   └── StorageReadOnly    the file system is mounted read-only
    ├── OutcomeUnknown         it may or may not have happened; look before repeating
    ├── NotPublished           it is committed, and other engines do not see it yet
    │   reopen (4)
    ├── Fenced                 another writer took over
    ├── Closed                 the handle was closed, or poisoned by a failed sync
    │   look at the data (5)
    ├── Corruption             bytes on disk are not what was written
    │   raise a limit (6)
    └── LimitExceeded          larger than an option allows

Facts are attributes, so that a caller never parses a message. The message says what was wrong and
where; `hint` says what to do next, and is part of `str(error)`.
"""

import re
from enum import StrEnum
from typing import ClassVar, Final

# With numbers or clauses in a message, the place behind it would seem to belong to the last one.
_FACTS: Final = re.compile(r"[0-9,:;()]")


class NextMove(StrEnum):
    """What a caller does after an error of this group."""

    FIX_THE_CALL = "fix the call"
    TRY_AGAIN = "try again"
    REOPEN = "reopen"
    LOOK_AT_THE_DATA = "look at the data"
    RAISE_A_LIMIT = "raise a limit"


EXIT_CODES: dict[NextMove, int] = {
    NextMove.FIX_THE_CALL: 2,
    NextMove.TRY_AGAIN: 3,
    NextMove.REOPEN: 4,
    NextMove.LOOK_AT_THE_DATA: 5,
    NextMove.RAISE_A_LIMIT: 6,
}


class NeveError(Exception):
    """Base of every error neve raises on purpose."""

    next_move: ClassVar[NextMove] = NextMove.FIX_THE_CALL

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.offset = offset
        self.hint = hint

    @property
    def exit_code(self) -> int:
        """Exit code the command line ends with for this error."""
        return EXIT_CODES[self.next_move]

    @property
    def what_and_where(self) -> str:
        """The message with path and offset, without the hint."""
        where = ""
        if self.path is not None:
            where = f"{',' if _FACTS.search(self.message) else ''} in {self.path}"
        if self.offset is not None:
            where += f" at byte {self.offset:,}"
        return f"{self.message}{where}"

    def __str__(self) -> str:
        if not self.hint:
            return self.what_and_where
        separator = ";" if self.hint[0].islower() else "."
        return f"{self.what_and_where}{separator} {self.hint}"


class InvalidArgument(NeveError):
    """An argument that can never be right."""


class SchemaMismatch(NeveError):
    """Rows or columns that do not fit the table's schema."""

    def __init__(
        self,
        message: str,
        *,
        column: str | None = None,
        row: int | None = None,
        path: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.column = column
        self.row = row

    @property
    def what_and_where(self) -> str:
        """The message with the row, counted from 0 in what was given."""
        where = super().what_and_where
        return where if self.row is None else f"{where}, in row {self.row:,}"


class NotFound(NeveError):
    """The thing named does not exist."""


class AlreadyExists(NeveError):
    """The name is taken; `differences` say how what has it is not what was asked for."""

    def __init__(
        self,
        message: str,
        *,
        differences: tuple[str, ...] = (),
        path: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.differences = differences


class Conflict(NeveError):
    """Somebody else committed first; nothing of this commit was written."""

    next_move = NextMove.TRY_AGAIN

    def __init__(
        self,
        message: str,
        *,
        keys: tuple[str, ...] = (),
        path: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.keys = keys


class CatalogConflict(Conflict):
    """Somebody else changed a table's name or definition first."""


class Unavailable(NeveError):
    """Storage did not answer, or cannot do what is needed; certainly nothing was written."""

    next_move = NextMove.TRY_AGAIN


class StorageFull(Unavailable):
    """No space, or no quota, is left; trying again helps only after some was freed."""


class StorageReadOnly(Unavailable):
    """The file system takes no writes; trying again does not help."""


class OutcomeUnknown(NeveError):
    """It may or may not have happened: read before repeating."""

    next_move = NextMove.TRY_AGAIN

    def __init__(
        self,
        message: str,
        *,
        first_sequence: int | None = None,
        last_sequence: int | None = None,
        path: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.first_sequence = first_sequence
        self.last_sequence = last_sequence


class NotPublished(NeveError):
    """A commit is in the table for good, and its Iceberg metadata could not be written yet.

    `version` is the number of the commit. Nothing has to be repeated: the next commit publishes it,
    and so does `iceberg_metadata`.
    """

    next_move = NextMove.TRY_AGAIN

    def __init__(
        self, message: str, *, version: int, path: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.version = version


class Fenced(NeveError):
    """Another writer took over; this handle can never write again."""

    next_move = NextMove.REOPEN


class Closed(NeveError):
    """The handle was closed, or a failed sync made it unusable."""

    next_move = NextMove.REOPEN


class Corruption(NeveError):
    """Bytes on disk are not what was written."""

    next_move = NextMove.LOOK_AT_THE_DATA


class LimitExceeded(NeveError):
    """Something is larger than an option or a format allows."""

    next_move = NextMove.RAISE_A_LIMIT

    def __init__(
        self,
        message: str,
        *,
        limit: int,
        actual: int | None = None,
        path: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, offset=offset, hint=hint)
        self.limit = limit
        self.actual = actual
