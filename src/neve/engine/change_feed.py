"""ChangeFeed: the changes of a table's rows between Versions, and changes as they happen.

    changes    lease the Versions ──► are they retained? ──► commit after commit ──► lease released
      live     refresh, take a view ──► the same up to its Version ──► its rows in memory
    follow     the same, and then: wait for a newer Version, lease from there on, continue
    consume    the position of a named consumer ──► its changes, as above ──► its new position

ENGINE-11  A feed has committed Versions only, unless it is live: then the changes of unflushed rows
           follow, of the same view as the last Version. So no change is missing or there twice.
ENGINE-12  A feed is complete or fails. Edits, files and vectors of its Versions stay as long as the
           lease does; Versions that have partly expired are refused before the first row.
ENGINE-13  A follower leases history from its position on, even while it waits: nothing expires
           before it is read.
ENGINE-14  A feed that is garbage-collected releases its lease.
ENGINE-15  The position of a consumer moves when its reader was read to the end, in one commit, and
           while the reader still holds its lease. A reader that ends before moves nothing. Live
           changes do not count: the position is a Version.
"""

import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Final, cast

import pyarrow as pa
from pyroaring import BitMap64

from neve.engine.background import end_forgotten
from neve.engine.table_engine import TableEngine
from neve.engine.table_options import check_flags
from neve.errors import Closed, InvalidArgument, NotFound, Phrase, Wording
from neve.manifest.writer_state import Consumer
from neve.model.display import shown
from neve.model.version import Version, apply_edit
from neve.read.change_plan import CommitChanges, grouped, plan_changes, plan_live_changes
from neve.read.change_rows import ChangeRows
from neve.read.changes import change_batches, feed_schema
from neve.read.memory_rows import MemoryRows
from neve.table.table_files import TableFiles
from neve.table.table_view import TableView

# How often a follower checks whether it should end.
_LOOK_AGAIN_SECONDS: Final = 0.05
_KEEP_SECONDS_MAX: Final = 10 * 366 * 24 * 60 * 60


class ChangeFeed:
    """Returns the changes of one table; safe for many threads."""

    def __init__(self, engine: TableEngine) -> None:
        self._engine = engine

    def changes(self, since: int, until: int | None = None, *, live: bool = False) -> "Changes":
        """Return the changes after one Version up to another, by default the current one.

        Raises InvalidArgument, and NotFound with the oldest version that is kept.
        """
        engine = self._engine
        engine.check_open()
        _check_live(live, until)
        last = _checked_until(engine, since, until)
        if not live:
            return Changes(engine, since, last)
        with self._live_rows() as rows:
            return Changes(engine, since, rows.view.version, live=rows)

    def consume(
        self,
        name: str,
        since: int | None = None,
        *,
        keep_seconds: float | None = None,
        live: bool = False,
    ) -> "ConsumedChanges":
        """Return the changes after the position of a consumer, up to the current Version.

        A new consumer begins after `since`; one that exists skips to it, but never goes back.
        Raises InvalidArgument, and NotFound when history after its position has expired.
        """
        engine = self._engine
        engine.check_open()
        _check_live(live, None)
        keep_ms = None if keep_seconds is None else _checked_keep_ms(keep_seconds)
        if since is not None:
            _checked_until(engine, since, None)
        consumer = engine.parts.writer_state.begin_consumer(name, since=since, keep_ms=keep_ms)
        first = max(consumer.position, since or 0)
        if not live:
            return ConsumedChanges(engine, consumer, first, _checked_until(engine, first, None))
        with self._live_rows() as rows:
            return ConsumedChanges(engine, consumer, first, rows.view.version, live=rows)

    @contextmanager
    def _live_rows(self) -> Iterator["_LiveRows"]:
        """Take the newest view; its Version is kept for the block, its rows in memory longer."""
        self._engine.refresh()
        with self._engine.pinned_view() as (view, sequence):
            yield _LiveRows(view, MemoryRows(view, sequence))

    def follow(
        self, since: int, *, poll_seconds: float, stop: Event | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the changes after a Version, and wait for more; ends when the table is closed.

        Commits of this process are seen at once, those of others every `poll_seconds`.
        """
        _check_waiting(poll_seconds, stop)
        self._engine.check_open()
        stretch = Changes(self._engine, since, _checked_until(self._engine, since, None))
        return self._follow(stretch, poll_seconds, stop or Event())

    def _follow(
        self, stretch: "Changes", poll_seconds: float, stop: Event
    ) -> Iterator[pa.RecordBatch]:
        while True:
            for commit in stretch.commits():
                if self._is_over(stop):
                    return
                is_begun = False
                try:
                    for batch in stretch.batches_of(commit):
                        is_begun = True
                        yield batch
                except Closed:
                    # In the middle of a commit this is an error: its other rows are missing.
                    if is_begun or not self._engine.is_closed:
                        raise
                    return
            try:
                if not self._wait(stretch, poll_seconds, stop):
                    return
                # Take the new lease before releasing the old one (ENGINE-13).
                newest = _checked_until(self._engine, stretch.until, None)
                read, stretch = stretch, Changes(self._engine, stretch.until, newest)
                read.release()
            except Closed:
                if self._engine.is_closed:
                    return
                raise

    def _wait(self, stretch: "Changes", poll_seconds: float, stop: Event) -> bool:
        """Wait for a Version after a stretch; False when the feed should end."""
        engine = self._engine
        clock = engine.parts.clock
        while not self._is_over(stop):
            stretch.check()
            head = engine.parts.versions.head()
            if head.dropped:
                raise NotFound("the table was dropped", path=engine.parts.paths.manifest)
            if head.current_version > stretch.until:
                return True
            ends_at = clock.monotonic() + poll_seconds
            while (left := ends_at - clock.monotonic()) > 0:
                if self._is_over(stop):
                    return False
                if engine.current.wait_beyond(stretch.until, min(left, _LOOK_AGAIN_SECONDS)):
                    return True
        return False

    def _is_over(self, stop: Event) -> bool:
        return stop.is_set() or self._engine.is_closed


class _HeldHistory:
    """A lease on consecutive Versions, released with this object at the latest (ENGINE-14)."""

    def __init__(
        self, engine: TableEngine, since: int, last: int, *, consumer: str | None = None
    ) -> None:
        self._engine = engine
        self._lease = engine.leases.hold_history(since, last, consumer=consumer)
        self._end: weakref.finalize[..., _HeldHistory] | None = None
        if self._lease is not None:
            end = partial(engine.leases.release_history, self._lease)
            self._end = weakref.finalize(self, end_forgotten, end)

    def release(self) -> None:
        """End the lease now, in this thread; twice is not an error."""
        if self._lease is not None and self._end is not None and self._end.detach() is not None:
            self._engine.leases.release_history(self._lease)

    def check(self) -> None:
        """Raise when the table was closed or the lease has lapsed; renews a lease when due."""
        self._engine.check_open()
        if self._lease is not None:
            self._lease.check()


@dataclass(frozen=True, slots=True)
class _LiveRows:
    """A view, and its rows in memory."""

    view: TableView
    memory: MemoryRows

    def replaced(self, files: TableFiles) -> dict[str, BitMap64]:
        """Find the rows in files that were written again or deleted, by path."""
        found: dict[str, BitMap64] = {}
        for keys in self.memory.changed_keys():
            for path, positions in files.superseded(self.view.files.version, keys).items():
                found[path] = found[path] | positions if path in found else positions
        return found


class Changes:
    """The changes of consecutive Versions, which stay readable as long as this is held."""

    def __init__(
        self,
        engine: TableEngine,
        since: int,
        until: int,
        *,
        live: _LiveRows | None = None,
        consumer: str | None = None,
    ) -> None:
        self.since = since
        """The Version after which the changes begin."""
        self.until = until
        """The last Version that is read."""
        self._files = engine.files
        self._live = live
        self._versions = engine.parts.versions
        self._held = _HeldHistory(engine, since, until, consumer=consumer)
        self._session = self._versions.store.read()
        if live is None:
            edit = self._versions.edit_in(self._session, max(until, since, 1))
            context = engine.files.context(edit.facts.schema_id)
        else:
            context = live.view.context
        self._rows = ChangeRows(engine.files, context, self._held.check)
        self.schema = feed_schema(context.schema, live=live is not None)
        """The columns of a batch."""

    def reader(self) -> pa.RecordBatchReader:
        """Return all changes as a reader, which releases them at its end."""
        return pa.RecordBatchReader.from_batches(self.schema, self._released_after())

    def release(self) -> None:
        """Keep the Versions no longer; nothing can be read after that."""
        self._held.release()

    def _released_after(self) -> Iterator[pa.RecordBatch]:
        yield from self.batches()
        self.release()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes of all commits, then those of the rows in memory."""
        for commit in self.commits():
            yield from self.batches_of(commit)
        if self._live is not None:
            self.check()
            version, memory = self._live.view.files.version, self._live.memory
            commit = plan_live_changes(version, self._live.replaced(self._files))
            yield from change_batches(commit, self._rows, self.schema, memory=memory)

    def batches_of(self, commit: CommitChanges) -> Iterator[pa.RecordBatch]:
        """Yield the changes of one commit."""
        return change_batches(commit, self._rows, self.schema)

    def commits(self) -> Iterator[CommitChanges]:
        """Yield the changes of each commit, in order; skips commits that changed no row.

        Read the rows of a commit before taking the next commit.
        """
        for group in grouped(self._commits()):
            self._rows.read_together(group)
            yield from group
        # A waiting follower holds no rows.
        self._rows.read_together(())

    def _commits(self) -> Iterator[CommitChanges]:
        versions, session = self._versions, self._session
        before: Version | None = None
        if self.since and self.since < self.until:
            before = versions.version_in(session, self.since)
        for number in range(self.since + 1, self.until + 1):
            edit = versions.edit_in(session, number)
            after = apply_edit(before, edit)
            commit = plan_changes(before, edit, after)
            if commit is not None:
                yield commit
            before = after

    def check(self) -> None:
        """Raise when the table was closed or history may be gone."""
        self._held.check()


class ConsumedChanges(Changes):
    """The changes that a consumer has not read yet."""

    def __init__(
        self,
        engine: TableEngine,
        consumer: Consumer,
        since: int,
        until: int,
        *,
        live: _LiveRows | None = None,
    ) -> None:
        super().__init__(engine, since, until, live=live, consumer=consumer.name)
        self._engine = engine
        self._consumer = consumer

    def finish(self) -> None:
        """Move the position of the consumer to `until`, after everything was read (ENGINE-15)."""
        self._engine.check_open()
        self._engine.parts.writer_state.advance_consumer(self._consumer, self.until)

    def _released_after(self) -> Iterator[pa.RecordBatch]:
        yield from self.batches()
        self.finish()
        self.release()


def _checked_until(engine: TableEngine, since: int, until: int | None) -> int:
    """Return the last Version of a stretch; raises InvalidArgument."""
    for name, number in (("since", since), ("until", since if until is None else until)):
        if type(number) is not int or number < 0:
            raise InvalidArgument(
                Wording(Phrase.NOT_A_VERSION, name=name, number=shown(number)),
                hint=Wording(Phrase.NAME_A_NUMBER),
            )
    if until is not None and until < since:
        raise InvalidArgument(
            Wording(Phrase.UNTIL_BEFORE_SINCE, until=until, since=since),
            hint="Swap the two versions",
        )
    current = engine.parts.versions.head().current_version
    asked = since if until is None else until
    if asked > current:
        raise InvalidArgument(
            f"there is no version {asked} yet",
            path=engine.parts.paths.manifest,
            hint=f"The current version is {current}",
        )
    return current if until is None else until


def _check_live(live: object, until: int | None) -> None:
    check_flags(live=live)
    if live and until is not None:
        raise InvalidArgument(
            "live changes come after the current version, not after another one",
            hint="Leave out until, or read without live",
        )


def _checked_keep_ms(keep_seconds: object) -> int:
    is_number = isinstance(keep_seconds, int | float) and not isinstance(keep_seconds, bool)
    if not (is_number and 0 < cast("float", keep_seconds) <= _KEEP_SECONDS_MAX):
        raise InvalidArgument(
            f"keep_seconds={shown(keep_seconds)} is invalid",
            hint=f"Pass a number above 0, at most {_KEEP_SECONDS_MAX:,}",
        )
    return math.ceil(cast("float", keep_seconds) * 1_000)


def _check_waiting(poll_seconds: object, stop: object) -> None:
    is_number = isinstance(poll_seconds, int | float) and not isinstance(poll_seconds, bool)
    if not (is_number and cast("float", poll_seconds) > 0):
        raise InvalidArgument(
            f"poll_seconds={shown(poll_seconds)} is invalid", hint="Pass a number above 0"
        )
    if stop is not None and not callable(getattr(stop, "is_set", None)):
        raise InvalidArgument(f"stop={shown(stop)} can never be set", hint="Pass a threading.Event")
