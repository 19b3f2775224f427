"""MetadataFolder: the files of `metadata/`, written so that a reader always finds a whole table.

Order of writing: manifests, their list, the document, the hint. Each is durable before the next, so
everything that the hint or a document reaches exists.

ICEBERG-5  A document is created once and never changed. Its number is one more than that of the
           document it is built on, so of two publishers that build on the same one only one
           succeeds.
ICEBERG-6  The hint moves forward only, unless the document that it names is gone.

Names of the files:

    v<D>.metadata.json        document D; each is built on the one before it
    snap-<D>-<hash>.avro      a manifest list that was written for document D
    m-<D>-<hash>.avro         a manifest that was written for document D
    version-hint.text         the number of the newest document, in decimal

Lists and manifests are named by the hash of their bytes: two processes that publish at once, from
different states, never replace each other's files, and damage shows. Their number is that of the
first document that may reach them.

`MetadataGarbage` deletes published files that no kept document reaches:

    documents      1 … │ oldest … hint │ hint+1 …
                   go    kept            being published

    documents              below the oldest that is kept
    lists and manifests    numbered up to the oldest, and not reached from it
    position deletes       of vectors whose Puffin file is gone

Only stored state decides. A document refers to its own files and to those of the document before it
(rule ICEBERG-4 of `neve.iceberg.publisher`). So a file with the number of the oldest document or a
lower one, which that document does not reach, is not reached from any later one, and never will be,
even when this process sleeps between reading and deleting. Files of an active publisher have a
number above the hint. A publisher whose number was passed cannot publish.

The search for unreached files also finds reached files that are missing.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from neve.errors import Corruption, NotFound
from neve.iceberg.pyiceberg_bridge import ManifestRecord, read_manifest_list
from neve.iceberg.table_metadata import PublishedHistory, decode_document, history_of
from neve.model.schema_json import JsonObject
from neve.storage.object_store import ObjectStore, plain_location
from neve.storage.table_paths import TablePaths, puffin_of_position_deletes

HINT_NAME: Final = "version-hint.text"

_HASH_CHARACTERS: Final = 32
_DOCUMENT: Final = re.compile(r"v([1-9][0-9]{0,18})\.metadata\.json", re.ASCII)
_HASHED: Final = re.compile(r"(?:m|snap)-([1-9][0-9]{0,18})-[0-9a-f]{32}\.avro", re.ASCII)


def document_name(number: int) -> str:
    """Name of a document."""
    return f"v{number}.metadata.json"


def manifest_list_name(number: int, payload: bytes) -> str:
    """Name of a manifest list that is written for a document."""
    return f"snap-{number}-{_hash(payload)}.avro"


def manifest_name(number: int, payload: bytes) -> str:
    """Name of a manifest that is written for a document."""
    return f"m-{number}-{_hash(payload)}.avro"


def is_intact(name: str, payload: bytes) -> bool:
    """Return whether the bytes of a list or manifest match the hash in its name."""
    return _HASHED.fullmatch(name) is not None and name.endswith(f"-{_hash(payload)}.avro")


@dataclass(frozen=True, slots=True)
class ParsedName:
    """What the name of a file says."""

    number: int
    is_document: bool


def parse_name(name: str) -> ParsedName | None:
    """Parse a name; None when publishing never writes such a file."""
    found = _DOCUMENT.fullmatch(name)
    if found is not None:
        return ParsedName(int(found.group(1)), is_document=True)
    found = _HASHED.fullmatch(name)
    return None if found is None else ParsedName(int(found.group(1)), is_document=False)


def _hash(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()[:_HASH_CHARACTERS]


_HINT_BYTES_MAX: Final = 20
_HINT_TRIES: Final = 16


class MetadataFolder:
    """Reads and writes published metadata of one table."""

    def __init__(self, objects: ObjectStore, paths: TablePaths) -> None:
        self.objects = objects
        self.paths = paths
        self.table_location: Final = plain_location(objects.location, paths.root)
        """Where the table is, as Iceberg spells it."""
        self._folder: Final = paths.metadata
        self._location_start: Final = plain_location(objects.location, f"{self._folder}/")
        # Owned by the publisher: what it wrote into the hint last, and its tag.
        self._hint = 0, ""

    def locate(self, path: str) -> str:
        """Location of a file of the table."""
        return f"{self.table_location}/{path}"

    def document_location(self, number: int) -> str:
        """Location of a document."""
        return self._location(document_name(number))

    def sizes(self) -> dict[str, int]:
        """Sizes of all files that are there, by name."""
        found = {}
        start = f"{self._folder}/"
        for info in self.objects.list(start):
            name = info.path.removeprefix(start)
            if "/" not in name:
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
        """Yield the numbers of the documents, newest first.

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
        """Create a document (ICEBERG-5); False when another one has its number.

        An existing one of the same bytes counts as created.
        """
        path = self._path(document_name(number))
        if self.objects.put_if_absent(path, payload) is not None:
            return True
        try:
            return self.objects.get(path).payload == payload
        except NotFound:
            return False  # it was so old that it has been deleted

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
        """Return the name of a file of this folder; raises Corruption for one elsewhere."""
        prefix = self._location("")
        if not location.startswith(prefix) or "/" in location[len(prefix) :]:
            raise Corruption(
                f"Iceberg's metadata names {location[:200]!a}, which is not in its folder",
                path=self.paths.metadata,
            )
        return location[len(prefix) :]

    def hint(self) -> int | None:
        """Return the document that the hint names; None when it is missing or not a number."""
        try:
            text = self.objects.get(self._path(HINT_NAME)).payload
        except NotFound:
            return None
        return _number(text)

    def move_hint(self, number: int) -> bool:
        """Point the hint at a document (ICEBERG-6); False when it names a newer one."""
        path = self._path(HINT_NAME)
        payload = str(number).encode()
        named, tag = self._hint
        if named < number and tag and self._put_hint(payload, number, tag=tag):
            return True  # it still names the document that this process wrote before
        for _ in range(_HINT_TRIES):  # each round, another publisher was first
            try:
                found = self.objects.get(path)
            except NotFound:
                if self._put_hint(payload, number, tag=None):
                    return True
                continue
            now = _number(found.payload)
            if now == number:
                return True
            if now is not None and now > number and self.has_document(now):
                return False
            if self._put_hint(payload, number, tag=found.tag):
                return True
        return False

    def _put_hint(self, payload: bytes, number: int, *, tag: str | None) -> bool:
        """Replace the hint that has `tag`, or create it; False when it has another."""
        path = self._path(HINT_NAME)
        if tag is None:
            made = self.objects.put_if_absent(path, payload)
        else:
            made = self.objects.put_if_match(path, payload, tag=tag)
        self._hint = number, made or ""
        return made is not None

    def delete(self, name: str) -> None:
        """Delete a file of the folder."""
        self.objects.delete(self._path(name))

    def _write(self, name: str, payload: bytes) -> str:
        # The name is a hash of the content, so an existing file is the same, unless it is damaged.
        path = self._path(name)
        is_there = self.objects.put_if_absent(path, payload) is None
        if is_there and self.objects.get(path).payload != payload:
            self.objects.put(path, payload)
        return self._location(name)

    def _path(self, name: str) -> str:
        return self.paths.metadata_file(name)

    def _location(self, name: str) -> str:
        return f"{self._location_start}{name}"


def _number(text: bytes) -> int | None:
    digits = text.strip()
    is_number = digits.isdigit() and len(digits) < _HINT_BYTES_MAX
    return int(digits) if is_number else None


class MetadataGarbage:
    """Garbage of one table's metadata folder; used by one thread at a time."""

    def __init__(self, folder: MetadataFolder) -> None:
        self._folder = folder
        self._manifests: dict[str, frozenset[str]] = {}
        """Names of the manifests of each list that was read; a name never changes its content."""

    def learn(self, lists: Mapping[str, frozenset[str]]) -> None:
        """Remember lists that need not be read: names of their manifests, by name."""
        self._manifests.update(lists)

    def collect(self, number: int, history: PublishedHistory, *, kept: int) -> set[str]:
        """Delete garbage; returns the names of files that are reached but missing.

        `number` and `history` are of a document that this process created; `kept` documents stay,
        counted from the one that the hint names.
        """
        hint = self._folder.hint()
        oldest = min(number, number if hint is None else hint) - kept + 1
        names = self._folder.sizes().keys()
        parsed = {name: each for name in names if (each := parse_name(name)) is not None}
        old = [name for name, each in parsed.items() if each.number <= oldest]
        reached = self._reached(history.snapshots)
        if any(not parsed[name].is_document for name in old):
            numbers = (each.number for each in parsed.values() if each.is_document)
            snapshots = self._oldest_snapshots(sorted(each for each in numbers if each >= oldest))
            needed = reached | self._reached(snapshots)
            for name in old:
                if not parsed[name].is_document and name not in needed:
                    self._folder.delete(name)
            self._manifests = {
                name: found for name, found in self._manifests.items() if name in needed
            }
        for name in old:
            if parsed[name].is_document and parsed[name].number < oldest:
                self._folder.delete(name)
        self._collect_positions()
        return reached - names

    def missing(self, history: PublishedHistory) -> set[str]:
        """Return the names of lists and manifests that are reached but missing."""
        return self._reached(history.snapshots) - self._folder.sizes().keys()

    def _oldest_snapshots(self, numbers: Iterable[int]) -> tuple[JsonObject, ...]:
        """Read what the oldest kept and readable document lists."""
        path = self._folder.paths.metadata
        for number in numbers:
            with suppress(NotFound, Corruption):
                document = decode_document(self._folder.read_document(number), path=path)
                return history_of(document, path=path).snapshots
        return ()

    def _reached(self, snapshots: Iterable[JsonObject]) -> set[str]:
        reached: set[str] = set()
        for snapshot in snapshots:
            location = snapshot["manifest-list"]
            assert isinstance(location, str)
            name = self._folder.name_of(location)
            if name not in self._manifests:
                self._manifests[name] = self._manifests_of(location)
            reached |= {name} | self._manifests[name]
        return reached

    def _manifests_of(self, location: str) -> frozenset[str]:
        # An unreadable list reaches nothing that could be read.
        with suppress(NotFound, Corruption):
            return frozenset(
                self._folder.name_of(each.manifest_path)
                for each in self._folder.read_list(location)
            )
        return frozenset()

    def _collect_positions(self) -> None:
        objects = self._folder.objects
        paths = [info.path for info in objects.list(f"{self._folder.paths.deletes}/")]
        present = frozenset(paths)
        for path in paths:
            puffin = puffin_of_position_deletes(path)
            if puffin is not None and puffin not in present:
                objects.delete(path)
