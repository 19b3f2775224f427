"""MetadataFolder: the files of `metadata/`, written so that a reader always finds a whole table.

Order of writing: manifests, their list, the document, the hint. Each is durable before the next is
begun, so whatever can be reached from the hint or from a document is there.

N1  A document is created once and never changed. Its number is one more than that of the document
    it is built on, so of two publishers that build on the same one only one succeeds.
N2  The hint moves forward only, unless the document that it names is gone.
"""

from collections.abc import Iterator
from typing import Final

from neve.errors import Corruption, NotFound
from neve.iceberg.metadata_folder import (
    HINT_NAME,
    document_name,
    is_intact,
    manifest_list_name,
    manifest_name,
    parse_name,
)
from neve.iceberg.pyiceberg_bridge import ManifestRecord, read_manifest_list
from neve.storage.object_store import ObjectStore, plain_location
from neve.storage.table_paths import TablePaths, join_path, split_path

_HINT_BYTES_MAX: Final = 20
_HINT_TRIES: Final = 16


class MetadataFolder:
    """Reads and writes published metadata of one table."""

    def __init__(self, objects: ObjectStore, paths: TablePaths) -> None:
        self.objects = objects
        self.paths = paths

    @property
    def table_location(self) -> str:
        """Where the table is, as Iceberg spells it."""
        return plain_location(self.objects.location, self.paths.root)

    def locate(self, path: str) -> str:
        """Location of a file of the table."""
        return f"{self.table_location}/{path}"

    def document_location(self, number: int) -> str:
        """Location of a document."""
        return self._location(document_name(number))

    def sizes(self) -> dict[str, int]:
        """Sizes of all files that are there, by name."""
        found = {}
        for info in self.objects.list(f"{self.paths.metadata}/"):
            directory, name = split_path(info.path)
            if directory == self.paths.metadata:
                found[name] = info.size
        return found

    def newest(self) -> tuple[int, bytes | None]:
        """Return the number and the bytes of the newest document; 0 and None when there is none.

        The bytes are None when it is gone by the time it is read.
        """
        number = next(self.documents_newest_first(), 0)
        if not number:
            return 0, None
        try:
            return number, self.read_document(number)
        except NotFound:
            return number, None

    def documents_newest_first(self) -> Iterator[int]:
        """Yield the numbers of the documents, beginning with the newest.

        A publisher that died may have left documents that the hint does not name yet.
        """
        named = self.hint()
        if named is not None and self.has_document(named):
            while self.has_document(named + 1):
                named += 1
            yield named
        numbers = [
            each.number
            for each in map(parse_name, self.sizes())
            if each is not None and each.is_document
        ]
        yield from sorted(numbers, reverse=True)

    def has_document(self, number: int) -> bool:
        """Whether there is a document of that number."""
        try:
            self.objects.size(self._path(document_name(number)))
        except NotFound:
            return False
        return True

    def read_document(self, number: int) -> bytes:
        """Read a document; raises NotFound."""
        return self.objects.get(self._path(document_name(number))).payload

    def create_document(self, number: int, payload: bytes) -> bool:
        """Create a document (N1); False when another one has its number.

        One of the same bytes is as good as one's own.
        """
        path = self._path(document_name(number))
        if self.objects.put_if_absent(path, payload) is not None:
            return True
        try:
            return self.objects.get(path).payload == payload
        except NotFound:
            return False  # it was so old that it is deleted by now

    def write_manifest(self, number: int, payload: bytes) -> str:
        """Store a manifest of a document; returns its location."""
        return self._write(manifest_name(number, payload), payload)

    def write_list(self, number: int, payload: bytes) -> str:
        """Store a manifest list of a document; returns its location."""
        return self._write(manifest_list_name(number, payload), payload)

    def read_intact(self, location: str) -> bytes:
        """Read a list or manifest by its location; raises NotFound, and Corruption."""
        name = self.name_of(location)
        payload = self.objects.get(self._path(name)).payload
        if not is_intact(name, payload):
            raise Corruption("a file of Iceberg's metadata is damaged", path=self._path(name))
        return payload

    def read_list(self, location: str) -> list[ManifestRecord]:
        """Read a manifest list; raises NotFound, and Corruption."""
        return read_manifest_list(self.read_intact(location), path=self.name_of(location))

    def name_of(self, location: str) -> str:
        """Name of a file of this folder; raises Corruption for one that is elsewhere."""
        prefix = self._location("")
        if not location.startswith(prefix) or "/" in location[len(prefix) :]:
            raise Corruption(
                f"Iceberg's metadata names {location[:200]!a}, which is not in its folder",
                path=self.paths.metadata,
            )
        return location[len(prefix) :]

    def hint(self) -> int | None:
        """Read which document the hint names; None when it is missing or not a number."""
        try:
            text = self.objects.get(self._path(HINT_NAME)).payload
        except NotFound:
            return None
        return _number(text)

    def move_hint(self, number: int) -> bool:
        """Let the hint name a document (N2); False when it names a newer one."""
        path = self._path(HINT_NAME)
        payload = str(number).encode()
        for _ in range(_HINT_TRIES):  # each round, another publisher was first
            try:
                found = self.objects.get(path)
            except NotFound:
                if self.objects.put_if_absent(path, payload) is not None:
                    return True
                continue
            named = _number(found.payload)
            if named == number:
                return True
            if named is not None and named > number and self.has_document(named):
                return False
            if self.objects.put_if_match(path, payload, tag=found.tag) is not None:
                return True
        return False

    def delete(self, name: str) -> None:
        """Delete a file of the folder."""
        self.objects.delete(self._path(name))

    def _write(self, name: str, payload: bytes) -> str:
        # The name says what is in it, so one that is there is the same, unless it was damaged.
        path = self._path(name)
        is_there = self.objects.put_if_absent(path, payload) is None
        if is_there and self.objects.get(path).payload != payload:
            self.objects.put(path, payload)
        return self._location(name)

    def _path(self, name: str) -> str:
        return self.paths.metadata_file(name)

    def _location(self, name: str) -> str:
        return plain_location(self.objects.location, join_path(self.paths.metadata, name))


def _number(text: bytes) -> int | None:
    digits = text.strip()
    is_number = digits.isdigit() and len(digits) < _HINT_BYTES_MAX
    return int(digits) if is_number else None
