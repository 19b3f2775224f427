"""neve[sql]: statements on a lake, and DuckDB of one's own on a table through Arrow."""

import tempfile

import duckdb
import pyarrow as pa

import neve


def main() -> None:
    """Sum up rows of a scan, unflushed ones included, by SQL."""
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "amount": pa.float64()}
    with tempfile.TemporaryDirectory() as folder, neve.open(folder) as lake:
        orders = lake.create_table("shop.orders", pa.schema(columns), ["id"])
        orders.upsert([{"id": number, "amount": number / 2} for number in range(1_000)])
        orders.flush()
        orders.put({"id": 1_000, "amount": 0.5})
        with duckdb.connect() as connection:
            connection.register("orders", pa.RecordBatchReader.from_stream(orders.scan("id > 9")))
            found = connection.sql("select count(*), sum(amount) from orders").fetchone()
            changed = lake.sql("update shop.orders set amount = 0 where id = 1000").count
            left = lake.sql("select sum(amount) from shop.orders where id > 9").fetchall()
    assert changed == 1
    assert left == [(sum(number / 2 for number in range(10, 1_000)),)], left
    assert found == (991, sum(number / 2 for number in range(10, 1_000)) + 0.5), found


if __name__ == "__main__":
    main()
