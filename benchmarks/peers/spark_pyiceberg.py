"""PyIceberg's part in the Spark benchmarks, with the two ways that it has to merge.

upsert      its own: compares each matched row in Python, so time grows with the changes
overwrite   what its users write instead: read all rows, merge in Arrow, write all of them again
"""

from importlib import metadata
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.peers.spark_merges import MergedTable, Ways, serve_merges

_NAME: Final = "bench.rows"


class _IcebergRows(MergedTable):
    """An Iceberg table in a SQLite catalog."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        catalog = SqlCatalog(
            "bench",
            uri=f"sqlite:///{directory / 'catalog.db'}",
            warehouse=(directory / "lake").as_uri(),
        )
        catalog.create_namespace_if_not_exists("bench")
        self._table = catalog.create_table_if_not_exists(_NAME, schema=schema)

    def append(self, rows: pa.Table) -> None:
        self._table.append(rows)

    def answer(self) -> tuple[int, int, int]:
        found = self._table.scan(selected_fields=("id", "stamp")).to_arrow()
        return found.num_rows, pc.sum(found["stamp"]).as_py(), pc.sum(found["id"]).as_py()


class UpsertedRows(_IcebergRows):
    """Merges with the library's upsert."""

    def merge(self, changes: pa.Table) -> None:
        self._table.upsert(changes, join_cols=["id"])


class OverwrittenRows(_IcebergRows):
    """Merges in Arrow."""

    def merge(self, changes: pa.Table) -> None:
        old = self._table.scan().to_arrow()
        kept = old.filter(pc.invert(pc.is_in(old["id"], changes["id"])))
        self._table.overwrite(pa.concat_tables([kept.cast(changes.schema), changes]))


WAYS: Final[Ways] = {"upsert": UpsertedRows, "overwrite": OverwrittenRows}

if __name__ == "__main__":
    serve_merges(f"PyIceberg {metadata.version('pyiceberg')}", WAYS)
