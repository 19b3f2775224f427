"""Engines that handles share: who closes them, and who waits for that."""

from pathlib import Path
from threading import Event, Thread

import pytest

import neve
from neve.engine.table_engine import TableEngine


def test_closing_a_lake_waits_for_a_table_that_another_thread_is_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, is_lake_closed = Event(), Event()
    order: list[str] = []
    close = TableEngine.close

    def slowly(engine: TableEngine) -> None:
        closing.set()
        is_lake_closed.wait(0.2)  # it never comes before this ends
        close(engine)
        order.append("table")

    lake = neve.open(tmp_path)
    table = lake.create_table("a.t", {"id": "long"}, "id")
    table.put({"id": 1})
    monkeypatch.setattr(TableEngine, "close", lambda engine, **_words: slowly(engine))
    thread = Thread(target=table.close)
    thread.start()
    assert closing.wait(30)

    lake.close()
    order.append("lake")
    is_lake_closed.set()
    thread.join()

    assert order == ["table", "lake"]
