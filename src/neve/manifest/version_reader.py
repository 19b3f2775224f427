"""VersionReader: the head, Versions, schemas and specs of one table, as a session sees them.

A commit stores only its edit. To read a Version, read the nearest one stored in full and apply the
edits since; checkpoints of the store add the newest one in full.

MANIFEST-R1  The store decides each time whether a Version is retained, never the memory of this
             process: files of an expired Version may be gone.
MANIFEST-R2  Only committed Versions are remembered by number. A Version that a transaction has only
             staged is identified by its bytes, which no other transaction can have.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from neve.errors import Corruption, InvalidArgument, NotFound, Phrase, Wording
from neve.manifest.invariants import (
    check_added,
    check_edit,
    check_head,
    check_references,
    check_table,
    check_version,
)
from neve.manifest.manifest_store import ManifestStore
from neve.manifest.sessions import ReadSession, WriteSession
from neve.manifest.table_head import (
    HEAD_KEY,
    SCHEMA_PREFIX,
    SPEC_PREFIX,
    STATE_PREFIX,
    TableHead,
    read_number,
    schema_key,
    state_key,
    version_key,
)
from neve.manifest.version_codec import (
    EditMessage,
    decode_edit,
    decode_version,
    read_edit,
)
from neve.model.version import Version, VersionEdit, VersionFacts, apply_edit
from neve.storage.table_paths import check_path

_VERSIONS_KEPT: Final = 16
_EDITS_KEPT: Final = 256
_EDIT_BYTES_KEPT: Final = 64 << 10  # largest edit that is kept

Session = ReadSession | WriteSession


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshot:
    """A table's head and one of its Versions, read together."""

    head: TableHead
    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A retained Version without its files."""

    number: int
    parent: int | None
    facts: VersionFacts


class VersionReader:
    """Reads one table in its own manifest store; safe for many threads."""

    def __init__(self, store: ManifestStore) -> None:
        self.store = store
        self._path = store.log.paths.prefix
        # safe on their own: entries are values, and a lost one is read again
        self._versions: OrderedDict[int, Version] = OrderedDict()
        self._edits: OrderedDict[int, tuple[bytes, VersionEdit]] = OrderedDict()
        self._last_head: tuple[bytes, TableHead | None] = b"", None
        """The head read last, by its bytes."""
        self._staged: tuple[bytes, Version] | None = None
        """The Version staged last in the current group, by its edit's bytes (MANIFEST-R2)."""

    def head(self) -> TableHead:
        """Return the newest head; raises NotFound when there is no such table."""
        return self.head_in(self.store.read())

    def snapshot_latest(self) -> TableSnapshot:
        """Return the newest head and Version."""
        session = self.store.read()
        head = self.head_in(session)
        return TableSnapshot(head=head, version=self._folded(session, head, head.current_version))

    def snapshot_known(self) -> TableSnapshot:
        """Return the newest head and Version that this process knows; there may be newer ones."""
        session = self.store.read_known()
        head = self.head_in(session)
        return TableSnapshot(head=head, version=self._folded(session, head, head.current_version))

    def version(self, number: int) -> Version:
        """Return a retained Version; raises NotFound, which says what is retained."""
        return self.version_in(self.store.read(), number)

    def list_versions(self, limit: int = 0) -> list[Version]:
        """Return the retained Versions, newest first; 0 returns all."""
        session = self.store.read()
        head = self.head_in(session)
        lowest = head.oldest_version
        if limit > 0:
            lowest = max(lowest, head.current_version - limit + 1)
        return list(self._each_from(session, lowest, head.current_version))[::-1]

    def wal_floor(self) -> int:
        """Return the lowest log that is still needed."""
        return self.head().wal_floor

    def schema_json(self, schema_id: int) -> str:
        """Return the schema of an id, as JSON."""
        return self._text(self.store.read(), schema_key(schema_id), f"schema {schema_id}")

    def head_in(self, session: Session) -> TableHead:
        """Return the head as a session sees it; raises NotFound."""
        payload = session.get(HEAD_KEY)
        if payload is None:
            raise NotFound("there is no such table", path=self._path)
        read, head = self._last_head
        if head is None or payload != read:
            head = TableHead.decode(payload, path=self._path)
            check_head(None, head)
            self._last_head = payload, head
        return head

    def refuse_dropped(self, head: TableHead) -> None:
        """Raise NotFound when the table was dropped."""
        if head.dropped:
            raise NotFound("the table was dropped", path=self._path)

    def version_in(self, session: Session, number: int) -> Version:
        """Return a retained Version as a session sees it; raises NotFound (MANIFEST-R1)."""
        # Refuse bool, which is an int, and any other type.
        if type(number) is not int:
            raise InvalidArgument(
                f"a version is a number, not {type(number).__name__}",
                hint=Wording(Phrase.NAME_A_KEPT_VERSION),
            )
        head = self.head_in(session)
        if not head.oldest_version <= number <= head.current_version and (
            number > head.current_version or session.get(state_key(number)) is None
        ):
            raise self._not_retained(session, number)
        return self._folded(session, head, number)

    def _folded(self, session: Session, head: TableHead, number: int) -> Version:
        """Return a Version that is certainly retained."""
        staged = session.staged if isinstance(session, WriteSession) else {}
        pending: list[VersionEdit] = []
        version: Version | None = None
        is_committed = True
        at = number
        while at > 0:
            if version_key(at) in staged:
                is_committed = False
                version = self._recall_staged(staged[version_key(at)])
            else:
                version = self._recall(at)
            version = version or self._stored_in_full(session, at)
            if version is not None:
                break
            pending.append(self.edit_in(session, at))
            at -= 1
        for edit in reversed(pending):
            version = _following(session, version, edit)
        assert version is not None
        if is_committed:
            check_table(head, version)
            self._keep(version)
        return version

    def commits_in(self, session: Session) -> Iterator[Commit]:
        """Yield the retained Versions without their files, oldest first; each edit is read once."""
        head = self.head_in(session)
        for number in self.kept_alone_in(session, head):
            version = self.version_in(session, number)
            yield Commit(number=number, parent=version.parent, facts=version.facts)
        for number in range(head.oldest_version, head.current_version + 1):
            edit = self.edit_message_in(session, number)
            yield Commit(number=number, parent=edit.base or None, facts=edit.facts)

    def each_version_in(self, session: Session) -> Iterator[Version]:
        """Yield the retained Versions, oldest first; each edit is applied once."""
        head = self.head_in(session)
        for number in self.kept_alone_in(session, head):
            yield self.version_in(session, number)
        yield from self._each_from(session, head.oldest_version, head.current_version)

    def _each_from(self, session: Session, first: int, last: int) -> Iterator[Version]:
        version = self.version_in(session, first)
        yield version
        for number in range(first + 1, last + 1):
            version = _following(session, version, self.edit_in(session, number))
            yield version

    def schemas_in(self, session: Session) -> dict[int, str]:
        """Return every schema the table ever had, as JSON by id."""
        return self._texts(session, SCHEMA_PREFIX, "schema")

    def specs_in(self, session: Session) -> dict[int, str]:
        """Return every partition spec the table ever had, as JSON by id."""
        return self._texts(session, SPEC_PREFIX, "partition spec")

    def kept_alone_in(self, session: Session, head: TableHead) -> list[int]:
        """Return Versions below the oldest that a tag or lease kept when others expired."""
        numbers = (read_number(key, prefix=STATE_PREFIX) for key, _ in session.scan(STATE_PREFIX))
        return [number for number in numbers if number < head.oldest_version]

    def _stored_in_full(self, session: Session, number: int) -> Version | None:
        # Not a read of the session: a full copy that a checkpoint adds or removes does not affect
        # the decision of a transaction.
        key = state_key(number)
        staged = session.staged if isinstance(session, WriteSession) else {}
        full = staged[key] if key in staged else session.state.get(key)
        if full is None:
            return None
        version = decode_version(full, path=f"{self._path}/{key}")
        check_version(version)
        files = (*version.files.values(), *version.deletes.values())
        check_references(version.facts, files, _exists_in(session))
        return version

    def edit_in(self, session: Session, number: int) -> VersionEdit:
        """Return the edit that made a retained Version; raises NotFound."""
        payload = session.get(version_key(number))
        if payload is None:
            raise self._not_retained(session, number)
        known = self._edits.get(number)
        if known is not None and known[0] is payload:
            return known[1]
        edit = decode_edit(payload, path=f"{self._path}/{version_key(number)}")
        self._keep_edit(number, payload, edit)
        return edit

    def edit_message_in(self, session: Session, number: int) -> EditMessage:
        """Return the edit that made a retained Version; only its paths are read and checked.

        Raises NotFound, and Corruption.
        """
        payload = session.get(version_key(number))
        if payload is None:
            raise self._not_retained(session, number)
        place = f"{self._path}/{version_key(number)}"
        edit = read_edit(payload, path=place)
        for path in edit.brought:
            try:
                check_path(path)
            except InvalidArgument as error:
                raise Corruption(f"an edit names {path[:80]!a}", path=place) from error
        return edit

    def touched_in(self, session: Session, *, after: int, until: int) -> list[str] | None:
        """Return the paths that the edits after one Version touch, up to another.

        None when unknown: there are too many, or some have expired.
        """
        if until - after > _EDITS_KEPT:
            return None
        touched: list[str] = []
        for number in range(after + 1, until + 1):
            if session.get(version_key(number)) is None:
                return None
            edit = self.edit_in(session, number)
            touched += edit.removed
            touched += edit.vectors
            touched += (file.path for file in edit.added)
        return touched

    def _texts(self, session: Session, prefix: str, what: str) -> dict[int, str]:
        keys = {read_number(key, prefix=prefix): key for key, _ in session.scan(prefix)}
        return {
            number: self._text(session, key, f"{what} {number}") for number, key in keys.items()
        }

    def _not_retained(self, session: Session, number: int) -> NotFound:
        head = self.head_in(session)
        return NotFound(
            f"version {number} does not exist",
            path=self._path,
            hint=f"Use a version from {head.oldest_version} to {head.current_version}",
        )

    def _text(self, session: Session, key: str, what: str) -> str:
        payload = session.get(key)
        if payload is None:
            raise NotFound(f"there is no {what}", path=self._path)
        try:
            return payload.decode()
        except UnicodeDecodeError as error:
            raise Corruption(f"{what} is not text", path=f"{self._path}/{key}") from error

    def _recall(self, number: int) -> Version | None:
        version = self._versions.pop(number, None)
        if version is not None:
            self._versions[number] = version  # the last to be evicted now
        return version

    def _keep(self, version: Version) -> None:
        self._versions[version.number] = version
        while len(self._versions) > _VERSIONS_KEPT:
            self._versions.popitem(last=False)

    def _recall_staged(self, payload: bytes | None) -> Version | None:
        staged = self._staged
        return staged[1] if staged is not None and staged[0] is payload else None

    def _keep_staged(self, version: Version, payload: bytes, edit: VersionEdit) -> None:
        self._staged = payload, version
        self._keep_edit(version.number, payload, edit)

    def _keep_edit(self, number: int, payload: bytes, edit: VersionEdit) -> None:
        if len(payload) <= _EDIT_BYTES_KEPT:
            self._edits[number] = payload, edit
            while len(self._edits) > _EDITS_KEPT:
                self._edits.popitem(last=False)


def _following(session: Session, version: Version | None, edit: VersionEdit) -> Version:
    """Return the Version after a stored edit; raises InvariantViolation when it breaks a rule."""
    check_edit(version, edit)
    after = apply_edit(version, edit)
    check_added(after, edit)
    check_references(edit.facts, edit.added, _exists_in(session))
    return after


def _exists_in(session: Session) -> Callable[[str], bool]:
    """Return a check whether a session sees a schema or spec; these never change."""
    return lambda key: session.get(key) is not None


def expired_history(
    since: int, head: TableHead, *, path: str, consumer: str | None = None
) -> NotFound:
    """Return the error for changes that are no longer kept; `consumer` has stopped there."""
    hint = Wording(Phrase.CHANGES_KEPT_SINCE, oldest=head.oldest_version)
    if consumer is not None:
        hint = Wording(Phrase.RESTART_CONSUMER, name=consumer, oldest=head.oldest_version)
    return NotFound(f"the history after version {since} has expired", path=path, hint=hint)
