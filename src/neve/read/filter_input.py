"""What a scan is asked to filter by, in any of the forms it may be given.

    text                      PyIceberg's filter language     prunes files and row groups
    neve.col(...)             a Predicate                     prunes files and row groups
    pyiceberg.expressions     a BooleanExpression             prunes files and row groups
    pyarrow.compute.field     an Expression                   is asked of every row

Nobody can look into an Arrow expression. Which columns it needs shows in what it misses: it is
tried on no rows at all, once with every column and then with each of them taken away.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import InvalidArgument, NeveError, NotFound
from neve.model.bound_predicate import Always, BoundPredicate
from neve.model.display import shown
from neve.model.predicate import Predicate
from neve.model.schema import TableSchema, known_names_hint
from neve.model.schema_view import ArrowArray
from neve.read.filter_text import parse_filter
from neve.read.filters import (
    IcebergExpression,
    iceberg_predicate,
    is_iceberg_expression,
)

Flags = npt.NDArray[np.bool_]
Filter: TypeAlias = str | Predicate | pc.Expression | IcebergExpression
"""What chooses rows, in any of its forms."""

ALL_ROWS: Final = Always(answer=True)
_TEXT_MAX: Final = 500
_FIELD_PATH: Final = "FieldPath("
_WORD_BYTES: Final = 8
_ARROW_ERRORS: Final = (pa.ArrowException, TypeError, ValueError)


@dataclass(frozen=True)
class RowFilter:
    """Chooses rows: those of which the predicate is true, and the expression, if there is one."""

    predicate: BoundPredicate
    schema: TableSchema
    text: str = ""
    """As it was asked for, cut when long; empty for no filter."""
    expression: pc.Expression | None = None
    expression_names: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Columns that must be read to tell."""
        ids = self.predicate.field_ids
        wanted = {self.schema.column_by_id(each).name for each in ids} | set(self.expression_names)
        return tuple(name for name in self.schema.arrow_schema.names if name in wanted)

    @property
    def is_trivial(self) -> bool:
        """Whether every row is chosen."""
        return self.predicate == ALL_ROWS and self.expression is None

    def mask(self, rows: pa.Table) -> Flags:
        """Tell of each row whether it is chosen; the rows have at least the columns `names`."""
        if self.expression is not None:
            return _expression_mask(self.expression, rows.select(self.names), self.schema)
        if isinstance(self.predicate, Always):
            return np.full(rows.num_rows, self.predicate.answer)
        answers = [
            self.predicate.evaluate(batch).to_numpy(zero_copy_only=False)
            for batch in rows.select(self.names).to_batches()
        ]
        return np.concatenate(answers) if answers else np.empty(0, np.bool_)

    def reduced_to(self, predicate: BoundPredicate) -> "RowFilter":
        """Return a filter that asks less, where the rest is known to be true."""
        return RowFilter(predicate, self.schema, self.text, self.expression, self.expression_names)


def row_filter(asked: object, schema: TableSchema) -> RowFilter:
    """Understand a filter; raises InvalidArgument, NotFound, SchemaMismatch."""
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
        f"a filter is given as {type(asked).__name__}",
        hint="Pass text such as \"amount > 5\", neve.col('amount') > 5, or an expression of "
        "pyarrow or PyIceberg",
    )


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"


def _expression_names(expression: pc.Expression, schema: TableSchema) -> tuple[str, ...]:
    nothing = schema.arrow_schema.empty_table()
    names = tuple(nothing.column_names)
    try:
        nothing.filter(expression)
    except _ARROW_ERRORS as error:
        raise _refusal(expression, error, schema) from error
    if _FIELD_PATH in str(expression):
        # It counts columns, so all have to be where they are.
        return names
    # Each name is tried on its own, so only those that the expression's text holds are.
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
            f"the filter asks for column {shown(name)}, which the table has not",
            hint=known_names_hint(name, schema.arrow_schema.names),
        )
    return InvalidArgument(
        f"the filter {_short(str(expression))} cannot be asked of the table: {reason}",
        hint="Compare columns of the table with values of their types",
    )


def _expression_mask(expression: pc.Expression, rows: pa.Table, schema: TableSchema) -> Flags:
    """Evaluate an Arrow expression; what is NULL is not chosen."""
    place = "place"
    while place in rows.column_names:
        place += "_"
    # At the end: an expression may name columns by their place.
    numbered = _aligned(rows).append_column(place, pa.array(np.arange(rows.num_rows)))
    try:
        chosen = numbered.filter(expression).column(place).to_numpy()
    except _ARROW_ERRORS as error:
        raise _refusal(expression, error, schema) from error
    mask = np.zeros(rows.num_rows, np.bool_)
    mask[chosen] = True
    return mask


def _aligned(rows: pa.Table) -> pa.Table:
    """Copy columns that begin anywhere in memory, as imported ones may: Arrow complains of them."""
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
