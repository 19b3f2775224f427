"""SlateDB's part in the table benchmarks: its object store is the local disk.

A durable write is followed by a flush of its log, so that it does not wait for a timer.
Each call enters the event loop once.
"""

import asyncio
import os
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from threading import Thread
from typing import Any, Final, TypeVar, cast

import pyarrow as pa
from slatedb import uniffi as slate  # type: ignore[import-not-found]

from benchmarks.peers.bucket_place import BucketPlace
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
        self._loop = asyncio.new_event_loop()
        self._database = self._opened(directory)

    def _opened(self, directory: Path) -> Any:  # noqa: ANN401
        directory.joinpath("slatedb").mkdir(exist_ok=True)
        asyncio.set_event_loop(self._loop)
        return self._run(_open(str(directory / "slatedb")[1:], "file:///"))

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


class BucketSlateStore(SlateStore):
    """In a bucket; its event loop runs in a thread, so that many threads may call."""

    def _opened(self, directory: Path) -> Any:  # noqa: ANN401
        self._place = BucketPlace.of(directory)
        # Where the library looks for them.
        os.environ.update(self._place.environment())
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self._run(_open(self._place.prefix, f"s3://{self._place.bucket}"))

    def close(self) -> None:
        self._run(self._database.shutdown())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def requests(self) -> Mapping[str, int] | None:
        return self._place.requests()

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _open(path: str, store: str) -> Any:  # noqa: ANN401
    builder = slate.DbBuilder(path, slate.ObjectStore.resolve(store))
    return await builder.build()


async def _value(database: Any, key: bytes) -> bytes:  # noqa: ANN401
    return cast("bytes", await database.get(key))


if __name__ == "__main__":
    serve_store(
        f"SlateDB {metadata.version('slatedb')}", {"plain": SlateStore, "bucket": BucketSlateStore}
    )
