"""pypaimon's part in the table benchmarks: one bucket, written and read by its Rust library.

Its Python reader and writer merge row by row and are many times slower, so this refuses to go on
with them. A row says in a column of its own whether it is there or deleted. Commits are files that
reads merge by key, since nothing in Python compacts them.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon import CatalogFactory, Schema  # type: ignore[import-not-found]
from pypaimon.read.native_plan import native_reader_available  # type: ignore[import-not-found]
from pypaimon.write.native_write import NativeTableWrite  # type: ignore[import-not-found]

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

_NAME: Final = "bench.rows"
_KIND: Final = "kind"
_PRESENT: Final = "+I"
_DELETED: Final = "-D"
_OPTIONS: Final = {
    "bucket": "1",
    "rowkind.field": _KIND,
    "write.native.enabled": "true",
    "commit.native.enabled": "true",
    "read.native.enabled": "true",
    "scan.native-plan.enabled": "true",
}
_VALUES: Final = SCHEMA.names[1:]

Kinds: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"
MakePredicate = Callable[[Any], object]
"""Makes a predicate with the library's builder of them."""


class PaimonStore(TableStore):
    """Reads plan again each time, as the library does."""

    schema = SCHEMA
    options: Mapping[str, str] = _OPTIONS

    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        assert synced, "pypaimon has no other way"
        assert native_reader_available(), "pypaimon-rust is missing or does not fit"
        catalog = CatalogFactory.create({"warehouse": str(directory / "paimon")})
        catalog.create_database("bench", ignore_if_exists=True)
        schema = Schema.from_pyarrow_schema(
            self.schema.append(pa.field(_KIND, pa.string())),
            primary_keys=["id"],
            options=dict(self.options),
        )
        catalog.create_table(_NAME, schema, ignore_if_exists=True)
        self._table = catalog.get_table(_NAME)

    def close(self) -> None:
        """Nothing is held."""

    def load(self, rows: pa.Table, batch_rows: int) -> None:
        del batch_rows
        self.upsert(rows.sort_by("id"))

    def upsert(self, rows: pa.Table) -> None:
        self._write(rows, pa.repeat(pa.scalar(_PRESENT), rows.num_rows))

    def delete(self, keys: Keys) -> None:
        missing = [pa.nulls(len(keys), SCHEMA.field(name).type) for name in _VALUES]
        kinds = pa.repeat(pa.scalar(_DELETED), len(keys))
        self._write(pa.table([keys, *missing], schema=SCHEMA), kinds)

    def get(self, key: int) -> object:
        found = self._read(lambda make: make.equal("id", key), _VALUES)
        return next(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def get_many(self, keys: Sequence[int]) -> pa.Table:
        return self._read(lambda make: make.is_in("id", list(keys)))

    def scan(self) -> pa.Table:
        return self._read()

    def scan_range(self, first: int, end: int) -> pa.Table:
        return self._read(
            lambda make: make.and_predicates(
                [make.greater_or_equal("id", first), make.less_than("id", end)]
            )
        )

    def sum_score(self) -> float:
        return cast("float", pc.sum(self._read(columns=["score"]).column("score")).as_py())

    def _write(self, rows: pa.Table, kinds: Kinds) -> None:
        builder = self._table.new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        assert isinstance(writer, NativeTableWrite), "pypaimon would write in Python"
        writer.write_arrow(rows.append_column(_KIND, kinds))
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()

    def _read(
        self, predicate: MakePredicate | None = None, columns: Sequence[str] = SCHEMA.names
    ) -> pa.Table:
        builder = self._table.new_read_builder()
        if predicate is not None:
            builder = builder.with_filter(predicate(builder.new_predicate_builder()))
        builder = builder.with_projection(list(columns))
        return cast("pa.Table", builder.new_read().to_arrow(builder.new_scan().plan().splits()))


class ChangesPaimonStore(PaimonStore):
    """With a sequence field: the row with the greatest one counts, in whatever commit it came."""

    schema = ORDERED_SCHEMA
    options: Mapping[str, str] = {**_OPTIONS, "sequence.field": ORDER}

    def load(self, rows: pa.Table, batch_rows: int) -> None:
        super().load(with_order(rows), batch_rows)

    def apply(self, changes: pa.Table) -> None:
        is_delete = pc.equal(changes["op"], pa.scalar(DELETE))
        kinds = pc.if_else(is_delete, pa.scalar(_DELETED), pa.scalar(_PRESENT))
        self._write(changes.select(ORDERED_SCHEMA.names), kinds)


if __name__ == "__main__":
    serve_store(
        f"pypaimon {metadata.version('pypaimon')}",
        {"plain": PaimonStore, "changes": ChangesPaimonStore},
    )
