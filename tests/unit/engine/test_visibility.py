"""When a write is seen: all of it, by every call, from one moment on."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import neve
from neve.engine.snapshot import CurrentView

COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "v": pa.int64()}
SCHEMA = pa.schema(COLUMNS)
WAIT_SECONDS = 30


class HesitatingView(CurrentView):
    """Stops a writer between bringing a row into memory and showing it."""

    reached: threading.Event
    may_go_on: threading.Event

    @property
    def sequence(self) -> int:
        shown = self.__dict__["sequence"]
        assert isinstance(shown, int)
        return shown

    @sequence.setter
    def sequence(self, sequence: int) -> None:
        self.reached.set()
        assert self.may_go_on.wait(WAIT_SECONDS)
        self.__dict__["sequence"] = sequence


@pytest.fixture
def table() -> Iterator[neve.Table]:
    with neve.open("memory://visibility") as lake:
        name = f"t.t{len(lake.list_tables())}"
        options = neve.TableOptions(background=False)
        table = lake.create_table(name, SCHEMA, ["id"], options=options)
        table.upsert([{"id": 1, "v": 0}, {"id": 2, "v": 0}])
        yield table


def hesitate(table: neve.Table) -> HesitatingView:
    current = table._open.engine.current
    current.__class__ = HesitatingView
    assert isinstance(current, HesitatingView)
    current.reached, current.may_go_on = threading.Event(), threading.Event()
    return current


def seen(table: neve.Table) -> list[object]:
    """Ask for one row in every way there is."""
    one = table.get(1)
    assert one is not None
    with table.snapshot() as snapshot:
        frozen = snapshot.get(1)
    assert frozen is not None
    many = table.get_many([1])["v"].to_pylist()
    scanned = table.scan("id = 1").to_arrow()["v"].to_pylist()
    return [one["v"], frozen["v"], *many, *scanned]


@pytest.mark.parametrize("is_batch", [False, True], ids=["put", "upsert"])
def test_a_write_that_is_applied_and_not_yet_shown_is_seen_by_no_call(
    table: neve.Table, is_batch: bool
) -> None:
    current = hesitate(table)
    rows = [{"id": 1, "v": 9}, {"id": 2, "v": 9}]
    writer = threading.Thread(
        target=(lambda: table.upsert(rows)) if is_batch else (lambda: table.put(rows[0]))
    )
    writer.start()
    assert current.reached.wait(WAIT_SECONDS)

    before = seen(table)
    current.may_go_on.set()
    writer.join()

    assert before == [0, 0, 0, 0]
    assert seen(table) == [9, 9, 9, 9]
