"""MemtableView: what a memtable holds up to a sequence, as sorted Arrow."""

import pyarrow as pa
import pytest

from neve.memtable import memtable_view
from neve.model.schema import TableSchema
from tests.unit.memtable.builders import NAMED, NUMBERED, Bench, delete, live, put, upsert


def test_a_view_of_nothing_has_the_schema_and_no_rows() -> None:
    view = NUMBERED.memtable(first_sequence=5).view(100)

    assert view.live().schema.equals(NUMBERED.schema.arrow_schema, check_metadata=True)
    assert view.live().num_rows == len(view.keys()) == len(view.live_keys()) == 0
    assert (view.sequence_min, view.sequence_max) == (5, 4)


def test_a_view_leaves_deleted_rows_out_and_keeps_their_keys() -> None:
    memtable = NUMBERED.memtable()
    put(memtable, 1, 3, "c")
    upsert(memtable, 2, (2, "b"), (1, "a"))
    delete(memtable, 4, 2)
    delete(memtable, 5, 9)

    view = memtable.view(5)

    assert live(memtable) == [(1, "a"), (3, "c")]
    assert view.keys().to_pylist() == [NUMBERED.key(at) for at in (1, 2, 3, 9)]
    assert view.live_keys().to_pylist() == [NUMBERED.key(at) for at in (1, 3)]
    assert (view.sequence_min, view.sequence_max) == (1, 5)


def test_a_view_of_deletes_alone_has_keys_and_no_rows() -> None:
    memtable = NUMBERED.memtable()
    memtable.delete_batch(1, NUMBERED.keys([[2], [1]]))

    view = memtable.view(2)

    assert view.live().num_rows == 0
    assert view.live().schema.equals(NUMBERED.schema.arrow_schema, check_metadata=True)
    assert len(view.keys()) == 2


def test_a_view_ends_at_its_sequence_even_inside_a_batch() -> None:
    memtable = NUMBERED.memtable()
    put(memtable, 1, 1, "a")
    upsert(memtable, 2, (2, "b"), (1, "newer"))
    put(memtable, 4, 2, "newer")

    view = memtable.view(2)

    assert view.live().column("v").to_pylist() == ["a", "b"]
    assert (view.sequence_min, view.sequence_max) == (1, 2)


def test_later_writes_do_not_reach_a_view_that_was_taken() -> None:
    memtable = NUMBERED.memtable()
    put(memtable, 1, 1, "a")
    view = memtable.view(1)

    put(memtable, 2, 1, "b")
    upsert(memtable, 3, (2, "c"))

    assert view.live().column("v").to_pylist() == ["a"]
    assert live(memtable) == [(1, "b"), (2, "c")]


def test_a_view_is_made_once_until_something_is_written() -> None:
    memtable = NUMBERED.memtable()
    put(memtable, 1, 1, "a")

    first = memtable.view(1)

    assert memtable.view(1) is first
    assert memtable.view(99) is first
    assert first.live() is first.live()
    put(memtable, 2, 1, "b")
    assert memtable.view(2) is not first
    assert first.live().column("v").to_pylist() == ["a"]


def test_a_frozen_memtable_is_viewed_as_before() -> None:
    memtable = NUMBERED.memtable()
    put(memtable, 1, 1, "a")
    put(memtable, 2, 1, "b")
    memtable.freeze()

    assert live(memtable) == [(1, "b")]
    assert live(memtable, at=1) == [(1, "a")]


def test_rows_of_an_older_schema_are_seen_in_the_memtables_own() -> None:
    old = NUMBERED.schema
    columns = (old.column("v"), old.column("id"))
    schema = TableSchema(
        columns=columns, primary_key=old.primary_key, schema_id=1, last_field_id=old.last_field_id
    )
    bench = Bench(schema, type(NUMBERED.codec)(schema), NUMBERED.encoder)
    memtable = bench.memtable()

    put(memtable, 1, 1, "a")

    assert memtable.view(1).live().column_names == ["v", "id"]
    assert memtable.view(1).live().to_pylist() == [{"v": "a", "id": 1}]


def test_more_bytes_than_one_array_may_have_become_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memtable_view, "_ARRAY_BYTES_MAX", 100)
    memtable = NAMED.memtable()
    names = [f"name {at:03}" for at in range(40)] + ["long " * 50]
    for sequence, name in enumerate(reversed(names), start=1):
        row: dict[str, object] = {"name": name, "v": sequence}
        memtable.put(sequence, NAMED.key_of(row), NAMED.value(row))

    rows = memtable.view(len(names)).live()

    assert rows.column("name").to_pylist() == sorted(names)
    assert pa.types.is_large_binary(memtable.view(len(names)).keys().type)
    pieces = memtable_view._bounded_pieces([b"x" * size for size in (60, 40, 30, 200, 1)])
    assert [[len(each) for each in piece] for piece in pieces] == [[60, 40], [30], [200], [1]]


def test_large_batches_are_woven_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memtable_view, "_ARRAY_BYTES_MAX", 100)
    memtable = NUMBERED.memtable()
    upsert(memtable, 1, *((at * 37 % 50, f"old {at}") for at in range(50)))
    put(memtable, 51, 7, "new")
    upsert(memtable, 52, *((at * 3, f"newer {at}") for at in range(10)))
    delete(memtable, 62, 5)
    wanted = {at * 37 % 50: f"old {at}" for at in range(50)}
    wanted |= {7: "new"} | {at * 3: f"newer {at}" for at in range(10)}
    del wanted[5]

    rows = memtable.view(62).live()

    assert [(row["id"], row["v"]) for row in rows.to_pylist()] == sorted(wanted.items())
    assert rows.column("v").num_chunks > 1
    assert rows.schema.equals(NUMBERED.schema.arrow_schema, check_metadata=True)
