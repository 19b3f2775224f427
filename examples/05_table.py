"""Put rows into a table one by one and as Arrow, read them by key and by filter, and reopen it.

It prints:

    get: {'id': 1, 'customer': 'ada', 'amount': 9.5}
    get_many: bo, ada
    amount > 5: ids [1, 2]
    keys from 2, descending: [4, 3, 2]
    a wrong row is refused: column 'amount': expected a float, got str
    after delete and reopen: 3 rows, 1 replayed from the log
    files: level 0, 4 rows
"""

import tempfile

import pyarrow as pa

import neve

columns: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "customer": pa.string(),
    "amount": pa.float64(),
}

with tempfile.TemporaryDirectory() as directory:
    with neve.open(directory) as lake:
        orders = lake.create_table("shop.orders", pa.schema(columns), primary_key=["id"])
        orders.put({"id": 1, "customer": "ada", "amount": 9.5})  # durable when it returns
        orders.upsert(pa.table({"id": [2, 3], "customer": ["bo", "cy"], "amount": [7.0, 1.25]}))
        orders.upsert([{"id": 4, "customer": "di"}])  # one batch, all or nothing
        print("get:", orders.get(1))
        print("get_many:", ", ".join(map(str, orders.get_many([2, 1, 99])["customer"])))

        rich = orders.scan("amount > 5", columns=["id"])
        print("amount > 5: ids", rich.to_arrow().sort_by("id")["id"].to_pylist())
        backwards = orders.scan(key_range=(2, None), reverse=True).to_arrow()
        print("keys from 2, descending:", backwards["id"].to_pylist())

        try:
            orders.put({"id": 5, "customer": "eve", "amount": "much"})
        except neve.SchemaMismatch as error:
            print("a wrong row is refused:", error.message)

        orders.flush()  # a clean Version: Parquet files and deletion vectors
        orders.delete(3)  # in the log, not in a Version yet

    with neve.open(directory) as lake, lake.table("shop.orders") as orders:
        replayed = orders.recovery.row_count
        print(
            f"after delete and reopen: {orders.scan().count()} rows, {replayed} replayed", end=" "
        )
        print("from the log")
        (file,) = orders.files().to_pylist()
        print(f"files: level {file['level']}, {file['record_count']} rows")
