"""What the engine counts: every metric with its unit and meaning, declared once.

A Recorder receives the numbers. The default drops them; `Counters` keeps them in memory for
`stats()` and tests; `prometheus` and `opentelemetry` pass them on, with labels. A metric in seconds
is a histogram, a gauge is read when it is asked for, and all others are counters.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final, Protocol, TypeAlias, runtime_checkable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that the engine adds to or observes."""

    name: str
    unit: str
    meaning: str
    is_gauge: bool = False
    """Goes up and down; nothing is added to it."""
    is_watched: bool = False
    """Read when it is asked for, like a gauge, but only goes up."""

    @property
    def is_histogram(self) -> bool:
        """Whether its distribution counts, not only its sum."""
        return self.unit == _SECONDS


_SECONDS: Final = "seconds"
SAMPLED: Final = 64
"""Of so many gets or puts of a handle, one is measured: a get takes microseconds."""


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

COMPACTION_SECONDS = Metric(
    "neve.engine.compaction_seconds", "seconds", "time that compactions took, their commit included"
)
COMMIT_SECONDS = Metric(
    "neve.manifest.commit_seconds", "seconds", "time that commits of a table took, retries included"
)
PUT_SECONDS = Metric(
    "neve.table.put_seconds", "seconds", "time that a put took; one of 64 is measured"
)
UPSERT_SECONDS = Metric("neve.table.upsert_seconds", "seconds", "time that upserts took")
GET_SECONDS = Metric(
    "neve.table.get_seconds", "seconds", "time that a get took; one of 64 is measured"
)
SCAN_SECONDS = Metric(
    "neve.table.scan_seconds",
    "seconds",
    "time from the begin of a scan until its last row was read",
)
CACHE_HITS = Metric(
    "neve.table.cache_hits", "groups", "row groups found decoded in the cache", is_watched=True
)
CACHE_MISSES = Metric(
    "neve.table.cache_misses", "groups", "row groups decoded for the cache", is_watched=True
)
CACHE_BYTES = Metric(
    "neve.table.cache_bytes", "bytes", "bytes of decoded rows and vectors in memory", is_gauge=True
)
MEMTABLE_BYTES = Metric(
    "neve.table.memtable_bytes", "bytes", "bytes of rows that are not flushed", is_gauge=True
)
FLUSH_QUEUE = Metric(
    "neve.table.flush_queue", "memtables", "full memtables that wait for a flush", is_gauge=True
)
LEVEL_0_FILES = Metric(
    "neve.table.level_0_files", "files", "files that wait for a compaction", is_gauge=True
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
SERVER_UNDER_WAY = Metric(
    "neve.server.under_way", "requests", "requests that are being answered", is_gauge=True
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
    SERVER_UNDER_WAY,
    COMPACTION_SECONDS,
    COMMIT_SECONDS,
    PUT_SECONDS,
    UPSERT_SECONDS,
    GET_SECONDS,
    SCAN_SECONDS,
    CACHE_HITS,
    CACHE_MISSES,
    CACHE_BYTES,
    MEMTABLE_BYTES,
    FLUSH_QUEUE,
    LEVEL_0_FILES,
)


class Recorder(Protocol):
    """Receives the engine's numbers; called on hot paths, so it must be fast and must not raise."""

    def add(self, metric: Metric, amount: float) -> None:
        """Add to a metric."""


Observed: TypeAlias = tuple[Metric, float, Mapping[str, str]]
"""A number that is read when it is asked for, with its labels."""
Observe: TypeAlias = Callable[[], Iterable[Observed]]


@runtime_checkable
class LabelledRecorder(Recorder, Protocol):
    """A recorder that distinguishes tables, and asks for numbers itself."""

    def labelled(self, labels: Mapping[str, str]) -> Recorder:
        """Return a recorder whose numbers have these labels."""

    def watch(self, observe: Observe) -> Callable[[], None]:
        """Ask a function for numbers whenever they are shown; return what ends that."""


class Watched:
    """Functions that are asked for numbers whenever they are shown; safe for many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._observers: list[Observe] = []  # guarded by _lock

    def add(self, observe: Observe) -> Callable[[], None]:
        """Ask a function from now on; return what ends that."""
        with self._lock:
            self._observers.append(observe)

        def end() -> None:
            with self._lock:
                if observe in self._observers:
                    self._observers.remove(observe)

        return end

    def read(self) -> Iterator[Observed]:
        """Ask all functions; one that fails is logged and left out."""
        with self._lock:
            observers = list(self._observers)
        for observe in observers:
            try:
                read = list(observe())
            except Exception:
                logger.exception("a source of metrics failed")
                continue
            yield from read


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
