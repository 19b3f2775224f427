"""Clean-up on Spark leaves nothing published that reads files which are gone."""

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

import neve
from neve import spark as ns
from tests.interop.iceberg_walk import read_metadata, walk
from tests.unit.iceberg.published_lake import BY_HAND, SCHEMA


def test_a_table_published_on_demand_is_brought_up_to_date_before_its_files_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    with neve.open(tmp_path) as lake:
        options = replace(BY_HAND, iceberg_publish="demand")
        table = lake.create_table("shop.orders", SCHEMA, ["id"], options=options)
        table.upsert([{"id": 1, "name": "a"}, {"id": 2, "name": "a"}])
        table.flush()
        first = Path(table.iceberg_metadata().removeprefix("file://"))
        table.compact(full=True)
        table.delete(2)
        table.compact(full=True)
        table.expire(keep_last=1)
        table.close()

    assert ns.collect_garbage(spark, tmp_path, "shop.orders", dry_run=False).file_count > 0

    hint = first.with_name("version-hint.text").read_text()
    metadata = read_metadata(f"file://{first.with_name(f'v{hint}.metadata.json')}")
    rows = [walk(metadata, each["snapshot-id"]).rows({1: "id"}) for each in metadata["snapshots"]]
    assert [each.column("id").to_pylist() for each in rows] == [[1]]
