"""Whatever happened to a table, other engines read it as neve does, in both formats."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from random import Random

import pytest
from pyiceberg.table import StaticTable

import neve
from neve import TableOptions
from tests.interop.iceberg_history import SCHEMA, History
from tests.interop.iceberg_readers import (
    DuckDb,
    in_order,
    open_duckdb,
    read_polars,
    read_pyiceberg,
)
from tests.interop.published_versions import (
    PARTITIONS,
    check_head,
    check_versions,
    check_walk,
    rows_of,
)
from tests.property.test_row_lineage import LineageHistory
from tests.unit.iceberg.published_lake import BY_HAND


@pytest.fixture(scope="module")
def duckdb_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDb]:
    with open_duckdb(tmp_path_factory.mktemp("extensions")) as engine:
        yield engine


@pytest.mark.parametrize("format_version", [3, 2], ids=["v3", "v2"])
@pytest.mark.parametrize("partition_by", PARTITIONS.values(), ids=PARTITIONS)
@pytest.mark.parametrize("seed", range(2))
def test_every_reader_agrees_after_a_random_history(
    tmp_path: Path,
    duckdb_engine: DuckDb,
    seed: int,
    partition_by: list[str],
    format_version: int,
) -> None:
    history = History(tmp_path, seed=seed, format_version=format_version, partition_by=partition_by)
    readers = {"pyiceberg": read_pyiceberg, "duckdb": duckdb_engine.read, "polars": read_polars}
    for step in range(24):
        history.step()
        if step % 8 == 7:
            location = history.table.iceberg_metadata()
            check_walk(history.table, location)
            check_head(history.table, location, readers)
    check_versions(history.table, history.table.iceberg_metadata(), readers)
    history.close()


@pytest.mark.parametrize("seed", [5, 6])
def test_duckdb_finds_the_same_lineage_after_every_rewrite_and_hides_it(
    tmp_path: Path, duckdb_engine: DuckDb, seed: int
) -> None:
    history = LineageHistory(tmp_path, seed)
    lineage = "id, _row_id, _last_updated_sequence_number"
    for _ in range(20):
        history.step()
        if history.lineage:
            scan = f"iceberg_scan('{history.table.iceberg_metadata()}')"
            rows = duckdb_engine.query(f"FROM {scan} SELECT {lineage}").to_pylist()
            found = {row["id"]: (row["_row_id"], row["_last_updated_sequence_number"])
                     for row in rows}  # fmt: skip
            assert found == history.lineage
            names = duckdb_engine.query(f"FROM {scan} LIMIT 1").column_names
            assert names == history.table.schema.arrow_schema.names
    history.close()


@pytest.mark.parametrize("format_version", [3, 2], ids=["v3", "v2"])
def test_readers_agree_when_columns_take_the_names_of_former_partitions(
    tmp_path: Path, format_version: int
) -> None:
    history = History(
        tmp_path,
        seed=30 + format_version,
        format_version=format_version,
        partition_by=["name"],
        replaces_sources=True,
    )
    # DuckDB refuses tables that have lost a column of former partitions.
    readers = {"pyiceberg": read_pyiceberg, "polars": read_polars}
    for step in range(24):
        history.step()
        if step % 8 == 7:
            location = history.table.iceberg_metadata()
            check_walk(history.table, location)
            check_head(history.table, location, readers)
    check_versions(history.table, history.table.iceberg_metadata(), readers)
    history.close()


def test_duckdb_reads_a_table_whose_column_has_the_name_of_a_former_partition(
    tmp_path: Path, duckdb_engine: DuckDb
) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table(
            "shop.orders", SCHEMA, ["id"], partition_by=["name"], options=BY_HAND
        )
        table.upsert([{"id": 1, "name": "a", "small": 7}])
        table.flush()
        with table.evolve() as change:
            change.set_partition_by(["small"])
            change.rename_column("name", "called")
            change.add_column("name", "long")
        table.upsert([{"id": 2, "name": 5, "small": 8}])
        table.flush()
        location = table.iceberg_metadata()

        assert duckdb_engine.read(location, None) == rows_of(table)
        found = duckdb_engine.query(f"SELECT id FROM iceberg_scan('{location}') WHERE name = 5")
        assert found.to_pylist() == [{"id": 2}]
        table.close()


def test_duckdb_reads_the_vectors_of_one_commit_in_whatever_order_they_are_listed(
    tmp_path: Path, duckdb_engine: DuckDb
) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table("shop.orders", SCHEMA, ["id"], options=BY_HAND)
        # Names of directories lie among those of files, so vectors of two specs take turns.
        for number in range(16):
            with table.evolve() as change:
                change.set_partition_by(["day"] if number % 2 else [])
            day = date(2024, 1, 1)
            table.upsert(
                [{"id": number * 10 + each, "day": day, "small": each} for each in range(10)]
            )
            table.flush()
        table.delete_many([number * 10 + number % 10 for number in range(16)])
        table.flush()

        assert duckdb_engine.read(table.iceberg_metadata(), None) == rows_of(table)
        table.close()


def test_duckdb_with_its_file_cache_reads_the_vectors_of_a_table_with_one_spec(
    tmp_path: Path, duckdb_engine: DuckDb
) -> None:
    dice = Random(7)
    duckdb_engine.connection.execute("SET enable_external_file_cache=true")
    with neve.open(tmp_path) as lake:
        table = lake.create_table("shop.orders", SCHEMA, ["id"], options=BY_HAND)
        for number in range(12):
            table.upsert([{"id": number * 100 + each} for each in range(100)])
            table.flush()
        for _ in range(3):
            table.delete_many(dice.sample(range(1_200), 150))
            table.flush()
            assert duckdb_engine.read(table.iceberg_metadata(), None) == rows_of(table)
        table.close()
    duckdb_engine.connection.execute("SET enable_external_file_cache=false")


def test_a_location_that_a_uri_would_escape_is_read(tmp_path: Path, duckdb_engine: DuckDb) -> None:
    with neve.open(tmp_path / "mein see ü%20") as lake:
        table = lake.create_table(
            "shop.orders",
            SCHEMA,
            ["id"],
            partition_by=["name"],
            options=TableOptions(background=False),
        )
        names = ["a b", "ü/=", "%41", None]
        table.upsert([{"id": key, "name": names[key % 4]} for key in range(8)])
        table.flush()
        table.delete_many([1, 2])
        table.flush()
        location = table.iceberg_metadata()

        assert read_pyiceberg(location, None) == rows_of(table)
        assert duckdb_engine.read(location, None) == rows_of(table)
        table.close()


def test_filters_of_others_prune_and_lose_no_row(tmp_path: Path, duckdb_engine: DuckDb) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table(
            "shop.orders",
            SCHEMA,
            ["id"],
            partition_by=["day"],
            options=TableOptions(background=False),
        )
        for number in range(4):
            day = date(2024, 1, 1 + number)
            table.upsert([{"id": number * 10 + n, "day": day, "small": n} for n in range(10)])
            table.flush()
        with table.evolve() as change:
            change.widen_column("small", "long")
        table.upsert([{"id": 7, "day": date(2024, 1, 1), "small": 1 << 40}])
        table.flush()
        static = StaticTable.from_metadata(table.iceberg_metadata())

        scan = static.scan(row_filter="small > 8 and day <= '2024-01-02'")
        assert [row["id"] for row in in_order(scan.to_arrow())] == [7, 9, 19]
        assert len(list(scan.plan_files())) < 5
        found = duckdb_engine.query(
            f"SELECT id FROM iceberg_scan('{table.iceberg_metadata()}') WHERE small > 8"
        )
        assert [row["id"] for row in in_order(found)] == [7, 9, 19, 29, 39]
        table.close()
