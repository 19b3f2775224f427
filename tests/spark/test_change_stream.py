"""`spark.readStream.format("neve")`: every change once, in batches of Versions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

import neve
from neve.spark.change_stream import ChangeStreamReader, divided
from neve.spark.source import NeveSource
from tests.spark.spark_rows import plain

QUIET: Final = neve.TableOptions(background=False)
ID: Final = pa.field("id", pa.int64(), nullable=False)
FEED: Final = ("_change_type", "_commit_version", "_commit_timestamp")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[neve.Catalog]:
    with neve.open(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def orders(lake: neve.Catalog) -> neve.Table:
    fields = [pa.field("city", pa.string()), pa.field("ref", pa.uuid())]
    return lake.create_table("shop.orders", pa.schema([ID, *fields]), ["id"], options=QUIET)


def write_some(orders: neve.Table, rounds: range) -> None:
    """Make one Version in each round: rows come, are overwritten, and go."""
    for n in rounds:
        orders.upsert([{"id": id_, "city": f"c{n}"} for id_ in range(n, n + 4)])
        orders.delete(n)
        orders.flush()


def told(rows: pa.Table) -> list[tuple[object, ...]]:
    """Return changes in an order that does not depend on who read them."""
    names = sorted(rows.column_names)
    return sorted(tuple(plain(row[name]) for name in names) for row in rows.to_pylist())


def source_of(lake: neve.Catalog, **options: str) -> NeveSource:
    return NeveSource({"path": lake.location, "table": "shop.orders", **options})


def stream_of(spark: SparkSession, lake: neve.Catalog, **options: object) -> DataFrame:
    reader = spark.readStream.format("neve").option("table", "shop.orders")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(lake.location)


def run_to_the_end(stream: DataFrame, folder: Path) -> int:
    """Append what there is now to a directory of Parquet files; gives the number of batches."""
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return sum(1 for progress in query.recentProgress if progress.numInputRows)


def test_a_stream_gives_each_change_once_and_goes_on_where_it_ended(
    spark: SparkSession, lake: neve.Catalog, orders: neve.Table, tmp_path: Path
) -> None:
    write_some(orders, range(5))
    options = {"since": 0, "maxVersionsPerTrigger": 2}

    first = run_to_the_end(stream_of(spark, lake, **options), tmp_path)
    write_some(orders, range(5, 7))
    second = run_to_the_end(stream_of(spark, lake, **options), tmp_path)

    # Versions 1 (empty) to 6 in twos, then 7 and 8.
    assert (first, second) == (3, 1)
    written = spark.read.parquet(str(tmp_path / "out")).toArrow()
    expected = orders.changes(0).read_all()
    assert told(written) == told(expected)


def test_changes_are_read_in_a_batch_too(
    spark: SparkSession, lake: neve.Catalog, orders: neve.Table
) -> None:
    write_some(orders, range(4))
    place = {"path": lake.location, "table": "shop.orders"}

    found = spark.read.format("neve").options(**place, since=2, version=4).load()
    city = spark.read.format("neve").options(**place, since=0, columns="city").load()

    assert told(found.toArrow()) == told(orders.changes(2, 4).read_all())
    assert city.columns == ["city", *FEED]
    assert city.count() == orders.changes(0).read_all().num_rows


def test_offsets_are_versions_and_batches_are_bounded(
    lake: neve.Catalog, orders: neve.Table
) -> None:
    write_some(orders, range(5))
    source = source_of(lake, since="1", maxVersionsPerTrigger="3")
    reader = source.streamReader(source.schema())
    assert isinstance(reader, ChangeStreamReader)
    limit = reader.getDefaultReadLimit()

    begun = reader.initialOffset()
    one = reader.latestOffset(begun, limit)
    reader.prepareForTriggerAvailableNow()
    write_some(orders, range(5, 6))
    two = reader.latestOffset(one, limit)
    everything = reader.latestOffset(begun, ReadAllAvailable())

    assert limit == ReadMaxFiles(3)
    assert (begun, one, two) == ({"version": 1}, {"version": 4}, {"version": 6})
    assert everything == {"version": 6}
    assert reader.reportLatestOffset() == {"version": 7}
    assert reader.partitions(two, two) == []
    reader.stop()


def test_a_stream_keeps_the_history_it_has_still_to_read(
    lake: neve.Catalog, orders: neve.Table
) -> None:
    write_some(orders, range(3))
    happened = orders.changes(0).read_all().num_rows
    source = source_of(lake, since="0")
    reader = source.streamReader(source.schema())
    begun = reader.initialOffset()
    end = reader.latestOffset(begun, ReadAllAvailable())

    orders.expire(keep_last=1)
    rows = sum(
        batch.num_rows
        for each in reader.partitions(begun, end)
        for batch in reader.read(each)
        if isinstance(batch, pa.RecordBatch)
    )
    reader.commit(end)
    orders.expire(keep_last=1)

    assert rows == happened
    with pytest.raises(neve.NotFound, match="expired"):
        orders.changes(0)
    reader.stop()


def test_history_that_is_gone_is_told_before_a_job_starts(
    lake: neve.Catalog, orders: neve.Table
) -> None:
    write_some(orders, range(3))
    orders.expire(keep_last=1)
    source = source_of(lake, since="0")

    with pytest.raises(neve.NotFound, match="since=4"):
        source.streamReader(source.schema()).latestOffset({"version": 0}, ReadAllAvailable())


def test_new_columns_end_a_stream_that_goes_on_with_them_when_started_again(
    spark: SparkSession, lake: neve.Catalog, orders: neve.Table, tmp_path: Path
) -> None:
    write_some(orders, range(2))
    stream = stream_of(spark, lake, since=0)
    with orders.evolve() as e:
        e.add_column("note", "string", default="none")
    write_some(orders, range(2, 3))

    with pytest.raises(StreamingQueryException, match="SchemaMismatch"):
        run_to_the_end(stream, tmp_path)
    run_to_the_end(stream_of(spark, lake, since=0), tmp_path)

    written = spark.read.parquet(str(tmp_path / "out")).toArrow()
    assert told(written) == told(orders.changes(0).read_all())


@pytest.mark.usefixtures("orders")
def test_a_stream_that_does_not_say_where_it_begins_is_refused(lake: neve.Catalog) -> None:
    source = source_of(lake)

    with pytest.raises(neve.InvalidArgument, match="since"):
        source.streamReader(source.schema())


@pytest.mark.parametrize(("since", "until"), [(0, 1), (3, 3), (0, 8), (0, 9), (5, 105)])
def test_versions_are_divided_without_gaps(since: int, until: int) -> None:
    parts = divided(since, until)

    covered = [
        n
        for part in parts
        for n in range(getattr(part, "since"), getattr(part, "until"))  # noqa: B009
    ]
    assert covered == list(range(since, until))
    assert len(parts) <= 8
