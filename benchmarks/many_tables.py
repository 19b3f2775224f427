"""`flush_partitions` and `list_tables`: many small files, and many tables; neve alone.

    flush_partitions   300 rows become files of 180 partitions, in one commit that is published
    list_tables        `__tables` of a lake that this process knows, at several numbers of tables

A flush takes its syncs together, so that its time is that of writing and publishing. Listing a
table costs one look at its manifest.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

import neve
from benchmarks.harness import SEED, Candidate, Kind, Outcome, Scale, Stopwatch, Workload

_PARTITIONS: Final = 180
_ROWS: Final = 300
_FLUSHES: Final = 2
_TABLE_COUNTS: Final = (50, 200)
_ROW_BYTES: Final = 20
_COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "id": pa.int64(),
    "part": pa.int32(),
    "amount": pa.float64(),
}
_SCHEMA: Final = pa.schema(dict(_COLUMNS))


def build_flush_partitions(_scale: Scale, _directory: Path) -> Workload:
    """Flushes of a few rows into many partitions."""
    return Workload(
        name="flush_partitions",
        sentence="A few rows are flushed into many partitions, and published.",
        unit="rows",
        candidates=[Candidate(name="neve", kind=Kind.NEVE, trial=_flush, sync="each file")],
        parameters={"partitions": _PARTITIONS, "rows_per_flush": _ROWS, "seed": SEED},
        notes=("The second flush of a table; each writes a file in each partition.",),
    )


def build_list_tables(_scale: Scale, _directory: Path) -> Workload:
    """Listings of lakes with more and more tables."""
    return Workload(
        name="list_tables",
        sentence="All tables of a lake are listed by a process that knows them.",
        unit="tables",
        candidates=[
            Candidate(
                name=f"{count:,} tables",
                kind=Kind.NEVE,
                trial=functools.partial(_list, count),
            )
            for count in _TABLE_COUNTS
        ],
        notes=("The first listing, which parses every definition, is not counted.",),
    )


def _flush(directory: Path, stopwatch: Stopwatch) -> Outcome:
    generator = np.random.default_rng(SEED)
    parts = pa.array(np.arange(_ROWS) % _PARTITIONS, pa.int32())
    with neve.open(directory / "lake") as lake:
        table = lake.create_table(
            "bench.parts",
            _SCHEMA,
            "id",
            partition_by=["part"],
            options=neve.TableOptions(background=False),
        )
        for number in range(_FLUSHES):
            ids = np.arange(number * _ROWS, (number + 1) * _ROWS)
            table.upsert(pa.table([ids, parts, generator.random(_ROWS)], schema=_SCHEMA))
            if number < _FLUSHES - 1:
                table.flush()
        with stopwatch:
            table.flush()
        found = table.stats()
    return Outcome(
        rows=_ROWS,
        calls=1,
        logical_bytes=_ROWS * _ROW_BYTES,
        answer=[found.row_count, found.file_count],
        expected=[_FLUSHES * _ROWS, _FLUSHES * _PARTITIONS],
    )


def _list(count: int, directory: Path, stopwatch: Stopwatch) -> Outcome:
    with neve.open(directory / "lake") as lake:
        for number in range(count):
            lake.create_table(f"bench.t{number}", _SCHEMA, "id").close()
        lake.system_table("__tables")
        with stopwatch:
            listed = lake.system_table("__tables")
    return Outcome(
        rows=count,
        calls=1,
        logical_bytes=listed.nbytes,
        answer=listed.column("table_name").to_pylist(),
        expected=sorted(f"bench.t{number}" for number in range(count)),
    )
