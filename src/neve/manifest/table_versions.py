"""TableVersions: the truth about one table: its head, its Versions, its schemas and specs.

Steps of a commit, one transaction of the table's manifest store:

1. read the head; refuse a dropped table, a fenced writer, a cancelled intent, a foreign reservation
2. a batch or job that is already committed is answered with its Version
3. the edit's base must be the current Version: otherwise Conflict, and the committer rebases
4. check the invariants, apply the edits, number the Versions and their rows
5. write the edits and the new head

A commit stores only its edit. A Version is read as the nearest one stored in full, and the edits
since; checkpoints of the store add the newest one in full.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from neve.errors import AlreadyExists, Conflict, Corruption, Fenced, NotFound
from neve.manifest.invariants import check_added, check_edit, check_head, check_version
from neve.manifest.json_document import Document, write_document
from neve.manifest.manifest_store import ManifestStore
from neve.manifest.sessions import ReadSession, WriteSession
from neve.manifest.table_head import (
    HEAD_KEY,
    INTENT_PREFIX,
    JOB_PREFIX,
    RESERVATION_KEY,
    TRANSACTION_PREFIX,
    HeadChange,
    TableHead,
    schema_key,
    spec_key,
    state_key,
    version_key,
)
from neve.manifest.version_codec import decode_edit, decode_version, encode_edit
from neve.model.version import Version, VersionEdit, apply_edit
from neve.storage.clock import Clock

_FORMAT: Final = 1
_VERSIONS_KEPT: Final = 16

Session = ReadSession | WriteSession


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshot:
    """A table's head and one of its Versions, read together."""

    head: TableHead
    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The outcome of a commit."""

    snapshot: TableSnapshot
    is_repeat: bool
    """The same batch or job was committed before; nothing was written now."""


class TableVersions:
    """Versions of one table in a manifest store of their own; safe for many threads."""

    def __init__(self, store: ManifestStore, *, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._path = store.log.paths.prefix
        # safe on its own: entries are values, and a lost one is only read again
        self._versions: OrderedDict[int, Version] = OrderedDict()

    def create(self, head: TableHead, *, schema: str, spec: str, edit: VersionEdit) -> Committed:
        """Commit Version 1; a table of the same uuid is left as it is (a create that was cut)."""

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
            version = self._stage_edit(session, None, edit)
            check_head(None, first)
            session.put(schema_key(head.schema_id), schema.encode())
            session.put(spec_key(head.spec_id), spec.encode())
            session.put(HEAD_KEY, first.encode())
            return Committed(snapshot=TableSnapshot(head=first, version=version), is_repeat=False)

        return self._remembered(self.store.transact(run))

    def head(self) -> TableHead:
        """Give the newest head; raises NotFound when there is no such table."""
        return self.head_in(self.store.read())

    def snapshot_latest(self) -> TableSnapshot:
        """Give the newest head and Version."""
        session = self.store.read()
        head = self.head_in(session)
        return TableSnapshot(head=head, version=self.version_in(session, head.current_version))

    def version(self, number: int) -> Version:
        """Give a retained Version; raises NotFound that says which there are."""
        return self.version_in(self.store.read(), number)

    def list_versions(self, limit: int = 0) -> list[Version]:
        """Give the retained Versions, newest first; 0 gives all."""
        session = self.store.read()
        head = self.head_in(session)
        lowest = head.oldest_version
        if limit > 0:
            lowest = max(lowest, head.current_version - limit + 1)
        return [
            self.version_in(session, number)
            for number in range(head.current_version, lowest - 1, -1)
        ]

    def wal_floor(self) -> int:
        """Lowest log that is still needed."""
        return self.head().wal_floor

    def schema_json(self, schema_id: int) -> str:
        """Give the schema of an id, as JSON."""
        return self._text(self.store.read(), schema_key(schema_id), f"schema {schema_id}")

    def spec_json(self, spec_id: int) -> str:
        """Give the partition spec of an id, as JSON."""
        return self._text(self.store.read(), spec_key(spec_id), f"partition spec {spec_id}")

    def apply_version_edits(
        self,
        edits: Sequence[VersionEdit],
        change: HeadChange | None = None,
        *,
        schema: str | None = None,
        spec: str | None = None,
    ) -> Committed:
        """Commit edits, each as a Version of its own, all or none.

        `schema` and `spec` are new ones, for the ids that `change` names. Raises Conflict when the
        first edit's base is no longer current.
        """
        asked = change or HeadChange()

        def run(session: WriteSession) -> Committed:
            head = self.head_in(session)
            repeated = self._find_repeat(session, head, asked)
            if repeated is not None:
                return repeated
            self._check_asked(session, head, asked)
            if edits and edits[0].base != head.current_version:
                raise Conflict(
                    f"the table is at version {head.current_version}, not {edits[0].base}",
                    keys=(HEAD_KEY,),
                    path=self._path,
                    hint="rebase the change on the current version",
                )
            version = self.version_in(session, head.current_version)
            for edit in edits:
                version = self._stage_edit(session, version, edit)
            after = head.advanced(asked, versions=len(edits), now_ms=self._clock.now_ms())
            check_head(head, after)
            self._stage_documents(session, after, asked, schema, spec)
            session.put(HEAD_KEY, after.encode())
            return Committed(snapshot=TableSnapshot(head=after, version=version), is_repeat=False)

        return self._remembered(self.store.transact(run))

    def head_in(self, session: Session) -> TableHead:
        """Give the head as a session sees it; raises NotFound."""
        payload = session.get(HEAD_KEY)
        if payload is None:
            raise NotFound("there is no such table", path=self._path)
        return TableHead.decode(payload, path=self._path)

    def version_in(self, session: Session, number: int) -> Version:
        """Give a Version as a session sees it; raises NotFound."""
        pending: list[VersionEdit] = []
        at = number
        version = self._versions.get(at)
        while version is None:
            full = session.state.get(state_key(at))
            if full is not None:
                version = decode_version(full, path=f"{self._path}/{state_key(at)}")
                check_version(version)
                break
            edit = session.get(version_key(at)) if at > 0 else None
            if edit is None:
                raise self._not_retained(session, number)
            pending.append(decode_edit(edit, path=f"{self._path}/{version_key(at)}"))
            at -= 1
            if at == 0:
                break
            version = self._versions.get(at)
        for edit_to_apply in reversed(pending):
            version = apply_edit(version, edit_to_apply)
        assert version is not None
        self._keep(version)
        return version

    def _not_retained(self, session: Session, number: int) -> NotFound:
        head = self.head_in(session)
        return NotFound(
            f"version {number} is not there",
            path=self._path,
            hint=f"versions {head.oldest_version} to {head.current_version} are kept",
        )

    def _stage_edit(
        self, session: WriteSession, version: Version | None, edit: VersionEdit
    ) -> Version:
        """Check, number and write one edit."""
        check_edit(version, edit)
        numbered = self._numbered(version, edit)
        result = apply_edit(version, numbered)
        check_added(result, numbered)
        session.put(version_key(result.number), encode_edit(numbered))
        return result

    def _numbered(self, version: Version | None, edit: VersionEdit) -> VersionEdit:
        """Give new files their row ids, and the commit a time that does not run backwards."""
        next_row_id = 0 if version is None else version.next_row_id
        added = []
        for file in edit.added:
            if file.first_row_id is None:
                file = replace(file, first_row_id=next_row_id)  # noqa: PLW2901
            assert file.first_row_id is not None
            next_row_id = max(next_row_id, file.first_row_id + file.row_count)
            added.append(file)
        now_ms = self._clock.now_ms()
        if version is not None:
            now_ms = max(now_ms, version.facts.timestamp_ms)
        return replace(edit, added=tuple(added), facts=replace(edit.facts, timestamp_ms=now_ms))

    def _find_repeat(
        self, session: WriteSession, head: TableHead, asked: HeadChange
    ) -> Committed | None:
        """Find out whether this very batch or job is committed already."""
        number: int | None = None
        if asked.application is not None:
            name, batch = asked.application
            done = self._read_document(session, f"{TRANSACTION_PREFIX}{name}")
            if done is not None and done.integer("batch") >= batch:
                number = done.integer("version")
        if asked.job_id is not None and number is None:
            done = self._read_document(session, f"{JOB_PREFIX}{asked.job_id}")
            number = None if done is None else done.integer("version")
        if number is None:
            return None
        number = max(number, head.oldest_version)
        snapshot = TableSnapshot(head=head, version=self.version_in(session, number))
        return Committed(snapshot=snapshot, is_repeat=True)

    def _check_asked(self, session: WriteSession, head: TableHead, asked: HeadChange) -> None:
        if head.dropped:
            raise NotFound("the table was dropped", path=self._path)
        if asked.writer_epoch is not None and asked.writer_epoch != head.writer_epoch:
            raise Fenced(
                f"writer epoch {asked.writer_epoch} has ended; the table is at {head.writer_epoch}",
                path=self._path,
                hint="another writer took the table over: open it again to write",
            )
        if asked.intent_id is not None and not session.get(f"{INTENT_PREFIX}{asked.intent_id}"):
            raise Fenced(
                f"the intent of job {asked.intent_id} is gone",
                path=self._path,
                hint="the job took longer than its deadline and its files may be deleted: rerun it",
            )
        held = self._read_document(session, RESERVATION_KEY)
        if (
            held is not None
            and held.integer("until_ms") > self._clock.now_ms()
            and held.text("job_id") != asked.job_id
        ):
            raise Conflict(
                f"job {held.text('job_id')} commits next",
                keys=(RESERVATION_KEY,),
                path=self._path,
                hint="wait a moment: a reservation ends by itself",
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
            session.put(schema_key(head.schema_id), schema.encode())
        elif asked.schema_id is not None:
            self._text(session, schema_key(head.schema_id), f"schema {head.schema_id}")
        if spec is not None:
            session.put(spec_key(head.spec_id), spec.encode())
        elif asked.spec_id is not None:
            self._text(session, spec_key(head.spec_id), f"partition spec {head.spec_id}")
        if asked.application is not None:
            name, batch = asked.application
            session.put(
                f"{TRANSACTION_PREFIX}{name}",
                write_document(_FORMAT, {"batch": batch, "version": head.current_version}),
            )
        if asked.job_id is not None:
            session.put(
                f"{JOB_PREFIX}{asked.job_id}",
                write_document(
                    _FORMAT,
                    {"version": head.current_version, "finished_ms": head.last_transaction_ms},
                ),
            )
            if session.get(RESERVATION_KEY) is not None:
                session.delete(RESERVATION_KEY)
        if asked.intent_id is not None:
            session.delete(f"{INTENT_PREFIX}{asked.intent_id}")

    def _read_document(self, session: Session, key: str) -> Document | None:
        payload = session.get(key)
        if payload is None:
            return None
        return Document.read(payload, format_number=_FORMAT, path=f"{self._path}/{key}")

    def _text(self, session: Session, key: str, what: str) -> str:
        payload = session.get(key)
        if payload is None:
            raise NotFound(f"there is no {what}", path=self._path)
        try:
            return payload.decode()
        except UnicodeDecodeError as error:
            raise Corruption(f"{what} is no text", path=f"{self._path}/{key}") from error

    def _remembered(self, committed: Committed) -> Committed:
        self._keep(committed.snapshot.version)
        return committed

    def _keep(self, version: Version) -> None:
        self._versions[version.number] = version
        while len(self._versions) > _VERSIONS_KEPT:
            self._versions.popitem(last=False)
