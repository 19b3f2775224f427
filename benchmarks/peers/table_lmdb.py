"""LMDB's part in the table benchmarks."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import metadata
from operator import itemgetter
from pathlib import Path
from typing import Final, cast

import lmdb
import pyarrow as pa

from benchmarks.peers.table_calls import serve_store
from benchmarks.peers.table_key_value import (
    KeyValueStore,
    Pair,
    decode_value,
    encode_key,
    encode_row,
    encode_rows,
)
from benchmarks.peers.table_rows import Keys, Row

_MAP_BYTES: Final = 8 << 30


class LmdbStore(KeyValueStore):
    """One transaction per call; safe for many threads."""

    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        self._environment = lmdb.open(
            str(directory / "lmdb"), map_size=_MAP_BYTES, sync=synced, metasync=synced
        )

    def close(self) -> None:
        self._environment.close()

    def put(self, row: object) -> None:
        with self._environment.begin(write=True) as transaction:
            transaction.put(*encode_row(cast("Row", row)))

    def get(self, key: int) -> object:
        with self._environment.begin() as transaction:
            return decode_value(cast("bytes", transaction.get(encode_key(key))))

    def upsert(self, rows: pa.Table) -> None:
        with self._environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(encode_rows(rows))

    def delete(self, keys: Keys) -> None:
        with self._environment.begin(write=True) as transaction:
            for key in keys.to_numpy().tolist():
                transaction.delete(encode_key(key))

    def values_of(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            return [*map(itemgetter(1), cursor.getmulti(keys))]

    def pairs(self, first: bytes | None = None) -> Iterator[Pair]:
        with self._environment.begin() as transaction, closing(transaction.cursor()) as cursor:
            if first is not None:
                cursor.set_range(first)
            yield from cursor


if __name__ == "__main__":
    serve_store(f"LMDB (lmdb {metadata.version('lmdb')})", {"plain": LmdbStore})
