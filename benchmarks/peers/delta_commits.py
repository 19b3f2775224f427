"""delta-rs's part in benchmarks of commits: one version of the log per commit.

add_action   adds a Parquet file that is there already, with its statistics: metadata only.
append       appends a table of one row: writes its Parquet file as well.
append_seen  the same, and the rows of the table are counted after each.
"""

import json
import time
from importlib import metadata
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from benchmarks.peers.json_lines import PartTimer, serve
from benchmarks.peers.one_row import (
    FIELD_NAMES,
    SCHEMA,
    one_row,
    row_name,
    row_score,
    row_visits,
)


def add_action(directory: str, commits: int) -> dict[str, object]:
    """Commit Parquet files that exist, one by one."""
    table = DeltaTable.create(directory, schema=SCHEMA)
    schema = table.schema()
    actions = [_write_file(Path(directory), number) for number in range(commits)]
    latencies = []
    with PartTimer() as timer:
        for action in actions:
            began_at = time.perf_counter_ns()
            table.create_write_transaction([action], "append", schema)
            latencies.append(time.perf_counter_ns() - began_at)
    return {"timed": timer.part, "latencies_ns": latencies} | _read_back(directory)


def append(directory: str, commits: int) -> dict[str, object]:
    """Append rows, one by one."""
    table = DeltaTable.create(directory, schema=SCHEMA)
    rows = [one_row(number) for number in range(commits)]
    latencies = []
    with PartTimer() as timer:
        for row in rows:
            began_at = time.perf_counter_ns()
            write_deltalake(table, row, mode="append")
            latencies.append(time.perf_counter_ns() - began_at)
    return {"timed": timer.part, "latencies_ns": latencies} | _read_back(directory)


def append_seen(directory: str, commits: int) -> dict[str, object]:
    """Append rows one by one, and count those of the table, opened again, after each."""
    table = DeltaTable.create(directory, schema=SCHEMA)
    rows = [one_row(number) for number in range(commits)]
    latencies, seen = [], []
    with PartTimer() as timer:
        for row in rows:
            began_at = time.perf_counter_ns()
            write_deltalake(table, row, mode="append")
            seen.append(DeltaTable(directory).to_pyarrow_table().num_rows)
            latencies.append(time.perf_counter_ns() - began_at)
    return {"timed": timer.part, "latencies_ns": latencies, "seen": seen}


def _write_file(directory: Path, number: int) -> AddAction:
    path = directory / f"{number}.parquet"
    pq.write_table(one_row(number), path)
    values = {
        "id": number,
        "name": row_name(number),
        "score": row_score(number),
        "visits": row_visits(number),
    }
    statistics = {
        "numRecords": 1,
        "minValues": values,
        "maxValues": values,
        "nullCount": dict.fromkeys(FIELD_NAMES, 0),
    }
    return AddAction(
        path=path.name,
        size=path.stat().st_size,
        partition_values={},
        modification_time=0,
        data_change=True,
        stats=json.dumps(statistics),
    )


def _read_back(directory: str) -> dict[str, object]:
    table = DeltaTable(directory)
    rows = table.to_pyarrow_table(columns=["id"]).sort_by("id")
    return {"commits": table.version(), "ids": rows["id"].to_pylist()}


if __name__ == "__main__":
    serve(
        f"delta-rs {metadata.version('deltalake')}",
        {"add_action": add_action, "append": append, "append_seen": append_seen},
    )
