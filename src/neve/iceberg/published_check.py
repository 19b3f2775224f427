"""PublishedCheck: checks that the published metadata is complete and describes the table.

1. The hint names a document that can be read, and so can the other kept documents. Until the first
   publish is complete there is no hint, and at most one document.
2. Every listed snapshot can be walked: manifest list and manifests, each with the bytes that its
   name is the hash of, and files with their sizes.
3. Each snapshot has the files, and the deleted rows, of its Version.
4. Independent: every live row of the current snapshot, read without the engine's code, is the row
   that the engine reads, and no key occurs twice.

Metadata names files by location. In a lake that was moved or copied it names the old place until
the table is published again: that is reported as unseen, not as damage.

A publisher may be active meanwhile: the check starts again when it fails and the hint has moved.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from neve.engine.verification import Findings, VerifiedTable
from neve.errors import Corruption, NeveError, NotFound, Phrase, Wording
from neve.iceberg.metadata_folder import HINT_NAME, MetadataFolder, is_intact, parse_name
from neve.iceberg.plain_reader import PlainFile, PlainReader, PlainSnapshot, Record, field_id
from neve.iceberg.table_metadata import version_of
from neve.model.arrow_types import ArrowField, child_fields, field_id_of, with_child_fields
from neve.model.version import Version
from neve.read.scan import Scan, ScanRequest
from neve.storage.object_store import plain_location
from neve.storage.table_paths import split_path

# pyarrow's classes take type arguments in the stubs only, hence the quotes.
ArrowColumn: TypeAlias = "pa.ChunkedArray[Any]"

_TRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCheck:
    """Checks published metadata; with `independent` also the rows."""

    independent: bool = False

    def __call__(self, table: VerifiedTable) -> Findings:
        """Check the published metadata; returns what was read and what is wrong."""
        findings = Findings()
        seen: int | None = None
        for _ in range(_TRIES):
            folder = MetadataFolder(table.parts.objects, table.parts.paths)
            number = folder.hint()
            if findings.problems and number == seen:
                break  # no process published meanwhile: it is damaged
            seen = number
            findings = _Published(table, folder, independent=self.independent).check(number)
            if not findings.problems:
                break
        return findings


class _Published:
    """One attempt to check a published table."""

    def __init__(self, table: VerifiedTable, folder: MetadataFolder, *, independent: bool) -> None:
        self._table = table
        self._folder = folder
        self._independent = independent
        self._root = plain_location(table.parts.objects.location, "")
        self._reader = PlainReader(self._fetch)
        self._sizes: dict[str, int] = {}
        self._problems: list[NeveError] = []
        self._unseen: list[str] = []

    def check(self, number: int | None) -> Findings:
        """Check the document that the hint names."""
        if number is None:
            number = self._first_document()
        if number is None:
            return Findings(unseen=tuple(self._unseen), problems=tuple(self._problems))
        snapshots = 0
        compared: dict[str, int] = {}
        try:
            document = self._reader.document(self._folder.document_location(number))
            if self._is_moved(document):
                place = str(document["location"])[:200]
                words = f"the table was at {place!a} when it was published; publish it again here"
                return Findings(unseen=(f"published metadata: {words}",))
            self._note_version(document)
            for walked in self._walked(document):
                snapshots += 1
                self._compare_files(walked)
            if self._independent and not self._problems:
                compared = self._compare_rows(document)
        except (Corruption, NotFound) as problem:
            self._note(problem)
        return Findings(
            checked={
                "other documents": self._read_other_documents(number),
                "published snapshots": snapshots,
                "manifest lists": self._reader.lists_read,
                "manifests": self._reader.manifests_read,
                **compared,
            },
            unseen=tuple(self._unseen),
            problems=tuple(self._problems),
        )

    def _first_document(self) -> int | None:
        """Return the document of a publish that was cut off before the first hint (ICEBERG-14)."""
        names = self._folder.sizes()
        documents = [each.number for each in map(parse_name, names) if each and each.is_document]
        if HINT_NAME in names or len(documents) > 1:
            problem = Corruption(
                "version-hint.text is missing or does not hold a number",
                path=self._table.parts.paths.metadata,
                hint=Wording(Phrase.REPUBLISH),
            )
            self._problems.append(problem)
        elif documents:
            self._unseen.append(
                f"published document {documents[0]}: there is no version-hint.text; the first "
                "publish was cut off, or the hint was deleted; publish the table again"
            )
            return documents[0]
        else:
            self._unseen.append("published metadata: the table has not been published")
        return None

    def _is_moved(self, document: Record) -> bool:
        """Return whether the lake was copied or moved since.

        Raises Corruption for another table.
        """
        table = self._table.parts.versions.head().table_uuid
        if document.get("table-uuid") != table:
            raise Corruption(
                f"it is of table {str(document.get('table-uuid'))[:64]!a}, not of {table}",
                path=self._table.parts.paths.metadata,
            )
        return bool(document["location"] != self._folder.table_location)

    def _note_version(self, document: Record) -> None:
        current = self._table.version.number
        published = version_of(document, path=self._table.parts.paths.metadata)
        if published < current:
            words = f"the newest document is of version {published}"
            self._unseen.append(f"published rows of version {current}: {words}")

    def _read_other_documents(self, named: int) -> int:
        """Read the documents that the hint does not name; returns how many there are."""
        read = 0
        newest = named
        for number in sorted(set(self._folder.documents_newest_first()) - {named}):
            try:
                self._reader.document(self._folder.document_location(number))
            except NotFound:
                continue  # it was old, and a publisher deleted it meanwhile
            except Corruption as problem:
                self._note(problem)
            read += 1
            newest = max(newest, number)
        if newest > named:
            self._unseen.append(f"published document {newest}: version-hint.text names {named}")
        return read

    def _walked(self, document: Record) -> Iterator[PlainSnapshot]:
        """Walk every snapshot, and continue after a damaged one."""
        for snapshot in document.get("snapshots", []):
            try:
                yield self._reader.snapshot(document, snapshot["snapshot-id"])
            except (Corruption, NotFound) as problem:
                self._note(problem)

    def _note(self, problem: NeveError) -> None:
        path = (problem.path or "").removeprefix(self._root)
        kind = NotFound if isinstance(problem, NotFound) else Corruption
        noted = kind(
            f"published metadata: {problem.message}", path=path, hint=Wording(Phrase.REPUBLISH)
        )
        if str(noted) not in {str(each) for each in self._problems}:
            self._problems.append(noted)

    def _compare_files(self, walked: PlainSnapshot) -> None:
        """Check that a snapshot has the files of its Version, and that they exist."""
        try:
            version = self._table.parts.versions.version(walked.snapshot_id)
        except NotFound:
            self._unseen.append(
                f"files of snapshot {walked.snapshot_id}: its version has expired since"
            )
            return
        expected = {
            self._folder.locate(path): (file.row_count, file.file_bytes, _marks(version, path))
            for path, file in version.files.items()
        }
        found = {
            path: (
                file.row_count,
                file.file_bytes,
                walked.deletes[path].row_count if path in walked.deletes else 0,
            )
            for path, file in walked.data.items()
        }
        wrong = sorted(
            path for path in expected.keys() | found.keys() if expected.get(path) != found.get(path)
        )
        if wrong:
            self._note(
                Corruption(
                    f"snapshot {walked.snapshot_id} does not list the files of its version, "
                    f"{len(wrong):,} differ",
                    path=wrong[0],
                )
            )
        # Data files were checked with their Versions; deletes of older format versions are
        # separate files.
        for deletes in walked.deletes.values():
            self._check_size(deletes)

    def _check_size(self, file: PlainFile) -> None:
        if file.path not in self._sizes:
            path = file.path.removeprefix(f"{self._root.rstrip('/')}/")
            try:
                self._sizes[file.path] = self._table.parts.objects.size(path)
            except NotFound as missing:
                self._note(missing)
                self._sizes[file.path] = file.file_bytes
        if self._sizes[file.path] != file.file_bytes:
            self._note(Corruption(f"it does not have {file.file_bytes:,} bytes", path=file.path))

    def _compare_rows(self, document: Record) -> dict[str, int]:
        """Compare all live rows with those that the engine reads, file by file."""
        snapshot_id = document.get("current-snapshot-id")
        if snapshot_id in {None, -1}:
            self._unseen.append("rows, independently: no snapshot is published")
            return {}
        walked = self._reader.snapshot(document, snapshot_id)
        try:
            version = self._table.parts.versions.version(walked.snapshot_id)
        except NotFound:
            words = f"the published version {walked.snapshot_id} has expired since"
            self._unseen.append(f"rows, independently: {words}")
            return {}
        schema_id = document["current-schema-id"]
        schema = self._table.files.definitions.schema(schema_id)
        key_ids = [column.field_id for column in schema.key_columns]
        defaults = _with_defaults(document)
        keys: list[pa.Table] = []
        rows = 0
        for path, file in version.files.items():
            alone = replace(version, files={path: file})
            view = self._table.files.view(alone, schema_id)
            engine_rows = Scan(view, ScanRequest(), sequence=0).to_arrow()
            listed = walked.data[self._folder.locate(path)]
            stored, live = self._reader.rows(walked, listed)
            plain_rows = stored.take(live)
            rows += plain_rows.num_rows
            keys.append(self._compare_file(plain_rows, engine_rows, listed, key_ids, defaults))
        self._refuse_second_rows(keys)
        return {"independently read rows": rows}

    def _compare_file(
        self,
        plain: pa.Table,
        engine: pa.Table,
        file: PlainFile,
        key_ids: list[int],
        defaults: frozenset[int],
    ) -> pa.Table:
        """Compare the rows of one file, column by column; returns their keys."""
        if plain.num_rows != engine.num_rows:
            raise Corruption(
                f"an independent reader finds {plain.num_rows:,} rows, the engine "
                f"{engine.num_rows:,}",
                path=file.path,
            )
        places = {field_id(each): at for at, each in enumerate(plain.schema)}
        for at, column in enumerate(engine.schema):
            place = places.get(field_id_of(column))
            if place is None and field_id_of(column) in defaults:
                self._note_unseen(column, "it has a default for rows older than itself")
            elif place is None and engine.column(at).null_count != engine.num_rows:
                raise Corruption(
                    f"the engine has values in column {column.name!a}, the file has none",
                    path=file.path,
                )
            if place is None:
                continue
            self._compare_column(plain.column(place), engine.column(at), column, file)
        return plain.select([places[number] for number in key_ids])

    def _compare_column(
        self,
        plain: ArrowColumn,
        engine: ArrowColumn,
        column: ArrowField,
        file: PlainFile,
    ) -> None:
        try:
            fitted = plain.cast(column.type)
        except pa.ArrowException:
            self._note_unseen(column, "fields inside it have changed since")
            return
        if _comparable(fitted) != _comparable(engine):
            raise Corruption(
                f"an independent reader finds other values in column {column.name!a}",
                path=file.path,
            )

    def _note_unseen(self, column: ArrowField, why: str) -> None:
        words = f"values of column {column.name!a} in older files, independently: {why}"
        if words not in self._unseen:
            self._unseen.append(words)

    def _refuse_second_rows(self, keys: list[pa.Table]) -> None:
        if not keys:
            return
        names = [f"k{at}" for at in range(keys[0].num_columns)]
        plain = [
            pa.table([_storage_column(column) for column in each.columns], names=names)
            for each in keys
        ]
        together = pa.concat_tables(plain, promote_options="permissive")
        counts = together.group_by(names, use_threads=False).aggregate([([], "count_all")])
        twice = counts.filter(pc.greater(counts.column("count_all"), pa.scalar(1))).num_rows
        if twice:
            raise Corruption(
                f"an independent reader finds {twice:,} keys with more than one live row",
                path=self._table.parts.paths.metadata,
            )

    def _fetch(self, location: str) -> bytes:
        root = f"{self._root.rstrip('/')}/"
        if not location.startswith(root):
            raise Corruption(f"{location[:200]!a} is not in the lake", path=location[:200])
        path = location.removeprefix(root)
        payload = self._table.parts.objects.get(path).payload
        directory, name = split_path(path)
        is_hashed = directory == self._table.parts.paths.metadata and name.endswith(".avro")
        if is_hashed and not is_intact(name, payload):
            raise Corruption("its bytes do not match the hash in its name", path=path)
        return payload


def _with_defaults(document: Record) -> frozenset[int]:
    """Return the ids of columns that have a default for rows of older files."""
    current = document["current-schema-id"]
    fields = next(each for each in document["schemas"] if each["schema-id"] == current)["fields"]
    return frozenset(each["id"] for each in fields if each.get("initial-default") is not None)


def _marks(version: Version, path: str) -> int:
    vector = version.files[path].vector
    return 0 if vector is None else vector.cardinality


def _storage_column(column: ArrowColumn) -> ArrowColumn:
    """Return a column in a type that kernels support: UUIDs as their bytes."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    return column.cast(column.type.storage_type)


def _comparable(column: ArrowColumn) -> "pa.Array[Any]":
    """Return a column whose equal values compare equal: NaN as its bits."""
    stored: pa.Array[Any] = _storage_column(column).combine_chunks()
    bits = _bits_of(stored.type)
    return stored if bits == stored.type else stored.view(bits)


def _bits_of(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(type_):
        return pa.int32() if pa.types.is_float32(type_) else pa.int64()
    fields = child_fields(type_)
    if not fields:
        return type_
    return with_child_fields(type_, tuple(each.with_type(_bits_of(each.type)) for each in fields))
