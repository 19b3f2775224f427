"""`neve create` from a file, and a second time."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from tests.unit.cli.rows_lake import RowsLake

CSV = (
    "id,customer,amount,day,ts,zip,ok,long,note\n"
    "1,ada,9.50,2024-01-31,2024-01-31T12:00:00Z,01234,true,12345678901234567890,\n"
    "2,bob,3,2024-02-01,2024-02-01 12:00:00+01:00,99999,false,1,\n"
)
ROWS = [
    {
        "id": 1,
        "name": "ada",
        "price": 1.5,
        "at": "2024-01-31T12:00:00",
        "tags": ["a"],
        "gone": None,
    },
    {"id": 2, "price": 2, "day": "2024-01-31", "point": {"x": 1, "y": 0.5}},
]
TABLE = pa.table({"id": [1, 2], "name": ["ada", None], "ts": pa.array([1, 2], pa.timestamp("ms"))})


def types(lake: RowsLake, name: str = "shop.new") -> dict[str, str]:
    """Return the types of columns, of nested ones only what they are."""
    found = {column["name"]: column["type"] for column in lake.json("describe", name)["columns"]}
    return {each: kind if isinstance(kind, str) else kind["type"] for each, kind in found.items()}


def test_types_of_csv_are_inferred_without_losing_anything(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(CSV)
    lake = RowsLake()

    said = lake.ok("create", "shop.new", "--from", str(tmp_path / "x.csv"), "--key", "id")

    assert types(lake) == {
        "id": "long",
        "customer": "string",
        "amount": "double",
        "day": "date",
        "ts": "timestamptz",
        "zip": "string",
        "ok": "boolean",
        "long": "string",
        "note": "string",
    }
    assert f"9 columns from {tmp_path / 'x.csv'}; `neve import shop.new " in said
    assert lake.rows("shop.new") == []


def test_a_column_that_is_named_has_the_type_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(CSV)
    lake = RowsLake()
    words = ["--from", str(tmp_path / "x.csv"), "--key", "id", "--load"]

    lake.ok("create", "shop.new", "amount:decimal(9,2)", "long:decimal(20,0)", *words)

    assert types(lake)["amount"] == "decimal(9,2)"
    assert [row["amount"] for row in lake.rows("shop.new")] == ["9.50", "3.00"]
    refused = lake.run("create", "shop.other", "amuont:long", *words)
    assert refused.exit_code == 2
    assert "has no column 'amuont'" in refused.stderr
    assert "Did you mean 'amount'?" in refused.stderr


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{json.dumps(row)}\n" for row in ROWS),
        json.dumps(ROWS),
        json.dumps({"table": "x", "rows": ROWS}, indent=2),
    ],
    ids=["lines", "array", "document"],
)
def test_types_of_json_are_inferred(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(text.encode()))
    lake = RowsLake()

    lake.ok("create", "shop.new", "--from", str(tmp_path / "x.json.gz"), "--key", "id", "--load")

    assert types(lake) == {
        "id": "long",
        "name": "string",
        "price": "double",
        "at": "timestamp",
        "tags": "list",
        "gone": "string",
        "day": "date",
        "point": "struct",
    }
    assert [row["price"] for row in lake.rows("shop.new")] == [1.5, 2.0]


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("x.parquet", lambda path: pq.write_table(TABLE, path)),
        ("x.arrow", lambda path: feather.write_feather(TABLE, path)),
    ],
    ids=["parquet", "arrow"],
)
def test_parquet_and_arrow_say_their_types(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path / name)
    lake = RowsLake()

    lake.ok("create", "shop.new", "--from", str(tmp_path / name), "--key", "id", "--load")

    assert types(lake) == {"id": "long", "name": "string", "ts": "timestamp"}
    assert [row["name"] for row in lake.rows("shop.new")] == ["ada", None]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.csv", b"", "is empty"),
        ("x.csv", b"id\xff\n1\n", "cannot be read as CSV"),
        ("x.csv", b"id,id\n1,2\n", "'id'"),
        ("x.jsonl", b"", "has no columns"),
        ("x.jsonl", b"[1]", "not a JSON object"),
        ("x.jsonl", b'{"id": 1}\n{"id": "x"}\n', "have no type in common"),
        ("x.parquet", b"PAR1", "cannot be read"),
        ("x.arrow", b"ARROW1\0\0", "cannot be read"),
        ("x.txt", b"", "does not show the format of the file"),
    ],
    ids=range(9),
)
def test_a_file_without_columns_is_refused(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)

    refused = RowsLake().run("create", "shop.new", "--from", str(tmp_path / name), "--key", "id")

    assert refused.exit_code == 2
    assert said in refused.stderr


def test_rules_of_rows_are_given_at_creation() -> None:
    lake = RowsLake()
    words = ["--order-by", "lsn", "--keep-deletes", "30 days", "--merge", "n=sum"]

    lake.ok("create", "shop.new", "id:long", "n:long", "lsn:long", "--key", "id", *words)

    said = lake.ok("describe", "shop.new")
    assert "keep deletes  30 days" in said
    refused = lake.run("create", "a.b", "id:long", "--key", "id", "--keep-deletes", "1 day")
    assert refused.exit_code == 2
    assert "without order columns" in refused.stderr


def test_a_second_time_says_what_to_do_and_may_be_accepted() -> None:
    lake = RowsLake()
    words = ["create", "shop.new", "id:long", "name:string", "--key", "id"]
    lake.ok(*words)

    again = lake.run(*words)
    accepted = lake.json(*words, "--exists-ok")
    other = lake.run("create", "shop.new", "id:long", "name:long", "--key", "id", "--exists-ok")

    assert again.exit_code == 2
    assert "--exists-ok accepts it" in again.stderr
    assert accepted["created"] is False
    assert other.exit_code == 2
    assert "column 'name' is string, not long" in other.stderr
    assert "`neve evolve` changes it" in other.stderr


def test_a_table_whose_properties_were_changed_is_still_the_same() -> None:
    lake = RowsLake()
    words = ["create", "shop.new", "id:long", "--key", "id", "--exists-ok"]
    lake.ok(*words)
    lake.ok("set", "shop.new", "neve.retention.versions=9")

    assert "exists with this definition" in lake.ok(*words)
    assert "exists with this definition" in lake.ok(*words, "--property", "owner=anna")
    assert "owner" not in lake.ok("describe", "shop.new")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--key", "id"], "the table has no columns"),
        (["id:long", "--key", "id", "--load"], "--memory-limit need --from"),
        (["id:long", "--key", "id", "--memory-limit", "1GiB"], "--memory-limit need --from"),
        (["--from", "-", "--format", "csv", "--key", "id", "--load"], "can be read only once"),
    ],
    ids=["nothing", "load", "memory", "twice"],
)
def test_words_that_do_not_go_together_are_refused(words: list[str], said: str) -> None:
    refused = RowsLake().run("create", "shop.new", *words, stdin="id\n1\n")

    assert refused.exit_code == 2
    assert said in refused.stderr
