"""ServedTables: tables as a load-table request returns them, cached by what they were made from.

The metadata of a table of neve is what is published, the newest commit included, with two members
changed, so that other engines can write:

    location               a place below the table for the files of clients; files that are read
                           have whole locations of their own
    default-sort-order-id  0: DuckDB refuses to write a table that is sorted, and neve sorts itself

A reply costs one look at the table's manifest while nothing has changed, and its tag lets a client
skip even the body.
"""

import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock
from typing import Final

from neve.catalog.catalog_table import CatalogTable
from neve.catalog.guests import Guests, GuestTable
from neve.errors import NeveError
from neve.model.schema_json import Json, JsonObject, dump_compact

logger = logging.getLogger(__name__)

CLIENTS: Final = "clients"
"""Directory below a table in which other engines write."""

ROOM: Final = "room.txt"
"""A file that keeps a directory of clients from vanishing when it is empty."""

_REPLIES_KEPT: Final = 256
_ON_DISK: Final = "file:"
_ROOM_TEXT: Final = b"Other engines write here; neve reads their files and deletes them.\n"


@dataclass(frozen=True, slots=True)
class ServedTable:
    """The reply to a load-table request."""

    body: bytes
    etag: str
    document: bytes
    """Iceberg's metadata as it is served."""


class ServedTables:
    """Replies of one lake; safe for many threads."""

    def __init__(self, guests: Guests, client_config: Mapping[str, str]) -> None:
        self._guests = guests
        self._config: dict[str, Json] = {**client_config}
        # Guarded by _lock.
        self._lock = Lock()
        self._kept: OrderedDict[tuple[object, ...], ServedTable] = OrderedDict()

    def find(self, revision: tuple[object, ...], *, only_refs: bool) -> ServedTable | None:
        """Return the reply for a revision of a table, if it is known."""
        return self._find((*revision, only_refs))

    def of_table(
        self, table: CatalogTable, revision: tuple[object, ...], *, only_refs: bool = False
    ) -> ServedTable:
        """Return the reply for a table of neve, published first if needed.

        The revision was read before the table: what is kept for it may be newer, never older.
        """
        found = self.find(revision, only_refs=only_refs)
        if found is not None:
            return found
        location = table.iceberg_metadata()
        document: JsonObject = json.loads(self._guests.read(location))
        document["location"] = f"{document['location']}/{CLIENTS}"
        self._make_room(str(document["location"]))
        document["default-sort-order-id"] = 0
        reply = self._reply(document, location, only_refs=only_refs)
        return self._keep((*revision, only_refs), reply)

    def of_guest(self, guest: GuestTable, *, only_refs: bool = False) -> ServedTable:
        """Return the reply for a guest."""
        key = (guest.entry, only_refs)
        found = self._find(key)
        if found is not None:
            return found
        document: JsonObject = json.loads(guest.document)
        location = guest.metadata_location
        return self._keep(key, self._reply(document, location, only_refs=only_refs))

    def staged(self, document: bytes) -> bytes:
        """Return the reply for a table that is not created yet."""
        members: JsonObject = json.loads(document)
        self._make_room(str(members["location"]))
        return json.dumps({"metadata": members, "config": self._config}).encode()

    def _make_room(self, location: str) -> None:
        """Make the directories that clients write in: DuckDB makes none on a disk."""
        place = self._guests.path_of(location)
        if place is None or not location.startswith(_ON_DISK) or self._guests.is_read_only:
            return
        try:
            for folder in ("data", "metadata"):
                self._guests.objects.put_if_absent(f"{place}/{folder}/{ROOM}", _ROOM_TEXT)
        except NeveError as error:
            logger.warning("no room for clients place=%s cause=%s", place, error)

    def _reply(self, document: JsonObject, location: str, *, only_refs: bool) -> ServedTable:
        if only_refs:
            document = _with_refs_only(document)
        served = dump_compact(document)
        config = json.dumps(self._config).encode()
        where = json.dumps(location).encode()
        body = b'{"metadata-location":%b,"metadata":%b,"config":%b}' % (where, served, config)
        etag = f'"{blake2b(body, digest_size=16).hexdigest()}"'
        return ServedTable(body, etag, served)

    def _find(self, key: tuple[object, ...]) -> ServedTable | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def _keep(self, key: tuple[object, ...], served: ServedTable) -> ServedTable:
        with self._lock:
            self._kept[key] = served
            while len(self._kept) > _REPLIES_KEPT:
                self._kept.popitem(last=False)
        return served


def _with_refs_only(document: JsonObject) -> JsonObject:
    """Leave out the snapshots that no branch or tag refers to."""
    refs, snapshots = document.get("refs"), document.get("snapshots")
    if not isinstance(refs, dict) or not isinstance(snapshots, list):
        return document
    named = {each.get("snapshot-id") for each in refs.values() if isinstance(each, dict)}
    kept = [
        each for each in snapshots if isinstance(each, dict) and each.get("snapshot-id") in named
    ]
    return {**document, "snapshots": [*kept]}
