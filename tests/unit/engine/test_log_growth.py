"""Logs of a table do not pile up: by rows that are overwritten, nor by opening and closing."""

from collections.abc import Iterator

import pytest

import neve
from neve.catalog.lake import Lake
from tests.unit.engine.tables import a_catalog, a_table

LOG_BYTES = 64 << 10
OPTIONS = neve.TableOptions(background=False, memtable_bytes=LOG_BYTES, log_bytes=LOG_BYTES)


@pytest.fixture
def lake() -> Iterator[Lake]:
    with a_catalog() as catalog:
        yield catalog


def logs(table: neve.Table) -> list[int]:
    """Return the lengths of the logs, preallocated space included."""
    listed = table._open.stored.objects.list(f"{table._open.stored.paths.wal}/")
    return [info.size for info in listed if info.path.endswith(".wal")]


def a_row(number: int, v: int) -> dict[str, object]:
    return {"id": number, "v": v, "text": "x" * 200}


def test_rows_that_are_overwritten_for_ever_are_flushed_now_and_then(lake: Lake) -> None:
    table = a_table(lake, options=OPTIONS)
    counts = []
    for v in range(8_000):
        table.put(a_row(v % 5, v))
        if v % 500 == 0:
            counts.append(len(logs(table)))

    assert max(counts) < 30
    assert table.flush() > 1
    assert table.scan().count() == 5
    assert table.get(4) == a_row(4, 7_999)


def test_closing_gives_back_the_space_that_a_log_reserved(lake: Lake) -> None:
    table = a_table(lake, options=OPTIONS)
    table.put(a_row(1, 1))
    assert sum(logs(table)) >= LOG_BYTES
    table.close()

    assert sum(logs(table)) < 1_000


def test_opening_and_closing_without_writing_leaves_no_logs(lake: Lake) -> None:
    a_table(lake, options=OPTIONS).close()
    for _ in range(20):
        with lake.table("a.b", options=OPTIONS) as table:
            assert table.get(1) is None

    assert len(logs(table)) <= 3


@pytest.mark.parametrize("background", [False, True], ids=["by hand", "background"])
def test_a_row_with_every_opening_is_flushed_before_there_are_many_logs(
    lake: Lake, background: bool
) -> None:
    options = neve.TableOptions(
        background=background, memtable_bytes=LOG_BYTES, log_bytes=LOG_BYTES
    )
    a_table(lake, options=options).close()
    most = 0
    for number in range(40):
        with lake.table("a.b", options=options) as table:
            table.put(a_row(number, number))
            if not background:
                while table._open.engine.writer.flush_once():
                    pass
            most = max(most, len(logs(table)))

    assert most < 25
    with lake.table("a.b", options=options) as table:
        assert table.scan().count() == 40
        table.verify()


def test_a_log_that_was_let_go_at_opening_leaves_numbers_that_go_on(lake: Lake) -> None:
    with a_table(lake, options=OPTIONS) as table:
        first = table.put(a_row(1, 1))
        table.flush()
    for number in range(2, 5):
        with lake.table("a.b", options=OPTIONS):
            pass
        with lake.table("a.b", options=OPTIONS) as table:
            assert table.put(a_row(number, 1)) == first + number - 1
            table.flush()

    with lake.table("a.b", options=OPTIONS) as table:
        assert table.scan().count() == 4
