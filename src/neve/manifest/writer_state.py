"""WriterState: the writer, job intents, reservations, tags and consumers of a table.

MANIFEST-N1  Taking the table over raises the writer epoch; every commit of the previous writer is
             refused.
MANIFEST-N2  A job registers its intent before it writes its first file. Garbage collection leaves
             files of live intents alone, and ends an expired one by a commit; a job can only commit
             while its intent exists. Files that a withdrawn or expired intent announced are
             abandoned: they are found and deleted. File names are never used twice, not even by a
             job that is repeated.
MANIFEST-N3  A reservation holds other committers back for a bounded time, and ends by itself. It
             cannot be extended; the same job gets another one only after others had as long.
MANIFEST-N4  Dropping is permanent, and no work begins on a dropped table. Its head stays even when
             its files are deleted: it shows a writer that slept that the table is gone.
MANIFEST-N5  A finished job is remembered for a week, so that it is committed only once even if it
             is repeated; the week counts by the table's own time, not by a collector's clock.
             Batches of applications are remembered for ever.
MANIFEST-N6  A consumer is stored with the last Version that it has read. Its position only moves
             forward, and only by a reader that began at or before it; a consumer that was dropped
             meanwhile stays dropped.
MANIFEST-N7  A consumer keeps history from its position on until it has shown no sign of life for
             `keep_ms`: it read something, or came to the end with nothing to read. A sign from more
             than a day ahead of the clock is not honoured: it could keep history for years.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from neve.errors import (
    AlreadyExists,
    Conflict,
    Corruption,
    InvalidArgument,
    NotFound,
    Phrase,
    Wording,
)
from neve.manifest.json_document import Document, write_document
from neve.manifest.sessions import WriteSession
from neve.manifest.table_head import (
    ABANDONED_PREFIX,
    CONSUMER_PREFIX,
    HEAD_KEY,
    INTENT_PREFIX,
    JOB_PREFIX,
    PURGE_KEY,
    RESERVATION_KEY,
    RESERVATION_MS_MAX,
    TAG_PREFIX,
    Reservation,
    TableHead,
    abandoned_key,
    consumer_key,
    intent_key,
    job_key,
    read_tag,
    tag_key,
)
from neve.manifest.table_versions import TableVersions
from neve.manifest.version_fold import tag_value
from neve.manifest.version_reader import Session, expired_history
from neve.model.suggestions import similar_name_hint
from neve.storage.clock import Clock
from neve.storage.table_paths import check_prefix

DELETABLE: Final = ("data/", "deletes/")
"""Where garbage collection may delete files."""

_MAIN: Final = "main"
_FORMAT: Final = 1
_DAY_MS: Final = 24 * 60 * 60 * 1000
_JOB_MEMORY_MS: Final = 7 * _DAY_MS
CONSUMER_KEEP_MS: Final = 7 * _DAY_MS
"""How long a consumer keeps history without a sign of life, unless it asks for another time."""
_SIGNS_OF_LIFE: Final = 8
"""How often, in that time, a consumer that finds nothing new stores a sign of life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """Files a job is about to write: those whose names begin with one of the prefixes."""

    job_id: str
    prefixes: tuple[str, ...]
    deadline_ms: int

    def __post_init__(self) -> None:
        intent_key(self.job_id)
        if not all(self.prefixes):
            raise InvalidArgument(
                f"the intent of job {self.job_id} covers every file",
                hint="Pass prefixes of the names that the job will write",
            )
        for prefix in self.prefixes:
            check_prefix(prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """Files announced by a withdrawn or expired intent; its job cannot commit any more."""

    job_id: str
    prefixes: tuple[str, ...]
    ended_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A named reader of the change feed, and how far it has come."""

    name: str
    position: int
    """The last Version that it has read; 0 before the first."""
    updated_ms: int
    """When it last showed a sign of life."""
    keep_ms: int

    @property
    def first_version(self) -> int:
        """The oldest Version that it needs to continue: changes come between two Versions."""
        return max(self.position, 1)

    @property
    def keeps_until_ms(self) -> int:
        """When it stops keeping history, unless it shows a sign of life before."""
        return self.updated_ms + self.keep_ms

    def holds(self, head: TableHead, now_ms: int) -> bool:
        """Whether it keeps history from its position on (MANIFEST-N7)."""
        latest_ms = max(now_ms, head.last_transaction_ms) + _DAY_MS
        return (
            now_ms < self.keeps_until_ms
            and self.updated_ms <= latest_ms
            and self.first_version >= head.oldest_version
        )

    def encode(self) -> bytes:
        """Return the bytes of the document."""
        return write_document(
            _FORMAT,
            {
                "position": self.position,
                "updated_ms": self.updated_ms,
                "keep_ms": self.keep_ms,
            },
        )


class WriterState:
    """Epochs, intents, reservations, tags and consumers of one table."""

    def __init__(self, versions: TableVersions, *, clock: Clock) -> None:
        self._versions = versions
        self._store = versions.store
        self._clock = clock

    def take_over(self) -> int:
        """Begin a new writer epoch; return its number (MANIFEST-N1)."""

        def run(session: WriteSession) -> int:
            head = self._live_head_in(session)
            after = head.with_epoch(head.writer_epoch + 1)
            session.put(HEAD_KEY, after.encode())
            return after.writer_epoch

        return self._store.transact(run)

    def _live_head_in(self, session: WriteSession) -> TableHead:
        """Return the head of a table that work can begin on; raises NotFound (MANIFEST-N4)."""
        head = self._versions.head_in(session)
        self._versions.refuse_dropped(head)
        return head

    def drop(self, *, purge: bool = False) -> bool:
        """Mark the table dropped, permanently; False when it already was.

        `purge` records, in the same commit, that its files are to be deleted too.
        """

        def run(session: WriteSession) -> bool:
            head = self._versions.head_in(session)
            if head.dropped:
                return False
            session.put(HEAD_KEY, head.as_dropped().encode())
            if purge:
                session.put(PURGE_KEY, b"1")
            return True

        return self._store.transact(run)

    def purge_dropped(self) -> None:
        """Record that the files of a dropped table are to be deleted too."""

        def run(session: WriteSession) -> None:
            head = self._versions.head_in(session)
            if not head.dropped:
                raise InvalidArgument(
                    "the table is not dropped",
                    path=self._store.log.paths.prefix,
                    hint="Drop it by its name first",
                )
            session.put(PURGE_KEY, b"1")

        self._store.transact(run)

    def is_to_be_purged(self) -> bool:
        """Whether the table was dropped together with its files, and some may still exist."""
        return self._store.read().get(PURGE_KEY) is not None

    def forget(self) -> None:
        """Remove all but the head of a dropped table whose files are deleted (MANIFEST-N4)."""

        def run(session: WriteSession) -> None:
            head = self._versions.head_in(session)
            assert head.dropped, "only a dropped table is forgotten"
            for key, _ in session.scan(""):
                if key != HEAD_KEY:
                    session.delete(key)

        self._store.transact(run)

    def register_intent(self, intent: Intent) -> None:
        """Announce the files of a job (MANIFEST-N2); raises AlreadyExists for a job id in use."""

        def run(session: WriteSession) -> None:
            self._live_head_in(session)
            key = intent_key(intent.job_id)
            if session.get(key) is not None:
                raise AlreadyExists(f"job {intent.job_id} is already running")
            session.put(
                key,
                write_document(
                    _FORMAT,
                    {"prefixes": list(intent.prefixes), "deadline_ms": intent.deadline_ms},
                ),
            )

        self._store.transact(run)

    def release_intent(self, job_id: str) -> bool:
        """Withdraw an intent; its files become garbage.

        False when it is gone: its job has committed, or another process withdrew it.
        """

        def run(session: WriteSession) -> bool:
            payload = session.get(intent_key(job_id))
            if payload is None:
                return False
            self._abandon(session, _decode_intent(intent_key(job_id), payload))
            return True

        return self._store.transact(run)

    def cancel_expired_intents(self) -> tuple[str, ...]:
        """End intents past their deadline by a commit, so that their jobs cannot commit."""

        def run(session: WriteSession) -> tuple[str, ...]:
            now_ms = self._clock.now_ms()
            ended = [intent for intent in self.intents_in(session) if intent.deadline_ms <= now_ms]
            for intent in ended:
                self._abandon(session, intent)
            return tuple(intent.job_id for intent in ended)

        return self._store.transact(run)

    def _abandon(self, session: WriteSession, intent: Intent) -> None:
        session.delete(intent_key(intent.job_id))
        prefixes = {prefix for prefix in intent.prefixes if _is_of_a_job(prefix)}
        key = abandoned_key(intent.job_id)
        before = session.get(key)
        if before is not None:
            prefixes.update(_decode_abandoned(key, before).prefixes)
        if prefixes:
            ended_ms = self._clock.now_ms()
            session.put(
                key,
                write_document(_FORMAT, {"prefixes": [*sorted(prefixes)], "ended_ms": ended_ms}),
            )

    def abandoned_in(self, session: Session) -> Iterator[Abandoned]:
        """Yield the files announced by jobs that did not commit."""
        for key, payload in session.scan(ABANDONED_PREFIX):
            yield _decode_abandoned(key, payload)

    def forget_abandoned(self, swept: Abandoned) -> None:
        """Remove the record of a job whose files are deleted; one that changed since stays."""
        key = abandoned_key(swept.job_id)

        def run(session: WriteSession) -> None:
            payload = session.get(key)
            if payload is not None and _decode_abandoned(key, payload) == swept:
                session.delete(key)

        self._store.transact(run)

    def forget_finished_jobs(self) -> int:
        """Remove the records of jobs that finished long ago (MANIFEST-N5); return how many."""
        found = self._store.read()
        horizon_ms = self._versions.head_in(found).last_transaction_ms - _JOB_MEMORY_MS
        old = [
            key
            for key, payload in found.scan(JOB_PREFIX)
            if Document.read(payload, format_number=_FORMAT, path=key).integer("finished_ms")
            <= horizon_ms
        ]
        if not old:
            return 0

        def run(session: WriteSession) -> None:
            for key in old:
                session.delete(key)

        self._store.transact(run)
        return len(old)

    def intents_in(self, session: Session) -> Iterator[Intent]:
        """Yield every registered intent."""
        for key, payload in session.scan(INTENT_PREFIX):
            yield _decode_intent(key, payload)

    def reserve(self, job_id: str, *, milliseconds: int) -> None:
        """Let only this job commit for a while (MANIFEST-N3); raises Conflict when another may."""
        job_key(job_id)
        if not 0 < milliseconds <= RESERVATION_MS_MAX:
            raise InvalidArgument(
                f"a reservation of {milliseconds} ms", hint=f"Ask for at most {RESERVATION_MS_MAX}"
            )

        def run(session: WriteSession) -> None:
            self._live_head_in(session)
            payload = session.get(RESERVATION_KEY)
            now_ms = self._clock.now_ms()
            if payload is not None:
                held = Reservation.decode(payload, path=RESERVATION_KEY)
                if held.is_in_force(now_ms):
                    if held.job_id != job_id:
                        raise Conflict(f"job {held.job_id} commits next")
                    return
                if held.job_id == job_id and 0 <= now_ms - held.until_ms < RESERVATION_MS_MAX:
                    raise Conflict(f"job {job_id} just had its turn: other jobs are next")
            reservation = Reservation(job_id=job_id, until_ms=now_ms + milliseconds)
            session.put(RESERVATION_KEY, reservation.encode())

        self._store.transact(run)

    def release_reservation(self, job_id: str) -> None:
        """Let others commit again, unless the reservation is another job's by now."""

        def run(session: WriteSession) -> None:
            payload = session.get(RESERVATION_KEY)
            if payload is not None:
                held = Reservation.decode(payload, path=RESERVATION_KEY)
                if held.job_id == job_id:
                    session.delete(RESERVATION_KEY)

        self._store.transact(run)

    def tag(self, name: str, number: int) -> None:
        """Name a retained Version; an existing name moves. Tagged Versions never expire."""
        key = tag_key(name)
        if name == _MAIN:
            raise InvalidArgument(
                f"no tag can be named {_MAIN!r}: in Iceberg that is the newest Version",
                hint="Choose another name",
            )

        def run(session: WriteSession) -> None:
            self._live_head_in(session)
            self._versions.version_in(session, number)
            session.put(key, tag_value(number))

        self._store.transact(run)

    def remove_tag(self, name: str) -> None:
        """Remove a tag; raises NotFound."""
        key = tag_key(name)

        def run(session: WriteSession) -> None:
            if session.get(key) is None:
                raise NotFound(f"there is no tag {name!r}", hint=Wording(Phrase.NAME_A_TAG))
            session.delete(key)

        self._store.transact(run)

    def tags(self) -> dict[str, int]:
        """Return every tag with its Version's number."""
        return self.tags_in(self._store.read())

    def tags_in(self, session: Session) -> dict[str, int]:
        """Return every tag as a session sees it."""
        return {
            key.removeprefix(TAG_PREFIX): read_tag(value, path=key)
            for key, value in session.scan(TAG_PREFIX)
        }

    def begin_consumer(
        self, name: str, *, since: int | None = None, keep_ms: int | None = None
    ) -> Consumer:
        """Return a consumer as it is stored; a new one is stored first.

        A new one begins after the Version `since`; by default after none if the whole history is
        kept, otherwise after the oldest Version. Raises NotFound when that history has expired.
        """
        key = consumer_key(name)

        def run(session: WriteSession) -> Consumer:
            head = self._live_head_in(session)
            stored = _read_consumer(session, key)
            if stored is None:
                first = 0 if head.oldest_version == 1 else head.oldest_version
                found = Consumer(
                    name=name,
                    position=first if since is None else since,
                    updated_ms=self._clock.now_ms(),
                    keep_ms=keep_ms or CONSUMER_KEEP_MS,
                )
            else:
                found = replace(stored, keep_ms=keep_ms or stored.keep_ms)
            start = max(found.position, since or 0)
            if max(start, 1) < head.oldest_version:
                path = self._store.log.paths.prefix
                raise expired_history(
                    start, head, path=path, consumer=None if stored is None else name
                )
            if found != stored:
                session.put(key, found.encode())
            return found

        return self._store.transact(run)

    def advance_consumer(self, begun: Consumer, position: int) -> None:
        """Store that a consumer, as it was when it began, has read up to a Version."""
        key = consumer_key(begun.name)

        def run(session: WriteSession) -> None:
            stored = _read_consumer(session, key)
            if stored is None or stored.position < begun.position:
                return  # dropped since then, or dropped and started again (MANIFEST-N6)
            now_ms = self._clock.now_ms()
            is_sign_due = abs(now_ms - stored.updated_ms) * _SIGNS_OF_LIFE >= stored.keep_ms
            if position > stored.position or is_sign_due:
                reached = max(position, stored.position)
                session.put(key, replace(stored, position=reached, updated_ms=now_ms).encode())

        self._store.transact(run)

    def drop_consumer(self, name: str) -> None:
        """Remove a consumer; raises NotFound."""
        key = consumer_key(name)

        def run(session: WriteSession) -> None:
            if session.get(key) is None:
                known = [each.name for each in self.consumers_in(session)]
                raise NotFound(
                    f"there is no consumer {name!a}",
                    hint=similar_name_hint(name, known) or Wording(Phrase.LIST_CONSUMERS),
                )
            session.delete(key)

        self._store.transact(run)

    def consumers_in(self, session: Session) -> Iterator[Consumer]:
        """Yield every consumer as a session sees it, by name."""
        for key, payload in session.scan(CONSUMER_PREFIX):
            yield _decode_consumer(key, payload)


def _read_consumer(session: Session, key: str) -> Consumer | None:
    payload = session.get(key)
    return None if payload is None else _decode_consumer(key, payload)


def _decode_consumer(key: str, payload: bytes) -> Consumer:
    document = Document.read(payload, format_number=_FORMAT, path=key)
    return Consumer(
        name=key.removeprefix(CONSUMER_PREFIX),
        position=document.integer("position"),
        updated_ms=document.integer("updated_ms"),
        keep_ms=document.integer("keep_ms"),
    )


def _decode_intent(key: str, payload: bytes) -> Intent:
    document = Document.read(payload, format_number=_FORMAT, path=key)
    return Intent(
        job_id=key.removeprefix(INTENT_PREFIX),
        prefixes=document.texts("prefixes"),
        deadline_ms=document.integer("deadline_ms"),
    )


def _decode_abandoned(key: str, payload: bytes) -> Abandoned:
    document = Document.read(payload, format_number=_FORMAT, path=key)
    prefixes = document.texts("prefixes")
    for prefix in prefixes:
        try:
            check_prefix(prefix)
        except InvalidArgument as error:
            raise Corruption(f"an abandoned job wrote {prefix[:80]!a}", path=key) from error
        if not _is_of_a_job(prefix):
            raise Corruption(f"an abandoned job wrote {prefix[:80]!a}", path=key)
    return Abandoned(
        job_id=key.removeprefix(ABANDONED_PREFIX),
        prefixes=prefixes,
        ended_ms=document.integer("ended_ms"),
    )


def _is_of_a_job(prefix: str) -> bool:
    """Whether a prefix belongs to one job, and is not a whole folder of the table."""
    return prefix.startswith(DELETABLE) and prefix not in DELETABLE
