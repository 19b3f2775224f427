"""delta-rs's part in the table benchmarks: files sorted by id, read by its own queries."""

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import cast

import pyarrow as pa
from deltalake import (
    DeltaTable,
    QueryBuilder,
    write_deltalake,
)

from benchmarks.peers.bucket_place import BucketPlace
from benchmarks.peers.table_calls import serve_store
from benchmarks.peers.table_rows import (
    DELETE,
    ORDER,
    ORDERED_SCHEMA,
    SCHEMA,
    Keys,
    with_order,
)
from benchmarks.peers.table_store import TableStore


class DeltaStore(TableStore):
    """Its merge rewrites every file that has a key of the source."""

    schema = SCHEMA

    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        assert synced, "delta-rs has no other way"
        place, options = self._placed(directory)
        if DeltaTable.is_deltatable(place, storage_options=options):
            self._table = DeltaTable(place, storage_options=options)
        else:
            self._table = DeltaTable.create(place, schema=self.schema, storage_options=options)
        self._query: QueryBuilder | None = None

    def _placed(self, directory: Path) -> tuple[str, dict[str, str] | None]:
        return str(directory / "delta"), None

    def close(self) -> None:
        """Nothing is held."""

    def commit(self, rows: pa.Table) -> None:
        write_deltalake(self._table, rows, mode="append")
        self._changed()

    def load(self, rows: pa.Table, batch_rows: int) -> None:
        del batch_rows
        write_deltalake(self._table, rows.sort_by("id"), mode="append")
        self._changed()

    def update(self, rows: pa.Table, batch_rows: int) -> None:
        del batch_rows
        self.upsert(rows)

    def upsert(self, rows: pa.Table) -> None:
        self._merge(rows).when_matched_update_all().when_not_matched_insert_all().execute()
        self._changed()

    def delete(self, keys: Keys) -> None:
        self._merge(pa.table({"id": keys})).when_matched_delete().execute()
        self._changed()

    def get(self, key: int) -> object:
        found = self._rows(f"select name, score, visits, payload from t where id = {key}")
        return next(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def get_many(self, keys: Sequence[int]) -> pa.Table:
        return self._rows(f"select * from t where id in ({','.join(map(str, keys))})")

    def scan(self) -> pa.Table:
        return self._rows("select * from t")

    def scan_range(self, first: int, end: int) -> pa.Table:
        return self._rows(f"select * from t where id >= {first} and id < {end}")

    def sum_score(self) -> float:
        return cast("float", self._rows("select sum(score) from t").column(0)[0].as_py())

    def _merge(self, source: pa.Table):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return self._table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")

    def _changed(self) -> None:
        self._table.update_incremental()
        self._query = None

    def _rows(self, query: str) -> pa.Table:
        if self._query is None:
            self._query = QueryBuilder().register("t", self._table)
        return pa.table(self._query.execute(query).read_all())


class BucketDeltaStore(DeltaStore):
    """The table is in a bucket."""

    def _placed(self, directory: Path) -> tuple[str, dict[str, str] | None]:
        self._place = BucketPlace.of(directory)
        return self._place.location, self._place.environment()

    def requests(self) -> Mapping[str, int] | None:
        return self._place.requests()


class ChangesDeltaStore(DeltaStore):
    """Keeps the order of changes, and compares it; it forgets that of deleted rows."""

    schema = ORDERED_SCHEMA

    def load(self, rows: pa.Table, batch_rows: int) -> None:
        super().load(with_order(rows), batch_rows)

    def apply(self, changes: pa.Table) -> None:
        # A merge takes one row of each key.
        ordered = changes.sort_by(ORDER)
        places = pa.table({"id": ordered["id"], "at": pa.array(range(ordered.num_rows))})
        last = places.group_by("id").aggregate([("at", "max")])["at_max"]
        values = {name: f"s.{name}" for name in ORDERED_SCHEMA.names}
        is_newer = f"s.{ORDER} > t.{ORDER}"
        merge = self._merge(ordered.take(last))
        merge = merge.when_matched_delete(f"s.op = '{DELETE}' and {is_newer}")
        merge = merge.when_matched_update(values, predicate=f"s.op != '{DELETE}' and {is_newer}")
        merge.when_not_matched_insert(values, predicate=f"s.op != '{DELETE}'").execute()
        self._changed()


if __name__ == "__main__":
    serve_store(
        f"delta-rs {metadata.version('deltalake')}",
        {"plain": DeltaStore, "changes": ChangesDeltaStore, "bucket": BucketDeltaStore},
    )
