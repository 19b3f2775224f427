"""What a notebook and a prompt show: useful, harmless, cheap, and never an error."""

import copy
import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.engine.upkeep import GarbageReport
from neve.errors import InvalidArgument
from neve.notebook import TABLES_SHOWN
from neve.storage.memory_store import MemoryStore
from neve.testing.faulty_store import WRITES, FaultyStore, StoreCall
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.unit.model.page_checks import Page

NAME = "<script>alert(1).<b>"
COLUMN = "</td><script>"
COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), COLUMN: pa.string()}
HAND_DRIVEN = neve.TableOptions(background=False)


def a_lake(objects: MemoryStore | FaultyStore | None = None) -> Lake:
    return Lake(objects or MemoryStore(), clock=SimulatedClock(), ids=SeededIds(0))


def a_table(lake: Lake, name: str = NAME) -> neve.Table:
    """Make a table with a flushed and an unflushed part, whose names are HTML."""
    table = lake.create_table(
        name,
        pa.schema(COLUMNS),
        ["id"],
        partition_by=["bucket(2, id)"],
        properties={"owner": "<i>anna</i>"},
        options=HAND_DRIVEN,
    )
    table.upsert([{"id": each, COLUMN: "<u>"} for each in range(100)])
    table.flush()
    table.delete(7)
    table.flush()
    table.put({"id": 1_000, COLUMN: "<u>"})
    return table


def page_of(shown: object) -> Page:
    make: Callable[[], str] = shown._repr_html_  # type: ignore[attr-defined]
    return Page(make())


def test_a_lake_shows_its_namespaces_and_tables() -> None:
    lake = a_lake()
    a_table(lake)
    lake.create_namespace("empty")

    page = page_of(lake)

    assert f"{lake.location} · 1 table" in page.texts
    assert "<script>alert(1), empty" in page.texts
    assert page.texts[page.texts.index(NAME) :][:4] == [NAME, "3", "99", "2"]


def test_a_lake_of_many_tables_shows_some_and_opens_none() -> None:
    lake = a_lake()
    for number in range(TABLES_SHOWN + 3):
        lake.create_table(f"a.t{number:03}", pa.schema({"id": pa.int64()}), ["id"])

    page = page_of(lake)

    assert page.elements.count("tr") == 1 + 1 + TABLES_SHOWN
    assert "and 3 more" in page.texts
    assert not lake._stores.live_tables._engines


def test_an_empty_lake_says_so() -> None:
    assert "no tables" in page_of(a_lake()).text


def test_a_table_shows_its_definition_its_levels_and_what_is_not_flushed() -> None:
    page = page_of(a_table(a_lake()))

    assert page.texts[0] == f"Table {NAME}"
    assert page.texts[1].startswith("version 3 · 99 rows · 2 files · ")
    for text in ("bucket(2, id)", "1 change", "owner=<i>anna</i>", COLUMN, "required, key"):
        assert text in page.texts
    assert "svg" in page.elements


def test_a_table_that_was_not_opened_shows_what_the_catalog_knows() -> None:
    lake = a_lake()
    a_table(lake)

    page = page_of(lake.load_table(NAME))

    assert "version 3 · 99 rows" in page.text
    assert "not flushed" not in page.text


def test_a_table_shows_what_others_committed_without_moving_its_handle() -> None:
    lake = a_lake()
    table = a_table(lake)
    known = lake.load_table(NAME)

    table.flush()

    assert "version 4 · 100 rows" in page_of(known).text
    assert known.version == 3


def test_a_snapshot_and_an_old_version_show_what_they_are_of() -> None:
    table = a_table(a_lake())
    table.tag("<gold>", 2)

    with table.snapshot() as now, table.at(tag="<gold>") as then:
        assert f"Snapshot of {NAME}" in page_of(now).texts
        assert "what was written up to 102" in page_of(now).texts
        assert "<gold>" in page_of(then).texts
        assert "version 2 · 100 rows" in page_of(then).text
        assert "in memory" not in page_of(then).text
        assert repr(now) == f"Snapshot({NAME!r}, version=3, sequence=102)"
        assert repr(then) == f"Snapshot({NAME!r}, version=2, sequence=0, tag='<gold>')"
    assert "closed" in page_of(now).text
    assert "closed" in repr(now)


def test_stats_and_a_version_are_shown_in_words() -> None:
    table = a_table(a_lake())

    stats = page_of(table.stats())
    version = page_of(table._open.current())

    assert stats.texts[stats.texts.index("row count") + 1] == "99"
    assert stats.texts[stats.texts.index("level file counts") + 1] == "0: 2"
    assert "version 3 · 99 rows" in version.text
    assert len(repr(table._open.current())) < 80


def a_watched_lake() -> tuple[Lake, FaultyStore]:
    """Return a lake that has rows in three files, and the store that counts what is asked of it."""
    stored = MemoryStore()
    with a_lake(stored) as lake, a_table(lake) as table:
        table.flush()
    watched = FaultyStore(stored)
    return a_lake(watched), watched


def test_a_scan_shows_its_plan_and_reads_nothing() -> None:
    lake, objects = a_watched_lake()
    scan = lake.table(NAME, read_only=True).scan("id > 5", limit=3)
    before = len(objects.calls)

    page = page_of(scan)

    assert "id > 5" in page.texts
    assert "3 of 3" in page.text
    assert "to_arrow()" in page.text
    assert repr(scan).endswith("filter='id > 5', limit=3)")
    assert len(objects.calls) == before
    assert scan.to_arrow().num_rows == 3
    assert len(objects.calls) > before, "reading would have been seen"
    assert "not read yet" not in page_of(scan).text


def test_showing_writes_nothing() -> None:
    lake, objects = a_watched_lake()
    table = lake.table(NAME, read_only=True)

    def writes() -> int:
        return sum(call.operation in WRITES for call in objects.calls)

    with table.snapshot() as now, table.at(2) as then:
        shown = [lake, table, lake.load_table(NAME), now, then, table.scan(), table._open.current()]
        before = writes()
        for each in shown:
            assert page_of(each).text
            assert repr(each)
        assert writes() == before
    lake.create_namespace("more")
    assert writes() > before, "writing would have been seen"


def test_a_closed_table_shows_the_last_it_knew() -> None:
    lake = a_lake()
    table = a_table(lake)
    table.close()

    assert "the handle was closed" in page_of(table).text
    assert "version 3 · 99 rows" in page_of(table).text
    assert repr(table) == f"Table({NAME!r}, key=['id'], version=3, closed)"


def test_a_closed_lake_says_so() -> None:
    lake = a_lake()
    table = a_table(lake)
    lake.close()

    assert "the catalog was closed" in page_of(lake).text
    assert "the catalog was closed" in page_of(table).text
    assert repr(lake) == f"Lake({lake.location!r}, closed)"


def test_a_dropped_table_says_so() -> None:
    lake = a_lake()
    table = a_table(lake)
    lake.drop_table(NAME)

    assert "the table was dropped" in page_of(table).text


def test_a_damaged_table_is_shown_beside_the_sound_ones() -> None:
    objects = MemoryStore()
    lake = a_lake(objects)
    damaged = a_table(lake, "a.damaged")
    a_table(lake, "a.sound")
    damaged_path = damaged._open.stored.paths.manifest
    lake.close()
    for info in list(objects.list(f"{damaged_path}/")):
        objects.put(info.path, b"\xff" * 40)

    page = page_of(a_lake(objects))

    assert page.texts[page.texts.index("a.sound") + 2] == "99"
    assert damaged_path in page.texts[page.texts.index("a.damaged") + 1]


def test_a_store_that_does_not_answer_is_named_in_place_of_the_page() -> None:
    is_away = False

    def away(call: StoreCall) -> None:
        if is_away:
            raise neve.Unavailable("the store is <away>", path=call.path)

    lake = a_lake(FaultyStore(MemoryStore(), before_call=away))
    lake.create_table("a.b", pa.schema({"id": pa.int64()}), ["id"])
    table = lake.load_table("a.b")
    is_away = True

    assert "the store is <away>" in page_of(lake).text
    assert "the store is <away>" in page_of(table).text
    assert "version 1 · 0 rows" in page_of(table).text


def test_a_report_of_many_files_is_one_short_line() -> None:
    paths = tuple(f"data/{number}.parquet" for number in range(5_000))

    report = GarbageReport(paths=paths, byte_count=3_400_000, is_dry_run=True)

    assert repr(report) == "GarbageReport(5,000 files would be deleted, 3.4 MB)"


@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_is_open_is_not_sent_to_another_process(send: Callable[[object], object]) -> None:
    lake = a_lake()
    table = a_table(lake)

    with table.snapshot() as snapshot:
        for held in (lake, table, lake.load_table(NAME), snapshot, table.scan()):
            with pytest.raises(InvalidArgument, match="read_only=True"):
                send(held)
