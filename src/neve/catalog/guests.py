"""Guests: plain Iceberg tables in the catalog of a lake, without a key and without an engine.

    __guests/shop.clicks ──► guests/<uuid>/metadata/00004-….metadata.json ──► Iceberg's files

A commit writes the next document under a new name, then replaces the pointer in the catalog's
store, if it is still the one that the commit was made from (CATALOG-37). Documents are Iceberg's,
so every engine reads and writes them; neve only keeps the pointer.

A guest may be outside of the lake (`lake.register`): then it can be read, and others change it.

Clients may move a guest, and its older files stay where they were written. So a directory says
nothing about whose files it has:

CATALOG-40  A purge deletes the files below `guests/` that the metadata of the guest names, in any
            of its versions, and that no other guest of the lake names. It deletes nothing while
            the metadata of another one cannot be read.
CATALOG-41  No guest gets its location in a directory below `guests/` where another one is, or has
            files.
"""

import logging
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from neve.catalog.catalog_entries import GuestEntry, GuestMove
from neve.catalog.lake_stores import LakeStores
from neve.catalog.table_name import TableName
from neve.errors import CatalogConflict, InvalidArgument, NeveError, NotFound
from neve.iceberg.foreign_snapshots import named_files
from neve.iceberg.guest_metadata import (
    arrow_schema_of,
    check_document,
    read_location,
    scan_rows,
)
from neve.model.schema_json import JsonObject
from neve.storage.local_store import LocalStore
from neve.storage.object_store import ObjectStore, plain_location
from neve.storage.table_paths import check_path

logger = logging.getLogger(__name__)

_DOCUMENT: Final = ".metadata.json"
_GUESTS: Final = "guests"
_FILE: Final = "file:"
_BUCKETS: Final = ("s3a://", "s3n://")


@dataclass(frozen=True, slots=True)
class GuestTable:
    """A guest as it was when it was loaded."""

    entry: GuestEntry
    document: bytes
    """Iceberg's metadata."""

    @property
    def name(self) -> str:
        """Dotted name."""
        return self.entry.name

    @property
    def metadata_location(self) -> str:
        """Where its metadata is."""
        return self.entry.metadata_location

    @property
    def metadata(self) -> JsonObject:
        """Its metadata, parsed."""
        return check_document(self.document)

    @property
    def location(self) -> str:
        """Where its files are."""
        return str(self.metadata.get("location", ""))

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return arrow_schema_of(self.document)

    def to_arrow(
        self, columns: Sequence[str] | None = None, *, limit: int | None = None
    ) -> pa.Table:
        """Read its rows with PyIceberg."""
        return scan_rows(self.metadata_location, self.document, columns=columns, limit=limit)


class Guests:
    """The guest tables of one lake; safe for many threads and processes."""

    def __init__(self, stores: LakeStores) -> None:
        self._stores = stores
        self._entries = stores.entries
        self.objects: ObjectStore = stores.objects
        self.is_read_only = stores.read_only

    def names(self, namespace: str | None = None) -> list[str]:
        """Return the dotted names of the guests in a namespace, or of all, ascending."""
        self._stores.check_open()
        state = self._entries.state()
        return sorted(state.guests) if namespace is None else state.guests_in(namespace)

    def load(self, name: str) -> GuestTable:
        """Return a guest with its newest metadata; raises NotFound."""
        self._stores.check_open()
        entry = self._entries.guest(str(TableName.parse(name)))
        return GuestTable(entry, self.read(entry.metadata_location))

    def new_place(self) -> str:
        """Return the location for the files of a new guest."""
        objects = self._stores.objects
        return plain_location(objects.location, f"{_GUESTS}/{self._stores.ids.uuid()}")

    def create(self, name: str, document: bytes) -> GuestTable:
        """Add a guest with its first document; raises AlreadyExists."""
        self._stores.check_writable()
        parsed = TableName.parse(name)
        members = check_document(document)
        self._check_place(_location_of(members))
        location = self._written(members, document, number=0)
        try:
            entry = self._entries.add_guest(parsed, str(members["table-uuid"]), location)
        except NeveError:
            self._forget(location)
            raise
        return GuestTable(entry, document)

    def register(self, name: str, metadata_location: str, *, overwrite: bool = False) -> GuestTable:
        """Add a guest whose metadata exists; raises AlreadyExists, InvalidArgument.

        With `overwrite` it takes the place of a guest of this name, whose files stay.
        """
        self._stores.check_writable()
        parsed = TableName.parse(name)
        over = None
        if overwrite and str(parsed) in self._entries.state().guests:
            over = self._entries.guest(str(parsed))
        document = self.read(metadata_location)
        members = check_document(document)
        table_uuid = str(members.get("table-uuid"))
        place = _location_of(members)
        if (self.path_of(place) or "").partition("/")[0] == _GUESTS:
            self._check_place(place, table_uuid, over=over)
        entry = self._entries.add_guest(parsed, table_uuid, metadata_location, over=over)
        return GuestTable(entry, document)

    def owners_of(self, metadata_location: str) -> list[str]:
        """Return the names of the guests that some metadata belongs to.

        It is in the directory of one, or is of the same table.
        """
        places = {self._place_of(metadata_location)}
        table_uuid = None
        with suppress(InvalidArgument):
            members = check_document(self.read(metadata_location))
            places.add(self._place_of(_location_of(members)))
            table_uuid = str(members.get("table-uuid"))
        return [
            entry.name
            for entry in self._entries.guest_entries()
            if entry.table_uuid == table_uuid
            or self._place_of(entry.metadata_location) in places - {None}
        ]

    def commit(self, changes: Sequence[tuple[GuestTable, bytes]]) -> list[GuestTable]:
        """Replace the documents of some guests, all or none.

        Raises CatalogConflict when one was changed since it was loaded.
        """
        self._stores.check_writable()
        moves: list[GuestMove] = []
        moved: set[str] = set()
        for guest, document in changes:
            members = check_document(document)
            if _location_of(members) != guest.location.rstrip("/"):
                place = self._check_place(_location_of(members))
                if place in moved:
                    raise _taken(_location_of(members))
                moved.add(place)
        for guest, document in changes:
            members = check_document(document)
            location = self._written(members, document, number=_next_number(guest))
            moves.append(GuestMove(entry=guest.entry, metadata_location=location))
        try:
            self._entries.move_guests(moves)
        except (CatalogConflict, NotFound):
            for move in moves:
                self._forget(move.metadata_location)
            raise
        return [self.load(guest.name) for guest, _ in changes]

    def rename(self, old: str, new: str) -> None:
        """Rename a guest; no file moves. Raises NotFound, AlreadyExists."""
        self._stores.check_writable()
        self._entries.rename_guest(str(TableName.parse(old)), TableName.parse(new))

    def drop(self, name: str, *, purge: bool = False) -> None:
        """Remove a guest; `purge` deletes its files, but none of another guest (CATALOG-40)."""
        self._stores.check_writable()
        entry = self._entries.remove_guest(str(TableName.parse(name)))
        if purge:
            self._purge(entry)

    def path_of(self, location: str) -> str | None:
        """Return the path of a location inside the lake; None when it is outside.

        Java writes `file:/…` where others write `file:///…`; all mean the same file.
        """
        found = _spelled(location)
        for root in {self._stores.objects.location, plain_location(self._stores.objects.location)}:
            prefix = f"{_spelled(root).rstrip('/')}/"
            if found.startswith(prefix):
                path = found.removeprefix(prefix)
                try:
                    check_path(path)
                except InvalidArgument:
                    return None
                return path
        return None

    def read(self, location: str) -> bytes:
        """Return the bytes at a location, inside the lake or not."""
        path = self.path_of(location)
        if path is None:
            return read_location(location)
        try:
            return self._stores.objects.get(path).payload
        except NotFound as error:
            raise InvalidArgument(
                "there is no such metadata file", path=location, hint="Check the location"
            ) from error

    def _place_of(self, location: str) -> str | None:
        """Return the directory below `guests/` that a location is in; None for any other place."""
        parts = (self.path_of(location) or "").split("/")
        is_inside = len(parts) > 1 and parts[0] == _GUESTS
        return f"{_GUESTS}/{parts[1]}/" if is_inside else None

    def _check_place(
        self, location: str, table_uuid: str | None = None, *, over: GuestEntry | None = None
    ) -> str:
        """Return the directory that the files of a guest would be in (CATALOG-41).

        A guest with `table_uuid` may be there: it is the same table under another name. So may
        `over`, which is about to go.
        """
        place = self._place_of(location)
        if place is None:
            raise _outside(location)
        # Each guest that is, or was, in a place has a document there.
        if any(each.path.endswith(_DOCUMENT) for each in self.objects.list(place)):
            for entry in self._entries.guest_entries():
                if entry.table_uuid == table_uuid or entry == over:
                    continue
                if self._has_files_in(entry, place):
                    raise _taken(location)
        return place

    def _has_files_in(self, entry: GuestEntry, place: str) -> bool:
        if self._place_of(entry.metadata_location) == place:
            return True
        with suppress(InvalidArgument):  # no purge deletes a file while one cannot be read
            document = check_document(self.read(entry.metadata_location))
            if self._place_of(_location_of(document)) == place:
                return True
            return any(self._place_of(each) == place for each in self._named_by(entry))
        return False

    def _purge(self, entry: GuestEntry) -> None:
        others = self._entries.guest_entries()
        # A commit to the same table under another name may have written its document, and not
        # committed it yet: then only those in the log are surely the guest's own.
        is_alone = all(each.table_uuid != entry.table_uuid for each in others)
        try:
            doomed = self._versions_of(entry, is_alone=is_alone)
            kept: set[str] = set()
            for other in self._entries.guest_entries():
                kept.update(map(_plain, self._named_by(other)))
        except InvalidArgument as error:
            logger.warning("left the files of a dropped guest guest=%s cause=%s", entry.name, error)
            return
        places: set[str] = set()
        for location in sorted(doomed):
            place = self._place_of(location)
            path = self.path_of(location)
            if place is not None and path is not None and _plain(location) not in kept:
                places.add(place)
                with suppress(InvalidArgument):  # a name that no object can have
                    self.objects.delete(path)
        if isinstance(self.objects, LocalStore):
            for place in places:
                if not any(self.objects.list(place)):
                    with suppress(NeveError):
                        self.objects.remove_abandoned(place.rstrip("/"))

    def _named_by(self, entry: GuestEntry) -> set[str]:
        """Return the files that the metadata of a guest names, in the lake; raises InvalidArgument.

        The files of a guest that is elsewhere are elsewhere, too.
        """
        named = {entry.metadata_location}
        if self.path_of(entry.metadata_location) is not None:
            document = check_document(self.read(entry.metadata_location))
            named_files(document, self._read_inside, named)
        return named

    def _versions_of(self, entry: GuestEntry, *, is_alone: bool) -> set[str]:
        """Return the files that any version of a guest names; those that are missing do not matter.

        Its documents are those in its log and, if it `is_alone`, those beside the newest one.
        """
        named: set[str] = set()
        if self._place_of(entry.metadata_location) is None:
            return named
        for location, document in self._documents_of(entry, is_alone=is_alone):
            named.add(location)
            named_files({**document, "snapshots": []}, self._read_inside, named)
            snapshots = document.get("snapshots")
            for each in snapshots if isinstance(snapshots, list) else []:
                with suppress(InvalidArgument):
                    named_files({"snapshots": [each]}, self._read_inside, named)
        return named

    def _documents_of(
        self, entry: GuestEntry, *, is_alone: bool
    ) -> Iterator[tuple[str, JsonObject]]:
        """Yield all documents of a guest that still exist."""
        folder = entry.metadata_location.rpartition("/")[0]
        waiting = [entry.metadata_location]
        if is_alone:
            listed = [each.path for each in self.objects.list(f"{self.path_of(folder)}/")]
            waiting += [f"{folder}/{each.rpartition('/')[2]}" for each in listed]
        seen: set[str] = set()
        while waiting:
            location = waiting.pop()
            if location in seen:
                continue
            seen.add(location)
            try:
                document = check_document(self._read_inside(location))
            except InvalidArgument:
                continue
            if str(document.get("table-uuid")) == entry.table_uuid:
                yield location, document
                log: set[str] = set()
                named_files({"metadata-log": document.get("metadata-log")}, self.read, log)
                waiting.extend(log)

    def _read_inside(self, location: str) -> bytes:
        """Return the bytes of a file that the metadata of a client names."""
        if self.path_of(location) is None:
            raise InvalidArgument("the file is outside of the lake", path=location)
        return self.read(location)

    def _written(self, members: JsonObject, document: bytes, *, number: int) -> str:
        """Write a document beside the table's files; return its location."""
        place = f"{_location_of(members)}/metadata"
        location = f"{place}/{number:05d}-{self._stores.ids.uuid()}{_DOCUMENT}"
        path = self.path_of(location)
        if path is None or self._place_of(_location_of(members)) is None:
            raise _outside(_location_of(members))
        self._stores.objects.put(path, document)
        return location

    def _forget(self, location: str) -> None:
        path = self.path_of(location)
        if path is not None:
            with suppress(NeveError):
                self._stores.objects.delete(path)


def _spelled(location: str) -> str:
    """Return one spelling of a location, for comparison."""
    if location.startswith(_FILE):
        return f"/{location.removeprefix(_FILE).lstrip('/')}"
    for scheme in _BUCKETS:
        if location.startswith(scheme):
            return f"s3://{location.removeprefix(scheme)}"
    return location


def _plain(location: str) -> str:
    """Return one spelling of a location, whichever way a client wrote it."""
    return posixpath.normpath(_spelled(location))


def _location_of(members: JsonObject) -> str:
    return str(members.get("location", "")).rstrip("/")


def _outside(location: str) -> InvalidArgument:
    return InvalidArgument(
        "the files of the table would be outside of the lake's guests",
        path=location,
        hint="Leave the location out; a table elsewhere can be registered for reading",
    )


def _taken(location: str) -> InvalidArgument:
    return InvalidArgument(
        "another guest table has its files there", path=location, hint="Leave the location out"
    )


def _next_number(guest: GuestTable) -> int:
    name = guest.metadata_location.rpartition("/")[2]
    digits = name.partition("-")[0]
    return int(digits) + 1 if digits.isdecimal() else 1
