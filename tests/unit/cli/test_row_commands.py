"""Commands on single rows: put, get, delete."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import neve
from tests.unit.cli.rows_lake import VISITS, RowsLake
from tests.unit.sstable.data_files import ALL_TYPES, rows_of_all_types

ADA = (1, "ada", "9.50")
BOB = (2, "bob", None)


# put


def test_a_row_that_was_put_is_found_by_its_key() -> None:
    lake = RowsLake().orders()

    said = lake.ok("put", "shop.orders", '{"id": 1, "customer": "ada", "amount": 9.5}')

    assert said == "wrote 1 row, up to sequence 1\n"
    assert lake.ok("get", "shop.orders", "1").splitlines() == [
        "id        1",
        "customer  ada",
        "amount    9.50",
    ]
    assert lake.json("get", "shop.orders", "1") == {"id": 1, "customer": "ada", "amount": "9.50"}


def test_rows_on_standard_input_are_one_to_a_line() -> None:
    lake = RowsLake().orders(ADA)

    written = lake.json(
        "put", "shop.orders", "-", stdin='\ufeff{"id": 2}\n\n  \n{"id": 1, "customer": "eve"}'
    )

    assert written == {"table": "shop.orders", "rows": 2, "sequence": 3}
    assert [(row["id"], row["customer"]) for row in lake.rows()] == [(1, "eve"), (2, None)]


@pytest.mark.parametrize(
    ("line", "said", "hint"),
    [
        (
            '{"id":',
            "standard input:2: not JSON: Expecting value, at column 7\n",
            "one object per line",
        ),
        (
            '  {"id" 2}',
            "standard input:2: not JSON: Expecting ':' delimiter, at column 9\n",
            "one object per line",
        ),
        ("[1]", "standard input:2: not a JSON object: '[1]'\n", "as an object"),
        ('{"id": "2"}', "standard input:2: column 'id': expected a whole number", ""),
        ('{"id": 2, "custmer": "x"}', "standard input:2: ", "'customer'? "),
        ('{"customer": "x"}', "standard input:2: ", ""),
        ('{"id": null}', "standard input:2: ", ""),
        (
            '{"id": 2, "amount": "1.239"}',
            "column 'amount': expected a number with",
            "",
        ),
        ('{"id": 2, "customer": "\\ud800"}', "lone surrogate", ""),
        ('{"id": 99999999999999999999}', "standard input:2: ", ""),
    ],
    ids=range(10),
)
def test_a_wrong_line_is_named_and_none_of_its_batch_is_written(
    line: str, said: str, hint: str
) -> None:
    lake = RowsLake().orders(ADA)

    refused = lake.run("put", "shop.orders", "-", stdin=f'{{"id": 7}}\n{line}\n')

    assert refused.exit_code == 2
    assert said in refused.stderr
    assert hint in refused.stderr
    assert "Traceback" not in refused.stderr
    assert [row["id"] for row in lake.rows()] == [1]


def test_bytes_that_are_no_text_are_refused() -> None:
    refused = RowsLake().orders().run("put", "shop.orders", "-", stdin=b'{"id": 1}\n"\xff"\n')

    assert refused.exit_code == 2
    assert "standard input:2: not UTF-8, at byte 1 of the line" in refused.stderr


def test_rows_of_the_batches_before_a_wrong_line_are_told() -> None:
    lake = RowsLake().orders()
    good = "".join(f'{{"id": {number}}}\n' for number in range(10_000))

    refused = lake.run("put", "shop.orders", "-", stdin=f"{good}oops\n")

    assert "standard input:10001: not JSON" in refused.stderr
    assert "10,000 rows before it are written" in refused.stderr
    assert lake.json("scan", "shop.orders", "--count")["count"] == 10_000


def test_a_second_writer_is_told_who_holds_the_table() -> None:
    lake = RowsLake().orders(ADA)

    with neve.open(lake.location).table("shop.orders") as writer:
        writer.put({"id": 5, "customer": None, "amount": None})
        refused = lake.run("put", "shop.orders", '{"id": 2}')
        read_beside = lake.json("get", "shop.orders", "5")

    assert refused.exit_code == 4
    first, second = refused.stderr.splitlines()
    assert "the lock is held" in first
    assert "read without the lock" in second
    assert read_beside["id"] == 5


def test_rows_of_every_type_go_round_through_json_lines() -> None:
    _, rows = rows_of_all_types(40)
    lake = RowsLake()
    for name in ("a.one", "a.two"):
        lake.create(name, ALL_TYPES, ["id"])
    with neve.open(lake.location).table("a.one") as table:
        table.upsert(rows)

    lines = lake.ok("scan", "a.one", "--output", "jsonl")
    lake.ok("put", "a.two", "-", stdin=lines)

    with neve.open(lake.location) as opened:
        tables = [opened.table(name, read_only=True) for name in ("a.one", "a.two")]
        one, two = (table.scan().to_arrow() for table in tables)
    assert len(lines.splitlines()) == one.num_rows == 40
    # NaN equals nothing, but has one spelling.
    assert two.sort_by("id").to_string(preview_cols=999) == one.sort_by("id").to_string(
        preview_cols=999
    )
    assert lake.ok("scan", "a.two", "--output", "jsonl") == lines


# put of some columns, or on a condition


def test_columns_that_are_not_written_stay_as_they_are() -> None:
    lake = RowsLake().orders(ADA)

    lake.ok("put", "shop.orders", '{"id": 1, "amount": 12, "customer": "x"}', "--columns", "amount")
    lake.ok(
        "put",
        "shop.orders",
        "-",
        "--columns",
        "customer,amount",
        stdin='{"id": 2, "customer": "bob", "amount": null}\n'
        '{"id": 3, "customer": "c", "amount": 1}',
    )

    assert [tuple(row.values()) for row in lake.rows()] == [
        (1, "ada", "12.00"),
        (2, "bob", None),
        (3, "c", "1.00"),
    ]


@pytest.mark.parametrize(
    ("row", "columns", "said"),
    [
        ('{"id": 1}', "amount", "the row: column 'amount' is missing"),
        ('{"amount": 1}', "amount", "the row: column 'id' is missing"),
        ('{"id": 1, "amount": 1, "custmer": "x"}', "amount", "'custmer'"),
        ('{"id": 1, "amount": 1}', "amont", "Did you mean 'amount'?"),
        ('{"id": 1, "amount": 1}', "id", "names no column besides the key"),
    ],
    ids=range(5),
)
def test_a_partial_row_that_does_not_fit_is_refused(row: str, columns: str, said: str) -> None:
    lake = RowsLake().orders(ADA)

    refused = lake.run("put", "shop.orders", row, "--columns", columns)

    assert refused.exit_code == 2
    assert said in refused.stderr
    assert [tuple(row.values()) for row in lake.rows()] == [ADA]


def test_rows_whose_keys_have_one_are_passed_over_when_asked_to() -> None:
    lake = RowsLake().orders(ADA)
    lines = '{"id": 1, "customer": "eve"}\n{"id": 2, "customer": "bob"}\n{"id": 2}\n'

    first = lake.json("put", "shop.orders", "-", "--if-absent", stdin=lines)
    again = lake.ok("put", "shop.orders", '{"id": 2}', "--if-absent")

    assert first == {"table": "shop.orders", "rows": 1, "present": 2, "sequence": 2}
    assert again == "wrote 0 rows, 1 key had one already, up to sequence 2\n"
    assert [tuple(row.values()) for row in lake.rows()] == [ADA, BOB]


@pytest.mark.parametrize(
    ("expected", "is_met"),
    [
        ('{"id": 1, "customer": "ada", "amount": 9.5}', True),
        ('{"id": 1, "customer": "ada", "amount": "9.51"}', False),
        ('{"id": 1, "customer": "ada"}', False),
        ("null", False),
    ],
    ids=range(4),
)
def test_a_row_that_is_not_as_expected_is_a_conflict(expected: str, *, is_met: bool) -> None:
    lake = RowsLake().orders(ADA)

    done = lake.run("put", "shop.orders", '{"id": 1, "customer": "eve"}', "--expect", expected)

    assert done.exit_code == (0 if is_met else 3), done.stderr
    assert ("is not the expected one; nothing was written" in done.stderr) != is_met
    assert lake.rows()[0]["customer"] == ("eve" if is_met else "ada")


def test_no_row_can_be_expected() -> None:
    lake = RowsLake().orders(ADA)

    said = lake.ok("put", "shop.orders", '{"id": 2, "customer": "bob"}', "--expect", " null ")

    assert said == "wrote 1 row, up to sequence 2\n"
    assert [tuple(row.values()) for row in lake.rows()] == [ADA, BOB]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (['{"id": 1}', "--if-absent", "--columns", "amount"], "--columns and --if-absent"),
        (['{"id": 1}', "--if-absent", "--expect", "null"], "--if-absent and --expect"),
        (["-", "--expect", "null"], "--expect takes one row, not standard input"),
        (['{"id": 1}', "--expect", '{"id": 2}'], "have different keys"),
        (['{"id": 1}', "--expect", "["], "the expected row: not JSON"),
    ],
    ids=range(5),
)
def test_a_condition_that_makes_no_sense_is_refused(arguments: list[str], said: str) -> None:
    lake = RowsLake().orders(ADA)

    refused = lake.run("put", "shop.orders", *arguments)

    assert refused.exit_code == 2
    assert said in refused.stderr
    assert [tuple(row.values()) for row in lake.rows()] == [ADA]


# get


def test_that_there_is_no_row_is_an_error() -> None:
    missing = RowsLake().orders(ADA).run("get", "shop.orders", "7")

    assert missing.exit_code == 2
    assert missing.stdout == ""
    assert "the table 'shop.orders' has no row with the key '7'" in missing.stderr


def test_a_negative_number_is_a_key_and_no_option() -> None:
    lake = RowsLake().orders((-5, "eve", None))

    assert lake.json("get", "shop.orders", "-5")["customer"] == "eve"
    assert "No such option '--jsn'. Did you mean '--json'?" in (
        lake.run("get", "shop.orders", "5", "--jsn").stderr
    )
    assert lake.run("get", "shop.orders", "--version").exit_code == 2


@pytest.mark.parametrize(
    "key", [["ada", "2024-01-31"], ['["ada", "2024-01-31"]']], ids=["values", "list"]
)
def test_a_composite_key_is_several_values_or_a_json_list(key: list[str]) -> None:
    lake = RowsLake()
    lake.create("shop.visits", VISITS, ["name", "day"])
    lake.ok("put", "shop.visits", '{"name": "ada", "day": "2024-01-31", "pages": 4}')

    assert lake.json("get", "shop.visits", *key)["pages"] == 4


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (["ada"], "1 value for a key of 2 columns"),
        (["ada", "2024-01-31", "x"], "3 values for a key of 2 columns"),
        (["ada", "yesterday"], "key column 'day' holds date: expected a date such as"),
        (['["ada"]'], "1 value for a key of 2 columns"),
        (['["ada", 5, 6]'], "3 values for a key of 2 columns"),
        (['["ada", "x"]'], "key column 'day' holds date"),
        (['["ada", null]'], "day"),
        (['["ada"'], "is not a JSON list"),
    ],
    ids=range(8),
)
def test_a_key_that_cannot_be_is_refused(key: list[str], said: str) -> None:
    lake = RowsLake()
    lake.create("shop.visits", VISITS, ["name", "day"])

    refused = lake.run("get", "shop.visits", *key)

    assert refused.exit_code == 2
    assert said in refused.stderr


def key_types() -> list[str]:
    unfit = {"point", "list", "map"}
    return [name for name in ALL_TYPES.names if name not in unfit]


@pytest.mark.parametrize("name", key_types())
def test_a_key_of_any_type_is_written_as_it_is_shown(name: str) -> None:
    _, rows = rows_of_all_types(3, key=[name])
    schema = pa.schema({"k": ALL_TYPES.field(name).type, "n": pa.int64()})
    lake = RowsLake()
    lake.create("a.b", schema, ["k"])
    key = rows.column(name).combine_chunks()[2:]
    with neve.open(lake.location).table("a.b") as table:
        table.upsert(pa.table({"k": key, "n": [7]}))

    shown = json.loads(lake.ok("scan", "a.b", "--output", "jsonl"))["k"]
    text = str(shown).lower() if isinstance(shown, bool) else str(shown)

    assert lake.json("get", "a.b", text) == {"k": shown, "n": 7}


def test_an_old_version_is_read_by_its_number_or_tag() -> None:
    lake = RowsLake().orders(ADA)
    lake.ok("flush", "shop.orders")
    lake.ok("tag", "shop.orders", "first")
    lake.ok("put", "shop.orders", '{"id": 1, "customer": "eve"}')

    assert lake.json("get", "shop.orders", "1")["customer"] == "eve"
    assert lake.json("get", "shop.orders", "1", "--version", "2")["customer"] == "ada"
    assert lake.json("get", "shop.orders", "1", "--tag", "first")["customer"] == "ada"
    twice = lake.run("get", "shop.orders", "1", "--version", "2", "--tag", "first")
    assert "the version is given more than once" in twice.stderr


# delete


def test_a_deleted_row_is_gone_and_deleting_it_again_is_no_error() -> None:
    lake = RowsLake().orders(ADA, BOB)

    assert lake.ok("delete", "shop.orders", "1") == "deleted 1 row of shop.orders\n"
    assert lake.ok("delete", "shop.orders", "1") == "no such row of shop.orders\n"
    assert lake.json("delete", "shop.orders", "1")["deleted"] == 0
    assert [row["id"] for row in lake.rows()] == [2]


def test_all_rows_that_match_are_deleted() -> None:
    lake = RowsLake().orders(ADA, BOB, (3, "ada", "1"), (4, None, "7"))
    lake.ok("flush", "shop.orders")

    deleted = lake.json("delete", "shop.orders", "--where", "customer = 'ada'")
    none = lake.json("delete", "shop.orders", "--where", "customer = 'ada'")

    assert (deleted["deleted"], none["deleted"]) == (2, 0)
    assert [row["id"] for row in lake.rows()] == [2, 4]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no key and no --filter is given"),
        (["1", "--where", "id = 1"], "both a key and --filter are given"),
    ],
    ids=["neither", "both"],
)
def test_which_rows_to_delete_is_said_in_one_way(arguments: list[str], said: str) -> None:
    lake = RowsLake().orders(ADA)

    refused = lake.run("delete", "shop.orders", *arguments)

    assert refused.exit_code == 2
    assert said in refused.stderr
    assert len(lake.rows()) == 1


# Names


@pytest.mark.parametrize(
    "arguments",
    [["put", "shop.ordres", "{}"], ["get", "shop.ordres", "1"], ["delete", "shop.ordres", "1"]],
    ids=lambda arguments: arguments[0],
)
def test_a_table_that_is_not_there_is_not_found(arguments: list[str]) -> None:
    missing = RowsLake().orders().run(*arguments)

    assert missing.exit_code == 2
    assert "'shop.orders'" in missing.stderr


def test_a_lake_in_a_directory_keeps_rows_between_commands(tmp_path: Path) -> None:
    lake = RowsLake(str(tmp_path / "lake")).orders(ADA)

    assert lake.json("describe", "shop.orders")["unflushed_changes"] == 1
    assert lake.json("get", "shop.orders", "1")["customer"] == "ada"


# Many keys


def test_rows_of_many_keys_come_in_the_order_asked() -> None:
    lake = RowsLake().orders((1, "ada", "9.5"), (2, "bob", None), (3, "cyd", "1"))

    lines = lake.ok("get", "shop.orders", "3", "1", "3").splitlines()

    assert [line.split()[0] for line in lines[2:]] == ["3", "1", "3"]
    document = lake.json("get", "shop.orders", "2", "1")
    assert [row["id"] for row in document["rows"]] == [2, 1]
    assert document["missing"] == []


def test_keys_without_rows_are_reported_after_the_rows_of_the_others() -> None:
    lake = RowsLake().orders((1, "ada", "9.5"))

    some = lake.run("get", "shop.orders", "7", "1", "-8")
    none = lake.run("get", "shop.orders", "7", "8")
    document = lake.run("get", "shop.orders", "7", "1", "--json")

    assert some.exit_code == none.exit_code == document.exit_code == 2
    assert "ada" in some.stdout
    assert some.stderr.splitlines()[0] == (
        "neve: the table 'shop.orders' has no rows with the keys '7', '-8'"
    )
    assert none.stdout == ""
    assert json.loads(document.stdout)["missing"] == ["7"]
    assert json.loads(document.stderr)["error"]["kind"] == "NotFound"


def test_many_keys_of_several_columns_are_values_or_lists() -> None:
    lake = RowsLake()
    lake.create("shop.visits", VISITS, ["name", "day"])
    for day in ("2024-01-31", "2024-02-01"):
        lake.ok("put", "shop.visits", json.dumps({"name": "ada", "day": day, "pages": 1}))

    values = lake.json("get", "shop.visits", "ada", "2024-02-01", "ada", "2024-01-31")
    lists = lake.json("get", "shop.visits", '["ada", "2024-02-01"]', '["ada", "2024-01-31"]')

    assert [row["day"] for row in values["rows"]] == ["2024-02-01", "2024-01-31"]
    assert lists == values
