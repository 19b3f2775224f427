"""DuckDB's part in the table benchmarks: its own file, with a primary key."""

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import cast

import duckdb
import pyarrow as pa

from benchmarks.peers.table_calls import serve_store
from benchmarks.peers.table_rows import Keys
from benchmarks.peers.table_store import TableStore


class DuckStore(TableStore):
    """One connection."""

    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        assert synced, "DuckDB has no other way"
        self._connection = duckdb.connect(str(directory / "rows.duckdb"))
        self._connection.execute(
            "create table if not exists t"
            " (id bigint primary key, name varchar, score double, visits integer, payload blob)"
        )

    def close(self) -> None:
        self._connection.close()

    def put(self, row: object) -> None:
        self._connection.execute("insert or replace into t values (?, ?, ?, ?, ?)", row)

    def get(self, key: int) -> object:
        return self._connection.execute(
            "select name, score, visits, payload from t where id = ?", (key,)
        ).fetchone()

    def upsert(self, rows: pa.Table) -> None:
        self._connection.register("source", rows)
        self._connection.execute("insert or replace into t select * from source")

    def settle(self) -> None:
        self._connection.execute("checkpoint")

    def delete(self, keys: Keys) -> None:
        self._connection.register("gone", pa.table({"key": keys}))
        self._connection.execute("delete from t using gone where id = key")

    def get_many(self, keys: Sequence[int]) -> pa.Table:
        return self._rows(f"select * from t where id in ({','.join(map(str, keys))})")

    def scan(self) -> pa.Table:
        return self._rows("select * from t")

    def scan_range(self, first: int, end: int) -> pa.Table:
        return self._rows(f"select * from t where id >= {first} and id < {end}")

    def sum_score(self) -> float:
        found = self._connection.execute("select sum(score) from t").fetchone()
        assert found is not None
        return cast("float", found[0])

    def _rows(self, query: str) -> pa.Table:
        return self._connection.sql(query).to_arrow_table()


if __name__ == "__main__":
    serve_store(f"DuckDB {metadata.version('duckdb')}", {"plain": DuckStore})
