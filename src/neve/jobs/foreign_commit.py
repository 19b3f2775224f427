"""ForeignCommit: what another engine committed to a table, read as rows and keys, as one Version.

Another engine writes Iceberg files and asks the catalog to add a snapshot of them. Its files are
input, not state: one row per key holds only after neve has compared them with the table.

1. Read, snapshot by snapshot, what the commit adds and removes:

       data files removed        the keys of their live rows are gone
       equality deletes          the keys of the rows that match are gone
       data files added          rows to write
       positions and vectors     the keys of these rows are gone, or rows of this commit are dropped

   One request may hold several snapshots; a later one may delete rows of an earlier one.
2. Compare the rows with the table: a key that occurs twice is refused, and a row that is what the
   table has already changes nothing. Copy-on-write engines rewrite whole files for one row.
3. Write the rest as a job does, and commit it on the condition that no key of it has changed since
   (JOBS-J3). The job's id is that of the client's snapshot: a retry commits once.

JOBS-F1  A row that replaces a row of the same commit's removed files is a final value: merge
         functions are not applied to it again.
JOBS-F2  In a table with an order, a row that is older than what it replaces changes nothing;
         several rows of one key are allowed, and the newest counts.
JOBS-F3  Nothing is brought back to life: a delete file that is removed needs another one for its
         data file, or the data file is removed, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from neve.engine.row_input import batches_of
from neve.engine.write_path import WritePath, key_batch
from neve.errors import (
    Conflict,
    InvalidArgument,
    LimitExceeded,
    NeveError,
    NotFound,
    SchemaMismatch,
)
from neve.jobs.commit import BulkCommitter, BulkRun
from neve.jobs.foreign_files import (
    ForeignFile,
    ForeignReader,
    Locate,
    check_positions,
    matching_rows,
    typed_columns,
)
from neve.jobs.rows import BulkRows, duplicate_keys, sorted_by_key
from neve.jobs.run import BulkOutcome, BulkWork, JobBase, JobIdentity
from neve.keys.arrays import as_large, concat_keys, key_objects, same_keys
from neve.keys.columns import KeyArray
from neve.model.arrow_buffers import Flags
from neve.model.data_file import DataFile
from neve.read.changes import equal_rows
from neve.sstable.deletion_vector import bitmap_of
from neve.table.row_changes import RowChanges
from neve.table.row_order import RowOrder, joined_orders, loses
from neve.table.table_context import TableParts

FOREIGN_BYTES_MAX: Final = 2 << 30
"""Bytes of the files of one commit, stored and decoded: its rows are compared in memory."""


class AppendRule(StrEnum):
    """What an append of a key that exists does: the property `neve.append`."""

    UPSERT = "upsert"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignSnapshot:
    """What one snapshot of a commit adds and removes."""

    added: tuple[ForeignFile, ...] = ()
    removed: tuple[ForeignFile, ...] = ()
    deletes_added: tuple[ForeignFile, ...] = ()
    deletes_removed: tuple[ForeignFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommit:
    """A commit whose files are written."""

    run: BulkRun
    work: BulkWork
    is_exact: bool
    """It removes rows, so that any change by others makes it void."""


@dataclass(slots=True)
class _AddedFile:
    """Rows of a file that the commit adds, without those that it deletes again."""

    rows: pa.Table
    dead: BitMap64 = field(default_factory=BitMap64)

    def live(self) -> pa.Table:
        if not self.dead:
            return self.rows
        keep = np.ones(self.rows.num_rows, np.bool_)
        keep[np.array(self.dead, np.int64)] = False
        return self.rows.filter(pa.array(keep))


class ForeignCommit:
    """One commit of another engine, on its way to a Version; for one thread."""

    def __init__(
        self,
        parts: TableParts,
        *,
        job_id: str,
        locate: Locate,
        appends: AppendRule = AppendRule.UPSERT,
        staged: str | None = None,
    ) -> None:
        """Begin; `staged` is a directory of the lake, besides the table's, that files may be in."""
        self._parts = parts
        self._staged = staged
        self._job_id = job_id
        self._identity = JobIdentity(job_id=job_id)
        self._committer = BulkCommitter(parts, upkeep=True)
        self._locate = locate
        self._appends = appends

    def find_committed(self) -> BulkOutcome | None:
        """Return the outcome if this commit was made already."""
        return self._committer.find_committed(self._identity)

    def commit(
        self, snapshots: Sequence[ForeignSnapshot], *, base_version: int, is_decided: bool = False
    ) -> BulkOutcome:
        """Commit the snapshots as one Version; raises Conflict when the table moved meanwhile.

        `base_version` is what the client read. A commit that removes rows is void when others
        changed any row since; one that only adds rows, when they changed rows of its keys. With
        `is_decided` it is never void, and comes after what others did. Raises InvalidArgument,
        SchemaMismatch or LimitExceeded for what the table cannot take; nothing is changed then.
        """
        prepared = self.prepare(snapshots, base_version=base_version)
        if is_decided:
            return self._committer.commit(prepared.run, prepared.work)
        return self.commit_prepared(prepared)

    def prepare(
        self, snapshots: Sequence[ForeignSnapshot], *, base_version: int
    ) -> "PreparedCommit":
        """Write the files of a commit, which nothing refers to yet; raises as `commit` does."""
        run = self._begin(base_version)
        with self._committer.working(run) as base:
            work = self._work(base, snapshots)
        is_exact = any(each.removed or each.deletes_added for each in snapshots)
        return PreparedCommit(run=run, work=work, is_exact=is_exact)

    def check_keys(self, snapshots: Sequence[ForeignSnapshot], *, base_version: int) -> None:
        """Refuse keys that no definition of the table would take, before it is changed.

        What cannot be read under the definition that the table has now is left to `commit`.
        """
        run = self._begin(base_version)
        with self._committer.working(run) as base:
            reading = _Reading(base, self._locate, self._staged)
            comparison = _Comparison(base, self._appends)
            try:
                for snapshot in snapshots:
                    reading.take(snapshot)
                keys, gone = reading.keys(), reading.gone()
            except (InvalidArgument, SchemaMismatch, pa.ArrowException, LookupError, ValueError):
                keys = None
            if keys is not None:
                comparison.check(keys, gone)
        self._committer.give_up(run)

    def _begin(self, base_version: int) -> BulkRun:
        try:
            return self._committer.begin(self._identity, base=base_version)
        except NotFound as error:
            raise Conflict(
                f"version {base_version} is not kept any more",
                path=self._parts.paths.root,
                hint="Load the table again and repeat the commit",
            ) from error

    def commit_prepared(self, prepared: "PreparedCommit") -> BulkOutcome:
        """Commit what was prepared; raises Conflict when the table moved meanwhile."""
        return self._committer.commit(
            prepared.run, prepared.work, decided=True, is_exact=prepared.is_exact
        )

    def reserve(self, prepared: "PreparedCommit", *, milliseconds: int) -> None:
        """Let nothing else be committed for a while; raises Conflict when the table moved."""
        self._parts.writer_state.reserve(self._job_id, milliseconds=milliseconds)
        self._committer.check(prepared.run, prepared.work, is_exact=prepared.is_exact)

    def give_up(self, prepared: "PreparedCommit") -> None:
        """Delete what was prepared, and let others commit."""
        with suppress(NeveError):
            self._parts.writer_state.release_reservation(self._job_id)
        self._committer.give_up(prepared.run)

    def _work(self, base: JobBase, snapshots: Sequence[ForeignSnapshot]) -> BulkWork:
        reading = _Reading(base, self._locate, self._staged)
        try:
            for snapshot in snapshots:
                reading.take(snapshot)
            rows, gone = reading.rows(), reading.gone()
        except (pa.ArrowException, LookupError, ValueError, TypeError, OverflowError) as error:
            raise InvalidArgument(
                f"a file of the commit does not fit the table: {str(error)[:200]}",
                hint="Load the table again and write the files again",
            ) from error
        with BulkRows(base, by_partition=False) as task:
            _Comparison(base, self._appends).fill(task, rows, gone)
            return task.finish()


class _Reading:
    """Collects the rows and keys of a commit, in the order of its snapshots."""

    def __init__(self, base: JobBase, locate: Locate, staged: str | None) -> None:
        self._base = base
        self._locate = locate
        self._staged = staged
        self._path = WritePath(base.context, base.spec)
        self._root = f"{base.parts.paths.root}/"
        self._added: dict[str, _AddedFile] = {}
        self._removed: set[str] = set()
        self._gone: list[KeyArray] = []
        self._bytes = 0
        self._reader = ForeignReader(
            schema=base.schema,
            fetch=self._fetch,
            owner="the commit",
            remedy="Load the table again, and write the files again",
            count=self._count,
        )

    def take(self, snapshot: ForeignSnapshot) -> None:
        """Take the changes of the next snapshot."""
        for each in snapshot.removed:
            self._remove(each)
        for each in snapshot.deletes_added:
            if each.equality_ids:
                self._delete_equal(each)
        for each in snapshot.added:
            self._added[self._inside(each.location)] = _AddedFile(self._reader.rows(each))
        marked: set[str] = set()
        for each in snapshot.deletes_added:
            if not each.equality_ids:
                marked |= self._delete_positions(each)
        self._check_kept(snapshot.deletes_removed, marked)

    def rows(self) -> pa.Table:
        """Return the rows to write, as the client gave them, under the table's names."""
        schema = self._base.schema.arrow_schema
        live = [each.live() for each in self._added.values()]
        batches = [
            batch
            for table in live
            if table.num_rows
            for batch in batches_of(table, self._path.context.codec)
        ]
        return pa.Table.from_batches(batches, schema=schema)

    def keys(self) -> KeyArray | None:
        """Return the keys of the rows to write, ascending; None without rows."""
        schema = self._base.schema
        names = [column.name for column in schema.key_columns]
        batches = [
            key_batch(typed_columns(each.live(), names, schema), self._base.context)
            for each in self._added.values()
        ]
        keyed = sorted_by_key([(each, self._path.encode_keys(each)) for each in batches])
        return None if keyed is None else keyed[1]

    def gone(self) -> KeyArray:
        """Return the keys of the table's rows that the client removed, each once, ascending."""
        nothing = self._path.encode_keys(self._path.context.codec.decode_many([]))
        keys = concat_keys([nothing, *self._gone]).unique()
        return keys.take(pc.sort_indices(keys))

    def _inside(self, location: str) -> str:
        path = self._locate(location)
        places = (self._root,) if self._staged is None else (self._root, f"{self._staged}/")
        if path is None or not path.startswith(places):
            raise InvalidArgument(
                "the commit names a file outside of the table",
                path=location,
                hint="Write files below the location that the catalog returned with the table",
            )
        return path

    def _fetch(self, file: ForeignFile) -> bytes:
        path = self._inside(file.location)
        objects = self._base.parts.objects
        # The size that a manifest says is only a claim.
        self._count(objects.size(path))
        return objects.get(path).payload

    def _count(self, byte_count: int) -> None:
        """Add to what the commit takes in memory; raises LimitExceeded."""
        self._bytes += byte_count
        if self._bytes > FOREIGN_BYTES_MAX:
            raise LimitExceeded(
                "the files of the commit are too large",
                limit=FOREIGN_BYTES_MAX,
                actual=self._bytes,
                hint="Commit in smaller parts, or load with lake.bulk or Spark",
            )

    def _file_of(self, location: str) -> DataFile | None:
        path = self._inside(location).removeprefix(self._root)
        return self._base.version.files.get(path)

    def _own_file(self, location: str) -> DataFile:
        file = self._file_of(location)
        if file is None:
            raise Conflict(
                "the commit refers to a file that the table no longer has",
                path=location,
                hint="Load the table again and repeat the commit",
            )
        return file

    def _remove(self, file: ForeignFile) -> None:
        path = self._inside(file.location)
        if self._added.pop(path, None) is not None:
            return
        own = self._own_file(file.location)
        self._removed.add(own.path)
        self._remove_live(own, BitMap64(range(own.row_count)))

    def _remove_live(self, file: DataFile, positions: BitMap64) -> None:
        check_positions(positions, file.row_count, file.path)
        live = positions - self._base.files.vector(file)
        if live:
            self._gone.append(self._base.files.keys_at(file, live))

    def _delete_positions(self, file: ForeignFile) -> set[str]:
        """Take position deletes; return the data files they belong to."""
        touched: set[str] = set()
        for location, positions in self._reader.positions(file):
            path = self._inside(location)
            touched.add(path.removeprefix(self._root))
            added = self._added.get(path)
            if added is None:
                self._remove_live(self._own_file(location), positions)
                continue
            check_positions(positions, added.rows.num_rows, location)
            added.dead |= positions
        return touched

    def _check_kept(self, removed: Iterable[ForeignFile], marked: set[str]) -> None:
        """Refuse deletes that are taken back (JOBS-F3)."""
        for each in removed:
            if each.referenced is None:
                # Position deletes of format 2: neve writes one file for each data file.
                refs = {*self._files_deleted_by(each)}
            else:
                refs = {self._inside(each.referenced).removeprefix(self._root)}
            left = refs - marked - self._removed
            if left & self._base.version.files.keys():
                raise InvalidArgument(
                    "the commit removes a delete file and would bring rows back",
                    path=each.location,
                    hint="Write the rows again instead; neve compacts its own deletes",
                )

    def _files_deleted_by(self, file: ForeignFile) -> Iterator[str]:
        if file.equality_ids:
            return
        for location, _ in self._reader.positions(file):
            yield self._inside(location).removeprefix(self._root)

    def _delete_equal(self, file: ForeignFile) -> None:
        """Take equality deletes: they delete rows of the table and of earlier snapshots."""
        schema = self._base.schema
        wanted = self._reader.equality_deletes(file)
        names = wanted.column_names
        if {*file.equality_ids} == {*schema.primary_key}:
            key_names = [column.name for column in schema.key_columns]
            batch = key_batch(wanted.select(key_names), self._base.context)
            self._gone.append(self._path.encode_keys(batch))
        else:
            for own in self._base.version.files.values():
                self._gone += self._keys_equal(own, names, wanted)
        for added in self._added.values():
            hits = np.flatnonzero(matching_rows(typed_columns(added.rows, names, schema), wanted))
            added.dead |= bitmap_of(hits)

    def _keys_equal(
        self, file: DataFile, names: Sequence[str], wanted: pa.Table
    ) -> Iterator[KeyArray]:
        base = self._base
        mapping = base.context.mapping_from(file.schema_id)
        reader = base.files.reader(file)
        dead = base.files.vector(file)
        start = 0
        for stop in reader.group_starts[1:]:
            rows = mapping.table(
                reader.read(mapping.source_names(names), start=start, stop=stop), names
            )
            found = bitmap_of(np.flatnonzero(matching_rows(rows, wanted)) + start) - dead
            if found:
                yield base.files.keys_at(file, found)
            start = stop


class _Comparison:
    """Compares the rows of a commit with the table, and gives a task what is left."""

    def __init__(self, base: JobBase, appends: AppendRule) -> None:
        self._base = base
        self._path = WritePath(base.context, base.spec)
        self._order = RowOrder.of(base.schema)
        self._appends = appends

    def fill(self, task: BulkRows, rows: pa.Table, gone: KeyArray) -> None:
        """Pass the rows that change something, and the keys to delete, to the task."""
        keyed = sorted_by_key(
            [(batch, self._path.encode_keys(batch)) for batch in rows.to_batches()]
        )
        if keyed is None:
            task.delete(gone)
            return
        batch, keys = keyed
        replaced = self.check(keys, gone)
        self._path.check_partition(batch)
        same = self._unchanged(batch, keys, replaced)
        if same.any():
            kept = keys.filter(pa.array(same))
            task.see(kept)
            gone = gone.filter(pa.array(~_is_in(gone, kept)))
            batch, keys = batch.filter(pa.array(~same)), keys.filter(pa.array(~same))
            replaced = replaced[~same]
        self._apply(task, batch, keys, replaced, gone)

    def check(self, keys: KeyArray, gone: KeyArray) -> Flags:
        """Refuse keys that occur twice, or may not exist; return which the client removed."""
        if self._order is None and len(keys) > 1:
            repeats = same_keys(keys.slice(0, len(keys) - 1), keys.slice(1))
            if repeats.any():
                again = np.append(repeats, np.False_)
                error = duplicate_keys(keys.filter(pa.array(again)), self._base.context.encoder)
                error.hint = "Write one row for each key"
                raise error
        replaced = _is_in(keys, gone)
        if self._appends is AppendRule.REFUSE:
            self._refuse_existing(keys.filter(pa.array(~replaced)))
        return replaced

    def _refuse_existing(self, keys: KeyArray) -> None:
        found, places = self._base.view.get_many(keys, 0, columns=self._base.context.encoder.names)
        if found.num_rows:
            encoder = self._base.context.encoder
            some = [encoder.decode(each) for each in key_objects(keys.take(places[:5]))]
            words = ", ".join(repr(each[0] if len(each) == 1 else tuple(each)) for each in some)
            raise InvalidArgument(
                f"the table has rows of these keys already, such as {words}",
                hint="Update them, or set the property neve.append=upsert",
            )

    def _unchanged(self, rows: pa.RecordBatch, keys: KeyArray, replaced: Flags) -> Flags:
        """Return which rows are in the table as they are."""
        same = np.zeros(len(keys), np.bool_)
        at = np.flatnonzero(replaced)
        if not len(at):
            return same
        found, places = self._base.view.get_many(keys.take(at), 0)
        if self._order is not None:
            # Several rows of one key may be there: those are compared by their order.
            at_keys = keys.take(at)
            _, counts = np.unique(np.array(at_keys.dictionary_encode().indices), return_counts=True)
            if counts.max() > 1:
                return same
        given = pa.Table.from_batches([rows.take(at[places])])
        same[at[places]] = equal_rows(found, given, self._base.context.codec)
        return same

    def _apply(
        self,
        task: BulkRows,
        rows: pa.RecordBatch,
        keys: KeyArray,
        replaced: Flags,
        gone: KeyArray,
    ) -> None:
        orders = None
        if self._order is not None:
            orders = self._order.of_changes(rows)
            encoded = keys.dictionary_encode()
            known, _ = self._base.files.found_orders(
                self._base.view, cast("KeyArray", encoded.dictionary), self._order
            )
            lost = loses(orders, known.take(encoded.indices))
            # JOBS-F2: the row that was there stays.
            stale = keys.filter(pa.array(lost & replaced))
            gone = gone.filter(pa.array(~_is_in(gone, stale)))
        if not self._base.schema.rules.merge:
            gone = gone.filter(pa.array(~_is_in(gone, keys)))
        if orders is not None:
            assert self._order is not None
            found, _ = self._base.files.found_orders(self._base.view, gone, self._order)
            orders = joined_orders([orders, found])
        # JOBS-F1: a delete before the row keeps it from being folded into the old one.
        by_age = np.concatenate([len(keys) + np.arange(len(gone)), np.arange(len(keys))])
        task.apply(RowChanges(rows=rows, keys=keys, deleted=gone, orders=orders, by_age=by_age))


def _is_in(keys: KeyArray, among: KeyArray) -> Flags:
    found = pc.is_in(as_large(keys), value_set=as_large(among))
    return found.to_numpy(zero_copy_only=False)
