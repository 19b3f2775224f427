"""TableVersions: the truth about one table: its head, its Versions, its schemas and specs.

Steps of a commit, one transaction of the table's manifest store:

1. read the head; a batch or job that is already committed is answered with its Version
2. refuse a dropped table, a fenced writer, a cancelled intent, a foreign reservation
3. the edit's base must be the current Version: otherwise Conflict, and the committer rebases
4. check the invariants, apply the edits, number the Versions and their rows
5. write the edits and the new head

A commit stores only its edit. A Version is read as the nearest one stored in full, and the edits
since; checkpoints of the store add the newest one in full.

R1  Whether a Version is retained is asked of the store each time, never of what this process
    remembers: files of one that has expired may be gone.
R2  Remembered are only Versions that are committed, never those a transaction has merely staged.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from neve.errors import AlreadyExists, Conflict, Corruption, Fenced, InvalidArgument, NotFound
from neve.manifest.invariants import (
    check_added,
    check_definition,
    check_edit,
    check_head,
    check_version,
)
from neve.manifest.json_document import Document, write_document
from neve.manifest.manifest_store import ManifestStore
from neve.manifest.sessions import ReadSession, WriteSession
from neve.manifest.table_head import (
    HEAD_KEY,
    RESERVATION_KEY,
    SCHEMA_PREFIX,
    SPEC_PREFIX,
    STATE_PREFIX,
    HeadChange,
    Requirements,
    Reservation,
    TableHead,
    intent_key,
    job_key,
    read_number,
    schema_key,
    spec_key,
    state_key,
    transaction_key,
    version_key,
)
from neve.manifest.version_codec import decode_edit, decode_version, encode_edit
from neve.model.version import Operation, Version, VersionEdit, VersionFacts, apply_edit
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
class Commit:
    """What is known of a retained Version without its files."""

    number: int
    parent: int | None
    facts: VersionFacts


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
        return TableSnapshot(head=head, version=self._folded(session, head.current_version))

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
        return list(self._each_from(session, lowest, head.current_version))[::-1]

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
        requirements: Requirements | None = None,
    ) -> Committed:
        """Commit edits, each as a Version of its own, all or none.

        `schema` and `spec` are new ones, for the ids that `change` names. Raises Conflict when the
        first edit's base is no longer current, CatalogConflict when a requirement is not met.
        """
        asked = change or HeadChange()
        required = requirements or Requirements()
        _check_edits(edits, asked)

        def run(session: WriteSession) -> Committed:
            head = self.head_in(session)
            repeated = self._find_repeat(session, head, asked)
            if repeated is not None:
                return repeated
            self._check_asked(session, head, asked)
            if asked.restored_version is not None:
                self.version_in(session, asked.restored_version)
            required.check(head, path=self._path)
            if edits and edits[0].base != head.current_version:
                raise Conflict(
                    f"the table is at version {head.current_version}, not {edits[0].base}",
                    keys=(HEAD_KEY,),
                    path=self._path,
                    hint="rebase the change on the current version",
                )
            version = self._folded(session, head.current_version)
            for edit in edits:
                version = self._stage_edit(session, version, edit)
            after = head.advanced(asked, versions=len(edits), now_ms=self._clock.now_ms())
            check_head(head, after)
            self._stage_documents(session, after, asked, schema, spec)
            check_definition(after, edits, lambda key: session.get(key) is not None)
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
        """Give a retained Version as a session sees it; raises NotFound (R1)."""
        head = self.head_in(session)
        if not head.oldest_version <= number <= head.current_version and (
            number > head.current_version or session.get(state_key(number)) is None
        ):
            raise self._not_retained(session, number)
        return self._folded(session, number)

    def _folded(self, session: Session, number: int) -> Version:
        """Give a Version that is known to be retained."""
        staged = session.staged if isinstance(session, WriteSession) else {}
        pending: list[VersionEdit] = []
        version: Version | None = None
        at = number
        while at > 0:
            version = None if version_key(at) in staged else self._recall(at)
            version = version or self._stored_in_full(session, at)
            if version is not None:
                break
            pending.append(self.edit_in(session, at))
            at -= 1
        for edit in reversed(pending):
            check_edit(version, edit)
            version = apply_edit(version, edit)
        assert version is not None
        if not any(version_key(made) in staged for made in range(at + 1, number + 1)):
            self._keep(version)
        return version

    def commits_in(self, session: Session) -> Iterator[Commit]:
        """Give the retained Versions without their files, oldest first; each edit is read once."""
        head = self.head_in(session)
        for number in self.kept_alone_in(session, head):
            version = self.version_in(session, number)
            yield Commit(number=number, parent=version.parent, facts=version.facts)
        for number in range(head.oldest_version, head.current_version + 1):
            edit = self.edit_in(session, number)
            yield Commit(number=number, parent=edit.base or None, facts=edit.facts)

    def each_version_in(self, session: Session) -> Iterator[Version]:
        """Give the retained Versions, oldest first; each edit is applied once."""
        head = self.head_in(session)
        for number in self.kept_alone_in(session, head):
            yield self.version_in(session, number)
        yield from self._each_from(session, head.oldest_version, head.current_version)

    def _each_from(self, session: Session, first: int, last: int) -> Iterator[Version]:
        version = self.version_in(session, first)
        yield version
        for number in range(first + 1, last + 1):
            edit = self.edit_in(session, number)
            version = apply_edit(version, edit)
            yield version

    def schemas_in(self, session: Session) -> dict[int, str]:
        """Give every schema the table ever had, as JSON by id."""
        return self._texts(session, SCHEMA_PREFIX, "schema")

    def specs_in(self, session: Session) -> dict[int, str]:
        """Give every partition spec the table ever had, as JSON by id."""
        return self._texts(session, SPEC_PREFIX, "partition spec")

    def kept_alone_in(self, session: Session, head: TableHead) -> list[int]:
        """Versions below the oldest that a tag or lease kept when their neighbours went."""
        numbers = (read_number(key, prefix=STATE_PREFIX) for key, _ in session.scan(STATE_PREFIX))
        return [number for number in numbers if number < head.oldest_version]

    def _stored_in_full(self, session: Session, number: int) -> Version | None:
        # Not a read of the session: a full copy that comes or goes with a checkpoint changes
        # nothing a transaction has decided on.
        key = state_key(number)
        staged = session.staged if isinstance(session, WriteSession) else {}
        full = staged[key] if key in staged else session.state.get(key)
        if full is None:
            return None
        version = decode_version(full, path=f"{self._path}/{key}")
        check_version(version)
        return version

    def edit_in(self, session: Session, number: int) -> VersionEdit:
        """Give the edit that made a retained Version; raises NotFound."""
        payload = session.get(version_key(number))
        if payload is None:
            raise self._not_retained(session, number)
        return decode_edit(payload, path=f"{self._path}/{version_key(number)}")

    def _texts(self, session: Session, prefix: str, what: str) -> dict[int, str]:
        keys = {read_number(key, prefix=prefix): key for key, _ in session.scan(prefix)}
        return {
            number: self._text(session, key, f"{what} {number}") for number, key in keys.items()
        }

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

    def committed_before(self, change: HeadChange) -> Committed | None:
        """Find out whether this very batch or job is committed already."""
        if change.application is None and change.job_id is None:
            return None
        session = self.store.read()
        return self._find_repeat(session, self.head_in(session), change)

    def _find_repeat(
        self, session: Session, head: TableHead, asked: HeadChange
    ) -> Committed | None:
        number: int | None = None
        if asked.application is not None:
            name, batch = asked.application
            done = self._read_document(session, transaction_key(name))
            if done is not None and done.integer("batch") >= batch:
                number = done.integer("version")
        if asked.job_id is not None and number is None:
            done = self._read_document(session, job_key(asked.job_id))
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
        if asked.intent_id is not None and not session.get(intent_key(asked.intent_id)):
            raise Fenced(
                f"the intent of job {asked.intent_id} is gone",
                path=self._path,
                hint="the job took longer than its deadline and its files may be deleted: rerun it",
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
            self._stage_text(session, schema_key(head.schema_id), schema)
        elif asked.schema_id is not None:
            self._text(session, schema_key(head.schema_id), f"schema {head.schema_id}")
        if spec is not None:
            self._stage_text(session, spec_key(head.spec_id), spec)
        elif asked.spec_id is not None:
            self._text(session, spec_key(head.spec_id), f"partition spec {head.spec_id}")
        if asked.application is not None:
            name, batch = asked.application
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
        """Write a schema or spec; what an id stands for never changes."""
        payload = text.encode()
        if session.get(key) not in {None, payload}:
            raise Conflict(
                f"{key} stands for another definition already",
                keys=(key,),
                path=self._path,
                hint="read the table again and take the next id",
            )
        session.put(key, payload)

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

    def _recall(self, number: int) -> Version | None:
        version = self._versions.pop(number, None)
        if version is not None:
            self._versions[number] = version  # the last to be forgotten now
        return version

    def _keep(self, version: Version) -> None:
        self._versions[version.number] = version
        while len(self._versions) > _VERSIONS_KEPT:
            self._versions.popitem(last=False)


def _check_edits(edits: Sequence[VersionEdit], asked: HeadChange) -> None:
    for edit, following in pairwise(edits):
        if following.base != edit.base + 1:
            raise InvalidArgument(
                f"an edit of version {following.base} cannot follow one of version {edit.base}",
                hint="give each edit the version that the one before it makes as its base",
            )
    is_rollback = any(edit.facts.operation is Operation.ROLLBACK for edit in edits)
    if is_rollback and asked.restored_version is None:
        raise InvalidArgument(
            "a rollback does not say which version it restores",
            hint="name it in `restored_version`, so that its files cannot be deleted meanwhile",
        )
