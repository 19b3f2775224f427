"""`neve sql` without a terminal: texts, files, pipes, and the forms of what they return."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import neve
from neve.cli.main import cli


@pytest.fixture
def location(tmp_path: Path) -> str:
    with neve.open(tmp_path / "lake") as lake:
        lake.sql("create table shop.orders (id bigint primary key, customer text, amount double)")
        lake.sql("insert into shop.orders values (1, 'ada', 9.5), (2, 'b,\"ob', null)")
    return str(tmp_path / "lake")


def run(location: str, *words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["sql", "--lake", location, *words], input=stdin)


def ok(location: str, *words: str, stdin: str | None = None) -> str:
    result = run(location, *words, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_rows_are_drawn_as_a_table(location: str) -> None:
    assert ok(location, "-c", "from shop.orders order by id").splitlines() == [
        "id  customer  amount",
        "──  ────────  ──────",
        " 1  ada          9.5",
        ' 2  b,"ob       null',
        "(2 rows)",
    ]


def test_rows_are_written_for_programs(location: str, tmp_path: Path) -> None:
    query = ("-c", "from shop.orders order by id")

    assert ok(location, *query, "--format", "csv").splitlines()[2] == '2,"b,""ob",'
    assert json.loads(ok(location, *query, "--format", "jsonl").splitlines()[0])["id"] == 1
    document = json.loads(ok(location, *query, "--json"))
    assert document["count"] == 2
    assert document["rows"][0] == {"id": 1, "customer": "ada", "amount": 9.5}
    ok(location, *query, "-o", str(tmp_path / "rows.parquet"))
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == 2


def test_statements_come_from_a_file_or_a_pipe(location: str, tmp_path: Path) -> None:
    text = "delete from shop.orders where id = 1; -- one\nselect count(*) as n from shop.orders"
    (tmp_path / "text.sql").write_text(text)

    assert ok(location, str(tmp_path / "text.sql")).splitlines() == [
        "delete: 1 deleted",
        "n",
        "─",
        "1",
        "(1 row)",
    ]
    assert ok(location, stdin="show tables").splitlines()[2] == "shop       orders"
    assert ok(location, "-", "--format", "csv", stdin="select 1 as x") == "x\n1\n"


def test_statements_share_a_transaction(location: str) -> None:
    ok(location, "-c", "begin", "-c", "delete from shop.orders", "-c", "rollback")
    assert "2" in ok(location, "-c", "select count(*) from shop.orders", "--format", "csv")
    ok(location, "-c", "begin; delete from shop.orders")
    assert "2" in ok(location, "-c", "select count(*) from shop.orders", "--format", "csv")


def test_values_of_all_types_have_a_form(location: str) -> None:
    shown = ok(
        location,
        "-c",
        "select 1::tinyint a, 2::hugeint b, interval 1 day c, null d, [1] e, {'x': 1} f, "
        "map {'k': 1} g, 'x'::enum('x') h, '\\x00'::blob i, time '10:00' j, 1 a",
        "--format",
        "jsonl",
    )

    row = json.loads(shown)
    assert row["a"] == row["a_"] == 1
    assert row["e"] == [1]
    assert row["j"].startswith("10:00")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-c", "selec 1"], "LINE 1: selec 1\n              ^"),
        (["-c", "from shop.order"], "Did you mean 'shop.orders'?"),
        (["x.sql", "-c", "select 1"], "both FILE and -c"),
        (["nothing.sql"], "could not read the statements"),
        (["-c", "select 1", "--format", "parquet"], "Parquet"),
        (["-c", "copy shop.orders to 'x'"], "COPY is not a statement"),
        (["-c", "from 'x.csv'"], "there is no relation"),
    ],
)
def test_a_mistake_ends_the_command(location: str, words: list[str], says: str) -> None:
    lost = run(location, *words)

    assert lost.exit_code in {2, 3}
    assert says in lost.stderr
    assert not lost.stdout


def test_the_first_mistake_ends_a_text(location: str) -> None:
    lost = run(
        location, "-c", "delete from shop.orders where id = 1; nonsense; delete from shop.orders"
    )

    assert lost.exit_code == 2
    assert lost.stdout == "delete: 1 deleted\n"
    assert "1" in ok(location, "-c", "select count(*) from shop.orders", "--format", "csv")


def test_files_are_read_where_that_is_allowed(location: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\n")
    query = f"select customer from '{tmp_path / 'rows.csv'}' join shop.orders using (id)"

    assert run(location, "-c", query).exit_code == 2
    assert ok(location, "-c", query, "--external-access", "--format", "csv") == "customer\nada\n"
