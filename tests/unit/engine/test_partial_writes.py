"""Partial writes: some columns are written, the others stay as they are."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pyarrow as pa
import pytest

import neve
from neve.engine.live_writer import LiveWriter
from neve.engine.write_path import PreparedWrite
from neve.errors import InvalidArgument, NotFound, SchemaMismatch
from neve.manifest.table_head import HeadChange
from neve.manifest.table_versions import MakeEdits, TableVersions
from neve.manifest.writer_state import WriterState
from neve.storage.memory_store import MemoryStore
from tests.unit.engine.other_committer import OtherCommitter
from tests.unit.engine.tables import a_catalog, a_table

ONE = {"id": 1, "v": 1, "text": "one"}
TWO = {"id": 2, "v": 2, "text": "two"}


@pytest.fixture
def table() -> Iterator[neve.Table]:
    with a_catalog() as catalog:
        table = a_table(catalog)
        table.upsert([ONE, TWO])
        yield table


def seen(table: neve.Table, key: int) -> dict[str, object] | None:
    """Ask for one row in every way there is, which all agree."""
    one = table.get(key)
    expected = [] if one is None else [one]
    assert table.get_many([key]).to_pylist() == expected
    assert table.scan(f"id = {key}").to_arrow().to_pylist() == expected
    with table.snapshot() as snapshot:
        assert snapshot.get(key) == one
    return one


@pytest.mark.parametrize("place", ["memory", "file", "compacted file", "frozen memory"])
def test_columns_that_are_not_given_stay(table: neve.Table, place: str) -> None:
    if place == "frozen memory":
        table._open.engine.writer._buffer.roll()
    elif place != "memory":
        table.flush()
    if place == "compacted file":
        table.compact(full=True)

    table.upsert([{"id": 1, "v": 10}], columns=["v"])

    assert seen(table, 1) == {**ONE, "v": 10}
    assert seen(table, 2) == TWO
    table.flush()
    assert seen(table, 1) == {**ONE, "v": 10}
    assert seen(table, 2) == TWO


@pytest.mark.parametrize(
    "shape",
    [
        lambda rows: rows,
        lambda rows: rows[-1],
        iter,
        pa.Table.from_pylist,
        lambda rows: pa.Table.from_pylist(rows).to_batches()[0],
        lambda rows: pa.Table.from_pylist(rows).to_reader(),
    ],
    ids=["dicts", "dict", "iterator", "table", "batch", "reader"],
)
def test_rows_come_in_every_form(
    table: neve.Table, shape: Callable[[list[dict[str, object]]], neve.Rows]
) -> None:
    table.upsert(shape([{"id": 2, "text": "zwei"}]), columns=["text"])

    assert seen(table, 2) == {**TWO, "text": "zwei"}


def test_columns_of_the_rows_that_are_not_named_are_passed_over(table: neve.Table) -> None:
    table.upsert([{"id": 1, "v": 10, "text": "not this"}], columns=["id", "v"])
    table.upsert(pa.table({"text": ["nor this"], "v": [20], "id": [2]}), columns=["v"])

    assert seen(table, 1) == {**ONE, "v": 10}
    assert seen(table, 2) == {**TWO, "v": 20}


def test_null_that_is_given_is_written(table: neve.Table) -> None:
    table.upsert([{"id": 1, "text": None}], columns=["text"])

    assert seen(table, 1) == {**ONE, "text": None}
    table.flush()
    assert seen(table, 1) == {**ONE, "text": None}


def test_of_two_rows_with_one_key_the_later_wins(table: neve.Table) -> None:
    last = table.upsert([{"id": 1, "v": 8}, {"id": 2, "v": 9}, {"id": 1, "v": 10}], columns=["v"])

    assert last == table._open.engine.current.sequence
    assert seen(table, 1) == {**ONE, "v": 10}
    assert seen(table, 2) == {**TWO, "v": 9}


def test_a_key_without_a_row_gets_one_with_nulls(table: neve.Table) -> None:
    table.upsert([{"id": 3, "v": 3}], columns=["v"])

    assert seen(table, 3) == {"id": 3, "v": 3, "text": None}
    table.flush()
    assert seen(table, 3) == {"id": 3, "v": 3, "text": None}


def test_a_deleted_row_does_not_come_back(table: neve.Table) -> None:
    table.flush()
    table.delete(1)
    table.upsert([{"id": 1, "v": 3}], columns=["v"])

    assert seen(table, 1) == {"id": 1, "v": 3, "text": None}
    table.flush()
    assert seen(table, 1) == {"id": 1, "v": 3, "text": None}


def test_partial_writes_add_up(table: neve.Table) -> None:
    table.flush()
    table.upsert([{"id": 1, "v": 10}], columns=["v"])
    table.upsert([{"id": 1, "text": "uno"}], columns=["text"])
    table.upsert([{"id": 1, "v": 11}], columns=["v"])

    assert seen(table, 1) == {"id": 1, "v": 11, "text": "uno"}
    table.flush()
    assert seen(table, 1) == {"id": 1, "v": 11, "text": "uno"}


def test_a_snapshot_keeps_the_row_before_a_partial_write(table: neve.Table) -> None:
    table.upsert([{"id": 1, "v": 10}], columns=["v"])
    with table.snapshot() as snapshot:
        table.upsert([{"id": 1, "text": "uno"}], columns=["text"])

        assert snapshot.get(1) == {**ONE, "v": 10}
        assert snapshot.get_many([1]).to_pylist() == [{**ONE, "v": 10}]


def test_nothing_to_write_writes_nothing(table: neve.Table) -> None:
    before = table._open.engine.current.sequence

    assert table.upsert([], columns=["v"]) == before

    assert table._open.engine.current.sequence == before


# What may not be written


REQUIRED_COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "v": pa.int64(),
    "name": pa.string(),
}
REQUIRED = pa.schema(REQUIRED_COLUMNS).set(2, pa.field("name", pa.string(), nullable=False))


@pytest.mark.parametrize("form", ["dicts", "arrow"])
def test_a_row_that_would_lack_a_required_column_refuses_the_whole_batch(form: str) -> None:
    with a_catalog() as catalog:
        options = neve.TableOptions(background=False)
        table = catalog.create_table("a.b", REQUIRED, ["id"], options=options)
        table.put({"id": 1, "v": 1, "name": "one"})
        before = table._open.engine.current.sequence
        rows: neve.Rows = [{"id": 1, "v": 5}, {"id": 7, "v": 5}, {"id": 8, "v": 5}]
        if form == "arrow":
            rows = pa.table({"id": [1, 7, 8], "v": [5, 5, 5]})

        with pytest.raises(SchemaMismatch, match="key 7 has no row yet") as refused:
            table.upsert(rows, columns=["v"])

        assert refused.value.column == "name"
        assert table._open.engine.current.sequence == before
        assert table.get(1) == {"id": 1, "v": 1, "name": "one"}
        table.upsert([{"id": 1, "v": 5}], columns=["v"])
        assert seen(table, 1) == {"id": 1, "v": 5, "name": "one"}


@pytest.mark.parametrize(
    ("rows", "columns", "error"),
    [
        ([{"id": 1, "v": 1}], [], InvalidArgument),
        ([{"id": 1, "v": 1}], ["id"], InvalidArgument),
        ([{"id": 1, "v": 1}], "v", InvalidArgument),
        ([{"id": 1, "v": 1}], [1], InvalidArgument),
        ([{"id": 1, "v": 1}], ["w"], NotFound),
        ([{"id": 1, "text": "x"}], ["v"], SchemaMismatch),
        ([{"v": 1}], ["v"], SchemaMismatch),
        ([{"id": 1, "v": 1, "w": 2}], ["v"], SchemaMismatch),
        ([{"id": 1, "v": "x"}], ["v"], SchemaMismatch),
        ([{"id": None, "v": 1}], ["v"], SchemaMismatch),
        (pa.table({"id": [1]}), ["v"], SchemaMismatch),
        (pa.table({"id": [1], "v": ["x"]}), ["v"], SchemaMismatch),
        ([1], ["v"], SchemaMismatch),
        (7, ["v"], InvalidArgument),
    ],
    ids=[
        "no columns",
        "only the key",
        "columns as text",
        "a column as number",
        "an unknown column",
        "a column missing from a dict",
        "no key",
        "an unknown column in the rows",
        "a value of another type",
        "a null key",
        "a column missing from arrow",
        "another type in arrow",
        "no dict",
        "no rows",
    ],
)
def test_a_wrong_call_says_what_is_wrong_and_writes_nothing(
    table: neve.Table, rows: object, columns: list[str], error: type[Exception]
) -> None:
    before = table._open.engine.current.sequence

    with pytest.raises(error):
        table.upsert(rows, columns=columns)  # type: ignore[arg-type]

    assert table._open.engine.current.sequence == before


# Beside other committers


def test_what_others_wrote_to_the_other_columns_survives_the_flush(table: neve.Table) -> None:
    table.flush()
    table.upsert([{"id": 1, "v": 10}, {"id": 3, "v": 30}], columns=["v"])
    OtherCommitter(table).upsert(
        [{**ONE, "v": 5, "text": "uno"}, {"id": 3, "v": 6, "text": "tres"}]
    )

    table.flush()

    assert seen(table, 1) == {"id": 1, "v": 10, "text": "uno"}
    assert seen(table, 3) == {"id": 3, "v": 30, "text": "tres"}
    assert table.scan().count() == 3


def test_a_row_that_another_committer_deleted_comes_back_with_what_was_given_only(
    table: neve.Table,
) -> None:
    table.flush()
    table.upsert([{"id": 1, "v": 10}], columns=["v"])
    OtherCommitter(table).delete([1])

    table.flush()

    assert seen(table, 1) == {"id": 1, "v": 10, "text": None}


def test_a_required_column_of_a_row_that_another_committer_deleted_is_kept() -> None:
    objects = MemoryStore()
    with a_catalog(objects) as catalog:
        options = neve.TableOptions(background=False)
        table = catalog.create_table("a.b", REQUIRED, ["id"], options=options)
        table.upsert([{"id": key, "v": 1, "name": "one"} for key in (1, 2)])
        table.flush()
        table.upsert([{"id": 1, "v": 10}], columns=["v"])
        OtherCommitter(table).delete([1, 2])
        table.close()

        table = catalog.table("a.b", options=options)
        assert seen(table, 1) == {"id": 1, "v": 10, "name": "one"}
        table.flush()

        assert seen(table, 1) == {"id": 1, "v": 10, "name": "one"}
        assert seen(table, 2) is None


def test_a_commit_between_the_merge_and_the_flush_is_merged_too(
    table: neve.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.flush()
    table.upsert([{"id": 1, "v": 10}], columns=["v"])
    other = OtherCommitter(table)
    texts = iter(["uno", "eins", "un"])
    commit = TableVersions.apply_made_edits

    def beaten(
        versions: TableVersions, make_edits: MakeEdits, asked: HeadChange, **named: object
    ) -> object:
        for text in texts if asked.writer_epoch else ():
            other.upsert([{**ONE, "v": 5, "text": text}])
            break
        return commit(versions, make_edits, asked, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(TableVersions, "apply_made_edits", beaten)

    table.flush()

    assert seen(table, 1) == {"id": 1, "v": 10, "text": "un"}
    data_files = [path for path in table.collect_garbage().paths if path.startswith("data/")]
    assert data_files == []  # what was written in vain is gone


def test_what_others_wrote_is_seen_before_the_flush_once_their_version_is_shown(
    table: neve.Table,
) -> None:
    table.flush()
    table.upsert([{"id": 1, "v": 10}, {"id": 2, "v": 20}, {"id": 3, "v": 30}], columns=["v"])
    other = OtherCommitter(table)
    other.upsert([{**ONE, "v": 5, "text": "uno"}, {"id": 3, "v": 6, "text": "tres"}])
    other.delete([2])
    with table.snapshot() as before:
        table.refresh()

        assert before.get(1) == {**ONE, "v": 10}
        assert before.scan("id = 1").to_arrow().to_pylist() == [{**ONE, "v": 10}]
    assert seen(table, 1) == {"id": 1, "v": 10, "text": "uno"}
    assert seen(table, 2) == {"id": 2, "v": 20, "text": None}
    assert seen(table, 3) == {"id": 3, "v": 30, "text": "tres"}
    assert table.get_many([3, 1, 2])["text"].to_pylist() == ["tres", "uno", None]
    assert table.scan("text = 'uno'").count() == 1


def test_a_writer_that_keeps_losing_against_others_gets_its_turn(
    table: neve.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.flush()
    table.upsert([{"id": 1, "v": 10}], columns=["v"])
    other = OtherCommitter(table)
    numbers = iter(range(6))
    reserved: list[str] = []
    commit, reserve = TableVersions.apply_made_edits, WriterState.reserve

    def beaten(
        versions: TableVersions, make_edits: MakeEdits, asked: HeadChange, **named: object
    ) -> object:
        for number in numbers if asked.writer_epoch else ():
            other.upsert([{**ONE, "v": 5, "text": str(number)}])
            break
        return commit(versions, make_edits, asked, **named)  # type: ignore[arg-type]

    def noted(work: WriterState, job_id: str, *, milliseconds: int) -> object:
        reserved.append(job_id)
        return reserve(work, job_id, milliseconds=milliseconds)

    monkeypatch.setattr(TableVersions, "apply_made_edits", beaten)
    monkeypatch.setattr(WriterState, "reserve", noted)

    table.flush()

    assert seen(table, 1) == {"id": 1, "v": 10, "text": "5"}
    assert reserved


def test_a_whole_row_after_a_partial_one_owes_nothing_to_others(table: neve.Table) -> None:
    table.flush()
    table.upsert([{"id": 1, "v": 10}], columns=["v"])
    table.put({"id": 1, "v": 11, "text": "own"})
    table.upsert([{"id": 1, "v": 12}], columns=["v"])
    OtherCommitter(table).upsert([{**ONE, "text": "uno"}])

    table.flush()

    assert seen(table, 1) == {"id": 1, "v": 12, "text": "own"}


def test_two_memtables_with_partial_writes_of_one_row_are_flushed_in_order(
    table: neve.Table,
) -> None:
    table.flush()
    table.upsert([{"id": 1, "v": 10}], columns=["v"])
    table._open.engine.writer._buffer.roll()
    table.upsert([{"id": 1, "text": "uno"}], columns=["text"])
    OtherCommitter(table).upsert([{**ONE, "v": 5, "text": "eins"}])

    table.flush()

    assert seen(table, 1) == {"id": 1, "v": 10, "text": "uno"}


def test_threads_that_write_a_column_each_lose_nothing_beside_flushes_and_commits() -> None:
    names, rounds, keys = ("a", "b", "c"), 25, 6
    columns: dict[str, pa.DataType] = {"id": pa.int64(), **dict.fromkeys(names, pa.int64())}
    columns["theirs"] = pa.int64()
    with a_catalog() as catalog:
        table = a_table(catalog, columns=columns)
        other = OtherCommitter(table)
        other.upsert([{"id": key, "theirs": 0} for key in range(keys)])
        table.refresh()

        def write(name: str) -> None:
            for number in range(1, rounds + 1):
                rows = [{"id": key, name: number} for key in range(keys)]
                table.upsert(rows, columns=[name])
                for row in table.get_many(list(range(keys))).to_pylist():
                    assert row[name] == number

        with ThreadPoolExecutor(len(names)) as pool:
            writers = [pool.submit(write, name) for name in names]
            while not all(each.done() for each in writers):
                table.flush()
                table.compact()
            for each in writers:
                each.result()

        table.upsert([{"id": key, "a": rounds + 1} for key in range(keys)], columns=["a"])
        whole = table.scan().to_arrow().sort_by("id").to_pylist()
        other.upsert([{**row, "theirs": 1} for row in whole])
        table.flush()
        expected = {"a": rounds + 1, "b": rounds, "c": rounds, "theirs": 1}
        assert table.scan().to_arrow().sort_by("id").to_pylist() == [
            {"id": key, **expected} for key in range(keys)
        ]
        assert not table.verify().problems


# After a crash


def test_partial_writes_are_replayed_on_the_rows_of_the_head() -> None:
    with a_catalog() as catalog:
        table = a_table(catalog)
        table.upsert([ONE, TWO])
        table.flush()
        table.upsert([{"id": 1, "v": 10}, {"id": 3, "v": 30}], columns=["v"])
        table.put({**TWO, "text": "zwei"})
        table.upsert([{"id": 2, "v": 20}, {"id": 1, "v": 11}], columns=["v"])
        OtherCommitter(table).upsert([{**ONE, "text": "uno"}, {**TWO, "text": "dos"}])
        table.close()

        table = catalog.table("a.b", options=neve.TableOptions(background=False))

        expected = {
            1: {"id": 1, "v": 11, "text": "uno"},
            2: {"id": 2, "v": 20, "text": "zwei"},
            3: {"id": 3, "v": 30, "text": None},
        }
        assert {key: seen(table, key) for key in expected} == expected
        reader = catalog.table("a.b", read_only=True)
        assert {key: reader.get(key) for key in expected} == expected
        table.flush()
        assert {key: seen(table, key) for key in expected} == expected


# Beside a change of the schema


def test_a_partial_write_under_an_older_schema_keeps_columns_it_does_not_know(
    table: neve.Table,
) -> None:
    table.flush()
    table.upsert([{"id": 1, "v": 10}, {"id": 3, "v": 30}], columns=["v"])
    with table.evolve() as change:
        change.add_column("more", pa.string())
        change.rename_column("v", "number")
    OtherCommitter(table).upsert([{"id": 1, "number": 5, "text": "uno", "more": "y"}])
    table.refresh()

    table.flush()

    assert seen(table, 1) == {"id": 1, "number": 10, "text": "uno", "more": "y"}
    assert seen(table, 3) == {"id": 3, "number": 30, "text": None, "more": None}
    table.upsert([{"id": 1, "more": "z"}], columns=["more"])
    assert seen(table, 1) == {"id": 1, "number": 10, "text": "uno", "more": "z"}


def test_a_schema_that_changes_under_a_partial_write_is_the_one_it_is_written_with(
    table: neve.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = LiveWriter.write
    is_changed = False

    def changed_before(
        writer: LiveWriter, decide: Callable[[], PreparedWrite | None]
    ) -> int | None:
        nonlocal is_changed
        if not is_changed:
            is_changed = True
            with table.evolve() as change:
                change.add_column("more", pa.string(), default="m")
                change.move_column("text", first=True)
        return write(writer, decide)

    monkeypatch.setattr(LiveWriter, "write", changed_before)

    table.upsert([{"id": 1, "v": 10}, {"id": 3, "v": 30}], columns=["v"])

    assert seen(table, 1) == {"text": "one", "id": 1, "v": 10, "more": "m"}
    assert seen(table, 3) == {"text": None, "id": 3, "v": 30, "more": "m"}
    table.flush()
    assert seen(table, 1) == {"text": "one", "id": 1, "v": 10, "more": "m"}


def test_a_default_is_that_of_the_day_of_the_write() -> None:
    with a_catalog() as catalog:
        table = a_table(catalog)
        with table.evolve() as change:
            change.add_column("kind", pa.string(), default="old")
        table.upsert([{"id": 1, "v": 1}], columns=["v"])
        with table.evolve() as change:
            change.set_default("kind", "new")
        table.upsert([{"id": 2, "v": 2}], columns=["v"])
        table.close()

        table = catalog.table("a.b", options=neve.TableOptions(background=False))
        expected = {
            1: {"id": 1, "v": 1, "text": None, "kind": "old"},
            2: {"id": 2, "v": 2, "text": None, "kind": "new"},
        }
        assert {key: seen(table, key) for key in expected} == expected
        table.flush()
        assert {key: seen(table, key) for key in expected} == expected


def test_rows_of_every_kind_of_column_are_merged() -> None:
    columns: dict[str, pa.DataType] = {
        "id": pa.string(),
        "a": pa.list_(pa.int64()),
        "b": pa.struct([("x", pa.int64()), ("y", pa.string())]),
        "c": pa.map_(pa.string(), pa.int64()),
        "d": pa.decimal128(20, 3),
        "e": pa.bool_(),
        "f": pa.binary(),
        "g": pa.timestamp("us"),
        "h": pa.int64(),
    }
    row: dict[str, object] = {
        "id": "k",
        "a": [1, None],
        "b": {"x": 1, "y": None},
        "c": {"p": 1},
        "d": 7,
        "e": False,
        "f": b"\0",
        "g": datetime(2024, 1, 1),  # noqa: DTZ001 - a column without a zone
        "h": 1,
    }
    with a_catalog() as catalog:
        table = a_table(catalog, columns=columns)
        table.put(row)
        stored = table.get("k")
        assert stored is not None
        for is_flushed in (False, True):
            if is_flushed:
                table.flush()
            for name in ("h", "b", "a"):
                table.upsert([{"id": "k", name: None}, {"id": "new", name: None}], columns=[name])
                stored = {**stored, name: None}
                assert table.get("k") == stored
        table.flush()
        assert table.get("k") == stored
