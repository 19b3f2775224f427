"""DataFusion, with Iceberg's Rust implementation, reads every published Version as neve does.

It knows a table by its document and reads that one's current snapshot, so an old Version is read
from the document of its own. It wants all columns of the table in the schema of that snapshot: from
a change of columns to the next commit of rows it refuses the table.
"""

import json
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

import neve
from tests.interop.iceberg_history import SCHEMA, History
from tests.interop.iceberg_readers import Rows, in_order
from tests.interop.iceberg_walk import Record, read_metadata
from tests.interop.published_versions import PARTITIONS, rows_of
from tests.unit.iceberg.published_lake import BY_HAND

datafusion = pytest.importorskip("datafusion", reason="DataFusion is not installed")
pytest.importorskip("pyiceberg_core", reason="Iceberg's Rust implementation is not installed")


def read_datafusion(location: str) -> Rows:
    """Read the current snapshot of a document."""
    context = datafusion.SessionContext()
    context.register_table("published", StaticTable.from_metadata(location))
    return in_order(context.sql("SELECT * FROM published").to_arrow_table())


def lacks_columns(metadata: Record) -> bool:
    """Whether the table has columns that its current snapshot was written without."""
    names = {
        schema["schema-id"]: {field["name"] for field in schema["fields"]}
        for schema in metadata["schemas"]
    }
    current = metadata["current-snapshot-id"]
    snapshot = next(each for each in metadata["snapshots"] if each["snapshot-id"] == current)
    return not names[metadata["current-schema-id"]] <= names[snapshot["schema-id"]]


@pytest.mark.parametrize("format_version", [3, 2], ids=["v3", "v2"])
@pytest.mark.parametrize("partition_by", PARTITIONS.values(), ids=PARTITIONS)
def test_datafusion_agrees_after_a_random_history_or_refuses(
    tmp_path: Path, partition_by: list[str], format_version: int
) -> None:
    seed = 20 + len(partition_by)
    history = History(tmp_path, seed=seed, format_version=format_version, partition_by=partition_by)
    read = 0
    for step in range(24):
        history.step()
        if step % 3:
            continue
        table = history.table
        location = table.iceberg_metadata()
        metadata = read_metadata(location)
        if not metadata["snapshots"]:
            continue
        if lacks_columns(metadata):
            with pytest.raises(Exception, match="not found in table"):
                read_datafusion(location)
            continue
        read += 1
        assert read_datafusion(location) == rows_of(table)
    assert read > 3
    retained = set(history.table.history().column("version").to_pylist())
    folder = Path(history.table.iceberg_metadata().removeprefix("file://")).parent
    for path in folder.glob("v*.metadata.json"):
        metadata = json.loads(path.read_bytes())
        number = int(metadata["properties"]["neve.version"])
        if number in retained and metadata["snapshots"] and not lacks_columns(metadata):
            assert read_datafusion(path.as_uri()) == rows_of(history.table, number), number
    history.close()


def test_datafusion_reads_a_table_again_when_rows_follow_a_new_column(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table("shop.orders", SCHEMA, ["id"], options=BY_HAND)
        table.upsert([{"id": 1}, {"id": 2}])
        table.flush()
        with table.evolve() as change:
            change.add_column("note", "string")
        with pytest.raises(Exception, match="Column note not found in table"):
            read_datafusion(table.iceberg_metadata())

        table.put({"id": 2, "note": "new"})
        table.flush()

        assert read_datafusion(table.iceberg_metadata()) == rows_of(table)
        table.close()
