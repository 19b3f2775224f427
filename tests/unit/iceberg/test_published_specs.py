"""Partition fields are published under names that no column and no other field has."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from neve.cli.table_report import definition_json
from neve.iceberg.schema_document import spec_documents
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from tests.unit.iceberg.published_lake import PublishedLake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[PublishedLake]:
    made = PublishedLake(tmp_path)
    with made.table.evolve() as e:
        e.add_column("p", "string")
        e.add_column("x", "int")
    yield made
    made.close()


def names(document: dict[str, Any]) -> dict[int, list[str]]:
    return {
        spec["spec-id"]: [field["name"] for field in spec["fields"]]
        for spec in document["partition-specs"]
    }


def put(lake: PublishedLake, key: int, **values: object) -> None:
    lake.table.put({"id": key, **values})
    lake.table.flush()


@pytest.mark.parametrize("is_renamed", [False, True], ids=["dropped", "renamed"])
@pytest.mark.parametrize(
    ("field", "column"), [("p", "p"), ("bucket(3, p)", "p_bucket"), ("truncate(3, p)", "p_trunc")]
)
def test_a_former_field_gives_way_to_a_column_that_takes_its_name(
    lake: PublishedLake, field: str, column: str, is_renamed: bool
) -> None:
    with lake.table.evolve() as e:
        e.set_partition_by([field])
    put(lake, 1, p="a", x=7)
    assert names(lake.document()) == {0: [], 1: [column]}

    with lake.table.evolve() as e:
        e.set_partition_by(["x"])
        if is_renamed:
            e.rename_column("p", "q")
        else:
            e.drop_column("p")
        e.add_column(column, "long")
    put(lake, 2, x=8, **{column: 5})

    assert names(lake.document()) == {0: [], 1: [f"{column}_1000"], 2: ["x"]}


def test_of_two_fields_with_one_name_the_present_one_keeps_it(lake: PublishedLake) -> None:
    with lake.table.evolve() as e:
        e.set_partition_by(["bucket(3, p)"])
    put(lake, 1, p="a")
    with lake.table.evolve() as e:
        e.set_partition_by([])
        e.drop_column("p")
    with lake.table.evolve() as e:
        e.add_column("p", "long")
        e.set_partition_by(["bucket(3, p)"])
    put(lake, 2, p=5)

    assert names(lake.document()) == {0: [], 1: ["p_bucket_1000"], 2: ["p_bucket"]}


def test_a_name_may_grow_beyond_what_a_spec_allows() -> None:
    long = "p" * 244
    columns: dict[str, pa.DataType] = {"id": pa.int64(), long: pa.string()}
    schema = TableSchema.from_arrow(pa.schema(columns), primary_key=["id"])
    spec = PartitionSpec.parse([f"truncate(3, {long})"], schema)
    taken = {**columns, f"{long}_trunc": pa.string(), f"{long}_trunc_1000": pa.string()}
    later = TableSchema.from_arrow(pa.schema(taken), primary_key=["id"])

    (document,) = spec_documents([spec], later).values()

    (field,) = json.loads(json.dumps(document))["fields"]
    assert field["name"] == f"{long}_trunc_1000_1000"


def test_a_partition_whose_column_was_widened_is_told_of_once(lake: PublishedLake) -> None:
    with lake.table.evolve() as e:
        e.set_partition_by(["x"])
    put(lake, 1, x=7)
    with lake.table.evolve() as e:
        e.widen_column("x", "long")
    put(lake, 2, x=7)
    (partition,) = cast("list[dict[str, Any]]", definition_json(lake.table._open)["partitions"])
    assert (partition["values"], partition["files"]) == ({"x": "7"}, 2)

    lake.table.compact(full=True)

    summary = lake.document()["snapshots"][-1]["summary"]
    assert (summary["deleted-data-files"], summary["changed-partition-count"]) == ("2", "1")
