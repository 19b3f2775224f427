"""Changing the definition of a table that is being written and read, on a real disk."""

from pathlib import Path
from threading import Event, Thread
from typing import Final

import pyarrow as pa
import pytest

import neve
from neve.catalog.table import Table
from neve.engine.table_options import TableOptions
from neve.errors import Closed, InvalidArgument, NeveError, NotFound, SchemaMismatch

NAME: Final = "shop.orders"
_COLUMNS: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "count": pa.int32(),
    "old0": pa.string(),
}
ROUNDS: Final = 12
WRITERS: Final = 3
ROW_BYTES: Final = 64 << 10


class Writer(Thread):
    """Writes rows of the columns that stay, one by one and as batches, until told to stop."""

    def __init__(self, table: Table, first: int, stop: Event) -> None:
        super().__init__(daemon=True)
        self.written: list[int] = []
        self.failure: NeveError | None = None
        self._table = table
        self._first = first
        self._is_over = stop

    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._write(self._first + len(self.written) * WRITERS)
        except NeveError as error:
            self.failure = error

    def _write(self, key: int) -> None:
        if key % 2:
            self._table.put({"id": key, "count": key % 100})
        else:
            self._table.upsert([{"id": key, "count": key % 100}])
        self.written.append(key)


def test_writers_and_readers_go_on_while_the_schema_changes(tmp_path: Path) -> None:
    options = TableOptions(memtable_bytes=ROW_BYTES, sync="none")
    stop = Event()
    with neve.open(str(tmp_path)) as lake:
        table = lake.create_table(NAME, pa.schema(_COLUMNS), ["id"], options=options)
        writers = [Writer(table, first, stop) for first in range(WRITERS)]
        for writer in writers:
            writer.start()
        for number in range(ROUNDS):
            with table.evolve() as e:
                e.add_column(f"new{number}", "int", default=number, nullable=False)
                e.rename_column(f"old{number}", f"old{number + 1}")
                if number == ROUNDS // 2:
                    e.widen_column("count", "long")
                    e.set_partition_by([f"new{number}", "bucket(2, id)"])
            seen = table.scan(f"new{number} = {number}", columns=["id", f"new{number}"]).to_arrow()
            assert set(seen.column(1).to_pylist()) <= {number}
        stop.set()
        for writer in writers:
            writer.join()

        assert [writer.failure for writer in writers] == [None] * WRITERS
        written = {key for writer in writers for key in writer.written}
        check_written(table, written)
        table.compact(full=True)
        check_written(table, written)
        table.verify()
    with neve.open(str(tmp_path)) as lake, lake.table(NAME) as reopened:
        check_written(reopened, written)


def check_written(table: Table, written: set[int]) -> None:
    rows = table.scan().to_arrow()
    assert rows.num_rows == len(written)
    found = {row["id"]: row for row in rows.to_pylist()}
    expected: dict[str, object] = {f"new{number}": number for number in range(ROUNDS)}
    expected[f"old{ROUNDS}"] = None
    assert found == {key: {"id": key, "count": key % 100} | expected for key in written}


def test_a_changed_table_takes_rows_of_its_new_schema_at_once(tmp_path: Path) -> None:
    with neve.open(str(tmp_path)) as lake:
        table = lake.create_table(NAME, pa.schema(_COLUMNS), ["id"])
        other = lake.table(NAME)
        table.put({"id": 1, "count": 1, "old0": "a"})

        with table.evolve() as e:
            e.add_column("note", "string", default="-")
            e.drop_column("old0")
        with pytest.raises(SchemaMismatch, match="'old0' is not in the table"):
            table.put({"id": 2, "count": 1, "old0": "a"})
        with pytest.raises(NotFound, match="'old0'"):
            table.scan("old0 = 'a'")
        # The other handle shares the rows; what it shows of the definition is refreshed.
        other.put({"id": 2, "count": 2})
        with other.evolve() as e:
            e.set_default("note", "+")
        table.put({"id": 3, "count": 3})

        notes = [row["note"] for row in table.scan(key_range=(None, None)).to_arrow().to_pylist()]
        assert notes == ["-", "-", "+"]
        assert other.schema == table.refresh().schema


def test_a_handle_that_never_touched_a_row_changes_the_table_for_those_that_do(
    tmp_path: Path,
) -> None:
    with neve.open(str(tmp_path)) as lake:
        table = lake.create_table(NAME, pa.schema(_COLUMNS), ["id"])
        other = lake.table(NAME)
        other.put({"id": 1})

        with table.evolve() as e:
            e.add_column("note", "string", default="-")

        other.put({"id": 2, "note": "+"})
        notes = other.scan("note is not null", columns=["id", "note"]).to_arrow().to_pylist()
        assert sorted(row["note"] for row in notes) == ["+", "-"]


def test_a_handle_that_only_reads_or_was_closed_changes_nothing(tmp_path: Path) -> None:
    with neve.open(str(tmp_path)) as lake, neve.open(str(tmp_path)) as others:
        table = lake.create_table(NAME, pa.schema(_COLUMNS), ["id"])
        table.put({"id": 1})
        reader = others.table(NAME, read_only=True)

        with pytest.raises(InvalidArgument, match="reading only"):
            reader.evolve()
        begun = table.evolve()
        begun.add_column("late", "int")
        table.close()
        with pytest.raises(Closed, match="was closed"), begun:
            pass
        with pytest.raises(Closed, match="was closed"):
            table.evolve()
