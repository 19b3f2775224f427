"""VersionView: one Version of a table as listings show it, without reading any of its rows.

`table.history()` lists Versions, `table.files()` the data files of one. Partition values are texts,
spelled as in `neve.model.transforms`; the manifest has them in Iceberg's single-value form, see
`neve.model.plain_values`. Bytes of the wrong length for the type are Corruption, except for numbers
that were widened later.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Final

import pyarrow as pa

from neve.errors import Corruption
from neve.manifest.table_head import TableHead
from neve.manifest.table_versions import TableVersions
from neve.manifest.version_reader import Commit, Session
from neve.manifest.writer_state import Consumer
from neve.model.arrow_types import ArrowField
from neve.model.data_file import DataFile, PartitionValue
from neve.model.display import shown_bytes
from neve.model.partition_spec import PartitionField, PartitionSpec
from neve.model.plain_values import decode_single_value
from neve.model.schema import TableSchema
from neve.model.transforms import partition_text
from neve.model.version import Operation, Version
from neve.model.version_summary import SummedFiles, Totals, shown_counters
from neve.notebook import Cell, facts, page, shown_page, size_words, version_page


class PartitionWords:
    """Spells the partition values of one table's files."""

    def __init__(
        self, specs: Mapping[int, PartitionSpec], schemas: Mapping[int, TableSchema], *, path: str
    ) -> None:
        self._specs = specs
        self._path = path
        # Newest last: a widened field has its current type.
        self._types = {
            column.field_id: column.type
            for schema_id in sorted(schemas)
            for column in schemas[schema_id].columns
        }
        # There are many files, but few partitions.
        self._known: dict[tuple[int, tuple[PartitionValue, ...]], dict[str, str | None]] = {}

    def of(self, file: DataFile) -> dict[str, str | None]:
        """Return the texts of a file's partition values by field name; raises Corruption."""
        key = (file.spec_id, file.partition)
        words = self._known.get(key)
        if words is None:
            words = self._known[key] = self._spell(file)
        return words

    def _spell(self, file: DataFile) -> dict[str, str | None]:
        spec = self._specs.get(file.spec_id)
        if spec is None:
            raise Corruption(
                f"{file.path!a} is of partition spec {file.spec_id}, which the table never had",
                path=self._path,
            )
        values = {each.field_id: each.value for each in file.partition}
        words: dict[str, str | None] = {}
        for field in spec.fields:
            value = values.get(field.field_id)
            try:
                words[field.name] = None if value is None else self._word(field, value)
            except (Corruption, KeyError, ValueError) as error:
                raise Corruption(
                    f"partition value {field.name!a} of {file.path!a} cannot be read",
                    path=self._path,
                ) from error
        return words

    def _word(self, field: PartitionField, value: bytes) -> str:
        result_type = field.transform.result_type(self._types[field.source_id])
        return partition_text(field.transform, result_type, decode_single_value(result_type, value))


def required(name: str, type_: pa.DataType) -> ArrowField:
    """Return a column that is never NULL."""
    return pa.field(name, type_, nullable=False)


def optional(name: str, type_: pa.DataType) -> ArrowField:
    """Return a column that may be NULL."""
    return pa.field(name, type_, nullable=True)


FILES_SCHEMA: Final = pa.schema(
    [
        required("file_path", pa.string()),
        required("level", pa.int32()),
        required("record_count", pa.int64()),
        required("deleted_count", pa.int64()),
        required("file_size_bytes", pa.int64()),
        required("key_min", pa.binary()),
        required("key_max", pa.binary()),
        required("partition", pa.map_(pa.string(), pa.string())),
        required("spec_id", pa.int32()),
        required("schema_id", pa.int32()),
        required("sequence_min", pa.int64()),
        required("sequence_max", pa.int64()),
        optional("first_row_id", pa.int64()),
        optional("vector_path", pa.string()),
        optional("committed_min", pa.timestamp("ms", tz="UTC")),
        optional("committed_max", pa.timestamp("ms", tz="UTC")),
        required(
            "wal_segments",
            pa.list_(
                pa.struct(
                    [
                        required("log_number", pa.int64()),
                        required("file_id", pa.string()),
                        required("first_frame", pa.int64()),
                        required("last_frame", pa.int64()),
                    ]
                )
            ),
        ),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionStats:
    """Sums over the files of one Version."""

    version: int
    row_count: int
    """Rows that readers see."""
    deleted_count: int
    """Rows in files that vectors mark."""
    file_count: int
    file_bytes: int
    vector_count: int
    level_file_counts: Mapping[int, int]
    index_bytes: int = 0
    """Of the index files of the table, a cache beside its data files; 0 for older Versions."""

    def _repr_html_(self) -> str:
        return shown_page("Stats", self._page)

    def _page(self) -> str:
        members: dict[str, Cell] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Mapping):
                value = ", ".join(f"{name}: {number:,}" for name, number in value.items())
            elif each.name.endswith("_bytes"):
                value = shown_bytes(value)
            members[each.name.replace("_", " ")] = value
        return page("Stats", facts(members))


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionView:
    """One Version with its schema and its partition spec."""

    version: Version
    schema: TableSchema
    spec: PartitionSpec
    words: PartitionWords

    def __repr__(self) -> str:
        return f"VersionView({size_words(self.version)!r})"

    def _repr_html_(self) -> str:
        title = f"Version {self.number}"
        return shown_page(title, lambda: version_page(title, self.version, {}))

    @property
    def number(self) -> int:
        """Number of the Version: its snapshot id."""
        return self.version.number

    @property
    def parent(self) -> int | None:
        """Number of the previous Version; None for the first."""
        return self.version.parent

    @property
    def timestamp_ms(self) -> int:
        """When it was committed, milliseconds since 1970."""
        return self.version.facts.timestamp_ms

    @property
    def operation(self) -> Operation:
        """What its commit did."""
        return self.version.facts.operation

    @property
    def summary(self) -> dict[str, str]:
        """What its commit says about itself."""
        return dict(self.version.facts.summary)

    def files(self) -> pa.Table:
        """Return its data files, one row each, in the order in which they were added."""
        # Loops over files, not rows: some thousands of Python values.
        files = list(self.version.files.values())
        columns: dict[str, list[object]] = {
            "file_path": [file.path for file in files],
            "level": [file.level for file in files],
            "record_count": [file.row_count for file in files],
            "deleted_count": [file.deleted_count for file in files],
            "file_size_bytes": [file.file_bytes for file in files],
            "key_min": [file.key_min for file in files],
            "key_max": [file.key_max for file in files],
            "partition": [list(self.words.of(file).items()) for file in files],
            "spec_id": [file.spec_id for file in files],
            "schema_id": [file.schema_id for file in files],
            "sequence_min": [file.sequence_min for file in files],
            "sequence_max": [file.sequence_max for file in files],
            "first_row_id": [file.first_row_id for file in files],
            "vector_path": [None if file.vector is None else file.vector.path for file in files],
            "committed_min": [file.commit_ms_min or None for file in files],
            "committed_max": [file.commit_ms_max or None for file in files],
            "wal_segments": [[asdict(each) for each in file.wal_segments] for file in files],
        }
        return pa.Table.from_pydict(columns, schema=FILES_SCHEMA)

    def stats(self) -> VersionStats:
        """Return sums over its files."""
        files = list(self.version.files.values())
        return VersionStats(
            version=self.number,
            row_count=self.version.row_count,
            deleted_count=sum(file.deleted_count for file in files),
            file_count=len(files),
            file_bytes=sum(file.file_bytes for file in files),
            vector_count=sum(file.vector is not None for file in files),
            level_file_counts=dict(sorted(Counter(file.level for file in files).items())),
        )


HISTORY_SCHEMA: Final = pa.schema(
    [
        required("version", pa.int64()),
        optional("parent", pa.int64()),
        required("timestamp", pa.timestamp("ms", tz="UTC")),
        required("operation", pa.string()),
        required("summary", pa.map_(pa.string(), pa.string())),
        required("tags", pa.list_(pa.string())),
    ]
)


CONSUMERS_SCHEMA: Final = pa.schema(
    [
        required("name", pa.string()),
        required("position", pa.int64()),
        required("updated", pa.timestamp("ms", tz="UTC")),
        required("keep_seconds", pa.float64()),
        required("holds", pa.bool_()),
    ]
)


def summed_commits(versions: TableVersions, session: Session) -> Iterator[Commit]:
    """Return the retained Versions, oldest first, with counters and totals in their summaries.

    The changes of the oldest one are only known if its commit recorded them.
    """
    head = versions.head_in(session)
    files: SummedFiles | None = None
    for commit in versions.commits_in(session):
        if commit.number < head.oldest_version:
            totals = Totals.of(versions.version_in(session, commit.number).files)
            counters: dict[str, str] = {}
        elif files is None:
            files = SummedFiles(versions.version_in(session, commit.number))
            totals, counters = files.totals, {}
        else:
            change = files.follow(commit.number, versions.edit_in(session, commit.number))
            totals, counters = files.totals, shown_counters(change.counters())
        summary = {**commit.facts.summary, **counters, **totals.summary()}
        yield replace(commit, facts=replace(commit.facts, summary=summary))


def list_history(commits: Iterable[Commit], tags: Mapping[str, int]) -> pa.Table:
    """Return a row for each commit, in order; `tags` maps names to Versions."""
    names: dict[int, list[str]] = {}
    for tag, number in sorted(tags.items()):
        names.setdefault(number, []).append(tag)
    rows: list[dict[str, object]] = [
        {
            "version": commit.number,
            "parent": commit.parent,
            "timestamp": commit.facts.timestamp_ms,
            "operation": commit.facts.operation.value,
            "summary": sorted(commit.facts.summary.items()),
            "tags": names.get(commit.number, []),
        }
        for commit in commits
    ]
    return pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA)


def list_consumers(consumers: Iterable[Consumer], head: TableHead, *, now_ms: int) -> pa.Table:
    """Return a row for each consumer, in order; `holds` is whether it keeps history now."""
    rows: list[dict[str, object]] = [
        {
            "name": consumer.name,
            "position": consumer.position,
            "updated": consumer.updated_ms,
            "keep_seconds": consumer.keep_ms / 1_000,
            "holds": consumer.holds(head, now_ms),
        }
        for consumer in consumers
    ]
    return pa.Table.from_pylist(rows, schema=CONSUMERS_SCHEMA)
