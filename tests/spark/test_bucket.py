"""Spark on a lake in a bucket, from pip alone: no file system of Java's, only neve's own client.

The store is SeaweedFS, which checks credentials. Load, merge, apply and batches of streams are in
`test_cluster`, on a cluster that shares nothing but such a bucket.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import neve
from neve import spark as ns
from neve.errors import InvalidArgument, NotFound, Unavailable
from neve.spark.job_site import TableSite
from neve.spark.read_plan import TableAddress
from neve.spark.reading import _way
from neve.testing.s3_servers import S3Endpoint, seaweedfs
from tests.spark.bulk_tables import DDL, NAME, SCHEMA
from tests.spark.spark_rows import Row, rows_of

pytestmark = pytest.mark.s3

ROWS = 1_000
DETAIL = "spark.sql.ui.explainMode"


@pytest.fixture(scope="module")
def seaweed() -> Iterator[S3Endpoint]:
    with seaweedfs() as at:
        yield at


@pytest.fixture
def options(seaweed: S3Endpoint) -> dict[str, str]:
    return seaweed.storage_options(listing="unordered", patience_seconds="5")


@pytest.fixture
def location(seaweed: S3Endpoint, options: dict[str, str]) -> str:
    """Make a lake with one table: several files, some of them with a vector."""
    place = seaweed.location(f"lakes/{uuid4()}")
    with neve.open(place, storage_options=options) as lake:
        table = lake.create_table(NAME, SCHEMA, ["id"], partition_by=["text"])
        table.upsert([{"id": n, "v": n, "text": f"p{n % 2}"} for n in range(ROWS)])
        table.flush()
        table.upsert([{"id": n, "v": -n, "text": f"p{n % 2}"} for n in range(0, ROWS, 10)])
        table.delete_many(list(range(5, 20)))
        table.flush()
    return place


def embedded(location: str, options: dict[str, str], version: int | None = None) -> list[Row]:
    with (
        neve.open(location, storage_options=options, read_only=True) as lake,
        lake.table(NAME) as table,
    ):
        rows = table if version is None else table.at(version=version)
        return rows_of(rows.scan().to_arrow())


def with_options(builder: Any, options: dict[str, str]) -> Any:  # noqa: ANN401 - four kinds of Spark's
    """Name the table and the storage options of a read or write of format neve."""
    builder = builder.option("table", NAME)
    for name, value in options.items():
        builder = builder.option(f"storage.{name}", value)
    return builder


def test_reads_go_through_python_and_say_so(
    spark: SparkSession,
    location: str,
    options: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "neve.spark.reading"):
        frame = ns.read(spark, location, NAME, storage_options=options)
    text = str(ns.explain(spark, location, NAME, storage_options=options))
    some = ns.read(
        spark, location, NAME, columns=["v"], filter="id >= 990", storage_options=options
    )

    expected = embedded(location, options)
    assert rows_of(frame) == expected
    assert sorted(row.v for row in some.collect()) == sorted(
        int(str(row["v"])) for row in expected if int(str(row["id"])) >= 990
    )
    first = ns.read(spark, location, NAME, version=2, storage_options=options)
    assert rows_of(first) == embedded(location, options, version=2)
    assert "through python table=a.b" in caplog.text
    assert text.startswith("read of version 3 through Python\n  because    the storage options")
    assert "neve_files" in frame._jdf.queryExecution().toString()


@pytest.mark.parametrize(
    "place",
    [
        "s3://looks/lake",
        "s3a://looks/lake",
        "gs://looks/lake",
        "abfss://looks@a.dfs.core.windows.net",
    ],
)
def test_spark_is_asked_whether_it_can_open_a_bucket(spark: SparkSession, place: str) -> None:
    # Without the classes nothing is sent.
    way = _way(spark, TableAddress.of(place, NAME), None)

    assert way.through == "Python"
    assert "ClassNotFound" in way.reason or "No FileSystem" in way.reason


def test_a_native_read_of_a_bucket_without_its_classes_is_refused(
    spark: SparkSession, location: str, options: dict[str, str]
) -> None:
    with pytest.raises(Unavailable, match="S3AFileSystem") as failed:
        ns.read(spark, location, NAME, native=True, storage_options=options)
    with pytest.raises(InvalidArgument, match="native="):
        ns.read(spark, location, NAME, native="yes", storage_options=options)  # type: ignore[arg-type]

    assert "Leave native out" in (failed.value.hint or "")
    assert options["secret_access_key"] not in str(failed.value)


def test_rows_that_only_the_log_in_the_bucket_has_are_read_fresh(
    spark: SparkSession, location: str, options: dict[str, str]
) -> None:
    quiet = neve.TableOptions(background=False)
    with (
        neve.open(location, storage_options=options) as lake,
        lake.table(NAME, options=quiet) as table,
    ):
        table.upsert([{"id": n, "v": 7, "text": "p1"} for n in (1, 3, ROWS + 1)])
        table.delete(21)

        fresh = ns.read(spark, location, NAME, fresh=True, storage_options=options)
        assert rows_of(fresh) == rows_of(table.scan().to_arrow())


def test_writes_streams_and_upkeep(
    spark: SparkSession, tmp_path: Path, location: str, options: dict[str, str]
) -> None:
    model = {int(str(row["id"])): row for row in embedded(location, options)}

    # A source of Spark's that writes and reads itself.
    rows = spark.range(0, 10).selectExpr("id", "id * 3 as v", "concat('p', id % 2) as text")
    with_options(rows.write.format("neve"), options).mode("append").save(location)
    model |= {n: {"id": n, "v": n * 3, "text": f"p{n % 2}"} for n in range(10)}
    source = with_options(spark.read.format("neve"), options).load(location)
    assert rows_of(source.where("id < 30")) == by_id(model, below=30)

    # Deletes, and partitions.
    ns.delete(spark.range(30, 60), location, NAME, storage_options=options)
    model = {n: row for n, row in model.items() if not 30 <= n < 60}
    ns.overwrite_partitions(
        spark.createDataFrame([(5_000, 1, "p1")], DDL), location, NAME, storage_options=options
    )
    model = {n: row for n, row in model.items() if row["text"] != "p1"}
    model[5_000] = {"id": 5_000, "v": 1, "text": "p1"}
    assert embedded(location, options) == by_id(model)

    # A stream into it; one out of it is in `test_cluster`.
    pq.write_table(pa.table({"id": [7], "v": [7], "text": ["p1"]}), tmp_path / "some.parquet")
    stream = spark.readStream.schema(DDL).parquet(f"{tmp_path}/*.parquet")
    query = (
        with_options(stream.writeStream.format("neve"), options)
        .option("path", location)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    model[7] = {"id": 7, "v": 7, "text": "p1"}
    assert options["secret_access_key"] not in str(query.recentProgress)

    ns.compact(spark, location, NAME, full=True, storage_options=options)
    ns.expire(location, NAME, keep_last=1, storage_options=options)
    ns.collect_garbage(spark, location, NAME, dry_run=False, storage_options=options)
    assert ns.verify(spark, location, NAME, storage_options=options).row_count == len(model)
    assert rows_of(ns.read(spark, location, NAME, storage_options=options)) == by_id(model)

    # From elsewhere into the bucket.
    ns.migrate(
        spark,
        tmp_path / "some.parquet",
        location,
        "a.moved",
        primary_key=["id"],
        storage_options=options,
    )
    moved = ns.read(spark, location, "a.moved", storage_options=options)
    assert rows_of(moved) == [{"id": 7, "v": 7, "text": "p1"}]


def by_id(model: dict[int, Row], *, below: int = 1 << 60) -> list[Row]:
    return [model[n] for n in sorted(model) if n < below]


def test_no_secret_shows_in_plans_texts_logs_or_errors(
    spark: SparkSession,
    location: str,
    options: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    rows = spark.createDataFrame([(1, 1, "p1")], DDL)
    # Not of py4j, which logs every call at DEBUG.
    with caplog.at_level(logging.DEBUG, "neve"), caplog.at_level(logging.INFO):
        read = ns.read(spark, location, NAME, storage_options=options)
        source = with_options(spark.read.format("neve"), options).load(location)
        read.explain(mode="extended")
        source.where("id = 1").explain(mode="formatted")
        source.where("id = 1").explain(mode="extended")
        texts = [
            str(ns.explain(spark, location, NAME, storage_options=options)),
            repr(TableAddress.of(location, NAME, options)),
            repr(
                TableSite(location=location, table_id="1", storage_options=tuple(options.items()))
            ),
        ]
        read.createOrReplaceTempView("some_rows")
        texts += [
            repr(row) for row in spark.sql("explain extended select * from some_rows").collect()
        ]
        texts += [str(frame._jdf.queryExecution()) for frame in (read, source)]
        ns.upsert(rows, location, NAME, storage_options=options)
        # As detailed as Spark's pages can be: with the logical plans, which have the options.
        spark.conf.set(DETAIL, "extended")
        with_options(rows.write.format("neve"), options).mode("append").save(location)
        spark.conf.unset(DETAIL)
        texts += described_jobs(spark)
        for bad in (rows.selectExpr("id", "v", "5 as text"), rows.union(rows)):
            with pytest.raises(neve.NeveError) as failed:
                ns.upsert(bad, location, NAME, storage_options=options)
            texts.append(repr(failed.value) + str(failed.value))
    printed = capfd.readouterr()
    texts += [caplog.text, printed.out, printed.err]

    assert "PythonMapInArrow" in printed.out or "MapInArrow" in printed.out
    for text in texts:
        assert options["secret_access_key"] not in text
        assert options["access_key_id"] not in text


def described_jobs(spark: SparkSession) -> list[str]:
    """Return what Spark's pages show of all that it ran, whether there are pages or not."""
    store = spark._jsparkSession.sharedState().statusStore()
    ran = store.executionsList()
    described = [ran.apply(place) for place in range(ran.size())]
    texts = [f"{each.description()} {each.physicalPlanDescription()}" for each in described]
    assert any("storage.access_key_id=***" in text for text in texts)
    return texts


def test_wrong_credentials_and_missing_buckets_are_typed_on_the_driver(
    spark: SparkSession, seaweed: S3Endpoint, location: str, options: dict[str, str]
) -> None:
    rows = spark.createDataFrame([(1, 1, "p1")], DDL)
    wrong = {**options, "secret_access_key": "a-wrong-secret"}
    missing = location.replace(f"s3://{seaweed.bucket}/", "s3://no-such-bucket/")
    before = embedded(location, options)

    for place, given, kind in (
        (location, wrong, Unavailable),
        (missing, options, neve.NeveError),
        (f"{location}-elsewhere", options, NotFound),
    ):
        for call in (
            lambda place=place, given=given: ns.read(spark, place, NAME, storage_options=given),
            lambda place=place, given=given: ns.upsert(rows, place, NAME, storage_options=given),
            lambda place=place, given=given: ns.compact(spark, place, NAME, storage_options=given),
        ):
            with pytest.raises(kind) as failed:
                call()
            text = f"{failed.value} {failed.value.path}"
            assert place.split("/")[2] in text
            assert given["secret_access_key"] not in text

    assert embedded(location, options) == before


def test_workers_use_their_own_credentials_and_without_access_nothing_is_committed(
    spark: SparkSession,
    seaweed: S3Endpoint,
    location: str,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The environment of a process is where a client looks that gets no keys."""
    keys = {"access_key_id", "secret_access_key"}
    bare = {name: value for name, value in options.items() if name not in keys}
    for name in keys:
        monkeypatch.setenv(f"AWS_{name.upper()}", options[name])
    rows = spark.createDataFrame([(1, 77, "p1")], DDL)
    before = embedded(location, options)
    environment = spark.sparkContext.environment
    monkeypatch.setitem(environment, "AWS_ACCESS_KEY_ID", seaweed.access_key_id)
    monkeypatch.setitem(environment, "AWS_SECRET_ACCESS_KEY", "a-stale-secret")

    read = ns.read(spark, location, NAME, storage_options=bare)
    with pytest.raises(PySparkException, match="403") as lazily:
        read.collect()
    with pytest.raises(Unavailable, match="403") as failed:
        ns.upsert(rows, location, NAME, storage_options=bare)
    assert embedded(location, options) == before
    for text in (str(lazily.value), str(failed.value)):
        assert f"s3://{seaweed.bucket}/" in text
        assert "tables/" in text or "manifest/" in text
        assert "a-stale-secret" not in text
        assert options["secret_access_key"] not in text

    monkeypatch.setitem(environment, "AWS_SECRET_ACCESS_KEY", seaweed.secret_access_key)
    ns.upsert(rows, location, NAME, storage_options=bare)
    after = ns.read(spark, location, NAME, storage_options=bare)
    assert [row.v for row in after.where("id = 1").collect()] == [77]
