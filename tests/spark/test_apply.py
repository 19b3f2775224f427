"""Change feeds through Spark: upserts and deletes in one commit, in their own order, once."""

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

import neve
from neve import spark as ns
from neve.engine.applied_changes import OPERATIONS
from neve.errors import SchemaMismatch
from neve.spark.source import NeveSource
from tests.spark.bulk_tables import NAME, Row, clean_rows, current_version

FORMAT = NeveSource.name()
PARTITIONS = [(), ("bucket(3, id)",), ("text",)]
FEWER = [(), ("text",)]
SCHEMA = {"id": "long", "v": "long!", "text": "string"}
FEED = "op string, id long, v long, text string, lsn long"
EVENTS = 3_000
KEYS = 400
WRITES = ("c", "u", "r", "Insert", "UPDATE", "+I", "+U")
DELETES = ("d", "DELETE", "-D")

Event = tuple[str | None, int | None, int | None, str | None, int | None]


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(NeveSource)


def make_table(lake: Path, partition_by: Sequence[str] = ()) -> None:
    with neve.open(lake) as catalog:
        catalog.create_table(NAME, SCHEMA, ["id"], partition_by=partition_by)


def frame(spark: SparkSession, events: Sequence[Event]) -> DataFrame:
    return spark.createDataFrame(list(events), FEED)


def unordered(spark: SparkSession, events: Sequence[Event]) -> DataFrame:
    return frame(spark, events).drop("lsn")


def drawn(rng: Random) -> tuple[list[list[Event]], dict[int, Row]]:
    """Draw a feed in chunks, each of them shuffled, and the rows it ends with."""
    model: dict[int, Row] = {}
    feed: list[Event] = []
    for lsn in range(EVENTS):
        key = rng.randrange(KEYS)
        if rng.random() < 0.3:
            model.pop(key, None)
            feed.append((rng.choice(DELETES), key, None, None, lsn))
        else:
            model[key] = (key, lsn, rng.choice([None, "a", "b", "c"]))
            if rng.random() < 0.1:
                feed.append(("-U", key, -1, "old", lsn))
            feed.append((rng.choice(WRITES), key, lsn, model[key][2], lsn))
    cuts = [0, *sorted(rng.sample(range(1, len(feed)), 2)), len(feed)]
    chunks = [feed[start:stop] for start, stop in pairwise(cuts)]
    for chunk in chunks:
        rng.shuffle(chunk)
    return chunks, model


def sound_rows(lake: Path) -> dict[int, Row]:
    """Return the rows as a stranger reads them, after neve has verified the table."""
    # A live writer would compact the table meanwhile.
    with neve.open(lake) as catalog, catalog.table(NAME, read_only=True) as table:
        assert table.verify().is_sound
    return clean_rows(lake)


class Source:
    """Files of a feed, one to a batch of a stream."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._count = 0

    def add(self, events: Sequence[Event]) -> None:
        names = ("op", "id", "v", "text", "lsn")
        types = (pa.string(), pa.int64(), pa.int64(), pa.string(), pa.int64())
        columns = zip(*events, strict=True)
        arrays = [pa.array(each, kind) for each, kind in zip(columns, types, strict=True)]
        path = self.folder / f"{self._count}.parquet"
        pq.write_table(pa.table(dict(zip(names, arrays, strict=True))), path)
        # Files are read in the order of their times.
        os.utime(path, (1_700_000_000 + self._count,) * 2)
        self._count += 1

    def stream(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema(FEED).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))


def run_batches(
    spark: SparkSession, source: Source, checkpoint: Path, apply: Callable[[DataFrame, int], None]
) -> None:
    query = (
        source.stream(spark)
        .writeStream.foreachBatch(apply)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def run_sink(spark: SparkSession, source: Source, lake: Path, checkpoint: Path) -> None:
    query = (
        source.stream(spark)
        .repartition("id")
        .writeStream.format(FORMAT)
        .options(table=NAME, path=str(lake), op="op", orderBy="lsn", upkeep="false")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def forget_last_batch(checkpoint: Path, batch: int) -> None:
    """Leave a checkpoint as if the driver had died after the commit and before it was noted."""
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)


def writer(rows: DataFrame, **options: str) -> DataFrameWriter:
    given = {"table": NAME, "op": "op", "orderBy": "lsn", **options}
    return rows.write.format(FORMAT).options(**given).mode("append")


@pytest.mark.parametrize("partition_by", PARTITIONS)
def test_a_shuffled_feed_in_chunks_makes_the_rows_of_a_dict(
    spark: SparkSession, tmp_path: Path, partition_by: Sequence[str]
) -> None:
    make_table(tmp_path, partition_by)
    chunks, model = drawn(Random(f"feed{partition_by}"))

    for chunk in chunks:
        ns.apply(frame(spark, chunk).repartition(3), tmp_path, NAME, order_by="lsn")

    assert sound_rows(tmp_path) == model
    assert current_version(tmp_path) == 1 + len(chunks)


@pytest.mark.parametrize("partition_by", FEWER)
def test_a_stream_applies_each_batch_once_though_spark_forgot_the_last(
    spark: SparkSession, tmp_path: Path, partition_by: Sequence[str]
) -> None:
    lake, checkpoint = tmp_path / "lake", tmp_path / "checkpoint"
    make_table(lake, partition_by)
    source = Source(tmp_path / "source")
    chunks, model = drawn(Random(f"stream{partition_by}"))
    apply = ns.apply_batch(lake, NAME, app_id="cdc", order_by="lsn")

    for chunk in chunks[:-1]:
        source.add(chunk)
    run_batches(spark, source, checkpoint, apply)
    forget_last_batch(checkpoint, len(chunks) - 2)
    source.add(chunks[-1])
    run_batches(spark, source, checkpoint, apply)

    assert sound_rows(lake) == model
    assert current_version(lake) == 1 + len(chunks)


@pytest.mark.parametrize("partition_by", FEWER)
def test_the_sink_applies_batches(
    spark: SparkSession, tmp_path: Path, partition_by: Sequence[str]
) -> None:
    make_table(tmp_path, partition_by)
    chunks, model = drawn(Random(f"sink{partition_by}"))

    for number, chunk in [*enumerate(chunks), (0, chunks[0])]:
        rows = frame(spark, chunk).repartition(2, "id")
        writer(rows, job_id=f"chunk {number}", upkeep="false").save(str(tmp_path))

    assert sound_rows(tmp_path) == model
    assert current_version(tmp_path) == 1 + len(chunks)


def test_the_sink_applies_a_stream_and_each_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    lake, checkpoint = tmp_path / "lake", tmp_path / "checkpoint"
    make_table(lake)
    source = Source(tmp_path / "source")
    chunks, model = drawn(Random("sink stream"))

    for chunk in chunks[:-1]:
        source.add(chunk)
    run_sink(spark, source, lake, checkpoint)
    forget_last_batch(checkpoint, len(chunks) - 2)
    source.add(chunks[-1])
    run_sink(spark, source, lake, checkpoint)

    assert sound_rows(lake) == model
    assert current_version(lake) == 1 + len(chunks)


def test_a_job_and_a_batch_are_applied_once(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path)
    first = unordered(spark, [("c", 1, 1, "a", 1), ("c", 2, 1, "a", 1)])
    outcome = ns.apply(first, tmp_path, NAME, job_id="one")
    assert (outcome.version, outcome.rows_written, outcome.rows_superseded) == (2, 2, 0)

    gone = unordered(spark, [("d", 1, None, None, 2), ("u", 2, 2, "b", 2)])
    assert ns.apply(gone, tmp_path, NAME, job_id="one").was_already_done
    outcome = ns.apply(gone, tmp_path, NAME, job_id="two")
    assert (outcome.version, outcome.rows_written, outcome.rows_superseded) == (3, 1, 2)

    apply = ns.apply_batch(tmp_path, NAME, app_id="cdc")
    late = unordered(spark, [("c", 2, 9, "late", 3)])
    apply(unordered(spark, [("d", 2, None, None, 3)]), 5)
    apply(late, 5)
    assert clean_rows(tmp_path) == {}
    with pytest.raises(neve.InvalidArgument, match="batch 4 of 'cdc' is older than batch 5"):
        apply(late, 4)
    # A delete of a key without a row makes no Version, and the batch is done all the same.
    apply(unordered(spark, [("d", 77, None, None, 3)]), 6)
    apply(late, 6)
    assert clean_rows(tmp_path) == {}
    assert current_version(tmp_path) == 4


def test_every_operation_does_what_it_says(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path)
    words = [*OPERATIONS, *(word.upper() for word in OPERATIONS), "new", "gone", "note"]
    own = {"new": "upsert", "Gone": "delete", "note": "skip", "U": "delete"}
    before = [("c", number, 0, "", 0) for number in range(len(words))]
    ns.apply(unordered(spark, before), tmp_path, NAME)

    changes: list[Event] = [(word, number, 1, "", 1) for number, word in enumerate(words)]
    ns.apply(unordered(spark, changes), tmp_path, NAME, operations=own)

    expected = {}
    any_case = {word.lower(): meaning for word, meaning in own.items()}
    for number, word in enumerate(words):
        meaning = any_case.get(word.lower()) or OPERATIONS[word.lower()]
        if meaning != "delete":
            expected[number] = (number, int(meaning == "upsert"), "")
    assert clean_rows(tmp_path) == expected


@pytest.mark.parametrize("partition_by", PARTITIONS)
def test_an_order_may_have_several_columns_and_may_be_stored(
    spark: SparkSession, tmp_path: Path, partition_by: Sequence[str]
) -> None:
    make_table(tmp_path, partition_by)
    rows = [
        ("c", 1, 1, "a", "f2", 1),
        ("u", 1, 2, "b", "f1", 9),
        ("u", 1, 3, "c", "f2", 2),
        ("c", 2, 5, "a", "f1", 1),
        ("d", 2, 6, "b", "f1", 2),
        ("-U", 3, 7, "a", "f1", 1),
    ]
    changes = spark.createDataFrame(
        rows, "`o.p` string, id long, v long, text string, f string, `p,` long"
    )

    ns.apply(changes, tmp_path, NAME, op="o.p", order_by=["f", "p,"], tasks=3)
    assert clean_rows(tmp_path) == {1: (1, 3, "c")}

    # Both columns are in the table, and are stored.
    stored = spark.createDataFrame(
        [(1, 8, "u"), (1, 9, "r"), (1, 7, "d")], "id long, v long, text string"
    )
    ns.apply(stored, tmp_path, NAME, op="text", order_by="v")
    assert clean_rows(tmp_path) == {1: (1, 9, "r")}


def test_a_delete_needs_only_the_key(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path, ["text"])
    ns.apply(unordered(spark, [("c", key, 1, "a", 1) for key in range(4)]), tmp_path, NAME)

    ns.apply(unordered(spark, [("d", 1, None, None, 1)]), tmp_path, NAME)
    ns.apply(spark.sql("select 'd' op, 2L id"), tmp_path, NAME)
    writer(spark.sql("select 'd' op, 3 id, 1 lsn")).save(str(tmp_path))

    assert clean_rows(tmp_path) == {0: (0, 1, "a")}
    with pytest.raises(neve.SchemaMismatch, match="'v' is missing"):
        ns.apply(spark.sql("select 'c' op, 2L id"), tmp_path, NAME)


def test_keys_of_several_columns_and_uuids_are_deleted(spark: SparkSession, tmp_path: Path) -> None:
    texts = [f"7b7a9b1e-3c55-4cf2-8f2e-0f6d2c3b8f{number:02x}" for number in range(8)]
    with neve.open(tmp_path) as catalog:
        fields = {"u": pa.uuid(), "name": pa.string(), "v": pa.int64()}
        catalog.create_table(NAME, pa.schema(fields), ["u", "name"], partition_by=["bucket(2, u)"])
    ddl = "op string, u string, name string, v long, at timestamp"
    columns = ["'c' op", "u", "name", "v", "timestamp '2026-01-01' at"]
    rows = spark.createDataFrame(
        [(each, "x", 1) for each in texts], "u string, name string, v long"
    )
    ns.apply(rows.selectExpr(*columns), tmp_path, NAME, order_by="at")

    gone = [("d", each.upper(), "x", None, None) for each in texts[::2]]
    gone += [("d", each, "y", None, None) for each in texts]
    ns.apply(spark.createDataFrame(gone, ddl).drop("at"), tmp_path, NAME, tasks=2)

    with neve.open(tmp_path) as catalog, catalog.table(NAME) as table:
        found = table.scan().to_arrow().column("u").to_pylist()
    assert sorted(map(str, found)) == texts[1::2]


@pytest.mark.parametrize("partition_by", FEWER)
def test_changes_of_equal_order_end_the_same_however_they_arrive(
    spark: SparkSession, tmp_path: Path, partition_by: Sequence[str]
) -> None:
    events: list[Event] = [
        (op, key, v, "ab"[v % 2], 1) for key in range(6) for op in ("c", "d", "u") for v in range(3)
    ]
    found = []
    for number in range(2):
        lake = tmp_path / str(number)
        make_table(lake, partition_by)
        Random(number).shuffle(events)
        rows = frame(spark, events).repartition(number + 1)
        ns.apply(rows, lake, NAME, order_by="lsn", tasks=number + 1)
        found.append(clean_rows(lake))
    assert found[0] == found[1] == {key: (key, 2, "a") for key in range(6)}


REFUSED: list[tuple[Event, str]] = [
    (("x", 7, 1, "a", 1), r"operation 'x' of the row with id=7 is unknown"),
    ((None, 7, 1, "a", 1), r"operation None of the row with id=7 is unknown"),
    (("c", 7, 1, "a", None), r"the row with id=7 has no value in order column 'lsn'"),
    (("d", 7, 1, "a", None), r"the row with id=7 has no value in order column 'lsn'"),
    (("c", None, 1, "a", 1), r"'id'.* NULL"),
    (("d", None, None, None, 1), r"'id'.* NULL"),
    (("c", 7, None, "a", 1), r"'v'.* NULL"),
]


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[Path]:
    """Yield a lake in which nothing is committed and no file is left."""
    yield tmp_path
    assert current_version(tmp_path) == 1
    assert not list(tmp_path.glob("tables/*/data/*/*.parquet"))
    with neve.open(tmp_path) as catalog:
        session = catalog.load_table(NAME).stored.versions.store.read()
        assert not list(session.scan("intent/"))


@pytest.mark.parametrize(
    ("partition_by", "refused"),
    [((), REFUSED), (("bucket(3, id)",), REFUSED[:1]), (("text",), REFUSED[1:5:2])],
)
def test_a_bad_change_is_refused_with_its_row(
    spark: SparkSession,
    refusing: Path,
    partition_by: Sequence[str],
    refused: Sequence[tuple[Event, str]],
) -> None:
    make_table(refusing, partition_by)
    # The newest changes of their keys, so that the bad one is not the row that counts.
    good: list[Event] = [("u", key, 2, "b", 9) for key in range(50) if key != 7]
    for bad, message in refused:
        newer: list[Event] = [] if bad[2] is None else [("u", 7, 2, "b", 9)]
        with pytest.raises((neve.InvalidArgument, neve.SchemaMismatch), match=message):
            ns.apply(frame(spark, [bad, *good, *newer]), refusing, NAME, order_by="lsn", tasks=1)
    twice = unordered(spark, [("c", 7, 1, "a", 1), ("d", 7, None, None, 2), *good])
    with pytest.raises(neve.InvalidArgument, match="several rows of one key, such as 7"):
        ns.apply(twice, refusing, NAME)


def test_a_bad_change_is_refused_by_the_sink_and_by_a_stream(
    spark: SparkSession, refusing: Path
) -> None:
    make_table(refusing)
    for bad, message in REFUSED[1::2]:
        rows = frame(spark, [bad, ("u", 1, 2, "b", 9)]).coalesce(1)
        with pytest.raises(PySparkException, match=message):
            writer(rows).save(str(refusing))
    twice = unordered(spark, [("c", 7, 1, "a", 1), ("d", 7, None, None, 2)]).coalesce(1)
    with pytest.raises(PySparkException, match="several rows of one key, such as 7"):
        twice.write.format(FORMAT).options(table=NAME, op="op").mode("append").save(str(refusing))
    source = Source(refusing / "source")
    source.add([("x", 7, 1, "a", 1)])
    apply = ns.apply_batch(refusing, NAME, app_id="cdc", order_by=["lsn"], tasks=1)
    with pytest.raises(StreamingQueryException, match="operation 'x' of the row with id=7"):
        run_batches(spark, source, refusing / "ours", apply)


def test_a_bad_change_ends_a_stream_of_the_sink(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path)
    source = Source(tmp_path / "source")
    source.add([("x", 7, 1, "a", 1)])
    with pytest.raises(StreamingQueryException, match="operation 'x' of the row with id=7"):
        run_sink(spark, source, tmp_path, tmp_path / "checkpoint")
    # Its intent stays until its deadline: Spark aborts another writer than that of the tasks.
    assert current_version(tmp_path) == 1
    assert not list(tmp_path.glob("tables/*/data/*/*.parquet"))


def test_tasks_of_the_sink_that_share_a_key_are_refused(
    spark: SparkSession, refusing: Path
) -> None:
    make_table(refusing)
    for ops in (("c", "d"), ("d", "d")):
        apart = spark.range(0, 2, 1, 2).selectExpr(
            f"if(id = 0, '{ops[0]}', '{ops[1]}') op", "7L id", "id v", "'a' text", "id lsn"
        )
        with pytest.raises(PySparkException, match="several rows of one key, such as 7"):
            writer(apart).save(str(refusing))


def test_what_no_change_could_fit_is_refused_before_anything_runs(
    spark: SparkSession, refusing: Path
) -> None:
    make_table(refusing)
    rows = frame(spark, [("c", 1, 1, "a", 1)])

    def refuse(kind: type[Exception], match: str, df: DataFrame = rows, **given: object) -> None:
        with pytest.raises(kind, match=match):
            ns.apply(df, refusing, NAME, **given)  # type: ignore[arg-type]
        given.pop("tasks", None)
        if given.keys() <= {"op", "order_by"} and not isinstance(given.get("order_by"), int):
            options = {
                "table": NAME,
                "op": str(given.get("op", "op")),
                "orderBy": str(given.get("order_by", "v")),
            }
            with pytest.raises(PySparkException, match=match):
                df.write.format(FORMAT).options(**options).mode("append").save(str(refusing))

    refuse(neve.SchemaMismatch, "no operation column 'op'", rows.drop("op"))
    refuse(neve.SchemaMismatch, "no operation column 'OP'", op="OP", order_by="lsn")
    refuse(neve.SchemaMismatch, "'op' is bigint, not text", rows.selectExpr("1L op", "id", "v"))
    refuse(neve.InvalidArgument, "order_by='lsm' is not a column of the rows", order_by="lsm")
    refuse(neve.SchemaMismatch, "key column 'id' is missing", rows.drop("id"), order_by="lsn")
    refuse(neve.SchemaMismatch, "'lsn' of the batch is not in the table")
    refuse(
        neve.SchemaMismatch,
        "'v'",
        rows.selectExpr("op", "id", "map('a', 1) v", "lsn"),
        order_by="lsn",
    )
    refuse(
        neve.InvalidArgument,
        "cannot be ordered by 'm'",
        rows.selectExpr("op", "id", "v", "map('a', 1) m"),
        order_by="m",
    )
    with pytest.raises(neve.SchemaMismatch, match="is there twice"):
        ns.apply(spark.sql("select 'c' op, 1L id, 2L id"), refusing, NAME)
    with pytest.raises(neve.InvalidArgument, match="tasks=0"):
        ns.apply(rows.drop("lsn"), refusing, NAME, tasks=0)


def test_options_that_mean_nothing_are_refused(spark: SparkSession, refusing: Path) -> None:
    make_table(refusing)
    rows = frame(spark, [("c", 1, 1, "a", 1)])
    for given, message in (
        ({"operations": {"x": "drop"}}, "operation 'x' means 'drop'"),
        ({"operations": "x"}, "operations is str"),
        ({"order_by": 7}, "order_by is int"),
        ({"order_by": [7]}, "a column is given as int"),
        ({"op": 7}, "a column is given as int"),
    ):
        with pytest.raises(neve.InvalidArgument, match=message):
            ns.apply(rows, refusing, NAME, **given)
        with pytest.raises(neve.InvalidArgument, match=message):
            ns.apply_batch(refusing, NAME, app_id="cdc", **given)
    with pytest.raises(neve.InvalidArgument):
        ns.apply_batch(refusing, NAME, app_id="")
    with pytest.raises(PySparkException, match="orderBy and order_by are one option"):
        writer(rows, order_by="lsn").save(str(refusing))
    with pytest.raises(PySparkException, match="Did you mean 'orderBy'"):
        writer(rows, orderBys="lsn").save(str(refusing))


@pytest.mark.parametrize("blank", [None, float("nan")])
def test_a_change_without_an_order_is_refused_unless_it_is_skipped(
    spark: SparkSession, tmp_path: Path, blank: float | None
) -> None:
    make_table(tmp_path)
    feed = "op string, id long, v long, text string, at double"
    skipped = [("-U", 1, 0, "old", blank), ("c", 1, 2, "b", 2.5), ("c", 1, 1, "a", 1.5)]

    ns.apply(spark.createDataFrame(skipped, feed), tmp_path, NAME, order_by="at")

    assert sound_rows(tmp_path) == {1: (1, 2, "b")}
    wrong = spark.createDataFrame([*skipped, ("d", 1, None, None, blank)], feed)
    with pytest.raises(SchemaMismatch, match="at"):
        ns.apply(wrong, tmp_path, NAME, order_by="at")
    assert sound_rows(tmp_path) == {1: (1, 2, "b")}
