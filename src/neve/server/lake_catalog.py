"""LakeCatalog: the operations of Iceberg's catalog on a lake, without HTTP.

The server and the catalog class for PyIceberg both call it. A table with a primary key is a table
of neve; any other one is a guest, an Iceberg table that the lake only keeps the pointer of. A
client that creates a table asks for a key by the property `neve.primary-key`, with the columns or
with `identifier-fields`; a namespace may have the property, too, for the tables made in it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from neve.catalog.foreign_definition import KEY_PROPERTY, key_names
from neve.catalog.guests import GuestTable
from neve.catalog.lake import Lake
from neve.catalog.served_lake import ServedLake
from neve.catalog.table_name import TableName
from neve.errors import CatalogConflict, InvalidArgument, NeveError, NotFound
from neve.iceberg.guest_metadata import changed_document, new_document
from neve.model.schema_json import Json, JsonObject
from neve.server.error_model import (
    EXISTS,
    FORBIDDEN,
    NO_NAMESPACE,
    NO_TABLE,
    NOT_EMPTY,
    UNSUPPORTED,
    RequestRefused,
    bad_request,
)
from neve.server.rest_names import Namespace, TableRef
from neve.server.served_tables import ServedTable, ServedTables
from neve.server.table_commit import TableCommits, TableUpdates, table_from_document

_CREATE: Final = "assert-create"


@dataclass(frozen=True, slots=True)
class Page:
    """Names of a listing, and the last of them if there are more."""

    names: list[str]
    last: str | None = None


@dataclass(frozen=True, slots=True)
class TableChange:
    """A commit to one table, as a request has it."""

    ref: TableRef
    requirements: Sequence[Json]
    updates: Sequence[JsonObject]

    @classmethod
    def of_body(cls, ref: TableRef, body: Mapping[str, Json]) -> "TableChange":
        """Read the body of a commit; raises RequestRefused."""
        requirements, updates = body.get("requirements"), body.get("updates")
        if not isinstance(requirements, list) or not isinstance(updates, list):
            raise bad_request("a commit has lists of requirements and updates")
        read: list[JsonObject] = []
        for each in updates:
            if not isinstance(each, dict) or not isinstance(each.get("action"), str):
                raise bad_request("each update of a commit is an object with an action")
            read.append(each)
        return cls(ref, requirements, read)

    @property
    def creates(self) -> bool:
        """Whether the table must not exist yet."""
        return any(
            isinstance(each, dict) and each.get("type") == _CREATE for each in self.requirements
        )

    @property
    def uuids(self) -> list[Json]:
        """The identity of a table that the commit creates."""
        return [each.get("uuid") for each in self.updates if each["action"] == "assign-uuid"]

    @property
    def snapshot_ids(self) -> list[Json]:
        """The snapshots that it adds."""
        added = [each.get("snapshot") for each in self.updates if each["action"] == "add-snapshot"]
        return [each.get("snapshot-id") for each in added if isinstance(each, dict)]


def _is_made(guest: GuestTable, change: TableChange) -> bool:
    """Return whether a commit that got no answer was made: the guest has its snapshots.

    Iceberg draws their ids at random. A commit without snapshots is compared by its requirements.
    """
    listed = guest.metadata.get("snapshots")
    snapshots = listed if isinstance(listed, list) else []
    known = [each.get("snapshot-id") for each in snapshots if isinstance(each, dict)]
    wanted = change.snapshot_ids
    return all(each in known for each in wanted) and bool(wanted or change.creates)


def _everything(_namespace: str) -> bool:
    return True


class LakeCatalog:
    """Iceberg's catalog over one lake; safe for many threads."""

    def __init__(self, lake: Lake, *, client_config: Mapping[str, str] | None = None) -> None:
        """Begin; `client_config` is returned with each table, such as the endpoint of a bucket."""
        self.lake = lake
        self.inside = ServedLake(lake)
        self._served = ServedTables(lake.guests, client_config or {})
        self._commits = TableCommits(self.inside, self._served)

    # Namespaces

    def list_namespaces(
        self,
        parent: Namespace | None,
        *,
        after: str | None = None,
        limit: int | None = None,
        sees: Callable[[str], bool] = _everything,
    ) -> Page:
        """Return the namespaces that a caller sees, directly below one or the outermost ones."""
        try:
            found = self.lake.list_namespaces(None if parent is None else parent.dotted)
        except NotFound as error:
            raise _no_namespace(error) from error
        depth = 1 if parent is None else len(parent.levels) + 1
        names = [name for name in found if name.count(".") + 1 == depth and sees(name)]
        return _page(names, after, limit)

    def namespace_properties(self, namespace: Namespace) -> dict[str, str]:
        """Return the properties of a namespace."""
        try:
            return self.lake.namespace_properties(namespace.dotted)
        except NotFound as error:
            raise _no_namespace(error) from error

    def create_namespace(self, namespace: Namespace, properties: Mapping[str, str]) -> None:
        """Make a namespace, and its parents."""
        self.lake.create_namespace(namespace.dotted, properties)

    def drop_namespace(self, namespace: Namespace) -> None:
        """Remove an empty namespace."""
        self.namespace_properties(namespace)
        try:
            self.lake.drop_namespace(namespace.dotted)
        except NotFound as error:
            raise _no_namespace(error) from error
        except InvalidArgument as error:
            raise RequestRefused(HTTPStatus.CONFLICT, NOT_EMPTY, str(error)) from error

    def change_namespace(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str]
    ) -> dict[str, list[str]]:
        """Change properties of a namespace; return what was done, as the specification names it."""
        both = sorted({*updates} & {*removals})
        if both:
            raise RequestRefused(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "UnprocessableEntityException",
                f"the property {both[0]!a} is both updated and removed",
            )
        before = self.namespace_properties(namespace)
        self.lake.set_namespace_properties(namespace.dotted, updates, remove=removals)
        wanted = dict.fromkeys(removals)
        return {
            "updated": [*updates],
            "removed": [each for each in wanted if each in before],
            "missing": [each for each in wanted if each not in before],
        }

    # Tables

    def list_tables(
        self, namespace: Namespace, *, after: str | None = None, limit: int | None = None
    ) -> Page:
        """Return the names of the tables in a namespace, guests included."""
        try:
            names = self.lake.list_tables(namespace.dotted)
            guests = self.lake.guests.names(namespace.dotted)
        except NotFound as error:
            raise _no_namespace(error) from error
        return _page(sorted([*names, *guests]), after, limit)

    def table_exists(self, ref: TableRef) -> bool:
        """Return whether there is a table or a guest of this name."""
        state = self.inside.names()
        return ref.dotted in state.tables or ref.dotted in state.guests

    def load_table(self, ref: TableRef, *, only_refs: bool = False) -> ServedTable:
        """Return a table with its metadata, the newest commit included."""
        name = ref.dotted
        try:
            revision = self.inside.revision(name)
            found = self._served.find(revision, only_refs=only_refs)
            if found is not None:
                return found
            table = self.lake.load_table(name)
        except NotFound as error:
            if name in self.inside.names().guests:
                return self._served.of_guest(self._guest(name), only_refs=only_refs)
            raise _no_table(error) from error
        return self._served.of_table(table, revision, only_refs=only_refs)

    def create_table(self, namespace: Namespace, request: Mapping[str, Json]) -> bytes:
        """Create a table, or only prepare one for a later commit; return the reply."""
        ref = TableRef.of_name(namespace, request.get("name"))
        inherited = self.namespace_properties(namespace)
        properties = texts_of(request.get("properties"), what="properties")
        self._refuse_taken(ref)
        key = _asked_key(request.get("schema"), properties, inherited)
        place = self.lake.guests.new_place() if key is None else self._commits.new_place()
        location = request.get("location")
        if key is None and isinstance(location, str) and location:
            place = location.rstrip("/")
        table_uuid = str(self.inside.new_uuid())
        document = new_document(
            request, location=place, table_uuid=table_uuid, properties=properties
        )
        if request.get("stage-create") is True:
            return self._served.staged(document)
        if key is None:
            return self._served.of_guest(self.lake.guests.create(ref.dotted, document)).body
        table_from_document(self.inside, ref.dotted, json.loads(document), key)
        return self.load_table(ref).body

    def register_table(
        self,
        namespace: Namespace,
        request: Mapping[str, Json],
        *,
        may_read: Callable[[str], bool] = _everything,
    ) -> ServedTable:
        """Add a table under a name, by metadata in the lake of namespaces that may be read."""
        ref = TableRef.of_name(namespace, request.get("name"))
        location = _text(request, "metadata-location")
        self.namespace_properties(namespace)
        path = self.lake.guests.path_of(location)
        if path is None or not path.startswith("guests/"):
            raise bad_request(
                "the metadata is not that of a guest table of the lake; "
                "lake.register registers tables elsewhere"
            )
        guests = self.lake.guests
        owners = [TableName.parse(each).namespace for each in guests.owners_of(location)]
        if not all(map(may_read, owners)):
            raise RequestRefused(
                HTTPStatus.FORBIDDEN,
                FORBIDDEN,
                "the token does not allow to read the table that the metadata belongs to",
            )
        overwrite = request.get("overwrite") is True
        if not overwrite or ref.dotted in self.inside.names().tables:
            self._refuse_taken(ref)
        return self._served.of_guest(guests.register(ref.dotted, location, overwrite=overwrite))

    def drop_table(self, ref: TableRef, *, purge: bool) -> None:
        """Drop a table; `purge` deletes its files."""
        try:
            if ref.dotted in self.inside.names().guests:
                self.lake.guests.drop(ref.dotted, purge=purge)
            else:
                self.lake.drop_table(ref.dotted, purge=purge)
        except NotFound as error:
            raise _no_table(error) from error

    def rename_table(self, source: TableRef, target: TableRef) -> None:
        """Rename a table; the namespace of the new name must exist."""
        self.namespace_properties(target.namespace)
        try:
            if source.dotted in self.inside.names().guests:
                self.lake.guests.rename(source.dotted, target.dotted)
            else:
                self.lake.rename_table(source.dotted, target.dotted)
        except NotFound as error:
            raise _no_table(error) from error

    # Commits

    def commit(self, change: TableChange) -> ServedTable:
        """Commit updates of a table, or create it; return the table as it is now."""
        self.inside.check_writable()
        if change.creates:
            return self._create(change)
        name = change.ref.dotted
        try:
            table = self.lake.load_table(name)
        except NotFound as error:
            if name not in self.inside.names().guests:
                raise _no_table(error) from error
        else:
            return self._commits.commit(table, change.requirements, change.updates)
        return self._commit_guests([change])[0]

    def commit_all(self, changes: Sequence[TableChange]) -> None:
        """Commit updates of several tables, all or none."""
        names = [change.ref.dotted for change in changes]
        if len(set(names)) < len(names):
            raise bad_request("a table occurs twice in one transaction")
        if len(changes) == 1:
            self.commit(changes[0])
            return
        self.inside.check_writable()
        state = self.inside.names()
        for change in changes:
            name = change.ref.dotted
            if not change.creates and name not in state.tables and name not in state.guests:
                raise RequestRefused(HTTPStatus.NOT_FOUND, NO_TABLE, f"there is no table {name!a}")
        own = [change for change in changes if change.ref.dotted in state.tables]
        if any(change.creates for change in changes) or (own and len(own) < len(changes)):
            raise RequestRefused(
                HTTPStatus.NOT_IMPLEMENTED,
                UNSUPPORTED,
                "a transaction over several tables changes tables that exist, all of them with a "
                "primary key, or all of them guests",
            )
        if own:
            self.inside.finish_transactions()
            self._commits.commit_all(
                [
                    TableUpdates(
                        self.lake.load_table(each.ref.dotted), each.requirements, each.updates
                    )
                    for each in own
                ]
            )
        elif changes:
            self._commit_guests(changes)

    def _commit_guests(self, changes: Sequence[TableChange]) -> list[ServedTable]:
        guests: list[GuestTable] = []
        for change in changes:
            try:
                guests.append(self._guest(change.ref.dotted))
            except NotFound as error:
                raise _no_table(error) from error
        if all(map(_is_made, guests, changes)):
            return [self._served.of_guest(guest) for guest in guests]
        planned: list[tuple[GuestTable, bytes]] = []
        for guest, change in zip(guests, changes, strict=True):
            planned.append(
                (
                    guest,
                    changed_document(
                        guest.document,
                        change.requirements,
                        change.updates,
                        document_location=guest.metadata_location,
                    ),
                )
            )
        return [self._served.of_guest(guest) for guest in self.lake.guests.commit(planned)]

    def _create(self, change: TableChange) -> ServedTable:
        """Create a table out of the updates of its first commit."""
        ref = change.ref
        inherited = self.namespace_properties(ref.namespace)
        done = self._commits.find_created(ref.dotted, change.updates)
        if done is not None:
            return done
        if ref.dotted in self.inside.names().guests:
            guest = self._guest(ref.dotted)
            if guest.entry.table_uuid in change.uuids and _is_made(guest, change):
                return self._served.of_guest(guest)
        if self.table_exists(ref):
            raise CatalogConflict(f"the table {ref.dotted!a} already exists")
        document = changed_document(None, change.requirements, change.updates)
        members: JsonObject = json.loads(document)
        properties = texts_of(members.get("properties"), what="properties")
        key = key_names(members, _wanted_key(properties, inherited))
        if key is None:
            return self._served.of_guest(self.lake.guests.create(ref.dotted, document))
        return self._commits.create(ref.dotted, members, key, change.updates)

    def _guest(self, name: str) -> GuestTable:
        return self.lake.guests.load(name)

    def _refuse_taken(self, ref: TableRef) -> None:
        if self.table_exists(ref):
            raise RequestRefused(
                HTTPStatus.CONFLICT, EXISTS, f"the table {ref.dotted!a} already exists"
            )


def texts_of(given: Json, *, what: str) -> dict[str, str]:
    """Return an object of texts; raises RequestRefused."""
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
        raise bad_request(f"{what} are an object of texts")
    return {name: str(value) for name, value in given.items()}


def _text(request: Mapping[str, Json], name: str) -> str:
    found = request.get(name)
    if not isinstance(found, str) or not found:
        raise bad_request(f"{name} is missing, or is not text")
    return found


def _wanted_key(properties: Mapping[str, str], inherited: Mapping[str, str]) -> str | None:
    return properties.get(KEY_PROPERTY, inherited.get(KEY_PROPERTY))


def _asked_key(
    schema: Json, properties: Mapping[str, str], inherited: Mapping[str, str]
) -> list[str] | None:
    """Return the columns of the key that a client asks for; None for a guest."""
    if not isinstance(schema, dict) or not isinstance(schema.get("fields"), list):
        raise bad_request("a table has a schema with a list of fields")
    members: JsonObject = {"schemas": [schema], "current-schema-id": schema.get("schema-id")}
    return key_names(members, _wanted_key(properties, inherited))


def _page(names: list[str], after: str | None, limit: int | None) -> Page:
    if after:
        names = [name for name in names if name > after]
    if limit is None or len(names) <= limit:
        return Page(names)
    return Page(names[:limit], names[limit - 1])


def _no_table(error: NeveError) -> RequestRefused:
    return RequestRefused(HTTPStatus.NOT_FOUND, NO_TABLE, str(error))


def _no_namespace(error: NeveError) -> RequestRefused:
    return RequestRefused(HTTPStatus.NOT_FOUND, NO_NAMESPACE, str(error))
