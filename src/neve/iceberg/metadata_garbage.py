"""MetadataGarbage: deletes published files that no snapshot which is still listed reaches.

    documents              beyond the newest `grace`, or of Versions that expired
    lists and manifests    not reached from a snapshot that is listed, and older than `grace`
    position deletes       of vectors whose Puffin file is gone

Files of the newest Versions stay whether they are reached or not: somebody may be about to refer to
them, or may have begun to read an older document.
"""

from contextlib import suppress

from neve.errors import Corruption, NotFound
from neve.iceberg.metadata_folder import MetadataFolder
from neve.iceberg.metadata_names import parse_name
from neve.iceberg.table_metadata import PublishedHistory, TableDescription
from neve.storage.table_paths import puffin_of_position_deletes


class MetadataGarbage:
    """Garbage of one table's metadata folder; used by one thread at a time."""

    def __init__(self, folder: MetadataFolder) -> None:
        self._folder = folder
        self._manifests: dict[str, frozenset[str]] = {}
        """Names of the manifests of each list that was read."""

    def collect(self, table: TableDescription, history: PublishedHistory, *, grace: int) -> int:
        """Delete what can be; gives how many files."""
        names = list(self._folder.names())
        number = table.version.number
        oldest = number - grace
        reached = self._reached(history)
        count = 0
        for name in names:
            parsed = parse_name(name)
            if parsed is None or parsed.number >= number:
                continue
            is_recent = parsed.number > oldest and parsed.number in table.retained
            if is_recent or name in reached:
                continue
            self._folder.delete(name)
            count += 1
        return count + self._collect_positions()

    def _reached(self, history: PublishedHistory) -> set[str]:
        reached: set[str] = set()
        known: dict[str, frozenset[str]] = {}
        for snapshot in history.snapshots:
            location = snapshot["manifest-list"]
            assert isinstance(location, str)
            name = self._folder.name_of(location)
            known[name] = self._manifests.get(name) or self._manifests_of(location)
            reached |= {name} | known[name]
        self._manifests = known
        return reached

    def _manifests_of(self, location: str) -> frozenset[str]:
        # A list that cannot be read reaches nothing that could be read either.
        with suppress(NotFound, Corruption):
            return frozenset(
                self._folder.name_of(each.manifest_path)
                for each in self._folder.read_list(location)
            )
        return frozenset()

    def _collect_positions(self) -> int:
        objects = self._folder.objects
        paths = [info.path for info in objects.list(f"{self._folder.paths.deletes}/")]
        present = frozenset(paths)
        count = 0
        for path in paths:
            puffin = puffin_of_position_deletes(path)
            if puffin is not None and puffin not in present:
                objects.delete(path)
                count += 1
        return count
