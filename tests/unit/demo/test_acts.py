"""The lines that the demo shows as the user's own code: they run, and they fit a terminal."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyiceberg.catalog
import pyiceberg.table
import pytest

import neve
from examples.demo.acts import ACTS
from examples.demo.order_rows import ARROW_SCHEMA, DemoTable
from neve import spark as ns

COLUMNS = 80 - len("    │ ")
BEYOND_THIS_TEST = {"spark", "bucket"}


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Yield the names that the lines take for granted, in a directory of their own."""
    table = DemoTable()
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {
        "neve": neve,
        "pyiceberg": pyiceberg,
        "schema": ARROW_SCHEMA,
        "row": table.row(0),
        "rows": table.rows(range(1, 100)),
        "changed_rows": table.changed_rows(range(0, 100, 10)),
        "keys": [table.key_values(7)],
        "columns": {"id": int, "balance": int, "lsn": int},
        "events": '{"op": "c", "after": {"id": 1, "balance": 9}, "source": {"lsn": 4}}',
    }
    yield found
    found["lake"].close()


def test_the_lines_of_every_act_run_one_after_another(names: dict[str, Any]) -> None:
    names["duckdb"] = DuckDbStandIn()
    for act in ACTS:
        if act.name == "crash":
            names["lake"].close()  # a writer that died has let go of the table
        if act.name not in BEYOND_THIS_TEST:
            exec(compile(act.code, act.name, "exec"), names)  # noqa: S102 - lines of our own

    assert names["accounts"].get(1) == {"id": 1, "balance": 9, "lsn": 4}
    left = names["orders"].scan().to_arrow()
    assert left.num_rows == 99
    assert left["note"].to_pylist().count("changed") == 10
    assert [names["metadata"] in asked for asked in names["duckdb"].asked] == [True]


def test_the_lines_on_spark_call_what_there_is() -> None:
    [code] = [act.code for act in ACTS if act.name == "spark"]
    called = {
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "ns"
    }
    told = {word.strip(",") for word in code.split() if word.startswith("ns.") and "(" not in word}

    assert called == {"load", "upsert_batch"}
    assert told == {"ns.upsert", "ns.merge", "ns.compact"}
    assert called | {word.removeprefix("ns.") for word in told} <= set(ns.__all__)


def test_the_lines_fit_a_terminal_of_80_columns() -> None:
    for act in ACTS:
        for line in act.code.splitlines():
            assert len(line) <= COLUMNS, line
        assert len(act.title) <= COLUMNS


class DuckDbStandIn:
    """Takes note of what DuckDB would be asked; that it can answer is shown elsewhere."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def sql(self, query: str) -> None:
        self.asked.append(query)
