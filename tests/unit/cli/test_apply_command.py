"""`neve apply`: upserts and deletes of a file as one batch, once."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neve
from neve.cli import apply_command
from tests.unit.cli.rows_lake import RowsLake

Change = dict[str, object]

CHANGES: list[Change] = [
    {"op": "u", "id": 1, "customer": "ada", "amount": "3.00", "lsn": 12},
    {"op": "c", "id": 1, "customer": "eve", "amount": "1.00", "lsn": 9},
    {"op": "d", "id": 2, "lsn": 10},
    {"op": "c", "id": 3, "customer": "cyd", "amount": None, "lsn": 11},
]
WANTED = [
    {"id": 1, "customer": "ada", "amount": "3.00"},
    {"id": 3, "customer": "cyd", "amount": None},
]
SAID = "applied 4 changes to shop.orders: 2 rows written, 1 deleted, now at version 2\n"


@pytest.fixture
def lake() -> RowsLake:
    """Return a table with two rows in its log."""
    return RowsLake().orders((1, "old", "1"), (2, "old", "2"))


def lines(changes: Sequence[Change]) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in changes)


def cells(changes: Sequence[Change], delimiter: str = ",") -> str:
    names = ["lsn", "id", "op", "amount", "customer"]
    rows = [
        [str("" if each.get(name) is None else each[name]) for name in names] for each in changes
    ]
    return "".join(f"{delimiter.join(row)}\n" for row in [names, *rows])


def arrow(changes: Sequence[Change]) -> pa.Table:
    table = pa.Table.from_pylist([*changes])
    amounts = table["amount"].cast(pa.decimal128(9, 2))
    return table.set_column(table.column_names.index("amount"), "amount", amounts)


def write(path: Path, changes: Sequence[Change] = CHANGES) -> str:
    match path.suffixes[0]:
        case ".csv":
            path.write_text(cells(changes))
        case ".tsv":
            path.write_text(cells(changes, "\t"))
        case ".parquet":
            pq.write_table(arrow(changes), path)
        case ".arrow":
            table = arrow(changes)
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=2)
        case ".json":
            path.write_text(json.dumps(changes))
        case _:
            path.write_text(lines(changes))
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    return str(path)


@pytest.mark.parametrize(
    "name",
    ["x.csv", "x.tsv", "x.jsonl", "x.json", "x.parquet", "x.arrow", "x.csv.gz", "x.jsonl.gz"],
)
def test_a_file_of_changes_is_one_batch(lake: RowsLake, tmp_path: Path, name: str) -> None:
    said = lake.ok("apply", "shop.orders", write(tmp_path / name), "--order-by", "lsn")

    assert said == SAID
    assert lake.rows() == WANTED


@pytest.mark.parametrize(("form", "text"), [("csv", cells(CHANGES)), ("jsonl", lines(CHANGES))])
def test_standard_input_is_a_file_too(lake: RowsLake, form: str, text: str) -> None:
    arguments = ["apply", "shop.orders", "-", "--format", form, "--order-by", "lsn"]

    assert lake.ok(*arguments, stdin=text) == SAID
    assert lake.rows() == WANTED


def test_without_an_order_the_last_change_of_a_key_counts(lake: RowsLake, tmp_path: Path) -> None:
    changes = [{name: each[name] for name in each if name != "lsn"} for each in CHANGES]
    (tmp_path / "x.jsonl").write_text(lines(changes))

    lake.ok("apply", "shop.orders", str(tmp_path / "x.jsonl"))

    assert lake.rows()[0] == {"id": 1, "customer": "eve", "amount": "1.00"}


@pytest.mark.parametrize(
    ("first", "last"), [("9", "12"), ("9.5", "10.25"), ("9", "18446744073709551617"), ("a", "b")]
)
def test_an_order_in_cells_is_compared_as_numbers_where_all_are(
    lake: RowsLake, first: str, last: str
) -> None:
    text = f"op,id,customer,seq\nu,1,new,{last}\nu,1,old,{first}\n"

    lake.ok("apply", "shop.orders", "-", "--format", "csv", "--order-by", "seq", stdin=text)

    assert lake.rows()[0]["customer"] == "new"


def test_an_order_may_have_several_columns_and_be_stored(lake: RowsLake) -> None:
    text = lines(
        [
            {"op": "u", "id": 1, "amount": "5", "pos": 2},
            {"op": "u", "id": 1, "amount": "5", "pos": 1, "customer": "x"},
            {"op": "u", "id": 1, "amount": "4", "pos": 9},
        ]
    )

    lake.ok(
        "apply", "shop.orders", "-", "--format", "jsonl", "--order-by", "amount,pos", stdin=text
    )

    assert lake.rows()[0] == {"id": 1, "customer": None, "amount": "5.00"}


def test_the_column_and_the_names_of_operations_can_be_said(lake: RowsLake) -> None:
    text = "kind,id,customer\nnew,5,eve\ngone,1,\nnote,2,\n"
    names = [f"--operation={each}" for each in ("new=upsert", "gone=delete", "note=skip")]

    told = lake.json(
        "apply", "shop.orders", "-", "--format", "csv", "--op", "kind", *names, stdin=text
    )

    assert told == {
        "table": "shop.orders",
        "changes": 3,
        "written": 1,
        "deleted": 1,
        "ignored": 0,
        "tied": 0,
        "sequence": 4,
        "version": 2,
    }
    assert [row["id"] for row in lake.rows()] == [2, 5]


def test_changes_that_are_too_old_are_counted(lake: RowsLake) -> None:
    with neve.open(lake.location) as catalog:
        columns = {"id": "long!", "lsn": "long", "v": "long"}
        with catalog.create_table("a.ordered", columns, "id", order_by="lsn") as table:
            table.put({"id": 1, "lsn": 7, "v": 0})
    text = "op,id,lsn,v\nu,1,6,1\nu,2,3,1\nu,2,3,2\nd,3,1,\n"

    told = lake.json("apply", "a.ordered", "-", "--format", "csv", stdin=text)

    assert (told["written"], told["deleted"], told["ignored"], told["tied"]) == (1, 1, 1, 1)


def test_another_order_than_that_of_the_table_is_refused(lake: RowsLake) -> None:
    with neve.open(lake.location) as catalog:
        columns = {"id": "long!", "lsn": "long", "v": "long"}
        catalog.create_table("a.ordered", columns, "id", order_by="lsn").close()
    arguments = ["apply", "a.ordered", "-", "--format", "csv", "--order-by", "v"]

    refused = lake.run(*arguments, stdin="op,id,lsn,v\nu,1,6,1\n")

    assert refused.exit_code == 2
    assert "Leave --order-by out" in refused.stderr


def a_strict_table(lake: RowsLake) -> None:
    with neve.open(lake.location) as catalog:
        columns = {"id": "long!", "n": "long!", "v": "long!", "at": "time"}
        table = catalog.create_table("a.strict", columns, "id")
        with table.evolve() as evolution:
            evolution.add_column("state", pa.string(), nullable=False, default="new")
        table.put({"id": 1, "n": 1, "v": 1})
        table.close()


@pytest.mark.parametrize("time", ["12:00:00", "noon"])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_delete_needs_only_the_key_and_a_column_left_out_gets_its_default(
    lake: RowsLake, form: str, time: str
) -> None:
    a_strict_table(lake)
    at = "" if time == "noon" else time
    texts = {
        "csv": f"op,id,n,v,at\nd,1,,,\nc,2,2,2,{at}\n",
        "jsonl": '{"op": "d", "id": 1}\n' + lines([{"op": "c", "id": 2, "n": 2, "v": 2}]),
    }

    lake.ok("apply", "a.strict", "-", "--format", form, stdin=texts[form])

    (row,) = lake.rows("a.strict")
    assert (row["id"], row["state"]) == (2, "new")


# Once


def test_a_batch_is_applied_once_and_one_that_goes_back_is_refused(
    lake: RowsLake, tmp_path: Path
) -> None:
    path = write(tmp_path / "x.csv")
    arguments = ["apply", "shop.orders", path, "--order-by", "lsn", "--app-id", "nightly"]

    assert lake.ok(*arguments, "--batch", "7") == SAID
    lake.ok("put", "shop.orders", '{"id": 2, "customer": "later"}')
    again = lake.ok(*arguments, "--batch", "7")
    as_json = lake.json(*arguments, "--batch", "7")
    back = lake.run(*arguments, "--batch", "6")

    assert again == (
        "batch 7 of nightly was applied before; nothing was written to shop.orders, at version 3\n"
    )
    assert as_json["applied_before"] is True
    assert (as_json["app_id"], as_json["batch"], as_json["written"]) == ("nightly", 7, 0)
    assert lake.rows()[1]["customer"] == "later"
    assert back.exit_code == 2
    assert "batch 6 of 'nightly' is older than batch 7" in back.stderr
    assert "go on after batch 7. To start over, use another --app-id" in back.stderr
    assert "applied 4 changes" in lake.ok(*arguments, "--batch", "8")


def test_standard_input_is_read_to_its_end_though_the_batch_was_applied(lake: RowsLake) -> None:
    arguments = ["apply", "shop.orders", "-", "--format", "jsonl", "--app-id", "a", "--batch", "0"]
    text = lines([{"op": "d", "id": 1}])

    lake.ok(*arguments, stdin=text)

    assert "applied before" in lake.ok(*arguments, stdin=text)


def test_jobs_and_the_python_call_know_the_number(lake: RowsLake, tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl")
    lake.ok("apply", "shop.orders", path, "--order-by=lsn", "--app-id=feed", "--batch=3")

    with neve.open(lake.location) as catalog:
        with catalog.table("shop.orders") as table:
            assert table.last_batch("feed") == 3
        with catalog.bulk("shop.orders", app_id="feed", batch=3) as job:
            job.delete([1])
    assert lake.rows() == WANTED


def test_a_batch_without_changes_counts(lake: RowsLake) -> None:
    arguments = ["apply", "shop.orders", "-", "--app-id", "a", "--batch", "1"]

    said = lake.ok(*arguments, "--format", "csv", stdin="op,id\n")

    assert "applied 0 changes to shop.orders: 0 rows written, 0 deleted" in said
    assert "applied before" in lake.ok(*arguments, "--format", "jsonl", stdin="")


# Debezium


def envelope(op: str, row: Change | None, lsn: int) -> Change:
    before, after = (row, None) if op == "d" else (None, row)
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn}, "ts_ms": 5}


def test_lines_of_debezium_are_applied(lake: RowsLake, tmp_path: Path) -> None:
    feed: list[Change] = [
        envelope("u", {"id": 1, "customer": "ada", "amount": "3.00"}, 12),
        envelope("c", {"id": 1, "customer": "eve", "amount": "1.00"}, 9),
        envelope("d", {"id": 2}, 10),
        {"schema": None, "payload": envelope("r", {"id": 3, "customer": "cyd"}, 11)},
    ]
    path = tmp_path / "topic.log"
    path.write_text(f"{lines(feed)}null\n\n")

    said = lake.ok("apply", "shop.orders", str(path), "--debezium", "--order-by", "lsn")

    assert said == SAID
    assert lake.rows() == WANTED


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "standard input:2 is not a change of Debezium: it is not JSON"),
        ('{"op": "t"}', "standard input:2 is not a change of Debezium: its operation is 't'"),
        ('{"op": "c", "after": {"id": "x"}}', "standard input:2: column 'id': expected an int"),
        ('{"op": "c", "after": {"id": 5}}', "standard input:2: a change has no value in order"),
    ],
)
def test_a_wrong_envelope_is_named_with_its_line(lake: RowsLake, line: str, said: str) -> None:
    text = f"{lines([envelope('d', {'id': 1}, 3)])}{line}\n"

    refused = lake.run("apply", "shop.orders", "-", "--debezium", "--order-by=lsn", stdin=text)

    assert refused.exit_code == 2
    assert said in refused.stderr
    assert len(lake.rows()) == 2


# What is refused


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("jsonl", '{"op": "d", "id": 1}\n\n{"op": "x", "id": 2}', ":3: operation 'x' is unknown"),
        ("csv", "op,id\nd,1\n\nx,2\ny,2\n", "operation 'x' is unknown, and so are 1 more"),
        ("csv", "op,id\nd,1\n,2\n", ":3: operation None is unknown"),
        ("jsonl", '{"op": "d", "id": 1}\n{"id": 2}', ":2: a change has no operation column 'op'"),
        ("jsonl", '{"op": "d", "id": 1}\n{"op": "d"}', ":2: a change has no key column 'id'"),
        ("jsonl", '{"op": "d", "id": 1}\n{"op": "c", "id": "x"}', ":2: column 'id': expected"),
        ("jsonl", '{"op": "d", "id": 1}\n{"op": "d", "id": null}', ":2: key column 'id'"),
        ("jsonl", '{"op": "d", "id": 1}\n{"op": "c", "id": 2, "custmer": ""}', ":2: "),
        ("jsonl", '{"op": "d", "id": 1}\n[', ":2: not JSON"),
        ("csv", "op,id\nd,1\nc,x\n", ":3: column 'id': expected"),
        ("csv", "op,id\nd,1\nc,\n", ":3: column 'id': NULL"),
        ("csv", "op,id,custmer\nd,1,\n", "column 'custmer' of standard input is not in the table"),
        ("csv", "kind,id\nd,1\n", "column 'kind' of standard input is not in the table"),
        ("csv", "id\n1\n", "the changes have no operation column 'op'"),
    ],
)
def test_a_change_that_does_not_fit_is_named_with_its_line_and_nothing_is_written(
    lake: RowsLake, form: str, text: str, said: str
) -> None:
    refused = lake.run("apply", "shop.orders", "-", "--format", form, stdin=text)

    assert refused.exit_code == 2, refused.stderr
    assert said in refused.stderr
    assert [row["id"] for row in lake.rows()] == [1, 2]


def test_a_named_file_is_named_and_a_row_of_parquet_has_its_number(
    lake: RowsLake, tmp_path: Path
) -> None:
    changes = [*CHANGES, {**CHANGES[0], "op": "c", "id": None}]
    path = write(tmp_path / "x.parquet", changes)

    refused = lake.run("apply", "shop.orders", path, "--order-by", "lsn")
    as_json = lake.run("apply", "shop.orders", path, "--order-by", "lsn", "--json")

    assert f"{path}, row 5: column 'id': NULL where none is allowed" in refused.stderr
    assert "Nothing was written" in refused.stderr
    assert json.loads(as_json.stderr)["error"]["column"] == "id"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--app-id", "a"], "--app-id and --batch belong together"),
        (["--batch", "1"], "--app-id and --batch belong together"),
        (["--app-id", "a", "--batch", "x"], "not a number of 0 or more"),
        (["--app-id", "", "--batch", "1"], "application"),
        (["--operation", "x"], "the operation 'x' is not of the form NAME=VALUE"),
        (["--operation", "x=drop"], "operation 'x' means 'drop'"),
        (["--debezium", "--format", "csv"], "--debezium does not read csv"),
        (["--delimiter", ";"], "--delimiter does not apply to jsonl"),
    ],
)
def test_wrong_usage_is_refused_before_the_file_is_read(
    lake: RowsLake, arguments: list[str], said: str
) -> None:
    refused = lake.run("apply", "shop.orders", "none.jsonl", *arguments)

    assert refused.exit_code == 2
    assert said in refused.stderr


def test_a_missing_file_is_named(lake: RowsLake) -> None:
    refused = lake.run("apply", "shop.orders", "none.csv")

    assert refused.exit_code == 2
    assert "there is no file none.csv" in refused.stderr


def test_an_interrupt_says_that_nothing_was_written(
    lake: RowsLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(apply_command, "_read_json", interrupt)

    done = lake.run("apply", "shop.orders", write(tmp_path / "x.jsonl"))

    assert done.exit_code == 130
    assert "interrupted; nothing was written" in done.stderr
