"""CatalogEntries: the catalog's manifest store, and every transaction on it.

    root                              CatalogState: all names, and the next id
    __tables/<namespace.name>         TableMeta of one table
    __guests/<namespace.name>         GuestEntry: where the metadata of a guest table is
    announced/<table id>/<operation>  a change that concerns the table's version store too
    joint/<id>                        a decided commit of another engine to several tables

CATALOG-17  A transaction here touches only this store. A change that also concerns a version store
            is announced first, and `neve.catalog.settlement` brings the two together.
CATALOG-18  A table's document is found by its id, not by its name: a table may be renamed at any
            time, except between the announcement of a drop and the end of the drop.
CATALOG-37  A guest is a plain Iceberg table: its entry points at a metadata document, and a commit
            replaces the pointer that it was made from, or none. Several guests change together.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar
from uuid import UUID

from neve.catalog.catalog_state import ROOT_KEY, CatalogState, is_table_id, read_catalog_document
from neve.catalog.stored_table import tidy_store
from neve.catalog.table_meta import TableMeta, meta_key
from neve.catalog.table_name import TableName
from neve.catalog.table_request import TableRequest
from neve.errors import CatalogConflict, Corruption, NotFound
from neve.manifest.json_document import write_document
from neve.manifest.manifest_store import ManifestStore
from neve.manifest.sessions import ReadSession, WriteSession
from neve.model.schema_json import Json
from neve.storage.clock import Clock, IdSource
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import CATALOG_MANIFEST

ANNOUNCED_PREFIX: Final = "announced/"
GUEST_PREFIX: Final = "__guests/"
_JOINT_PREFIX: Final = "joint/"

# Longer than any commit may take.
ANNOUNCED_MS_MAX: Final = 10 * 60 * 1000

_FORMAT: Final = 1

Session = ReadSession | WriteSession
Result = TypeVar("Result")


class Action(StrEnum):
    """What is announced; on disk: never change."""

    CREATE = "create"
    CHANGE = "change"
    DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A notice that a process is about to change a table in both stores."""

    table_id: str
    operation_id: str
    action: Action
    since_ms: int

    @property
    def key(self) -> str:
        """Key of the announcement."""
        return f"{ANNOUNCED_PREFIX}{self.table_id}/{self.operation_id}"

    def may_be_under_way(self, now_ms: int) -> bool:
        """Whether the process that announced the change may still make it.

        Compares distances: an announcement from the future was made before the clock jumped back.
        """
        return abs(now_ms - self.since_ms) < ANNOUNCED_MS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestEntry:
    """A guest table: its name, its identity and its pointer."""

    name: str
    table_uuid: str
    metadata_location: str

    @property
    def key(self) -> str:
        """Key of its document."""
        return f"{GUEST_PREFIX}{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestMove:
    """A commit to a guest: the pointer it was made from, and the new one."""

    entry: GuestEntry
    metadata_location: str


class CatalogEntries:
    """Names, definitions and announcements; safe for many threads and processes."""

    def __init__(self, objects: ObjectStore, *, clock: Clock, ids: IdSource) -> None:
        self.store = ManifestStore(objects, CATALOG_MANIFEST, clock=clock, ids=ids)
        self._path = self.store.log.paths.prefix
        self._clock = clock
        self._ids = ids
        # Needs no lock: replaced as a whole. Each root is parsed once.
        self._parsed: tuple[bytes, CatalogState] | None = None

    def is_begun(self) -> bool:
        """Whether there is a catalog; finishes the commits of dead writers."""
        session = self.store.open()
        if session.segment == 0:
            return False
        self._state_in(session)
        return True

    def begin(self) -> None:
        """Make an empty catalog; an existing one is left unchanged."""

        def run(session: WriteSession) -> None:
            if session.get(ROOT_KEY) is None:
                session.put(ROOT_KEY, CatalogState().encode())

        self.store.transact(run)

    def state(self) -> CatalogState:
        """Return all current names."""
        return self._state_in(self.store.read())

    def meta(self, name: str) -> TableMeta:
        """Return the definition of a table; raises NotFound."""
        session = self.store.read()
        self._state_in(session).table_id(name)
        return self._meta_in(session, name)

    def find_meta(self, table_id: str, *, is_known: bool = False) -> TableMeta | None:
        """Return the definition of a table by its id; None when it has no name.

        With `is_known`, what this process knows is enough.
        """
        session = self.store.read_known() if is_known else self.store.read()
        name = self._state_in(session).name_of(table_id)
        return None if name is None else self._meta_in(session, name)

    def metas(self) -> list[TableMeta]:
        """Return the definitions of all tables, ascending by name, as of one moment."""
        session = self.store.read()
        return [self._meta_in(session, name) for name in sorted(self._state_in(session).tables)]

    def create_namespace(self, namespace: str, properties: Mapping[str, str]) -> None:
        """Add a namespace; raises AlreadyExists."""
        self.change_state(lambda state: state.with_namespace(namespace, properties))

    def drop_namespace(self, namespace: str) -> None:
        """Remove an empty namespace; raises NotFound, InvalidArgument."""
        self.change_state(lambda state: state.without_namespace(namespace))

    def change_namespace(
        self, namespace: str, given: Mapping[str, str], removed: Iterable[str]
    ) -> None:
        """Set and remove properties of a namespace; raises NotFound."""
        gone = tuple(removed)
        self.change_state(lambda state: state.with_properties(namespace, given, gone))

    def guest(self, name: str) -> GuestEntry:
        """Return a guest; raises NotFound."""
        return self._guest_in(self.store.read(), name)

    def guest_entries(self) -> list[GuestEntry]:
        """Return all guests, ascending by name, as of one moment."""
        session = self.store.read()
        return [self._guest_in(session, name) for name in sorted(self._state_in(session).guests)]

    def add_guest(
        self,
        name: TableName,
        table_uuid: str,
        metadata_location: str,
        *,
        over: GuestEntry | None = None,
    ) -> GuestEntry:
        """Add a guest under a name; raises AlreadyExists.

        It takes the place of the guest `over`; raises CatalogConflict if that is not there any
        more as it was read.
        """
        entry = GuestEntry(
            name=str(name), table_uuid=table_uuid, metadata_location=metadata_location
        )

        def run(session: WriteSession) -> None:
            state = self._state_in(session)
            if over is not None and self._guest_in(session, over.name) != over:
                raise CatalogConflict(
                    f"another process changed the guest table {over.name!a} first",
                    keys=(over.name,),
                    path=self._path,
                    hint="Read the table again and repeat the change",
                )
            if over is not None:
                state = state.without_guest(over.name)
            self._put_state(session, state.with_guest(name, table_uuid))
            _put_guest(session, entry)

        self._transact(run)
        return entry

    def move_guests(self, moves: Sequence[GuestMove]) -> None:
        """Replace pointers, all or none; raises Conflict when one is not what it was (CATALOG-37).

        A pointer that is the new one already stays: the answer of the first try was lost.
        """

        def run(session: WriteSession) -> None:
            for move in moves:
                found = self._guest_in(session, move.entry.name)
                after = replace(move.entry, metadata_location=move.metadata_location)
                if found not in {move.entry, after}:
                    raise CatalogConflict(
                        f"another process changed the guest table {move.entry.name!a} first",
                        keys=(move.entry.name,),
                        path=self._path,
                        hint="Read the table again and repeat the change",
                    )
                _put_guest(session, after)

        self._transact(run)

    def rename_guest(self, old: str, new: TableName) -> None:
        """Rename a guest; raises NotFound, AlreadyExists."""

        def run(session: WriteSession) -> None:
            entry = self._guest_in(session, old)
            state = self._state_in(session).without_guest(old).with_guest(new, entry.table_uuid)
            self._put_state(session, state)
            session.delete(entry.key)
            _put_guest(session, replace(entry, name=str(new)))

        self._transact(run)

    def remove_guest(self, name: str) -> GuestEntry:
        """Remove a guest, whose files stay; raises NotFound."""

        def run(session: WriteSession) -> GuestEntry:
            entry = self._guest_in(session, name)
            self._put_state(session, self._state_in(session).without_guest(name))
            session.delete(entry.key)
            return entry

        return self._transact(run)

    def replace_guest(self, entry: GuestEntry, table_name: str) -> None:
        """Move a guest's name to a table, and remove the guest, at once.

        Raises CatalogConflict when the guest was changed since it was read.
        """
        new = TableName.parse(entry.name)

        def run(session: WriteSession) -> None:
            if self._guest_in(session, entry.name) != entry:
                raise CatalogConflict(
                    f"another process changed the guest table {entry.name!a}",
                    keys=(entry.name,),
                    path=self._path,
                    hint="Adopt it again",
                )
            state = self._state_in(session).without_guest(entry.name)
            meta = self._meta_in(session, table_name)
            session.delete(entry.key)
            session.delete(meta_key(table_name))
            self._put_state(session, state.with_renamed(TableName.parse(table_name), new))
            moved = replace(meta, name=entry.name, updated_ms=self._clock.now_ms())
            session.put(meta_key(entry.name), moved.encode())

        self._transact(run)

    def decide_joint(self, joint_id: str, parts: Mapping[str, str], *, before_ms: int) -> bool:
        """Put the decision of a commit to several tables; False when it is too late for that."""

        def run(session: WriteSession) -> bool:
            now_ms = self._clock.now_ms()
            if now_ms >= before_ms:
                return False
            fields: dict[str, Json] = {"parts": {**parts}, "at_ms": now_ms}
            session.put(f"{_JOINT_PREFIX}{joint_id}", write_document(_FORMAT, fields))
            return True

        return self._transact(run)

    def joint_decisions(self) -> dict[str, dict[str, str]]:
        """Return decisions that were not carried out yet, as last read, by id and table id."""
        found: dict[str, dict[str, str]] = {}
        for key, payload in self.store.read_known().scan(_JOINT_PREFIX):
            path = f"{self._path}/{key}"
            document = read_catalog_document(payload, format_number=_FORMAT, path=path)
            found[key.removeprefix(_JOINT_PREFIX)] = document.text_map("parts")
        return found

    def forget_joint(self, joint_id: str) -> None:
        """Delete a decision that was carried out."""
        self._transact(lambda session: session.delete(f"{_JOINT_PREFIX}{joint_id}"))

    def add_table(
        self, definition: TableRequest, table_uuid: UUID
    ) -> tuple[TableMeta, Announcement]:
        """Assign a name and an id to a table, and announce its creation; raises AlreadyExists."""
        operation_id = self._ids.uuid().hex

        def run(session: WriteSession) -> tuple[TableMeta, Announcement]:
            state = self._state_in(session).with_table(definition.name, table_uuid)
            name = str(definition.name)
            now_ms = self._clock.now_ms()
            meta = definition.as_meta(
                table_id=state.tables[name], table_uuid=table_uuid, now_ms=now_ms
            )
            announcement = Announcement(
                table_id=meta.table_id,
                operation_id=operation_id,
                action=Action.CREATE,
                since_ms=now_ms,
            )
            self._put_state(session, state)
            session.put(meta_key(name), meta.encode())
            _put_announcement(session, announcement)
            return meta, announcement

        return self._transact(run)

    def rename_table(self, old: TableName, new: TableName) -> None:
        """Rename a table; raises NotFound, AlreadyExists."""

        def run(session: WriteSession) -> None:
            state = self._state_in(session).with_renamed(old, new)
            meta = self._meta_in(session, str(old))
            self._refuse_while_dropped(session, meta)
            session.delete(meta_key(str(old)))
            self._put_state(session, state)
            moved = replace(meta, name=str(new), updated_ms=self._clock.now_ms())
            session.put(meta_key(str(new)), moved.encode())

        self._transact(run)

    def remove_table(self, table_id: str) -> str | None:
        """Remove a dropped table's name and definition; return the name, if it had one."""

        def run(session: WriteSession) -> str | None:
            state = self._state_in(session)
            name = state.name_of(table_id)
            if name is not None:
                self._put_state(session, state.without_table(table_id))
                session.delete(meta_key(name))
            return name

        return self._transact(run)

    def change_meta(self, table_id: str, change: Callable[[TableMeta], TableMeta]) -> TableMeta:
        """Replace a table's definition if it differs; raises NotFound when it has no name."""

        def run(session: WriteSession) -> TableMeta:
            name = self._state_in(session).name_of(table_id)
            if name is None:
                raise NotFound("the table was dropped", path=self._path)
            after = change(self._meta_in(session, name))
            payload = after.encode()
            # Compare bytes: a definition may have more old schemas than there is room for.
            if payload != session.get(meta_key(name)):
                session.put(meta_key(name), payload)
            return after

        return self._transact(run)

    def announce_change(self, table_id: str) -> Announcement:
        """Announce that a table is about to be changed in both stores."""
        announcement = self._announcement(table_id, Action.CHANGE)
        self._transact(lambda session: _put_announcement(session, announcement))
        return announcement

    def announce_drop(self, name: str) -> Announcement:
        """Announce that the table of a name is about to be dropped; raises NotFound."""

        def run(session: WriteSession) -> Announcement:
            table_id = self._state_in(session).table_id(name)
            announcement = self._announcement(table_id, Action.DROP)
            _put_announcement(session, announcement)
            return announcement

        return self._transact(run)

    def announce_purge(self, table_id: str) -> Announcement:
        """Announce that the files of a dropped table are about to be deleted."""
        announcement = self._announcement(table_id, Action.DROP)
        self._transact(lambda session: _put_announcement(session, announcement))
        return announcement

    def withdraw(self, announcement: Announcement) -> None:
        """Remove an announcement; a missing one is ignored."""
        self._transact(lambda session: session.delete(announcement.key))

    def announcements(self) -> list[Announcement]:
        """Return every announcement, by table."""
        return self._announcements_in(self.store.read(), ANNOUNCED_PREFIX)

    def change_state(self, change: Callable[[CatalogState], CatalogState]) -> None:
        """Replace the names by what a function makes of them."""

        def run(session: WriteSession) -> None:
            self._put_state(session, change(self._state_in(session)))

        self._transact(run)

    def _transact(self, run: Callable[[WriteSession], Result]) -> Result:
        result = self.store.transact(run)
        tidy_store(self.store)
        return result

    def _state_in(self, session: Session) -> CatalogState:
        payload = session.get(ROOT_KEY)
        if payload is None:
            raise Corruption(
                "the catalog has lost its root",
                path=self._path,
                hint="Restore manifest/catalog from a copy",
            )
        parsed = self._parsed
        if parsed is not None and parsed[0] == payload:
            return parsed[1]
        state = CatalogState.decode(payload, path=f"{self._path}/{ROOT_KEY}")
        self._parsed = (payload, state)
        return state

    def _put_state(self, session: WriteSession, state: CatalogState) -> None:
        payload = state.encode()
        session.put(ROOT_KEY, payload)
        # Correct whether this commit wins or not: these bytes always mean this state.
        self._parsed = (payload, state)

    def _meta_in(self, session: Session, name: str) -> TableMeta:
        key = meta_key(name)
        payload = session.get(key)
        if payload is None:
            raise Corruption(
                f"the definition of table {name!a} is missing", path=f"{self._path}/{key}"
            )
        meta = TableMeta.decode(payload, path=f"{self._path}/{key}")
        if meta.name != name or meta.table_id != self._state_in(session).tables.get(name):
            raise Corruption(
                f"the definition of table {name!a} belongs to another", path=f"{self._path}/{key}"
            )
        return meta

    def _guest_in(self, session: Session, name: str) -> GuestEntry:
        state = self._state_in(session)
        state.check_guest(name)
        path = f"{self._path}/{GUEST_PREFIX}{name}"
        payload = session.get(f"{GUEST_PREFIX}{name}")
        if payload is None:
            raise Corruption(f"the pointer of guest table {name!a} is missing", path=path)
        document = read_catalog_document(payload, format_number=_FORMAT, path=path)
        entry = GuestEntry(
            name=document.text("name"),
            table_uuid=document.text("table_uuid"),
            metadata_location=document.text("metadata_location"),
        )
        if entry.name != name or entry.table_uuid != state.guests[name]:
            raise Corruption(f"the pointer of guest table {name!a} belongs to another", path=path)
        return entry

    def _announcement(self, table_id: str, action: Action) -> Announcement:
        return Announcement(
            table_id=table_id,
            operation_id=self._ids.uuid().hex,
            action=action,
            since_ms=self._clock.now_ms(),
        )

    def _announcements_in(self, session: Session, prefix: str) -> list[Announcement]:
        return [self._read_announcement(key, payload) for key, payload in session.scan(prefix)]

    def _refuse_while_dropped(self, session: Session, meta: TableMeta) -> None:
        now_ms = self._clock.now_ms()
        for each in self._announcements_in(session, f"{ANNOUNCED_PREFIX}{meta.table_id}/"):
            if each.action is Action.DROP and each.may_be_under_way(now_ms):
                raise CatalogConflict(
                    f"another process is dropping table {meta.name!a}",
                    keys=(meta.name,),
                    path=self._path,
                    hint="Try again in a moment",
                )

    def _read_announcement(self, key: str, payload: bytes) -> Announcement:
        path = f"{self._path}/{key}"
        document = read_catalog_document(payload, format_number=_FORMAT, path=path)
        try:
            action = Action(document.text("action"))
        except ValueError as error:
            raise Corruption("an announcement has an unknown change", path=path) from error
        announcement = Announcement(
            table_id=document.text("table_id"),
            operation_id=document.text("operation_id"),
            action=action,
            since_ms=document.integer("since_ms"),
        )
        if announcement.key != key or not is_table_id(announcement.table_id):
            raise Corruption("an announcement has the wrong key", path=path)
        return announcement


def _put_guest(session: WriteSession, entry: GuestEntry) -> None:
    session.put(
        entry.key,
        write_document(
            _FORMAT,
            {
                "name": entry.name,
                "table_uuid": entry.table_uuid,
                "metadata_location": entry.metadata_location,
            },
        ),
    )


def _put_announcement(session: WriteSession, announcement: Announcement) -> None:
    session.put(
        announcement.key,
        write_document(
            _FORMAT,
            {
                "table_id": announcement.table_id,
                "operation_id": announcement.operation_id,
                "action": announcement.action,
                "since_ms": announcement.since_ms,
            },
        ),
    )
