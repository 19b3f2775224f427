"""Work in flight on a table: who writes, which jobs will add files, which Versions have names.

N1  Taking the table over raises the writer epoch; every commit of the writer before is refused.
N2  A job registers its intent before it writes its first file. Garbage collection leaves files of
    live intents alone, and ends an expired one by a commit; a job must find its own still there.
N3  A reservation holds other committers back for a bounded time, and ends by itself. It cannot be
    prolonged; the same job gets another one only when others had as long.
N4  Dropping is for good. Of a table whose files were deleted too, the head stays: it tells a writer
    that slept that the table is gone.
N5  A finished job is remembered for a week, so that it is committed once however often it is
    repeated. Batches of applications are remembered for ever.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from neve.errors import AlreadyExists, Conflict, InvalidArgument, NotFound
from neve.manifest.json_document import Document, write_document
from neve.manifest.sessions import WriteSession
from neve.manifest.table_head import (
    HEAD_KEY,
    INTENT_PREFIX,
    JOB_PREFIX,
    PURGE_KEY,
    RESERVATION_KEY,
    RESERVATION_MS_MAX,
    TAG_PREFIX,
    Reservation,
    intent_key,
    job_key,
    read_tag,
    tag_key,
)
from neve.manifest.table_versions import Session, TableVersions
from neve.manifest.version_fold import tag_value
from neve.storage.clock import Clock
from neve.storage.table_paths import check_prefix

_FORMAT: Final = 1
_JOB_MEMORY_MS: Final = 7 * 24 * 60 * 60 * 1000


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
                f"the intent of job {self.job_id} names every file there is",
                hint="give the beginnings of the names that the job will write",
            )
        for prefix in self.prefixes:
            check_prefix(prefix)


class TableWork:
    """Epochs, intents, reservations and tags of one table."""

    def __init__(self, versions: TableVersions, *, clock: Clock) -> None:
        self._versions = versions
        self._store = versions.store
        self._clock = clock

    def take_over(self) -> int:
        """Begin a new writer epoch; gives its number (N1)."""

        def run(session: WriteSession) -> int:
            head = self._versions.head_in(session)
            if head.dropped:
                raise NotFound("the table was dropped", path=self._store.log.paths.prefix)
            after = head.with_epoch(head.writer_epoch + 1)
            session.put(HEAD_KEY, after.encode())
            return after.writer_epoch

        return self._store.transact(run)

    def drop(self, *, purge: bool = False) -> bool:
        """Mark the table dropped, for good; False when it already was.

        `purge` leaves word, in the same commit, that its files are to be deleted too.
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

    def is_to_be_purged(self) -> bool:
        """Whether the table was dropped together with its files, and they may still be there."""
        return self._store.read().get(PURGE_KEY) is not None

    def forget(self) -> None:
        """Remove everything but the head of a dropped table whose files are deleted (N4)."""

        def run(session: WriteSession) -> None:
            head = self._versions.head_in(session)
            assert head.dropped, "only a dropped table is forgotten"
            for key, _ in session.scan(""):
                if key != HEAD_KEY:
                    session.delete(key)

        self._store.transact(run)

    def register_intent(self, intent: Intent) -> None:
        """Say which files a job will write (N2); raises AlreadyExists for a job id in use."""

        def run(session: WriteSession) -> None:
            key = intent_key(intent.job_id)
            if session.get(key) is not None:
                raise AlreadyExists(f"job {intent.job_id} is at work already")
            session.put(
                key,
                write_document(
                    _FORMAT,
                    {"prefixes": list(intent.prefixes), "deadline_ms": intent.deadline_ms},
                ),
            )

        self._store.transact(run)

    def release_intent(self, job_id: str) -> None:
        """Withdraw an intent; its files are garbage then. One that is gone is no error."""
        self._store.transact(lambda session: session.delete(intent_key(job_id)))

    def cancel_expired_intents(self) -> tuple[str, ...]:
        """End intents past their deadline by a commit, so that their jobs can commit no more."""

        def run(session: WriteSession) -> tuple[str, ...]:
            now_ms = self._clock.now_ms()
            ended = tuple(
                intent.job_id for intent in self.intents_in(session) if intent.deadline_ms <= now_ms
            )
            for job_id in ended:
                session.delete(intent_key(job_id))
            return ended

        return self._store.transact(run)

    def forget_finished_jobs(self) -> int:
        """Remove the records of jobs that finished long ago (N5); gives how many."""
        horizon_ms = self._clock.now_ms() - _JOB_MEMORY_MS
        old = [
            key
            for key, payload in self._store.read().scan(JOB_PREFIX)
            if Document.read(payload, format_number=_FORMAT, path=key).integer("finished_ms")
            <= horizon_ms
        ]

        def run(session: WriteSession) -> None:
            for key in old:
                session.delete(key)

        self._store.transact(run)
        return len(old)

    def intents_in(self, session: Session) -> Iterator[Intent]:
        """Give every registered intent."""
        for key, payload in session.scan(INTENT_PREFIX):
            document = Document.read(payload, format_number=_FORMAT, path=key)
            yield Intent(
                job_id=key.removeprefix(INTENT_PREFIX),
                prefixes=document.texts("prefixes"),
                deadline_ms=document.integer("deadline_ms"),
            )

    def reserve(self, job_id: str, *, milliseconds: int) -> None:
        """Let only this job commit for a while (N3); raises Conflict when another one may."""
        job_key(job_id)
        if not 0 < milliseconds <= RESERVATION_MS_MAX:
            raise InvalidArgument(
                f"a reservation of {milliseconds} ms", hint=f"ask for at most {RESERVATION_MS_MAX}"
            )

        def run(session: WriteSession) -> None:
            payload = session.get(RESERVATION_KEY)
            now_ms = self._clock.now_ms()
            if payload is not None:
                held = Reservation.decode(payload, path=RESERVATION_KEY)
                if held.is_in_force(now_ms):
                    if held.job_id != job_id:
                        raise Conflict(f"job {held.job_id} commits next")
                    return
                if held.job_id == job_id and 0 <= now_ms - held.until_ms < RESERVATION_MS_MAX:
                    raise Conflict(f"job {job_id} had its turn just now: others have theirs")
            reservation = Reservation(job_id=job_id, until_ms=now_ms + milliseconds)
            session.put(RESERVATION_KEY, reservation.encode())

        self._store.transact(run)

    def tag(self, name: str, number: int) -> None:
        """Give a retained Version a name; an existing name moves. Tagged Versions never expire."""
        key = tag_key(name)

        def run(session: WriteSession) -> None:
            self._versions.version_in(session, number)
            session.put(key, tag_value(number))

        self._store.transact(run)

    def remove_tag(self, name: str) -> None:
        """Take a name away; raises NotFound."""
        key = tag_key(name)

        def run(session: WriteSession) -> None:
            if session.get(key) is None:
                raise NotFound(f"there is no tag {name!r}")
            session.delete(key)

        self._store.transact(run)

    def tags(self) -> dict[str, int]:
        """Give every tag with its Version's number."""
        return self.tags_in(self._store.read())

    def tags_in(self, session: Session) -> dict[str, int]:
        """Give every tag as a session sees it."""
        return {
            key.removeprefix(TAG_PREFIX): read_tag(value, path=key)
            for key, value in session.scan(TAG_PREFIX)
        }
