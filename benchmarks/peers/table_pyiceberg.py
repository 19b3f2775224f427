"""PyIceberg's part in the table benchmarks: one file sorted by id, in its SQLite catalog.

The table after updates is not made by its upsert but written again, sorted, in one commit: that
takes less time, and leaves a scan of one sorted file.
"""

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.peers.bucket_place import BucketPlace
from benchmarks.peers.table_calls import serve_store
from benchmarks.peers.table_rows import SCHEMA
from benchmarks.peers.table_store import TableStore

_NAME: Final = "bench.rows"


class IcebergStore(TableStore):
    """Reads plan again each time, as the library does."""

    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        assert synced, "PyIceberg has no other way"
        catalog = SqlCatalog(
            "bench", uri=f"sqlite:///{directory / 'catalog.db'}", **self._placed(directory)
        )
        catalog.create_namespace_if_not_exists("bench")
        self._table = catalog.create_table_if_not_exists(_NAME, schema=SCHEMA)

    def _placed(self, directory: Path) -> dict[str, str]:
        return {"warehouse": (directory / "lake").as_uri()}

    def close(self) -> None:
        """Nothing is held."""

    def commit(self, rows: pa.Table) -> None:
        self._table.append(rows)

    def load(self, rows: pa.Table, batch_rows: int) -> None:
        del batch_rows
        self._table.append(rows.sort_by("id"))

    def update(self, rows: pa.Table, batch_rows: int) -> None:
        del batch_rows
        old = self.scan()
        kept = old.filter(pc.invert(pc.is_in(old.column("id"), rows.column("id"))))
        merged = pa.concat_tables([kept.cast(SCHEMA), rows.cast(SCHEMA)]).sort_by("id")
        self._table.overwrite(merged)

    def get(self, key: int) -> object:
        found = self._table.scan(row_filter=f"id = {key}").to_arrow().to_pylist()[0]
        return found["name"], found["score"], found["visits"], found["payload"]

    def get_many(self, keys: Sequence[int]) -> pa.Table:
        return self._table.scan(row_filter=f"id in ({','.join(map(str, keys))})").to_arrow()

    def scan(self) -> pa.Table:
        return self._table.scan().to_arrow()

    def scan_range(self, first: int, end: int) -> pa.Table:
        return self._table.scan(row_filter=f"id >= {first} and id < {end}").to_arrow()

    def sum_score(self) -> float:
        column = self._table.scan(selected_fields=("score",)).to_arrow().column("score")
        return cast("float", pc.sum(column).as_py())


class BucketIcebergStore(IcebergStore):
    """The table is in a bucket, its catalog on the local disk."""

    def _placed(self, directory: Path) -> dict[str, str]:
        self._place = BucketPlace.of(directory)
        return {
            "warehouse": self._place.location,
            "s3.endpoint": self._place.endpoint,
            "s3.access-key-id": self._place.access_key_id,
            "s3.secret-access-key": self._place.secret_access_key,
            "s3.region": "eu-central-1",
            "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        }

    def requests(self) -> Mapping[str, int] | None:
        return self._place.requests()


if __name__ == "__main__":
    serve_store(
        f"PyIceberg {metadata.version('pyiceberg')}",
        {"plain": IcebergStore, "bucket": BucketIcebergStore},
    )
