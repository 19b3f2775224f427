"""Maintenance of a live table, as its owner asks for it: compact, expire, clean up, verify, undo.

Each call works in the thread that makes it, beside background work, and leaves the table readable
and writable meanwhile. It works on the newest state: what others committed is seen first.

On a full disk, work that frees space gets the space that the log has reserved, and is tried again.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Final, TypeVar

from neve.compaction.rewrite_job import PlanExecutor
from neve.engine.table_engine import TableEngine
from neve.engine.upkeep import ExpireReport, GarbageReport, remove_old_epochs, retained
from neve.engine.verification import (
    FurtherCheck,
    VerifiedTable,
    VerifyReport,
    refuse_problems,
    verify_table,
)
from neve.errors import Conflict, InvalidArgument, NeveError, NotPublished, StorageFull
from neve.jobs.maintenance import rollback_edit
from neve.manifest.table_head import HeadChange
from neve.model.version import Version

_TRIES: Final = 8

Done = TypeVar("Done")
Progress = Callable[[int, int], None]
"""Told how much of how much is done; of what, the call says."""


class Maintenance:
    """Long work on one table; safe for many threads."""

    def __init__(self, engine: TableEngine) -> None:
        self._engine = engine
        self.upkeep = engine.upkeep

    def flush(self) -> int:
        """Commit everything written so far; returns the current Version's number."""
        writer = self._engine.writer
        writer.refresh()
        return writer.flush()

    def compact(
        self,
        *,
        full: bool = False,
        executor: str | PlanExecutor = "local",
        progress: Progress | None = None,
    ) -> int:
        """Flush, then rewrite until no level asks for more; gives the current Version's number.

        `full` rewrites everything into the lowest level, under the current partition spec.
        `executor` is "local" or what executes plans elsewhere. Progress counts rows.
        """
        writer = self._engine.writer
        if executor != "local" and not hasattr(executor, "execute"):
            raise InvalidArgument(
                f"executor={executor!r} is not known", hint='Use "local" or a plan executor'
            )
        _check_progress(progress)
        remote = None if isinstance(executor, str) else executor
        self.flush()
        done = 0
        counting = Lock()

        def count(rows: int) -> None:
            nonlocal done
            with counting:
                done += rows
                if progress is not None:
                    progress(done, max(done, self._engine.current.view.files.version.row_count))

        if full:
            writer.compact_full(count, executor=remote)
        while writer.compact_once(count, executor=remote):
            pass
        return self._engine.current.view.version

    def expire(
        self, *, keep_last: int | None = None, older_than_ms: int | None = None
    ) -> ExpireReport:
        """Let old Versions go; their files are deleted by `collect_garbage`.

        Without arguments as the table's retention says. With one of them the other keeps nothing;
        with both, what either of them keeps stays.
        """
        asked = retained(keep_last=keep_last, older_than_ms=older_than_ms)
        self._let_go()
        return self._with_room(lambda: self.upkeep.expire(**asked))

    def publish_expired(self, version: int) -> bool:
        """Publish what is left after `expire`; False when that has to wait for space on the disk.

        Raises NotPublished when it fails for another reason.
        """
        try:
            self._with_room(lambda: self._engine.publish_committed(version))
        except NotPublished as error:
            if not _wants_space(error):
                raise
            return False
        return True

    def collect_garbage(self, *, dry_run: bool = True) -> GarbageReport:
        """Delete files that nobody reaches; a dry run says which."""
        writer = self._engine.writer
        if dry_run:
            return self.upkeep.preview()
        # First what can be deleted without writing anything: the rest may need its space.
        writer.drop_spare_logs()
        remove_old_epochs(self._engine.parts, below=writer.epoch)
        self._let_go()
        collected = self._with_room(self.upkeep.collect)
        self._engine.parts.versions.store.collect_once()
        with writer.alone():
            swept = self._with_room(lambda: self.upkeep.sweep(dry_run=False))
        return GarbageReport(
            paths=(*collected.paths, *swept.paths),
            byte_count=collected.byte_count + swept.byte_count,
            is_dry_run=False,
        )

    def _let_go(self) -> None:
        """Show the newest Version, and hold no older one that nobody reads."""
        self._with_room(self._engine.writer.refresh)
        self._engine.leases.let_go_of_unread(before=self._engine.current.view.version)

    def _with_room(self, work: Callable[[], Done]) -> Done:
        """Do work that frees space; on a full disk the log's reserve makes room for it."""
        try:
            return work()
        except (StorageFull, NotPublished) as error:
            if not _wants_space(error):
                raise
        self._engine.writer.give_back_space()
        return work()

    def verify(
        self, *, progress: Progress | None = None, further: Sequence[FurtherCheck] = ()
    ) -> VerifyReport:
        """Read everything; raises Corruption, with the report attached, when something is wrong."""
        _check_progress(progress)
        with self._engine.pinned_view() as (view, _):
            table = VerifiedTable(
                parts=self._engine.parts,
                files=self._engine.files,
                definitions=self._engine.definitions,
                version=view.files.version,
            )
            report = verify_table(table, progress or (lambda _done, _total: None), further=further)
        return refuse_problems(report)

    def rollback(self, version: int) -> int:
        """Make an old Version the current one again, after flushing; gives the new number."""
        parts, writer = self._engine.parts, self._engine.writer
        for _ in range(_TRIES):
            writer.flush()
            with writer.alone():
                wanted = self._sequenced(parts.versions.version(version))
                current = parts.versions.snapshot_latest().version
                try:
                    committed = parts.versions.apply_version_edits(
                        [rollback_edit(current, wanted)],
                        HeadChange(writer_epoch=writer.epoch, restored_version=version),
                    )
                except Conflict:
                    continue  # another committer was first
                writer.install(committed)
                return committed.snapshot.version.number
        raise Conflict("other committers kept being first", hint="Try again")

    def _sequenced(self, version: Version) -> Version:
        """Return a Version whose files come back with the data sequence numbers they had."""
        files = self._engine.parts.sequenced(tuple(version.files.values()))
        return replace(version, files={file.path: file for file in files})


def _wants_space(error: NeveError) -> bool:
    """Return whether an error, or what it was raised from, says that the disk is full."""
    return isinstance(error, StorageFull) or isinstance(error.__cause__, StorageFull)


def _check_progress(progress: object) -> None:
    if progress is not None and not callable(progress):
        raise InvalidArgument(
            f"progress={progress!r} cannot be called",
            hint="Give a function of two numbers: how much of how much is done",
        )
