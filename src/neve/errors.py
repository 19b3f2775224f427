"""Every error a caller can catch, grouped by what the caller does next.

The tree, with the exit code of the command line for each group:

    NeveError
    │   fix the call (2)
    ├── InvalidArgument        an argument that can never be right
    ├── SchemaMismatch         rows or columns that do not fit the table's schema
    ├── NotFound               the thing named does not exist
    ├── AlreadyExists          the name is taken
    │   try again (3)
    ├── Conflict               another writer committed first; nothing was written
    │   └── CatalogConflict    the same, for names and definitions of tables
    ├── Unavailable            storage did not answer, or cannot do what is needed
    │   ├── StorageFull        no space, or no quota, is left; free some first
    │   ├── StorageReadOnly    the file system is mounted read-only
    │   └── StorageRefused     the bucket refuses: credentials, permission, clock, or no bucket
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
where; `hint` says what to do next, and is part of `str(error)`. If either names Python calls or
values, it is a `Wording`: text for a Python caller that also is data, which the command line words
for its own users.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final, Self

# After a number or a clause, the place would seem to belong to that.
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


class Phrase(StrEnum):
    """A sentence for a Python caller, with gaps for facts."""

    # Tables, versions and times
    TABLE_IS_THERE = "Open it with lake.table({name!a}), {way_out}, or choose another name"
    TAKE_ITS_DEFINITION = "Open it with `table` and use its definition, or choose another name"
    LIST_TABLES = "`list_tables` and `neve tables` list them"
    LIST_NAMESPACES = "`list_namespaces` lists them"
    NAME_A_TAG = "Pass one of the tags in `history()`"
    NAME_A_VERSION = "Pass one of the numbers in `history()`"
    NAME_A_KEPT_VERSION = "Pass one of those in the table's history"
    NAME_ONE_VERSION = "Pass one of version, timestamp and tag"
    NAME_A_TIME = (
        "Pass '2024-01-31T12:00:00+00:00', an aware datetime, an age such as '2h ago', or "
        "milliseconds since 1970"
    )
    NOT_A_VERSION = "{name}={number} is not the number of a version"
    NAME_A_NUMBER = "Pass a whole number; since=0 starts at the beginning"
    UNTIL_BEFORE_SINCE = "until={until} is before since={since}"
    CHANGES_KEPT_SINCE = (
        "Changes are kept from since={oldest} on; to start again, scan version {oldest} and go on "
        "from there"
    )
    RESTART_CONSUMER = (
        "Remove the consumer with drop_consumer({name!a}), or pass since={oldest} or later to "
        "start it again there"
    )
    LIST_CONSUMERS = "`consumers()` lists them"
    # Writers and storage
    OPEN_AGAIN = "Open the table again"
    CLOSE_THAT_WRITER = (
        "Close that writer, or open read-only; fuser {file} shows which process it is"
    )
    ROOM_FOR_A_WRITER = (
        "A writer needs 256 KiB to start: free as much outside of the table, then expire and "
        "collect_garbage free what the table does not need. With read_only=True it can be read as "
        "it is"
    )
    FREE_SPACE = (
        "Free space or raise the quota of the disk, then try again; expire and collect_garbage "
        "free what the table does not need"
    )
    MOUNTED_READ_ONLY = (
        "The file system is mounted read-only: look at the kernel log, or open with read_only=True"
    )
    UNORDERED_LISTING = "Open it with the storage option listing=unordered"
    CREDENTIALS = "Pass credentials as storage_options"
    # Published metadata
    PUBLISH_FIRST = "Open it without read_only and try again, or let its writer flush"
    NEXT_COMMIT_PUBLISHES = (
        "Its rows are safe and need not be written again; the next commit publishes them"
    )
    PUBLISH_AGAIN = "The rows are safe; publish again"
    REPUBLISH = (
        "Rows are not affected. Publish the table again: delete the folder `metadata` of the "
        "table, then call iceberg_metadata()"
    )
    # Damage
    RECOVER = "`recover` removes what is left"
    FIND_DAMAGE = "Run verify to see which file or vector is damaged"
    WRITE_AGAIN = "Run verify, and write the row of this key again: one of the two is stale"
    RESTORE_LOST_FILE = (
        "Restore it from a copy, or roll back to a version without it; `verify` names all that are "
        "missing"
    )
    REBUILD_INDEXES = "Rows are not affected. Compact the table, or run rebuild_indexes"
    SALVAGE_LOG = "restore {what} from a copy, or open with recovery mode {mode}"
    # Values, columns and rows
    WAS_COMPARED = "column {column} is {arrow_type} and was compared with {kind} {value}"
    WRITE_A_LITERAL = "Pass {wanted}"
    CANNOT_HOLD = "column {column} is {arrow_type} and cannot hold {value}"
    CANNOT_BE_ASKED = "{operator!r} cannot be asked of column {column} of type {arrow_type}"
    CANNOT_BE_APPLIED = "{transform} cannot be applied to column {column} of type {arrow_type}"
    ONLY_NULL_TESTS = "Use is_null or not_null: nested columns support nothing else"
    USE_A_PRIMITIVE = "Use a column of a primitive type: a nested one has only is_null and not_null"
    GIVE_A_DATE = "Pass a date, such as datetime.date(2024, 1, 31)"
    GIVE_A_TIME = "Pass a time, such as datetime.time(22, 31, 8)"
    GIVE_A_TIMESTAMP = "Pass a datetime without a zone, such as datetime(2024, 1, 31)"
    GIVE_A_TIMESTAMPTZ = "Pass a datetime with a zone, such as datetime(2024, 1, 31, tzinfo=UTC)"
    GIVE_A_UUID = "Pass a uuid.UUID"
    GIVE_A_DECIMAL = "Pass a Decimal with at most {digits}"
    SMALLER_DECIMAL = "Use at most decimal128({digits}, s), or string"
    EXPECTED_ROW = "Pass the row of the same key as it was read, or None for no row"
    NAMED_COLUMNS = "Pass the key and every column that `columns` names"
    COUNT_BATCHES_UP = (
        "Numbers of batches go up: go on after batch {last}, which `last_batch` returns. To start "
        "over, use another app_id"
    )
    ORDER_OF_TABLE = "Leave order_by out, or change the table's with evolve"
    LEAVE_COLUMNS_OUT = "Name the columns to write, or leave `columns` out to write whole rows"


class Wording(str):
    """Text for a Python caller that carries its phrase and facts, for other wordings."""

    __slots__ = ("facts", "phrase")
    phrase: Phrase
    facts: Mapping[str, Any]

    def __new__(cls, phrase: Phrase, **facts: object) -> Self:
        """Fill the gaps of a phrase."""
        words = super().__new__(cls, phrase.value.format(**facts))
        words.phrase = phrase
        words.facts = facts
        return words

    def __getnewargs_ex__(self) -> tuple[tuple[Phrase], Mapping[str, Any]]:
        return (self.phrase,), self.facts


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
        """Exit code of the command line for this error."""
        return EXIT_CODES[self.next_move]

    @property
    def where(self) -> str:
        """Path and offset, as they follow the message."""
        where = ""
        if self.path is not None:
            where = f"{',' if _FACTS.search(self.message) else ''} in {self.path}"
        if self.offset is not None:
            where += f" at byte {self.offset:,}"
        return where

    @property
    def what_and_where(self) -> str:
        """The message with path and offset, without the hint."""
        return f"{self.message}{self.where}"

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
    def where(self) -> str:
        """Path and row, which is counted from 0 in the rows that were given."""
        return super().where if self.row is None else f"{super().where}, in row {self.row:,}"


class NotFound(NeveError):
    """The thing named does not exist."""


class AlreadyExists(NeveError):
    """The name is taken; `differences` are between the existing thing and the request."""

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
    """Another writer committed first; nothing of this commit was written.

    For a transaction, `table` is the name of a table that was changed, and `keys` are the first
    keys of it.
    """

    next_move = NextMove.TRY_AGAIN

    def __init__(
        self,
        message: str,
        *,
        keys: tuple[str, ...] = (),
        table: str | None = None,
        path: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.keys = keys
        self.table = table


class CatalogConflict(Conflict):
    """Another process changed a table's name or definition first."""


class Unavailable(NeveError):
    """Storage did not answer, or cannot do what is needed; certainly nothing was written."""

    next_move = NextMove.TRY_AGAIN


class StorageFull(Unavailable):
    """No space, or no quota, is left; try again after freeing some."""


class StorageReadOnly(Unavailable):
    """The file system is read-only; trying again does not help."""


class StorageRefused(Unavailable):
    """A bucket refuses the request, for credentials or permissions; trying again does not help."""


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
    """A commit succeeded, but its Iceberg metadata could not be written yet.

    `version` is the number of the commit. Do not repeat it: the next commit publishes it, and so
    does `iceberg_metadata`.
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
    """Bytes on disk are not what was written; `problems` are what a verification found."""

    next_move = NextMove.LOOK_AT_THE_DATA

    def __init__(
        self,
        message: str,
        *,
        problems: tuple[NeveError, ...] = (),
        path: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, offset=offset, hint=hint)
        self.problems = problems


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
