"""MetadataGarbage: deletes published files that no document which is kept reaches.

    documents      1 … │ oldest … hint │ hint+1 …
                   go    kept            being published

    documents              below the oldest that is kept
    lists and manifests    numbered up to the oldest, and not reached from it
    position deletes       of vectors whose Puffin file is gone

Everything is decided from what is stored. A document refers to its own files and to those of the
document before it (rule I4 of `neve.iceberg.publisher`). So what has the number of the oldest
document or a lower one, and is not reached from that document, is not reached from any later one,
and never will be: also when this process sleeps between looking and deleting. Files of a publisher
that is at work have a number above the hint. One whose number was passed by cannot publish.

Looking for what is not reached also shows what is reached and missing.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from neve.errors import Corruption, NotFound
from neve.iceberg.metadata_folder import MetadataFolder, parse_name
from neve.iceberg.table_metadata import PublishedHistory, decode_document, history_of
from neve.model.schema_json import JsonObject
from neve.storage.table_paths import puffin_of_position_deletes


class MetadataGarbage:
    """Garbage of one table's metadata folder; used by one thread at a time."""

    def __init__(self, folder: MetadataFolder) -> None:
        self._folder = folder
        self._manifests: dict[str, frozenset[str]] = {}
        """Names of the manifests of each list that was read; a name never changes its content."""

    def learn(self, lists: Mapping[str, frozenset[str]]) -> None:
        """Take note of lists that need not be read: names of their manifests, by name."""
        self._manifests.update(lists)

    def collect(self, number: int, history: PublishedHistory, *, kept: int) -> set[str]:
        """Delete what can be; returns the names of files that are reached and missing.

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
        """Return the names of lists and manifests that are reached and not there."""
        return self._reached(history.snapshots) - self._folder.sizes().keys()

    def _oldest_snapshots(self, numbers: Iterable[int]) -> tuple[JsonObject, ...]:
        """Read what the oldest document lists that is kept and can be read."""
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
        # A list that cannot be read reaches nothing that could be read either.
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
