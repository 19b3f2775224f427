"""The acts about Versions: a flush is plain Parquet, changes are vectors, old Versions stay.

Each compares what the table gives with what follows from the numbers of the rows, and with what
others read: pyarrow the Parquet files as they are, and DuckDB when it is installed.
"""

import importlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from neve.cli.demo_rows import get_latency
from neve.cli.demo_stage import Finding, Stage, check, check_equal
from neve.cli.demo_table import CHANGED, DELETED, DELETED_FROM, ROWS
from neve.model.shown_value import counted

TAG: Final = "first-load"
# Creating a table is Version 1.
_FIRST_LOAD: Final = 2
_ID_BELOW: Final = 1_000
# A vector is a 64-bit Roaring bitmap behind four bytes of length and four of magic.
_BITMAP_AT: Final = 8


def flush(stage: Stage) -> tuple[Finding, ...]:
    """Flush, and let others read the files as they are."""
    narrator, orders = stage.narrator, stage.orders
    with stage.timed() as seconds:
        version = orders.flush()
    stats = orders.stats()
    check(version == _FIRST_LOAD, f"the first flush made Version {version}")
    check(stats.memtable_rows == 0, "a flush left rows behind")
    check(stats.vector_count == 0, "a first flush needs no vector")
    narrator.say(
        f"flushed in {seconds():.2f} s: Version {version}, {counted(stats.file_count, 'file')}, "
        f"{stats.file_bytes / 1e6:.1f} MB of Parquet"
    )
    paths = data_paths(stage)
    read = _fit(stage, [pq.read_table(path) for path in paths])
    check_equal(read, stage.table.all_rows, "Parquet")
    narrator.found(f"plain pyarrow reads the files: {ROWS:,} rows, one per key, every one equal")
    duckdb_rows = _read_by_duckdb(stage, paths)
    get_seconds = get_latency(stage)
    narrator.say(f"get from files: {get_seconds * 1e6:.0f} µs at the median")
    return (
        Finding("flush_seconds", round(seconds(), 3)),
        Finding(
            "flushed_rows_per_second",
            round(ROWS / seconds()),
            "rows flushed per second to a clean Version",
        ),
        Finding("data_bytes", stats.file_bytes),
        Finding("duckdb_rows", duckdb_rows),
        Finding(
            "file_get_microseconds",
            round(get_seconds * 1e6, 1),
            "µs for a get from files, at the median",
        ),
    )


def change(stage: Stage) -> tuple[Finding, ...]:
    """Update and delete rows; nothing is rewritten, and the Version is clean again."""
    narrator, orders = stage.narrator, stage.orders
    before = set(orders.files()["file_path"].to_pylist())
    with stage.timed() as seconds:
        orders.upsert(stage.table.changed_rows(CHANGED))
        orders.delete_many([stage.table.key_values(number) for number in DELETED])
        orders.delete_where(f"id >= {DELETED_FROM}")
        version = orders.flush()
    stats = orders.stats()
    left = set(orders.files()["file_path"].to_pylist())
    check(before <= left, "a file was rewritten")
    narrator.say(
        f"{len(CHANGED):,} rows updated, {ROWS - orders.scan().count():,} deleted, flushed as "
        f"Version {version} in {seconds():.2f} s: {counted(stats.vector_count, 'vector')}, "
        f"{stats.deleted_count:,} rows marked, no file rewritten"
    )
    due = stage.table.rows_after
    check_equal(orders.scan().to_arrow(), due, "a scan after changes")
    check_equal(_fit(stage, _unmarked(stage)), due, "Parquet without the marked rows")
    narrator.found("a scan, and the Parquet files without the marked rows: the same, each key once")
    chosen = orders.scan(f"note = 'changed' and id < {_ID_BELOW}", columns=["id"]).to_arrow()
    wanted = due.filter((pc.field("note") == "changed") & (pc.field("id") < _ID_BELOW)).num_rows
    check(chosen.num_rows == wanted, "a filter finds other rows than there are")
    narrator.found(f"a filter finds its {wanted} rows, in text as PyIceberg writes it")
    return (
        Finding("changed_rows", len(CHANGED)),
        Finding("marked_rows", stats.deleted_count),
        Finding("vectors", stats.vector_count),
        Finding("change_seconds", round(seconds(), 3)),
    )


def travel(stage: Stage) -> tuple[Finding, ...]:
    """Read old Versions, freeze a snapshot, name a Version, and go back and forth."""
    narrator, orders = stage.narrator, stage.orders
    history = orders.history()
    first, newest = _FIRST_LOAD, orders.version
    operations = ", ".join(f"{each['version']} {each['operation']}" for each in history.to_pylist())
    narrator.say(f"history: {operations}")
    with orders.at(first) as old:
        check_equal(old.scan().to_arrow(), stage.table.all_rows, f"Version {first}")
    narrator.found(f"Version {first} is as it was: {ROWS:,} rows, none of them changed")
    with orders.snapshot() as frozen:
        orders.put({**stage.table.row(0), "note": "newer than the snapshot"})
        key = stage.table.key_values(0)
        seen, now = frozen.get(key), orders.get(key)
        check(seen == stage.table.changed_row(0), "a snapshot changed")
        check(now is not None and now["note"] != "changed", "a put is not seen")
    narrator.found("a snapshot stays as it is while the table is written to")
    orders.tag(TAG, first)
    back = orders.rollback(first)
    check_equal(orders.scan().to_arrow(), stage.table.all_rows, "after a rollback")
    narrator.found(f"rolled back to Version {first}, as Version {back}; the ones between are kept")
    forth = orders.rollback(newest)
    check_equal(orders.scan().to_arrow(), stage.table.rows_after, "after rolling forth")
    narrator.found(f"and forth to Version {newest}, as Version {forth}")
    with orders.at(tag=TAG) as tagged:
        check(tagged.version == first, "a tag names another Version")
    narrator.say(f"Version {first} is tagged {TAG!r}: it stays, whatever expires")
    return (Finding("versions", orders.history().num_rows), Finding("rolled_back_to", first))


def data_paths(stage: Stage) -> list[Path]:
    """Where the data files of the current Version are."""
    root = table_root(stage)
    return [root / path for path in stage.orders.current().version.files]


def table_root(stage: Stage) -> Path:
    """Directory of the table of orders."""
    return stage.root / stage.orders.stored.paths.root


def _unmarked(stage: Stage) -> Iterable[pa.Table]:
    """Read each data file with pyarrow, and drop the rows that its vector marks."""
    root = table_root(stage)
    for file in stage.orders.current().version.files.values():
        rows = pq.read_table(root / file.path)
        vector = file.vector
        if vector is not None:
            puffin = (root / vector.path).read_bytes()
            blob = puffin[vector.offset : vector.offset + vector.length]
            marked = BitMap64.deserialize(blob[_BITMAP_AT:-4])
            rows = rows.take([place for place in range(rows.num_rows) if place not in marked])
        yield rows


def _fit(stage: Stage, tables: Iterable[pa.Table]) -> pa.Table:
    """Join what was read, in the types that the table has."""
    return pa.concat_tables(tables).cast(stage.table.schema.arrow_schema)


def _read_by_duckdb(stage: Stage, paths: Iterable[Path]) -> int:
    if importlib.util.find_spec("duckdb") is None:
        stage.narrator.say("DuckDB is not installed here, so it is not asked")
        return 0
    # By name: DuckDB is nobody's dependency, only a guest here.
    duckdb = importlib.import_module("duckdb")
    files = [str(path) for path in paths]
    with duckdb.connect() as session:
        session.execute("select count(*), sum(amount) from read_parquet(?)", [files])
        rows, total = session.fetchone()
    due = pc.sum(stage.table.all_rows["amount"]).as_py()
    check((rows, total) == (ROWS, due), "DuckDB reads other rows")
    stage.narrator.found(f"DuckDB reads them too: {rows:,} rows, {total:,} in all")
    return int(rows)
