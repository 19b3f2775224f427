"""Batches of streams are in the table once, wherever the driver dies."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import neve
from neve import spark as ns
from tests.gates import TORTURE, count_of
from tests.spark.bulk_tables import (
    DDL,
    NAME,
    SCHEMA,
    Row,
    clean_rows,
    current_version,
    make_table,
)
from tests.spark.killed_stream import APP_ID, ENDS, WAYS, run_stream

ROWS = 100_000
# Outside of torture, one driver dies before a commit here, and one after it in the feed below.
KILLS = count_of(gate=1, full=20)
FILES = 25 if TORTURE else 5
FEED_KILLS = count_of(gate=1, full=25)
FEED_EVENTS = count_of(gate=5_000, full=500_000)
ROOT = Path(__file__).parents[2]


def test_every_row_is_there_once_though_the_driver_dies_before_and_after_a_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, source, checkpoint = (tmp_path / each for each in ("lake", "source", "checkpoint"))
    make_table(lake)
    write_source(source)
    for batch in range(1, KILLS + 1):
        when = "before" if batch % 2 else "after"
        die(tmp_path, batch, when, "upserts")
        # Those before it are; it is itself only afterwards, though Spark does not know.
        assert current_version(lake) == 1 + batch + (when == "after")
        assert not (checkpoint / "commits" / str(batch)).exists()
    run_stream(spark, lake, source, checkpoint)
    with neve.open(lake) as catalog, catalog.table(NAME) as table:
        changes = table.changes(since=0).read_all()
        # A row that was written twice would be an update.
        assert changes.column("_change_type").unique().to_pylist() == ["insert"]
        commits = Counter(changes.column("_commit_version").to_pylist())
        assert commits == dict.fromkeys(range(2, 2 + FILES), ROWS // FILES)
        assert table.verify().row_count == ROWS
        rows = table.scan().to_arrow().sort_by("id")
        numbers = pa.array(np.arange(ROWS))
        assert rows.column("id").combine_chunks().equals(numbers)
        assert rows.column("v").combine_chunks().equals(pc.multiply(numbers, 2))
        # Runs that died before their commit have left files, which are not deleted before time.
        assert len(list(lake.glob("tables/*/data/*/*.parquet"))) > len(table.files())


@pytest.mark.parametrize("way", ["changes", "sink"] if TORTURE else ["changes"])
def test_a_shuffled_feed_ends_equal_to_an_oracle_though_the_driver_dies(
    way: str, spark: SparkSession, tmp_path: Path
) -> None:
    lake, source, checkpoint = (tmp_path / each for each in ("lake", "source", "checkpoint"))
    with neve.open(lake) as catalog:
        catalog.create_table(NAME, SCHEMA, ["id"], order_by=["v"])
    newest = write_feed(source)
    for batch in range(1, FEED_KILLS + 1):
        die(tmp_path, batch, "after" if batch % 2 else "before", way)

    WAYS[way](spark, lake, source, checkpoint)

    assert clean_rows(lake) == newest
    with neve.open(lake) as catalog, catalog.table(NAME, read_only=True) as table:
        assert table.verify().is_sound


def write_feed(source: Path) -> dict[int, Row]:
    """Write changes in any order, some of them twice, as files; return the rows they end with.

    The column v is their order.
    """
    source.mkdir()
    rng = Random(7)
    newest: dict[int, Row] = {}
    feed: list[tuple[str, int, int | None, str | None]] = []
    for place in range(FEED_EVENTS):
        key = rng.randrange(FEED_EVENTS // 20)
        if rng.random() < 0.25:
            newest.pop(key, None)
            feed.append(("d", key, place, None))
        else:
            newest[key] = (key, place, f"t{place % 9}")
            feed.append(("u", *newest[key]))
    feed += rng.sample(feed, len(feed) // 10)
    rng.shuffle(feed)
    for number in range(FEED_KILLS + 2):
        columns = zip(*feed[number :: FEED_KILLS + 2], strict=True)
        names = ["op", "id", "v", "text"]
        rows = pa.table([pa.array(list(each)) for each in columns], names)
        pq.write_table(rows, source / f"{number:04}.parquet")
    return newest


def die(tmp: Path, batch: int, when: str, way: str) -> None:
    """Run a stream in a process that dies before or after it has committed a batch."""
    places = (tmp / each for each in ("lake", "source", "checkpoint"))
    died = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.spark.killed_stream",
            *map(str, (*places, batch)),
            when,
            way,
        ],
        cwd=ROOT,
        check=False,
        capture_output=True,
        timeout=300,
    )
    assert died.returncode in ENDS, died.stderr[-3_000:].decode()


def test_a_batch_is_upserted_once_per_application_and_number(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path)
    upsert = ns.upsert_batch(tmp_path, NAME, app_id="one")
    upsert(spark.createDataFrame([(1, 1, "a")], DDL), 0)
    upsert(spark.createDataFrame([(1, 2, "b")], DDL), 0)
    assert clean_rows(tmp_path) == {1: (1, 1, "a")}
    upsert(spark.createDataFrame([], DDL), 1)
    upsert(spark.createDataFrame([(1, 3, "c")], DDL), 1)
    assert clean_rows(tmp_path) == {1: (1, 1, "a")}
    ns.upsert_batch(tmp_path, NAME, app_id="other")(
        spark.createDataFrame([(1, 4, "d"), (2, 4, "d")], DDL), 0
    )
    assert clean_rows(tmp_path) == {1: (1, 4, "d"), 2: (2, 4, "d")}
    with pytest.raises(neve.InvalidArgument, match="writing application"):
        ns.upsert_batch(tmp_path, NAME, app_id="")


def test_a_stream_that_starts_over_under_a_used_name_is_refused_and_loses_no_row_in_silence(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, source = tmp_path / "lake", tmp_path / "source"
    make_table(lake)
    source.mkdir()
    for place in range(2):
        rows = pa.table({"id": [place], "v": [place], "text": ["s"]})
        pq.write_table(rows, source / f"{place}.parquet")
    run_stream(spark, lake, source, tmp_path / "checkpoint")
    assert current_version(lake) == 3

    with pytest.raises(StreamingQueryException, match="batch 0 of 'killed' is older than batch 1"):
        run_stream(spark, lake, source, tmp_path / "other checkpoint")

    assert current_version(lake) == 3
    batch = spark.createDataFrame([(9, 9, "s")], DDL)
    with pytest.raises(neve.InvalidArgument, match="is older than") as failed:
        ns.upsert_batch(lake, NAME, app_id=APP_ID)(batch, 0)
    assert "checkpoint" in (failed.value.hint or "")


def test_a_batch_that_is_left_out_because_it_is_there_is_logged(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_table(tmp_path)
    upsert = ns.upsert_batch(tmp_path, NAME, app_id="one")
    with caplog.at_level("INFO", "neve.spark.writing"):
        upsert(spark.createDataFrame([(1, 1, "a")], DDL), 4)
        assert caplog.messages == []
        upsert(spark.createDataFrame([(1, 2, "b")], DDL), 4)
    assert caplog.messages == [f"skipped batch table={NAME} app_id=one batch=4 version=2"]


def test_a_relative_path_is_that_of_the_process_that_made_the_function(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    upsert = ns.upsert_batch("lake", NAME, app_id="one")
    monkeypatch.chdir(ROOT)

    upsert(spark.createDataFrame([(1, 1, "a")], DDL), 0)

    assert clean_rows(tmp_path / "lake") == {1: (1, 1, "a")}
    with pytest.raises(neve.InvalidArgument, match="memory"):
        ns.upsert_batch("memory://stream", NAME, app_id="one")


def write_source(source: Path) -> None:
    """Write rows of different keys, shuffled, as files that a stream reads one at a time."""
    source.mkdir()
    numbers = np.random.default_rng(5).permutation(ROWS)
    for place, some in enumerate(np.split(numbers, FILES)):
        rows = pa.table({"id": some, "v": some * 2, "text": ["s"] * len(some)})
        pq.write_table(rows, source / f"{place}.parquet")
