"""The three system tables: columns, types, order of rows and JSON, as the design has them."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from neve.errors import Corruption
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SimulatedClock
from tests.unit.catalog.builders import a_catalog, a_file, a_table, an_append, with_renamed
from tests.unit.iceberg.published_lake import PublishedLake

NOW_MS = SimulatedClock().now_ms()


def columns(table: pa.Table) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in table.schema}


def test_columns_and_types_are_those_of_the_design() -> None:
    catalog = a_catalog()

    assert columns(catalog.system_table("__tables")) == {
        "table_name": pa.string(),
        "table_uuid": pa.string(),
        "format_version": pa.int32(),
        "location": pa.string(),
        "current_snapshot_id": pa.int64(),
        "last_updated_time": pa.int64(),
        "properties": pa.binary(),
        "schema": pa.binary(),
        "partition_specs": pa.binary(),
    }
    assert columns(catalog.system_table("__snapshots")) == {
        "table_name": pa.string(),
        "snapshot_id": pa.int64(),
        "parent_snapshot_id": pa.int64(),
        "timestamp_ms": pa.int64(),
        "operation": pa.string(),
        "manifest_list": pa.string(),
        "summary": pa.binary(),
    }
    assert columns(catalog.system_table("__files")) == {
        "table_name": pa.string(),
        "snapshot_id": pa.int64(),
        "file_path": pa.string(),
        "file_format": pa.string(),
        "record_count": pa.int64(),
        "file_size_bytes": pa.int64(),
        "partition_values": pa.binary(),
    }


def test_an_empty_catalog_has_empty_system_tables() -> None:
    catalog = a_catalog()

    for name in ("__tables", "__snapshots", "__files"):
        assert catalog.system_table(name).num_rows == 0


def test_a_table_is_one_row_with_json_of_the_designs_shapes() -> None:
    clock = SimulatedClock()
    catalog = a_catalog(MemoryStore("lake"), clock=clock)
    table = a_table(
        catalog,
        partition_by=["day(ts)", "bucket(16, id)", "truncate(4, customer)", "customer"],
        properties={"key1": "value1", "ä": "☂"},
    )
    clock.advance(5)
    table.set_properties({"key2": "value2"})

    (row,) = catalog.system_table("__tables").to_pylist()

    assert row["table_name"] == "shop.orders"
    assert row["table_uuid"] == table.uuid
    assert row["format_version"] == 3
    assert row["location"] == f"memory://lake/tables/{table.table_id}"
    assert row["current_snapshot_id"] == 1
    assert row["last_updated_time"] == NOW_MS + 5_000
    assert json.loads(row["properties"]) == {"key1": "value1", "key2": "value2", "ä": "☂"}
    assert json.loads(row["schema"]) == {
        "type": "struct",
        "fields": [
            {"id": 1, "name": "id", "type": "long", "nullable": False},
            {"id": 2, "name": "customer", "type": "string", "nullable": True},
            {"id": 3, "name": "amount", "type": "float", "nullable": True},
            {"id": 4, "name": "ts", "type": "timestamptz", "nullable": True},
        ],
    }
    assert json.loads(row["partition_specs"]) == [
        {
            "spec_id": 0,
            "fields": [
                {"source_id": 4, "field_id": 1000, "name": "ts_day", "transform": "day"},
                {
                    "source_id": 1,
                    "field_id": 1001,
                    "name": "id_bucket",
                    "transform": "bucket",
                    "transform_param": 16,
                },
                {
                    "source_id": 2,
                    "field_id": 1002,
                    "name": "customer_trunc",
                    "transform": "truncate",
                    "transform_param": 4,
                },
                {"source_id": 2, "field_id": 1003, "name": "customer", "transform": "identity"},
            ],
        }
    ]


def test_snapshots_are_versions_with_their_parents() -> None:
    clock = SimulatedClock()
    catalog = a_catalog(clock=clock)
    table = a_table(catalog)
    clock.advance(1)
    table.commit([an_append(1, a_file("a"))])
    clock.advance(1)
    table.update_schema(with_renamed(table.schema, "customer", "client"))

    rows = catalog.system_table("__snapshots").to_pylist()

    assert [row["snapshot_id"] for row in rows] == [1, 2, 3]
    assert [row["parent_snapshot_id"] for row in rows] == [None, 1, 2]
    assert [row["timestamp_ms"] - NOW_MS for row in rows] == [0, 1_000, 2_000]
    assert [row["operation"] for row in rows] == ["CREATE", "APPEND", "EVOLVE"]
    summaries = [json.loads(row["summary"]) for row in rows]
    assert [each["total-data-files"] for each in summaries] == ["0", "1", "1"]
    assert summaries[1]["added-files"] == summaries[1]["added-data-files"] == "1"
    assert summaries[2]["changed"] == "schema"


def test_a_snapshot_names_the_manifest_list_that_is_published(tmp_path: Path) -> None:
    with PublishedLake.opened(tmp_path) as lake:
        lake.commit(1, 2)
        lake.commit(2, 3)
        with lake.table.evolve() as change:
            change.add_column("note", "string")

        rows = lake.lake.system_table("__snapshots").to_pylist()
        listed = {each["snapshot-id"]: each for each in lake.document()["snapshots"]}

    assert [row["manifest_list"] for row in rows] == [
        "",  # it has no rows
        listed[2]["manifest-list"],
        listed[3]["manifest-list"],
        listed[3]["manifest-list"],  # the same rows
    ]
    assert all(
        Path(row["manifest_list"].removeprefix("file://")).read_bytes().startswith(b"Obj")
        for row in rows[1:]
    )


def test_summaries_count_as_those_that_are_published_do(tmp_path: Path) -> None:
    with PublishedLake.opened(tmp_path) as lake:
        lake.commit(1, 2, 3)
        lake.commit(2, 4)
        lake.table.delete(1)
        lake.table.flush()
        lake.table.compact(full=True)

        rows = lake.lake.system_table("__snapshots").to_pylist()
        history = lake.table.history().to_pylist()
        listed = {each["snapshot-id"]: each["summary"] for each in lake.document()["snapshots"]}

    for row, past in zip(rows, history, strict=True):
        found = json.loads(row["summary"])
        assert dict(past["summary"]) == found
        counted = {name: value for name, value in found.items() if name != "reason"}
        assert counted.items() <= {**listed.get(row["snapshot_id"], found)}.items()
    assert listed[3]["total-records"] == "5"
    assert listed[3]["total-position-deletes"] == "1"
    assert listed[4]["added-position-deletes"] == "2"  # one vector takes the place of another
    assert listed[4]["removed-position-deletes"] == "1"
    assert listed[5]["total-records"] == "3"
    assert listed[5]["total-position-deletes"] == "0"
    assert listed[5]["removed-position-deletes"] == "2"


def test_a_file_is_listed_for_each_snapshot_that_has_it() -> None:
    catalog = a_catalog()
    table = a_table(catalog, partition_by=["day(ts)", "customer"])
    day = (19_813).to_bytes(4, "little")
    table.commit([an_append(1, a_file("b", rows=7, partition={1000: day, 1001: None}))])
    table.commit([an_append(2, a_file("a", partition={1000: None, 1001: b"anna"}))])

    rows = catalog.system_table("__files").to_pylist()

    assert [(row["snapshot_id"], row["file_path"]) for row in rows] == [
        (2, "data/b.parquet"),
        (3, "data/a.parquet"),
        (3, "data/b.parquet"),
    ]
    assert rows[0] == {
        "table_name": "shop.orders",
        "snapshot_id": 2,
        "file_path": "data/b.parquet",
        "file_format": "PARQUET",
        "record_count": 7,
        "file_size_bytes": 1_000,
        "partition_values": b'{"ts_day":"2024-03-31","customer":null}',
    }
    assert json.loads(rows[1]["partition_values"]) == {"ts_day": None, "customer": "anna"}


def test_rows_are_in_the_order_of_their_keys_with_numbers_as_numbers() -> None:
    catalog = a_catalog()
    for name in ("b.t", "a.t", "a.b.t"):
        table = a_table(catalog, name)
        for base in range(1, 12):
            table.commit([an_append(base)])

    snapshots = catalog.system_table("__snapshots")

    keys = list(
        zip(
            snapshots.column("table_name").to_pylist(),
            snapshots.column("snapshot_id").to_pylist(),
            strict=True,
        )
    )
    assert keys == [(name, number) for name in ("a.b.t", "a.t", "b.t") for number in range(1, 13)]


def test_a_renamed_table_is_listed_under_its_new_name() -> None:
    catalog = a_catalog()
    a_table(catalog)
    catalog.rename_table("shop.orders", "shop.sales")

    for name in ("__tables", "__snapshots"):
        assert catalog.system_table(name).column("table_name").to_pylist() == ["shop.sales"]


def test_damage_is_reported_and_never_listed() -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    table = a_table(catalog)
    objects.put(f"{table.stored.paths.manifest}/HEAD", b"damage")

    with pytest.raises(Corruption):
        a_catalog(objects, seed=1).system_table("__tables")
