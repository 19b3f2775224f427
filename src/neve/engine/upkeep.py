"""Upkeep: expires old Versions, and deletes files that no reader can reach.

    expire             Versions beyond retention leave the manifest; their files are listed
    collect_garbage    listed files are deleted, unless a lease or a live intent protects them
    sweep              files that no Version ever named: a writer died between writing and commit
    leftovers          temporary files and empty directories, on a local disk:
        .tmp-<id>      of a dead writer; removed when it was not written to for a day
        wal/<epoch>/   of an earlier writer; removed when its logs are gone
        data/<run>/    of a job; removed when its files are gone and its intent has ended

A sweep lists the files first and reads the manifest afterwards. A writer of files is either the
live writer, whose flushes and compactions wait for the sweep, or has announced its files by an
intent that the manifest shows.

ENGINE-U1  A sweep deletes only files that no retained Version reaches, no live intent announced,
           and no record of garbage lists.
           An index file stays only with a data file of the newest Version: it is a cache, and
           readers of older Versions build their own in memory.
ENGINE-U2  A file in a folder of the table that is not named as neve names files is left alone.
ENGINE-U3  Files of expired Versions are deleted only when the published metadata no longer lists
           any of those Versions. While publishing fails they stay.
ENGINE-U4  A directory is removed only when no file will be made in it again: an epoch belongs to
           one writer and a run to one job, and both have ended. Directories of partitions stay.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final, TypeAlias, TypedDict

from neve.engine.publishing import CommitPublishing
from neve.errors import (
    Conflict,
    Fenced,
    InvalidArgument,
    NeveError,
    NotFound,
    Phrase,
    Wording,
)
from neve.manifest.documents import Lease
from neve.manifest.table_garbage import GcPlan, TableGarbage, paths_of
from neve.manifest.version_reader import Session
from neve.manifest.writer_state import Consumer
from neve.model.display import counted, shown_bytes
from neve.observability.events import EventKind
from neve.observability.metrics import GARBAGE_FILES
from neve.storage.bucket_log import BucketLogs
from neve.storage.local_store import LocalStore
from neve.storage.table_paths import split_path
from neve.table.file_writers import delete_data_file
from neve.table.table_context import TableParts

logger = logging.getLogger(__name__)

_PLANS: Final = 8
_ANY_AGE_MS: Final = 1 << 62
_TEND_SECONDS: Final = 300.0
_TEND_SECONDS_MIN: Final = 10.0
_NAMES: Final = {
    "data": re.compile(r"[0-9a-f]{32}\.parquet"),
    "deletes": re.compile(r"[0-9a-f]{32}\.puffin"),
    "index": re.compile(r"[0-9a-f]{32}\.index"),
}
_FURTHER: Final = re.compile(r"[0-9a-f]{32}(-[0-9]+|\.remembered)\.parquet")
"""Deletes by position, which publishing makes, and remembered ones: not swept by their names."""
_EPOCH_NAME: Final = re.compile(r"0|[1-9][0-9]{0,19}")
_RUN: Final = re.compile(r"[0-9a-f]{16}")
_SAFE_AGE_MS: Final = 24 * 60 * 60 * 1_000
"""No process leaves a file that it works on unwritten for a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireReport:
    """What was removed from the table's history."""

    expired_versions: tuple[int, ...]
    kept_versions: tuple[int, ...]
    """Versions beyond retention that tags or readers keep."""
    oldest_version: int
    unreachable_files: int
    """Files that `collect_garbage` may now delete."""
    leases: tuple[Lease, ...] = ()
    """Leases of readers that kept further Versions."""
    consumers: tuple[Consumer, ...] = ()
    """Consumers of the change feed that kept further Versions."""
    is_publishing_due: bool = False
    """Whether other engines still see what expired, because the disk is full.

    `collect_garbage` publishes before it deletes a file, and so does the next commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageReport:
    """What was deleted or, in a dry run, what would be."""

    paths: tuple[str, ...]
    """Relative to the table."""
    byte_count: int
    is_dry_run: bool

    def __repr__(self) -> str:
        done = "would be deleted" if self.is_dry_run else "deleted"
        size = shown_bytes(self.byte_count)
        return f"GarbageReport({counted(self.file_count, 'file')} {done}, {size})"

    @property
    def file_count(self) -> int:
        """Number of files."""
        return len(self.paths)


class Kept(TypedDict):
    """What stays of a table's history: a number of Versions, and those since a time."""

    keep_last: int | None
    older_than_ms: int | None


def retained(*, keep_last: int | None, older_than_ms: int | None) -> Kept:
    """Return what stays; an argument that is None keeps nothing beside the other.

    Without any, the table's retention applies. Raises InvalidArgument.
    """
    if keep_last is not None and (type(keep_last) is not int or keep_last < 1):
        raise InvalidArgument(
            f"keep_last={keep_last!r} is not a number of versions",
            hint="Use 1 or more: the current version is always kept",
        )
    if keep_last is not None and older_than_ms is None:
        older_than_ms = _ANY_AGE_MS
    elif older_than_ms is not None and keep_last is None:
        keep_last = 1
    return Kept(keep_last=keep_last, older_than_ms=older_than_ms)


DeletePaths: TypeAlias = Callable[[Sequence[str]], None]
"""Deletes files of the table by their relative paths, data files with their indexes."""


class Upkeep:
    """Retention and garbage of one table; safe for many threads."""

    def __init__(self, parts: TableParts, *, delete_paths: DeletePaths | None = None) -> None:
        """Begin; `delete_paths` deletes many files at once elsewhere."""
        # Fixed at construction.
        self._parts = parts
        self._delete_paths = delete_paths or self._delete_here
        # Owned by the upkeep thread.
        self._tended_version = 0
        self._tended_at = float("-inf")
        # Held while files are deleted, so that two threads do not work on the same ones.
        self._deleting = Lock()
        self._garbage = TableGarbage(
            parts.versions, parts.writer_state, parts.leases, clock=parts.clock, ids=parts.ids
        )

    def expire(
        self, *, keep_last: int | None = None, older_than_ms: int | None = None
    ) -> ExpireReport:
        """Expire Versions by the table's retention, or by the arguments instead."""
        for _ in range(_PLANS):
            plan = self._garbage.compute_gc_plan(keep_last=keep_last, older_than_ms=older_than_ms)
            try:
                self._garbage.apply_gc_plan(plan)
            except Conflict:
                continue  # a tag or another collector was faster
            if plan.expired_versions:
                self._parts.report(EventKind.EXPIRED, versions=len(plan.expired_versions))
            return _report(plan)
        raise Conflict(
            "the table's retained versions kept changing", hint="Try again", keys=("head",)
        )

    def collect(self) -> GarbageReport:
        """Delete the files of Versions that expired, unless a reader may still need them."""
        with self._deleting:
            return self._collect()

    def _collect(self) -> GarbageReport:
        deleted: list[str] = []
        sizes: list[int] = []
        waiting: list[str] = []

        def delete(path: str) -> None:
            sizes.append(self._size(path))
            waiting.append(path)

        def settle() -> None:
            if waiting and not deleted:
                self._renew_published()
            self._delete_paths(waiting)
            deleted.extend(waiting)
            waiting.clear()

        self._garbage.delete_garbage(delete, find=self._find, settle=settle)
        self._report_deleted(len(deleted), sum(sizes))
        return GarbageReport(paths=tuple(deleted), byte_count=sum(sizes), is_dry_run=False)

    def sweep(self, *, dry_run: bool, epoch: int | None = None) -> GarbageReport:
        """Delete files that no Version ever named; the caller keeps its own flushes out.

        Raises Fenced when `epoch`, the caller's, is not the newest any more: without a lock, the
        files may be those of the next writer. One that begins later writes files that are not
        listed here.
        """
        runs = run_directories(self._parts)
        sizes = self._listed()
        orphans = self._orphans(sizes)
        if epoch is not None:
            refuse_overtaken(self._parts, epoch)
        if not dry_run:
            self._delete_paths(orphans)
            session = self._parts.versions.store.read()
            intents = self._parts.writer_state.intents_in(session)
            remove_ended_runs(
                self._parts, runs, {prefix for intent in intents for prefix in intent.prefixes}
            )
            self._report_deleted(len(orphans), sum(sizes[path] for path in orphans))
            if orphans:
                logger.info("swept table=%s files=%d", self._parts.paths.table_id, len(orphans))
        return GarbageReport(
            paths=tuple(orphans),
            byte_count=sum(sizes[path] for path in orphans),
            is_dry_run=dry_run,
        )

    def preview(self) -> GarbageReport:
        """Report what `collect` and `sweep` would delete if nothing protected it."""
        sizes = self._listed()
        paths = sorted({*self._garbage.pending_paths(), *self._orphans(sizes)})
        known = [path for path in paths if path in sizes]
        return GarbageReport(
            paths=tuple(known), byte_count=sum(sizes[path] for path in known), is_dry_run=True
        )

    def leftovers(self) -> GarbageReport:
        """Report unreachable files without finishing the commits of others: writes nothing."""
        sizes = self._listed()
        orphans = self._orphans(sizes, session=self._parts.versions.store.read())
        return GarbageReport(
            paths=tuple(orphans),
            byte_count=sum(sizes[path] for path in orphans),
            is_dry_run=True,
        )

    def tend_once(self) -> bool:
        """Expire by the table's retention, and collect garbage; always returns False.

        Works only when there is a new Version, and every few minutes for files with leases.
        """
        now = self._parts.clock.monotonic()
        number = self._parts.versions.snapshot_known().head.current_version
        if number == self._tended_version and now < self._tended_at + _TEND_SECONDS:
            return False
        if now < self._tended_at + _TEND_SECONDS_MIN:
            return False
        self._tended_version, self._tended_at = number, now
        report = self.expire()
        if report.expired_versions:
            logger.info(
                "expired table=%s versions=%d",
                self._parts.paths.table_id,
                len(report.expired_versions),
            )
        self.collect()
        self._parts.versions.store.collect_once()
        return False

    def _renew_published(self) -> None:
        """Publish the current Version of a published table (ENGINE-U3); raises NeveError."""
        parts = self._parts
        if parts.published and any(True for _ in parts.objects.list(f"{parts.paths.metadata}/")):
            CommitPublishing(parts).publish_once()

    def _delete_here(self, paths: Sequence[str]) -> None:
        for path in paths:
            delete_data_file(self._parts, path)

    def _report_deleted(self, files: int, byte_count: int) -> None:
        self._parts.recorder.add(GARBAGE_FILES, files)
        if files:
            self._parts.report(EventKind.COLLECTED, files=files, bytes=byte_count)

    def _find(self, prefix: str) -> Iterable[str]:
        root = f"{self._parts.paths.root}/"
        return [
            info.path.removeprefix(root) for info in self._parts.objects.list(f"{root}{prefix}")
        ]

    def foreign_files(self) -> list[str]:
        """Return the files beside the table's whose names neve does not give (ENGINE-U2)."""
        return [
            path
            for path, _, is_own in self._found()
            if not is_own and not _FURTHER.fullmatch(split_path(path)[1])
        ]

    def _listed(self) -> dict[str, int]:
        """Sizes of all files with names that neve gives (ENGINE-U2), by relative path."""
        return {path: size for path, size, is_own in self._found() if is_own}

    def _found(self) -> Iterator[tuple[str, int, bool]]:
        """Yield the files of data, index and deletes: path, size, and whether neve named it."""
        root = f"{self._parts.paths.root}/"
        for folder, pattern in _NAMES.items():
            for info in self._parts.objects.list(f"{root}{folder}/"):
                _, name = split_path(info.path)
                yield info.path.removeprefix(root), info.size, bool(pattern.fullmatch(name))

    def _orphans(self, sizes: Iterable[str], session: Session | None = None) -> list[str]:
        """Find unreachable files among those already listed (ENGINE-U1)."""
        if session is None:
            # A commit that is decided but not in HEAD yet reaches files too: finish it first.
            session = self._parts.versions.store.open()
        reached: set[str] = set()
        newest: set[str] = set()
        for version in self._parts.versions.each_version_in(session):
            newest = paths_of(version)
            reached |= newest
        pending = self._garbage.pending_paths()
        reached |= pending
        announced = tuple(
            prefix
            for intent in self._parts.writer_state.intents_in(session)
            for prefix in intent.prefixes
        )
        paths = self._parts.paths
        indexed = {
            paths.index_of(path).removeprefix(f"{paths.root}/")
            for path in newest | pending  # an index goes with its data file
            if path.startswith("data/")
        }
        orphans = []
        for path in sizes:
            if path in reached or path in indexed or path.startswith(announced or ("\0",)):
                continue
            orphans.append(path)
        return sorted(orphans)

    def _size(self, path: str) -> int:
        try:
            return self._parts.objects.size(f"{self._parts.paths.root}/{path}")
        except NotFound:
            return 0


def _report(plan: GcPlan) -> ExpireReport:
    return ExpireReport(
        expired_versions=plan.expired_versions,
        kept_versions=plan.kept_versions,
        oldest_version=plan.oldest_after,
        unreachable_files=len(plan.paths),
        leases=plan.leases,
        consumers=plan.consumers,
    )


def refuse_overtaken(parts: TableParts, epoch: int) -> None:
    """Raise Fenced when another writer has begun since."""
    newest = parts.versions.head().writer_epoch
    if newest != epoch:
        raise overtaken(parts, newest, epoch)


def overtaken(parts: TableParts, newest: int, epoch: int) -> Fenced:
    """Return the error of a writer that is not the newest any more."""
    return Fenced(
        f"writer {newest} has taken over the table from writer {epoch}",
        path=parts.paths.manifest,
        hint=Wording(Phrase.OPEN_AGAIN),
    )


def forget_decisions(parts: TableParts, flushed_sequence: int) -> None:
    """Leave the decisions of transactions whose parts are in data files; a failure postpones it."""
    if parts.decisions is None:
        return
    try:
        parts.decisions.forget(parts.paths.table_id, flushed_sequence=flushed_sequence)
    except NeveError as error:
        table_id = parts.paths.table_id
        logger.warning("left decisions of transactions table=%s cause=%s", table_id, error)


def remove_old_epochs(parts: TableParts, *, below: int) -> None:
    """Remove the directories of earlier epochs whose logs are all gone (ENGINE-U4)."""
    store = parts.logs
    if isinstance(store, BucketLogs):
        store.clean(parts.paths.wal, below=below)
    elif isinstance(store, LocalStore):
        for name in store.directories(parts.paths.wal):
            if _EPOCH_NAME.fullmatch(name) and int(name) < below:
                # The next writer removes what cannot be removed now.
                with suppress(NeveError):
                    store.remove_abandoned(f"{parts.paths.wal}/{name}")


def run_directories(parts: TableParts) -> list[str]:
    """List the directories of jobs, relative to the table; call this before reading intents."""
    store = parts.objects
    if not isinstance(store, LocalStore):
        return []
    names = store.directories(f"{parts.paths.root}/data")
    return [f"data/{name}/" for name in names if _RUN.fullmatch(name)]


def remove_ended_runs(
    parts: TableParts, directories: Collection[str], announced: Collection[str]
) -> None:
    """Remove directories of jobs that are empty and not announced (ENGINE-U4)."""
    store = parts.objects
    if isinstance(store, LocalStore):
        for directory in set(directories) - set(announced):
            with suppress(NeveError):
                store.remove_abandoned(f"{parts.paths.root}/{directory.rstrip('/')}")


def sweep_leftovers(parts: TableParts) -> None:
    """Remove the temporary files of a table that were not written to for a day."""
    store = parts.objects
    if not isinstance(store, LocalStore):
        return
    before_ms = parts.clock.now_ms() - _SAFE_AGE_MS
    removed = [
        path
        for folder in (parts.paths.root, parts.paths.manifest)
        for path in store.sweep_temporaries(folder, modified_before_ms=before_ms)
    ]
    if removed:
        logger.info("swept temporary files table=%s files=%d", parts.paths.table_id, len(removed))
