"""What to write for a value of a type in Python: the way out of a refused value."""

from decimal import Decimal
from typing import Final, cast

import pyarrow as pa

from neve.model.arrow_types import TypeKind, kind_of, type_name

_WAYS: Final = {
    TypeKind.DATE: "Give a date, such as datetime.date(2024, 1, 31)",
    TypeKind.TIME: "Give a time, such as datetime.time(22, 31, 8)",
    TypeKind.TIMESTAMP: "Give a datetime without a zone, such as datetime(2024, 1, 31)",
    TypeKind.TIMESTAMPTZ: "Give a datetime with a zone, such as datetime(2024, 1, 31, tzinfo=UTC)",
    TypeKind.UUID: "Give a uuid.UUID",
}
_EXAMPLE_DIGITS: Final = 1420


def value_hint(arrow_type: pa.DataType) -> str:
    """Say what a value of a type looks like."""
    kind = kind_of(arrow_type)
    if kind is TypeKind.DECIMAL:
        return f"Give a Decimal with at most {decimal_digits(arrow_type)}"
    return _WAYS.get(kind, f"The column holds {type_name(arrow_type)}")


def decimal_digits(arrow_type: pa.DataType) -> str:
    """Say how many digits a decimal type has after the point, with an example."""
    scale = cast("pa.Decimal128Type[int, int]", arrow_type).scale
    example = Decimal((0, tuple(map(int, str(_EXAMPLE_DIGITS))), -scale))
    return f"{scale} digit{'' if scale == 1 else 's'} after the point, such as {example:f}"
