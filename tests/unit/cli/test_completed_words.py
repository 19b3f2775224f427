"""A shell completes commands, options, and what is in the warehouse."""

import shutil
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import BashComplete, get_completion_class
from click.testing import CliRunner

from neve.cli.main import cli
from tests.unit.cli.rows_lake import RowsLake


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> RowsLake:
    """Return a warehouse that the environment names, with two tables and a tag."""
    lake = RowsLake().orders((1, "ada", "1"))
    lake.ok("create", "web.visits", "name:string", "day:date", "--key", "name")
    lake.ok("flush", "shop.orders")
    lake.ok("tag", "shop.orders", "monthly")
    lake.ok("changes", "shop.orders", "--consumer", "billing")
    monkeypatch.setenv("NEVE_LAKE", lake.location)
    return lake


def completed(line: str) -> list[str]:
    *words, incomplete = line.split(" ")
    completion = BashComplete(cli, {}, "neve", "_NEVE_COMPLETE")
    return [item.value for item in completion.get_completions(words[1:], incomplete)]


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("neve ta", ["tables", "tag"]),
        ("neve inspect m", ["manifest"]),
        ("neve scan --key", ["--key-range"]),
        ("neve scan ", ["shop.orders", "web.visits"]),
        ("neve get sh", ["shop.orders"]),
        ("neve drop w", ["web.visits"]),
        ("neve ap", ["apply"]),
        ("neve apply sh", ["shop.orders"]),
        ("neve apply shop.orders x.csv --order-by c", ["customer"]),
        ("neve apply shop.orders x.csv --ap", ["--app-id"]),
        ("neve tables w", ["web"]),
        ("neve evolve sh", ["shop.orders"]),
        ("neve evolve shop.orders part", ["partition-by"]),
        ("neve evolve shop.orders drop c", ["customer"]),
        ("neve evolve shop.orders rename ", ["id", "customer", "amount"]),
        ("neve scan shop.orders --columns a", ["amount"]),
        ("neve scan shop.orders --columns id,c", ["id,customer"]),
        ("neve get shop.orders 1 --tag ", ["monthly"]),
        ("neve rollback shop.orders --tag m", ["monthly"]),
        ("neve consumers shop.orders --drop ", ["billing"]),
        ("neve changes shop.orders --consumer b", ["billing"]),
        ("neve create a.b id:long day:date --key d", ["day"]),
        ("neve scan shop.orders --format j", ["json", "jsonl"]),
        ("neve scan nope.none --columns a", []),
    ],
)
def test_words_of_the_warehouse_are_offered(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


def test_the_warehouse_on_the_line_comes_before_that_of_the_environment(
    lake: RowsLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEVE_LAKE", "memory://nothing")

    assert completed("neve scan ") == []
    assert completed(f"neve scan --lake {lake.location} sh") == ["shop.orders"]


def test_without_a_warehouse_nothing_is_offered_and_nothing_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEVE_LAKE", raising=False)

    assert completed("neve scan ") == []
    assert completed("neve scan --lake nothing ") == []
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_calls_neve_for_the_words(shell: str, lake: RowsLake) -> None:
    completion = get_completion_class(shell)
    assert completion is not None

    script = completion(cli, {}, "neve", "_NEVE_COMPLETE").source()
    answered = CliRunner().invoke(
        cli,
        env={
            "_NEVE_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": f"neve scan --lake {lake.location} sh",
            "COMP_CWORD": "sh" if shell == "fish" else "4",
        },
    )

    assert f"_NEVE_COMPLETE={shell}_complete" in script
    assert "shop.orders" in answered.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed here")
def test_bash_reads_its_script(tmp_path: Path) -> None:
    env: dict[str, str | None] = {"HOME": str(tmp_path), "XDG_DATA_HOME": None}
    assert CliRunner().invoke(cli, ["--install-completion", "bash"], env=env).exit_code == 0
    script = tmp_path / ".local/share/bash-completion/completions/neve"

    read = subprocess.run(
        ["bash", "-c", f"source {script} && complete -p neve"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert read.returncode == 0, read.stderr
    assert "_neve_completion" in read.stdout
