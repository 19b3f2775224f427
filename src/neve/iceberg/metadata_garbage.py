"""MetadataGarbage: deletes published files that no snapshot which is still listed reaches.

    documents              beyond the newest `grace`, or of Versions that expired or never were
    lists and manifests    not reached from a snapshot that is listed, and older than `grace`
    position deletes       of vectors whose Puffin file is gone

Files of the newest Versions stay whether they are reached or not: somebody may be about to refer to
them, or may have begun to read an older document.

Whoever looks for what is not reached learns what is reached and not there: somebody deleted it.
"""

from collections.abc import Callable
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

    def collect(
        self,
        table: TableDescription,
        history: PublishedHistory,
        *,
        grace: int,
        newest: Callable[[], int],
    ) -> set[str]:
        """Delete what can be; gives the names of files that are reached and missing.

        `newest` gives the number of the table's current Version now.
        """
        names = self._folder.sizes().keys()
        number = table.version.number
        oldest = number - grace
        reached = self._reached(history)
        for name in names:
            parsed = parse_name(name)
            if parsed is None or name in reached:
                continue
            if parsed.number >= number:
                if parsed.is_document and parsed.number > number and parsed.number > newest():
                    self._folder.delete(name)
                continue
            is_recent = parsed.number > oldest and parsed.number in table.retained
            if not is_recent:
                self._folder.delete(name)
        self._collect_positions()
        return reached - names

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

    def _collect_positions(self) -> None:
        objects = self._folder.objects
        paths = [info.path for info in objects.list(f"{self._folder.paths.deletes}/")]
        present = frozenset(paths)
        for path in paths:
            puffin = puffin_of_position_deletes(path)
            if puffin is not None and puffin not in present:
                objects.delete(path)
