"""Iceberg's Java REST client drives a lake: tables, definitions, and commits of every kind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError

import neve
from neve.catalog.running_server import RunningServer
from tests.integration.rest_requests import cities, make_orders, orders
from tests.interop.java_iceberg import JavaIceberg

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    # PySpark leaves the closing of its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

World = tuple[neve.Lake, Any]


@pytest.fixture
def world(tmp_path: Path, java: JavaIceberg) -> Iterator[World]:
    with neve.open(tmp_path / "lake") as lake:
        server: RunningServer
        with lake.serve() as server:
            catalog = java.rest_catalog(server.url)
            try:
                yield lake, catalog
            finally:
                catalog.close()


def with_ids(rows: pa.Table) -> pa.Table:
    """Return rows whose columns have the ids of the table."""
    fields = [
        field.with_metadata({"PARQUET:field_id": str(place)})
        for place, field in enumerate(rows.schema, start=1)
    ]
    return rows.cast(pa.schema(fields))


def written(table: Any, name: str, rows: pa.Table) -> Path:  # noqa: ANN401 - of Java
    """Write a file where the table tells its clients to."""
    place = Path(str(table.location()).removeprefix("file:").replace("//", "/")) / "data"
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, place / name)
    return place / name


def test_java_appends_and_deletes_by_key_and_position(world: World, java: JavaIceberg) -> None:
    lake, catalog = world
    mine = make_orders(lake)
    name = java.identifier("shop", "orders")

    table = catalog.loadTable(name)
    path = written(table, "a.parquet", with_ids(orders({1: "one", 100: "new"})))
    table.newAppend().appendFile(java.data_file(table, path, 2)).commit()
    assert (cities(mine)[1], cities(mine)[100]) == ("one", "new")

    # As Flink does for an upsert: delete the key, and add the row, in one snapshot.
    table.refresh()
    rows = written(table, "b.parquet", with_ids(orders({100: "upserted"})))
    keys = written(table, "b-keys.parquet", with_ids(orders({100: ""}).select(["id"])))
    (
        table.newRowDelta()
        .addRows(java.data_file(table, rows, 1))
        .addDeletes(java.delete_file(table, keys, 1, equality_ids=[1]))
        .commit()
    )
    assert cities(mine)[100] == "upserted"

    # Equality deletes by a column that is not the key.
    table.refresh()
    city = pa.table({"city": ["c2"]}).cast(
        pa.schema([pa.field("city", pa.string(), metadata={"PARQUET:field_id": "2"})])
    )
    deletes = written(table, "c.parquet", city)
    deleted = java.delete_file(table, deletes, 1, equality_ids=[2])
    table.newRowDelta().addDeletes(deleted).commit()
    assert "c2" not in cities(mine).values()

    # Position deletes, of the file that neve wrote first.
    table.refresh()
    mine.compact(full=True)
    table.refresh()
    before = cities(mine)
    file = table.newScan().planFiles().iterator().next()
    deletes = written(
        table,
        "d.parquet",
        pa.table({"file_path": [str(file.file().location())] * 2, "pos": pa.array([0, 1])}),
    )
    table.newRowDelta().addDeletes(java.delete_file(table, deletes, 2)).commit()
    assert sorted(cities(mine)) == sorted(before)[2:]
    mine.verify(independent=True)


def test_java_creates_evolves_renames_and_drops(world: World, java: JavaIceberg) -> None:
    lake, catalog = world
    make_orders(lake)
    name, new = java.identifier("shop", "orders"), java.identifier("shop", "sales")
    table = catalog.loadTable(name)

    (
        table.updateSchema()
        .addColumn("note", table.schema().findType("city"))
        .renameColumn("city", "town")
        .commit()
    )
    table.updateProperties().set("owner", "anna").commit()
    table.updateSpec().addField("town").commit()
    catalog.renameTable(name, new)

    found = lake.load_table("shop.sales")
    assert [column.name for column in found.schema.columns] == ["id", "town", "amount", "note"]
    assert found.properties["owner"] == "anna"
    assert found.spec.texts(found.schema) == ["town"]
    assert not catalog.tableExists(name)
    assert catalog.dropTable(new, True)
    assert lake.list_tables() == []


def test_a_commit_on_an_old_base_is_made_again_by_the_client(
    world: World, java: JavaIceberg
) -> None:
    lake, catalog = world
    mine = make_orders(lake)
    table = catalog.loadTable(java.identifier("shop", "orders"))
    mine.put({"id": 5, "city": "live", "amount": 0.0})
    mine.flush()

    path = written(table, "a.parquet", with_ids(orders({100: "late"})))
    table.newAppend().appendFile(java.data_file(table, path, 1)).commit()

    assert (cities(mine)[5], cities(mine)[100]) == ("live", "late")


def test_a_refused_commit_tells_java_why(world: World, java: JavaIceberg) -> None:
    lake, catalog = world
    mine = make_orders(lake)
    table = catalog.loadTable(java.identifier("shop", "orders"))
    twice = pa.concat_tables([orders({5: "a"}), orders({5: "b"})])
    path = written(table, "a.parquet", with_ids(twice))
    append = table.newAppend().appendFile(java.data_file(table, path, 2))

    with pytest.raises(Py4JJavaError, match="several rows of one key, such as 5"):
        append.commit()

    assert cities(mine)[5] == "c2"
