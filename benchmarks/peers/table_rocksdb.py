"""RocksDB's part in the table benchmarks, by rocksdict: raw bytes, bloom filter, block cache."""

from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch, WriteOptions

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

_CACHE_BYTES: Final = 512 << 20
_FILTER_BITS: Final = 10


class RocksStore(KeyValueStore):
    """Safe for many threads."""

    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        blocks = BlockBasedOptions()
        blocks.set_bloom_filter(_FILTER_BITS, False)
        blocks.set_block_cache(Cache(_CACHE_BYTES))
        options.set_block_based_table_factory(blocks)
        self._database = Rdict(str(directory / "rocksdb"), options)
        self._writing = WriteOptions()
        self._writing.sync = synced

    def close(self) -> None:
        self._database.close()

    def put(self, row: object) -> None:
        key, value = encode_row(cast("Row", row))
        self._database.put(key, value, self._writing)

    def get(self, key: int) -> object:
        return decode_value(cast("bytes", self._database.get(encode_key(key))))

    def load(self, rows: pa.Table, batch_rows: int) -> None:
        # In no order, as neve is loaded: both have files that overlap then.
        self.update(rows, batch_rows)

    def upsert(self, rows: pa.Table) -> None:
        batch = WriteBatch(raw_mode=True)
        put = batch.put
        for key, value in encode_rows(rows):
            put(key, value)
        self._database.write(batch, self._writing)

    def settle(self) -> None:
        self._database.flush()

    def tidy(self) -> None:
        self._database.flush()
        self._database.compact_range(None, None)

    def delete(self, keys: Keys) -> None:
        batch = WriteBatch(raw_mode=True)
        for key in keys.to_numpy().tolist():
            batch.delete(encode_key(key))
        self._database.write(batch, self._writing)

    def values_of(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        return cast("list[bytes]", self._database.get(list(keys)))

    def pairs(self, first: bytes | None = None) -> Iterator[Pair]:
        if first is None:
            return cast("Iterator[Pair]", self._database.items())
        return cast("Iterator[Pair]", self._database.items(from_key=first))


if __name__ == "__main__":
    serve_store(f"RocksDB (rocksdict {metadata.version('rocksdict')})", {"plain": RocksStore})
