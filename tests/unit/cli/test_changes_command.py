"""`neve changes`: what happened to rows, for people and for programs."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import neve
from tests.unit.cli.rows_lake import RowsLake, Terminal, plain_lines

TYPES = ["insert", "insert", "delete", "update_preimage", "update_postimage"]


@pytest.fixture
def lake() -> RowsLake:
    """Version 2 has two orders; version 3 changes the second and deletes the first."""
    made = RowsLake().orders((1, "ada", "9.50"), (2, "bob", None))
    made.ok("flush", "shop.orders")
    made.ok("put", "shop.orders", '{"id": 2, "customer": "eve"}')
    made.ok("delete", "shop.orders", "1")
    made.ok("flush", "shop.orders")
    return made


def test_changes_are_a_table_for_people(lake: RowsLake) -> None:
    lines = lake.ok("changes", "shop.orders", "--since", "2").splitlines()

    head = ["id", "customer", "amount", "_change_type", "_commit_version", "_commit_timestamp"]
    assert lines[0].split() == head
    assert [line.split()[:4] for line in lines[2:5]] == [
        ["1", "ada", "9.50", "delete"],
        ["2", "bob", "null", "update_preimage"],
        ["2", "eve", "null", "update_postimage"],
    ]
    assert lines[5] == "3 rows · after version 2 to 3"


def test_changes_are_a_document_for_programs(lake: RowsLake) -> None:
    document = lake.json("changes", "shop.orders")

    assert (document["table"], document["since"], document["until"]) == ("shop.orders", 0, 3)
    assert [row["_change_type"] for row in document["rows"]] == TYPES
    assert document["rows"][0]["_commit_version"] == 2
    assert document["rows"][0]["_commit_timestamp"].endswith("+00:00")


def test_a_stretch_ends_where_it_is_said(lake: RowsLake) -> None:
    lines = lake.ok("changes", "shop.orders", "--until", "2", "--output", "jsonl").splitlines()

    assert [json.loads(line)["id"] for line in lines] == [1, 2]


def test_changes_are_written_to_a_file(lake: RowsLake, tmp_path: Path) -> None:
    place = tmp_path / "changes.parquet"

    said = lake.ok("changes", "shop.orders", str(place))

    assert said == f"wrote 5 rows to {place}\n"
    assert pq.read_table(place).column("_change_type").to_pylist() == TYPES


def test_live_changes_come_last_without_a_version(lake: RowsLake) -> None:
    lake.ok("put", "shop.orders", '{"id": 5, "customer": "kim"}')

    lines = lake.ok("changes", "shop.orders", "--since", "2", "--live").splitlines()
    document = lake.json("changes", "shop.orders", "--since", "3", "--live")

    assert lines[5].split() == ["5", "kim", "null", "insert", "null", "null"]
    assert lines[6] == f"4 rows · after version 2 to {document['until']}"
    (row,) = document["rows"]
    assert (row["_change_type"], row["_commit_version"]) == ("insert", None)
    assert row["_commit_timestamp"] is None
    assert lake.json("changes", "shop.orders", "--since", "3")["rows"] == []


def test_live_changes_of_a_consumer_come_again_once_they_are_flushed(lake: RowsLake) -> None:
    lake.ok("put", "shop.orders", '{"id": 5, "customer": "kim"}')

    def ids() -> list[int]:
        found = lake.json("changes", "shop.orders", "--since", "3", "--consumer", "c", "--live")
        return [row["id"] for row in found["rows"]]

    assert (ids(), ids()) == ([5], [5])
    lake.ok("flush", "shop.orders")
    assert (ids(), ids()) == ([5], [])


@pytest.mark.parametrize("form", ["table", "jsonl"])
def test_a_follower_prints_each_commit_as_it_comes(
    lake: RowsLake, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def follow(table: neve.Table, since: int) -> Any:  # noqa: ANN401 - batches
        asked.append(since)
        return iter(list(table.changes(since)))  # what is there, without the wait for more

    monkeypatch.setattr(neve.Table, "follow", follow)

    said = lake.ok("changes", "shop.orders", "--follow", "--since", "1", "--output", form)

    assert asked == [1]
    if form == "jsonl":
        assert [json.loads(line)["_change_type"] for line in said.splitlines()] == TYPES
    else:
        assert said.count("_change_type") == 2
        assert said.count("update_preimage") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "9"], "there is no version 9 yet"),
        (["--since", "3", "--until", "2"], "--until 2 is before --since 3"),
        (["--follow", "--until", "3"], "both --follow and --until are given"),
        (["--follow", "--json"], "json is one document"),
        (["--follow", "--output", "csv"], "csv is one document"),
        (["--follow", "changes.jsonl"], "a file appears when it is complete"),
        (["--output", "parquet"], "Parquet is not text that can be printed"),
        (["--since", "-1"], "not a number of 0 or more"),
        (["--live", "--until", "3"], "both --live and --until are given"),
        (["--live", "--follow"], "both --live and --follow are given"),
    ],
    ids=range(10),
)
def test_what_cannot_be_is_wrong_usage(lake: RowsLake, options: list[str], said: str) -> None:
    done = lake.run("changes", "shop.orders", *options)

    assert done.exit_code == 2
    assert said in done.stderr


def test_history_that_has_expired_says_where_it_begins(lake: RowsLake) -> None:
    lake.ok("expire", "shop.orders", "--keep-last", "1")

    done = lake.run("changes", "shop.orders")

    assert done.exit_code == 2
    assert "Changes are kept from --since 3 on" in done.stderr


def test_what_happened_to_a_row_is_told_whole_however_narrow_the_terminal_is(
    terminal: Terminal,
) -> None:
    lake = RowsLake().orders()
    lake.flushes([[{"id": 1, "customer": "a" * 50}], [{"id": 1, "customer": "b" * 50}]])
    terminal(60)

    said = plain_lines(lake.ok("changes", "shop.orders"))
    wide = plain_lines(lake.ok("changes", "shop.orders", "--wide"))

    assert max(map(len, said)) <= 60
    assert any(" update_preimage " in line for line in said)
    assert any(" update_postimage " in line for line in said)
    assert any("b" * 50 in line for line in wide)
