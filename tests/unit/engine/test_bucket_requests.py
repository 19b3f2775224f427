"""What a live table in a bucket asks for: an upsert, a flush and its publishing, and no more."""

from collections.abc import Mapping
from threading import current_thread

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.engine.table_engine import TableEngine
from neve.engine.upkeep import Upkeep
from neve.storage.file_cache import CachedStore
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import RequestCount
from neve.testing.faulty_store import FaultyStore, StoreCall
from neve.testing.simulated_clock import SeededIds, SimulatedClock

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})


class CountedBucket(FaultyStore):
    """A bucket in memory that records its calls."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        super().__init__(MemoryStore(), before_call=self._record)

    def requests(self) -> Mapping[str, RequestCount]:
        """Return nothing: it is enough that requests count here."""
        return {}

    def _record(self, call: StoreCall) -> None:
        self.seen.append(f"{call.operation} {call.path.split('/')[-2]}")


def opened(bucket: CountedBucket) -> Lake:
    store = CachedStore(bucket, MemoryStore(), bytes_max=64 << 20)
    return Lake(store, clock=SimulatedClock(), ids=SeededIds(0))


def test_a_flush_beside_background_work_takes_no_further_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Upkeep comes at any moment of this: once after opening, and then every few minutes.
    monkeypatch.setattr(TableEngine, "_sweep_once", lambda _: False)
    monkeypatch.setattr(Upkeep, "tend_once", lambda _: False)
    bucket = CountedBucket()
    with opened(bucket) as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"])
        for first in (0, 100, 200):
            bucket.seen.clear()
            table.upsert([{"id": first + number, "v": 0} for number in range(100)])
            table.flush()
        table_id = table.table_id
        seen = [each.replace(table_id, "table") for each in bucket.seen]

    assert sorted(seen) == sorted(
        [
            "put_if_absent 1",  # the slot of the log
            "put_if_match table",  # the mark of a new log
            "put data",
            "put index",
            "get_if_changed table",  # the head
            "put_if_absent segments",
            "put_if_match table",  # the head
            "delete 1",
            *["put_if_absent metadata"] * 3,  # manifest, list, document
            "put_if_match metadata",  # the hint
        ]
    )


def test_a_look_for_commits_of_others_is_due_after_ten_seconds() -> None:
    bucket, clock = CountedBucket(), SimulatedClock()
    store = CachedStore(bucket, MemoryStore(), bytes_max=64 << 20)
    with Lake(store, clock=clock, ids=SeededIds(0)) as lake:
        table = lake.create_table(
            "a.b", SCHEMA, ["id"], options=neve.TableOptions(background=False)
        )
        table.put({"id": 1, "v": 1})
        writer = table._open.engine.writer
        looks = []
        for _ in range(21):
            bucket.seen.clear()
            writer.refresh_once()
            looks.append(len(bucket.seen))
            clock.advance(seconds=1)

    assert sum(looks) == 3
    assert looks[0] == looks[10] == looks[20] == 1


def test_opening_reads_the_commits_of_a_table_side_by_side() -> None:
    """One that is alone is read by the thread that opens."""

    def waits(flushes: int) -> list[str]:
        bucket, own = CountedBucket(), current_thread()
        with opened(bucket) as lake:
            table = lake.create_table("a.b", SCHEMA, ["id"])
            for number in range(flushes):
                table.put({"id": number, "v": 0})
                table.flush()
        calls: list[str] = []

        def record(call: StoreCall) -> None:
            if current_thread() is own and "/version/" in call.path and "/seg-" in call.path:
                calls.append(f"{call.operation} {call.path}")

        bucket._before_call = record
        with opened(bucket) as lake:
            assert lake.table("a.b").get(flushes - 1) == {"id": flushes - 1, "v": 0}
            return [call for call in calls if call.startswith("get ")]

    assert len(waits(2)) <= 1
    assert len(waits(12)) <= 1
