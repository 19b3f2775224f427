"""What the engine counts: every metric with its unit and meaning, declared once.

A Recorder receives the numbers. The default drops them; `Counters` keeps them in memory for
`stats()` and tests; bridges to monitoring systems live in the layers above.
"""

from collections import defaultdict
from dataclasses import dataclass
from threading import Lock
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that the engine adds to or observes."""

    name: str
    unit: str
    meaning: str


WAL_BATCHES = Metric("neve.wal.batches", "batches", "batches appended to the log")
WAL_ROWS = Metric("neve.wal.rows", "rows", "rows appended to the log")
WAL_BYTES = Metric("neve.wal.bytes", "bytes", "bytes appended to the log, framing included")
WAL_WRITES = Metric(
    "neve.wal.writes", "calls", "groups of batches written; fewer is better grouping"
)
WAL_SYNCS = Metric("neve.wal.syncs", "calls", "syncs of the active log")
WAL_SYNC_SECONDS = Metric("neve.wal.sync_seconds", "seconds", "time spent in syncs of the log")
WAL_ROTATIONS = Metric("neve.wal.rotations", "logs", "logs closed because they were full")
WAL_RECYCLED = Metric("neve.wal.recycled", "logs", "logs started in the file of an older one")
WAL_DELETED = Metric("neve.wal.deleted", "logs", "logs deleted because nothing needs them")
CHANGES_IGNORED = Metric(
    "neve.engine.changes_ignored", "changes", "changes that were older than what the table had"
)
CHANGES_TIED = Metric(
    "neve.engine.changes_tied",
    "changes",
    "changes replaced by a later one of their call with the same order and other values",
)
TRANSACTIONS = Metric(
    "neve.engine.transactions", "transactions", "transactions committed that wrote something"
)
TRANSACTION_CONFLICTS = Metric(
    "neve.engine.transaction_conflicts",
    "transactions",
    "transactions refused because another writer was first",
)
FLUSHES = Metric("neve.engine.flushes", "memtables", "memtables flushed to data files")
FLUSHED_ROWS = Metric("neve.engine.flushed_rows", "rows", "changes that flushes wrote to files")
FLUSH_SECONDS = Metric("neve.engine.flush_seconds", "seconds", "time spent in flushes")
COMPACTIONS = Metric("neve.engine.compactions", "plans", "compactions committed")
COMPACTED_ROWS = Metric("neve.engine.compacted_rows", "rows", "rows that compactions rewrote")
COMPACTED_BYTES = Metric("neve.engine.compacted_bytes", "bytes", "bytes that compactions read")
STALL_SECONDS = Metric(
    "neve.engine.stall_seconds", "seconds", "time writers waited for background work to catch up"
)
ROWS_EXPIRED = Metric(
    "neve.engine.rows_expired", "rows", "rows removed because their time to live had passed"
)
GARBAGE_FILES = Metric("neve.engine.garbage_files", "files", "files deleted as garbage")
PUBLISHES = Metric("neve.engine.publishes", "times", "times a table was published to other engines")
PUBLISH_SECONDS = Metric("neve.engine.publish_seconds", "seconds", "time spent in publishing")
PUBLISH_FAILURES = Metric(
    "neve.engine.publish_failures", "times", "times publishing failed and was postponed"
)

SSTABLE_FILES = Metric("neve.sstable.files", "files", "data files written")
SSTABLE_ROWS = Metric("neve.sstable.rows", "rows", "rows written to data files")
SSTABLE_BYTES = Metric("neve.sstable.bytes", "bytes", "bytes of data files written")
SSTABLE_INDEX_BYTES = Metric("neve.sstable.index_bytes", "bytes", "bytes of index files written")
SSTABLE_INDEX_REBUILDS = Metric(
    "neve.sstable.index_rebuilds", "files", "index files missing or damaged, rebuilt in memory"
)
SSTABLE_GROUPS_DECODED = Metric(
    "neve.sstable.groups_decoded", "groups", "row groups of data files decoded for point reads"
)

SERVER_REQUEST_SECONDS = Metric(
    "neve.server.request_seconds",
    "seconds",
    "time spent on requests of other engines, by route, method and status",
)
SERVER_COMMIT_SECONDS = Metric(
    "neve.server.commit_seconds", "seconds", "time spent on commits of other engines"
)
SERVER_BYTES_READ = Metric("neve.server.bytes_read", "bytes", "bytes of request bodies")
SERVER_BYTES_SENT = Metric("neve.server.bytes_sent", "bytes", "bytes of answers")
SERVER_REFUSED = Metric(
    "neve.server.refused", "requests", "requests refused because too many were under way"
)

ALL_METRICS = (
    CHANGES_IGNORED,
    CHANGES_TIED,
    WAL_BATCHES,
    WAL_ROWS,
    WAL_BYTES,
    WAL_WRITES,
    WAL_SYNCS,
    WAL_SYNC_SECONDS,
    WAL_ROTATIONS,
    WAL_RECYCLED,
    WAL_DELETED,
    SSTABLE_FILES,
    SSTABLE_ROWS,
    SSTABLE_BYTES,
    SSTABLE_INDEX_BYTES,
    SSTABLE_INDEX_REBUILDS,
    SSTABLE_GROUPS_DECODED,
    TRANSACTIONS,
    TRANSACTION_CONFLICTS,
    FLUSHES,
    FLUSHED_ROWS,
    FLUSH_SECONDS,
    COMPACTIONS,
    COMPACTED_ROWS,
    COMPACTED_BYTES,
    STALL_SECONDS,
    ROWS_EXPIRED,
    GARBAGE_FILES,
    PUBLISHES,
    PUBLISH_SECONDS,
    PUBLISH_FAILURES,
    SERVER_REQUEST_SECONDS,
    SERVER_COMMIT_SECONDS,
    SERVER_BYTES_READ,
    SERVER_BYTES_SENT,
    SERVER_REFUSED,
)


class Recorder(Protocol):
    """Receives the engine's numbers; called on hot paths, so it must be fast and must not raise."""

    def add(self, metric: Metric, amount: float) -> None:
        """Add to a metric."""
        ...


class NoRecorder:
    """Drops all numbers."""

    def add(self, metric: Metric, amount: float) -> None:
        """Do nothing."""


class Counters:
    """Keeps the sum of every metric in memory; safe for many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sums: dict[str, float] = defaultdict(float)  # guarded by _lock

    def add(self, metric: Metric, amount: float) -> None:
        """Add to a metric."""
        with self._lock:
            self._sums[metric.name] += amount

    def total(self, metric: Metric) -> float:
        """Sum of a metric so far."""
        with self._lock:
            return self._sums[metric.name]
