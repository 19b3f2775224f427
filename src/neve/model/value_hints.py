"""What to write for a value of a type in Python: the way out of a refused value."""

from decimal import Decimal
from typing import Final, cast

import pyarrow as pa

from neve.errors import Phrase, Wording
from neve.model.arrow_types import TypeKind, kind_of, type_name

_WAYS: Final = {
    TypeKind.DATE: Phrase.GIVE_A_DATE,
    TypeKind.TIME: Phrase.GIVE_A_TIME,
    TypeKind.TIMESTAMP: Phrase.GIVE_A_TIMESTAMP,
    TypeKind.TIMESTAMPTZ: Phrase.GIVE_A_TIMESTAMPTZ,
    TypeKind.UUID: Phrase.GIVE_A_UUID,
}
_EXAMPLE_DIGITS: Final = 1420


def value_hint(arrow_type: pa.DataType) -> str:
    """Say what a value of a type looks like."""
    kind = kind_of(arrow_type)
    if kind is TypeKind.DECIMAL:
        return Wording(Phrase.GIVE_A_DECIMAL, digits=decimal_digits(arrow_type))
    way = _WAYS.get(kind)
    return f"The column holds {type_name(arrow_type)}" if way is None else Wording(way)


def decimal_digits(arrow_type: pa.DataType) -> str:
    """Say how many digits a decimal type has after the point, with an example."""
    scale = cast("pa.Decimal128Type[int, int]", arrow_type).scale
    example = Decimal((0, tuple(map(int, str(_EXAMPLE_DIGITS))), -scale))
    return f"{scale} digit{'' if scale == 1 else 's'} after the point, such as {example:f}"
