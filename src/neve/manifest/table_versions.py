"""TableVersions: commits to one table: its head, Versions, schemas and specs.

Steps of a commit, one transaction of the table's manifest store:

1. read the head; for a batch or job that is already committed, return its Version
2. refuse a dropped table, a fenced writer, a cancelled intent, a foreign reservation
3. the edit's base must be the current Version: otherwise Conflict, and the committer rebases
4. check the invariants, apply the edits, number the Versions and their rows
5. write the edits and the new head

A committer that does not know the newest Version in advance passes a function instead of edits.
Step 3 calls it with the Version that the transaction sees, so that concurrent committers of one
process end up in one segment, each on the Version of the one before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final

from neve.errors import AlreadyExists, Conflict, Fenced, InvalidArgument
from neve.manifest.invariants import (
    check_added,
    check_definition,
    check_edit,
    check_head,
)
from neve.manifest.json_document import Document, write_document
from neve.manifest.manifest_store import ManifestStore
from neve.manifest.sessions import WriteSession
from neve.manifest.table_head import (
    HEAD_KEY,
    RESERVATION_KEY,
    HeadChange,
    Requirements,
    Reservation,
    TableHead,
    intent_key,
    job_key,
    schema_key,
    spec_key,
    transaction_key,
    version_key,
)
from neve.manifest.version_codec import encode_edit
from neve.manifest.version_reader import Session, TableSnapshot, VersionReader
from neve.model.schema_json import parse_object
from neve.model.version import Operation, Version, VersionEdit, apply_edit
from neve.storage.clock import Clock

_FORMAT: Final = 1

_OPERATIONS_ON_OLD_ROWS: Final = frozenset({Operation.REPLACE, Operation.ROLLBACK})

MakeEdits = Callable[[WriteSession, TableSnapshot], Sequence[VersionEdit]]
"""Returns the edits for the Version that a transaction sees; may be called more than once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The outcome of a commit."""

    snapshot: TableSnapshot
    is_repeat: bool
    """The same batch, job or change was committed before; nothing was written now."""
    has_version: bool = False
    """Whether it made a Version, instead of only changing the head."""


class TableVersions(VersionReader):
    """Versions of one table in its own manifest store; safe for many threads."""

    def __init__(self, store: ManifestStore, *, clock: Clock) -> None:
        super().__init__(store)
        self._clock = clock

    def create(self, head: TableHead, *, schema: str, spec: str, edit: VersionEdit) -> Committed:
        """Commit Version 1; an existing table of the same uuid, from an earlier try, stays."""

        def run(session: WriteSession) -> Committed:
            existing = session.get(HEAD_KEY)
            if existing is not None:
                found = TableHead.decode(existing, path=self._path)
                if found.table_uuid != head.table_uuid:
                    raise AlreadyExists("another table has this id", path=self._path)
                version = self.version_in(session, found.current_version)
                snapshot = TableSnapshot(head=found, version=version)
                return Committed(snapshot=snapshot, is_repeat=True)
            first = replace(
                head,
                current_version=1,
                oldest_version=1,
                last_transaction_ms=self._clock.now_ms(),
            )
            session.put(schema_key(head.schema_id), schema.encode())
            session.put(spec_key(head.spec_id), spec.encode())
            version = self._stage_edit(session, first, None, edit)
            check_head(None, first)
            session.put(HEAD_KEY, first.encode())
            snapshot = TableSnapshot(head=first, version=version)
            return Committed(snapshot=snapshot, is_repeat=False, has_version=True)

        return self._remembered(self.store.transact(run))

    def apply_version_edits(
        self,
        edits: Sequence[VersionEdit],
        change: HeadChange | None = None,
        *,
        schema: str | None = None,
        spec: str | None = None,
    ) -> Committed:
        """Commit edits, each as its own Version, all or none.

        `schema` and `spec` are new, for the ids that `change` names. Raises Conflict when the first
        edit's base is no longer current.
        """

        def as_given(_session: WriteSession, snapshot: TableSnapshot) -> Sequence[VersionEdit]:
            current = snapshot.head.current_version
            if edits and edits[0].base != current:
                raise Conflict(
                    f"the table is at version {current}, not {edits[0].base}",
                    keys=(HEAD_KEY,),
                    path=self._path,
                    hint="Rebase the change on the current version",
                )
            return edits

        return self.apply_made_edits(as_given, change or HeadChange(), schema=schema, spec=spec)

    def apply_made_edits(
        self,
        make_edits: MakeEdits,
        asked: HeadChange,
        *,
        schema: str | None = None,
        spec: str | None = None,
        requirements: Requirements | None = None,
    ) -> Committed:
        """Commit the edits that a function makes for the newest Version, in one transaction.

        Another thread that commits for this one may call the function, while others wait: do slow
        work before. It must not commit through this handle.
        """

        def run(session: WriteSession) -> Committed:
            head = self.head_in(session)
            repeated = self.repeat_in(session, head, asked)
            if repeated is not None:
                return repeated
            self._check_asked(session, head, asked)
            if asked.restored_version is not None:
                self.version_in(session, asked.restored_version)
            if requirements is not None:
                requirements.check(head, path=self._path)
            version = self._folded(session, head, head.current_version)
            edits = make_edits(session, TableSnapshot(head=head, version=version))
            _check_edits(edits, asked)
            after = head.advanced(asked, versions=len(edits), now_ms=self._clock.now_ms())
            check_head(head, after)
            self._stage_documents(session, after, asked, schema, spec)
            for edit in edits:
                version = self._stage_edit(session, head, version, edit)
            check_definition(after, edits, lambda key: session.get(key) is not None)
            session.put(HEAD_KEY, after.encode())
            snapshot = TableSnapshot(head=after, version=version)
            return Committed(snapshot=snapshot, is_repeat=False, has_version=bool(edits))

        return self._remembered(self.store.transact(run))

    def _stage_edit(
        self, session: WriteSession, head: TableHead, version: Version | None, edit: VersionEdit
    ) -> Version:
        """Check, number and write one edit."""
        check_edit(version, edit)
        schema = session.get(schema_key(edit.facts.schema_id)) or b"{}"
        facts = replace(
            edit.facts, table_uuid=head.table_uuid, last_column_id=_last_column_id(schema)
        )
        numbered = self._numbered(version, replace(edit, facts=facts))
        result = apply_edit(version, numbered)
        check_added(result, numbered)
        payload = encode_edit(numbered)
        session.put(version_key(result.number), payload)
        self._keep_staged(result, payload, numbered)
        return result

    def _numbered(self, version: Version | None, edit: VersionEdit) -> VersionEdit:
        """Assign row ids and a data sequence number to new files, and a time to the commit.

        The time does not run backwards. Files that a rollback brings back keep what they had.
        New rows are committed at that time. Rows of a rewrite or a rollback were committed before:
        their files say when, as far as known.
        """
        now_ms = self._clock.now_ms()
        if version is not None:
            now_ms = max(now_ms, version.facts.timestamp_ms)
        has_new_rows = edit.facts.operation not in _OPERATIONS_ON_OLD_ROWS
        number, next_row_id = (
            (1, 0) if version is None else (version.number + 1, version.next_row_id)
        )
        added = []
        for file in edit.added:
            if has_new_rows:
                file = replace(file, commit_ms_min=now_ms, commit_ms_max=now_ms)  # noqa: PLW2901
            if file.first_row_id is None:
                file = replace(  # noqa: PLW2901
                    file, first_row_id=next_row_id, data_sequence=file.data_sequence or number
                )
            assert file.first_row_id is not None
            next_row_id = max(next_row_id, file.first_row_id + file.row_count)
            added.append(file)
        # A merged file has the time of its newest delete.
        deletes = tuple(
            file
            if file.commit_ms_max
            else replace(file, commit_ms_min=now_ms, commit_ms_max=now_ms)
            for file in edit.deletes_added
        )
        facts = replace(edit.facts, timestamp_ms=now_ms)
        return replace(edit, added=tuple(added), deletes_added=deletes, facts=facts)

    def committed_before(self, change: HeadChange) -> Committed | None:
        """Return the outcome of this batch or job if it is already committed.

        Raises InvalidArgument for a batch of an application that has committed a later one.
        """
        if change.application is None and change.job_id is None:
            return None
        session = self.store.read()
        return self.repeat_in(session, self.head_in(session), change)

    def last_batch_in(self, session: Session, application: str) -> int | None:
        """Return the last committed batch of an application."""
        done = self._read_document(session, transaction_key(application))
        return None if done is None else done.integer("batch")

    def repeat_in(self, session: Session, head: TableHead, asked: HeadChange) -> Committed | None:
        """Return the outcome of this batch or job, if a session sees it committed."""
        number: int | None = None
        if asked.application is not None:
            name, batch = asked.application
            done = self._read_document(session, transaction_key(name))
            if done is not None:
                _refuse_earlier(name, batch, last=done.integer("batch"), path=self._path)
                number = done.integer("version") if batch == done.integer("batch") else None
        if asked.job_id is not None and number is None:
            done = self._read_document(session, job_key(asked.job_id))
            number = None if done is None else done.integer("version")
        if number is None:
            return None
        number = max(number, head.oldest_version)
        snapshot = TableSnapshot(head=head, version=self.version_in(session, number))
        return Committed(snapshot=snapshot, is_repeat=True)

    def _check_asked(self, session: WriteSession, head: TableHead, asked: HeadChange) -> None:
        self.refuse_dropped(head)
        if asked.writer_epoch is not None and asked.writer_epoch != head.writer_epoch:
            raise Fenced(
                f"writer epoch {asked.writer_epoch} has ended; the table is at {head.writer_epoch}",
                path=self._path,
                hint="Open the table again to write: another writer took it over",
            )
        if asked.intent_id is not None and not session.get(intent_key(asked.intent_id)):
            raise Fenced(
                f"the intent of job {asked.intent_id} is gone",
                path=self._path,
                hint="Rerun the job: its deadline has passed, and its files may be deleted",
            )
        payload = session.get(RESERVATION_KEY)
        if payload is None:
            return
        held = Reservation.decode(payload, path=f"{self._path}/{RESERVATION_KEY}")
        if held.job_id != asked.job_id and held.is_in_force(self._clock.now_ms()):
            raise Conflict(
                f"job {held.job_id} commits next",
                keys=(RESERVATION_KEY,),
                path=self._path,
                hint="Wait a moment: a reservation ends by itself",
            )

    def _stage_documents(
        self,
        session: WriteSession,
        head: TableHead,
        asked: HeadChange,
        schema: str | None,
        spec: str | None,
    ) -> None:
        if schema is not None:
            self._stage_text(session, schema_key(head.schema_id), schema)
        elif asked.schema_id is not None:
            self._text(session, schema_key(head.schema_id), f"schema {head.schema_id}")
        if spec is not None:
            self._stage_text(session, spec_key(head.spec_id), spec)
        elif asked.spec_id is not None:
            self._text(session, spec_key(head.spec_id), f"partition spec {head.spec_id}")
        applied = dict(asked.applied)
        if asked.application is not None:
            applied |= dict([asked.application])
        for name, batch in applied.items():
            if batch >= (self.last_batch_in(session, name) or batch):
                session.put(
                    transaction_key(name),
                    write_document(_FORMAT, {"batch": batch, "version": head.current_version}),
                )
        if asked.job_id is not None:
            session.put(
                job_key(asked.job_id),
                write_document(
                    _FORMAT,
                    {"version": head.current_version, "finished_ms": head.last_transaction_ms},
                ),
            )
        if session.get(RESERVATION_KEY) is not None:
            session.delete(RESERVATION_KEY)  # it is this job's own, or it has ended
        if asked.intent_id is not None:
            session.delete(intent_key(asked.intent_id))

    def _stage_text(self, session: WriteSession, key: str, text: str) -> None:
        """Write a schema or spec; an id never changes its meaning."""
        payload = text.encode()
        if session.get(key) not in {None, payload}:
            raise Conflict(
                f"{key} already belongs to another definition",
                keys=(key,),
                path=self._path,
                hint="Read the table again and take the next id",
            )
        session.put(key, payload)

    def _read_document(self, session: Session, key: str) -> Document | None:
        payload = session.get(key)
        if payload is None:
            return None
        return Document.read(payload, format_number=_FORMAT, path=f"{self._path}/{key}")

    def _remembered(self, committed: Committed) -> Committed:
        self._keep(committed.snapshot.version)
        return committed


@lru_cache(maxsize=16)
def _last_column_id(schema: bytes) -> int:
    """Return the highest field id that a schema has assigned; 0 when its JSON does not say."""
    found = parse_object(schema.decode()).get("last-column-id")
    return found if isinstance(found, int) else 0


def _refuse_earlier(application: str, batch: int, *, last: int, path: str) -> None:
    """Raise InvalidArgument for a batch before the last: its rows are unknown by now."""
    if batch < last:
        raise InvalidArgument(
            f"batch {batch} of {application!a} is older than batch {last:,}, which is already "
            "committed",
            path=path,
            hint="Number the batches of an application in ascending order. If it starts over, as a "
            "stream with a new checkpoint does, choose another name or use the old checkpoint",
        )


def _check_edits(edits: Sequence[VersionEdit], asked: HeadChange) -> None:
    for edit, following in pairwise(edits):
        if following.base != edit.base + 1:
            raise InvalidArgument(
                f"an edit of version {following.base} cannot follow one of version {edit.base}",
                hint="Base each edit on the version that the edit before it makes",
            )
    is_rollback = any(edit.facts.operation is Operation.ROLLBACK for edit in edits)
    if is_rollback and asked.restored_version is None:
        raise InvalidArgument(
            "a rollback does not say which version it restores",
            hint="Set `restored_version`, so that its files cannot be deleted in the meantime",
        )
