"""Adoption: the files of a plain Iceberg table as the first Version of a table with a key.

1. Give each data file of the lake a second name among the table's own files (`link_object`), and
   read its key columns. A file is **kept** as it is if neve could have written it:

       Parquet, with the table's columns under their ids, names and types
       keys ascend, each once; no NULL
       all rows are in one partition

   The rows of any other file are **copied** into new files; the log says why.
2. Mark the rows that position deletes, vectors and equality deletes of the table delete.
3. Mark all rows of a key but one: the newest by the order of the table if it has one, else by
   sequence number, which is the order of commits. Rows of one key and one commit are refused.
4. Write the indexes of the kept files, and commit files and marks as one Version.

A kept file costs the reading of its key columns, whatever else it has. Its two names are
independent: the table deletes its own when it no longer needs the file, and who deletes the other
one takes nothing from the table.

JOBS-A1  Every live row of a key is kept or copied once, and no row is read back to life.
JOBS-A2  If anything is refused, nothing is left but the other engine's files.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from neve.engine.row_input import batches_of
from neve.engine.write_path import WritePath, key_batch
from neve.errors import Corruption, NotFound, SchemaMismatch
from neve.jobs.commit import BulkCommitter
from neve.jobs.foreign_files import (
    ForeignFile,
    ForeignReader,
    Locate,
    check_positions,
    matching_rows,
    typed_columns,
)
from neve.jobs.rows import BulkRows, duplicate_keys, sorted_by_key
from neve.jobs.run import BulkOutcome, BulkWork, JobBase
from neve.keys.arrays import concat_keys, key_at, keys_ascend, same_keys
from neve.keys.columns import KeyArray
from neve.keys.key_hashes import KeyHashes
from neve.model.arrow_buffers import Flags, Positions
from neve.model.arrow_types import ArrowField, child_fields, field_id_of
from neve.model.data_file import DataFile
from neve.model.row_lineage import LINEAGE_NAMES
from neve.model.schema import TableSchema, constant_array
from neve.sstable.data_file_footer import GroupFacts, OpenFooter, plain_type
from neve.sstable.deletion_vector import bitmap_of
from neve.sstable.index_file import encode_index_file
from neve.sstable.key_index import KeyIndex
from neve.sstable.parquet_groups import ParquetGroups
from neve.storage.object_store import link_object, put_file
from neve.table.file_writers import RunIds
from neve.table.partitions import split_by_partition
from neve.table.row_order import Orders, RowOrder, joined_orders
from neve.table.table_context import TableParts

logger = logging.getLogger(__name__)

Fetch = Callable[[str], bytes]
"""Returns the bytes at a location; raises InvalidArgument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestFile:
    """A live file of another engine's table."""

    file: ForeignFile
    sequence: int
    """Data sequence number: deletes concern files of lower ones, newer rows have higher ones."""
    row_count: int = 0


@dataclass(frozen=True, slots=True)
class GuestFiles:
    """The live files of a table."""

    data: tuple[GuestFile, ...] = ()
    deletes: tuple[GuestFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionOutcome:
    """What became of the files."""

    outcome: BulkOutcome
    kept: int = 0
    copied: int = 0
    """Files whose rows were copied."""


class Adoption:
    """Fills a new table with the files of another engine's; for one thread."""

    def __init__(self, parts: TableParts, *, locate: Locate, fetch: Fetch) -> None:
        self._committer = BulkCommitter(parts)
        self._locate = locate
        self._fetch = fetch

    def commit(self, guest: GuestFiles) -> AdoptionOutcome:
        """Commit all live rows as one Version.

        Raises InvalidArgument or SchemaMismatch for rows that the table cannot take, Conflict when
        it has rows already.
        """
        run = self._committer.begin()
        with self._committer.working(run) as base:
            work, sources = self._work(base, guest)
        outcome = self._committer.commit(run, work, is_first=True)
        kept = sum(each.is_kept for each in sources)
        return AdoptionOutcome(outcome=outcome, kept=kept, copied=len(sources) - kept)

    def _work(self, base: JobBase, guest: GuestFiles) -> tuple[BulkWork, "list[_Source]"]:
        files = _Sources(base, self._locate, self._fetch)
        sources = [files.open(each) for each in guest.data]
        by_name = {source.name: source for source in sources}
        for each in guest.deletes:
            files.delete(each, sources, by_name)
        files.resolve(sources)
        work = [files.copied(sources)]
        work += [files.kept(each) for each in sources if each.is_kept and each.has_rows]
        return BulkWork.joined(work), sources


@dataclass(slots=True)
class _Source:
    """A data file on its way into the table."""

    given: GuestFile
    name: str
    """Its path in the lake; its location when it is outside."""
    keys: KeyArray
    file: DataFile | None
    """Its description under the new name; None when its rows are copied."""
    groups: ParquetGroups | None = None
    dead: BitMap64 = field(default_factory=BitMap64)

    @property
    def is_kept(self) -> bool:
        return self.file is not None

    @property
    def has_rows(self) -> bool:
        return len(self.dead) < len(self.keys)


class _Unfit(Exception):
    """A file cannot be kept; the text says why."""


class _Sources:
    """Opens, marks and finishes the files of one adoption."""

    def __init__(self, base: JobBase, locate: Locate, fetch: Fetch) -> None:
        self._base = base
        self._schema = base.schema
        self._locate = locate
        self._fetch = fetch
        self._path = WritePath(base.context, base.spec)
        self._reader = ForeignReader(
            schema=base.schema,
            fetch=self._payload,
            owner="the table",
            remedy="Restore it, or compact the table with the engine that wrote it",
        )
        self._hashes = KeyHashes(base.context.encoder)
        self._key_names = [column.name for column in base.schema.key_columns]

    # Files

    def open(self, given: GuestFile) -> _Source:
        """Read the keys of a file, and find out whether it can be kept."""
        location = given.file.location
        path = self._locate(location)
        try:
            return self._linked(given, path)
        except _Unfit as unfit:
            logger.info("copied rows of a file location=%s reason=%s", location, unfit)
        rows = typed_columns(self._rows(given.file), self._key_names, self._schema)
        keys = self._path.encode_keys(key_batch(rows, self._base.context))
        return _Source(given, path or location, keys, None)

    def _linked(self, given: GuestFile, path: str | None) -> _Source:
        if path is None:
            raise _Unfit("it is outside of the lake")
        if not given.file.is_parquet:
            raise _Unfit(f"its format is {given.file.file_format[:20]!a}")
        parts, base = self._base.parts, self._base
        objects, paths = parts.objects, parts.paths
        file_id = RunIds(base.run, parts.ids).uuid().hex
        stored = paths.data_file(file_id, partition_path=base.run.digits)
        try:
            size = objects.size(path)
            link_object(objects, path, stored)
        except NotFound as error:
            raise self._reader.missing(given.file) from error
        file = DataFile(
            path=stored.removeprefix(f"{paths.root}/"),
            file_bytes=size,
            row_count=given.row_count,
            level=0,
            key_min=b"",
            key_max=b"",
            spec_id=base.spec.spec_id,
            schema_id=self._schema.schema_id,
        )
        try:
            footer = OpenFooter.read(file, store=objects, paths=paths)
            _check_columns(footer.metadata, self._schema)
            groups = ParquetGroups(
                footer, file=file, schema=self._schema, store=objects, paths=paths
            )
            everything = range(footer.metadata.num_row_groups)
            if not everything:
                raise _Unfit("it has no rows")
            rows = groups.read(everything, self._key_names)
            keys = self._path.context.encoder.encode_arrays(rows.columns)
            file = self._placed(replace(file, footer_crc=footer.crc), groups, keys)
            statistics = GroupFacts(footer.metadata, self._schema).of_file()
        except (Corruption, SchemaMismatch, pa.ArrowException) as error:
            raise _Unfit(getattr(error, "message", str(error))) from error
        return _Source(given, path, keys, replace(file, statistics=statistics), groups)

    def _placed(self, file: DataFile, groups: ParquetGroups, keys: KeyArray) -> DataFile:
        """Return a file with its bounds and partition; raises _Unfit."""
        if not keys_ascend(keys):
            raise _Unfit("its rows are not in the order of the key, or a key occurs twice")
        base = self._base
        file = replace(file, key_min=key_at(keys, 0), key_max=key_at(keys, -1))
        if base.spec.is_unpartitioned:
            return file
        names = [self._schema.column_by_id(each.source_id).name for each in base.spec.fields]
        names = list(dict.fromkeys(names))
        rows = groups.read(range(len(groups.footer.group_starts) - 1), names)
        partitions = list(split_by_partition(rows, base.spec, self._schema))
        if len(partitions) > 1:
            raise _Unfit("its rows are in several partitions")
        return replace(file, partition=partitions[0].values)

    def _payload(self, file: ForeignFile) -> bytes:
        path = self._locate(file.location)
        if path is None:
            return self._fetch(file.location)
        return self._base.parts.objects.get(path).payload

    def _rows(self, file: ForeignFile) -> pa.Table:
        """Return the columns of a file; those that it does not have are their first default."""
        rows = self._reader.rows(file)
        for column in self._schema.columns:
            if column.name not in rows.schema.names:
                initial = constant_array(column, column.initial_default, length=rows.num_rows)
                rows = rows.append_column(column.arrow_field, initial)
        return rows

    # Deletes

    def delete(
        self, given: GuestFile, sources: Sequence[_Source], by_name: dict[str, _Source]
    ) -> None:
        """Mark the rows that a delete file deletes."""
        file = given.file
        if file.equality_ids:
            self._delete_equal(given, sources)
            return
        for location, positions in self._reader.positions(file):
            source = by_name.get(self._locate(location) or location)
            # Deletes may outlive the files they are of.
            if source is None or source.given.sequence > given.sequence:
                continue
            check_positions(positions, len(source.keys), file.location)
            source.dead |= positions

    def _delete_equal(self, given: GuestFile, sources: Sequence[_Source]) -> None:
        wanted = self._reader.equality_deletes(given.file, self._rows(given.file))
        for source in sources:
            if source.given.sequence < given.sequence:
                rows = self._columns(source, wanted.column_names)
                source.dead |= bitmap_of(np.flatnonzero(matching_rows(rows, wanted)))

    def _columns(self, source: _Source, names: Sequence[str]) -> pa.Table:
        if source.groups is not None:
            return source.groups.read(range(len(source.groups.footer.group_starts) - 1), names)
        return typed_columns(self._rows(source.given.file), names, self._schema)

    # One row for each key

    def resolve(self, sources: Sequence[_Source]) -> None:
        """Mark all rows of a key but the newest; raises InvalidArgument when none is newer."""
        live = [_live_places(source) for source in sources]
        hashes = [
            self._hashes.of(source.keys)[places]
            for source, places in zip(sources, live, strict=True)
        ]
        if not hashes:
            return
        joined = np.concatenate(hashes)
        order = np.argsort(joined, kind="stable")
        is_again = joined[order][1:] == joined[order][:-1]
        if not is_again.any():
            return
        # Only these can have a key in common: all of them, if hashes are exact.
        some = np.unique(np.concatenate((order[1:][is_again], order[:-1][is_again])))
        starts = np.cumsum([0, *map(len, hashes)])
        owners = np.searchsorted(starts, some, side="right") - 1
        self._mark_older(sources, owners, np.concatenate(live)[some])

    def _mark_older(self, sources: Sequence[_Source], owners: Positions, places: Positions) -> None:
        """Mark the older of rows, given by file and position, wherever keys are equal."""
        keys: list[KeyArray] = []
        orders: list[Orders] = []
        row_order = RowOrder.of(self._schema)
        at = np.argsort(owners, kind="stable")
        owners, places = owners[at], places[at]
        for owner in np.unique(owners).tolist():
            source, chosen = sources[owner], places[owners == owner]
            keys.append(source.keys.take(pa.array(chosen)))
            if row_order is not None:
                rows = self._columns(source, row_order.names).take(chosen)
                orders.append(row_order.of_rows(rows))
        joined = concat_keys(keys)
        sequences = np.array([source.given.sequence for source in sources], np.int64)[owners]
        known = joined_orders(orders) if orders else pa.nulls(len(joined), pa.large_binary())
        # A row without an order is the oldest.
        columns = {
            "key": joined.cast(pa.large_binary()),
            "known": pc.is_valid(known),
            "order": known,
            "sequence": sequences,
        }
        by_age = pc.sort_indices(
            pa.table(columns), sort_keys=[(name, "ascending") for name in columns]
        ).to_numpy()
        sorted_keys = joined.take(pa.array(by_age))
        is_older: Flags = np.append(
            same_keys(sorted_keys.slice(0, len(by_age) - 1), sorted_keys.slice(1)), np.False_
        )
        if row_order is None:
            newest = sequences[by_age]
            ties = is_older & np.append(newest[:-1] == newest[1:], np.False_)
            if ties.any():
                raise duplicate_keys(sorted_keys.filter(pa.array(ties)), self._base.context.encoder)
        older = by_age[is_older]
        for owner in np.unique(owners[older]).tolist():
            sources[owner].dead |= bitmap_of(np.sort(places[older][owners[older] == owner]))

    # The work

    def kept(self, source: _Source) -> BulkWork:
        """Write the index of a file, and return it with its marks."""
        file = source.file
        assert file is not None
        parts = self._base.parts
        pieces = encode_index_file(
            file=file, key_index=KeyIndex.build(source.keys, self._hashes), hashes=self._hashes
        )
        put_file(parts.objects, parts.paths.index_of(file.path), pieces)
        marked = {file.path: source.dead} if source.dead else {}
        return BulkWork(files=(file,), marked=marked)

    def copied(self, sources: Sequence[_Source]) -> BulkWork:
        """Write the live rows of the files that are not kept."""
        pieces: list[tuple[pa.RecordBatch, KeyArray]] = []
        codec = self._path.context.codec
        for source in sources:
            if source.is_kept or not source.has_rows:
                continue
            rows = self._rows(source.given.file).take(_live_places(source))
            for batch in batches_of(rows, codec):
                self._path.check_partition(batch)
                pieces.append((batch, self._path.encode_keys(batch)))
        keyed = sorted_by_key(pieces)
        if keyed is None:
            return BulkWork()
        with BulkRows(self._base, by_partition=False) as task:
            task.upsert(*keyed)
            return task.finish()


def _live_places(source: _Source) -> Positions:
    if not source.dead:
        return np.arange(len(source.keys), dtype=np.int64)
    is_live = np.ones(len(source.keys), np.bool_)
    is_live[np.array(source.dead, np.int64)] = False
    return np.flatnonzero(is_live).astype(np.int64, copy=False)


def _check_columns(metadata: pq.FileMetaData, schema: TableSchema) -> None:
    """Raise _Unfit for a file that does not have the columns as neve writes them."""
    stored = metadata.schema.to_arrow_schema()
    by_id = {field_id_of(each): each for each in stored}
    if {*by_id} == {None}:
        raise _Unfit("its columns have no ids")
    if {*LINEAGE_NAMES} & {*stored.names}:
        raise _Unfit("it has row ids of its own")
    facts = {each.field_id: each for each in GroupFacts(metadata, schema).of_file()}
    keys = {*schema.primary_key}
    for column in schema.columns:
        found = by_id.get(column.field_id)
        if found is None:
            raise _Unfit(f"it does not have the column {column.name!a}")
        if not _fits(found, column.arrow_field):
            raise _Unfit(f"it has another name or type for the column {column.name!a}")
        known = facts.get(column.field_id)
        is_checked = column.field_id in keys or column.arrow_field.nullable
        if not is_checked and (known is None or known.null_count):
            raise _Unfit(f"its column {column.name!a} may have NULL")


def _fits(found: ArrowField, wanted: ArrowField) -> bool:
    """Return whether a field of a file has the name, the id and the type of one of the table."""
    inner, wanted_inner = child_fields(found.type), child_fields(wanted.type)
    if field_id_of(found) != field_id_of(wanted) or len(inner) != len(wanted_inner):
        return False
    if found.name != wanted.name:
        return False
    if not inner:
        return plain_type(found.type) == plain_type(wanted.type)
    # The name of what is in a list or a map is the writer's choice.
    is_named = pa.types.is_struct(wanted.type)
    return all(
        _fits(each if is_named else each.with_name(other.name), other)
        for each, other in zip(inner, wanted_inner, strict=True)
    )
