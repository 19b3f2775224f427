"""Tables and scans as Arrow datasets, for engines that push columns and filters down."""

import math
import pickle
from collections.abc import Iterator

import duckdb
import polars as pl
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest

import neve
from neve import InvalidArgument
from neve.storage.memory_store import forget_memory_stores

ROWS: list[dict[str, object]] = [
    {"id": 1, "f": math.nan, "s": "a"},
    {"id": 2, "f": 2.0, "s": None},
    {"id": 3, "f": None, "s": "b"},
    {"id": 4, "f": -0.0, "s": "c"},
]


@pytest.fixture
def table() -> Iterator[neve.Table]:
    with neve.open("memory://dataset") as lake:
        table = lake.create_table(
            "a.b", {"id": "long", "f": "double", "s": "string"}, primary_key="id"
        )
        table.upsert(ROWS[:2])
        table.flush()
        table.upsert(ROWS[2:])
        yield table
    forget_memory_stores()


def test_a_table_is_a_dataset(table: neve.Table) -> None:
    dataset = table.dataset()

    assert isinstance(dataset, pads.Dataset)
    assert dataset.schema.names == ["id", "f", "s"]
    assert dataset.count_rows() == 4
    assert dataset.to_table(columns=["s"], filter=pc.field("id") > 3).to_pydict() == {"s": ["c"]}
    assert dataset.filter(pc.field("id") > 2).count_rows(filter=pc.field("id") < 4) == 1
    assert dataset.head(2).num_rows == 2
    table.delete(1)
    assert dataset.count_rows() == 3  # as of each run


@pytest.mark.parametrize(
    "asked",
    [
        pc.field("f") > 1.0,
        pc.field("f") != 2.0,
        ~(pc.field("f") < 1.0),
        pc.field("f").is_nan(),
        pc.field("f").isin([0.0, math.nan]),
        pc.field("id").isin([1, 4]) | pc.field("s").is_null(),
        pc.starts_with(pc.field("s"), "a"),
        pc.field("id") + 1 == 3,
        pc.scalar(True),
    ],
    ids=str,
)
def test_a_filter_means_what_arrow_means(table: neve.Table, asked: pc.Expression) -> None:
    plain = pads.dataset(table.scan().to_arrow())

    found = table.dataset().to_table(filter=asked).sort_by("id")

    assert found.column("id").equals(plain.to_table(filter=asked).sort_by("id").column("id"))


def test_duckdb_and_polars_read_it(table: neve.Table) -> None:
    dataset = table.dataset()  # noqa: F841 - DuckDB finds it
    orders = table  # noqa: F841
    scan = table.scan("id < 3")  # noqa: F841

    assert duckdb.sql("select s from dataset where id = 3").fetchall() == [("b",)]
    assert duckdb.sql("select count(*) from orders").fetchall() == [(4,)]
    assert duckdb.sql("select count(*) from scan").fetchall() == [(2,)]
    lazy = pl.scan_pyarrow_dataset(table.dataset()).filter(pl.col("id") > 2).select("s")
    assert lazy.collect()["s"].to_list() == ["b", "c"]


def test_snapshots_and_scans_are_datasets_too(table: neve.Table) -> None:
    with table.snapshot() as snapshot:
        frozen = snapshot.dataset()
        table.delete(1)
        assert frozen.count_rows() == 4
    assert table.scan("id > 2").dataset().count_rows(filter=pc.field("s") == "b") == 1
    assert table.scan(columns=["s"]).dataset().schema.names == ["s"]
    assert (
        table.scan(limit=2, key_range=(None, None))
        .dataset()
        .to_table(filter=pc.field("id") > 2)
        .num_rows
        == 1
    )


def test_what_arrow_would_do_itself_is_refused(table: neve.Table) -> None:
    dataset = table.dataset()

    for refused in (
        lambda: dataset.join(dataset, "id"),
        lambda: dataset.sort_by("id"),
        lambda: list(dataset.get_fragments()),
        lambda: dataset.replace_schema(dataset.schema),
        lambda: dataset.scanner(columns={"x": pc.field("id")}),
        lambda: pickle.dumps(dataset),
    ):
        with pytest.raises(InvalidArgument):
            refused()
    with pytest.raises(FileNotFoundError, match="ScanDataset of neve"):
        pads.Scanner.from_dataset(dataset).to_table()
