"""Merges and partial upserts from Spark: rows are decided about by what their keys have."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import neve
from neve import spark as ns
from neve.compaction.rewrite_job import PlanExecutor
from neve.jobs.commit import BulkCommitter, BulkRun
from neve.jobs.run import BulkOutcome, BulkWork
from neve.model.data_file import PartitionValue
from tests.spark.bulk_tables import DDL, NAME, Row, clean_rows, current_version, make_table


def frame(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    return spark.createDataFrame(list(rows), DDL)


def filled(spark: SparkSession, lake: Path, *, partition_by: Sequence[str] = ()) -> dict[int, Row]:
    """Make a table of the rows 0 to 9."""
    make_table(lake, partition_by=partition_by)
    rows: list[Row] = [(number, number * 10, "abc"[number % 3]) for number in range(10)]
    ns.load(frame(spark, rows), lake, NAME)
    return {row[0]: row for row in rows}


@pytest.mark.parametrize("partition_by", [(), ("text",)])
def test_a_merge_agrees_with_a_dict(
    spark: SparkSession, tmp_path: Path, partition_by: Sequence[str]
) -> None:
    model = filled(spark, tmp_path, partition_by=partition_by)
    rng = Random(3)
    for step in range(2):
        source: list[Row] = [
            (number, rng.randint(0, 100), rng.choice(["b", "drop", None]))
            for number in rng.sample(range(14), 9)
        ]
        outcome = ns.merge(
            frame(spark, source),
            tmp_path,
            NAME,
            when_matched=[
                ns.Clause("delete", "source.text = 'drop'"),
                ns.Clause("update", "source.v > target.v", set={"v": "source.v + target.v"}),
                ns.Clause("update", sf.col("source.v") < 20, set={"text": sf.lit("small")}),
            ],
            when_not_matched=ns.Clause("insert", "source.v >= 30"),
        )
        written = 0
        for number, v, text in source:
            new = cast("int", v)
            if number not in model:
                if new >= 30:
                    model[number] = (number, v, text)
                    written += 1
                continue
            old = cast("int", model[number][1])
            if text == "drop":
                del model[number]
            elif new > old:
                model[number] = (number, new + old, model[number][2])
                written += 1
            elif new < 20:
                model[number] = (number, old, "small")
                written += 1
        assert outcome.rows_written == written
        assert clean_rows(tmp_path) == model, step


def test_plain_words_update_what_is_there_and_insert_what_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    model = filled(spark, tmp_path)
    rows: list[Row] = [(1, 5, "new"), (20, 6, "new")]
    ns.merge(frame(spark, rows), tmp_path, NAME)
    model |= {row[0]: row for row in rows}
    assert clean_rows(tmp_path) == model
    ns.merge(
        frame(spark, [(2, 5, "x"), (21, 6, "x")]),
        tmp_path,
        NAME,
        when_matched="delete",
        when_not_matched=None,
    )
    del model[2]
    assert clean_rows(tmp_path) == model


def test_clauses_that_make_no_sense_are_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    filled(spark, tmp_path)
    given = frame(spark, [(1, 5, "new")])
    with pytest.raises(neve.InvalidArgument, match="when_matched has 'insert'"):
        ns.merge(given, tmp_path, NAME, when_matched="insert")
    with pytest.raises(neve.InvalidArgument, match="of the key"):
        ns.merge(given, tmp_path, NAME, when_matched=ns.Clause("update", set={"id": "1"}))
    with pytest.raises(neve.InvalidArgument, match="not a column of the table"):
        ns.merge(given, tmp_path, NAME, when_matched=ns.Clause("update", set={"w": "1"}))
    with pytest.raises(neve.InvalidArgument, match="does not understand a clause"):
        ns.merge(given, tmp_path, NAME, when_matched=ns.Clause("update", "source.w > 1"))
    with pytest.raises(neve.SchemaMismatch, match="'v'"):
        ns.merge(given, tmp_path, NAME, when_matched=ns.Clause("update", set={"v": "'text'"}))
    with pytest.raises(neve.SchemaMismatch, match="'w' of the rows is not in the table"):
        ns.merge(given.withColumnRenamed("v", "w"), tmp_path, NAME)
    with pytest.raises(neve.InvalidArgument, match="several rows of one key, such as 1"):
        ns.merge(given.union(given), tmp_path, NAME)
    assert current_version(tmp_path) == 2


@pytest.mark.parametrize("changed", [3, 50])
def test_a_merge_is_decided_anew_when_one_of_its_rows_changed_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: int
) -> None:
    model = filled(spark, tmp_path)
    commit = BulkCommitter.commit
    tries: list[int] = []

    def late(
        self: BulkCommitter,
        run: BulkRun,
        work: BulkWork,
        *,
        decided: bool = False,
        replaces: frozenset[tuple[PartitionValue, ...]] | None = None,
        is_first: bool = False,
        executor: PlanExecutor | None = None,
    ) -> BulkOutcome:
        tries.append(run.base)
        if len(tries) == 1:
            with neve.open(tmp_path) as catalog, catalog.table(NAME) as table:
                table.put({"id": changed, "v": 1_000, "text": "live"})
                table.flush()
        return commit(
            self,
            run,
            work,
            decided=decided,
            replaces=replaces,
            is_first=is_first,
            executor=executor,
        )

    monkeypatch.setattr(BulkCommitter, "commit", late)
    ns.merge(
        frame(spark, [(changed, 5, "x"), (4, 5, "x")]),
        tmp_path,
        NAME,
        when_matched=ns.Clause("update", set={"v": "source.v + target.v"}),
        when_not_matched=None,
    )
    model[changed], model[4] = (changed, 1_005, "live"), (4, 45, "b")
    assert clean_rows(tmp_path) == model
    assert len(tries) == 2


def test_a_partial_upsert_leaves_the_other_columns_and_says_what_is_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    model = filled(spark, tmp_path, partition_by=["text"])
    given = spark.createDataFrame([(1, "moved"), (30, "new")], "id long, text string")
    outcome = ns.upsert(given, tmp_path, NAME, columns=["text"])
    model[1], model[30] = (1, 10, "moved"), (30, None, "new")
    assert clean_rows(tmp_path) == model
    assert (outcome.rows_written, outcome.rows_superseded) == (2, 1)
    with pytest.raises(neve.SchemaMismatch, match="'v' is missing from the rows"):
        ns.upsert(given, tmp_path, NAME, columns=["v"])
    with pytest.raises(neve.NotFound, match="'w'"):
        ns.upsert(given, tmp_path, NAME, columns=["w"])
    with pytest.raises(neve.InvalidArgument, match="no column besides the key"):
        ns.upsert(given, tmp_path, NAME, columns=["id"])
