"""Commands on the versions of a table: tag, rollback, and what describe and history say of them."""

import time
from pathlib import Path

import pytest

import neve
from neve.engine.table_options import TableOptions
from tests.unit.cli.rows_lake import RowsLake


@pytest.fixture
def lake() -> RowsLake:
    """Return a table whose version 2 has one row, and version 3 two."""
    made = RowsLake().orders()
    made.flushes([[{"id": 1, "customer": "ada"}], [{"id": 2}]])
    return made


def ids(lake: RowsLake) -> list[int]:
    return [row["id"] for row in lake.rows()]


def tags(lake: RowsLake) -> dict[int, list[str]]:
    versions = lake.json("history", "shop.orders")["versions"]
    return {each["version"]: each["tags"] for each in versions if each["tags"]}


def test_a_version_gets_a_name_that_moves(lake: RowsLake) -> None:
    assert lake.ok("tag", "shop.orders", "good") == "tagged version 3 as good\n"
    assert tags(lake) == {3: ["good"]}
    assert lake.json("tag", "shop.orders", "good", "--version", "2")["version"] == 2
    assert tags(lake) == {2: ["good"]}
    assert lake.ok("tag", "shop.orders", "good", "--remove") == "removed the tag good\n"
    assert tags(lake) == {}


def test_a_tag_works_beside_a_writer_and_says_what_it_lacks(lake: RowsLake) -> None:
    with neve.open(lake.location).table("shop.orders") as writer:
        writer.put({"id": 3, "customer": None, "amount": None})
        said = lake.ok("tag", "shop.orders", "now")

    assert said.splitlines() == [
        "tagged version 3 as now",
        "1 change not in it, because not flushed yet",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x", "--version", "99"], "99"),
        (["x", "--remove"], "x"),
        (["x", "--remove", "--version", "2"], "--remove does not take a version"),
    ],
    ids=["unknown version", "unknown tag", "both"],
)
def test_what_cannot_be_tagged_is_refused(lake: RowsLake, arguments: list[str], said: str) -> None:
    refused = lake.run("tag", "shop.orders", *arguments)

    assert refused.exit_code == 2
    assert said in refused.stderr


@pytest.mark.parametrize("way", [["2"], ["--tag", "good"]], ids=["number", "tag"])
def test_an_old_version_becomes_the_current_one(lake: RowsLake, way: list[str]) -> None:
    lake.ok("tag", "shop.orders", "good", "--version", "2")
    lake.ok("put", "shop.orders", '{"id": 3}')

    said = lake.ok("rollback", "shop.orders", *way)

    assert said == "version 5 of shop.orders is version 2 again\n"
    assert ids(lake) == [1]


def test_a_rollback_goes_to_a_time(lake: RowsLake) -> None:
    assert lake.json("rollback", "shop.orders", "--timestamp", "0s") == {
        "table": "shop.orders",
        "restored": 3,
        "version": 4,
    }


@pytest.mark.parametrize("way", [[], ["2", "--tag", "x"], ["99"]], ids=["none", "two", "unknown"])
def test_where_to_roll_back_to_is_said_once(lake: RowsLake, way: list[str]) -> None:
    refused = lake.run("rollback", "shop.orders", *way)

    assert refused.exit_code == 2
    assert ids(lake) == [1, 2]


def test_a_rollback_without_a_version_is_told_where_one_is_written(lake: RowsLake) -> None:
    refused = lake.run("rollback", "shop.orders")

    assert "`neve rollback shop.orders VERSION`, or --tag or --timestamp" in refused.stderr


def test_a_name_without_a_namespace_is_answered_with_the_tables_of_that_name(
    lake: RowsLake,
) -> None:
    refused = lake.run("history", "orders")

    assert refused.exit_code == 2
    assert "Write namespace.table: shop.orders\n" in refused.stderr
    assert "such as default.visits" in lake.run("history", "visits").stderr


def test_describe_tells_files_levels_and_what_is_only_in_the_log(lake: RowsLake) -> None:
    lake.flushes([[{"id": 1, "customer": "eve"}]])
    options = TableOptions(background=False)
    with neve.open(lake.location).table("shop.orders", options=options) as table:
        table.put({"id": 9})

    document = lake.json("describe", "shop.orders")
    told = lake.ok("describe", "shop.orders")

    assert (document["rows"], document["files"], document["deleted_rows"]) == (2, 3, 1)
    assert document["levels"] == {"0": 3}
    assert document["unflushed_changes"] == 1
    assert "3 files in level 0, 1 row marked as deleted" in told
    assert "1 change not flushed yet" in told


def test_a_tag_that_looks_like_a_number_of_a_version_is_refused_with_the_way_to_say_it() -> None:
    lake = RowsLake().orders((1, "ada", "1"))

    refused = lake.run("tag", "shop.orders", "2")

    assert refused.exit_code == 2
    assert "would look like the number of a version" in refused.stderr
    assert "neve tag shop.orders v2 --version 2" in refused.stderr
    assert lake.json("history", "shop.orders")["versions"][-1]["tags"] == []


def test_a_version_to_go_back_to_is_given_in_one_way() -> None:
    lake = RowsLake().orders((1, "ada", "1"))

    twice = lake.run("rollback", "shop.orders", "1", "--version", "1")
    by_option = lake.json("rollback", "shop.orders", "--version", "1")

    assert twice.exit_code == 2
    assert "the version is given twice" in twice.stderr
    assert by_option["restored"] == 1


# Consumers


def consumed(lake: RowsLake, *arguments: str) -> list[int]:
    rows = lake.json("changes", "shop.orders", "--consumer", "billing", *arguments)["rows"]
    return [row["_commit_version"] for row in rows]


def test_a_consumer_reads_on_where_the_last_command_stopped(lake: RowsLake) -> None:
    assert consumed(lake) == [2, 3]
    lake.flushes([[{"id": 3}]])

    document = lake.json("changes", "shop.orders", "--consumer", "billing", "--keep", "3600")

    assert (document["since"], document["until"], len(document["rows"])) == (3, 4, 1)
    assert consumed(lake) == []
    (row,) = lake.json("consumers", "shop.orders")["consumers"]
    assert (row["name"], row["position"], row["keep_seconds"]) == ("billing", 4, 3600.0)
    assert row["holds"]
    said = lake.ok("consumers", "shop.orders")
    assert said.startswith("billing  read up to version 4, last at ")
    assert said.endswith(", holds the versions after it; keeps them for 3,600 s\n")


def test_a_consumer_works_beside_a_writer_and_starts_after_a_version(lake: RowsLake) -> None:
    quiet = TableOptions(background=False)
    with neve.open(lake.location).table("shop.orders", options=quiet):
        assert consumed(lake, "--since", "2") == [3]
        assert consumed(lake, "--since", "2") == []
        lake.ok("consumers", "shop.orders", "--drop", "billing")
        assert consumed(lake) == [2, 3]


def test_a_consumer_whose_changes_could_not_be_written_stays_where_it_was(
    lake: RowsLake, tmp_path: Path
) -> None:
    file = tmp_path / "missing" / "changes.jsonl"
    failed = lake.run("changes", "shop.orders", str(file), "--consumer", "billing")
    assert failed.exit_code == 3, failed.stderr

    assert consumed(lake) == [2, 3]


def test_a_consumer_is_dropped_by_its_name(lake: RowsLake) -> None:
    assert lake.ok("consumers", "shop.orders") == "no consumers\n"
    consumed(lake)

    refused = lake.run("consumers", "shop.orders", "--drop", "biling")
    assert refused.exit_code == 2
    assert "Did you mean 'billing'?" in refused.stderr
    refused = lake.run("consumers", "shop.orders", "--drop", "zzz")
    assert "`neve consumers` lists them" in refused.stderr

    said = lake.ok("consumers", "shop.orders", "--drop", "billing")
    assert said == "removed the consumer billing\n"
    consumed(lake)
    assert lake.json("consumers", "shop.orders", "--drop", "billing") == {
        "table": "shop.orders",
        "dropped": "billing",
        "consumers": [],
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--keep", "5"], "--keep needs --consumer"),
        (["--consumer", "c", "--until", "2"], "both --consumer and --until are given"),
        (["--consumer", "c", "--follow"], "both --consumer and --follow are given"),
        (["--consumer", "c", "--keep", "0"], "keep_seconds=0 is invalid"),
        (["--consumer", ""], "cannot be the name of a consumer"),
        (["--consumer", "c", "--since", "9"], "there is no version 9 yet"),
    ],
    ids=["keep", "until", "follow", "zero", "name", "later"],
)
def test_a_consumer_that_makes_no_sense_is_refused(
    lake: RowsLake, arguments: list[str], said: str
) -> None:
    refused = lake.run("changes", "shop.orders", *arguments)

    assert refused.exit_code == 2
    assert said in refused.stderr
    assert lake.json("consumers", "shop.orders")["consumers"] == []


def test_expire_and_describe_name_the_consumers_that_hold_history(lake: RowsLake) -> None:
    lake.ok("changes", "shop.orders", "--consumer", "billing")
    lake.flushes([[{"id": 3}], [{"id": 4}]])

    document = lake.json("expire", "shop.orders", "--keep-last", "1")
    said = lake.ok("expire", "shop.orders", "--keep-last", "1")

    (held,) = document["consumers"]
    assert (held["name"], held["position"], document["oldest_version"]) == ("billing", 3, 3)
    assert held["updated_ms"] < held["until_ms"]
    assert "versions from 3 on held by the consumer billing, last read " in said
    assert lake.json("describe", "shop.orders")["consumers"] == [held]
    assert "held by the consumer billing" in lake.ok("describe", "shop.orders")
    lake.ok("consumers", "shop.orders", "--drop", "billing")
    assert lake.json("expire", "shop.orders", "--keep-last", "1")["consumers"] == []
    assert "consumer" not in lake.ok("describe", "shop.orders")


def test_a_consumer_whose_history_has_expired_is_said_how_to_go_on(lake: RowsLake) -> None:
    lake.ok("changes", "shop.orders", "--consumer", "billing", "--keep", "1")
    lake.flushes([[{"id": 3}], [{"id": 4}]])
    time.sleep(1.1)
    lake.ok("expire", "shop.orders", "--keep-last", "1")

    refused = lake.run("changes", "shop.orders", "--consumer", "billing")

    assert refused.exit_code == 2
    assert "the history after version 3 has expired" in refused.stderr
    assert "`neve consumers TABLE --drop billing`, or use --since 5" in refused.stderr
    assert consumed(lake, "--since", "5") == []
