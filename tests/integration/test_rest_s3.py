"""A lake in a bucket behind its server: clients write files there, and neve takes them."""

import pytest
from pyiceberg.catalog.rest import RestCatalog

import neve
from neve.testing.s3_servers import S3Endpoint
from tests.integration.rest_requests import cities, make_orders, orders

pytestmark = pytest.mark.s3


def test_pyiceberg_writes_to_tables_in_a_bucket(seaweed: S3Endpoint, prefix: str) -> None:
    # Not moto: it does not understand how Arrow sends the end of a body.
    at = seaweed
    client_config = {
        "s3.endpoint": at.endpoint,
        "s3.access-key-id": at.access_key_id,
        "s3.secret-access-key": at.secret_access_key,
        "s3.region": "eu-central-1",
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
    }
    with (
        neve.open(
            at.location(prefix), storage_options=at.storage_options(listing="unordered")
        ) as lake,
        lake.serve(client_config=client_config) as server,
    ):
        table = make_orders(lake)
        catalog = RestCatalog("lake", uri=server.url)

        catalog.load_table("shop.orders").append(orders({1: "one", 100: "new"}))
        catalog.load_table("shop.orders").delete("city == 'c2'")

        found = cities(table)
        assert (found[1], found[100], "c2" in found.values()) == ("one", "new", False)
        theirs = catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
        assert {row["id"]: row["city"] for row in theirs} == found
        catalog.create_table("shop.guest", catalog.load_table("shop.orders").schema())
        catalog.load_table("shop.guest").append(orders({1: "a"}))
        assert catalog.load_table("shop.guest").scan().to_arrow().num_rows == 1
        assert lake.guests.names() == ["shop.guest"]
