"""DuckLake's part in the table benchmarks: Parquet files, and a DuckDB file as the catalog."""

import atexit
import functools
import shutil
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import cast

import duckdb
import pyarrow as pa
from duckdb_extensions import import_extension  # type: ignore[import-untyped]

from benchmarks.peers.table_calls import serve_store
from benchmarks.peers.table_rows import Keys
from benchmarks.peers.table_store import TableStore


@functools.cache
def extensions() -> str:
    """Return the directory that holds the extension, which came as a package."""
    folder = tempfile.mkdtemp(prefix="neve-ducklake-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with _connect(folder) as connection:
        import_extension("ducklake", con=connection)
    return folder


def _connect(folder: str) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(
        config={"extension_directory": folder, "autoinstall_known_extensions": "false"}
    )


class DuckLakeStore(TableStore):
    """It knows no keys: an upsert is a merge, a get is a query."""

    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        assert synced, "DuckLake has no other way"
        self._connection = _connect(extensions())
        self._connection.execute("load ducklake")
        # The files of a copied table are looked for in the copy.
        self._connection.execute(
            f"attach 'ducklake:{directory / 'catalog.ducklake'}' as lake"
            f" (data_path '{directory / 'data'}', override_data_path true)"
        )
        self._connection.execute(
            "create table if not exists lake.t"
            " (id bigint, name varchar, score double, visits integer, payload blob)"
        )

    def close(self) -> None:
        self._connection.close()

    def load(self, rows: pa.Table, batch_rows: int) -> None:
        del batch_rows
        self._connection.register("source", rows)
        self._connection.execute("insert into lake.t select * from source order by id")

    def update(self, rows: pa.Table, batch_rows: int) -> None:
        del batch_rows
        self.upsert(rows)

    def upsert(self, rows: pa.Table) -> None:
        self._connection.register("source", rows)
        self._connection.execute(
            "merge into lake.t using source on (t.id = source.id)"
            " when matched then update when not matched then insert"
        )

    def delete(self, keys: Keys) -> None:
        self._connection.register("gone", pa.table({"key": keys}))
        self._connection.execute("delete from lake.t where id in (select key from gone)")

    def get(self, key: int) -> object:
        return self._connection.execute(
            "select name, score, visits, payload from lake.t where id = ?", (key,)
        ).fetchone()

    def get_many(self, keys: Sequence[int]) -> pa.Table:
        return self._rows(f"select * from lake.t where id in ({','.join(map(str, keys))})")

    def scan(self) -> pa.Table:
        return self._rows("select * from lake.t")

    def scan_range(self, first: int, end: int) -> pa.Table:
        return self._rows(f"select * from lake.t where id >= {first} and id < {end}")

    def sum_score(self) -> float:
        found = self._connection.execute("select sum(score) from lake.t").fetchone()
        assert found is not None
        return cast("float", found[0])

    def tidy(self) -> None:
        self._connection.execute("call ducklake_merge_adjacent_files('lake')")
        self._connection.execute("call ducklake_expire_snapshots('lake', older_than => now())")
        self._connection.execute("call ducklake_cleanup_old_files('lake', cleanup_all => true)")

    def _rows(self, query: str) -> pa.Table:
        return self._connection.sql(query).to_arrow_table()


if __name__ == "__main__":
    serve_store(
        f"DuckLake in DuckDB {metadata.version('duckdb')}",
        {"plain": DuckLakeStore},
    )
