"""Order columns and merge functions through Spark: the same table as every other writer makes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import neve
from neve import spark as ns
from neve.errors import InvalidArgument, SchemaMismatch
from neve.spark.source import NeveSource
from tests.spark.bulk_tables import NAME

FORMAT = NeveSource.name()
SCHEMA = {"id": "long", "lsn": "long", "v": "long", "text": "string"}
FEED = "op string, id long, lsn long, v long, text string"
ROWS = "id long, lsn long, v long, text string"
EVENTS = 1_500
KEYS = 120

Event = tuple[str, int, int, int | None, str | None]
Rows = dict[int, tuple[int, int, int | None, str | None]]


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(NeveSource)


def drawn(rng: Random) -> tuple[list[list[Event]], Rows]:
    """Draw a feed in chunks that come in any order, some of them twice, and its last rows."""
    model: Rows = {}
    feed: list[Event] = []
    for lsn in range(1, EVENTS):
        key = rng.randrange(KEYS)
        if rng.random() < 0.3:
            model.pop(key, None)
            feed.append(("d", key, lsn, None, None))
        else:
            model[key] = (key, lsn, rng.randrange(1_000), rng.choice([None, "a", "b"]))
            feed.append(("u", *model[key]))
    rng.shuffle(feed)
    chunks = [feed[at::3] for at in range(3)]
    return [*chunks, rng.choice(chunks)], model


def make_table(lake: Path, partition_by: Sequence[str] = (), **rules: object) -> None:
    with neve.open(lake) as catalog:
        catalog.create_table(NAME, SCHEMA, ["id"], partition_by=partition_by, **rules)  # type: ignore[arg-type]


def rows_of(lake: Path) -> Rows:
    with neve.open(lake) as catalog, catalog.table(NAME, read_only=True) as table:
        assert table.verify().is_sound
        found = table.scan().to_arrow().to_pylist()
    return {row["id"]: (row["id"], row["lsn"], row["v"], row["text"]) for row in found}


def by_apply(lake: Path, _tmp: Path) -> Callable[[DataFrame, int], None]:
    def write(df: DataFrame, _number: int) -> None:
        ns.apply(df, lake, NAME)

    return write


def by_batches(lake: Path, _tmp: Path) -> Callable[[DataFrame, int], None]:
    return ns.apply_batch(lake, NAME, app_id="feed")


def by_stream(lake: Path, tmp: Path) -> Callable[[DataFrame, int], None]:
    def write(df: DataFrame, number: int) -> None:
        source = tmp / f"chunk{number}"
        source.mkdir()
        pq.write_table(df.toArrow(), source / "part.parquet")
        stream = df.sparkSession.readStream.schema(FEED).parquet(str(source)).repartition(1)
        query = (
            stream.writeStream.format(FORMAT)
            .option("table", NAME)
            .option("op", "op")
            .option("app_id", f"sink{number}")
            .option("checkpointLocation", str(tmp / f"checkpoint{number}"))
            .trigger(availableNow=True)
            .start(str(lake))
        )
        query.awaitTermination()

    return write


@pytest.mark.parametrize(
    ("way", "partition_by"),
    [
        (by_apply, ("text",)),
        (by_batches, ("bucket(2, id)",)),
        (by_stream, ()),
    ],
)
def test_a_shuffled_feed_ends_with_the_newest_rows(
    way: Callable[[Path, Path], Callable[[DataFrame, int], None]],
    partition_by: Sequence[str],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    make_table(lake, partition_by, order_by=["lsn"])
    chunks, model = drawn(Random(hash(partition_by) % 97))
    write = way(lake, tmp_path)

    for number, chunk in enumerate(chunks):
        write(spark.createDataFrame(chunk, FEED), number)

    assert rows_of(lake) == model


def test_writes_of_every_kind_follow_the_order(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    make_table(lake, order_by=["lsn"])
    ns.upsert(spark.createDataFrame([(1, 5, 1, "a"), (2, 5, 2, "b")], ROWS), lake, NAME)

    ns.upsert(spark.createDataFrame([(1, 4, 9, "old"), (2, 6, 3, "new")], ROWS), lake, NAME)
    assert rows_of(lake) == {1: (1, 5, 1, "a"), 2: (2, 6, 3, "new")}

    ns.delete(spark.createDataFrame([(1,), (3,)], "id long"), lake, NAME)
    ns.upsert(spark.createDataFrame([(1, 4, 9, "old"), (3, 1, 3, "c")], ROWS), lake, NAME)
    assert rows_of(lake) == {2: (2, 6, 3, "new"), 3: (3, 1, 3, "c")}

    older, newer = [(2, 3, 7)], [(3, 2, 8)]
    partial = spark.createDataFrame([*older, *newer], "id long, lsn long, v long")
    ns.upsert(partial, lake, NAME, columns=["lsn", "v"])
    assert rows_of(lake) == {2: (2, 6, 3, "new"), 3: (3, 2, 8, "c")}

    merged = spark.createDataFrame([(2, 5, 0, "old"), (3, 9, 0, "new")], ROWS)
    ns.merge(merged, lake, NAME)
    assert rows_of(lake) == {2: (2, 6, 3, "new"), 3: (3, 9, 0, "new")}


def test_several_rows_of_a_key_are_ordered_by_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    make_table(lake, ("text",), order_by=["lsn", "v"])
    rows = [(1, 5, 1, "a"), (1, 5, 2, "b"), (1, 4, 9, "c")]

    ns.upsert(spark.createDataFrame(rows, ROWS), lake, NAME)

    assert rows_of(lake) == {1: (1, 5, 2, "b")}
    with pytest.raises(InvalidArgument, match="orders changes by"):
        ns.upsert(spark.createDataFrame(rows, ROWS), lake, NAME, order_by="v")
    with pytest.raises(InvalidArgument, match="not a column of the rows"):
        ns.upsert(spark.createDataFrame([(1, 1)], "id long, v long"), lake, NAME)
    with pytest.raises(SchemaMismatch, match="no value in order column"):
        ns.upsert(spark.createDataFrame([(1, None, 1, "a")], ROWS), lake, NAME)
    with pytest.raises(SchemaMismatch, match="lacks the order column"):
        ns.upsert(spark.createDataFrame(rows, ROWS), lake, NAME, columns=["text"])


@pytest.mark.parametrize("partition_by", [(), ("text",)])
def test_jobs_beside_a_live_writer_compare_both_ways(
    partition_by: Sequence[str], spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    make_table(lake, partition_by, order_by=["lsn"])
    with neve.open(lake) as catalog, catalog.table(NAME) as table:
        table.upsert([{"id": key, "lsn": 5, "v": 0, "text": "live"} for key in range(4)])
        job = [(0, 4, 1, "job"), (1, 6, 1, "job"), (2, 5, 1, "job")]
        ns.upsert(spark.createDataFrame(job, ROWS), lake, NAME)
        table.flush()
        found = {row["id"]: row["text"] for row in table.scan().to_arrow().to_pylist()}

    assert found == {0: "live", 1: "job", 2: "live", 3: "live"}
    assert {key: row[3] for key, row in rows_of(lake).items()} == found


@pytest.mark.parametrize("partition_by", [(), ("text",)])
def test_merge_functions_count_every_row_once(
    partition_by: Sequence[str], spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    rules = {"lsn": "max", "v": "sum", "text": "last_non_null"}
    make_table(lake, partition_by, merge=rules)
    rows = spark.createDataFrame([(1, 3, 10, "a"), (2, 1, 5, None)], ROWS)
    write = ns.upsert_batch(lake, NAME, app_id="sums")

    for batch in (0, 0, 1, 1):
        write(rows, batch)
    with neve.open(lake) as catalog, catalog.table(NAME) as table:
        table.put({"id": 1, "lsn": 1, "v": 100, "text": None})
        ns.upsert(rows, lake, NAME)
        table.flush()

    assert rows_of(lake) == {1: (1, 3, 130, "a"), 2: (2, 1, 15, None)}
    ns.upsert(spark.createDataFrame([(1, 7)], "id long, v long"), lake, NAME, columns=["v"])
    assert rows_of(lake)[1] == (1, 3, 137, "a")
    ns.overwrite_partitions(spark.createDataFrame([(1, 1, 1, "a")], ROWS), lake, NAME)
    assert rows_of(lake)[1] == (1, 1, 1, "a")


def test_rows_of_one_key_are_folded(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    make_table(lake, merge={"lsn": "max", "v": "sum", "text": "max"})
    many = spark.createDataFrame([(key % 7, key, 1, "x") for key in range(500)], ROWS)

    ns.upsert(many, lake, NAME)

    assert sum(row[2] or 0 for row in rows_of(lake).values()) == 500
    make_table(tmp_path / "other", merge={"v": "sum"})
    with pytest.raises(InvalidArgument, match="several rows of one key"):
        ns.upsert(many, tmp_path / "other", NAME)
    ns.upsert(many, tmp_path / "other", NAME, order_by="lsn")
    assert sum(row[2] or 0 for row in rows_of(tmp_path / "other").values()) == 500
