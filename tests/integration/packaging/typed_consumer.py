"""A user's program for mypy --strict: the types of neve reach those who install it."""

from typing import assert_type

import neve


def amount_of(lake: str, key: int) -> float:
    """Return the amount of an order."""
    with neve.open(lake, create=False) as catalog:
        orders = catalog.table("shop.orders", read_only=True)
        row = orders.get(key)
        assert_type(row, neve.Row | None)
        assert_type(orders.scan("amount > 5").count(), int)
        assert_type(orders.version, int)
        assert_type(neve.__version__, str)
        return float(row["amount"]) if row is not None else 0.0


def expensive(least: float) -> neve.Filter:
    """Return a filter, as a function of a program may."""
    return neve.col("amount") >= least


def made(catalog: neve.Catalog, rows: neve.Rows, options: neve.TableOptions) -> neve.Table:
    """Make a table and fill it."""
    columns = {"id": int, "amount": float}
    table = catalog.create_table("shop.orders", columns, "id", exists_ok=True, options=options)
    table.upsert(rows)
    table.delete_where(expensive(100.0))
    return table


DURABLE = neve.TableOptions(sync="always", recovery="absolute", iceberg_publish="demand")
