"""Columns of the Arrow tables in which the catalog lists things."""

import pyarrow as pa

from neve.model.arrow_types import ArrowField


def required(name: str, type_: pa.DataType) -> ArrowField:
    """Return a column that is never NULL."""
    return pa.field(name, type_, nullable=False)


def optional(name: str, type_: pa.DataType) -> ArrowField:
    """Return a column that may be NULL."""
    return pa.field(name, type_, nullable=True)
