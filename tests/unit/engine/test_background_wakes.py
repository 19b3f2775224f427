"""Who wakes the threads of a table: what brings work, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import neve
from neve.catalog.table import Table
from neve.engine.background import BackgroundWork


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with neve.open(str(tmp_path)) as lake:
        yield lake.create_table(
            "a.b",
            schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]),
            primary_key=["id"],
        )


@pytest.fixture
def woken(table: Table, monkeypatch: pytest.MonkeyPatch) -> list[BackgroundWork]:
    _ = table._open.engine
    woken: list[BackgroundWork] = []

    def wake(work: BackgroundWork) -> None:
        woken.append(work)

    monkeypatch.setattr(BackgroundWork, "wake", wake)
    return woken


def test_a_look_for_commits_of_others_that_finds_none_wakes_nobody(
    table: Table, woken: list[BackgroundWork]
) -> None:
    assert not table._open.engine.writer.refresh_once()

    assert woken == []


def test_a_flush_wakes_what_compacts(table: Table, woken: list[BackgroundWork]) -> None:
    table.put({"id": 1})
    table.flush()

    assert woken
