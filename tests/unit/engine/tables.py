"""Tables in memory for tests, with defaults."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

import neve
from neve.catalog.lake import Lake
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock

COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "v": pa.int64(), "text": pa.string()}


def a_catalog(objects: ObjectStore | None = None, clock: SimulatedClock | None = None) -> Lake:
    return Lake(
        MemoryStore() if objects is None else objects,
        clock=SimulatedClock() if clock is None else clock,
        ids=SeededIds(0),
    )


def a_table(
    catalog: Lake,
    *,
    columns: Mapping[str, pa.DataType] = COLUMNS,
    primary_key: Sequence[str] = ("id",),
    options: neve.TableOptions | None = None,
    partition_by: Sequence[str] = (),
) -> neve.Table:
    """Make a table whose background work runs only when called."""
    return catalog.create_table(
        "a.b",
        pa.schema(dict(columns)),
        primary_key,
        partition_by=partition_by,
        options=options or neve.TableOptions(background=False),
    )


def rows(start: int, stop: int, v: int = 0, *, text: str = "t") -> pa.Table:
    numbers = range(start, stop)
    return pa.table({"id": list(numbers), "v": [v] * len(numbers), "text": [text] * len(numbers)})


def log_bytes(table: neve.Table) -> int:
    """Sum what was logged; preallocated zeros do not count."""
    objects = table._open.stored.objects
    logs = [info.path for info in objects.list(f"{table._open.stored.paths.wal}/")]
    return sum(len(objects.get(path).payload.rstrip(b"\0")) for path in logs)


def level_counts(table: neve.Table) -> dict[int, int]:
    return dict(table.stats().level_file_counts)
