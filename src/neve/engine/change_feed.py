"""ChangeFeed: the changes of a table's rows between Versions, and changes as they happen.

    changes    lease the Versions ──► are they retained? ──► commit after commit ──► lease released
    follow     the same, and then: wait for a newer Version, lease from there on, continue

ENGINE-11  A feed has committed Versions only: rows that are not flushed are not in it.
ENGINE-12  A feed is complete or fails. Edits, files and vectors of its Versions stay as long as the
           lease does; Versions that have partly expired are refused before the first row.
ENGINE-13  A follower leases history from its position on, even while it waits: nothing expires
           before it is read.
ENGINE-14  A feed that is garbage-collected releases its lease.
"""

import weakref
from collections.abc import Iterator
from threading import Event
from typing import Final, cast

import pyarrow as pa

from neve.engine.table_engine import TableEngine
from neve.errors import Closed, InvalidArgument, NotFound, Phrase, Wording
from neve.model.display import shown
from neve.model.version import Version, apply_edit
from neve.read.change_plan import CommitChanges, grouped, plan_changes
from neve.read.change_rows import ChangeRows
from neve.read.changes import change_batches, feed_schema

# How often a follower checks whether it should end.
_LOOK_AGAIN_SECONDS: Final = 0.05


class ChangeFeed:
    """Returns the changes of one table; safe for many threads."""

    def __init__(self, engine: TableEngine) -> None:
        self._engine = engine

    def changes(self, since: int, until: int | None = None) -> pa.RecordBatchReader:
        """Return the changes after one Version up to another, by default the current one.

        Raises InvalidArgument, and NotFound with the oldest version that is kept.
        """
        stretch = _Stretch(self._engine, since, until)
        return pa.RecordBatchReader.from_batches(
            feed_schema(stretch.rows.context.schema), _batches(stretch)
        )

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


class _HeldHistory:
    """A lease on consecutive Versions, released with this object (ENGINE-14)."""

    def __init__(self, engine: TableEngine, since: int, last: int) -> None:
        self._engine = engine
        self._lease = engine.leases.hold_history(since, last)
        if self._lease is not None:
            weakref.finalize(self, engine.leases.release_history, self._lease)

    def check(self) -> None:
        """Raise when the table was closed or the lease has lapsed; renews a lease when due."""
        self._engine.check_open()
        if self._lease is not None:
            self._lease.check()


class _Stretch:
    """Consecutive Versions that stay readable as long as this is held."""

    def __init__(self, engine: TableEngine, since: int, until: int | None) -> None:
        engine.check_open()
        self._engine = engine
        self._versions = engine.parts.versions
        self.since = since
        self.until = self._checked(since, until)
        self._held = _HeldHistory(engine, since, self.until)
        self._session = self._versions.store.read()
        edit = self._versions.edit_in(self._session, max(self.until, 1))
        self.rows = ChangeRows(
            engine.files, engine.files.context(edit.facts.schema_id), self._held.check
        )

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

    def _checked(self, since: int, until: int | None) -> int:
        """Return the last Version of the stretch; raises InvalidArgument."""
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
        current = self._versions.head().current_version
        asked = since if until is None else until
        if asked > current:
            raise InvalidArgument(
                f"there is no version {asked} yet",
                path=self._engine.parts.paths.manifest,
                hint=f"The current version is {current}",
            )
        return current if until is None else until


def _check_waiting(poll_seconds: object, stop: object) -> None:
    is_number = isinstance(poll_seconds, int | float) and not isinstance(poll_seconds, bool)
    if not (is_number and cast("float", poll_seconds) > 0):
        raise InvalidArgument(
            f"poll_seconds={shown(poll_seconds)} is invalid", hint="Pass a number above 0"
        )
    if stop is not None and not callable(getattr(stop, "is_set", None)):
        raise InvalidArgument(f"stop={shown(stop)} can never be set", hint="Pass a threading.Event")


def _batches(stretch: _Stretch) -> Iterator[pa.RecordBatch]:
    for commit in stretch.commits():
        yield from change_batches(commit, stretch.rows)
