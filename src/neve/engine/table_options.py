"""TableOptions: the options of a live table, each with its unit, default and effect.

They belong to a handle, not to the table: another process may open the same table with other ones.
What all writers must agree on (schema, partitions, retention, codec) is a property of the table.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal

from neve.compaction.plan import LevelOptions
from neve.compaction.rewrite_job import TASK_ROWS
from neve.errors import InvalidArgument
from neve.model.display import shown
from neve.wal.log_options import LINGER_SECONDS_MAX, SYNCS_AHEAD_MAX, LogOptions, SyncPolicy
from neve.wal.replay import RecoveryMode


class PublishMode(StrEnum):
    """When commits are published."""

    COMMIT = "commit"
    DEMAND = "demand"


MEMTABLE_BYTES_MIN: Final = 1 << 10


def check_flags(**flags: object) -> None:
    """Raise InvalidArgument for an argument, by its name, that is not True or False."""
    for name, value in flags.items():
        if type(value) is not bool:
            raise InvalidArgument(f"{name}={shown(value)} is invalid", hint="Use True or False")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """How one handle of a table writes, keeps and reads.

        sync                   When a write is acknowledged: `group` and `always` when durable,
                               `interval` and `none` when the operating system has it.
        sync_interval_seconds  With `interval`: the time between two syncs; with `background` they
                               go on when writers pause.
        linger_ms              How long a write waits for others that share its sync: fewer requests
                               to a bucket, which are paid for, and a later answer.
        puts_in_flight         In a bucket: groups of writes that are on their way at once. They are
                               acknowledged in order, and take one request each.
        log                    In a bucket: a directory of this machine for the log, in place of
                               the bucket. Writes are as fast as its disk; rows that are not
                               flushed are lost with the machine.
        log_bytes              Size at which a log file ends and the next one begins; its space is
                               reserved ahead as it grows, and a log that is no longer needed is
                               reused.
        recovery               What opening does about a damaged log; see `neve.wal.replay`.
        memtable_bytes         Rows in memory are flushed to a data file when they take this much.
        frozen_memtables       Full memtables that may wait for their flush; with more, writers
                               wait.
        transaction_bytes      Flushed rows that are kept in memory while a transaction is open, to
                               find conflicts. Beyond this, a transaction that began before them
                               cannot be committed.
        flush_seconds          With `background`: rows are flushed, and so seen by other engines, at
                               most about this long after they were written; None waits until
                               memory is full.
        flush_on_close         Flush when the table is closed, instead of leaving rows in the log.
        background             Flush, compact and clean up in threads of the process; otherwise only
                               when called.
        level0_files           Young files that start a compaction.
        level0_files_slow      Young files at which writers slow down, more with each further file.
        level0_files_max       Young files at which writers wait for compaction.
        level1_bytes           Bytes of level 1; each level below holds `level_ratio` times as many.
        level_ratio            How many times larger each level is than the one above.
        file_bytes             Size at which a data file ends and the next one begins.
        dual_levels            Files of levels below this number get their rows ready to read by key
                               when they are written, at the cost of several times their space.
        row_index_bytes        With `background`: most bytes of rows that are made ready to read by
                               key later, where reads would decode the same Parquet again and again;
                               None is as much as the data files have.
        garbage_ratio          Share of deleted rows above which a file is rewritten.
        compaction_bytes       Most bytes one compaction reads.
        compaction_threads     Compactions of different files that run at once, with `background`;
                               each takes memory.
        compaction_task_rows   Rows of one task. A large compaction has several tasks, here one
                               after another and on Spark at once; more rows where files would
                               become small.
        cache_bytes            Decoded rows of old files and vectors that are kept in memory.
        lease_seconds          How long a snapshot outlives a reader that died; live readers renew
                               it.
        iceberg_publish        When Iceberg's metadata is written: with every `commit`, or on
                               `demand`, when asked for.

    Each is passed by name: `neve.TableOptions(background=False, cache_bytes=1 << 30)`.
    """

    sync: SyncPolicy | Literal["group", "always", "interval", "none"] = SyncPolicy.GROUP
    sync_interval_seconds: float = 0.1
    linger_ms: float = 0.0
    puts_in_flight: int = 1
    log: str | None = None
    log_bytes: int = 16 << 20
    recovery: (
        RecoveryMode | Literal["tolerate_torn_tail", "absolute", "point_in_time", "skip_corrupt"]
    ) = RecoveryMode.TOLERATE_TORN_TAIL
    memtable_bytes: int = 64 << 20
    frozen_memtables: int = 2
    transaction_bytes: int = 256 << 20
    flush_seconds: float | None = None
    flush_on_close: bool = False
    background: bool = True
    level0_files: int = 4
    level0_files_slow: int = 12
    level0_files_max: int = 24
    level1_bytes: int = 256 << 20
    level_ratio: int = 10
    file_bytes: int = 64 << 20
    dual_levels: int = 0
    row_index_bytes: int | None = None
    garbage_ratio: float = 0.3
    compaction_bytes: int = 1 << 30
    compaction_threads: int = 2
    compaction_task_rows: int = TASK_ROWS
    cache_bytes: int = 256 << 20
    lease_seconds: float = 600.0
    iceberg_publish: PublishMode | Literal["commit", "demand"] = PublishMode.COMMIT

    def __post_init__(self) -> None:
        is_number = type(self.linger_ms) in {int, float}
        if not (is_number and 0 <= self.linger_ms <= 1_000 * LINGER_SECONDS_MAX):
            raise InvalidArgument(
                f"linger_ms={self.linger_ms!r} is invalid",
                hint=f"Use 0 to {1_000 * LINGER_SECONDS_MAX:,.0f}",
            )
        if type(self.puts_in_flight) is not int or not 1 <= self.puts_in_flight <= SYNCS_AHEAD_MAX:
            raise InvalidArgument(
                f"puts_in_flight={self.puts_in_flight!r} is invalid",
                hint=f"Use 1 to {SYNCS_AHEAD_MAX}",
            )
        # LogOptions and LevelOptions check their own part.
        _ = (self.log_options, self.level_options)
        try:
            RecoveryMode(self.recovery)
        except ValueError as error:
            raise InvalidArgument(
                f"recovery={self.recovery!r} is not known",
                hint=f"Use one of {', '.join(RecoveryMode)}",
            ) from error
        self._check_whole("memtable_bytes", MEMTABLE_BYTES_MIN)
        for name in (
            "frozen_memtables",
            "transaction_bytes",
            "cache_bytes",
            "compaction_threads",
            "compaction_task_rows",
            "level0_files_slow",
            "level0_files_max",
        ):
            self._check_whole(name, 1)
        if self.row_index_bytes is not None:
            self._check_whole("row_index_bytes", 0)
        check_flags(background=self.background, flush_on_close=self.flush_on_close)
        if self.flush_seconds is not None and not (
            type(self.flush_seconds) in {int, float} and 0 < self.flush_seconds <= 24 * 60 * 60
        ):
            raise InvalidArgument(
                f"flush_seconds={self.flush_seconds!r} is invalid",
                hint="Use up to a day, or None",
            )
        if not self.level0_files <= self.level0_files_slow <= self.level0_files_max:
            raise InvalidArgument(
                "level0_files, level0_files_slow and level0_files_max do not ascend",
                hint="Pass ascending values: compaction begins, writers slow down, writers wait",
            )
        if self.iceberg_publish not in set(PublishMode):
            raise InvalidArgument(
                f"iceberg_publish={self.iceberg_publish!r} is not known",
                hint=f"Use one of {', '.join(PublishMode)}",
            )
        is_number = type(self.lease_seconds) in {int, float}
        if not (is_number and 0 < self.lease_seconds <= 24 * 60 * 60):
            raise InvalidArgument(
                f"lease_seconds={self.lease_seconds!r} is invalid", hint="Use up to a day"
            )

    def _check_whole(self, name: str, least: int) -> None:
        value: object = getattr(self, name)
        if type(value) is not int or value < least:
            raise InvalidArgument(
                f"{name}={value!r} is invalid", hint=f"Use an integer >= {least:,}"
            )

    @property
    def log_options(self) -> LogOptions:
        """The options of the log."""
        return LogOptions(
            sync=SyncPolicy(self.sync) if self.sync in set(SyncPolicy) else self.sync,  # type: ignore[arg-type]
            sync_interval_seconds=self.sync_interval_seconds,
            segment_bytes=self.log_bytes,
            recycle_count=1,
            linger_seconds=self.linger_ms / 1_000,
        )

    @property
    def bucket_log_options(self) -> LogOptions:
        """The options of a log in a bucket, where no space can be reserved or used again."""
        return replace(
            self.log_options,
            preallocate=False,
            recycle_count=0,
            syncs_ahead=self.puts_in_flight,
        )

    @property
    def plans_moved_at_once(self) -> int:
        """Plans that may each add a young file to a partition before writers slow down."""
        return max(1, self.level0_files_slow - self.level0_files)

    @property
    def level_options(self) -> LevelOptions:
        """The options of the compaction policy."""
        return LevelOptions(
            level0_files=self.level0_files,
            level1_bytes=self.level1_bytes,
            level_ratio=self.level_ratio,
            file_bytes=self.file_bytes,
            dual_levels=self.dual_levels,
            garbage_ratio=self.garbage_ratio,
            job_bytes_max=self.compaction_bytes,
        )
