"""RowRules: which change of a row wins, how columns are folded, and when rows expire.

    order_by  lsn                 of two changes of a key the one with the greater value wins; an
                                  older one changes nothing, also after a delete
    merge     total: sum          a new value is added to the one that is there
    ttl       ts: 90 days         a row is gone 90 days after the time in its column

All three belong to the schema: a table may get, change and lose them by `evolve`. Columns are named
by their field ids, so a rename changes nothing.

MODEL-R1  Order columns are primitive, not in the key, and never NULL in rows that are written.
MODEL-R2  A merge function fits the type of its column, which is neither in the key nor an order
          column.
MODEL-R3  Time to live counts from a timestamp column, and is positive. NULL never expires.
MODEL-R4  Whether a row has expired depends on its own time and on one moment, that of the reader:
          `Cutoff` decides it, for every reader and for the upkeep that removes rows.

    moment - ttl = cut-off
    ──────────────┼───────────────────────►  time in the column
       expired    │  live                    a row at the cut-off has expired
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.errors import InvalidArgument
from neve.model.arrow_types import NESTED_KINDS, TypeKind, kind_of, type_name
from neve.model.bound_predicate import (
    BoundColumn,
    BoundCondition,
    BoundPredicate,
    Operator,
    any_of,
)
from neve.model.display import EPOCH, shown
from neve.model.plain_values import to_plain
from neve.model.schema_view import ColumnView

_DAY_MS: Final = 24 * 60 * 60 * 1_000
KEEP_DELETES_MS: Final = 7 * _DAY_MS

_UNITS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": _DAY_MS,
    "week": 7 * _DAY_MS,
    "year": 365 * _DAY_MS,
}
_DURATION: Final = re.compile(r"\s*(\d{1,12})\s*([a-z]+?)s?\s*")
_MILLISECONDS_MAX: Final = 100_000 * 365 * _DAY_MS
_INT64_MAX: Final = (1 << 63) - 1
_EPOCH: Final = EPOCH.replace(tzinfo=None)  # of columns without a zone

_NUMBERS: Final = frozenset(
    {TypeKind.INT, TypeKind.LONG, TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.DECIMAL}
)
_TIMESTAMPS: Final = frozenset(
    {
        TypeKind.TIMESTAMP,
        TypeKind.TIMESTAMPTZ,
        TypeKind.TIMESTAMP_NS,
        TypeKind.TIMESTAMPTZ_NS,
    }
)
_NANOSECONDS: Final = frozenset({TypeKind.TIMESTAMP_NS, TypeKind.TIMESTAMPTZ_NS})
_ZONED: Final = frozenset({TypeKind.TIMESTAMPTZ, TypeKind.TIMESTAMPTZ_NS})


class RuledColumn(ColumnView, Protocol):
    """A column, as far as rules need it."""

    @property
    def nullable(self) -> bool:
        """Whether it may be NULL."""


class RuledSchema(Protocol):
    """A schema, as far as rules need it: schemas have rules, so rules do not know schemas."""

    @property
    def rules(self) -> "RowRules":
        """The rules that it has."""

    @property
    def columns(self) -> Sequence[RuledColumn]:
        """Columns in order."""

    def column(self, name: str) -> RuledColumn:
        """Find a column by name; raises NotFound."""

    def column_by_id(self, field_id: int) -> RuledColumn:
        """Find a column by field id; raises NotFound."""


class MergeFunction(StrEnum):
    """How a new value of a column is folded into the one that is there; on disk: never change."""

    LAST = "last"
    LAST_NON_NULL = "last_non_null"
    FIRST = "first"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    BOOL_AND = "bool_and"
    BOOL_OR = "bool_or"

    @property
    def takes_any_order(self) -> bool:
        """Whether the order in which values come makes no difference."""
        return self not in {
            MergeFunction.LAST,
            MergeFunction.LAST_NON_NULL,
            MergeFunction.FIRST,
        }

    def fits(self, kind: TypeKind) -> bool:
        """Return whether values of this kind can be folded."""
        match self:
            case MergeFunction.SUM:
                return kind in _NUMBERS
            case MergeFunction.MIN | MergeFunction.MAX:
                return kind not in NESTED_KINDS
            case MergeFunction.BOOL_AND | MergeFunction.BOOL_OR:
                return kind is TypeKind.BOOLEAN
            case _:
                return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeToLive:
    """How long a row lives after the time in one of its columns."""

    field_id: int
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Cutoff:
    """Distinguishes rows that have expired at one moment from those that have not (MODEL-R4)."""

    column: RuledColumn
    count: int
    """In the unit of the column: rows with a time up to this have expired."""

    def __str__(self) -> str:
        is_zoned = kind_of(self.column.type) in _ZONED
        moment = np.datetime64(self.count, "ns" if _is_fine(self.column) else "us")
        return f"{self.column.name} up to {moment}{'+00:00' if is_zoned else ''}"

    @property
    def expired(self) -> BoundPredicate:
        """Match the rows that have expired."""
        return BoundCondition(self._bound, Operator.LE, (self.count,))

    @property
    def live(self) -> BoundPredicate:
        """Match the rows that have not expired."""
        later = BoundCondition(self._bound, Operator.GT, (self.count,))
        if not self.column.nullable:
            return later
        return any_of([BoundCondition(self._bound, Operator.IS_NULL), later])

    @property
    def _bound(self) -> BoundColumn:
        return BoundColumn(self.column.field_id, self.column.name, self.column.type)

    def has_expired(self, row: Mapping[str, object]) -> bool:
        """Return whether a row by column names has expired."""
        column = self.column
        moment = row[column.name]
        if moment is None:
            return False
        if type(moment) is datetime and not _is_fine(column):
            # As rows are read; the general way takes several times as long.
            since = moment - (_EPOCH if moment.tzinfo is None else EPOCH)
            return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds <= (
                self.count
            )
        count = to_plain(moment, column.type, column=column.name)
        assert isinstance(count, int), "timestamps are counts"
        return count <= self.count

    def expired_flags(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return for each row whether it has expired; rows have at least the column."""
        expired = self.expired
        flags = [
            expired.evaluate(batch).to_numpy(zero_copy_only=False)
            for batch in rows.select([self.column.name]).to_batches()
        ]
        return np.concatenate(flags) if flags else np.empty(0, np.bool_)


def cutoff_at(schema: RuledSchema, now_ms: int) -> Cutoff | None:
    """Return which rows of a schema have expired at a time; None where no row can have."""
    ttl = schema.rules.ttl
    if ttl is None:
        return None
    column = schema.column_by_id(ttl.field_id)
    count = (now_ms - ttl.milliseconds) * (1_000_000 if _is_fine(column) else 1_000)
    # Before the first time that the column can hold, no row has expired; after the last one, all.
    return None if count < -_INT64_MAX else Cutoff(column, min(count, _INT64_MAX))


def _is_fine(column: RuledColumn) -> bool:
    return kind_of(column.type) in _NANOSECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    """The rules of one schema, by field ids."""

    order_by: tuple[int, ...] = ()
    keep_deletes_ms: int = KEEP_DELETES_MS
    """How long deletes of a table with an order are remembered."""
    merge: tuple[tuple[int, MergeFunction], ...] = ()
    """Functions other than `last`, by field id, ascending."""
    ttl: TimeToLive | None = None

    @property
    def uses(self) -> Mapping[int, str]:
        """What each column that a rule names is needed for."""
        found = {field_id: f"has the merge function {name}" for field_id, name in self.merge}
        if self.ttl is not None:
            found[self.ttl.field_id] = "decides when rows expire"
        return found | dict.fromkeys(self.order_by, "orders the changes of a row")

    def function_of(self, field_id: int) -> MergeFunction:
        """Return the merge function of a column."""
        return dict(self.merge).get(field_id, MergeFunction.LAST)

    def check(self, columns: Mapping[int, RuledColumn], primary_key: Sequence[int]) -> None:
        """Raise InvalidArgument for a rule that does not fit the columns (MODEL-R1 to R3)."""
        if len(set(self.order_by)) < len(self.order_by):
            raise InvalidArgument("a column is in order_by twice", hint="Name each column once")
        for field_id, use in self.uses.items():
            if field_id not in columns:
                raise InvalidArgument(
                    f"no column has field id {field_id}, which {use}",
                    hint="Change the rule first, then drop the column",
                )
        for field_id in self.order_by:
            _check_order(columns[field_id], primary_key)
        for field_id, function in self.merge:
            _check_merge(columns[field_id], function, [*primary_key, *self.order_by])
        if self.ttl is not None:
            _check_ttl(columns[self.ttl.field_id], self.ttl)


NO_RULES: Final = RowRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRules:
    """Rules as calls take them, by names of columns; None leaves a part as it is."""

    order_by: str | Sequence[str] | None = None
    keep_deletes: str | timedelta | None = None
    merge: Mapping[str, str] | None = None
    ttl: tuple[str, str | timedelta] | tuple[()] | None = None
    """An empty tuple: rows never expire."""

    def on(self, schema: RuledSchema) -> RowRules:
        """Return the rules of a schema after these changes; raises InvalidArgument, NotFound."""
        before = schema.rules
        order_by, keep_deletes_ms = before.order_by, before.keep_deletes_ms
        if self.order_by is not None:
            names = [self.order_by] if isinstance(self.order_by, str) else self.order_by
            order_by = tuple(_ids(schema, names, what="order_by"))
        if self.keep_deletes is not None:
            keep_deletes_ms = milliseconds_of(self.keep_deletes)
            if not order_by:
                raise InvalidArgument(
                    "keep_deletes is given for a table without order columns",
                    hint="Pass order_by too: only a table with an order remembers deletes",
                )
        return RowRules(
            order_by=order_by,
            keep_deletes_ms=keep_deletes_ms if order_by else KEEP_DELETES_MS,
            merge=before.merge if self.merge is None else _functions(schema, self.merge),
            ttl=before.ttl if self.ttl is None else _ttl(schema, self.ttl),
        )


def milliseconds_of(duration: object) -> int:
    """Read a duration such as "90 days", or a timedelta; raises InvalidArgument."""
    if isinstance(duration, timedelta):
        milliseconds = duration // timedelta(milliseconds=1)
    else:
        match = _DURATION.fullmatch(duration.lower()) if isinstance(duration, str) else None
        unit = None if match is None else _UNITS.get(match[2])
        if match is None or unit is None:
            raise InvalidArgument(
                f"{shown(duration)} is not a duration",
                hint='Write a number and a unit, such as "90 days", "12 hours" or "30 seconds"',
            )
        milliseconds = int(match[1]) * unit
    if not 0 < milliseconds <= _MILLISECONDS_MAX:
        raise InvalidArgument(
            f"the duration {shown(duration)} is not positive, or too long",
            hint="Use a duration between a millisecond and 100,000 years",
        )
    return milliseconds


def duration_text(milliseconds: int) -> str:
    """Return a duration in its largest whole unit, as `milliseconds_of` reads it."""
    for name, size in reversed(_UNITS.items()):
        if milliseconds % size == 0:
            count = milliseconds // size
            return f"{count:,} {name}{'' if count == 1 else 's'}".replace(",", "")
    raise AssertionError("every duration is a whole number of milliseconds")


def rule_texts(schema: RuledSchema) -> Mapping[str, str]:
    """Return the rules of a schema by name, for people; empty without any."""
    rules = schema.rules
    names = {column.field_id: column.name for column in schema.columns}
    found: dict[str, str] = {}
    if rules.order_by:
        found["order_by"] = ", ".join(names[each] for each in rules.order_by)
        found["keep_deletes"] = duration_text(rules.keep_deletes_ms)
    if rules.merge:
        found["merge"] = ", ".join(f"{names[each]}: {name}" for each, name in rules.merge)
    if rules.ttl is not None:
        found["ttl"] = f"{names[rules.ttl.field_id]}: {duration_text(rules.ttl.milliseconds)}"
    return found


def _ids(schema: RuledSchema, names: object, *, what: str) -> Iterable[int]:
    if not isinstance(names, Iterable):
        raise InvalidArgument(
            f"{what} is {type(names).__name__}", hint="Name a column, or list several"
        )
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgument(
                f"a column of {what} is {type(name).__name__}", hint="Name columns by text"
            )
        yield schema.column(name).field_id


def _functions(
    schema: RuledSchema, merge: Mapping[str, str]
) -> tuple[tuple[int, MergeFunction], ...]:
    if not isinstance(merge, Mapping):
        raise InvalidArgument(
            f"merge is {type(merge).__name__}",
            hint='Pass a dict of columns and functions, such as {"total": "sum"}',
        )
    found: dict[int, MergeFunction] = {}
    for name, asked in merge.items():
        (field_id,) = _ids(schema, [name], what="merge")
        try:
            function = MergeFunction(asked)
        except ValueError:
            raise InvalidArgument(
                f"column {shown(name)} has the unknown merge function {shown(asked)}",
                hint=f"Use one of {', '.join(MergeFunction)}",
            ) from None
        if function is not MergeFunction.LAST:
            found[field_id] = function
    return tuple(sorted(found.items()))


def _ttl(schema: RuledSchema, ttl: object) -> TimeToLive | None:
    if not ttl:
        return None
    match ttl:
        case (str() as name, duration):
            return TimeToLive(
                field_id=schema.column(name).field_id, milliseconds=milliseconds_of(duration)
            )
        case _:
            raise InvalidArgument(
                f"ttl is {shown(ttl)}",
                hint='Pass a column and a duration, such as ("ts", "90 days")',
            )


def _check_order(column: RuledColumn, primary_key: Sequence[int]) -> None:
    if column.field_id in primary_key:
        raise InvalidArgument(
            f"MODEL-R1: column {shown(column.name)} is in the key and cannot order its rows",
            hint="Order by a column that grows with each change, such as a log position",
        )
    if kind_of(column.type) in NESTED_KINDS:
        raise InvalidArgument(
            f"MODEL-R1: column {shown(column.name)} is a {kind_of(column.type)} and has no order",
            hint="Order by a primitive column",
        )


def _check_merge(column: RuledColumn, function: MergeFunction, taken: Sequence[int]) -> None:
    if column.field_id in taken:
        raise InvalidArgument(
            f"MODEL-R2: column {shown(column.name)} is in the key or orders rows, and cannot have "
            "a merge function",
            hint="Use merge functions for other columns",
        )
    if not function.fits(kind_of(column.type)):
        raise InvalidArgument(
            f"MODEL-R2: the merge function {function} does not fit column {shown(column.name)}, "
            f"which is {type_name(column.type)}",
            hint="sum takes numbers, min and max primitive columns, bool_and and bool_or booleans",
        )


def _check_ttl(column: RuledColumn, ttl: TimeToLive) -> None:
    if kind_of(column.type) not in _TIMESTAMPS:
        raise InvalidArgument(
            f"MODEL-R3: rows cannot expire by column {shown(column.name)}, which is "
            f"{type_name(column.type)}",
            hint="Use a timestamp column",
        )
    if ttl.milliseconds <= 0:
        raise InvalidArgument(
            f"MODEL-R3: rows live for {ttl.milliseconds} ms", hint="Use a positive duration"
        )
