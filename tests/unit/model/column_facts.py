"""The facts of a column that is in memory, for comparison."""

import pyarrow as pa
import pyarrow.compute as pc

from neve.model.plain_values import is_float, is_nan, plain_of, stored_array
from neve.model.pruning import ColumnFacts
from neve.model.schema_view import ArrowArray


def facts_of(array: ArrowArray) -> ColumnFacts:
    """Return the counts and bounds of a column's values; a nested column has no bounds."""
    lower = upper = None
    if not pa.types.is_nested(array.type):
        extremes = pc.min_max(stored_array(array))
        lower, upper = plain_of(extremes["min"]), plain_of(extremes["max"])
    return ColumnFacts(
        # With NaN alone, Arrow bounds it by itself.
        lower=None if is_nan(lower) else lower,
        upper=None if is_nan(upper) else upper,
        null_count=array.null_count,
        nan_count=pc.is_nan(array).true_count if is_float(array.type) else 0,
        row_count=len(array),
    )
