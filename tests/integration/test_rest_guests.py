"""Guest tables: plain Iceberg tables in the catalog of a lake."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchViewError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import neve
from neve.catalog.running_server import RunningServer
from neve.catalog.served_lake import ServedLake
from neve.catalog.table_name import TableName
from tests.integration.rest_requests import Client, Reply, make_orders, schema_of, served
from tests.integration.test_rest_writing import commit_of

Served = tuple[neve.Lake, Client, RunningServer]
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "city", StringType())
)
NO_COLUMNS = {"type": "struct", "schema-id": 0, "fields": []}
ROWS = schema_of(pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string()))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "lake") as found:
        yield found


def rows(*given: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "city": city} for key, city in given], schema=ROWS)


def make_guest(catalog: Catalog, name: str = "shop.clicks") -> None:
    if not catalog.namespace_exists("shop"):
        catalog.create_namespace("shop")
    catalog.create_table(name, SCHEMA).append(rows((1, "a"), (1, "b"), (2, "c")))


def test_a_table_without_a_key_is_a_guest(world: Served) -> None:
    lake, _, server = world
    catalog = RestCatalog("lake", uri=server.url)
    make_guest(catalog)

    assert catalog.list_tables("shop") == [("shop", "clicks")]
    assert lake.list_tables() == []
    assert lake.guests.names() == ["shop.clicks"]
    assert lake.guests.load("shop.clicks").to_arrow().num_rows == 3
    with pytest.raises(neve.AlreadyExists, match="guest"):
        lake.create_table("shop.clicks", ROWS, primary_key=["id"])
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("shop.clicks", SCHEMA)
    with pytest.raises(neve.InvalidArgument, match="not empty"):
        lake.drop_namespace("shop")


def test_two_commits_from_one_base_have_one_winner(world: Served) -> None:
    _, _, server = world
    catalog = RestCatalog("lake", uri=server.url)
    make_guest(catalog)
    first, second = catalog.load_table("shop.clicks"), catalog.load_table("shop.clicks")

    with first.transaction() as tx:
        tx.set_properties({"who": "first"})
    with second.update_schema() as change:
        change.add_column("note", StringType())
    with pytest.raises(CommitFailedException):
        first.update_schema().add_column("other", StringType()).commit()

    found = catalog.load_table("shop.clicks")
    assert found.properties["who"] == "first"
    assert "note" in found.schema().column_names


def test_many_writers_lose_no_commit(world: Served) -> None:
    _, _, server = world
    catalog = RestCatalog("lake", uri=server.url)
    make_guest(catalog)
    failures: list[BaseException] = []

    def write(number: int) -> None:
        mine = RestCatalog("lake", uri=server.url)
        for step in range(3):
            for _ in range(50):
                try:
                    with mine.load_table("shop.clicks").transaction() as tx:
                        tx.set_properties({f"w{number}.{step}": "x"})
                    break
                except CommitFailedException:
                    continue
                except BaseException as error:  # noqa: BLE001 - the test shows it
                    failures.append(error)
                    return

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures
    found = catalog.load_table("shop.clicks").properties
    assert {f"w{number}.{step}" for number in range(4) for step in range(3)} <= found.keys()


def test_guests_change_together_or_not_at_all(world: Served) -> None:
    _, client, server = world
    catalog = RestCatalog("lake", uri=server.url)
    make_guest(catalog, "shop.a")
    make_guest(catalog, "shop.b")

    def change(name: str, uuid: str) -> dict[str, object]:
        return {
            "identifier": {"namespace": ["shop"], "name": name},
            "requirements": [{"type": "assert-table-uuid", "uuid": uuid}],
            "updates": [{"action": "set-properties", "updates": {"done": "yes"}}],
        }

    uuids = {name: str(catalog.load_table(f"shop.{name}").metadata.table_uuid) for name in "ab"}
    wrong = [change("a", uuids["a"]), change("b", uuids["a"])]
    refused = client.post("/v1/transactions/commit", {"table-changes": wrong})
    assert refused.error == (409, "CommitFailedException")
    assert "done" not in catalog.load_table("shop.a").properties
    right = [change(name, uuids[name]) for name in "ab"]
    assert client.post("/v1/transactions/commit", {"table-changes": right}).status == 204
    assert catalog.load_table("shop.a").properties["done"] == "yes"
    assert catalog.load_table("shop.b").properties["done"] == "yes"


def test_guests_are_renamed_dropped_and_registered_again(world: Served) -> None:
    lake, _, server = world
    catalog = RestCatalog("lake", uri=server.url)
    make_guest(catalog)
    catalog.create_namespace("other")

    catalog.rename_table("shop.clicks", "other.clicks")
    location = catalog.load_table("other.clicks").metadata_location
    catalog.drop_table("other.clicks")
    assert lake.guests.names() == []
    again = catalog.register_table("shop.again", location)
    assert again.scan().to_arrow().num_rows == 3
    catalog.purge_table("shop.again")
    assert not Path(location.removeprefix("file://")).exists()


def test_a_foreign_table_is_registered_for_reading(tmp_path: Path) -> None:
    with neve.open(tmp_path / "theirs") as theirs:
        table = make_orders(theirs)
        location = table.iceberg_metadata()
        with neve.open(tmp_path / "mine") as mine:
            guest = mine.register("shop.orders", location)

            assert guest.to_arrow().num_rows == 30
            assert guest.to_arrow(["id"], limit=3).column_names == ["id"]
            assert guest.schema.names == ["id", "city", "amount"]
            with pytest.raises(neve.AlreadyExists):
                mine.register("shop.orders", location)
            with pytest.raises(neve.InvalidArgument, match="cannot be read"):
                mine.register("shop.other", str(tmp_path / "nothing.json"))


def test_a_file_that_is_no_metadata_is_not_quoted(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    for content in ("root:x:0:0", '{"format-version": 2, "password": "root:x"}'):
        secret.write_text(content)
        with neve.open(tmp_path / "lake") as lake:
            with pytest.raises(neve.InvalidArgument, match="not the metadata") as caught:
                lake.register("shop.orders", f"file://{secret}")
            assert "root:x" not in str(caught.value)
            with pytest.raises(neve.NotFound, match=r"lake\.guests\.names"):
                lake.guests.load("shop.orders")


def test_a_guest_is_adopted_as_a_table_with_a_key(world: Served) -> None:
    lake, _, server = world
    catalog = RestCatalog("lake", uri=server.url)
    make_guest(catalog)

    with pytest.raises(neve.InvalidArgument, match="several rows of one key, such as 1"):
        lake.adopt("shop.clicks", primary_key="id")
    assert (lake.list_tables(), lake.guests.names()) == ([], ["shop.clicks"])
    catalog.load_table("shop.clicks").overwrite(rows((1, "a"), (2, "c")))
    with lake.adopt("shop.clicks", primary_key="id") as table:
        assert table.get(2) == {"id": 2, "city": "c"}
        assert (lake.list_tables(), lake.guests.names()) == (["shop.clicks"], [])
        table.put({"id": 3, "city": "new"})
        table.flush()
    assert catalog.load_table("shop.clicks").scan().to_arrow().num_rows == 3


def test_a_commit_to_a_guest_that_is_sent_again_is_made_once(world: Served) -> None:
    lake, client, server = world
    make_guest(RestCatalog("lake", uri=server.url))
    request = commit_of(server, rows((7, "once")), "shop.clicks")
    path = "/v1/namespaces/shop/tables/clicks"

    first, again = (client.post(path, request) for _ in range(2))

    assert (first.status, again.status) == (200, 200)
    assert first.json["metadata-location"] == again.json["metadata-location"]
    assert lake.guests.load("shop.clicks").to_arrow().num_rows == 4
    other = commit_of(server, rows((8, "other")), "shop.clicks")
    both = [
        {"identifier": {"namespace": ["shop"], "name": "clicks"}, **each}
        for each in (request, other)
    ]
    assert client.post("/v1/transactions/commit", {"table-changes": both[:1]}).status == 204
    assert client.post("/v1/transactions/commit", {"table-changes": both}).status == 400


def test_a_lake_with_guests_is_refused_by_an_older_neve(world: Served) -> None:
    lake, _, server = world
    before = ServedLake(lake).names()
    make_guest(RestCatalog("lake", uri=server.url))
    guests = ServedLake(lake).names()

    assert b'"format":1' in before.encode()
    assert b'"format":2' in guests.encode()
    lake.guests.drop("shop.clicks")
    assert b'"format":1' in ServedLake(lake).names().encode()


def test_pyiceberg_uses_a_lake_without_a_server(tmp_path: Path) -> None:
    settings = {
        "py-catalog-impl": "neve.server.pyiceberg_catalog.NeveCatalog",
        "warehouse": str(tmp_path / "lake"),
        "neve.create": "true",
    }
    catalog = load_catalog("lake", **settings)
    try:
        make_guest(catalog)
        catalog.create_namespace("eu", {"owner": "anna"})
        schema = Schema(
            NestedField(1, "id", LongType(), required=True), NestedField(2, "city", StringType())
        )
        keyed = catalog.create_table(
            "eu.orders", schema, properties={"neve.primary-key": "id", "format-version": "2"}
        )
        keyed.append(rows((1, "a"), (2, "b")))
        catalog.load_table("eu.orders").append(rows((1, "again")))
        with pytest.raises(ValidationError, match="several rows of one key"):
            catalog.load_table("eu.orders").append(rows((3, "x"), (3, "y")))
        with catalog.create_table_transaction("shop.staged", SCHEMA) as tx:
            tx.append(rows((7, "seven")))

        assert catalog.list_namespaces() == [("eu",), ("shop",)]
        assert catalog.list_tables("shop") == [("shop", "clicks"), ("shop", "staged")]
        assert catalog.load_table("shop.staged").scan().to_arrow().num_rows == 1
        found = catalog.load_table("eu.orders").scan().to_arrow().sort_by("id").to_pylist()
        assert found == [{"id": 1, "city": "again"}, {"id": 2, "city": "b"}]
        assert catalog.update_namespace_properties("eu", updates={"a": "b"}).updated == ["a"]
        assert catalog.list_views("eu") == []
        assert not catalog.view_exists("eu.v")
        for look in (catalog.load_view, catalog.drop_view):
            with pytest.raises(NoSuchViewError, match="there is no view"):
                look("eu.v")
        with pytest.raises(NotImplementedError, match="no views"):
            catalog.register_view("eu.v", "nowhere")
        catalog.rename_table("eu.orders", "shop.orders")
        assert catalog.table_exists("shop.orders")
        catalog.purge_table("shop.orders")
        catalog.drop_namespace("eu")
        assert not catalog.namespace_exists("eu")
    finally:
        catalog.close()


def test_credentials_and_config_reach_the_client(tmp_path: Path) -> None:
    with served(tmp_path / "lake", client_config={"s3.region": "eu"}) as (lake, client, _):
        make_orders(lake)

        found = client.get("/v1/namespaces/shop/tables/orders").json
        assert found["config"] == {"s3.region": "eu"}
        credentials = client.get("/v1/namespaces/shop/tables/orders/credentials").json
        assert credentials == {"storage-credentials": []}


def test_no_table_is_made_or_purged_over_the_files_of_another(world: Served) -> None:
    lake, client, server = world
    catalog = RestCatalog("lake", uri=server.url)
    make_guest(catalog)
    theirs = catalog.load_table("shop.clicks")

    for place in (theirs.location(), f"{theirs.location()}/inside"):
        refused = client.post(
            "/v1/namespaces/shop/tables", {"name": "over", "schema": NO_COLUMNS, "location": place}
        )
        assert refused.error == (400, "BadRequestException")
    catalog.register_table("shop.again", theirs.metadata_location)
    catalog.purge_table("shop.again")
    assert catalog.load_table("shop.clicks").scan().to_arrow().num_rows == 3
    assert lake.guests.names() == ["shop.clicks"]


def move(client: Client, name: str, place: str) -> Reply:
    namespace, _, table = name.partition(".")
    return client.post(
        f"/v1/namespaces/{namespace}/tables/{table}",
        {"requirements": [], "updates": [{"action": "set-location", "location": place}]},
    )


def test_no_guest_moves_into_around_or_onto_another(world: Served) -> None:
    lake, client, server = world
    catalog = RestCatalog("lake", uri=server.url)
    make_guest(catalog, "shop.a")
    make_guest(catalog, "shop.b")
    theirs = catalog.load_table("shop.a").location()
    root = theirs.rpartition("/")[0]
    assert move(client, "shop.a", f"{root}/one/two").status == 200

    wrong = (
        root, f"{root}/one", f"{root}/one/two", f"{root}/one/two/deep", theirs, f"{theirs}/deep"
    )  # fmt: skip
    for place in wrong:
        refused = move(client, "shop.b", place)
        assert refused.error == (400, "BadRequestException"), place
        made = {"name": "c", "schema": NO_COLUMNS, "location": place}
        refused = client.post("/v1/namespaces/shop/tables", made)
        assert refused.error == (400, "BadRequestException"), place
    assert lake.guests.names() == ["shop.a", "shop.b"]
    assert move(client, "shop.b", f"{root}/three").status == 200
    assert catalog.load_table("shop.a").scan().to_arrow().num_rows == 3


def test_a_purge_deletes_what_the_guest_names_and_no_other_one_does(world: Served) -> None:
    lake, client, server = world
    catalog = RestCatalog("lake", uri=server.url)
    make_guest(catalog, "shop.a")
    make_guest(catalog, "shop.b")
    before = catalog.load_table("shop.a")
    folder = Path(before.location().removeprefix("file://"))
    # What an earlier neve allowed: a guest in the directory that another one moved out of.
    place = f"{before.location().rpartition('/')[0]}/other"
    assert move(client, "shop.a", place).status == 200
    deep = folder / "deep" / "metadata" / "00000-x.metadata.json"
    deep.parent.mkdir(parents=True)
    document = json.loads(lake.guests.load("shop.b").document)
    document["location"] = f"{before.location()}/deep"
    deep.write_text(json.dumps(document))
    Path(lake.guests.load("shop.b").metadata_location.removeprefix("file://")).unlink()
    lake.guests.drop("shop.b")
    ServedLake(lake)._entries.add_guest(
        TableName.parse("shop.b"), document["table-uuid"], f"file://{deep}"
    )

    catalog.purge_table("shop.b")

    assert not deep.exists()
    assert catalog.load_table("shop.a").scan().to_arrow().num_rows == 3
    catalog.purge_table("shop.a")
    left = [each for each in folder.parent.rglob("*") if each.is_file()]
    assert left == []
    assert not folder.exists()


def test_a_purge_deletes_every_version_and_its_directories(world: Served) -> None:
    _, _, server = world
    catalog = RestCatalog("lake", uri=server.url)
    make_guest(catalog)
    table = catalog.load_table("shop.clicks")
    table.append(rows((9, "z")))
    table.delete("id = 9")
    folder = Path(table.location().removeprefix("file://"))
    assert any(folder.rglob("*.parquet"))

    catalog.purge_table("shop.clicks")

    assert not folder.exists()


def test_a_purge_deletes_nothing_while_another_guest_cannot_be_read(world: Served) -> None:
    lake, _, server = world
    catalog = RestCatalog("lake", uri=server.url)
    make_guest(catalog, "shop.a")
    make_guest(catalog, "shop.b")
    kept = Path(catalog.load_table("shop.a").metadata_location.removeprefix("file://"))
    Path(catalog.load_table("shop.b").metadata_location.removeprefix("file://")).unlink()

    catalog.purge_table("shop.a")

    assert lake.guests.names() == ["shop.b"]
    assert kept.exists()


def test_a_refused_registration_over_a_guest_leaves_it(world: Served) -> None:
    lake, client, server = world
    catalog = RestCatalog("lake", uri=server.url)
    make_guest(catalog)
    first = catalog.load_table("shop.clicks").metadata_location
    catalog.load_table("shop.clicks").append(rows((3, "d")))
    path = "/v1/namespaces/shop/register"

    wrong = {"name": "clicks", "metadata-location": f"{first}.no", "overwrite": True}
    assert client.post(path, wrong).error == (400, "BadRequestException")
    assert lake.guests.load("shop.clicks").to_arrow().num_rows == 4
    again = {"name": "clicks", "metadata-location": first}
    assert client.post(path, again).error == (409, "AlreadyExistsException")
    assert client.post(path, {**again, "overwrite": True}).status == 200
    assert lake.guests.load("shop.clicks").to_arrow().num_rows == 3
    new = {"name": "new", "metadata-location": first, "overwrite": True}
    assert client.post(path, new).status == 200
