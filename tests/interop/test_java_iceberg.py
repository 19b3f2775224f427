"""Java Iceberg reads every published Version as neve does, in both formats."""

from pathlib import Path

import pytest

import neve
from tests.interop.iceberg_history import SCHEMA, History
from tests.interop.java_iceberg import JavaIceberg
from tests.interop.published_versions import PARTITIONS, check_head, check_versions, rows_of
from tests.property.test_row_lineage import LineageHistory
from tests.unit.iceberg.published_lake import BY_HAND

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    # PySpark leaves the closing of its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_it_is_the_reference_reader(java: JavaIceberg) -> None:
    assert java.version.startswith("1.10.")


@pytest.mark.parametrize("format_version", [3, 2], ids=["v3", "v2"])
@pytest.mark.parametrize("partition_by", PARTITIONS.values(), ids=PARTITIONS)
def test_java_iceberg_agrees_after_a_random_history(
    tmp_path: Path, java: JavaIceberg, partition_by: list[str], format_version: int
) -> None:
    seed = 10 * format_version + len(partition_by)
    history = History(tmp_path, seed=seed, format_version=format_version, partition_by=partition_by)
    for step in range(16):
        history.step()
        if step % 8 == 7:
            check_head(history.table, history.table.iceberg_metadata(), {"java": java.read})
    check_versions(history.table, history.table.iceberg_metadata(), {"java": java.read})
    history.close()


@pytest.mark.parametrize("format_version", [3, 2], ids=["v3", "v2"])
def test_java_iceberg_agrees_when_columns_take_the_names_of_former_partitions(
    tmp_path: Path, java: JavaIceberg, format_version: int
) -> None:
    history = History(
        tmp_path,
        seed=40 + format_version,
        format_version=format_version,
        partition_by=["name"],
        replaces_sources=True,
    )
    for step in range(16):
        history.step()
        if step % 4 == 3:
            check_head(history.table, history.table.iceberg_metadata(), {"java": java.read})
    check_versions(history.table, history.table.iceberg_metadata(), {"java": java.read})
    history.close()


def test_java_iceberg_finds_the_row_ids_that_were_given_out(
    tmp_path: Path, java: JavaIceberg
) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table("shop.orders", SCHEMA, ["id"], options=BY_HAND)
        for keys in ([1, 2, 3], [2, 4], [5]):
            table.upsert([{"id": key} for key in keys])
            table.flush()
        table.delete(3)
        table.flush()

        lineage = java.read_lineage(table.iceberg_metadata())

        found = {row["id"]: (row["_row_id"], row["_last_updated_sequence_number"])
                 for row in lineage}  # fmt: skip
        assert found == {1: (0, 2), 2: (3, 3), 4: (4, 3), 5: (5, 4)}
        table.close()


@pytest.mark.parametrize("seed", [7, 8])
def test_java_iceberg_finds_the_same_lineage_after_every_rewrite(
    tmp_path: Path, java: JavaIceberg, seed: int
) -> None:
    history = LineageHistory(tmp_path, seed)
    for _ in range(20):
        history.step()
        if history.lineage:
            rows = java.read_lineage(history.table.iceberg_metadata())
            found = {row["id"]: (row["_row_id"], row["_last_updated_sequence_number"])
                     for row in rows}  # fmt: skip
            assert found == history.lineage
    history.close()


def test_java_iceberg_reads_a_location_that_a_uri_would_escape(
    tmp_path: Path, java: JavaIceberg
) -> None:
    with neve.open(tmp_path / "mein see ü%20") as lake:
        table = lake.create_table(
            "shop.orders", SCHEMA, ["id"], partition_by=["name"], options=BY_HAND
        )
        names = ["a b", "ü/=", "%41", None]
        table.upsert([{"id": key, "name": names[key % 4]} for key in range(8)])
        table.flush()
        table.delete_many([1, 2])
        table.flush()

        assert java.read(table.iceberg_metadata(), None) == rows_of(table)
        table.close()
