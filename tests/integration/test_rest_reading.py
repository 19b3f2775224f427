"""The read side of the REST catalog: names, metadata, errors, pages and conditional requests."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

import neve
from neve.catalog.running_server import RunningServer
from neve.catalog.served_lake import ServedLake
from tests.integration.rest_requests import Client, make_orders, served

Served = tuple[neve.Lake, Client, RunningServer]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "lake") as found:
        yield found


def test_importing_neve_loads_no_web_library() -> None:
    code = (
        "import sys, neve, neve.catalog.lake;"
        "print([m for m in sys.modules if m.split('.')[0] in ('starlette', 'uvicorn')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_client_reads_the_newest_commit_by_name(world: Served) -> None:
    lake, _, server = world
    table = make_orders(lake)
    catalog = RestCatalog("lake", uri=server.url)

    assert catalog.list_tables("shop") == [("shop", "orders")]
    assert catalog.load_table("shop.orders").scan().to_arrow().num_rows == 30
    table.delete(7)
    table.flush()
    found = catalog.load_table("shop.orders")
    assert found.scan().to_arrow().num_rows == 29
    assert found.sort_order().order_id == 0
    assert found.location().endswith("/clients")


def test_what_does_not_exist_is_an_error_of_its_type(world: Served) -> None:
    lake, client, server = world
    make_orders(lake)
    catalog = RestCatalog("lake", uri=server.url)

    with pytest.raises(NoSuchTableError):
        catalog.load_table("shop.nothing")
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables("nowhere")
    assert not catalog.table_exists("shop.nothing")
    assert client.get("/v1/namespaces/none").error == (404, "NoSuchNamespaceException")
    assert client.get("/v1/namespaces/shop/tables/none").error == (404, "NoSuchTableException")
    assert client.get("/v1/namespaces/shop/views/none").error == (404, "NoSuchViewException")
    assert client.get("/v1/nothing").error == (404, "NoSuchRouteException")
    assert client.get("/").error == (404, "NoSuchRouteException")
    assert client.send("PATCH", "/v1/namespaces").error == (404, "NoSuchRouteException")
    assert client.get("/v1/namespaces/shop/views").json["identifiers"] == []
    created = client.post("/v1/namespaces/shop/views", {"name": "v"})
    assert created.error == (406, "UnsupportedOperationException")


def test_whether_something_exists_is_asked_without_a_body(world: Served) -> None:
    lake, client, _ = world
    make_orders(lake).close()
    there, missing = (
        client.send("HEAD", f"/v1/namespaces/shop/tables/{name}") for name in ("orders", "other")
    )

    assert (there.status, there.body, "content-type" in there.headers) == (204, b"", False)
    assert (missing.status, missing.body) == (404, b"")
    assert missing.headers["content-type"] == "application/json"


def test_namespaces_nest_and_have_properties(world: Served) -> None:
    _, client, server = world
    catalog = RestCatalog("lake", uri=server.url)
    catalog.create_namespace(("eu", "berlin"), {"owner": "anna"})

    assert catalog.list_namespaces() == [("eu",)]
    assert catalog.list_namespaces(("eu",)) == [("eu", "berlin")]
    done = catalog.update_namespace_properties(
        ("eu", "berlin"), removals={"owner", "missing"}, updates={"team": "b"}
    )
    assert (done.removed, done.updated, done.missing) == (["owner"], ["team"], ["missing"])
    assert catalog.load_namespace_properties(("eu", "berlin")) == {"team": "b"}
    refused = client.send("DELETE", "/v1/namespaces/eu")
    assert refused.error == (409, "NamespaceNotEmptyException")
    catalog.drop_namespace(("eu", "berlin"))
    assert not catalog.namespace_exists(("eu", "berlin"))


def test_names_may_hold_dots_and_slashes(world: Served) -> None:
    lake, client, _ = world
    made = client.post("/v1/namespaces", {"namespace": ["a.b", "c/d"]})

    assert made.status == 200
    assert lake.list_namespaces() == ["a%2Eb", "a%2Eb.c%2Fd"]
    found = client.get("/v1/namespaces/a.b%1Fc%2Fd").json
    assert found["namespace"] == ["a.b", "c/d"]
    assert client.get("/v1/namespaces?parent=a.b").json["namespaces"] == [["a.b", "c/d"]]


def test_listings_come_in_pages(world: Served) -> None:
    lake, client, _ = world
    for number in range(5):
        lake.create_namespace(f"n{number}")

    first = client.get("/v1/namespaces?pageSize=2").json
    second = client.get(f"/v1/namespaces?pageSize=2&pageToken={first['next-page-token']}").json
    last = client.get(f"/v1/namespaces?pageSize=2&pageToken={second['next-page-token']}").json
    pages = [first, second, last]
    assert [each["namespaces"] for each in pages] == [[["n0"], ["n1"]], [["n2"], ["n3"]], [["n4"]]]
    assert last["next-page-token"] is None
    assert client.get("/v1/namespaces?pageSize=0").error == (400, "BadRequestException")


def test_a_table_that_is_known_is_not_sent_again(world: Served) -> None:
    lake, client, _ = world
    table = make_orders(lake)
    path = "/v1/namespaces/shop/tables/orders"
    first = client.get(path)
    tag = first.headers["etag"]

    same = client.get(path, If_None_Match=tag)
    assert (same.status, same.body) == (304, b"")
    assert client.get(path, If_None_Match="*").status == 304
    table.put({"id": 99, "city": "new", "amount": 0.0})
    table.flush()
    changed = client.get(path, If_None_Match=tag)
    assert changed.status == 200
    assert changed.headers["etag"] != tag
    table.set_properties({"owner": "anna"})
    after = client.get(path, If_None_Match=changed.headers["etag"])
    assert after.json["metadata"]["properties"]["owner"] == "anna"


def test_only_snapshots_with_a_name_are_sent_when_asked(world: Served) -> None:
    lake, client, _ = world
    table = make_orders(lake)
    table.tag("first")
    table.put({"id": 99, "city": "new", "amount": 0.0})
    table.flush()
    table.put({"id": 100, "city": "new", "amount": 0.0})
    table.flush()

    path = "/v1/namespaces/shop/tables/orders"
    whole = client.get(path).json["metadata"]["snapshots"]
    named = client.get(f"{path}?snapshots=refs").json["metadata"]["snapshots"]
    assert len(whole) == 3
    assert len(named) == 2


def test_reports_are_accepted_and_tables_renamed_and_dropped(world: Served) -> None:
    lake, client, server = world
    make_orders(lake).close()
    catalog = RestCatalog("lake", uri=server.url)

    report = client.post("/v1/namespaces/shop/tables/orders/metrics", {"report-type": "scan"})
    assert report.status == 204
    catalog.rename_table("shop.orders", "shop.sales")
    assert lake.list_tables() == ["shop.sales"]
    catalog.purge_table("shop.sales")
    assert lake.list_tables() == []
    missing = client.send("DELETE", "/v1/namespaces/shop/tables/sales")
    assert missing.error == (404, "NoSuchTableException")


def test_the_configuration_lists_what_the_server_can_do(world: Served) -> None:
    _, client, _ = world
    found = client.get("/v1/config?warehouse=any").json

    assert "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}" in found["endpoints"]
    assert found["idempotency-key-lifetime"] == "PT30M"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/namespaces", b"{"),
        ("POST", "/v1/namespaces", b"[]"),
        ("POST", "/v1/namespaces", b'{"namespace": "shop"}'),
        ("POST", "/v1/namespaces", b'{"namespace": []}'),
        ("POST", "/v1/namespaces", b'{"namespace": [""]}'),
        ("POST", "/v1/namespaces", b'{"namespace": ["a\\u0000b"]}'),
        ("POST", "/v1/namespaces", b'{"namespace": ["a"], "properties": {"a": 1}}'),
        ("POST", "/v1/namespaces", b"[" * 100_000),
        ("POST", "/v1/namespaces", b'{"namespace": [".."]}'),
        (
            "POST",
            "/v1/namespaces/shop/tables",
            b'{"name": "..", "schema": {"type": "struct", "schema-id": 0, "fields": []}}',
        ),
        ("POST", "/v1/namespaces/shop/tables", b"{}"),
        ("POST", "/v1/namespaces/shop/tables", b'{"name": "t", "schema": {"type": "struct"}}'),
        ("POST", "/v1/namespaces/shop/tables", b'{"name": "t", "schema": 3}'),
        ("POST", "/v1/namespaces/shop/tables/orders", b'{"requirements": [], "updates": 3}'),
        ("POST", "/v1/namespaces/shop/tables/orders", b'{"requirements": [], "updates": [3]}'),
        (
            "POST",
            "/v1/namespaces/shop/tables/orders",
            b'{"requirements": [], "updates": [{"action": "fly"}]}',
        ),
        (
            "POST",
            "/v1/namespaces/shop/tables/orders",
            b'{"requirements": [{"type": "fly"}], "updates": []}',
        ),
        ("POST", "/v1/tables/rename", b'{"source": {"namespace": ["shop"]}}'),
        ("POST", "/v1/transactions/commit", b'{"table-changes": []}'),
        ("GET", "/v1/namespaces/shop/tables/orders?snapshots=some", b""),
        ("DELETE", "/v1/namespaces/shop/tables/orders?purgeRequested=perhaps", b""),
        (
            "POST",
            "/v1/namespaces/shop/register",
            b'{"name": "x", "metadata-location": "file:///etc/passwd"}',
        ),
        (
            "POST",
            "/v1/namespaces/shop/register",
            b'{"name": "x", "metadata-location": "../../etc/passwd"}',
        ),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    world: Served, method: str, path: str, body: bytes
) -> None:
    lake, client, _ = world
    table = make_orders(lake)
    before = (ServedLake(lake).names(), table.version)

    refused = client.send(method, path, body or None)

    assert refused.error == (400, "BadRequestException")
    assert "Traceback" not in json.dumps(refused.json)
    assert (ServedLake(lake).names(), table.refresh().version) == before


def test_locations_outside_of_the_lake_are_refused(world: Served, tmp_path: Path) -> None:
    lake, client, _ = world
    lake.create_namespace("shop")
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 1, "name": "a", "type": "long", "required": False}],
    }
    for place in (
        f"file://{tmp_path}/outside",
        "s3://other/x",
        "/etc",
        f"{lake.location}/tables/x",
    ):
        refused = client.post(
            "/v1/namespaces/shop/tables", {"name": "t", "schema": schema, "location": place}
        )
        assert refused.error == (400, "BadRequestException"), place
    assert lake.guests.names() == []
    assert not (tmp_path / "outside").exists()


def test_a_lake_for_reading_only_is_served_and_not_changed(tmp_path: Path) -> None:
    with neve.open(tmp_path / "lake") as lake:
        make_orders(lake).close()
    before = sorted(path for path in (tmp_path / "lake").rglob("*") if path.is_file())
    with neve.open(tmp_path / "lake", read_only=True) as lake, lake.serve() as server:
        client = Client(server)
        found = RestCatalog("lake", uri=server.url).load_table("shop.orders")
        assert found.scan().to_arrow().num_rows == 30
        update = {"action": "set-properties", "updates": {"a": "b"}}
        for path, body in (
            ("/v1/namespaces", {"namespace": ["more"]}),
            ("/v1/namespaces/shop/tables/orders", {"requirements": [], "updates": [update]}),
        ):
            refused = client.post(path, body)
            assert refused.error == (400, "BadRequestException")
            assert "reading only" in refused.json["error"]["message"]
    assert sorted(path for path in (tmp_path / "lake").rglob("*") if path.is_file()) == before
