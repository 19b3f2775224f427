"""delete_where: rows are found and deleted at one moment, whatever others do to the table."""

import importlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import neve
from neve.catalog.lake import Lake
from neve.engine.live_writer import LiveWriter
from neve.errors import InvalidArgument, NotFound
from tests.unit.engine.other_committer import OtherCommitter
from tests.unit.engine.tables import a_catalog, a_table, log_bytes, rows

# By name: mypy takes the signatures of its classes for others than they have.
iceberg: Any = importlib.import_module("pyiceberg.expressions")
ANY_AGE_MS = 1 << 62


@pytest.fixture
def lake() -> Iterator[Lake]:
    with a_catalog() as catalog:
        yield catalog


@pytest.fixture
def table(lake: Lake) -> neve.Table:
    table = a_table(lake)
    table.upsert(rows(0, 10))
    table.flush()
    return table


def test_rows_in_files_and_in_memory_are_deleted(table: neve.Table) -> None:
    table.upsert(rows(5, 15, v=1))

    table.delete_where("v = 1 and id < 12")

    ordered = table.scan(key_range=(None, None)).to_arrow()
    assert ordered["id"].to_pylist() == [0, 1, 2, 3, 4, 12, 13, 14]


def test_nothing_is_logged_when_no_row_matches(table: neve.Table) -> None:
    before, sequence = log_bytes(table), table.stats().sequence

    assert table.delete_where("id > 100") == sequence
    assert log_bytes(table) == before


@pytest.mark.parametrize(
    "condition",
    ["id >= '7'", neve.col("id") >= 7, pc.field("id") >= 7, iceberg.GreaterThanOrEqual("id", 7)],
    ids=["text", "col", "arrow", "pyiceberg"],
)
def test_a_filter_of_any_form_chooses_what_is_deleted_and_what_a_snapshot_shows(
    table: neve.Table, condition: neve.Filter
) -> None:
    with table.snapshot() as before:
        table.delete_where(condition)

        assert before.scan(condition).count() == 3
    assert table.scan(condition).count() == 0
    assert table.scan().count() == 7


def test_all_rows_are_deleted_only_when_that_is_said(table: neve.Table) -> None:
    with pytest.raises(InvalidArgument, match="true"):
        table.delete_where(None)  # type: ignore[arg-type]
    assert table.scan().count() == 10

    table.delete_where("true")
    assert table.scan().count() == 0


@pytest.mark.parametrize(
    ("condition", "error"),
    [(5, InvalidArgument), ("id >", InvalidArgument), ("nowhere = 1", NotFound)],
    ids=["no filter", "half a filter", "unknown column"],
)
def test_a_wrong_filter_is_refused_and_the_table_goes_on(
    table: neve.Table, condition: object, error: type[neve.NeveError]
) -> None:
    with pytest.raises(error):
        table.delete_where(condition)  # type: ignore[arg-type]

    table.put({"id": 99, "v": 0, "text": "t"})
    assert table.scan().count() == 11


def test_rows_are_deleted_though_the_version_shown_has_expired(table: neve.Table) -> None:
    other = OtherCommitter(table)
    other.upsert([{"id": 2, "v": 7, "text": "theirs"}])
    other.compact()
    table._open.engine.upkeep.expire(keep_last=1, older_than_ms=ANY_AGE_MS)
    table._open.engine.upkeep.collect()
    table._open.engine.files.close()

    table.delete_where("v = 7")

    assert table.get(2) is None
    assert table.scan().count() == 9


def test_a_schema_that_came_meanwhile_does_not_stop_the_table(
    table: neve.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as unseen:
        unseen.setattr(LiveWriter, "refresh", lambda _writer: None)
        with table.evolve() as change:
            change.add_column("note", pa.string())
    table._open.engine.upkeep.expire(keep_last=1, older_than_ms=ANY_AGE_MS)

    table.delete_where("id < 3")

    assert table.scan().count() == 7
    assert table.scan().schema.names == ["id", "v", "text", "note"]
