"""ChangeFeed: the changes of a table's rows between Versions, and changes as they happen.

    changes    lease the Versions ──► are they retained? ──► commit after commit ──► lease released
    follow     the same, and then: wait for a newer Version, lease from there on, continue
    consume    the position of a named consumer ──► its changes, as above ──► its new position

ENGINE-11  A feed has committed Versions only: rows that are not flushed are not in it.
ENGINE-12  A feed is complete or fails. Edits, files and vectors of its Versions stay as long as the
           lease does; Versions that have partly expired are refused before the first row.
ENGINE-13  A follower leases history from its position on, even while it waits: nothing expires
           before it is read.
ENGINE-14  A feed that is garbage-collected releases its lease.
ENGINE-15  The position of a consumer moves when its reader was read to the end, in one commit, and
           while the reader still holds its lease. A reader that ends before moves nothing.
"""

import math
import weakref
from collections.abc import Iterator
from threading import Event
from typing import Final, cast

import pyarrow as pa

from neve.engine.table_engine import TableEngine
from neve.errors import Closed, InvalidArgument, NotFound, Phrase, Wording
from neve.manifest.writer_state import Consumer
from neve.model.display import shown
from neve.model.version import Version, apply_edit
from neve.read.change_plan import CommitChanges, grouped, plan_changes
from neve.read.change_rows import ChangeRows
from neve.read.changes import change_batches, feed_schema

# How often a follower checks whether it should end.
_LOOK_AGAIN_SECONDS: Final = 0.05
_KEEP_SECONDS_MAX: Final = 10 * 366 * 24 * 60 * 60


class ChangeFeed:
    """Returns the changes of one table; safe for many threads."""

    def __init__(self, engine: TableEngine) -> None:
        self._engine = engine

    def changes(self, since: int, until: int | None = None) -> pa.RecordBatchReader:
        """Return the changes after one Version up to another, by default the current one.

        Raises InvalidArgument, and NotFound with the oldest version that is kept.
        """
        stretch = _Stretch(self._engine, since, until)
        return pa.RecordBatchReader.from_batches(stretch.schema, stretch.batches())

    def consume(
        self, name: str, since: int | None = None, *, keep_seconds: float | None = None
    ) -> "ConsumedChanges":
        """Return the changes after the position of a consumer, up to the current Version.

        A new consumer begins after `since`; one that exists skips to it, but never goes back.
        Raises InvalidArgument, and NotFound when history after its position has expired.
        """
        engine = self._engine
        engine.check_open()
        keep_ms = None if keep_seconds is None else _checked_keep_ms(keep_seconds)
        if since is not None:
            _checked_until(engine, since, None)
        consumer = engine.parts.work.begin_consumer(name, since=since, keep_ms=keep_ms)
        return ConsumedChanges(engine, consumer, since=max(consumer.position, since or 0))

    def follow(
        self, since: int, *, poll_seconds: float, stop: Event | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the changes after a Version, and wait for more; ends when the table is closed.

        Commits of this process are seen at once, those of others every `poll_seconds`.
        """
        _check_waiting(poll_seconds, stop)
        stretch = _Stretch(self._engine, since, None)
        return self._follow(stretch, poll_seconds, stop or Event())

    def _follow(
        self, stretch: "_Stretch", poll_seconds: float, stop: Event
    ) -> Iterator[pa.RecordBatch]:
        while True:
            for commit in stretch.commits():
                if self._is_over(stop):
                    return
                is_begun = False
                try:
                    for batch in change_batches(commit, stretch.rows):
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
                stretch = _Stretch(self._engine, stretch.until, None)
            except Closed:
                if self._engine.is_closed:
                    return
                raise

    def _wait(self, stretch: "_Stretch", poll_seconds: float, stop: Event) -> bool:
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


class ConsumedChanges:
    """The changes that a consumer has not read yet."""

    def __init__(self, engine: TableEngine, consumer: Consumer, *, since: int) -> None:
        self._engine = engine
        self._consumer = consumer
        self._stretch = _Stretch(engine, since, None, consumer=consumer.name)

    @property
    def since(self) -> int:
        """The Version after which the changes begin."""
        return self._stretch.since

    @property
    def until(self) -> int:
        """The last Version that is read, and the position of the consumer afterwards."""
        return self._stretch.until

    @property
    def schema(self) -> pa.Schema:
        """The columns of a batch."""
        return self._stretch.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes; the position stays until `finish`."""
        return self._stretch.batches()

    def finish(self) -> None:
        """Move the position of the consumer, after everything was read (ENGINE-15)."""
        self._engine.check_open()
        self._engine.parts.work.advance_consumer(self._consumer, self.until)

    def reader(self) -> pa.RecordBatchReader:
        """Return a reader that finishes when it is read to its end."""
        return pa.RecordBatchReader.from_batches(self.schema, self._finishing())

    def _finishing(self) -> Iterator[pa.RecordBatch]:
        yield from self.batches()
        self.finish()


class _HeldHistory:
    """A lease on consecutive Versions, released with this object (ENGINE-14)."""

    def __init__(
        self, engine: TableEngine, since: int, last: int, *, consumer: str | None = None
    ) -> None:
        self._engine = engine
        self._lease = engine.leases.hold_history(since, last, consumer=consumer)
        if self._lease is not None:
            weakref.finalize(self, engine.leases.release_history, self._lease)

    def check(self) -> None:
        """Raise when the table was closed or the lease has lapsed; renews a lease when due."""
        self._engine.check_open()
        if self._lease is not None:
            self._lease.check()


class _Stretch:
    """Consecutive Versions that stay readable as long as this is held."""

    def __init__(
        self, engine: TableEngine, since: int, until: int | None, *, consumer: str | None = None
    ) -> None:
        engine.check_open()
        self._versions = engine.parts.versions
        self.since = since
        self.until = _checked_until(engine, since, until)
        self._held = _HeldHistory(engine, since, self.until, consumer=consumer)
        self._session = self._versions.store.read()
        edit = self._versions.edit_in(self._session, max(self.until, since, 1))
        self.rows = ChangeRows(
            engine.files, engine.files.context(edit.facts.schema_id), self._held.check
        )
        self.schema = feed_schema(self.rows.context.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes of all commits."""
        for commit in self.commits():
            yield from change_batches(commit, self.rows)

    def commits(self) -> Iterator[CommitChanges]:
        """Yield the changes of each commit, in order; skips commits that changed no row.

        Read the rows of a commit before taking the next commit.
        """
        for group in grouped(self._commits()):
            self.rows.read_together(group)
            yield from group
        # A waiting follower holds no rows.
        self.rows.read_together(())

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
