"""IcebergPublisher: turns the Versions of a table into snapshots of Iceberg's metadata.

Steps of a publish:

1. read the table: head, Version, definitions, tags, and which Versions are retained
2. find what is published: what this process wrote last, or else the newest document that is whole
3. for each Version since: write the manifests it changes, and its manifest list
4. write the document of the current Version, then let the hint name it
5. now and then, delete what no listed snapshot reaches, and see that what they reach is there

Anyone may publish, again and at the same time: files are named by what they hold, so nobody spoils
what another one refers to, and a publish that was cut off is finished by the next.

I1  A document describes one Version, whole. Rows are never taken from a folder that cannot be
    trusted: when a file is missing, damaged or of another table or place, everything is made anew
    from the retained Versions.
I2  Listed are the newest retained Versions and the tagged ones, `SNAPSHOTS_LISTED` at most beside
    the tags. A Version that only changed definitions has the rows, and the snapshot, of the one
    before it.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

from neve.engine.table_parts import Definitions
from neve.errors import Corruption, NeveError, NotFound
from neve.iceberg.metadata_folder import MetadataFolder
from neve.iceberg.metadata_garbage import MetadataGarbage
from neve.iceberg.metadata_names import parse_name
from neve.iceberg.snapshot_chain import SnapshotChain, published_sequences
from neve.iceberg.snapshot_summary import snapshot_number
from neve.iceberg.table_metadata import (
    PublishedHistory,
    TableDescription,
    decode_document,
    encode_document,
    history_of,
    metadata_document,
)
from neve.manifest.sessions import ReadSession
from neve.manifest.table_versions import TableVersions
from neve.manifest.table_work import TableWork
from neve.model.row_lineage import has_lineage
from neve.model.schema_json import JsonObject
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths

logger = logging.getLogger(__name__)

SNAPSHOTS_LISTED: Final = 100
_COLLECT_EVERY: Final = 16
_DOCUMENTS_TRIED: Final = 3
_FORMAT_PROPERTY: Final = "format-version"
_FORMAT_DEFAULT: Final = "3"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """What stands in the folder."""

    number: int
    format_version: int
    updated_ms: int
    history: PublishedHistory
    chain: SnapshotChain | None
    """None until manifests are needed."""
    table: TableDescription | None = None
    """What the document was made of, when this process made it."""


class _Elsewhere(Corruption):
    """A document of the table as it was at another place."""


class IcebergPublisher:
    """Publishes one table; safe for many threads."""

    def __init__(
        self,
        objects: ObjectStore,
        paths: TablePaths,
        *,
        versions: TableVersions,
        work: TableWork,
        properties_of: Callable[[], Mapping[str, str]],
    ) -> None:
        # Fixed at construction.
        self._folder = MetadataFolder(objects, paths)
        self._versions = versions
        self._work = work
        self._properties_of = properties_of
        self._definitions = Definitions(versions, path=paths.manifest)
        self._garbage = MetadataGarbage(self._folder)
        # Guarded by _lock.
        self._lock = Lock()
        self._published: _Published | None = None
        self._collected_at: int | None = None

    def newest(self) -> str | None:
        """Location of the newest document, None when there is none; nothing is written."""
        named = self._folder.hint()
        numbers = {named} if named is not None else set()
        numbers |= {each.number for each in map(parse_name, self._folder.sizes())
                    if each is not None and each.is_document}  # fmt: skip
        head = self._versions.head()
        for number in sorted(numbers, reverse=True):
            if number > head.current_version:
                continue
            try:
                decode_document(self._folder.read_document(number), path=self._path)
            except (NotFound, Corruption):
                continue
            return self._folder.document_location(number)
        return None

    def publish_once(self) -> bool:
        """Publish the current Version if that is still to be done; False when it is not."""
        with self._lock:
            session = self._versions.store.read()
            table = self._describe(session)
            if self._is_published(table):
                return False
            self._publish(session, table)
            return True

    def publish(self) -> str:
        """Publish what is missing; gives the location of the current Version's document.

        The first time in a process, what is there is read and checked first. Later ones see that
        it is there still.
        """
        with self._lock:
            session = self._versions.store.read()
            table = self._describe(session)
            published = self._published
            chain = None if published is None else published.chain
            if chain is None or not self._is_published(table):
                self._publish(session, table)
            elif not self._is_whole(table, chain):
                self._publish(session, table, anew=True)
            return self._folder.document_location(table.version.number)

    def keeps_lineage(self) -> bool:
        """Return whether rows have a lineage, by the newest format version of the table."""
        return has_lineage(self._properties_of())

    def data_sequences(self, paths: Collection[str]) -> dict[str, int]:
        """Return the data sequence numbers published for data files, by path.

        Metadata that is missing or damaged says nothing: it is made again from the Versions.
        """
        wanted = {self._folder.locate(path): path for path in paths}
        number = self._folder.hint()
        if number is None:
            return {}
        try:
            document = decode_document(self._folder.read_document(number), path=self._path)
            snapshots = history_of(document, path=self._path).snapshots
            found = published_sequences(self._folder, snapshots[-1]) if snapshots else {}
        except (NotFound, Corruption) as error:
            logger.warning("cannot read metadata version=%d cause=%s", number, error)
            return {}
        return {wanted[key]: sequence for key, sequence in found.items() if key in wanted}

    @property
    def _path(self) -> str:
        return self._folder.paths.metadata

    def _describe(self, session: ReadSession) -> TableDescription:
        versions = self._versions
        head = versions.head_in(session)
        if head.dropped:
            raise NotFound("the table was dropped", path=self._folder.paths.manifest)
        self._definitions.learn(session)
        properties = self._properties_of()
        alone = versions.kept_alone_in(session, head)
        return TableDescription(
            table_uuid=head.table_uuid,
            location=self._folder.table_location,
            format_version=int(properties.get(_FORMAT_PROPERTY, _FORMAT_DEFAULT)),
            version=versions.version_in(session, head.current_version),
            schemas={
                number: self._definitions.schema(number) for number in versions.schemas_in(session)
            },
            specs={number: self._definitions.spec(number) for number in versions.specs_in(session)},
            sort_order=head.sort_order,
            properties=properties,
            tags=self._work.tags_in(session),
            retained=frozenset((*alone, *range(head.oldest_version, head.current_version + 1))),
        )

    def _is_published(self, table: TableDescription) -> bool:
        """Whether the folder says all this already, as far as it takes no manifest to tell."""
        published = self._published
        if published is not None and published.table is not None:
            return _is_same(published.table, table)
        number = table.version.number
        if self._folder.hint() != number:
            return False
        try:
            payload = self._folder.read_document(number)
            history = self._history(payload, table)
        except (NotFound, Corruption):
            return False
        listed = self._listed(table, history)
        if listed is None or encode_document(metadata_document(table, listed)) != payload:
            return False
        self._published = _Published(
            number=number,
            format_version=table.format_version,
            updated_ms=table.version.facts.timestamp_ms,
            history=history,
            chain=None,
            table=table,
        )
        return True

    def _is_whole(self, table: TableDescription, chain: SnapshotChain) -> bool:
        """Whether what this process published is there still, as far as names and sizes tell."""
        number = table.version.number
        try:
            decode_document(self._folder.read_document(number), path=self._path)
        except (NotFound, Corruption):
            return False
        self._folder.move_hint(number, newest=self._newest)
        return chain.is_whole(self._folder.sizes())

    def _newest(self) -> int:
        """Give the current Version's number, with what writers that died have decided."""
        return self._versions.head_in(self._versions.store.open()).current_version

    def _publish(
        self, session: ReadSession, table: TableDescription, *, anew: bool = False
    ) -> None:
        published, self._published = self._published, None  # forgotten when this fails
        number = table.version.number
        history = PublishedHistory() if published is None else published.history
        if anew:
            published = None
        elif (
            published is None or published.chain is None or not self._can_advance(published, table)
        ):
            published = self._load(session, table)
        chain: SnapshotChain | None = None
        if published is not None and published.chain is not None:
            chain, history = published.chain, published.history
            try:
                chain.advance_to(session, table)
            except NotFound:
                chain = None  # Versions expired meanwhile
        if chain is None:
            chain = self._new_chain(table)
            chain.rebuild(session, table, limit=SNAPSHOTS_LISTED)
            history = PublishedHistory(sort_orders=history.sort_orders)
        elif published is not None and published.number < number:
            history = self._with_log(history, published)
        resolved = chain.list_tagged(session, table)
        history = replace(
            history,
            snapshots=tuple(_kept(chain.snapshots, table, set(resolved.values()))),
            metadata_log=_kept_log(history.metadata_log, table),
        )
        chain.snapshots = list(history.snapshots)
        document = metadata_document(replace(table, tags=resolved), history)
        self._folder.write_document(number, encode_document(document))
        self._folder.move_hint(number, newest=self._newest)
        self._published = _Published(
            number=number,
            format_version=table.format_version,
            updated_ms=table.version.facts.timestamp_ms,
            history=history_of(document, path=self._path),
            chain=chain,
            table=table,
        )
        logger.info("published version=%d snapshots=%d", number, len(history.snapshots))
        missing = self._collect(table, history)
        if missing and not anew:
            logger.warning("metadata was lost, made anew files=%d", len(missing))
            self._publish(session, table, anew=True)

    def _can_advance(self, published: _Published, table: TableDescription) -> bool:
        behind = table.version.number - published.number
        return published.format_version == table.format_version and 0 <= behind <= SNAPSHOTS_LISTED

    def _new_chain(self, table: TableDescription) -> SnapshotChain:
        return SnapshotChain(self._folder, self._versions, table.format_version)

    def _history(self, payload: bytes, table: TableDescription) -> PublishedHistory:
        """Read a document of this very table; raises Corruption for any other (I1)."""
        document = decode_document(payload, path=self._path)
        if document.get("location") != table.location:
            raise _Elsewhere("location of Iceberg's metadata is not the table's", path=self._path)
        expected = {
            "table-uuid": table.table_uuid,
            "format-version": table.format_version,
        }
        for name, value in expected.items():
            if document.get(name) != value:
                raise Corruption(
                    f"{name} of Iceberg's metadata is not the table's", path=self._path
                )
        return history_of(document, path=self._path)

    def _listed(
        self, table: TableDescription, history: PublishedHistory
    ) -> PublishedHistory | None:
        """Give what a document would list now, when that can be told without manifests."""
        numbers = {snapshot_number(each) for each in history.snapshots}
        if not set(table.tags.values()) <= numbers:
            return None
        kept = _kept(list(history.snapshots), table, set(table.tags.values()))
        log = _kept_log(history.metadata_log, table)
        return replace(history, snapshots=tuple(kept), metadata_log=log)

    def _load(self, session: ReadSession, table: TableDescription) -> _Published | None:
        """Find the newest document that is whole, and read its manifests."""
        sizes = self._folder.sizes()
        found = sorted(
            each.number
            for each in map(parse_name, sizes)
            if each is not None and each.is_document and each.number <= table.version.number
        )
        for number in found[: -_DOCUMENTS_TRIED - 1 : -1]:
            if table.version.number - number > SNAPSHOTS_LISTED:
                break
            try:
                return self._loaded(session, table, number, sizes)
            except _Elsewhere as error:
                logger.warning("the table was moved version=%d cause=%s", number, error)
                break  # deletes may name data files as that place had them
            except (NotFound, Corruption) as error:
                logger.warning("cannot build on metadata version=%d cause=%s", number, error)
        return None

    def _loaded(
        self,
        session: ReadSession,
        table: TableDescription,
        number: int,
        sizes: Mapping[str, int],
    ) -> _Published:
        history = self._history(self._folder.read_document(number), table)
        chain = self._new_chain(table)
        chain.load(session, table, number, history.snapshots, sizes)
        log = tuple(
            each
            for each in history.metadata_log
            if isinstance(each.get("metadata-file"), str)
            and str(each["metadata-file"]).rpartition("/")[2] in sizes
        )
        return _Published(
            number=number,
            format_version=table.format_version,
            updated_ms=self._versions.version_in(session, number).facts.timestamp_ms,
            history=replace(history, snapshots=tuple(chain.snapshots), metadata_log=log),
            chain=chain,
        )

    def _with_log(self, history: PublishedHistory, published: _Published) -> PublishedHistory:
        """Note the document before this one."""
        entry: JsonObject = {
            "metadata-file": self._folder.document_location(published.number),
            "timestamp-ms": published.updated_ms,
        }
        log = (*history.metadata_log, entry)
        return replace(history, metadata_log=log)

    def _collect(self, table: TableDescription, history: PublishedHistory) -> set[str]:
        """Delete what is not reached any more; gives what is reached and missing.

        A failure only puts it off.
        """
        number, last = table.version.number, self._collected_at
        if last is not None and number < last + _COLLECT_EVERY:
            return set()
        self._collected_at = number
        try:
            return self._garbage.collect(
                table, history, grace=SNAPSHOTS_LISTED, newest=self._newest
            )
        except NeveError as error:
            logger.warning("put off metadata garbage cause=%s", error)
            return set()


def _document_number(entry: JsonObject) -> int:
    parsed = parse_name(str(entry.get("metadata-file")).rpartition("/")[2])
    return 0 if parsed is None else parsed.number


def _kept_log(log: Sequence[JsonObject], table: TableDescription) -> tuple[JsonObject, ...]:
    """Choose the older documents that are named: those that are not garbage."""
    oldest = table.version.number - SNAPSHOTS_LISTED
    return tuple(
        each
        for each in log
        if _document_number(each) > oldest and _document_number(each) in table.retained
    )


def _kept(
    snapshots: list[JsonObject], table: TableDescription, tagged: set[int]
) -> list[JsonObject]:
    """Choose what is listed (I2): the last one is the current Version's."""
    retained = [each for each in snapshots if snapshot_number(each) in table.retained]
    newest = {snapshot_number(each) for each in retained[-SNAPSHOTS_LISTED:]}
    return [
        each
        for at, each in enumerate(snapshots)
        if at == len(snapshots) - 1 or snapshot_number(each) in newest | tagged
    ]


def _is_same(published: TableDescription, table: TableDescription) -> bool:
    return replace(published, version=table.version) == table and (
        published.version.number == table.version.number
    )
