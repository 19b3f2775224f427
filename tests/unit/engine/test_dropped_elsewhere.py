"""A table that is dropped by another process while its writer lives."""

from pathlib import Path

import pytest

import neve
from neve.errors import NotFound
from neve.storage.memory_store import MemoryStore
from tests.unit.engine.tables import a_catalog, a_table, rows

WAIT_SECONDS = 30


def test_a_writer_finds_out_at_its_next_flush_and_takes_no_more_writes() -> None:
    objects = MemoryStore()
    table = a_table(a_catalog(objects))
    table.upsert(rows(0, 10))
    a_catalog(objects).drop_table("a.b")

    table.put({"id": 11, "v": 0, "text": ""})  # logged: nobody has asked the manifest yet
    with pytest.raises(NotFound, match="dropped"):
        table.flush()

    with pytest.raises(NotFound, match="dropped"):
        table.put({"id": 12, "v": 0, "text": ""})
    with pytest.raises(NotFound, match="dropped"):
        table.upsert(rows(0, 1))
    with pytest.raises(NotFound, match="dropped"):
        table.delete(1)


def test_a_writer_finds_out_by_itself_and_its_threads_end_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    objects = MemoryStore()
    table = a_table(a_catalog(objects), options=neve.TableOptions(sync="none"))
    table.put({"id": 1, "v": 0, "text": ""})
    upkeep = next(
        each
        for each in table._open.engine.writer.backlog._bystanders
        if each.name == f"neve-upkeep-{table.table_id}"
    )

    a_catalog(objects).drop_table("a.b")

    assert upkeep.turn.ended.wait(WAIT_SECONDS)
    with pytest.raises(NotFound, match="Close the handle"):
        table.put({"id": 2, "v": 0, "text": ""})
    warnings = [each.getMessage() for each in caplog.records if each.levelname != "INFO"]
    assert warnings == [f"stopped writing table={table.table_id} cause=the table was dropped"]
    table.close()


def test_dropping_a_table_of_ones_own_does_not_publish_it_again(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with neve.open(tmp_path) as lake:
        table = a_table(lake, options=neve.TableOptions())
        table.put({"id": 1, "v": 0, "text": ""})

        lake.drop_table("a.b")

        assert repr(table).endswith(", closed)")
    assert "could not publish" not in caplog.text


def test_a_handle_says_that_it_is_closed_when_its_catalog_was() -> None:
    lake = a_catalog()
    unused = a_table(lake)
    opened = lake.table("a.b", options=neve.TableOptions(background=False))
    opened.put({"id": 1, "v": 0, "text": ""})
    assert "closed" not in repr(opened)

    lake.close()

    assert repr(opened).endswith(", closed)")
    assert repr(unused).endswith(", closed)")
