"""One bucketed neve table of a given size, in a process of its own: upserts of random keys.

1. upsert every row in batches, flush, compact: not timed
2. upsert rows of random keys and flush, several times: timed
3. read everything back: not timed

The key tells the bucket, so that a flush looks for the rows it replaces in the files of their
buckets only; what it finds there it marks.
"""

import time
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import neve
from benchmarks.harness import SEED
from benchmarks.peers.json_lines import PartTimer, serve
from benchmarks.peers.table_calls import Reply
from benchmarks.table_sample import shown_total

_COLUMNS: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "visits": pa.int64(),
    "score": pa.float64(),
}
_LOAD_ROWS: Final = 500_000


def upsert_buckets(directory: str, rows: int, buckets: int, rounds: int, round_rows: int) -> Reply:
    """Make a table of so many rows, and upsert random ones of them."""
    facts: dict[str, float] = {}
    generator = np.random.default_rng(SEED)
    with neve.open(str(Path(directory) / "lake")) as lake:
        table = lake.create_table(
            "a.b",
            pa.schema(_COLUMNS),
            ["id"],
            partition_by=[f"bucket({buckets}, id)"],
            options=neve.TableOptions(background=False),
        )
        for start in range(0, rows, _LOAD_ROWS):
            table.upsert(_rows(np.arange(start, min(start + _LOAD_ROWS, rows)), visits=0))
        table.compact()
        drawn = [
            _rows(np.sort(generator.choice(rows, round_rows, replace=False)), visits=1)
            for _ in range(rounds)
        ]
        slowest = 0.0
        with PartTimer() as timer:
            for each in drawn:
                began_at = time.perf_counter()
                table.upsert(each)
                table.flush()
                slowest = max(slowest, time.perf_counter() - began_at)
        facts["slowest_ms"] = slowest * 1e3
        facts["files"] = float(table.files().num_rows)
        whole = table.scan(columns=["id", "visits"]).to_arrow()
        count = whole.num_rows
        ids, visits = (pc.sum(whole[name]).as_py() or 0 for name in ("id", "visits"))
    return Reply(
        timed=timer.part,
        rows=rounds * round_rows,
        calls=rounds,
        latencies_ns=[],
        answer=shown_total(count, ids, visits),
        facts=facts,
        shares=[],
    )


def expected_total(rows: int, rounds: int, round_rows: int) -> str:
    """Return what the table must add up to, without a table."""
    generator = np.random.default_rng(SEED)
    written = np.zeros(rows, np.bool_)
    for _ in range(rounds):
        written[generator.choice(rows, round_rows, replace=False)] = True
    return shown_total(rows, rows * (rows - 1) // 2, int(written.sum()))


def _rows(ids: npt.NDArray[np.int64], *, visits: int) -> pa.Table:
    columns = [pa.array(ids), pa.array(np.full(len(ids), visits)), pa.array(ids * 0.5)]
    return pa.table(columns, schema=pa.schema(_COLUMNS))


if __name__ == "__main__":
    serve("neve", {"upsert_buckets": upsert_buckets})
