"""The row of a tiny commit, as a table of one row; numbered, and the same for every candidate."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

PAYLOAD_BYTES: Final = 100
FIELD_NAMES: Final = ("id", "name", "score", "visits", "payload")
_TYPES: Final[Sequence[pa.DataType]] = (
    pa.int64(),
    pa.string(),
    pa.float64(),
    pa.int32(),
    pa.binary(),
)
SCHEMA: Final = pa.schema(list(zip(FIELD_NAMES, _TYPES, strict=True)))


def one_row(number: int) -> pa.Table:
    """Make the table that holds row `number` alone."""
    return pa.table(
        {
            "id": [number],
            "name": [row_name(number)],
            "score": [row_score(number)],
            "visits": [row_visits(number)],
            "payload": [row_payload(number)],
        },
        schema=SCHEMA,
    )


def row_name(number: int) -> str:
    """Return the name in a row."""
    return f"customer-{number:011}"


def row_score(number: int) -> float:
    """Return the score in a row."""
    return number / 7


def row_visits(number: int) -> int:
    """Return the visits in a row."""
    return number % 1_000


def row_payload(number: int) -> bytes:
    """Return the payload in a row: bytes that do not compress into nothing."""
    return b"".join(
        (number * 0x9E3779B97F4A7C15 + at & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")
        for at in range(0, PAYLOAD_BYTES, 8)
    )[:PAYLOAD_BYTES]
