"""Change a table's columns, write parts of rows and only under a condition, and hear of it all.

It prints:

    a row from before: {'id': 1, 'stock': 5, 'name': 'tea', 'tags': '-'}
    only the stock of 1: {'id': 1, 'stock': 4, 'name': 'tea', 'tags': '-'}
    2 is free: True, 2 is still free: False
    as expected: True, still as expected: False
    version 4: update_preimage 1 5, update_postimage 1 3, insert 2 7
    a follower hears of version 5: delete 2 7
"""

import tempfile

import pyarrow as pa

import neve

columns: dict[str, pa.DataType] = {"id": pa.int64(), "title": pa.string(), "stock": pa.int32()}
by_hand = neve.TableOptions(background=False)  # no Version but those made here


def told(changes: pa.RecordBatch | pa.Table) -> str:
    """Tell what happened to the stock of which row."""
    rows = changes.to_pylist()
    return ", ".join(f"{row['_change_type']} {row['id']} {row['stock']}" for row in rows)


with tempfile.TemporaryDirectory() as directory, neve.open(directory) as lake:
    table = lake.create_table("shop.items", pa.schema(columns), ["id"], options=by_hand)
    table.put({"id": 1, "title": "tea", "stock": 5})
    table.flush()

    with table.evolve() as e:  # one Version, or none at all; no file is rewritten
        e.rename_column("title", "name")
        e.move_column("stock", after="id")
        e.widen_column("stock", "long")
        e.add_column("tags", "string", default="-")
    print("a row from before:", table.get(1))

    table.upsert([{"id": 1, "stock": 4}], columns=["stock"])  # the rest of the row stays
    row = table.get(1)
    print("only the stock of 1:", row)
    milk = {"id": 2, "stock": 7, "name": "milk"}
    print("2 is free:", table.put_if_absent(milk) is not None, end=", ")
    print("2 is still free:", table.put_if_absent(milk) is not None)
    less = {**(row or {}), "stock": 3}
    print("as expected:", table.compare_and_put(less, row) is not None, end=", ")
    print("still as expected:", table.compare_and_put(less, row) is not None)

    version = table.flush()
    print(f"version {version}:", told(table.changes(since=version - 1).read_all()))
    follower = table.follow(since=version)  # an iterator that waits; it ends with the table
    table.delete(2)
    print(f"a follower hears of version {table.flush()}:", told(next(follower)))
