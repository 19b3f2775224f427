"""A user's program for mypy --strict: the types of neve reach those who install it."""

from typing import assert_type

import neve


def amount_of(lake: str, key: int) -> float:
    """Give the amount of an order."""
    with neve.open(lake, create=False) as catalog:
        orders = catalog.table("shop.orders", read_only=True)
        row = orders.get(key)
        assert_type(row, dict[str, object] | None)
        assert_type(orders.scan("amount > 5").count(), int)
        assert_type(orders.version, int)
        return float(str(row["amount"])) if row is not None else 0.0
