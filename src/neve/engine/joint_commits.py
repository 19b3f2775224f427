"""JointCommits: transactions over several tables of a lake, committed by one process.

1. Hold the logs of all tables, in the order of their ids: no other write comes between.
2. Check every table as a transaction of one table does.
3. Log the part of each table, durable, and show it to no one.
4. Decide in the catalog's store (`neve.manifest.decisions`): now it is committed.
5. Show the parts, and release the logs.

Writers of these tables wait meanwhile; there are no other locks, and no deadlocks, because all take
logs in one order. A power cut before 4 leaves parts that the next writer drops; after it, parts
that it shows.

TX-5  Nothing is logged after a part before its decision is known here. If it cannot be found out,
      the logs are given up: reopening the tables shows what was committed.
TX-6  A transaction of a lake sees all parts of another one, or none: `moments` takes the newest
      sequences of all tables while no part is shown, and none of them moves. So do `snapshots`.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import count
from threading import Lock
from typing import Final

from neve.engine.snapshot import Snapshot, SnapshotOrigin
from neve.engine.table_engine import TableEngine
from neve.engine.transaction import Moment, TableTransaction
from neve.engine.write_path import PreparedBatch
from neve.errors import Closed, Conflict, Fenced, NeveError, NotFound, OutcomeUnknown, Unavailable
from neve.manifest.decisions import Decisions
from neve.observability.metrics import TRANSACTION_CONFLICTS, TRANSACTIONS, Recorder
from neve.storage.clock import Clock
from neve.table.table_view import TableView
from neve.wal.append_outcome import cause_of
from neve.wal.batch_codec import prepared_for

_TRIES: Final = 10_000


class JointCommits:
    """Commits over several tables of one lake; safe for many threads."""

    def __init__(self, decisions: Decisions, *, clock: Clock, recorder: Recorder) -> None:
        self._decisions = decisions
        self._clock = clock
        self._recorder = recorder
        self._numbers = count(1)
        # Guarded by _lock: the session, and parts being shown.
        self._lock = Lock()
        self._session: str | None = None
        self._showing = 0
        # Read without the lock: rises when parts begin to be shown, and when they have been.
        self._turns = 0

    def commit(self, written: Sequence[TableTransaction], read: Sequence[TableTransaction]) -> None:
        """Commit transactions of several tables as one, if nothing they depend on has changed.

        `read` wrote nothing, but depend on what they read. Raises Conflict.
        """
        try:
            for transaction in written:
                transaction.engine.writer.admit()
            try:
                self._hold(_Joint(self, written, read))
            except NotFound:
                # A file of an old view is gone: compare with the newest one.
                for transaction in (*written, *read):
                    transaction.engine.refresh()
                self._hold(_Joint(self, written, read))
        except Conflict:
            self._recorder.add(TRANSACTION_CONFLICTS, 1)
            raise
        self._recorder.add(TRANSACTIONS, 1)

    def _hold(self, joint: "_Joint") -> None:
        run: Callable[[], None] = joint.commit
        engines = {each.engine.parts.paths.table_id: each.engine for each in joint.all}
        for table_id in sorted(engines, reverse=True):
            run = _held(engines[table_id], run)
        run()

    def next_transaction(self) -> str:
        """Return the id of the next transaction, under the session of this process."""
        with self._lock:
            if self._session is None:
                self._session = self._decisions.begin_session()
            return f"{self._session}-{next(self._numbers)}"

    def decide(self, transaction: str, parts: dict[str, int]) -> bool:
        """Commit a transaction whose parts are durable; False when it never will be."""
        is_decided = self._decisions.decide(transaction, parts)
        if not is_decided:
            self.lose_session(transaction)
        return is_decided

    def settle(self, transaction: str) -> bool:
        """Find out whether a transaction was decided; if not, it never will be."""
        is_decided = self._decisions.settle(transaction)
        if not is_decided:
            self.lose_session(transaction)
        return is_decided

    def lose_session(self, transaction: str) -> None:
        """Begin another session for the next transaction."""
        with self._lock:
            if self._session is not None and transaction.startswith(f"{self._session}-"):
                self._session = None

    def show(self, show: Callable[[], None]) -> None:
        """Show the parts of a transaction, so that `moments` sees all or none."""
        with self._lock:
            self._showing += 1
            self._turns += 1
        try:
            show()
        finally:
            with self._lock:
                self._showing -= 1
                self._turns += 1

    def moments(self, engines: Iterable[TableEngine]) -> list[Moment]:
        """Return the newest moment of several tables, the same for all; `release` each."""
        taken = [Moment.of(engine) for engine in engines if not engine.is_closed]
        for _ in range(_TRIES):
            turns = self._turns
            if not self._showing:
                found = [each.newest() for each in taken]
                if turns == self._turns and all(each.is_newest() for each in found):
                    pinned = [kept for each in found if (kept := each.pinned()) is not None]
                    if len(pinned) == len(found):
                        return pinned
                    for each in pinned:
                        each.unpin()
            self._clock.sleep(0.0)
        for each in taken:
            each.release()
        raise Unavailable("the tables changed too fast to read them together", hint="Try again")

    def snapshots(self, tables: Sequence[tuple[TableEngine, SnapshotOrigin]]) -> list[Snapshot]:
        """Freeze several tables at the same moment; close each snapshot."""
        engines = [engine for engine, _ in tables]
        for _ in range(_TRIES):
            turns = self._turns
            if not self._showing:
                found = [(each.current.view, each.current.sequence) for each in engines]
                again = [(each.current.view, each.current.sequence) for each in engines]
                # Views are compared by identity.
                if turns == self._turns and found == again and _pin_all(engines, found):
                    return [
                        engine.snapshot_of_pinned(view, sequence, origin)
                        for (engine, origin), (view, sequence) in zip(tables, found, strict=True)
                    ]
            for engine in engines:
                engine.check_open()
            self._clock.sleep(0.0)
        raise Unavailable("the tables changed too fast to read them together", hint="Try again")

    def close(self) -> None:
        """End the session of this process."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            self._decisions.end_session(session)


def _pin_all(engines: Sequence[TableEngine], views: Sequence[tuple[TableView, int]]) -> bool:
    """Pin views of several tables, or none of them."""
    with ExitStack() as stack:
        for engine, (view, sequence) in zip(engines, views, strict=True):
            engine.check_open()
            if not engine.pin_known(view, sequence):
                return False
            stack.callback(engine.unpin_view, view, sequence)
        stack.pop_all()
    return True


class _Joint:
    """One commit; for one thread."""

    def __init__(
        self,
        commits: JointCommits,
        written: Sequence[TableTransaction],
        read: Sequence[TableTransaction],
    ) -> None:
        self._commits = commits
        self._written = written
        self.all = (*written, *read)

    def commit(self) -> None:
        """Check, log, decide and show; the logs of all tables are held."""
        for each in self.all:
            each.check()
        prepared = [each.prepared() for each in self._written]
        if len(prepared) == 1:
            first = self._written[0].engine.writer.log_held(prepared[0].changes)
            self._show(prepared, [first])
            return
        transaction = self._commits.next_transaction()
        firsts = self._log(prepared, transaction)
        parts = {
            each.engine.parts.paths.table_id: first + write.changes.row_count - 1
            for each, write, first in zip(self._written, prepared, firsts, strict=True)
        }
        try:
            is_decided = self._commits.decide(transaction, parts)
        except BaseException as error:
            is_decided = self._find_out(transaction, error)
            if not isinstance(error, NeveError):
                if is_decided:
                    self._show(prepared, firsts)
                raise
        if not is_decided:
            raise Conflict(
                "another process took over a table of the transaction",
                hint="Begin the transaction again",
            )
        self._show(prepared, firsts)

    def _log(self, prepared: Sequence[PreparedBatch], transaction: str) -> list[int]:
        """Log all parts; a part that is not decided is as good as not there."""
        firsts = []
        for each, write in zip(self._written, prepared, strict=True):
            try:
                changes = prepared_for(write.changes, transaction)
                firsts.append(each.engine.writer.log_held(changes))
            except (Fenced, Closed):
                raise
            except OutcomeUnknown as error:
                raise Unavailable(
                    f"nothing of the transaction is committed ({cause_of(error)})",
                    path=error.path,
                    hint="Close every handle of the table and reopen it, then begin again",
                ) from error
        return firsts

    def _find_out(self, transaction: str, error: BaseException) -> bool:
        """Return whether a transaction was decided, after an error that leaves it open (TX-5)."""
        try:
            return self._commits.settle(transaction)
        except BaseException as unknown:
            for each in self._written:
                each.engine.writer.give_up(error)
            if not isinstance(unknown, NeveError):
                raise
            raise OutcomeUnknown(
                f"the transaction may or may not be committed ({cause_of(unknown)})",
                path=unknown.path,
                hint="Reopen its tables, and read the rows back before writing them again",
            ) from error

    def _show(self, prepared: Sequence[PreparedBatch], firsts: Sequence[int]) -> None:
        def show() -> None:
            for each, write, first in zip(self._written, prepared, firsts, strict=True):
                each.engine.writer.show_held(write, first)

        self._commits.show(show)


def _held(engine: TableEngine, action: Callable[[], None]) -> Callable[[], None]:
    return lambda: engine.writer.hold(action)
