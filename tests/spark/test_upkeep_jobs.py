"""Upkeep on Spark: history expires, garbage goes, damage is found, indexes come back."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import neve
from neve import spark as ns
from neve.errors import Corruption, InvalidArgument, NotFound, Unavailable
from neve.spark.task_answers import TaskAnswer
from neve.spark.task_run import Watch, answers_of, run_tasks

NAME = "a.b"
COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "v": pa.int64()}
OPTIONS = neve.TableOptions(background=False)
ORPHAN = f"{'0' * 32}.parquet"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Return a lake whose table has three Versions of rows, in a partition each and together."""
    with neve.open(tmp_path / "lake") as catalog:
        table = catalog.create_table(
            NAME, pa.schema(COLUMNS), ["id"], partition_by=["bucket(2, id)"], options=OPTIONS
        )
        for number in range(3):
            # Enough for an index: a file of a few rows has none.
            ids = list(range(number * 100, number * 100 + 400))
            table.upsert(pa.table({"id": ids, "v": [number] * 400}))
            table.flush()
    return tmp_path / "lake"


@pytest.fixture
def writer(lake: Path) -> Iterator[neve.Table]:
    with neve.open(lake) as catalog:
        yield catalog.table(NAME, options=OPTIONS)


def files_in(lake: Path, folder: str) -> list[Path]:
    return sorted(lake.glob(f"tables/*/{folder}/**/{'[0-9a-f]' * 32}.*"))


def flip_a_byte(path: Path) -> None:
    payload = bytearray(path.read_bytes())
    payload[len(payload) // 2] ^= 0xFF
    path.write_bytes(payload)


# History and garbage


def test_what_expired_is_deleted_and_the_table_stays_as_it_is(
    spark: SparkSession, lake: Path
) -> None:
    ns.compact(spark, lake, NAME, full=True)
    before = len(files_in(lake, "data"))

    report = ns.expire(lake, NAME, keep_last=1)
    preview = ns.collect_garbage(spark, lake, NAME)
    collected = ns.collect_garbage(spark, lake, NAME, dry_run=False)

    assert report.expired_versions
    assert preview.is_dry_run
    assert sorted(preview.paths) == sorted(collected.paths)
    assert before - len(files_in(lake, "data")) >= 6
    assert ns.verify(spark, lake, NAME).row_count == 600
    with neve.open(lake) as catalog:
        assert catalog.table(NAME, read_only=True).scan().count() == 600


def test_a_tagged_version_stays_readable(spark: SparkSession, lake: Path) -> None:
    with neve.open(lake) as catalog:
        catalog.table(NAME, options=OPTIONS).tag("first", 2)
    ns.compact(spark, lake, NAME, full=True)

    ns.expire(lake, NAME, keep_last=1)
    ns.collect_garbage(spark, lake, NAME, dry_run=False)

    with neve.open(lake) as catalog:
        assert catalog.table(NAME, read_only=True).at(tag="first").scan().count() == 400


def test_many_files_are_deleted_by_the_workers(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neve.spark.maintenance._DELETED_ELSEWHERE_FROM", 1)
    told: list[tuple[int, int]] = []
    ns.compact(spark, lake, NAME, full=True)
    ns.expire(lake, NAME, keep_last=1)

    collected = ns.collect_garbage(
        spark, lake, NAME, dry_run=False, progress=lambda *done: told.append(done)
    )

    assert collected.file_count >= 6
    assert told[-1][0] == told[-1][1]
    assert ns.collect_garbage(spark, lake, NAME).file_count == 0


def test_a_file_that_nobody_announced_stays_while_the_table_has_a_writer(
    spark: SparkSession, lake: Path, writer: neve.Table
) -> None:
    orphan = files_in(lake, "data")[0].with_name(ORPHAN)
    orphan.write_bytes(b"a flush that is not yet committed")

    ns.collect_garbage(spark, lake, NAME, dry_run=False)
    beside_a_writer = orphan.exists()
    writer.close()
    report = ns.collect_garbage(spark, lake, NAME, dry_run=False)

    assert beside_a_writer
    assert [Path(path).name for path in report.paths] == [ORPHAN]
    assert not orphan.exists()


def test_expiring_nothing_is_refused_with_the_words_of_the_table(lake: Path) -> None:
    with pytest.raises(InvalidArgument, match="keep_last=0"):
        ns.expire(lake, NAME, keep_last=0)


# Soundness


def test_a_sound_table_gives_the_report_of_the_embedded_engine(
    spark: SparkSession, lake: Path, writer: neve.Table
) -> None:
    told: list[tuple[int, int]] = []

    report = ns.verify(spark, lake, NAME, progress=lambda *done: told.append(done))

    assert report == writer.verify()
    assert told[-1] == (report.byte_count, report.byte_count)


@pytest.mark.parametrize("folder", ["data", "deletes"])
def test_damage_is_corruption_that_names_the_file(
    spark: SparkSession, lake: Path, folder: str
) -> None:
    damaged = files_in(lake, folder)[-1]
    flip_a_byte(damaged)

    with pytest.raises(Corruption, match="wrong with the table") as caught:
        ns.verify(spark, lake, NAME)

    assert caught.value.path is not None
    assert caught.value.path.endswith(damaged.name)


def test_a_missing_file_is_corruption(spark: SparkSession, lake: Path) -> None:
    missing = files_in(lake, "data")[0]
    missing.unlink()

    with pytest.raises(Corruption) as caught:
        ns.verify(spark, lake, NAME)

    assert missing.name in str(caught.value)


@pytest.mark.parametrize("damage", [os.unlink, flip_a_byte], ids=["missing", "damaged"])
def test_an_index_that_is_of_no_use_is_made_again_byte_for_byte(
    spark: SparkSession, lake: Path, damage: object
) -> None:
    before = {path: path.read_bytes() for path in files_in(lake, "index")}
    assert callable(damage)
    useless = sorted(before)[:2]
    for path in useless:
        damage(path)

    rebuilt = ns.rebuild_indexes(spark, lake, NAME)

    assert sorted(Path(path).stem for path in rebuilt) == sorted(path.stem for path in useless)
    assert {path: path.read_bytes() for path in files_in(lake, "index")} == before
    assert ns.rebuild_indexes(spark, lake, NAME) == ()


def test_an_index_of_a_damaged_data_file_is_not_made(spark: SparkSession, lake: Path) -> None:
    data = files_in(lake, "data")[0]
    flip_a_byte(data)
    index = next(path for path in files_in(lake, "index") if path.stem == data.stem)
    index.unlink()

    with pytest.raises(Corruption):
        ns.rebuild_indexes(spark, lake, NAME)

    assert not index.exists()


# What is written about it


def test_the_page_on_maintenance_shows_what_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[2] / "docs" / "spark-maintenance.md"
    shown = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)

    exec("\n".join(shown), {})  # noqa: S102 - the page's own code, in one piece

    assert ns.verify(spark, tmp_path / "lake", "shop.people").row_count == 2


# Tasks


def test_the_error_of_a_task_is_raised_in_the_driver_as_it_is(spark: SparkSession) -> None:
    def work(number: int) -> TaskAnswer:
        if number == 1:
            raise Corruption("rows are gone", path="data/x", offset=7, hint="Look for them")
        return TaskAnswer(paths=(str(number),))

    first, second = run_tasks(spark, [0, 1], work, what="counting")

    assert first == TaskAnswer(paths=("0",))
    with pytest.raises(Corruption, match="rows are gone in data/x") as caught:
        answers_of([first, second])
    assert caught.value.hint == "Look for them"
    assert caught.value.offset == 7


def test_storage_that_does_not_answer_fails_the_job_with_its_words(spark: SparkSession) -> None:
    def work(_number: int) -> TaskAnswer:
        raise Unavailable("the bucket did not answer", path="s3://bucket")

    with pytest.raises(Unavailable, match=r"counting: .*the bucket did not answer"):
        run_tasks(spark, [0], work, what="counting")


def test_a_job_that_is_to_end_meanwhile_is_ended(spark: SparkSession, tmp_path: Path) -> None:
    began, over = tmp_path / "began", tmp_path / "over"

    def work(_number: int) -> TaskAnswer:
        import time

        began.touch()
        for _ in range(600):  # a minute: without the end, the test fails
            if over.exists():
                break
            time.sleep(0.1)
        return TaskAnswer()

    def check() -> None:
        if began.exists():
            raise NotFound("the table was dropped")

    watch = Watch(report=lambda _more: None, check=check)
    with pytest.raises(NotFound, match="the table was dropped"):
        run_tasks(spark, [0], work, what="waiting", watch=watch)
    over.touch()


def test_no_tasks_need_no_job(spark: SparkSession) -> None:
    assert run_tasks(spark, [], lambda _task: TaskAnswer(), what="nothing") == []
