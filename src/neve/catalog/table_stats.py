"""TableStats: the size and health of an open table at one moment, to print or to show in a page."""

from dataclasses import dataclass, fields

from neve.catalog.version_view import VersionStats
from neve.engine.table_engine import TableEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStats(VersionStats):
    """Sums over the files of the current Version, and what the open table holds besides."""

    sequence: int
    """Sequence number of the last visible write."""
    memtable_rows: int
    """Changes that are not in data files yet."""
    memtable_bytes: int
    memtable_count: int
    open_snapshots: int
    """Versions that readers of this handle pin."""
    cache_bytes: int
    pressure: str
    """Why writers are held back; empty when they are not."""
    stall_seconds: float
    """Time writers were held back since the table was opened."""
    failure: str
    """Why background work does not get on; empty while it does."""
    is_read_only: bool


def table_stats(version: VersionStats, engine: TableEngine) -> TableStats:
    """Add what an open table holds to the sums of its current Version; waits for nothing."""
    view = engine.current.view
    writer = None if engine.is_read_only else engine.writer
    failure = None if writer is None else writer.backlog.failure
    return TableStats(
        **{field.name: getattr(version, field.name) for field in fields(VersionStats)},
        sequence=engine.current.sequence,
        memtable_rows=sum(memtable.row_count for memtable in view.memtables),
        memtable_bytes=sum(memtable.byte_count for memtable in view.memtables),
        memtable_count=len(view.memtables),
        open_snapshots=engine.leases.pinned_count,
        cache_bytes=engine.files.groups.byte_count + engine.files.vectors.byte_count,
        pressure="" if writer is None else writer.backlog.pressure.reason,
        stall_seconds=0.0 if writer is None else writer.backlog.stall_seconds,
        failure="" if failure is None else str(failure),
        is_read_only=engine.is_read_only,
    )
