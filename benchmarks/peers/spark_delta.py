"""delta-rs's part in the Spark benchmarks: its merge rewrites every file that has a changed row."""

from importlib import metadata
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, WriterProperties, write_deltalake

from benchmarks.peers.spark_merges import MergedTable, Ways, serve_merges

_WRITTEN: Final = WriterProperties(compression="ZSTD", compression_level=1)


class DeltaRows(MergedTable):
    """A Delta table."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        place = str(directory / "delta")
        if DeltaTable.is_deltatable(place):
            self._table = DeltaTable(place)
        else:
            self._table = DeltaTable.create(place, schema=schema)

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self._table, rows, mode="append", writer_properties=_WRITTEN)

    def merge(self, changes: pa.Table) -> None:
        merging = self._table.merge(
            changes,
            "t.id = s.id",
            source_alias="s",
            target_alias="t",
            writer_properties=_WRITTEN,
        )
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    def answer(self) -> tuple[int, int, int]:
        query = QueryBuilder().register("t", self._table)
        found = query.execute("select count(*), sum(stamp), sum(id) from t").read_all()
        rows, stamps, ids = (int(column[0].as_py()) for column in pa.table(found).columns)
        return rows, stamps, ids


WAYS: Final[Ways] = {"merge": DeltaRows}

if __name__ == "__main__":
    serve_merges(f"delta-rs {metadata.version('deltalake')}", WAYS)
