"""Name tables, change their definition, travel back in time, and list what there is.

It prints:

    shop.orders at version 1, partitioned by ts_day
    another change was first: schema_id
    versions: CREATE, EVOLVE, EVOLVE
    today: id, client, ts by id_bucket
    version 1: id, customer, ts by ts_day
    eu.sales has 3 snapshots, in the same directory: True
    dropped: there is no table 'eu.sales'
"""

import tempfile

import pyarrow as pa

import neve

ts = pa.timestamp("us", tz="UTC")
columns: dict[str, pa.DataType] = {"id": pa.int64(), "customer": pa.string(), "ts": ts}

with tempfile.TemporaryDirectory() as directory, neve.open(directory) as lake:
    orders = lake.create_table(
        "shop.orders", pa.schema(columns), primary_key=["id"], partition_by=["day(ts)"]
    )
    print(f"{orders.name} at version {orders.version}, partitioned by", orders.spec.fields[0].name)

    # A change is made on the definition that it began with; no other change is overwritten unseen.
    late = orders.evolve()
    with orders.evolve() as change:
        change.rename_column("customer", "client")
    try:
        with late:
            late.drop_column("customer")
    except neve.CatalogConflict as conflict:
        print("another change was first:", *conflict.keys)
    with orders.evolve() as change:
        change.set_partition_by(["bucket(16, id)"])

    print("versions:", ", ".join(map(str, orders.history()["operation"])))
    listed = lake.load_table("shop.orders")
    for title, view in {"today": listed.current(), "version 1": listed.at(version=1)}.items():
        names = ", ".join(view.schema.arrow_schema.names)
        print(f"{title}: {names} by {view.spec.fields[0].name}")

    location = orders.location
    lake.rename_table("shop.orders", "eu.sales")
    sales = lake.load_table("eu.sales")  # without opening its rows
    snapshots = lake.system_table("__snapshots")
    print(f"{sales.name} has {snapshots.num_rows} snapshots,", end=" ")
    print("in the same directory:", sales.location == location)

    lake.drop_table("eu.sales", purge=True)
    try:
        lake.table("eu.sales")
    except neve.NotFound as error:
        print("dropped:", error.message)
