"""Read old Versions, freeze a snapshot, name a Version, and go back to it.

It prints:

    versions: 1 CREATE, 2 APPEND, 3 OVERWRITE
    price of tea in version 2: 3.0, now: 3.5
    yesterday's prices: tea 3.0, milk 1.2
    the snapshot still has milk at 1.2, the table at 1.4
    rolled back as version 5: tea 3.0, milk 1.2
    and the price between is kept: 3.5
"""

import tempfile

import pyarrow as pa

import neve

columns: dict[str, pa.DataType] = {"item": pa.string(), "price": pa.float64()}


by_hand = neve.TableOptions(background=False)  # no Version but those made here


def prices(reader: neve.Table | neve.Snapshot) -> str:
    """Tell all prices, by item, the last one first."""
    rows = reader.scan(reverse=True).to_arrow().to_pylist()
    return ", ".join(f"{row['item']} {row['price']}" for row in rows)


def price(reader: neve.Table | neve.Snapshot, item: str) -> object:
    """Tell the price of one item."""
    return (reader.get(item) or {})["price"]


with tempfile.TemporaryDirectory() as directory, neve.open(directory) as lake:
    table = lake.create_table("shop.prices", pa.schema(columns), ["item"], options=by_hand)
    table.upsert([{"item": "tea", "price": 3.0}, {"item": "milk", "price": 1.2}])
    opening = table.flush()
    table.tag("yesterday", opening)
    table.put({"item": "tea", "price": 3.5})
    raised = table.flush()
    told = [f"{each['version']} {each['operation']}" for each in table.history().to_pylist()]
    print("versions:", ", ".join(told))
    with table.at(opening) as old:
        print(f"price of tea in version {opening}: {price(old, 'tea')}", end=", ")
        print("now:", price(table, "tea"))
    with table.at(tag="yesterday") as old:  # or at(timestamp="2026-11-15T12:00:00+00:00")
        print("yesterday's prices:", prices(old))

    with table.snapshot() as frozen:  # unflushed rows included
        table.put({"item": "milk", "price": 1.4})
        print("the snapshot still has milk at", price(frozen, "milk"), end=", ")
        print("the table at", price(table, "milk"))

    # A new Version with the old files; nothing is lost.
    print(f"rolled back as version {table.rollback(opening)}: {prices(table)}")
    with table.at(raised) as between:
        print("and the price between is kept:", price(between, "tea"))
