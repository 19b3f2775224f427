"""VersionView: what is known about one Version of a table without reading any of its rows."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final

import pyarrow as pa

from neve.catalog.version_view import PartitionWords, optional, required
from neve.model.display import shown_bytes
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.model.version import Operation, Version
from neve.notebook import Cell, facts, page, shown_page, size_words, version_page

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
        """Number of the Version before it; None for the first."""
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
        # Loops over files, not rows: facts of files are Python values, some thousands of them.
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
        """Add its files up."""
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
