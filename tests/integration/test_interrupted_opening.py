"""Ctrl-C while a table is opened, at any place: it can be opened again by the same process."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import neve
from neve.storage.local_store import LocalStore
from tests.interruption import interrupted

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


@pytest.fixture(autouse=True)
def quick_collections() -> Iterator[None]:
    """Let collections look only at what these tests make: there are some hundred of them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize(
    "part", ["catalog/table.py", "catalog/lake_stores", "catalog/open_table", "engine/table_engine"]
)
def test_a_table_whose_opening_was_interrupted_can_be_opened_again(
    tmp_path: Path, part: str
) -> None:
    options = neve.TableOptions(background=False)
    with neve.open(tmp_path) as lake:
        lake.create_table("a.t", schema=SCHEMA, primary_key=["id"]).close()
    place = 0
    is_interrupted = True
    while is_interrupted:
        place += 1

        def open_table(lake: neve.Catalog) -> None:
            lake.table("a.t", options=options).get(1)

        lake = neve.open(tmp_path)
        is_interrupted = interrupted(lambda lake=lake: open_table(lake), place, part=part)  # type: ignore[misc]
        lake.close()
        gc.collect()

        with neve.open(tmp_path) as again, again.table("a.t", options=options) as table:
            table.put({"id": place})
            assert table.get(place) == {"id": place}, f"interrupted at place {place}"
    assert place > 3


def test_a_lock_whose_taking_was_interrupted_can_be_taken_again(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.lock("table/LOCK").release()
    place = 0
    is_interrupted = True
    while is_interrupted:
        place += 1
        is_interrupted = interrupted(lambda: store.lock("table/LOCK"), place, part="storage/")
        gc.collect()

        store.lock("table/LOCK").release()
    assert place > 20
