"""PyIceberg's part in `iceberg_scan`: scans of a table of its own, and of one that neve published.

Its own table is written and updated as in the table benchmarks: after the updates it is one sorted
file again.
"""

from importlib import metadata
from pathlib import Path

from pyiceberg.table import StaticTable

from benchmarks.peers.json_lines import PartTimer, serve
from benchmarks.peers.table_pyiceberg import IcebergStore
from benchmarks.peers.table_rows import BASE, UPDATES, digest, read_rows


def prepare(directory: str, sample: str) -> int:
    """Make the table of its own; gives its number of rows."""
    store = IcebergStore(Path(directory))
    base = read_rows(Path(sample, BASE))
    store.load(base, base.num_rows)
    updates = read_rows(Path(sample, UPDATES))
    store.update(updates, updates.num_rows)
    return store.scan().num_rows


def scan_own(directory: str) -> dict[str, object]:
    """Read all rows of its own table."""
    store = IcebergStore(Path(directory))
    with PartTimer() as timer:
        rows = store.scan()
    return {"timed": timer.part, "digest": digest(rows)}


def scan_published(location: str) -> dict[str, object]:
    """Read all rows of a table by its metadata."""
    table = StaticTable.from_metadata(location)
    with PartTimer() as timer:
        rows = table.scan().to_arrow()
    return {"timed": timer.part, "digest": digest(rows)}


if __name__ == "__main__":
    serve(
        f"PyIceberg {metadata.version('pyiceberg')}",
        {"prepare": prepare, "scan_own": scan_own, "scan_published": scan_published},
    )
