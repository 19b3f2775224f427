"""Commands on the versions of a table: tag, rollback, and what describe and history say of them."""

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
