"""neve[server]: PyIceberg reads and writes a table by name, through the server."""

import tempfile

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

import neve


def main() -> None:
    """Serve a lake, append through it, and look at the rows."""
    columns = {"id": "long!", "amount": "double"}
    with tempfile.TemporaryDirectory() as folder, neve.open(folder) as lake:
        properties = {"format-version": "2"}
        orders = lake.create_table("shop.orders", columns, "id", properties=properties)
        orders.put({"id": 1, "amount": 0.5})
        orders.flush()
        with lake.serve() as server:
            theirs = RestCatalog("lake", uri=server.url).load_table("shop.orders")
            rows = [{"id": 1, "amount": 1.0}, {"id": 2, "amount": 2.0}]
            theirs.append(pa.Table.from_pylist(rows, schema=theirs.schema().as_arrow()))
        found = orders.refresh().scan().to_arrow().to_pylist()
    assert found == rows, found


if __name__ == "__main__":
    main()
