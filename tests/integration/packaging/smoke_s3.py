"""neve[s3]: a catalog in a bucket. Takes the location and the storage options, as JSON."""

import json
import sys

import pyarrow as pa

import neve


def main() -> None:
    """Make a table in the catalog, and find it again."""
    location, options = sys.argv[1], json.loads(sys.argv[2])
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "amount": pa.float64()}
    with neve.open(location, storage_options=options) as lake:
        lake.create_table("shop.orders", pa.schema(columns), ["id"])
    with neve.open(location, storage_options=options, create=False) as lake:
        assert lake.list_tables("shop") == ["shop.orders"]
        assert lake.load_table("shop.orders").primary_key == ("id",)


if __name__ == "__main__":
    main()
