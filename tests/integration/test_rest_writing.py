"""Commits of other engines to tables of neve, by PyIceberg's REST client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import neve
from neve.catalog.running_server import RunningServer
from neve.testing.simulated_clock import SimulatedClock
from tests.integration.rest_requests import (
    SCHEMA,
    Client,
    Reply,
    cities,
    make_orders,
    orders,
    schema_of,
    served,
)

Served = tuple[neve.Lake, Client, RunningServer]
ORDERS = "/v1/namespaces/shop/tables/orders"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "lake") as found:
        yield found


def catalog_of(server: RunningServer) -> RestCatalog:
    # One try: a conflict must be seen, not repeated away.
    return RestCatalog("lake", uri=server.url)


def left_files(lake: neve.Lake) -> list[str]:
    """Return the files of clients that are still there."""
    place = Path(lake.location.removeprefix("file://"))
    found = (path for path in place.rglob("clients/**/*") if path.is_file())
    return [path.name for path in found if path.name not in {"room.txt", ".lock"}]


def test_an_append_is_an_upsert_and_leaves_no_files(world: Served) -> None:
    lake, _, server = world
    table = make_orders(lake)
    version = table.version
    theirs = catalog_of(server).load_table("shop.orders")

    theirs.append(orders({1: "one", 100: "hundred"}))

    found = cities(table)
    assert (found[1], found[100], len(found)) == ("one", "hundred", 31)
    changes = table.changes(since=version).read_all().to_pylist()
    kinds = sorted((each["id"], each["_change_type"]) for each in changes)
    assert kinds == [(1, "update_postimage"), (1, "update_preimage"), (100, "insert")]
    assert cities(table) == {
        row["id"]: row["city"]
        for row in catalog_of(server).load_table("shop.orders").scan().to_arrow().to_pylist()
    }
    assert table.at(version=version).get(1) == {"id": 1, "city": "c1", "amount": 1.0}
    assert left_files(lake) == []


def test_a_key_twice_in_one_commit_is_refused_with_the_key(world: Served) -> None:
    lake, _, server = world
    table = make_orders(lake)
    before = (cities(table), table.version)
    rows = pa.concat_tables([orders({5: "a"}), orders({5: "b"})])

    with pytest.raises(BadRequestError, match="several rows of one key, such as 5"):
        catalog_of(server).load_table("shop.orders").append(rows)

    assert (cities(table), table.version) == before


def test_rows_with_refused_keys_leave_the_columns_as_they_are(world: Served) -> None:
    lake, _, server = world
    table = make_orders(lake)
    before = table.version

    def evolve_and_append(rows: pa.Table) -> None:
        with catalog_of(server).load_table("shop.orders").transaction() as tx:
            with tx.update_schema() as change:
                change.add_column("note", StringType())
            tx.append(rows.append_column("note", pa.array(["n"] * rows.num_rows)))

    with pytest.raises(BadRequestError, match="several rows of one key"):
        evolve_and_append(pa.concat_tables([orders({70: "a"}), orders({70: "b"})]))
    table.refresh()
    names = [column.name for column in table.schema.columns]
    assert (table.version, names) == (before, ["id", "city", "amount"])
    evolve_and_append(orders({70: "a"}))
    assert table.refresh().get(70) == {"id": 70, "city": "a", "amount": 1.0, "note": "n"}


def test_a_table_may_refuse_appends_of_keys_that_it_has(world: Served) -> None:
    lake, _, server = world
    table = make_orders(lake, properties={"format-version": "2", "neve.append": "refuse"})
    theirs = catalog_of(server).load_table("shop.orders")

    with pytest.raises(BadRequestError, match="rows of these keys already, such as 7"):
        theirs.append(orders({7: "again"}))
    theirs.append(orders({70: "new"}))
    catalog_of(server).load_table("shop.orders").overwrite(
        orders({7: "changed"}), overwrite_filter="id == 7"
    )

    found = cities(table)
    assert (found[7], found[70]) == ("changed", "new")


def test_deletes_and_overwrites_change_only_what_they_say(world: Served) -> None:
    lake, _, server = world
    table = make_orders(lake)
    version = table.version
    catalog = catalog_of(server)

    catalog.load_table("shop.orders").delete("city == 'c1'")
    assert len(cities(table)) == 20
    changes = table.changes(since=version).read_all().to_pylist()
    # The client rewrote the other rows of the file, too: they did not change.
    assert {each["_change_type"] for each in changes} == {"delete"}
    assert len(changes) == 10
    catalog.load_table("shop.orders").overwrite(
        orders({0: "zero", 500: "x"}), overwrite_filter="id < 10"
    )
    found = cities(table)
    assert (found[0], found[500], 3 in found, len(found)) == ("zero", "x", False, 15)
    catalog.load_table("shop.orders").upsert(orders({0: "up", 501: "y"}), join_cols=["id"])
    assert (cities(table)[0], cities(table)[501]) == ("up", "y")
    catalog.load_table("shop.orders").overwrite(orders({1: "only"}))
    assert cities(table) == {1: "only"}
    table.verify(independent=True)


def commit_of(
    server: RunningServer,
    rows: pa.Table,
    name: str = "shop.orders",
    **options: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Return the request of an append, without sending it; its files are written."""
    table = catalog_of(server).load_table(name)
    sent: list[dict[str, Any]] = []

    def keep(_catalog: object, _table: object, requirements: Any, updates: Any) -> None:  # noqa: ANN401
        sent.append(
            {
                "requirements": [
                    each.model_dump(by_alias=True, mode="json") for each in requirements
                ],
                "updates": [each.model_dump(by_alias=True, mode="json") for each in updates],
            }
        )
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RestCatalog, "commit_table", keep)
        with pytest.raises(KeyboardInterrupt):
            table.append(rows, **options)
    return sent[0]


def test_a_commit_that_is_sent_again_is_made_once(world: Served) -> None:
    lake, client, server = world
    table = make_orders(lake)
    request = commit_of(server, orders({100: "once"}))

    assert client.post(ORDERS, request).status == 200
    table.put({"id": 100, "city": "later", "amount": 0.0})
    table.flush()
    again = client.post(ORDERS, request)

    assert again.status == 200
    assert cities(table)[100] == "later"
    operations = table.history().column("operation").to_pylist()
    made = [each for each in operations if each != "REPLACE"]
    assert made == ["CREATE", "APPEND", "APPEND", "OVERWRITE"]


def test_a_base_that_moved_is_a_conflict_and_changes_nothing(world: Served) -> None:
    lake, client, server = world
    table = make_orders(lake)
    request = commit_of(server, orders({100: "late"}))
    table.put({"id": 1, "city": "live", "amount": 9.0})
    table.flush()
    before = table.version

    refused = client.post(ORDERS, request)

    assert refused.error == (409, "CommitFailedException")
    assert table.refresh().version == before
    assert 100 not in cities(table)


def test_a_compaction_in_between_is_not_a_conflict(world: Served) -> None:
    lake, _, server = world
    table = make_orders(lake)
    table.put({"id": 1, "city": "live", "amount": 9.0})
    table.flush()
    theirs = catalog_of(server).load_table("shop.orders")
    table.compact(full=True)

    theirs.delete("id < 10")

    assert sorted(cities(table)) == list(range(10, 30))


def test_unflushed_rows_of_the_live_writer_come_later(world: Served) -> None:
    lake, _, server = world
    table = make_orders(lake)
    table.put({"id": 3, "city": "live", "amount": 0.0})

    catalog_of(server).load_table("shop.orders").append(orders({3: "theirs", 4: "theirs"}))

    found = cities(table)
    assert (found[3], found[4]) == ("live", "theirs")
    table.flush()
    assert cities(table)[3] == "live"


def test_order_and_merge_functions_of_the_table_are_respected(world: Served) -> None:
    lake, _, server = world
    schema = schema_of(*SCHEMA, pa.field("lsn", pa.int64()))
    table = lake.create_table(
        "shop.orders",
        schema,
        primary_key=["id"],
        order_by="lsn",
        merge={"amount": "sum"},
        properties={"format-version": "2"},
    )
    table.upsert([{"id": key, "city": "a", "amount": 10.0, "lsn": 5} for key in (1, 2, 3)])
    table.flush()

    def rows(*given: tuple[int, str, float, int]) -> pa.Table:
        names = ("id", "city", "amount", "lsn")
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in given], schema)

    catalog = catalog_of(server)
    catalog.load_table("shop.orders").append(rows((1, "new", 1.0, 6), (2, "old", 1.0, 4)))
    table.refresh()
    assert table.get(1) == {"id": 1, "city": "new", "amount": 11.0, "lsn": 6}
    assert table.get(2) == {"id": 2, "city": "a", "amount": 10.0, "lsn": 5}
    # Copy on write: rows 1 and 2 are written again, and must not be added up.
    catalog.load_table("shop.orders").delete("id == 3")
    table.refresh()
    assert table.get(1) == {"id": 1, "city": "new", "amount": 11.0, "lsn": 6}
    assert table.get(3) is None
    # An update to an older state changes nothing.
    catalog.load_table("shop.orders").overwrite(
        rows((1, "stale", 0.0, 2)), overwrite_filter="id == 1"
    )
    assert table.refresh().get(1) == {"id": 1, "city": "new", "amount": 11.0, "lsn": 6}


def test_schema_partitions_and_properties_change_through_the_client(world: Served) -> None:
    lake, client, server = world
    table = make_orders(lake)
    catalog = catalog_of(server)
    theirs = catalog.load_table("shop.orders")

    with theirs.update_schema() as change:
        change.add_column("note", StringType(), doc="free text")
        change.rename_column("city", "town")
    with theirs.update_spec() as spec:
        spec.add_field("town", "identity")
    with theirs.transaction() as tx:
        tx.set_properties({"owner": "anna"})
    theirs.append(
        pa.Table.from_pylist([{"id": 70, "town": "x", "amount": 1.0, "note": "n"}]).cast(
            schema_of(
                pa.field("id", pa.int64(), nullable=False),
                pa.field("town", pa.string()),
                pa.field("amount", pa.float64()),
                pa.field("note", pa.string()),
            )
        )
    )

    table.refresh()
    assert table.get(70) == {"id": 70, "town": "x", "amount": 1.0, "note": "n"}
    assert lake.load_table("shop.orders").properties["owner"] == "anna"
    assert [str(each.name) for each in table.schema.columns] == ["id", "town", "amount", "note"]
    refused = client.post(
        ORDERS,
        {
            "requirements": [],
            "updates": [{"action": "set-location", "location": "file:///elsewhere"}],
        },
    )
    assert refused.error == (400, "BadRequestException")
    change = theirs.update_schema()
    change.set_identifier_fields()
    change.delete_column("id")
    with pytest.raises(BadRequestError, match="key"):
        change.commit()
    with theirs.transaction() as tx:
        tx.remove_properties("owner")
    assert "owner" not in lake.load_table("shop.orders").properties


def test_tags_are_set_and_branches_refused(world: Served) -> None:
    lake, _, server = world
    table = make_orders(lake)
    theirs = catalog_of(server).load_table("shop.orders")
    current = theirs.current_snapshot()
    assert current is not None

    theirs.manage_snapshots().create_tag(current.snapshot_id, "audit").commit()

    assert table.at(tag="audit").get(1) is not None
    with pytest.raises(BadRequestError, match="only the branch main"):
        theirs.manage_snapshots().create_branch(current.snapshot_id, "side").commit()


KEYED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "city", StringType(), required=False),
    identifier_field_ids=[1],
)


def test_a_property_makes_a_table_with_a_primary_key(world: Served) -> None:
    lake, _, server = world
    catalog = catalog_of(server)
    catalog.create_namespace("shop")
    theirs = catalog.create_table("shop.orders", KEYED, properties={"neve.primary-key": "id"})
    rows = schema_of(pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string()))

    theirs.append(pa.Table.from_pylist([{"id": 1, "city": "a"}], schema=rows))
    theirs = catalog.load_table("shop.orders")
    theirs.append(pa.Table.from_pylist([{"id": 1, "city": "b"}], schema=rows))

    assert lake.list_tables() == ["shop.orders"]
    assert lake.table("shop.orders").get(1) == {"id": 1, "city": "b"}


def test_a_namespace_may_make_keys_of_identifier_fields(world: Served) -> None:
    lake, _, server = world
    catalog = catalog_of(server)
    catalog.create_namespace("shop", {"neve.primary-key": "identifier-fields"})
    catalog.create_table("shop.orders", KEYED)
    catalog.create_table("shop.clicks", Schema(NestedField(1, "at", LongType())))

    assert lake.list_tables() == ["shop.orders"]
    assert lake.guests.names() == ["shop.clicks"]


def test_a_staged_table_is_created_with_its_first_rows_or_not_at_all(world: Served) -> None:
    lake, _, server = world
    catalog = catalog_of(server)
    catalog.create_namespace("shop")
    rows = schema_of(pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string()))
    properties = {"neve.primary-key": "id"}

    with catalog.create_table_transaction("shop.orders", KEYED, properties=properties) as tx:
        tx.append(pa.Table.from_pylist([{"id": 1, "city": "a"}], schema=rows))
    with (
        pytest.raises(BadRequestError, match="several rows"),
        catalog.create_table_transaction("shop.bad", KEYED, properties=properties) as tx,
    ):
        tx.append(pa.Table.from_pylist([{"id": 1}, {"id": 1}], schema=rows))

    assert lake.list_tables() == ["shop.orders"]
    assert lake.table("shop.orders").get(1) == {"id": 1, "city": "a"}


def change_of(server: RunningServer, rows: pa.Table, name: str = "shop.orders") -> dict[str, Any]:
    """Return an append as a part of a transaction."""
    namespace, _, table = name.partition(".")
    identifier = {"namespace": [namespace], "name": table}
    return {"identifier": identifier, **commit_of(server, rows, name)}


def test_a_transaction_over_tables_with_keys_is_one_commit(world: Served) -> None:
    lake, client, server = world
    tables = [make_orders(lake, name) for name in ("shop.orders", "shop.more")]
    changes = [
        change_of(server, orders({1: "both", 100: "new"}), name)
        for name in ("shop.orders", "shop.more")
    ]

    for _ in range(2):
        assert client.post("/v1/transactions/commit", {"table-changes": changes}).status == 204

    for table in tables:
        found = cities(table)
        assert (found[1], found[100], len(found)) == ("both", "new", 31)
        assert table.refresh().version == 3
    assert left_files(lake) == []


def test_a_transaction_changes_nothing_when_one_table_moved(world: Served) -> None:
    lake, client, server = world
    tables = [make_orders(lake, name) for name in ("shop.orders", "shop.more")]
    changes = [
        change_of(server, orders({1: "both"}), name) for name in ("shop.orders", "shop.more")
    ]
    with lake.bulk("shop.more") as job:
        job.upsert(orders({1: "first"}))

    refused = client.post("/v1/transactions/commit", {"table-changes": changes})

    assert refused.error == (409, "CommitFailedException")
    assert [cities(table)[1] for table in tables] == ["c1", "first"]
    # No one has to wait for a transaction that was refused.
    with lake.bulk("shop.orders") as job:
        job.upsert(orders({1: "second"}))


def test_a_transaction_is_refused_whole_for_what_it_cannot_do(world: Served) -> None:
    lake, client, server = world
    table = make_orders(lake)
    make_orders(lake, "shop.more")
    catalog_of(server).create_table("shop.guest", orders({}).schema)
    append = change_of(server, orders({1: "no"}))
    properties = {
        "identifier": {"namespace": ["shop"], "name": "more"},
        "requirements": [],
        "updates": [{"action": "set-properties", "updates": {"a": "b"}}],
    }
    guest = {**properties, "identifier": {"namespace": ["shop"], "name": "guest"}}
    twice = change_of(server, orders({1: "a"}), "shop.more")
    twice["updates"] = [*twice["updates"], {"action": "no-such-action"}]
    missing = {**properties, "identifier": {"namespace": ["shop"], "name": "missing"}}

    for other, status in ((properties, 501), (guest, 501), (twice, 400), (missing, 404)):
        found = client.post("/v1/transactions/commit", {"table-changes": [append, other]})
        assert found.status == status, found.body
    assert cities(table)[1] == "c1"
    assert "a" not in lake.load_table("shop.more").properties
    assert client.post("/v1/transactions/commit", {"table-changes": [append]}).status == 204
    assert cities(table)[1] == "no"


def test_files_outside_of_the_table_are_not_read(world: Served, tmp_path: Path) -> None:
    lake, client, server = world
    table = make_orders(lake)
    secret = tmp_path / "secret.avro"
    secret.write_bytes(b"secret")
    request = commit_of(server, orders({100: "x"}))
    [added] = [each for each in request["updates"] if each["action"] == "add-snapshot"]

    for place in (f"file://{secret}", "/etc/passwd", f"{lake.location}/manifest/catalog/HEAD"):
        added["snapshot"]["manifest-list"] = place
        refused = client.post(ORDERS, request)
        assert refused.error == (400, "BadRequestException")
        assert "secret" not in refused.body.decode().replace(str(secret), "")
    assert 100 not in cities(table)


def test_files_that_clients_left_are_deleted_days_later(tmp_path: Path) -> None:
    clock = SimulatedClock()
    with neve.open(tmp_path / "lake", clock=clock) as lake, lake.serve() as server:
        make_orders(lake).close()
        commit_of(server, orders({100: "never sent"}))
        assert left_files(lake)
        catalog_of(server).load_table("shop.orders").append(orders({1: "a"}))
        assert left_files(lake), "another client may still work on it"
        clock.advance(4 * 24 * 60 * 60)
        catalog_of(server).load_table("shop.orders").append(orders({1: "b"}))
        assert left_files(lake) == []


def test_a_conflict_is_one_for_the_client(world: Served) -> None:
    lake, client, server = world
    make_orders(lake)
    request = commit_of(server, orders({100: "x"}))
    for each in request["requirements"]:
        if each["type"] == "assert-table-uuid":
            each["uuid"] = "00000000-0000-0000-0000-000000000000"

    refused: Reply = client.post(ORDERS, request)

    assert refused.error == (409, "CommitFailedException")
