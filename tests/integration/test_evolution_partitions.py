"""Changes of columns that partitions are made of, and of the partitions, in a table with rows."""

from collections.abc import Callable, Iterator
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pytest

import neve
from neve.catalog.evolution import Evolution
from neve.catalog.lake import Lake
from neve.catalog.table import Table
from neve.engine.table_options import TableOptions

NAME: Final = "shop.orders"
OPTIONS: Final = TableOptions(background=False)
_COLUMNS: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "shop": pa.int32(),
    "note": pa.string(),
}
SCHEMA: Final = pa.schema(_COLUMNS)
PARTITION_BY: Final = ("shop", "truncate(2, note)")

Row = dict[str, object]


def a_row(key: int) -> Row:
    return {"id": key, "shop": None if key % 5 == 0 else key % 3, "note": f"{'ab'[key % 2]}{key}"}


def drop_sources(e: Evolution) -> None:
    e.drop_column("shop")
    e.set_partition_by(["bucket(2, id)"])


def widen_source(e: Evolution) -> None:
    e.widen_column("shop", "long")


def rename_sources(e: Evolution) -> None:
    e.rename_column("shop", "note_")
    e.rename_column("note", "shop_")


def other_partitions(e: Evolution) -> None:
    e.set_partition_by(["bucket(3, shop)"])


def no_partitions(e: Evolution) -> None:
    e.set_partition_by([])


def dropped(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "shop"}


def renamed(row: Row) -> Row:
    return {"id": row["id"], "note_": row["shop"], "shop_": row["note"]}


def same(row: Row) -> Row:
    return row


CHANGES: Final = {
    "drop sources": (drop_sources, dropped, "note"),
    "widen a source": (widen_source, same, "note"),
    "rename sources": (rename_sources, renamed, "shop_"),
    "other partitions": (other_partitions, same, "note"),
    "no partitions": (no_partitions, same, "note"),
}


@pytest.fixture
def lake() -> Iterator[Lake]:
    """Yield a warehouse of this test alone."""
    with neve.open(f"memory://{uuid4()}") as catalog:
        yield catalog


def check(table: Table, expected: dict[int, Row], note: str) -> None:
    assert {key: table.get(key) for key in expected} == expected
    rows = table.scan().to_arrow().to_pylist()
    assert {row["id"]: row for row in rows} == expected
    assert len(rows) == len(expected)
    chosen = {row["id"] for row in table.scan(f"{note} >= 'b'").to_arrow().to_pylist()}
    assert chosen == {key for key, row in expected.items() if str(row[note]) >= "b"}
    assert table.get_many([*expected]).num_rows == len(expected)
    table.verify()


@pytest.mark.parametrize(("evolve", "turn", "note"), CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize("is_compacted", [False, True], ids=["young", "compacted"])
def test_files_of_older_partitions_stay_readable_and_can_be_compacted(
    lake: Lake,
    evolve: Callable[[Evolution], None],
    turn: Callable[[Row], Row],
    note: str,
    is_compacted: bool,
) -> None:
    table = lake.create_table(NAME, SCHEMA, ["id"], partition_by=PARTITION_BY, options=OPTIONS)
    table.upsert([a_row(key) for key in range(20)])
    table.flush()
    if is_compacted:
        table.compact(full=True)
    table.upsert([a_row(key) for key in range(15, 30)])

    with table.evolve() as e:
        evolve(e)

    expected = {key: turn(a_row(key)) for key in range(30)}
    check(table, expected, note)
    # Rows move from partitions of the old spec to those of the new one.
    moved = {key: {**row, note: f"b{key}"} for key, row in expected.items() if key % 2 == 0}
    table.upsert([*moved.values()])
    expected |= moved
    check(table, expected, note)
    table.flush()
    check(table, expected, note)
    table.compact(full=True)
    check(table, expected, note)
    assert table.files().num_rows > 0


def test_rows_written_after_a_change_of_partitions_prune_by_the_new_ones(lake: Lake) -> None:
    table = lake.create_table(NAME, SCHEMA, ["id"], options=OPTIONS)
    table.upsert([a_row(key) for key in range(1, 5)])
    table.flush()

    with table.evolve() as e:
        e.add_column("team", "string", default="red")
        e.set_partition_by(["team"])
    for team in ("red", "blue", "green"):
        table.upsert([{**a_row(key), "team": team} for key in range(len(team), len(team) + 2)])
        table.flush()

    explained = table.scan("team = 'blue'").explain()
    assert explained.files_read == 1
    assert explained.pruned_by_partition + explained.pruned_by_statistics == 3
    rows = table.scan("team = 'red'").to_arrow().to_pylist()
    assert {row["id"] for row in rows} == {1, 2, 3}


@pytest.mark.parametrize("is_settled", [False, True], ids=["level 0", "lower levels"])
def test_a_partition_is_compacted_as_one_though_its_column_was_widened(
    lake: Lake, is_settled: bool
) -> None:
    table = lake.create_table(NAME, SCHEMA, ["id"], partition_by=["shop"], options=OPTIONS)
    for keys in (range(0, 40, 2), range(1, 40, 2)):
        table.upsert([{"id": key, "shop": key % 2 or None} for key in keys])
        table.flush()
    if is_settled:
        table.compact(full=True)
    with table.evolve() as e:
        e.widen_column("shop", "long")
    table.upsert([{"id": key, "shop": key % 2 or None, "note": "new"} for key in range(10, 50)])
    table.flush()

    table.compact(full=True)

    partitions = [dict(each or ()) for each in table.files().column("partition").to_pylist()]
    assert sorted(partitions, key=str) == [{"shop": "1"}, {"shop": None}]
    notes = {row["id"]: row["note"] for row in table.scan().to_arrow().to_pylist()}
    assert notes == {key: "new" if key >= 10 else None for key in range(50)}
    table.verify()


def test_files_that_flow_down_the_levels_meet_those_of_before_a_widening(lake: Lake) -> None:
    options = TableOptions(background=False, level0_files=2)
    table = lake.create_table(NAME, SCHEMA, ["id"], partition_by=["shop"], options=options)
    for turn in range(8):
        table.upsert([{"id": key, "shop": 7, "note": f"{turn}"} for key in range(turn, turn + 9)])
        table.flush()
        table.compact()
        if turn == 3:
            with table.evolve() as e:
                e.widen_column("shop", "long")

    assert table.files().num_rows == 1
    assert table.get(0) == {"id": 0, "shop": 7, "note": "0"}
    assert table.scan("shop = 7").count() == 16
    table.verify()
