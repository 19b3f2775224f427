"""Bulk writes from Spark: the table they make is the one that the embedded engine makes."""

import datetime as dt
import decimal
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import neve
from neve import spark as ns
from neve.jobs.run import BulkOutcome, JobIdentity
from neve.spark import job_runner
from neve.spark.job_runner import TableJobs
from neve.spark.task_answers import Message, TaskAnswer, answer_of
from neve.spark.write_plan import write_plan
from tests.spark.bulk_tables import (
    DDL,
    NAME,
    SCHEMA,
    Row,
    by_key,
    clean_rows,
    current_version,
    make_table,
)

PARTITIONS = [(), ("bucket(3, id)",), ("text",)]
FEWER = [(), ("text",)]


def frame(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    return spark.createDataFrame(list(rows), DDL)


def drawn(rng: Random, mark: int, *, most: int = 12) -> list[Row]:
    """Draw rows with different keys; some values are NULL."""
    numbers = rng.sample(range(40), rng.randint(1, most))
    return [
        (number, rng.choice([None, mark]), rng.choice([None, "a", "b", "c"])) for number in numbers
    ]


@pytest.mark.parametrize("partition_by", PARTITIONS)
def test_random_jobs_make_the_table_that_the_embedded_engine_makes(
    spark: SparkSession, tmp_path: Path, partition_by: Sequence[str]
) -> None:
    rng = Random(f"jobs{partition_by}")
    lake = tmp_path / "spark"
    make_table(lake, partition_by=partition_by)
    model: dict[int, Row] = {}
    with neve.open(tmp_path / "embedded") as other:
        embedded = other.create_table(NAME, SCHEMA, ["id"], partition_by=partition_by)
        for step in range(6):
            rows = drawn(rng, step)
            kind = "upsert" if step == 0 else rng.choice(["upsert", "upsert", "delete", "partial"])
            as_dicts = [dict(zip(("id", "v", "text"), row, strict=True)) for row in rows]
            if kind == "upsert":
                ns.upsert(frame(spark, rows), lake, NAME)
                embedded.upsert(as_dicts)
                model |= by_key(rows)
            elif kind == "delete":
                ns.delete(frame(spark, rows), lake, NAME)
                embedded.delete_many([row[0] for row in rows])
                for row in rows:
                    model.pop(row[0], None)
            else:
                ns.upsert(frame(spark, rows), lake, NAME, columns=["text"])
                embedded.upsert(as_dicts, columns=["text"])
                for number, _, text in rows:
                    model[number] = (number, model.get(number, (0, None, None))[1], text)
            if rng.random() < 0.5:
                embedded.flush()
            assert clean_rows(lake) == model
        assert embedded.scan().to_arrow().sort_by("id").to_pylist() == [
            dict(zip(("id", "v", "text"), model[number], strict=True)) for number in sorted(model)
        ]
    with neve.open(lake) as catalog, catalog.table(NAME) as table:
        assert table.scan().count() == len(model)
        assert table.verify().is_sound


def test_a_load_is_the_first_and_upserts_come_after_it(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path)
    told: list[tuple[int, int]] = []
    outcome = ns.load(
        frame(spark, [(n, n, "a") for n in range(50)]),
        tmp_path,
        NAME,
        progress=lambda done, total: told.append((done, total)),
    )
    assert all(0 <= done <= total for done, total in told)
    assert told[-1][0] == told[-1][1] > 0
    assert (outcome.version, outcome.rows_written, outcome.rows_superseded) == (2, 50, 0)
    with neve.open(tmp_path) as catalog:
        files = catalog.load_table(NAME).files()
        assert set(files.column("level").to_pylist()) == {2}
    with pytest.raises(neve.InvalidArgument, match="has rows already"):
        ns.load(frame(spark, [(1, 1, "b")]), tmp_path, NAME)


def test_of_two_loads_at_once_one_is_refused_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(tmp_path)

    def overtaken(messages: Iterable[Message]) -> TaskAnswer:
        monkeypatch.setattr(job_runner, "answer_of", answer_of)
        ns.load(frame(spark, [(1, 1, "first")]), tmp_path, NAME)
        return answer_of(messages)

    monkeypatch.setattr(job_runner, "answer_of", overtaken)
    with pytest.raises(neve.Conflict, match="version 2 has rows"):
        ns.load(frame(spark, [(1, 2, "second"), (2, 2, "second")]), tmp_path, NAME)

    assert clean_rows(tmp_path) == {1: (1, 1, "first")}
    assert len(files_of(tmp_path)) == 1


def test_a_job_that_is_run_again_commits_nothing_and_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path)
    first = ns.upsert(frame(spark, [(1, 1, "a")]), tmp_path, NAME, job_id="nightly")
    again = ns.upsert(frame(spark, [(1, 2, "b")]), tmp_path, NAME, job_id="nightly")
    assert again == BulkOutcome(version=first.version, was_already_done=True)
    assert clean_rows(tmp_path) == {1: (1, 1, "a")}


@pytest.mark.parametrize("partition_by", FEWER)
def test_of_several_rows_of_one_key_the_last_by_the_order_column_counts(
    spark: SparkSession, tmp_path: Path, partition_by: Sequence[str]
) -> None:
    make_table(tmp_path, partition_by=partition_by)
    rng = Random(7)
    rows = [(number % 5, number, "abc"[number % 3], number) for number in range(40)]
    rng.shuffle(rows)
    given = spark.createDataFrame(rows, f"{DDL}, at long")
    outcome = ns.upsert(given, tmp_path, NAME, order_by="at")
    assert outcome.rows_written == 5
    assert clean_rows(tmp_path) == {n % 5: (n % 5, n, "abc"[n % 3]) for n in range(35, 40)}


@pytest.mark.parametrize("partition_by", FEWER)
def test_several_rows_of_one_key_without_an_order_are_refused_with_examples(
    spark: SparkSession, tmp_path: Path, partition_by: Sequence[str]
) -> None:
    make_table(tmp_path, partition_by=partition_by)
    rows: list[Row] = [(7, 1, "a"), (8, 1, "b"), (7, 2, "c")]
    with pytest.raises(neve.InvalidArgument, match="several rows of one key, such as 7") as failed:
        ns.upsert(frame(spark, rows), tmp_path, NAME)
    assert "order_by" in (failed.value.hint or "")
    assert current_version(tmp_path) == 1
    assert files_of(tmp_path) == []


def test_what_is_wrong_with_rows_is_said_and_nothing_is_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path)
    given = frame(spark, [(1, 1, "a")])
    bad: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: given.drop("id"), neve.SchemaMismatch, "'id' is missing"),
        (lambda: given.withColumnRenamed("v", "w"), neve.SchemaMismatch, "'w' .* not in the table"),
        (lambda: given.selectExpr("id", "date'2024-01-01' v"), neve.SchemaMismatch, "'v'"),
        (lambda: given.selectExpr("cast(null as long) id", "v"), neve.SchemaMismatch, "NULL"),
        (
            lambda: given.selectExpr("id", "1.5D v"),
            neve.SchemaMismatch,
            "'v'.* in the row with id=1",
        ),
    ]
    for make, kind, message in bad:
        with pytest.raises(kind, match=message):
            ns.upsert(cast("DataFrame", make()), tmp_path, NAME)
    with pytest.raises(neve.SchemaMismatch, match="key column 'id' is missing"):
        ns.delete(given.select("v"), tmp_path, NAME)
    with pytest.raises(neve.InvalidArgument, match="not a column of the rows"):
        ns.upsert(given, tmp_path, NAME, order_by="at")
    with pytest.raises(neve.InvalidArgument, match="tasks=0"):
        ns.upsert(given, tmp_path, NAME, tasks=0)
    with pytest.raises(neve.NotFound, match="no table"):
        ns.upsert(given, tmp_path, "a.c")
    with pytest.raises(neve.NotFound, match="there is no"):
        ns.upsert(given, tmp_path / "elsewhere", NAME)
    with neve.open("memory://bulk"), pytest.raises(neve.InvalidArgument, match="memory"):
        ns.upsert(given, "memory://bulk", NAME)
    assert current_version(tmp_path) == 1
    assert files_of(tmp_path) == []


def test_a_worker_that_does_not_see_the_warehouse_is_a_clear_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path)
    with TableJobs(tmp_path, NAME) as jobs:
        jobs.site = replace(jobs.site, location=(tmp_path / "not mounted").as_uri())
        with pytest.raises(neve.Unavailable, match="worker cannot read the lake") as failed:
            jobs.run(
                lambda site, base: write_plan(
                    frame(spark, [(1, 1, "a")]), site, base, order=(), tasks=1
                ),
                JobIdentity(),
            )
    assert "s3://" in (failed.value.hint or "")
    assert current_version(tmp_path) == 1


def test_rows_follow_the_schema_as_it_is_now(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path)
    ns.upsert(frame(spark, [(1, 1, "a"), (2, 2, "b")]), tmp_path, NAME)
    with neve.open(tmp_path) as catalog, catalog.load_table(NAME).evolve() as change:
        change.rename_column("text", "label")
        change.add_column("n", "int", default=7)
    given = spark.createDataFrame([(2, "x"), (3, "y")], "id long, label string")
    ns.upsert(given, tmp_path, NAME)
    ns.upsert(given.selectExpr("id", "cast(1 as byte) n"), tmp_path, NAME, columns=["n"])
    with neve.open(tmp_path) as catalog, catalog.table(NAME) as table:
        assert table.scan().to_arrow().sort_by("id").to_pylist() == [
            {"id": 1, "v": 1, "label": "a", "n": 7},
            {"id": 2, "v": None, "label": "x", "n": 1},
            {"id": 3, "v": None, "label": "y", "n": 1},
        ]


def test_overwritten_partitions_hold_only_the_new_rows(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path, partition_by=["text"])
    ns.upsert(frame(spark, [(1, 0, "a"), (2, 0, "a"), (3, 0, "b"), (4, 0, "c")]), tmp_path, NAME)
    outcome = ns.overwrite_partitions(frame(spark, [(3, 1, "a"), (9, 1, "c")]), tmp_path, NAME)
    assert clean_rows(tmp_path) == {3: (3, 1, "a"), 9: (9, 1, "c")}
    assert (outcome.rows_written, outcome.rows_superseded) == (2, 4)


def test_every_type_and_a_key_of_several_columns_go_through(
    spark: SparkSession, tmp_path: Path
) -> None:
    moment = dt.datetime(2024, 3, 31, 12, 30, tzinfo=dt.UTC)
    name = uuid.UUID("7b7a9b1e-3c55-4cf2-8f2e-0f6d2c3b8f01")
    schema = pa.schema(
        [
            ("who", pa.string()),
            ("ref", pa.uuid()),
            ("score", pa.float64()),
            ("flag", pa.bool_()),
            ("small", pa.int32()),
            ("price", pa.decimal128(12, 3)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")),
            ("raw", pa.binary()),
            ("four", pa.binary(4)),
            ("tags", pa.list_(pa.string())),
            ("place", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
            ("counts", pa.map_(pa.string(), pa.int64())),
        ]
    )
    with neve.open(tmp_path) as catalog:
        catalog.create_table(
            NAME,
            schema,
            ["who", "ref", "score"],
            partition_by=["day(at)", "truncate(1, who)", "bucket(2, ref)"],
        )
    ddl = (
        "who string, ref string, score double, flag boolean, small int, price decimal(12,3), "
        "day date, at timestamp, local timestamp_ntz, raw binary, four binary, tags array<string>, "
        "place struct<x: double, y: double>, counts map<string, bigint>"
    )
    values = (
        True,
        5,
        decimal.Decimal("12.345"),
        moment.date(),
        moment,
        moment.replace(tzinfo=None),
        b"\x00\xff",
        b"four",
        ["a", None],
        (1.0, None),
        {"k": 1},
    )
    keys = [("ada", str(name), 0.0), ("ada", str(name).upper(), 1.5), ("bob", str(name), 0.0)]
    rows = [(*key, *values) for key in keys]
    ns.upsert(spark.createDataFrame(rows, ddl), tmp_path, NAME)
    minus_zero = spark.createDataFrame(
        [("ada", str(name), -0.0)], "who string, ref string, score double"
    )
    ns.delete(minus_zero, tmp_path, NAME)
    with neve.open(tmp_path) as catalog, catalog.table(NAME) as table:
        found = table.scan().to_arrow().sort_by("who").to_pylist()
    expected = dict(zip(schema.names[3:], values, strict=True)) | {
        "place": {"x": 1.0, "y": None},
        "counts": [("k", 1)],
    }
    assert found == [
        {"who": "ada", "ref": name, "score": 1.5, **expected},
        {"who": "bob", "ref": name, "score": 0.0, **expected},
    ]


def test_jobs_a_live_writer_and_compactions_at_once_lose_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path)
    ns.load(frame(spark, [(n, 0, "load") for n in range(200)]), tmp_path, NAME)
    jobs = {
        f"job{number}": [(n, number, f"job{number}") for n in range(number * 20, 150)]
        for number in (1, 2, 3)
    }
    outcomes: dict[str, BulkOutcome] = {}
    failures: list[BaseException] = []

    def run(name: str, rows: list[Row]) -> None:
        try:
            outcomes[name] = ns.upsert(frame(spark, rows), tmp_path, NAME)
        except BaseException as error:  # noqa: BLE001 - raised below, in the test's own thread
            failures.append(error)

    with neve.open(tmp_path) as catalog:
        table = catalog.table(NAME, options=neve.TableOptions(background=False))
        threads = [
            threading.Thread(target=run, args=each)
            for each in cast("dict[str, list[Row]]", jobs).items()
        ]
        for thread in threads:
            thread.start()
        live: list[Row] = []
        step = 0
        while any(thread.is_alive() for thread in threads) or step < 4:
            rows: list[Row] = [(n, 1_000 + step, "live") for n in range(step % 7, 220, 7)]
            table.upsert([dict(zip(("id", "v", "text"), row, strict=True)) for row in rows])
            table.flush()
            live += rows
            step += 1
            if step % 3 == 0:
                table.compact(full=step % 2 == 0)
        for thread in threads:
            thread.join()
        assert failures == []
        # Each job is one commit with exactly its rows, and rows are what the last commit made them.
        changes = table.changes(since=0).read_all().to_pylist()
        state: dict[int, Row] = {}
        brought: dict[int, list[Row]] = {}
        for change in changes:
            row = (change["id"], change["v"], change["text"])
            if change["_change_type"] in {"insert", "update_postimage"}:
                state[row[0]] = row
                brought.setdefault(change["_commit_version"], []).append(row)
        for name, rows in cast("dict[str, list[Row]]", jobs).items():
            assert sorted(brought[outcomes[name].version]) == rows
        assert clean_rows(tmp_path) == state
        assert len(state) == len(set(range(200)) | {row[0] for row in live})
        assert table.verify().is_sound
        table.close()


def files_of(lake: Path) -> list[str]:
    """Return the data files and vectors that lie in a warehouse, whoever made them."""
    return sorted(path.name for path in lake.glob("tables/*/*/**/*.p*") if path.is_file())


def test_a_lake_that_was_put_back_from_a_copy_takes_jobs_of_the_same_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, copy = tmp_path / "lake", tmp_path / "copy"
    make_table(lake)
    ns.upsert(frame(spark, [(1, 1, "kept")]), lake, NAME)
    shutil.copytree(lake, copy)
    ns.upsert(frame(spark, [(1, 2, "gone")]), lake, NAME)
    ns.upsert(frame(spark, [(2, 2, "gone")]), lake, NAME)

    shutil.rmtree(lake)
    shutil.copytree(copy, lake)
    ns.upsert(frame(spark, [(3, 3, "new")]), lake, NAME)

    assert clean_rows(lake) == {1: (1, 1, "kept"), 3: (3, 3, "new")}
