"""TableParts: the stores, paths, definitions and clock below one table."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, cast

from neve.errors import NeveError
from neve.manifest.leases import Leases
from neve.manifest.table_versions import TableVersions
from neve.manifest.writer_state import WriterState
from neve.model.data_file import DataFile
from neve.model.row_lineage import has_lineage
from neve.observability.events import EventKind, Listener, tell, unheard
from neve.observability.metrics import NoRecorder, Recorder
from neve.storage.append_file import AppendFiles
from neve.storage.clock import Clock, IdSource
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths
from neve.table.definitions import Definitions


def append_files_of(objects: ObjectStore) -> AppendFiles | None:
    """Return the append files of a store that has any; object stores in the cloud have none."""
    has_them = all(hasattr(objects, name) for name in ("create", "recycle", "lock"))
    return cast("AppendFiles", objects) if has_them else None


class PublishedLineage(Protocol):
    """The lineage of a table's rows that was published to other engines."""

    def keeps_lineage(self) -> bool:
        """Return whether rows have a lineage, by the newest format version of the table."""
        ...

    def data_sequences(self, paths: Collection[str]) -> Mapping[str, int]:
        """Return the data sequence numbers published for data files, by path."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableParts:
    """Everything below one live table."""

    objects: ObjectStore
    paths: TablePaths
    versions: TableVersions
    definitions: Definitions
    work: WriterState
    leases: Leases
    clock: Clock
    ids: IdSource
    properties: Mapping[str, str]
    recorder: Recorder = field(default_factory=NoRecorder)
    listener: Listener = unheard
    publish: Callable[[], bool] | None = None
    """Publishes the current Version to other engines; False when it is published already."""
    lineage: PublishedLineage | None = None
    """None in workers, whose tasks carry it, and where only the properties are known."""

    def tell(self, kind: EventKind, **facts: float | str) -> None:
        """Report an event of the table to the listener."""
        tell(self.listener, kind, self.paths.table_id, **facts)

    def keeps_lineage(self) -> bool:
        """Return whether rewrites keep the lineage of rows."""
        if self.lineage is None:
            return has_lineage(self.properties)
        return self.lineage.keeps_lineage()

    def sequenced(self, files: Sequence[DataFile]) -> tuple[DataFile, ...]:
        """Return files with their data sequence numbers, which the first release only published.

        A file that was never published gets the number it would be published with: that of the
        Version that added it or, when that has expired, of the one before the oldest.
        """
        unknown = {file.path for file in files if not file.data_sequence}
        if not unknown:
            return tuple(files)
        session = self.versions.store.read()
        head = self.versions.head_in(session)
        known: dict[str, int] = {}
        for number in range(head.oldest_version + 1, head.current_version + 1):
            edit = self.versions.edit_in(session, number)
            stayed = set(edit.removed)
            known |= {file.path: number for file in edit.added if file.path not in stayed}
        if self.lineage is not None:
            known |= self.lineage.data_sequences(unknown)
        older = max(1, head.oldest_version - 1)
        return tuple(
            file if file.data_sequence else replace(file, data_sequence=known.get(file.path, older))
            for file in files
        )

    def failed(self, step: str, error: NeveError) -> None:
        """Report to the listener that background work fails."""
        self.tell(EventKind.FAILED, step=step, cause=str(error))
