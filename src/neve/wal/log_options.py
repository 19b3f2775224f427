"""Options of the write-ahead log, each with its unit, default and effect; its place and tools."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Lock
from typing import Final, TypeVar

from neve.errors import InvalidArgument
from neve.observability.metrics import NoRecorder, Recorder
from neve.storage.clock import Clock, IdSource, SystemClock, SystemIds
from neve.storage.commit_queue import Latch
from neve.storage.object_store import LogStore
from neve.wal.durability import LogOwner
from neve.wal.record_format import BLOCK_BYTES, Dialect

SEGMENT_BYTES_MAX: Final = 1 << 40
LINGER_SECONDS_MAX: Final = 10.0
SYNCS_AHEAD_MAX: Final = 16


class SyncPolicy(StrEnum):
    """When an append is acknowledged."""

    GROUP = "group"
    """When durable; appends that wait at the same time share one sync."""
    ALWAYS = "always"
    """When durable; every append has a sync of its own."""
    INTERVAL = "interval"
    """When the operating system has it. No timer runs: the first append at least
    `sync_interval_seconds` after the last sync syncs, and `sync_once` does at any time."""
    NONE = "none"
    """When the operating system has it; synced only when a log is closed."""

    @property
    def waits(self) -> bool:
        """Whether an acknowledged row survives power loss."""
        return self in (SyncPolicy.GROUP, SyncPolicy.ALWAYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How a write-ahead log writes."""

    sync: SyncPolicy = SyncPolicy.GROUP
    sync_interval_seconds: float = 0.1
    """With `interval`: the first append this long after the last sync syncs."""
    segment_bytes: int = 64 << 20
    """A log of this size is closed and the next one begins; space is reserved ahead."""
    preallocate: bool = True
    """Reserve a log's space when it begins, so that a sync need not grow the file."""
    recycle_count: int = 2
    """Maximum number of obsolete logs to keep for reuse."""
    group_bytes_max: int = 16 << 20
    """Maximum size of a group of waiting appends that share one write and sync."""
    linger_seconds: float = 0.0
    """How long the first append of a group waits for others to share its sync."""
    syncs_ahead: int = 1
    """Syncs that may be under way at once, where the store can: they are durable in order."""
    dialect: Dialect = Dialect.CRC32C
    """Checksums to write; foreign dialects, for other systems to read, hold plain rows only."""

    def __post_init__(self) -> None:
        # Callers may pass plain strings.
        object.__setattr__(self, "sync", _one_of(SyncPolicy, self.sync, "sync"))
        object.__setattr__(self, "dialect", _one_of(Dialect, self.dialect, "dialect"))
        if not BLOCK_BYTES <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise InvalidArgument(
                f"segment_bytes={self.segment_bytes} is out of range",
                hint=f"use {BLOCK_BYTES} to {SEGMENT_BYTES_MAX}",
            )
        if not 0 < self.sync_interval_seconds < float("inf"):
            raise InvalidArgument(
                f"sync_interval_seconds={self.sync_interval_seconds} is not positive",
                hint="use sync='always' to sync every append",
            )
        if not 0 <= self.linger_seconds <= LINGER_SECONDS_MAX:
            raise InvalidArgument(
                f"linger_seconds={self.linger_seconds} is out of range",
                hint=f"use 0 to {LINGER_SECONDS_MAX}",
            )
        if not 1 <= self.syncs_ahead <= SYNCS_AHEAD_MAX:
            raise InvalidArgument(
                f"syncs_ahead={self.syncs_ahead} is out of range",
                hint=f"use 1 to {SYNCS_AHEAD_MAX}",
            )
        if self.recycle_count < 0 or self.group_bytes_max <= 0:
            raise InvalidArgument("recycle_count and group_bytes_max cannot be negative")


Choice = TypeVar("Choice", bound=StrEnum)


def _one_of(choices: type[Choice], given: str, name: str) -> Choice:
    try:
        return choices(given)
    except ValueError as error:
        raise InvalidArgument(
            f"{name}={given!r} is not known", hint=f"use one of {', '.join(choices)}"
        ) from error


def _unchecked() -> None:
    """Accept every writer: it holds a lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """Where logs are written, and whose they are."""

    logs: LogStore
    log_path: Callable[[int], str]
    """Path of a log by its number."""
    owner: LogOwner | None = None
    """None for a log without a table, which has no mark."""
    check_begun: Callable[[], None] = _unchecked
    """Called when the first log is durable, before its mark; raises Fenced for a late writer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTools:
    """Dependencies of a log that tests and recorders replace."""

    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=SystemIds)
    recorder: Recorder = field(default_factory=NoRecorder)
    make_latch: Callable[[], Latch] = Lock
