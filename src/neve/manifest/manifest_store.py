"""ManifestStore: a serializable transactional key-value store for small metadata, as objects.

    store = ManifestStore(objects, "manifest/catalog", clock=clock, ids=ids)
    store.transact(lambda session: session.put("root", b"…"))
    value = store.read().get("root")

A leader puts transactions of one process that wait at the same time into one segment; each of them
sees those before it. A transaction function may run more than once, and must have no effect outside
of its session.

MANIFEST-K1  Strictly serializable: a transaction sees every one acknowledged before it began.
MANIFEST-K2  Happy path with a known state: one conditional read, two writes.
MANIFEST-K3  A commit costs as much as its change: a checkpoint is due when the segments since the
             last one are half as large as the checkpoint, so checkpoints are a constant share of
             all writes. A small one is also due by the count of segments.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, Generic, TypeVar

from neve.errors import Conflict, InvalidArgument, LimitExceeded, NeveError, OutcomeUnknown
from neve.manifest.manifest_log import Decision, Loaded, ManifestLog
from neve.manifest.retry import Patience
from neve.manifest.sessions import ReadSession, WriteSession
from neve.storage.clock import Clock, IdSource, SystemClock, SystemIds
from neve.storage.commit_queue import CommitQueue, Latch
from neve.storage.object_store import ObjectStore

Result = TypeVar("Result")
Transaction = Callable[[WriteSession], Result]

FoldEntries = Callable[[dict[str, bytes]], dict[str, bytes]]
"""Maps all entries of a state to those of its checkpoint; a pure function."""

_GROUP_TRANSACTIONS_MAX: Final = 256
_CHECKPOINT_BYTES_MIN: Final = 64 << 10
# Losing a race shows that the store works: a long pause would only starve the loser.
_PAUSE_AFTER_LOSS_SECONDS_MAX: Final = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a manifest store behaves."""

    commit_seconds: float = 30.0
    """How long a commit keeps trying before it gives up."""
    checkpoint_every: int = 64
    """Minimum number of segments between two checkpoints."""
    checkpoint_at_most_every: int = 1024
    """Maximum number of segments that a reader has to fold."""

    def __post_init__(self) -> None:
        if self.commit_seconds <= 0 or self.checkpoint_every < 1:
            raise InvalidArgument("commit_seconds and checkpoint_every must be positive")
        if self.checkpoint_at_most_every < self.checkpoint_every:
            raise InvalidArgument("checkpoint_at_most_every is less than checkpoint_every")


class _Work(Generic[Result]):
    """One transaction in progress; its size in a group is one."""

    __slots__ = ("byte_count", "failure", "result", "run", "saw_staged", "segment")

    def __init__(self, run: Transaction[Result]) -> None:
        self.byte_count = 1
        self.run = run
        self.result: Result | None = None
        self.segment = -1
        """Segment that decided its outcome; -1 before."""
        self.saw_staged = False
        """Whether others of its group had staged changes when it ran."""
        self.failure: Exception | None = None


class ManifestStore:
    """One store; safe for many threads, and for many processes on the same objects."""

    def __init__(
        self,
        objects: ObjectStore,
        prefix: str,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        options: StoreOptions | None = None,
        fold_entries: FoldEntries | None = None,
        make_latch: Callable[[], Latch] = Lock,
    ) -> None:
        """`fold_entries` may rewrite a checkpoint into an equivalent that is faster to read."""
        # fixed at construction
        self._fold_entries = fold_entries
        self.options = options or StoreOptions()
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self.log = ManifestLog(objects, prefix, clock=self._clock, ids=self._ids)
        self._queue: CommitQueue[_Work[object]] = CommitQueue(
            self._commit_group, group_bytes_max=_GROUP_TRANSACTIONS_MAX, make_latch=make_latch
        )
        self._lock = Lock()
        # replaced as a whole, under _lock and only by a newer one; read without the lock
        self._known: Loaded | None = None

    def read(self) -> ReadSession:
        """Return the newest state."""
        return ReadSession(self._refresh(self._patience()).state)

    def read_known(self) -> ReadSession:
        """Return a state with all commits of this process; reads only when it knows none."""
        known = self._known
        return self.read() if known is None else ReadSession(known.state)

    def open(self) -> ReadSession:
        """Return the newest state after finishing the decided commits of dead writers.

        Raises Corruption when HEAD is an old copy.
        """
        patience = self._patience()
        loaded = self.log.catch_up(self._refresh(patience), patience)
        self.log.refuse_old_head(loaded)
        self._remember(loaded)
        return ReadSession(loaded.state)

    def transact(self, run: Transaction[Result]) -> Result:
        """Run a function on a staged view and commit what it staged; return its result.

        It is run again when another process changed what it read. Raises what the function
        raises, Conflict when it kept losing until the deadline, and OutcomeUnknown.
        """
        return self._submit(run).result  # type: ignore[return-value]  # the run has set it

    def write(self) -> WriteSession:
        """Begin a session for `commit`."""
        return WriteSession(self._refresh(self._patience()).state)

    def commit(self, session: WriteSession) -> int:
        """Try once to commit a session; return its segment. Raises Conflict with changed keys."""

        def run(staged: WriteSession) -> None:
            moved = session.moved_keys(staged.view())
            if moved:
                raise Conflict(
                    f"{', '.join(moved[:5])} changed since the session began",
                    keys=moved,
                    path=self.log.paths.prefix,
                    hint="Read again and repeat the change",
                )
            staged.read_like(session)
            staged.staged.update(session.staged)

        return self._submit(run).segment

    def checkpoint_once(self, *, seconds: float | None = None) -> bool:
        """Publish a checkpoint if one is due; False when none is.

        It keeps trying for `seconds`, by default for as long as a commit does.
        """
        known = self._known
        if known is None or not self._checkpoint_is_due(known):
            return False
        patience = self._patience(seconds)
        loaded = self._refresh(patience)  # another process may have published it
        return self._checkpoint_is_due(loaded) and self._publish(loaded, patience)

    def checkpoint(self) -> bool:
        """Publish a checkpoint of the newest state; False when there already is one."""
        patience = self._patience()
        loaded = self._refresh(patience)
        if loaded.state.segment == loaded.state.checkpoint:
            return False
        return self._publish(loaded, patience)

    def _publish(self, loaded: Loaded, patience: Patience) -> bool:
        folded = loaded.state.folded(self._fold_entries)
        published = self.log.publish_checkpoint(folded, patience)
        if published:
            self._remember(Loaded(state=folded, head=loaded.head))
        return published

    def collect_once(self) -> int:
        """Delete segments and checkpoints that no reader needs; return how many."""
        count = 0
        for path in self.log.obsolete_objects():
            self.log.objects.delete(path)
            count += 1
        return count

    def _submit(self, run: Transaction[Result]) -> _Work[Result]:
        work: _Work[Result] = _Work(run)
        self._queue.submit(work)  # type: ignore[arg-type]  # results differ within a group
        if work.failure is not None:
            raise work.failure
        if work.segment < 0:
            raise self._interrupted()
        return work

    def _commit_group(self, group: Sequence[_Work[object]]) -> None:
        """Commit a group as one segment; each transaction gets its own outcome."""
        try:
            self._commit_until_decided(group, self._patience())
        except LimitExceeded as error:
            if len(group) == 1:
                self._fail(group, error)
                return
            # Nothing was written. Transactions that are too large together may fit alone.
            for work in group:
                self._commit_group([work])
        except NeveError as error:
            self._fail(group, error)
        except Exception as error:
            self._fail(group, error)
            raise
        except BaseException:
            self._fail(group, self._interrupted())
            raise

    def _interrupted(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            "the thread that committed for this one was interrupted",
            path=self.log.paths.prefix,
            hint="Read before repeating the change",
        )

    def _fail(self, group: Sequence[_Work[object]], error: Exception) -> None:
        """Pass the error to all but those that failed before anything was staged.

        Other refusals may be based on changes staged by the group, which are lost now.
        """
        for work in group:
            if work.failure is None or work.saw_staged:
                work.failure = error

    def _commit_until_decided(self, group: Sequence[_Work[object]], patience: Patience) -> None:
        base = self._refresh(patience)
        session = self._stage(group, base)
        while session.staged:
            slot = base.state.segment + 1
            decision, loaded = self.log.decide(base, session.staged, patience)
            self._remember(loaded)
            if decision is Decision.COMMITTED:
                for work in group:
                    work.segment = slot
                return
            moved = session.moved_keys(loaded.state)
            self._pause_after_loss(moved, patience)
            base = loaded
            if moved:
                base = self._refresh(patience)
                session = self._stage(group, base)
        for work in group:
            work.segment = base.state.segment

    def _pause_after_loss(self, moved: tuple[str, ...], patience: Patience) -> None:
        """Wait for others that change the same keys; raises Conflict at the deadline.

        Without common keys, waiting would only make this writer lose against new ones again.
        """
        what, path = "other writers kept committing first", self.log.paths.head
        try:
            if moved:
                patience.pause(what, path=path, seconds_max=_PAUSE_AFTER_LOSS_SECONDS_MAX)
            else:
                patience.check(what, path=path)
        except NeveError as error:
            who = f"{', '.join(moved[:5])} kept changing" if moved else "other writers came first"
            raise Conflict(
                f"{who} for {patience.seconds:g} s",
                keys=moved,
                path=self.log.paths.prefix,
                hint="Try again, or let fewer writers change the same keys",
            ) from error

    def _stage(self, group: Sequence[_Work[object]], base: Loaded) -> WriteSession:
        """Run the transactions one after another on one staged view."""
        session = WriteSession(base.state)
        for work in group:
            staged_before = dict(session.staged)
            work.saw_staged = bool(staged_before)
            work.failure = None
            try:
                work.result = work.run(session)
            except Exception as error:  # noqa: BLE001 - it is its own transaction's, not the group's
                work.failure = error
                session.staged = staged_before
        return session

    def _refresh(self, patience: Patience) -> Loaded:
        loaded = self.log.load(self._known, patience)
        self._remember(loaded)
        return loaded

    def _remember(self, loaded: Loaded) -> None:
        with self._lock:
            known = self._known
            if known is None or loaded.state.segment >= known.state.segment:
                self._known = loaded

    def _checkpoint_is_due(self, loaded: Loaded) -> bool:
        state = loaded.state
        distance = state.segment - state.checkpoint
        if distance >= self.options.checkpoint_at_most_every:
            return True
        half = state.entries.byte_count // 2
        if half <= _CHECKPOINT_BYTES_MIN and distance >= self.options.checkpoint_every * 4:
            return True
        return distance >= self.options.checkpoint_every and (
            state.change_bytes >= max(half, _CHECKPOINT_BYTES_MIN)
        )

    def _patience(self, seconds: float | None = None) -> Patience:
        return Patience(self._clock, self._ids, seconds or self.options.commit_seconds)
