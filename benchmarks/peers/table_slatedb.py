"""SlateDB's part in the table benchmarks: its object store is the local disk.

A durable write is followed by a flush of its log, so that it does not wait for a timer.
Each call enters the event loop once.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import pyarrow as pa
from slatedb import uniffi as slate  # type: ignore[import-not-found]

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

Answer = TypeVar("Answer")
_BATCH_ROWS: Final = 4_096
_LOG: Final = slate.FlushOptions(flush_type=slate.FlushType.WAL)
_MEMORY: Final = slate.FlushOptions(flush_type=slate.FlushType.MEM_TABLE)


class SlateStore(KeyValueStore):
    """One event loop, entered by one thread."""

    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        self._synced = synced
        directory.joinpath("slatedb").mkdir(exist_ok=True)
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._database = self._run(_open(directory / "slatedb"))

    def close(self) -> None:
        self._run(self._database.shutdown())
        self._loop.close()

    def put(self, row: object) -> None:
        key, value = encode_row(cast("Row", row))

        async def write() -> None:
            await self._database.put(key, value)
            await self._sync()

        self._run(write())

    def get(self, key: int) -> object:
        return decode_value(self._run(_value(self._database, encode_key(key))))

    def upsert(self, rows: pa.Table) -> None:
        batch = slate.WriteBatch()
        for key, value in encode_rows(rows):
            batch.put(key, value)
        self._run(self._write(batch))

    def delete(self, keys: Keys) -> None:
        batch = slate.WriteBatch()
        for key in keys.to_numpy().tolist():
            batch.delete(encode_key(key))
        self._run(self._write(batch))

    def settle(self) -> None:
        self._run(self._database.flush_with_options(_MEMORY))

    def values_of(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        async def all_values() -> list[bytes]:
            return await asyncio.gather(*(_value(self._database, key) for key in keys))

        return self._run(all_values())

    def pairs(self, first: bytes | None = None) -> Iterator[Pair]:
        wanted = slate.KeyRange(start=first, start_inclusive=True, end=None, end_inclusive=False)
        pairs = self._run(self._database.scan(wanted))
        while batch := self._run(pairs.next_batch(_BATCH_ROWS)):
            for found in batch:
                yield found.key, found.value

    async def _write(self, batch: object) -> None:
        await self._database.write(batch)
        await self._sync()

    async def _sync(self) -> None:
        if self._synced:
            await self._database.flush_with_options(_LOG)

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self._loop.run_until_complete(work)


async def _open(directory: Path) -> Any:  # noqa: ANN401
    builder = slate.DbBuilder(str(directory)[1:], slate.ObjectStore.resolve("file:///"))
    return await builder.build()


async def _value(database: Any, key: bytes) -> bytes:  # noqa: ANN401
    return cast("bytes", await database.get(key))


if __name__ == "__main__":
    serve_store(f"SlateDB {metadata.version('slatedb')}", {"plain": SlateStore})
