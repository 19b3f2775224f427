"""Filters of a scan, in every form that a caller may pass.

    text                      PyIceberg's filter language     prunes files and row groups
    neve.col(...)             a Predicate                     prunes files and row groups
    pyiceberg.expressions     a BooleanExpression             prunes files and row groups
    pyarrow.compute.field     an Expression                   is evaluated on every row

An Arrow expression cannot be inspected. The columns it needs are found by trying it on no rows,
once with every column and then without each of them.

PyIceberg's expressions mean the same as neve's own, also for NULL and NaN. A date, time or moment
in one is a number without a unit, so reading it needs the column. A bound expression belongs to
another schema and is refused. Nothing here loads PyIceberg: the caller has done that.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Final, Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import InvalidArgument, LimitExceeded, NeveError, NotFound
from neve.model.array_fit import empty_rows
from neve.model.arrow_buffers import Flags, flag_array
from neve.model.arrow_types import TypeKind, kind_of
from neve.model.bound_predicate import Always, BoundPredicate, all_of, named_field
from neve.model.display import EPOCH, shown
from neve.model.predicate import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    PREDICATE_DEPTH_MAX,
    And,
    ColumnName,
    Or,
    Predicate,
    col,
)
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray
from neve.model.suggestions import known_names_hint
from neve.read.filter_text import parse_filter

ALL_ROWS: Final = Always(answer=True)
_TEXT_MAX: Final = 500
_FIELD_PATH: Final = "FieldPath("
_WORD_BYTES: Final = 8
_ARROW_ERRORS: Final = (pa.ArrowException, TypeError, ValueError)
_HOME: Final = "pyiceberg.expressions"
_DAY_MICROSECONDS: Final = 86_400_000_000
_Compare = Callable[[ColumnName, object], Predicate]
_COMPARISONS: Final[dict[str, _Compare]] = {
    "EqualTo": lambda column, value: column == value,
    "NotEqualTo": lambda column, value: column != value,
    "LessThan": lambda column, value: column < value,
    "LessThanOrEqual": lambda column, value: column <= value,
    "GreaterThan": lambda column, value: column > value,
    "GreaterThanOrEqual": lambda column, value: column >= value,
    "StartsWith": lambda column, value: column.starts_with(cast("str", value)),
    "NotStartsWith": lambda column, value: column.not_starts_with(cast("str", value)),
}
_QUESTIONS: Final[dict[str, Callable[[ColumnName], Predicate]]] = {
    "IsNull": ColumnName.is_null,
    "NotNull": ColumnName.not_null,
    "IsNaN": ColumnName.is_nan,
    "NotNaN": ColumnName.not_nan,
}


class IcebergExpression(Protocol):
    """An expression of PyIceberg, as a protocol for type checkers."""

    def __invert__(self) -> "IcebergExpression":
        """Return the opposite."""

    def model_dump_json(self) -> str:
        """Return it as JSON."""


Filter: TypeAlias = str | Predicate | pc.Expression | IcebergExpression
"""A filter of rows, in any form."""


@dataclass(frozen=True)
class RowFilter:
    """Chooses rows for which the predicate is true and so is the expression, if there is one."""

    predicate: BoundPredicate
    schema: TableSchema
    text: str = ""
    """The filter as the caller wrote it, truncated; empty for no filter."""
    expression: pc.Expression | None = None
    expression_names: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Columns that the filter reads."""
        ids = self.predicate.field_ids
        wanted = {self.schema.column_by_id(each).name for each in ids} | set(self.expression_names)
        return tuple(name for name in self.schema.arrow_schema.names if name in wanted)

    @property
    def is_trivial(self) -> bool:
        """Whether every row is chosen."""
        return self.predicate == ALL_ROWS and self.expression is None

    def mask(self, rows: pa.Table) -> Flags:
        """Return one flag per row, true for chosen ones; rows have at least the columns `names`."""
        if self.expression is None:
            return self._predicate_mask(rows)
        chosen = _expression_mask(self.expression, rows.select(self.names), self.schema)
        return chosen if self.predicate == ALL_ROWS else chosen & self._predicate_mask(rows)

    def _predicate_mask(self, rows: pa.Table) -> Flags:
        if isinstance(self.predicate, Always):
            return np.full(rows.num_rows, self.predicate.answer)
        answers = [
            self.predicate.evaluate(batch).to_numpy(zero_copy_only=False)
            for batch in rows.select(self.names).to_batches()
        ]
        return np.concatenate(answers) if answers else np.empty(0, np.bool_)

    def reduced_to(self, predicate: BoundPredicate) -> "RowFilter":
        """Return a filter of a weaker predicate, where the rest is known to be true."""
        return RowFilter(predicate, self.schema, self.text, self.expression, self.expression_names)

    def joined_with(self, predicate: BoundPredicate) -> "RowFilter":
        """Return a filter that also needs a predicate to be true; its text stays."""
        return self.reduced_to(all_of([self.predicate, predicate]))


def row_filter(asked: object, schema: TableSchema) -> RowFilter:
    """Read a filter in any form; raises InvalidArgument, NotFound, SchemaMismatch."""
    if asked is None:
        return RowFilter(ALL_ROWS, schema)
    if isinstance(asked, str):
        return RowFilter(parse_filter(asked).bind(schema), schema, _short(asked))
    if isinstance(asked, Predicate):
        return RowFilter(asked.bind(schema), schema, _short(str(asked)))
    if is_iceberg_expression(asked):
        predicate = iceberg_predicate(asked, schema)
        return RowFilter(predicate.bind(schema), schema, _short(str(predicate)))
    if isinstance(asked, pc.Expression):
        names = _expression_names(asked, schema)
        return RowFilter(ALL_ROWS, schema, _short(str(asked)), asked, names)
    raise InvalidArgument(
        f"a filter is {type(asked).__name__}, which cannot filter rows",
        hint="Pass text such as \"amount > 5\", neve.col('amount') > 5, or an expression of "
        "pyarrow or PyIceberg",
    )


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"


def _expression_names(expression: pc.Expression, schema: TableSchema) -> tuple[str, ...]:
    nothing = empty_rows(schema.arrow_schema)
    names = tuple(nothing.column_names)
    try:
        nothing.filter(expression)
    except _ARROW_ERRORS as error:
        raise _refusal(expression, error, schema) from error
    if _FIELD_PATH in str(expression):
        # It names columns by position, so all have to stay in place.
        return names
    # Each name is tried on its own, so only names in the expression's text are tried.
    text = str(expression)
    likely = nothing.select([name for name in names if name in text])
    if _misses(expression, likely):
        likely = nothing
    return tuple(
        name for name in likely.column_names if _misses(expression, likely.drop_columns([name]))
    )


def _misses(expression: pc.Expression, nothing: pa.Table) -> bool:
    try:
        nothing.filter(expression)
    except _ARROW_ERRORS:
        return True
    return False


def _refusal(expression: pc.Expression, error: Exception, schema: TableSchema) -> NeveError:
    reason = str(error).partition("\n")[0]
    name, closing, _ = reason.partition("No match for FieldRef.Name(")[2].rpartition(") in ")
    if closing and name not in schema:
        return NotFound(
            f"the filter names column {shown(name)}, which the table does not have",
            hint=known_names_hint(name, schema.arrow_schema.names),
        )
    return InvalidArgument(
        f"the filter {_short(str(expression))} cannot be evaluated on the table: {reason}",
        hint="Compare columns of the table with values of their types",
    )


def chosen_rows(rows: pa.Table, flags: Flags) -> pa.Table:
    """Return the rows whose flag is set."""
    mask = flag_array(flags)
    if rows.num_columns == 1:
        # For several columns Arrow first turns flags into positions, which does not pay for one.
        return pa.table([rows.column(0).filter(mask)], schema=rows.schema)
    return rows.filter(mask)


def _expression_mask(expression: pc.Expression, rows: pa.Table, schema: TableSchema) -> Flags:
    """Evaluate an Arrow expression; rows where it is NULL are not chosen."""
    place = "place"
    while place in rows.column_names:
        place += "_"
    # At the end: an expression may name columns by position.
    numbered = _aligned(rows).append_column(place, pa.array(np.arange(rows.num_rows)))
    try:
        chosen = numbered.filter(expression).column(place).to_numpy()
    except _ARROW_ERRORS as error:
        raise _refusal(expression, error, schema) from error
    mask = np.zeros(rows.num_rows, np.bool_)
    mask[chosen] = True
    return mask


def _aligned(rows: pa.Table) -> pa.Table:
    """Copy columns that are not aligned in memory, as imported ones may be: Arrow warns of them."""
    columns = [
        column
        if all(map(_is_aligned, column.chunks))
        else pa.chunked_array([pa.concat_arrays(column.chunks)])
        for column in rows.columns
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema) if columns else rows


def _is_aligned(array: ArrowArray) -> bool:
    return not any(
        buffer is not None and buffer.address % _WORD_BYTES for buffer in array.buffers()
    )


class _Expression(Protocol):
    """Attributes of PyIceberg's expressions; each kind has some of them."""

    left: "_Expression"
    right: "_Expression"
    child: "_Expression"
    term: "_Term"
    literal: "_Literal"
    literals: "set[_Literal]"


class _Term(Protocol):
    name: str


class _Literal(Protocol):
    value: object


def is_iceberg_expression(asked: object) -> bool:
    """Return whether this is an expression of PyIceberg."""
    home = sys.modules.get(_HOME)
    return home is not None and isinstance(asked, home.BooleanExpression)


def iceberg_predicate(expression: object, schema: TableSchema) -> Predicate:
    """Return the predicate of an expression; raises InvalidArgument, NotFound, LimitExceeded."""
    return _predicate(cast("_Expression", expression), schema, depth=0)


def _predicate(asked: _Expression, schema: TableSchema, *, depth: int) -> Predicate:
    if depth >= PREDICATE_DEPTH_MAX:
        raise LimitExceeded(
            "the expression is nested too deeply",
            limit=PREDICATE_DEPTH_MAX,
            hint="Join conditions side by side, or use In",
        )
    kind = type(asked).__name__
    match kind:
        case "AlwaysTrue":
            return ALWAYS_TRUE
        case "AlwaysFalse":
            return ALWAYS_FALSE
        case "And" | "Or":
            operands = tuple(
                _predicate(each, schema, depth=depth + 1) for each in _side_by_side(asked)
            )
            return And(operands) if kind == "And" else Or(operands)
        case "Not":
            return ~_predicate(asked.child, schema, depth=depth + 1)
        case _:
            return _condition(asked, kind, schema)


def _condition(asked: _Expression, kind: str, schema: TableSchema) -> Predicate:
    if kind in _QUESTIONS:
        return _QUESTIONS[kind](_column(asked))
    if kind in _COMPARISONS:
        return _COMPARISONS[kind](_column(asked), _value(asked.literal, asked.term.name, schema))
    if kind in ("In", "NotIn"):
        values = [_value(each, asked.term.name, schema) for each in asked.literals]
        return _column(asked).is_in(values) if kind == "In" else _column(asked).not_in(values)
    raise InvalidArgument(
        f"PyIceberg's {kind} cannot be a filter",
        hint="Pass an expression by column names, as it was before it was bound to a schema",
    )


def _side_by_side(asked: _Expression) -> list[_Expression]:
    """Return the operands of a chain of one kind: PyIceberg nests it in pairs, thousands deep."""
    joined: list[_Expression] = []
    waiting = [asked]
    while waiting:
        next_one = waiting.pop()
        if type(next_one) is type(asked):
            waiting += [next_one.right, next_one.left]
        else:
            joined.append(next_one)
    return joined


def _column(asked: _Expression) -> ColumnName:
    return col(asked.term.name)


def _value(literal: _Literal, name: str, schema: TableSchema) -> object:
    """Return a literal in the unit of the column of that name, or as a Python value."""
    count, kind = literal.value, type(literal).__name__
    if not isinstance(count, int):
        return count
    type_ = named_field(name, schema).type
    match kind:
        case "DateLiteral" if not pa.types.is_date32(type_):
            if pa.types.is_timestamp(type_):
                return _moment(count * _DAY_MICROSECONDS, type_)
            return _near(count * _DAY_MICROSECONDS).date()
        case "TimestampLiteral":
            if pa.types.is_timestamp(type_):
                return _moment(count, type_)
            return _near(count)
        case "TimeLiteral" if not pa.types.is_time64(type_):
            return _near(count).time()
        case _:
            return count


def _moment(microseconds: int, type_: pa.DataType) -> int:
    kind = kind_of(type_)
    is_fine = kind in (TypeKind.TIMESTAMP_NS, TypeKind.TIMESTAMPTZ_NS)
    return microseconds * 1_000 if is_fine else microseconds


def _near(microseconds: int) -> datetime:
    """Return a moment for a message, when the column it is compared with has no unit."""
    try:
        return EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return datetime.combine(date.max, time.max, UTC)
