"""IcebergPublisher: turns the Versions of a table into snapshots of Iceberg's metadata.

Steps of a publish:

1. Find the newest document, D: the last one of this process, or the newest in the folder.
2. Read the table: head, Version, definitions, tags, and which Versions are retained.
3. For each Version since D's: write the manifests it changes, and its manifest list.
4. Create document D+1 if it does not exist, then point the hint at it; otherwise start again.
5. Now and then, delete files that no kept document reaches.

Documents are a chain, like the segments of a manifest: creating the next number decides which
process publishes, and each document is built on the one before it. Any process may publish at any
time; one that loses or dies leaves files that nothing reaches.

ICEBERG-1  A document describes one whole Version and never changes. Nothing is built on a folder
           that cannot be trusted: when a file is missing, damaged or of another table or place,
           everything is made again from the retained Versions, under the next number.
ICEBERG-2  A document lists the newest retained Versions, at most `SNAPSHOTS_LISTED`, and the tagged
           ones. A Version that only changed definitions has the rows, and the snapshot, of the one
           before it.
ICEBERG-3  The table is read after the base document was found. So no document is older than the one
           before it: an expired Version is not listed again.
ICEBERG-4  A document refers only to files that carry its own number, which its publisher wrote, and
           to files that the document before it refers to.
ICEBERG-14  A second document is created only when there is a hint. So one document without a hint
            is a first publish that was cut off, and several without one have lost it.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final, TypeAlias

from neve.errors import Corruption, NeveError, NotFound, Phrase, Unavailable, Wording
from neve.iceberg.metadata_folder import MetadataFolder, MetadataGarbage, parse_name
from neve.iceberg.snapshot_chain import KnownManifests, SnapshotChain, published_sequences
from neve.iceberg.table_metadata import (
    PublishedHistory,
    TableDescription,
    decode_document,
    encode_document,
    history_of,
    metadata_document,
    snapshot_number,
    version_of,
)
from neve.manifest.sessions import ReadSession
from neve.manifest.table_versions import TableVersions
from neve.manifest.writer_state import WriterState
from neve.model.row_lineage import has_lineage
from neve.model.schema_json import JsonObject
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths
from neve.table.table_context import Definitions

logger = logging.getLogger(__name__)

SNAPSHOTS_LISTED: Final = 100
DOCUMENTS_KEPT: Final = 100
"""A reader may begin with a document that the hint named this many documents ago."""
_COLLECT_EVERY: Final = 16
_ROUNDS: Final = 64
_FORMAT_PROPERTY: Final = "format-version"
_FORMAT_DEFAULT: Final = "3"


PropertiesOf: TypeAlias = Callable[[bool], Mapping[str, str]]
"""Returns the properties of a table; with True, those that this process knows will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """A document in the folder, and what it was made from."""

    number: int
    payload: bytes
    version: int
    format_version: int
    updated_ms: int
    history: PublishedHistory
    chain: SnapshotChain | None = None
    """None until manifests are needed."""
    table: TableDescription | None = None
    """Its content, when that is known to be the table as it was read."""


class IcebergPublisher:
    """Publishes one table; safe for many threads."""

    def __init__(
        self,
        objects: ObjectStore,
        paths: TablePaths,
        *,
        versions: TableVersions,
        definitions: Definitions,
        writer_state: WriterState,
        properties_of: PropertiesOf,
    ) -> None:
        # Fixed at construction.
        self._folder = MetadataFolder(objects, paths)
        self._versions = versions
        self._writer_state = writer_state
        self._properties_of = properties_of
        self._definitions = definitions
        self._garbage = MetadataGarbage(self._folder)
        # Guarded by _lock.
        self._lock = Lock()
        self._published: _Published | None = None
        self._manifests: KnownManifests = {}

    def newest(self) -> str | None:
        """Location of the newest document, None when there is none; nothing is written."""
        found = _newest_document(self._folder, self._versions)
        return None if found is None else self._folder.document_location(found[0])

    def publish_once(self) -> bool:
        """Publish the current Version; False when it is published already."""
        with self._lock:
            return self._bring_up_to_date()

    def publish(self) -> str:
        """Publish what is missing; returns the location of a document of the current Version.

        Existing files are checked first: read, the first time in a process, and later by names and
        sizes.
        """
        with self._lock:
            published = self._published
            if published is not None and (
                published.chain is None or self._folder.has_document(published.number + 1)
            ):
                self._published = None  # it was never checked, or another process published since
            is_new = self._published is None
            self._bring_up_to_date(is_checked=True)
            published = self._published
            assert published is not None
            is_lost = is_new and bool(self._garbage.missing(published.history))
            if is_lost or not self._is_whole(published):
                self._published = None
                self._bring_up_to_date(is_trusted=False)
                published = self._published
                assert published is not None
            return self._folder.document_location(published.number)

    def keeps_lineage(self) -> bool:
        """Return whether rows have a lineage, by the newest format version of the table."""
        return has_lineage(self._properties_of(False))

    def data_sequences(self, paths: Collection[str]) -> dict[str, int]:
        """Return the data sequence numbers published for data files, by path.

        Missing or damaged metadata has none: it is made again from the Versions.
        """
        wanted = {self._folder.locate(path): path for path in paths}
        newest = _newest_document(self._folder, self._versions)
        if newest is None:
            return {}
        number, document = newest
        try:
            snapshots = history_of(document, path=self._path).snapshots
            found = published_sequences(self._folder, snapshots[-1]) if snapshots else {}
        except (NotFound, Corruption) as error:
            logger.warning("cannot read metadata document=%d cause=%s", number, error)
            return {}
        return {wanted[key]: sequence for key, sequence in found.items() if key in wanted}

    @property
    def _path(self) -> str:
        return self._folder.paths.metadata

    def _describe(self, session: ReadSession, *, is_known: bool = False) -> TableDescription:
        versions = self._versions
        head = versions.head_in(session)
        if head.dropped:
            raise NotFound("the table was dropped", path=self._folder.paths.manifest)
        self._definitions.learn(session)
        properties = self._properties_of(is_known)
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
            tags=self._writer_state.tags_in(session),
            retained=frozenset((*alone, *range(head.oldest_version, head.current_version + 1))),
        )

    def _bring_up_to_date(self, *, is_checked: bool = False, is_trusted: bool = True) -> bool:
        """Make the newest document describe the table; False when it already does.

        `is_checked` reads the manifests of a document that this process did not write. Nothing is
        built on a folder that is not trusted.
        """
        for _ in range(_ROUNDS):  # in each except the last, another publisher was first
            known = self._published
            last, payload = (known.number, known.payload) if known else self._folder.newest()
            session = self._newest_after(known, is_checked=is_checked)  # ICEBERG-3
            # A process that changes a property publishes it: then the next document exists, and the
            # properties are read again. They are read now and then in case that it could not.
            is_next = known is not None and known.number % _COLLECT_EVERY != 0
            table = self._describe(session, is_known=is_next and not is_checked)
            if not is_trusted:
                known = None
            elif known is None and payload is not None:
                known = self._understood(last, payload, session, table, is_checked=is_checked)
                if known is not None and self._folder.hint() is None:
                    self._folder.move_hint(last)  # ICEBERG-14
            if known is not None and known.table is not None and _is_same(known.table, table):
                if self._published is None and not self._folder.move_hint(last):
                    continue
                self._published = known
                return False
            try:
                if self._publish_after(last, known, session, table):
                    return True
            except NotFound:
                # Versions that expired since may have lost their files.
                if _is_same(table, self._describe(self._versions.store.read())):
                    raise
        raise Unavailable(
            "other processes kept publishing the table first",
            path=self._path,
            hint=Wording(Phrase.PUBLISH_AGAIN),
        )

    def _newest_after(self, known: _Published | None, *, is_checked: bool) -> ReadSession:
        """Return a state that is not older than the document of this process.

        The process knows its own commits, and need not ask for others: other processes publish
        theirs.
        """
        store = self._versions.store
        return store.read() if known is None or is_checked else store.read_known()

    def _understood(
        self,
        number: int,
        payload: bytes,
        session: ReadSession,
        table: TableDescription,
        *,
        is_checked: bool,
    ) -> _Published | None:
        """Read a document of another process; None when nothing can be built on it (ICEBERG-1)."""
        try:
            document = self._own_document(payload, table)
            history = history_of(document, path=self._path)
            found = _Published(
                number=number,
                payload=payload,
                version=version_of(document, path=self._path),
                format_version=table.format_version,
                updated_ms=_updated_ms(document),
                history=history,
            )
            listed = self._listed(table, history)
            if listed is None or encode_document(metadata_document(table, listed)) != payload:
                return found
            chain = self._loaded(session, table, found) if is_checked else None
            return replace(found, chain=chain, table=table)
        except (NotFound, Corruption) as error:
            logger.warning("cannot build on metadata document=%d cause=%s", number, error)
            return None

    def _own_document(self, payload: bytes, table: TableDescription) -> JsonObject:
        """Decode a document of this table; raises Corruption for any other."""
        document = decode_document(payload, path=self._path)
        expected = {
            "location": table.location,
            "table-uuid": table.table_uuid,
            "format-version": table.format_version,
        }
        for name, value in expected.items():
            if document.get(name) != value:
                raise Corruption(
                    f"{name} of Iceberg's metadata is not the table's", path=self._path
                )
        return document

    def _is_whole(self, published: _Published) -> bool:
        """Return whether a document and its files still exist, judging by names and sizes."""
        try:
            payload = self._folder.read_document(published.number)
        except NotFound:
            return False
        if payload != published.payload:
            return False
        self._folder.move_hint(published.number)
        return published.chain is None or published.chain.is_whole(self._folder.sizes())

    def _publish_after(
        self,
        last: int,
        base: _Published | None,
        session: ReadSession,
        table: TableDescription,
    ) -> bool:
        """Write the document after the last one; False when another publisher was first."""
        self._published = None  # forgotten when this fails
        # Nothing is carried into a folder's first document, so any number will do for it.
        number = last + 1 if last else table.version.number
        chain, history = self._chain(session, table, base, number)
        self._manifests = chain.manifests
        resolved = chain.list_tagged(session, table, number)
        history = replace(
            history, snapshots=tuple(_kept(chain.snapshots, table, set(resolved.values())))
        )
        chain.snapshots = list(history.snapshots)
        described = replace(table, tags=resolved)
        if base is not None and base.version == table.version.number:
            same = metadata_document(
                described, replace(history, metadata_log=base.history.metadata_log)
            )
            if encode_document(same) == base.payload:
                if not self._folder.move_hint(base.number):
                    return False
                self._published = replace(base, chain=chain, table=table)
                return True
        document = metadata_document(described, self._with_log(history, base, number))
        payload = encode_document(document)
        if not self._folder.create_document(number, payload):
            return False
        if not self._folder.move_hint(number):
            return False  # this process slept for so long that its number was free again
        self._published = _Published(
            number=number,
            payload=payload,
            version=table.version.number,
            format_version=table.format_version,
            updated_ms=_updated_ms(document),
            history=history_of(document, path=self._path),
            chain=chain,
            table=table,
        )
        self._garbage.learn(chain.lists)
        chain.lists = {}
        logger.info(
            "published version=%d document=%d snapshots=%d",
            table.version.number, number, len(history.snapshots),
        )  # fmt: skip
        if number % _COLLECT_EVERY == 0 and self._collect(number, history):
            self._published = None
            return self._publish_after(number, None, session, table)
        return True

    def _chain(
        self,
        session: ReadSession,
        table: TableDescription,
        base: _Published | None,
        number: int,
    ) -> tuple[SnapshotChain, PublishedHistory]:
        """Make the snapshots of a document, on top of those of another one if possible."""
        if base is not None and self._can_advance(base, table):
            try:
                chain = base.chain or self._loaded(session, table, base)
                self._manifests = {}  # changed ones are useless to another chain
                chain.advance_to(session, table, number)
            except (NotFound, Corruption) as error:
                # It is damaged, or Versions expired meanwhile.
                logger.warning("cannot build on metadata document=%d cause=%s", base.number, error)
            else:
                return chain, base.history
        chain = self._new_chain(table)
        chain.rebuild(session, table, number, limit=SNAPSHOTS_LISTED)
        orders = () if base is None else base.history.sort_orders
        return chain, PublishedHistory(sort_orders=orders)

    def _can_advance(self, base: _Published, table: TableDescription) -> bool:
        behind = table.version.number - base.version
        return base.format_version == table.format_version and 0 <= behind <= SNAPSHOTS_LISTED

    def _new_chain(self, table: TableDescription) -> SnapshotChain:
        return SnapshotChain(self._folder, self._versions, table.format_version)

    def _loaded(
        self, session: ReadSession, table: TableDescription, published: _Published
    ) -> SnapshotChain:
        """Read the manifests of a document; raises NotFound, and Corruption."""
        chain = self._new_chain(table)
        chain.load(
            session,
            table,
            published.version,
            published.history.snapshots,
            sizes=self._folder.sizes(),
            known=self._manifests,
        )
        return chain

    def _listed(
        self, table: TableDescription, history: PublishedHistory
    ) -> PublishedHistory | None:
        """Return what a document would list now, if known without manifests."""
        numbers = {snapshot_number(each) for each in history.snapshots}
        if not set(table.tags.values()) <= numbers:
            return None
        kept = _kept(list(history.snapshots), table, set(table.tags.values()))
        return replace(history, snapshots=tuple(kept))

    def _with_log(
        self, history: PublishedHistory, base: _Published | None, number: int
    ) -> PublishedHistory:
        """Remember the document before this one, and drop those that are no longer kept."""
        if base is None:
            return replace(history, metadata_log=())
        entry: JsonObject = {
            "metadata-file": self._folder.document_location(base.number),
            "timestamp-ms": base.updated_ms,
        }
        log = [*history.metadata_log, entry]
        kept = [each for each in log if _document_number(each) > number - DOCUMENTS_KEPT]
        return replace(history, metadata_log=tuple(kept))

    def _collect(self, number: int, history: PublishedHistory) -> set[str]:
        """Delete unreached files; returns those that are reached but missing.

        A failure only postpones it.
        """
        try:
            missing = self._garbage.collect(number, history, kept=DOCUMENTS_KEPT)
        except NeveError as error:
            logger.warning("put off metadata garbage cause=%s", error)
            return set()
        if missing:
            logger.warning("metadata was lost and is written again files=%d", len(missing))
        return missing


def published_lists(
    objects: ObjectStore, paths: TablePaths, versions: TableVersions
) -> dict[int, str]:
    """Locations of the manifest lists that are published, by Version; nothing is written."""
    found = _newest_document(MetadataFolder(objects, paths), versions)
    if found is None:
        return {}
    return {
        snapshot_number(each): str(each.get("manifest-list"))
        for each in history_of(found[1], path=paths.metadata).snapshots
    }


def _newest_document(
    folder: MetadataFolder, versions: TableVersions
) -> tuple[int, JsonObject] | None:
    """Find the newest document that can be read, and its number."""
    current, path = versions.head().current_version, folder.paths.metadata
    for number in folder.documents_newest_first():
        try:
            document = decode_document(folder.read_document(number), path=path)
            if version_of(document, path=path) <= current:
                return number, document
        except (NotFound, Corruption):
            continue
    return None


def _updated_ms(document: JsonObject) -> int:
    found = document.get("last-updated-ms")
    return found if isinstance(found, int) else 0


def _document_number(entry: JsonObject) -> int:
    parsed = parse_name(str(entry.get("metadata-file")).rpartition("/")[2])
    return 0 if parsed is None else parsed.number


def _kept(
    snapshots: list[JsonObject], table: TableDescription, tagged: set[int]
) -> list[JsonObject]:
    """Choose what is listed (ICEBERG-2): the last one is the current Version's."""
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
