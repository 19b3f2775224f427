"""Remembered deletes: the keys that were deleted, and how new each delete was.

    deletes/<id>.remembered.parquet

    key     binary    the encoded key, ascending, once each
    order   binary    the order columns of the delete, encoded as keys are

A table with an order column ignores a change that is older than the delete of its key, so it has to
know the deletes of the last days. These files belong to Versions and are never published; a scan
reads none of them. A file is read whole when the first write needs it.
"""

from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neve.errors import Corruption
from neve.keys.arrays import as_large, key_at, key_objects, key_place, last_places
from neve.keys.columns import KeyArray
from neve.model.arrow_buffers import Positions
from neve.model.data_file import DataFile, FileFormat
from neve.sstable.parquet_groups import read_parquet
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths

_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.large_binary(), nullable=False),
        pa.field("order", pa.large_binary(), nullable=False),
    ]
)
_SEARCHED_SHARE: Final = 512
"""Up to one key in this many deletes is searched for: hashing all deletes would take longer."""
_DAMAGED: Final = "Restore the file from a copy: without it, older changes may undo a delete"


@dataclass(frozen=True, eq=False)
class RememberedDeletes:
    """Deleted keys, ascending, each with the encoded order of its newest delete."""

    keys: KeyArray
    orders: pa.LargeBinaryArray

    @classmethod
    def newest(cls, keys: KeyArray, orders: pa.LargeBinaryArray) -> "RememberedDeletes":
        """Keep the newest delete of each key."""
        if len(keys):
            by_order = pc.sort_indices(orders).to_numpy()
            places = last_places(keys, by_order)
            places = places[pc.sort_indices(keys.take(places)).to_numpy()]
            keys, orders = keys.take(places), orders.take(places)
        return cls(as_large(keys), orders)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def nbytes(self) -> int:
        """Memory that they take."""
        return self.keys.nbytes + self.orders.nbytes

    def find(self, keys: KeyArray) -> tuple[Positions, Positions]:
        """Return which of the keys are here, and where."""
        if len(keys) * _SEARCHED_SHARE <= len(self):
            return self._search(keys)
        found = pc.index_in(as_large(keys), value_set=self.keys)
        hits: npt.NDArray[np.int64] = np.flatnonzero(found.is_valid()).astype(np.int64)
        return hits, cast("Positions", found.drop_null().to_numpy().astype(np.int64))

    def _search(self, keys: KeyArray) -> tuple[Positions, Positions]:
        """Find a few keys, each by a binary search."""
        wanted = key_objects(keys)
        places = [key_place(self.keys, key) for key in wanted]
        hits = [
            hit
            for hit, (key, place) in enumerate(zip(wanted, places, strict=True))
            if place < len(self) and key_at(self.keys, place) == key
        ]
        return np.array(hits, np.int64), np.array(places, np.int64)[hits]


def write_deletes(
    deletes: RememberedDeletes,
    *,
    store: ObjectStore,
    paths: TablePaths,
    file_id: str,
    schema_id: int,
) -> DataFile:
    """Write deletes under a schema as one file, durable on return; return its description."""
    table = pa.table([deletes.keys, deletes.orders], schema=_SCHEMA)
    buffer = BytesIO()
    pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    payload = buffer.getvalue()
    path = paths.remembered_file(file_id)
    store.put(path, payload)
    return DataFile(
        path=path.removeprefix(f"{paths.root}/"),
        file_bytes=len(payload),
        row_count=len(deletes),
        level=0,
        key_min=key_at(deletes.keys, 0),
        key_max=key_at(deletes.keys, len(deletes) - 1),
        format=FileFormat.REMEMBERED,
        schema_id=schema_id,
    )


def read_deletes(file: DataFile, *, store: ObjectStore, paths: TablePaths) -> RememberedDeletes:
    """Read a file whole; raises NotFound, Corruption."""
    path = f"{paths.root}/{file.path}"
    payload = store.get(path).payload
    if len(payload) != file.file_bytes:
        raise Corruption(
            f"the file has {len(payload):,} bytes, not {file.file_bytes:,}",
            path=path,
            hint=_DAMAGED,
        )
    try:
        table = read_parquet(payload).cast(_SCHEMA)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corruption(
            f"remembered deletes cannot be read: {error}", path=path, hint=_DAMAGED
        ) from error
    if table.num_rows != file.row_count or any(column.null_count for column in table.columns):
        raise Corruption(
            f"the file has {table.num_rows:,} deletes, not {file.row_count:,}",
            path=path,
            hint=_DAMAGED,
        )
    keys, orders = (column.combine_chunks() for column in table.columns)
    return RememberedDeletes(cast("KeyArray", keys), cast("pa.LargeBinaryArray", orders))
