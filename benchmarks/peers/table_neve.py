"""neve's part in the table benchmarks: a table of a catalog, through the calls that users have."""

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import neve
from benchmarks.peers.bucket_place import BucketPlace
from benchmarks.peers.table_calls import serve_store
from benchmarks.peers.table_rows import ORDER, ORDERED_SCHEMA, SCHEMA, Keys, Row, with_order
from benchmarks.peers.table_store import TableStore
from neve.catalog.lake import Lake

_NAME: Final = "bench.rows"
_NO_CACHE: Final = 1
_NO_KEY: Final = -1


class NeveStore(TableStore):
    """Default options but for the sync policy; safe for many threads."""

    schema = SCHEMA
    order_by: Sequence[str] = ()
    """Ordering columns of the table."""
    cache_bytes: int | None = None

    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        self._directory = directory
        chosen: dict[str, object] = {"sync": "group" if synced else "none"}
        if self.cache_bytes is not None:
            chosen["cache_bytes"] = self.cache_bytes
        options = neve.TableOptions(**chosen)  # type: ignore[arg-type]
        self._lake = self._opened(directory)
        if self._lake.table_exists(_NAME):
            self.table = self._lake.table(_NAME, options=options)
        else:
            ordering = {"order_by": list(self.order_by)} if self.order_by else {}
            self.table = self._lake.create_table(
                _NAME,
                schema=self.schema,
                primary_key=["id"],
                options=options,
                **ordering,  # type: ignore[arg-type]  # only where the table has such columns
            )
        # A table is opened when it is first used.
        self.table.get(_NO_KEY)
        self.put = self.table.put  # type: ignore[assignment,method-assign]
        self.get = self.table.get  # type: ignore[method-assign]

    def _opened(self, directory: Path) -> Lake:
        return neve.open(directory)

    def close(self) -> None:
        self.table.close()
        self._lake.close()

    def as_rows(self, rows: pa.Table) -> Sequence[object]:
        return rows.to_pylist()

    def as_tuple(self, key: int, found: object) -> Row:
        row = cast("Mapping[str, object]", found)
        assert row["id"] == key
        return cast("Row", tuple(row[name] for name in SCHEMA.names))

    def load(self, rows: pa.Table, batch_rows: int) -> None:
        self.update(rows, batch_rows)
        self.table.compact()

    def upsert(self, rows: pa.Table) -> None:
        self.table.upsert(rows)

    def settle(self) -> None:
        self.table.flush()

    def delete(self, keys: Keys) -> None:
        self.table.delete_many(keys)

    def get_many(self, keys: Sequence[int]) -> pa.Table:
        return self.table.get_many(keys)

    def scan(self) -> pa.Table:
        return self.table.scan().to_arrow()

    def scan_range(self, first: int, end: int) -> pa.Table:
        return self.table.scan(key_range=(first, end)).to_arrow()

    def sum_score(self) -> float:
        total = pc.sum(self.table.scan(columns=["score"]).to_arrow().column("score")).as_py()
        return cast("float", total)

    def tidy(self) -> None:
        self.table.compact(full=True)
        self.table.expire(keep_last=1)
        self.table.collect_garbage(dry_run=False)

    def read_bare(self) -> pa.Table:
        names = {path.name: path for path in self._directory.rglob("*.parquet")}
        live = self.table.files().column("file_path").to_pylist()
        places = [names[str(path).rpartition("/")[2]] for path in live]
        return pa.concat_tables(pq.read_table(place, columns=SCHEMA.names) for place in places)


class OldNeveStore(NeveStore):
    """The same after `compact(full=True)`: old files, all rows in compressed Parquet only."""

    def load(self, rows: pa.Table, batch_rows: int) -> None:
        super().load(rows, batch_rows)
        self.table.compact(full=True)


class UncachedNeveStore(OldNeveStore):
    """Old files, and no decoded rows are kept in memory: every scan decodes its Parquet again."""

    cache_bytes = _NO_CACHE


class ChangesNeveStore(NeveStore):
    """A table that keeps the order of its changes; the order counts within a call of `apply`."""

    schema = ORDERED_SCHEMA

    def load(self, rows: pa.Table, batch_rows: int) -> None:
        super().load(with_order(rows), batch_rows)

    def apply(self, changes: pa.Table) -> None:
        self.table.apply(changes, order_by=ORDER)


class OrderedNeveStore(ChangesNeveStore):
    """The same with an ordering column: the order counts across calls."""

    order_by = (ORDER,)


class BucketNeveStore(NeveStore):
    """The table is in a bucket, and copies of its files are in the directory."""

    def _opened(self, directory: Path) -> Lake:
        self._place = BucketPlace.of(directory)
        options = {
            "endpoint": self._place.endpoint,
            "allow_http": "true",
            "region": "eu-central-1",
            "access_key_id": self._place.access_key_id,
            "secret_access_key": self._place.secret_access_key,
            "listing": "unordered",
            "cache_directory": str(directory / "copies"),
        }
        return neve.open(self._place.location, storage_options=options)

    def requests(self) -> Mapping[str, int] | None:
        return self._place.requests()


class UnflushedNeveStore(NeveStore):
    """The same, with updates that stay in memory."""

    def settle(self) -> None:
        """Leave it where it is."""

    def load(self, rows: pa.Table, batch_rows: int) -> None:
        super().load(rows, batch_rows)
        self.table.flush()


if __name__ == "__main__":
    serve_store(
        f"neve {metadata.version('neve')}",
        {
            "plain": NeveStore,
            "old": OldNeveStore,
            "uncached": UncachedNeveStore,
            "unflushed": UnflushedNeveStore,
            "bucket": BucketNeveStore,
            "changes": ChangesNeveStore,
            "ordered": OrderedNeveStore,
        },
    )
