"""PyIceberg's part in benchmarks of commits: one snapshot per commit, in its SQLite catalog.

add_files   adds a Parquet file that is there already: metadata only. The search for duplicates,
            which reads all metadata, is switched off.
append      appends a table of one row: writes its Parquet file as well.
append_seen the same, and the rows of the table are counted after each.
"""

import time
from importlib import metadata
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from benchmarks.peers.json_lines import PartTimer, serve
from benchmarks.peers.one_row import SCHEMA, one_row

_TABLE: Final = "bench.commits"


def add_files(directory: str, commits: int) -> dict[str, object]:
    """Commit Parquet files that exist, one by one."""
    table = _new_table(directory)
    paths = [str(Path(directory, f"{number}.parquet")) for number in range(commits)]
    for number, path in enumerate(paths):
        pq.write_table(one_row(number), path)
    latencies = []
    with PartTimer() as timer:
        for path in paths:
            began_at = time.perf_counter_ns()
            table.add_files([path], check_duplicate_files=False)
            latencies.append(time.perf_counter_ns() - began_at)
    return {"timed": timer.part, "latencies_ns": latencies} | _read_back(directory)


def append(directory: str, commits: int) -> dict[str, object]:
    """Append rows, one by one."""
    table = _new_table(directory)
    rows = [one_row(number) for number in range(commits)]
    latencies = []
    with PartTimer() as timer:
        for row in rows:
            began_at = time.perf_counter_ns()
            table.append(row)
            latencies.append(time.perf_counter_ns() - began_at)
    return {"timed": timer.part, "latencies_ns": latencies} | _read_back(directory)


def append_seen(directory: str, commits: int) -> dict[str, object]:
    """Append rows one by one, and count those of the table, as the catalog has it, after each."""
    table = _new_table(directory)
    catalog = _open_catalog(directory)
    rows = [one_row(number) for number in range(commits)]
    latencies, seen = [], []
    with PartTimer() as timer:
        for row in rows:
            began_at = time.perf_counter_ns()
            table.append(row)
            seen.append(catalog.load_table(_TABLE).scan().to_arrow().num_rows)
            latencies.append(time.perf_counter_ns() - began_at)
    return {"timed": timer.part, "latencies_ns": latencies, "seen": seen}


def _open_catalog(directory: str) -> SqlCatalog:
    where = Path(directory)
    return SqlCatalog(
        "bench", uri=f"sqlite:///{where / 'catalog.db'}", warehouse=(where / "lake").as_uri()
    )


def _new_table(directory: str) -> Table:
    catalog = _open_catalog(directory)
    catalog.create_namespace("bench")
    return catalog.create_table(_TABLE, schema=SCHEMA)


def _read_back(directory: str) -> dict[str, object]:
    table = _open_catalog(directory).load_table(_TABLE)
    rows = table.scan(selected_fields=("id",)).to_arrow().sort_by("id")
    return {"commits": len(table.metadata.snapshots), "ids": rows["id"].to_pylist()}


if __name__ == "__main__":
    serve(
        f"PyIceberg {metadata.version('pyiceberg')}",
        {"add_files": add_files, "append": append, "append_seen": append_seen},
    )
