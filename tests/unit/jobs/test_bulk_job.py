"""A job of any process: many calls, one commit, beside the live writer."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import neve
from neve.errors import Closed, InvalidArgument, NotFound, SchemaMismatch
from tests.unit.engine.tables import a_catalog, a_table


@pytest.fixture
def lake() -> Iterator[neve.Lake]:
    with a_catalog() as lake:
        yield lake


def row(key: int, v: int = 0) -> dict[str, object]:
    return {"id": key, "v": v, "text": "t"}


def rows(table: neve.Table) -> dict[object, object]:
    table.refresh()
    return {each["id"]: each["v"] for each in table.scan().to_arrow().to_pylist()}


def test_calls_of_a_block_are_one_commit(lake: neve.Lake) -> None:
    table = a_table(lake)
    table.upsert([row(1, 1), row(2, 1)])
    before = table.flush()

    with lake.bulk("a.b") as job:
        job.upsert([row(2, 2), row(3, 2)])
        job.delete([1])
        job.apply([{"op": "c", **row(4, 2)}, {"op": "d", "id": 3}])

    assert rows(table) == {2: 2, 4: 2}
    assert job.outcome is not None
    assert (job.outcome.version, job.outcome.rows_written) == (before + 1, 2)
    assert table.version == before + 1


def test_of_several_changes_of_a_key_the_last_call_counts(lake: neve.Lake) -> None:
    table = a_table(lake)

    with lake.bulk("a.b") as job:
        job.upsert([row(1, 1), row(1, 2), row(2, 1)])
        job.delete([2, 3])
        job.upsert(pa.table({"id": [3], "v": [7], "text": ["t"]}))

    assert rows(table) == {1: 2, 3: 7}


def test_rows_that_the_writer_has_not_flushed_come_after(lake: neve.Lake) -> None:
    table = a_table(lake)
    table.put(row(1, 1))

    with lake.bulk("a.b") as job:
        job.upsert([row(1, 9), row(2, 9)])

    assert rows(table) == {1: 1, 2: 9}
    table.flush()
    assert rows(table) == {1: 1, 2: 9}


def test_a_block_that_fails_changes_nothing_and_leaves_no_file(lake: neve.Lake) -> None:
    table = a_table(lake)
    version = table.version

    job = lake.bulk("a.b")

    def fail() -> None:
        with job:
            job.upsert([row(1)])
            job.upsert([{"id": 1}, {"other": 2}])

    with pytest.raises(SchemaMismatch):
        fail()

    assert (table.version, rows(table)) == (version, {})
    assert job.outcome is None
    paths = table._open.stored.paths
    assert not list(table._open.stored.objects.list(f"{paths.data}/"))
    with pytest.raises(Closed, match="has ended"):
        job.upsert([row(1)])


def test_a_job_that_is_repeated_is_committed_once(lake: neve.Lake) -> None:
    table = a_table(lake)
    for v in (1, 2):
        with lake.bulk("a.b", job_id="load-1") as job:
            job.upsert([row(1, v)])
    assert job.outcome is not None
    assert job.outcome.was_already_done
    with lake.bulk("a.b", app_id="feed", batch=3) as job:
        job.delete([1])
    with pytest.raises(InvalidArgument, match="batch 2"):
        lake.bulk("a.b", app_id="feed", batch=2)
    with pytest.raises(InvalidArgument, match="belong together"):
        lake.bulk("a.b", app_id="feed")

    assert rows(table) == {}
    assert table.last_batch("feed") == 3


def test_an_empty_block_makes_no_version(lake: neve.Lake) -> None:
    table = a_table(lake)

    with lake.bulk("a.b") as job:
        pass

    assert job.outcome is not None
    assert job.outcome.version == table.version == 1


def test_partitions_are_overwritten_as_a_whole(lake: neve.Lake) -> None:
    table = a_table(lake, partition_by=["v"])
    table.upsert([row(1, 1), row(2, 1), row(3, 2)])
    table.flush()

    with lake.bulk("a.b") as job:
        job.overwrite_partitions([row(9, 1)])

    assert rows(table) == {9: 1, 3: 2}
    mixed = lake.bulk("a.b")
    mixed.upsert([row(4, 4)])
    with pytest.raises(InvalidArgument, match="other changes"):
        mixed.overwrite_partitions([row(9, 1)])
    mixed.close()
    for call, argument in (
        ("upsert", [row(4, 4)]),
        ("delete", [3]),
        ("apply", [{"op": "d", "id": 3}]),
        ("overwrite_partitions", [row(4, 4)]),
    ):
        mixed = lake.bulk("a.b")
        mixed.overwrite_partitions([row(8, 1)])
        with pytest.raises(InvalidArgument, match="other changes"):
            getattr(mixed, call)(argument)
        mixed.close()
    assert rows(table) == {9: 1, 3: 2}


def test_a_table_that_is_not_there_is_not_found(lake: neve.Lake) -> None:
    with pytest.raises(NotFound):
        lake.bulk("a.none")


def test_another_process_commits_beside_the_writer(tmp_path: Path) -> None:
    script = (
        "import sys, neve\n"
        "with neve.open(sys.argv[1]) as lake, lake.bulk('a.t') as job:\n"
        "    job.upsert([{'id': 2, 'v': 2}])\n"
        "    job.delete([1])\n"
    )
    with neve.open(tmp_path) as lake:
        table = lake.create_table("a.t", schema={"id": "long", "v": "long"}, primary_key="id")
        table.put({"id": 1, "v": 1})
        table.flush()
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)

        assert rows(table) == {2: 2}


@pytest.mark.parametrize(("size", "is_one"), [("2000", False), ("67108864", True), ("", True)])
def test_files_are_as_large_as_the_table_asks_for(
    lake: neve.Lake, size: str, *, is_one: bool
) -> None:
    properties = {"write.target-file-size-bytes": size} if size else {}
    schema = {"id": "long!", "text": "string"}
    rows = [{"id": key, "text": f"{key * key * 7919:032x}"} for key in range(3_000)]
    lake.create_table("a.sized", schema, ["id"], properties=properties).close()

    with lake.bulk("a.sized") as job:
        job.upsert(rows)

    assert job.outcome is not None
    assert (job.outcome.files == 1) == is_one
