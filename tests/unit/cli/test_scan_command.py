"""`neve scan`: which rows it gives, in which form, and from which version."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

import neve
from neve.cli.main import cli
from tests.unit.cli.rows_lake import VISITS, RowsLake, Terminal, plain_lines

ROWS: list[tuple[int, str | None, str | None]] = [
    (1, "ada", "9.50"),
    (2, 'b"o,b', None),
    (3, "", "1000"),
    (4, None, "-2.05"),
]


@pytest.fixture
def lake() -> RowsLake:
    """Return a table with two rows in a file and two in the log."""
    made = RowsLake().orders(*ROWS[:2])
    made.ok("flush", "shop.orders")
    made.ok(
        "put",
        "shop.orders",
        "-",
        stdin='{"id": 3, "customer": "", "amount": 1000}\n{"id": 4, "amount": "-2.05"}',
    )
    return made


# Forms


def test_rows_are_drawn_as_a_table(lake: RowsLake) -> None:
    assert lake.ok("scan", "shop.orders", "--key-range", "", "").splitlines() == [
        "id  customer   amount",
        "──  ────────  ───────",
        " 1  ada          9.50",
        ' 2  b"o,b        null',
        " 3            1000.00",
        " 4  null        -2.05",
        "4 rows · version 2 · 2 changes not flushed",
    ]


WIDE = "\x1b[31m" + "雪" * 60


def test_a_table_is_never_cut_in_a_pipe_and_lets_no_control_character_through(
    lake: RowsLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ok("put", "shop.orders", json.dumps({"id": 5, "customer": WIDE}))
    monkeypatch.setenv("COLUMNS", "50")

    lines = lake.ok("scan", "shop.orders", "--filter", "id = 5").splitlines()

    assert lines[2] == f" 5  \\x1b[31m{'雪' * 60}    null"


def test_a_table_folds_on_a_terminal_and_not_when_it_is_asked_to_be_wide(
    lake: RowsLake, terminal: Terminal
) -> None:
    lake.ok("put", "shop.orders", json.dumps({"id": 5, "customer": WIDE}))
    terminal(50)

    folded = plain_lines(lake.ok("scan", "shop.orders", "--filter", "id = 5"))
    wide = plain_lines(lake.ok("scan", "shop.orders", "--filter", "id = 5", "--wide"))

    assert max(cell_len(line) for line in folded) <= 50
    assert "".join(folded).count("雪") == 60
    assert folded[2].startswith(" 5  \\x1b[31m雪雪")
    assert folded[2].endswith("    null")
    assert folded[3].startswith("    雪雪")
    assert wide[2] == f" 5  \\x1b[31m{'雪' * 60}    null"


def test_rows_are_one_json_document(lake: RowsLake) -> None:
    document = lake.json("scan", "shop.orders", "--reverse")

    assert (document["table"], document["version"]) == ("shop.orders", 2)
    assert [tuple(row.values()) for row in document["rows"]] == [
        (4, None, "-2.05"),
        (3, "", "1000.00"),
        (2, 'b"o,b', None),
        (1, "ada", "9.50"),
    ]
    assert json.loads(lake.ok("scan", "shop.orders", "--reverse", "--output", "json")) == document


def test_rows_of_an_empty_table_are_no_rows_in_every_form(tmp_path: Path) -> None:
    empty = RowsLake().orders()

    assert empty.ok("scan", "shop.orders").splitlines()[-1] == "0 rows · version 1"
    assert empty.json("scan", "shop.orders")["rows"] == []
    assert empty.ok("scan", "shop.orders", "--output", "jsonl") == ""
    assert empty.ok("scan", "shop.orders", "--output", "csv") == "id,customer,amount\n"
    empty.ok("scan", "shop.orders", "--output", "parquet", str(tmp_path / "x"))
    assert pq.read_table(tmp_path / "x").num_rows == 0


def test_csv_tells_null_from_a_text_without_letters(lake: RowsLake) -> None:
    assert lake.ok("scan", "shop.orders", "--key-range", "", "", "--output", "csv") == (
        'id,customer,amount\n1,ada,9.50\n2,"b""o,b",\n3,"",1000.00\n4,,-2.05\n'
    )


@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv", "parquet"])
def test_a_file_is_written_in_the_form_of_its_name(
    lake: RowsLake, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"rows.{suffix}"

    said = lake.ok("scan", "shop.orders", str(path), "--key-range", "", "")

    assert said == f"wrote 4 rows to {path}\n"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    if suffix == "parquet":
        assert pq.read_table(path).column("id").to_pylist() == [1, 2, 3, 4]
    else:
        printed = lake.ok("scan", "shop.orders", "--key-range", "", "", "--output", suffix)
        assert path.read_text() == printed


def test_parquet_has_one_row_group_for_many_batches(lake: RowsLake, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"

    lake.ok("scan", "shop.orders", str(path))

    # Two rows come from a file and two from the log.
    found = pq.ParquetFile(path)
    assert found.metadata.num_rows == 4
    assert found.num_row_groups == 1


def test_parquet_is_named_behind_its_form(lake: RowsLake, tmp_path: Path) -> None:
    lake.ok("scan", "shop.orders", "--output", "parquet", str(tmp_path / "x"), "--limit", "3")

    table = pq.read_table(tmp_path / "x")
    assert table.num_rows == 3
    assert str(table.schema.field("amount").type) == "decimal128(9, 2)"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--output", "parquet"], "Parquet is not text that can be printed"),
        (["x.doc"], "does not show the format to write"),
        (["x.csv", "--output", "table"], "drawn for people"),
        (["--json", "--output", "csv"], "both --json and --format csv"),
        (["--count", "--explain"], "both --explain and --count"),
        (["--filter", "amont > 5"], "'amont'"),
        (["--filter", "amount >"], "amount >"),
        (["--columns", "id,amont"], "'amont'"),
        (["--key-range", "one", "5"], "key column 'id' holds long"),
        (["--version", "99"], "99"),
        (["--tag", "none"], "there is no tag 'none'"),
        (["--timestamp", "yesterday"], "'yesterday' is not a time"),
        (["--limit", "-1"], "not a number of 0 or more"),
    ],
    ids=range(13),
)
def test_what_cannot_be_asked_is_refused(lake: RowsLake, arguments: list[str], said: str) -> None:
    refused = lake.run("scan", "shop.orders", *arguments)

    assert refused.exit_code == 2
    assert said in refused.stderr
    assert refused.stdout == ""


def test_a_file_that_cannot_be_written_is_no_bug(lake: RowsLake, tmp_path: Path) -> None:
    failed = lake.run("scan", "shop.orders", str(tmp_path / "none" / "x.csv"))

    assert failed.exit_code == 3
    assert "could not write the file: No such file or directory" in failed.stderr


# Which rows


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (["--filter", "amount > 5"], [1, 3]),
        (["--filter", "customer is null"], [4]),
        (["--key-range", "2", "4"], [2, 3]),
        (["--key-range", "2", "4", "--reverse"], [3, 2]),
        (["--key-range", "-9", "2"], [1]),
        (["--key-range", "3", ""], [3, 4]),
        (["--reverse", "--limit", "1"], [4]),
        (["--limit", "0"], []),
        (["--version", "1"], []),
        (["--version", "2"], [1, 2]),
    ],
    ids=range(10),
)
def test_rows_are_chosen(lake: RowsLake, arguments: list[str], keys: list[int]) -> None:
    document = lake.json("scan", "shop.orders", *arguments)

    assert [row["id"] for row in document["rows"]] == keys
    assert lake.json("scan", "shop.orders", "--count", *arguments)["count"] == len(keys)


def test_columns_come_in_the_order_asked_for(lake: RowsLake) -> None:
    asked = ["--columns", "amount, id", "--columns", "customer", "--limit", "1"]

    (row,) = lake.json("scan", "shop.orders", *asked)["rows"]

    assert list(row) == ["amount", "id", "customer"]


def test_a_version_is_found_by_tag_and_by_time(lake: RowsLake) -> None:
    lake.ok("tag", "shop.orders", "first", "--version", "2")
    lake.ok("flush", "shop.orders")

    assert len(lake.json("scan", "shop.orders", "--tag", "first")["rows"]) == 2
    assert len(lake.json("scan", "shop.orders", "--timestamp", "0s")["rows"]) == 4
    before = lake.run("scan", "shop.orders", "--timestamp", "400d")
    assert before.exit_code == 2
    assert "no retained version was current at" in before.stderr


def test_a_bound_of_a_composite_key_is_its_first_value_or_a_list() -> None:
    lake = RowsLake()
    lake.create("shop.visits", VISITS, ["name", "day"])
    lines = [
        json.dumps({"name": name, "day": f"2024-01-0{day}", "pages": day})
        for name in ("ada", "bob")
        for day in (1, 2, 3)
    ]
    lake.ok("put", "shop.visits", "-", stdin="\n".join(lines))

    def pages(first: str, end: str) -> list[int]:
        rows = lake.json("scan", "shop.visits", "--key-range", first, end)["rows"]
        return [row["pages"] for row in rows]

    assert pages("bob", "") == [1, 2, 3]
    assert pages('["ada", "2024-01-02"]', '["bob", "2024-01-02"]') == [2, 3, 1]


# Instead of rows


def test_a_count_is_a_number_alone(lake: RowsLake) -> None:
    assert lake.ok("scan", "shop.orders", "--count") == "4\n"


def test_a_plan_is_explained(lake: RowsLake) -> None:
    told = lake.ok("scan", "shop.orders", "--explain", "--filter", "id > 3", "--columns", "id")
    document = lake.json("scan", "shop.orders", "--explain", "--filter", "id > 3")

    assert "scan of version 2" in told
    assert "id > 3" in told
    assert (document["files_total"], document["files_read"]) == (1, 0)
    assert document["pruned_by_key"] == 1
    assert document["key_start"] == "8000000000000004"


def test_reading_needs_no_lock_and_sees_rows_that_are_only_in_the_log(lake: RowsLake) -> None:
    with neve.open(lake.location).table("shop.orders") as writer:
        writer.put({"id": 9, "customer": None, "amount": None})

        assert len(lake.json("scan", "shop.orders")["rows"]) == 5


def test_where_the_lake_is_may_come_from_the_environment(lake: RowsLake) -> None:
    done = CliRunner(env={"NEVE_LAKE": lake.location}).invoke(
        cli, ["scan", "shop.orders", "--count"]
    )

    assert done.stdout == "4\n"


def test_a_file_that_is_missing_is_damage(tmp_path: Path) -> None:
    lake = RowsLake(str(tmp_path)).orders((1, "ada", None))
    lake.ok("flush", "shop.orders")
    (path,) = tmp_path.rglob("*.parquet")
    path.unlink()

    for command in (["scan", "shop.orders"], ["get", "shop.orders", "1"]):
        refused = lake.run(*command)
        assert refused.exit_code == 5
        assert "version 2 has lost a file" in refused.stderr
        assert path.name in refused.stderr


# System tables


def test_system_tables_are_scanned_like_others_with_their_json_as_text(lake: RowsLake) -> None:
    document = json.loads(
        lake.ok("scan", "__snapshots", "--filter", "operation = 'APPEND'", "--json")
    )

    assert document["table"] == "__snapshots"
    (row,) = document["rows"]
    assert (row["table_name"], row["snapshot_id"]) == ("shop.orders", 2)
    assert json.loads(row["summary"])["added-records"] == "2"
    lines = lake.ok("scan", "__files", "--columns", "table_name,record_count").splitlines()
    assert lines[-2:] == ["shop.orders             2", "1 row"]
    assert lake.ok("scan", "__tables", "--count").strip() == "1"
    assert len(lake.ok("scan", "__tables").splitlines()) == 4, "in a pipe a row is one line"
    newest = lake.ok("scan", "__snapshots", "--reverse", "--limit", "1", "--format", "csv")
    assert newest.splitlines()[1].startswith("shop.orders,2,1,")


def test_a_system_table_is_cut_in_no_pipe_and_folds_on_a_terminal(
    lake: RowsLake, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    piped = lake.ok("scan", "__snapshots").splitlines()
    terminal(50)
    folded = plain_lines(lake.ok("scan", "__snapshots"))
    wide = plain_lines(lake.ok("scan", "__snapshots", "--wide"))

    assert len(piped) == len(wide) == 5  # heading, rule, two versions, count
    assert '"added-records":"2"' in piped[3]
    assert len(folded) > len(wide)


def test_a_system_table_goes_to_a_file(lake: RowsLake, tmp_path: Path) -> None:
    target = tmp_path / "files.parquet"

    lake.ok("scan", "__files", str(target))

    assert pq.read_table(target)["file_format"].to_pylist() == ["PARQUET"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["__snapshot"], "__snapshots"),
        (["__snapshots", "--version", "1"], "no versions"),
        (["__snapshots", "--explain"], "no plan"),
        (["__snapshots", "--columns", "operatoin"], "operation"),
        (["__snapshots", "--filter", "operatoin = 'APPEND'"], "operation"),
    ],
)
def test_what_a_system_table_has_not_is_refused(
    lake: RowsLake, arguments: list[str], said: str
) -> None:
    done = lake.run("scan", *arguments)

    assert done.exit_code == 2
    assert said in done.stderr
