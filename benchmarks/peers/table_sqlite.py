"""SQLite's part in the table benchmarks: write-ahead log, `synchronous=full`, mapped."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

import pyarrow as pa

from benchmarks.peers.table_calls import serve_store
from benchmarks.peers.table_rows import Keys, Row, row_tuples, rows_of_tuples
from benchmarks.peers.table_store import TableStore

_PRAGMAS: Final = (
    "journal_mode=wal",
    "cache_size=-524288",
    "mmap_size=2147483648",
)
_UPSERT: Final = "insert or replace into t values (?, ?, ?, ?, ?)"


class SqliteStore(TableStore):
    """One connection, used by one thread at a time."""

    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        self._connection = sqlite3.connect(
            directory / "rows.sqlite", isolation_level=None, check_same_thread=False
        )
        for pragma in (*_PRAGMAS, f"synchronous={'full' if synced else 'off'}"):
            self._connection.execute(f"pragma {pragma}")
        self._connection.execute(
            "create table if not exists t"
            " (id integer primary key, name text, score real, visits integer, payload blob)"
        )

    def close(self) -> None:
        self._connection.close()

    def put(self, row: object) -> None:
        self._connection.execute(_UPSERT, cast("Row", row))

    def get(self, key: int) -> object:
        return self._connection.execute(
            "select name, score, visits, payload from t where id = ?", (key,)
        ).fetchone()

    def upsert(self, rows: pa.Table) -> None:
        self._connection.execute("begin")
        self._connection.executemany(_UPSERT, row_tuples(rows))
        self._connection.execute("commit")

    def settle(self) -> None:
        self._connection.execute("pragma wal_checkpoint(truncate)")

    def tidy(self) -> None:
        self._connection.execute("vacuum")
        self.settle()

    def delete(self, keys: Keys) -> None:
        self._connection.execute("begin")
        self._connection.executemany(
            "delete from t where id = ?", ((key,) for key in keys.to_numpy().tolist())
        )
        self._connection.execute("commit")

    def get_many(self, keys: Sequence[int]) -> pa.Table:
        return rows_of_tuples(self.get_tuples(keys))

    def get_tuples(self, keys: Sequence[int]) -> Sequence[Row]:
        asked = ",".join(map(str, keys))
        found = self._connection.execute(f"select * from t where id in ({asked})")
        return found.fetchall()

    def scan(self) -> pa.Table:
        return rows_of_tuples(self._connection.execute("select * from t").fetchall())

    def scan_range(self, first: int, end: int) -> pa.Table:
        return rows_of_tuples(
            self._connection.execute(
                "select * from t where id >= ? and id < ?", (first, end)
            ).fetchall()
        )

    def sum_score(self) -> float:
        return cast("float", self._connection.execute("select sum(score) from t").fetchone()[0])


if __name__ == "__main__":
    serve_store(f"SQLite {sqlite3.sqlite_version}", {"plain": SqliteStore})
