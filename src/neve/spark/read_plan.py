"""ReadPlan: the files that a Spark read of a table reads, and the dead rows in them.

1. Choose the Version, and lease it: its files stay while the read runs.
2. Choose the files by the filter, as `table.scan` does (`neve.read.scan_plan`).
   Where rows expire, the filter also leaves out those that have expired.
3. Find rows of the files whose keys are in the log of a running writer, for a fresh read.
4. For Spark's own scan, find the rows that vectors mark as well, and group files that have the
   same columns under the same names. For workers, divide the files into pieces.

Nothing here imports Spark.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from neve.catalog.catalog_table import CatalogTable
from neve.catalog.lake import Lake, open_lake
from neve.catalog.moment import Moment
from neve.catalog.stored_table import StoredTable
from neve.catalog.system_tables import readable_rows
from neve.catalog.table import open_table_of
from neve.engine.table_options import TableOptions
from neve.errors import InvalidArgument, NotFound
from neve.manifest.leases import HeldLease, given_up_on_error
from neve.model.arrow_types import NESTED_KINDS, kind_of
from neve.model.data_file import DataFile
from neve.model.predicate import Predicate
from neve.model.schema import Column, TableSchema
from neve.model.version import Version
from neve.read.chosen_columns import ChosenColumns, chosen_columns
from neve.read.filters import Filter, RowFilter, iceberg_predicate, row_filter
from neve.read.memory_rows import MemoryRows
from neve.read.scan_plan import plan_scan, unexpired
from neve.spark.call_check import refuse_memory
from neve.spark.file_pieces import FilePiece, PieceReader, cut_pieces
from neve.sstable.deletion_vector import bitmap_of, positions_in
from neve.storage.clock import Clock
from neve.storage.table_paths import join_path
from neve.table.table_files import TableFiles
from neve.table.table_view import TableView

LEASE_SECONDS: Final = TableOptions().lease_seconds
_WORD_BITS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAddress:
    """The address of a table, in a form that other processes understand."""

    location: str
    name: str
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(
        cls,
        location: str | PathLike[str],
        name: str,
        storage_options: Mapping[str, str] | None = None,
    ) -> "TableAddress":
        """Return the address of a table; a relative directory is resolved in this process."""
        place = fspath(location)
        refuse_memory(place)
        scheme = urlsplit(place).scheme
        if not scheme:
            place = str(Path(place).absolute())
        options = tuple(sorted((storage_options or {}).items()))
        return cls(location=place, name=name, storage_options=options)

    @contextmanager
    def catalog(self) -> Iterator[Lake]:
        """Open the catalog; raises NotFound where there is none."""
        options = dict(self.storage_options) or None
        with open_lake(self.location, storage_options=options, create=False) as lake:
            yield lake


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedVersion:
    """The Version to read: at most one of these; none of them for the current one."""

    version: int | None = None
    timestamp: Moment | None = None
    tag: str | None = None
    is_now: bool = False
    """Whether rows that expired after the Version was committed are left out."""

    @property
    def is_current(self) -> bool:
        """Whether none is set."""
        return self.version is None and self.timestamp is None and self.tag is None

    def of(self, table: CatalogTable) -> tuple[Version, int]:
        """Return the Version and the id of the schema it is read in; raises NotFound."""
        if self.is_current:
            return table.current().version, table.schema.schema_id
        found = table.at(self.version, timestamp=self.timestamp, tag=self.tag).version
        return found, found.facts.schema_id

    def moment_ms(self, version: Version, clock: Clock) -> int:
        """Return when rows must not have expired: now, or when an old Version was committed."""
        is_now = self.is_current or self.is_now
        return clock.now_ms() if is_now else version.facts.timestamp_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedFile:
    """A file with dead rows: one bit for each row, 64 to a word."""

    path: str
    file_bytes: int
    row_count: int
    words: npt.NDArray[np.int64]

    @property
    def file_name(self) -> str:
        """Last segment of the path; no two files of a table share it."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanFile:
    """A file without dead rows."""

    path: str
    file_bytes: int
    row_count: int

    def marked(self, dead: BitMap64) -> MarkedFile:
        """Return the same file with a bitmap."""
        return MarkedFile(
            path=self.path,
            file_bytes=self.file_bytes,
            row_count=self.row_count,
            words=_words(dead, self.row_count),
        )


@dataclass(frozen=True, slots=True, eq=False)
class StoredColumn:
    """A column as some files have it; a primitive one has its current type: Spark widens it."""

    name: str
    type: pa.DataType

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredColumn):
            return NotImplemented
        # Field ids are in the metadata, and two types may differ only in them.
        return self.name == other.name and self.type.equals(other.type, check_metadata=True)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files that have the columns to read under the same names and types."""

    stored: tuple[StoredColumn | None, ...]
    """Each column of `ReadPlan.names_read` as the files have it; None: it was added later."""
    clean: tuple[CleanFile, ...]
    marked: tuple[MarkedFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The parts of a Spark plan."""

    version: int
    schema: TableSchema
    chosen: ChosenColumns
    """The columns that are returned."""
    names_read: tuple[str, ...]
    """Columns that are returned wholly or partly, then those that only the plan needs."""
    filter: RowFilter
    files: tuple[DataFile, ...]
    """The files to read."""
    groups: tuple[FileGroup, ...]
    """The same files for Spark's own scan; empty for a read through Python."""
    reader: PieceReader | None
    """For a read through Python: what reads the pieces."""
    pieces: tuple[FilePiece, ...]
    memory: pa.Table | None
    """Rows that only the log has, with the columns of `names_read`."""
    lease: HeldLease | None

    @property
    def columns_read(self) -> tuple[Column, ...]:
        """The columns of `names_read`."""
        return tuple(self.schema.column(name) for name in self.names_read)


def refuse_beside_system_table(name: str, *, is_asked: bool) -> None:
    """Raise InvalidArgument when a system table is read in any way but its current rows."""
    if is_asked:
        raise InvalidArgument(
            f"{name} is listed as it is now: it has no versions and no changes",
            hint="Leave out version, timestamp, tag, fresh and since; choose rows with filter",
        )


def system_rows(
    address: TableAddress,
    *,
    columns: Sequence[str] | None,
    filter: object,  # noqa: A002 - the word of `scan`
) -> pa.Table:
    """Return the rows of a system table as of now; raises NotFound, InvalidArgument."""
    with address.catalog() as lake:
        listed = lake.system_table(address.name)
    return readable_rows(address.name, listed, filter=filter, columns=columns)


def plan_read(
    address: TableAddress,
    wanted: WantedVersion,
    *,
    columns: Sequence[str] | None,
    filter: Filter | None,  # noqa: A002 - the word of `scan`
    fresh: bool,
    native: bool,
) -> ReadPlan:
    """Plan a read, through Spark's own scan or through Python.

    Raises NotFound, InvalidArgument or SchemaMismatch before anything is read.
    """
    asked = _Asked(columns=columns, filter=filter, native=native, address=address)
    with address.catalog() as lake:
        if not fresh:
            table = lake.load_table(address.name)
            view, lease = leased_view(table, wanted)
            with given_up_on_error(lease):
                return _plan(view, None, lease, asked)
        if not wanted.is_current:
            raise InvalidArgument(
                "an old version has no fresh rows", hint="Leave out fresh, or the version"
            )
        with (
            lake.table(address.name, read_only=True) as live,
            open_table_of(live).engine.pinned_view() as (view, sequence),
        ):
            parts = open_table_of(live).engine.parts
            lease = parts.leases.hold_if_possible(
                view.version, parts.versions, seconds=LEASE_SECONDS
            )
            with given_up_on_error(lease):
                seen = open_table_of(live).engine.as_seen(view)
                memory = MemoryRows(seen, sequence)
                return _plan(seen, memory, lease, asked)


def leased_view(table: CatalogTable, wanted: WantedVersion) -> tuple[TableView, HeldLease | None]:
    """Return the files of a Version and a lease on it; raises NotFound when it has expired."""
    parts = table.stored.parts(table.properties)

    def hold() -> tuple[TableView, HeldLease | None] | None:
        version, schema_id = wanted.of(table)
        try:
            lease = parts.leases.hold_if_possible(
                version.number, parts.versions, seconds=LEASE_SECONDS
            )
        except NotFound:
            if not wanted.is_current:
                raise
            table.refresh()
            return None
        moment_ms = wanted.moment_ms(version, parts.clock)
        return files_view(table.stored, version, schema_id).as_of(moment_ms), lease

    return parts.leases.until_held(hold)


def files_view(stored: StoredTable, version: Version, schema_id: int) -> TableView:
    """Return the files of a Version under a schema, without rows of any log."""
    parts = stored.parts()
    return TableFiles(parts, schema_id).view(version, schema_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The arguments of a read."""

    columns: Sequence[str] | None
    filter: Filter | None
    native: bool
    address: TableAddress


def _plan(
    view: TableView, memory: MemoryRows | None, lease: HeldLease | None, asked: _Asked
) -> ReadPlan:
    schema = view.context.schema
    chosen = chosen_columns(asked.columns, schema)
    filter_asked = unexpired(row_filter(asked.filter, schema), view)
    if filter_asked.expression is not None:
        raise InvalidArgument(
            "Spark cannot filter its rows by an Arrow expression",
            hint="Pass text, neve.col or an expression of PyIceberg, or use DataFrame.where",
        )
    plan = plan_scan(
        view,
        names=chosen.names,
        row_filter=filter_asked,
    )
    # With a key column, which every file has: a scan of no column has no row count.
    wanted = (*chosen.names, *filter_asked.names, schema.key_columns[0].name)
    names_read = tuple(dict.fromkeys(wanted))
    files = [planned.file for planned in plan.files if planned.file.live_count]
    newer = {} if memory is None else _newer_rows(view, files, memory)
    groups: tuple[FileGroup, ...] = ()
    reader, pieces = None, []
    if asked.native:
        groups = _groups(view, files, newer, names_read)
    else:
        pieces = cut_pieces(files, newer)
        reader = PieceReader.of(
            view,
            dict(asked.address.storage_options),
            columns=names_read,
            filter=_sent(asked.filter, schema),
            # Spark drops them, with the rest of the filter.
            moment_ms=None,
        )
    found = None if memory is None else memory.live(plan.key_range)
    return ReadPlan(
        version=view.version,
        schema=schema,
        chosen=chosen,
        names_read=names_read,
        filter=filter_asked,
        files=tuple(files),
        groups=groups,
        reader=reader,
        pieces=tuple(pieces),
        memory=None if found is None else found[0].select(names_read),
        lease=lease,
    )


def _sent(asked: Filter | None, schema: TableSchema) -> Predicate | str | None:
    """Return a filter in a form that can be sent to workers."""
    if asked is None or isinstance(asked, str | Predicate):
        return asked
    return iceberg_predicate(asked, schema)


def _newer_rows(
    view: TableView, files: Iterable[DataFile], memory: MemoryRows
) -> dict[str, BitMap64]:
    """Return, by path, the rows of files whose keys are in memory."""
    newer: dict[str, BitMap64] = {}
    for file in files:
        keys = memory.hidden(file.key_min, file.key_max)
        if keys:
            reader = view.files.access.reader(file)
            newer[file.path] = bitmap_of(np.concatenate([reader.positions_of(e) for e in keys]))
    return newer


def _groups(
    view: TableView,
    files: Iterable[DataFile],
    newer: Mapping[str, BitMap64],
    names_read: tuple[str, ...],
) -> tuple[FileGroup, ...]:
    """Group files for Spark's own scan, without those that have no live row."""
    access = view.files.access
    assert isinstance(access, TableFiles)
    root = hadoop_location(access.parts.objects.location)
    groups: dict[tuple[StoredColumn | None, ...], tuple[list[CleanFile], list[MarkedFile]]] = {}
    stored_by_schema: dict[int, tuple[StoredColumn | None, ...]] = {}
    for file in files:
        dead = (access.marked(file) or BitMap64()) | newer.get(file.path, BitMap64())
        if len(dead) == file.row_count:
            continue
        if file.schema_id not in stored_by_schema:
            stored_by_schema[file.schema_id] = _stored_columns(view, file.schema_id, names_read)
        clean, marked = groups.setdefault(stored_by_schema[file.schema_id], ([], []))
        placed = CleanFile(
            path=f"{root}/{join_path(access.parts.paths.root, file.path)}",
            file_bytes=file.file_bytes,
            row_count=file.row_count,
        )
        if dead:
            marked.append(placed.marked(dead))
        else:
            clean.append(placed)
    return tuple(
        FileGroup(stored=stored_columns, clean=tuple(clean), marked=tuple(marked))
        for stored_columns, (clean, marked) in groups.items()
    )


def _stored_columns(
    view: TableView, schema_id: int, names: tuple[str, ...]
) -> tuple[StoredColumn | None, ...]:
    """Return columns as files of a schema have them.

    Spark can find columns by id, but skips row groups by name, and loses ids inside a column when
    it prunes: it has to use exactly the names in the file.
    """
    schema = view.context.schema
    source = view.context.mapping_from(schema_id).source
    by_id = {column.field_id: column for column in source.columns}
    found: list[StoredColumn | None] = []
    for name in names:
        column = schema.column(name)
        stored = by_id.get(column.field_id)
        if stored is None:
            found.append(None)
        else:
            is_nested = kind_of(column.type) in NESTED_KINDS
            found.append(StoredColumn(stored.name, stored.type if is_nested else column.type))
    return tuple(found)


def _words(dead: BitMap64, row_count: int) -> npt.NDArray[np.int64]:
    flags = np.zeros(-(-row_count // _WORD_BITS) * _WORD_BITS, np.bool_)
    flags[positions_in(dead)] = True
    return np.packbits(flags, bitorder="little").view("<i8")


def hadoop_location(location: str) -> str:
    """Return a lake's location in Hadoop's form: nothing is escaped, and S3 is s3a."""
    plain = location.rstrip("/")
    if plain.startswith("file://"):
        return unquote(plain)
    if plain.startswith("s3://"):
        return f"s3a://{plain.removeprefix('s3://')}"
    return plain
