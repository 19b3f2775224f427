"""Guests: plain Iceberg tables in the catalog of a lake, without a key and without an engine.

    __guests/shop.clicks ──► guests/<uuid>/metadata/00004-….metadata.json ──► Iceberg's files

A commit writes the next document under a new name, then replaces the pointer in the catalog's
store, if it is still the one that the commit was made from (CATALOG-37). Documents are Iceberg's,
so every engine reads and writes them; neve only keeps the pointer.

A guest may be outside of the lake (`lake.register`): then it can be read, and others change it.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from neve.catalog.catalog_entries import GuestEntry, GuestMove
from neve.catalog.lake_stores import LakeStores
from neve.catalog.table_name import TableName
from neve.errors import CatalogConflict, InvalidArgument, NeveError, NotFound
from neve.iceberg.guest_metadata import (
    arrow_schema_of,
    check_document,
    read_location,
    scan_rows,
)
from neve.model.schema_json import JsonObject
from neve.storage.object_store import ObjectStore, plain_location
from neve.storage.table_paths import check_path

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
        self._refuse_shared(str(members.get("location", "")))
        location = self._written(members, document, number=0)
        try:
            entry = self._entries.add_guest(parsed, str(members["table-uuid"]), location)
        except NeveError:
            self._forget(location)
            raise
        return GuestTable(entry, document)

    def register(self, name: str, metadata_location: str) -> GuestTable:
        """Add a guest whose metadata exists; raises AlreadyExists, InvalidArgument."""
        self._stores.check_writable()
        parsed = TableName.parse(name)
        document = self.read(metadata_location)
        members = check_document(document)
        entry = self._entries.add_guest(parsed, str(members.get("table-uuid")), metadata_location)
        return GuestTable(entry, document)

    def commit(self, changes: Sequence[tuple[GuestTable, bytes]]) -> list[GuestTable]:
        """Replace the documents of some guests, all or none.

        Raises CatalogConflict when one was changed since it was loaded.
        """
        self._stores.check_writable()
        moves: list[GuestMove] = []
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
        """Remove a guest; `purge` deletes its files, unless another guest has files there."""
        self._stores.check_writable()
        entry = self._entries.remove_guest(str(TableName.parse(name)))
        place = self._place_of(entry.metadata_location)
        if not purge or place is None or self._is_taken(place):
            return
        for info in list(self.objects.list(place)):
            with suppress(InvalidArgument):
                self.objects.delete(info.path)

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

    def _is_taken(self, place: str) -> bool:
        """Return whether a guest has its metadata in a place."""
        entries = self._entries.guest_entries()
        return any(self._place_of(each.metadata_location) == place for each in entries)

    def _refuse_shared(self, location: str) -> None:
        place = self._place_of(f"{location.rstrip('/')}/metadata")
        if place is not None and self._is_taken(place):
            raise InvalidArgument(
                "another guest table has its files there",
                path=location,
                hint="Leave the location out",
            )

    def _written(self, members: JsonObject, document: bytes, *, number: int) -> str:
        """Write a document beside the table's files; return its location."""
        place = f"{str(members.get('location', '')).rstrip('/')}/metadata"
        location = f"{place}/{number:05d}-{self._stores.ids.uuid()}.metadata.json"
        path = self.path_of(location)
        if path is None or not path.startswith(f"{_GUESTS}/"):
            raise InvalidArgument(
                "the files of the table would be outside of the lake's guests",
                path=str(members.get("location")),
                hint="Leave the location out; a table elsewhere can be registered for reading",
            )
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


def _next_number(guest: GuestTable) -> int:
    name = guest.metadata_location.rpartition("/")[2]
    digits = name.partition("-")[0]
    return int(digits) + 1 if digits.isdecimal() else 1
