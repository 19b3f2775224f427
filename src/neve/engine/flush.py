"""Flush: a frozen memtable becomes one clean Version.

Steps:

1. sort: the newest row per key, under the table's schema; keys whose newest change is a delete
   have no row
2. write the rows, per partition, as files of level 0
3. find the older rows of all these keys: they are superseded
4. commit new files, vectors and `flushed_sequence` as one edit; rebase it after other commits
5. delete the logs that are no longer needed

A memtable with partial writes is merged again, between steps 1 and 2, with the rows of the Version
it is committed to. It is not rebased: after another commit it is flushed again on that one.

A table with an order remembers its deletes in a file of the same commit.

A crash before step 4 leaves unreachable files, and the rows in the log; after it, the log is read
only above `flushed_sequence`. A flush that changes no row (only deletes of keys without rows) still
moves `flushed_sequence`, without making a Version.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from neve.errors import NeveError, OutcomeUnknown
from neve.keys.arrays import as_large, concat_keys, key_objects
from neve.keys.columns import KeyArray
from neve.manifest.commit import CommitPlan, TableCommitter
from neve.manifest.rebase import Proposal, complete
from neve.manifest.table_head import HeadChange
from neve.manifest.table_versions import Committed
from neve.manifest.version_reader import Session, TableSnapshot
from neve.memtable.memtable import Memtable
from neve.memtable.memtable_view import MemtableView
from neve.model.data_file import DataFile, FileFormat, VectorRef, WalSegmentRef
from neve.model.partition_spec import PartitionSpec
from neve.model.version import Version
from neve.sstable.data_file_writer import WrittenFile
from neve.sstable.remembered_deletes import RememberedDeletes
from neve.table.partial_merge import GivenRows, merged_on
from neve.table.partitions import split_by_partition, split_by_spec
from neve.table.row_order import RowOrder, equals, has_order_of, loses
from neve.table.schema_mapping import SchemaMapping
from neve.table.table_files import TableFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushTarget:
    """What a flush commits to."""

    base: Version
    mapping: SchemaMapping
    """From the memtable's schema, which may be older, to the schema of base and spec."""
    spec: PartitionSpec
    format: FileFormat
    segments: tuple[WalSegmentRef, ...]
    """Where the changes of the memtable are logged."""
    compares: bool
    """Whether others may have committed rows that are newer, in a table with an order."""
    head_change: HeadChange

    @property
    def order(self) -> RowOrder | None:
        """What decides which change is newer; None when the last one is.

        So it is for rows that were written while the table had another order, or none.
        """
        order = RowOrder.of(self.mapping.target)
        is_same = order is not None and has_order_of(self.mapping.source, order)
        return order if is_same else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """What a flush writes: rows in key order with their keys, and deletes to remember."""

    rows: pa.Table
    keys: KeyArray
    superseded: KeyArray
    """Keys whose older rows are superseded, ascending: of the rows and of all deletes."""
    deletes: RememberedDeletes | None


def remembered_in(memtable: Memtable, view: MemtableView) -> RememberedDeletes | None:
    """Return the deletes of a memtable that a table with an order remembers."""
    known = memtable.deleted_orders
    if not known:
        return None
    # A loop over the deletes: each is one dict lookup.
    keys = view.deleted_keys()
    orders = pa.array([known.get(key) for key in key_objects(keys)], pa.large_binary())
    has_order = orders.is_valid()
    found = RememberedDeletes(as_large(keys.filter(has_order)), orders.filter(has_order))
    return found if len(found) else None


class _FlushLookup:
    """The lookup of a flush, which remembers the vectors it wrote."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files
        self.positions_of, self.keys_at, self.vector, self.older_rows = (
            files.positions_of,
            files.keys_at,
            files.vector,
            files.older_rows,
        )
        self.written: dict[tuple[str, VectorRef], BitMap64] = {}
        """By path of the data file and place of the vector: each try may write another one."""

    def write_vectors(self, whole: Mapping[str, BitMap64]) -> Mapping[str, VectorRef]:
        """Write whole vectors by data file path; return where each is."""
        refs = self._files.write_vectors(whole)
        self.written.update({(path, ref): whole[path] for path, ref in refs.items()})
        return refs

    def cache_committed(self, version: Version) -> None:
        """Cache the committed vectors, so that no reader has to read them."""
        for (path, ref), vector in self.written.items():
            file = version.files.get(path)
            if file is not None and file.vector == ref:
                self._files.vectors.remember(file, vector)
        self.written.clear()


class Flush:
    """Turns memtables into Versions."""

    def __init__(self, files: TableFiles, committer: TableCommitter) -> None:
        self._files = files
        self._committer = committer
        # Owned by the one running flush.
        self._lookup = _FlushLookup(files)

    def run(self, memtable: Memtable, target: FlushTarget) -> Committed:
        """Flush a frozen memtable; deletes its files when the flush certainly failed."""
        self._lookup.written.clear()
        committed = self._run(memtable, target)
        self._lookup.cache_committed(committed.snapshot.version)
        return committed

    def _run(self, memtable: Memtable, target: FlushTarget) -> Committed:
        view = memtable.view(memtable.last_sequence)
        if not (partial := view.partial_rows()):
            changes = _Changes(
                rows=target.mapping.table(view.live()),
                keys=view.live_keys(),
                superseded=view.keys(),
                deletes=remembered_in(memtable, view),
            )
            if target.compares:
                changes = self._newest(changes, memtable, target)
            with self._deleted_on_failure() as written:
                proposal = self._written(changes, view, target, written)
                if not proposal.is_empty:
                    return self._committer.commit_proposal(
                        proposal, target.head_change, lookup=self._lookup
                    )
        return self._run_on_newest(memtable, view, partial, target)

    def _run_on_newest(
        self, memtable: Memtable, view: MemtableView, partial: GivenRows, target: FlushTarget
    ) -> Committed:
        """Flush on exactly the Version that the rows were compared with.

        Partial writes are merged with its rows. Changes without effect, such as deletes of keys
        without rows, move `flushed_sequence` without making a Version.
        """
        with self._deleted_on_failure() as written:

            def plan(_session: Session, snapshot: TableSnapshot) -> CommitPlan:
                self._files.writers.discard_files(written)  # another commit was first
                written.clear()
                merging, rows = self._merged(view, partial, target, snapshot.version)
                changes = _Changes(
                    rows=rows,
                    keys=view.live_keys(),
                    superseded=view.keys(),
                    deletes=remembered_in(memtable, view),
                )
                if target.compares or snapshot.version.number != target.base.number:
                    changes = self._newest(changes, memtable, merging)
                proposal = self._written(changes, view, merging, written)
                if proposal.is_empty:
                    return CommitPlan()
                edit = complete(proposal, merging.base, self._lookup)
                return CommitPlan(edits=[edit])

            return self._committer.commit(plan, target.head_change)

    def _newest(self, changes: _Changes, memtable: Memtable, target: FlushTarget) -> _Changes:
        """Leave out changes that are older than rows and deletes that others have committed.

        So are copies of their rows, see `RuledPath.restoring`.
        """
        order = target.order
        if order is None:
            return changes
        # What a change was written over because it had expired is not newer.
        view = self._files.view(target.base).as_of(self._files.parts.clock.now_ms())
        orders = order.of_rows(changes.rows)
        found, _ = self._files.found_orders(view, changes.keys, order)
        kept = ~loses(orders, found)
        if memtable.copies:
            kept &= ~(np.array(memtable.are_copies(changes.keys), np.bool_) & equals(orders, found))
        deletes = changes.deletes
        dead = changes.superseded.filter(
            pc.invert(pc.is_in(changes.superseded, value_set=changes.keys))
        )
        if deletes is not None:
            found, _ = self._files.found_orders(view, deletes.keys, order)
            own = self._files.orders_under(memtable.schema, deletes.orders, order)
            assert own is not None, "the memtable has the same order"
            is_lost = loses(own, found)
            lost = as_large(deletes.keys).filter(pa.array(is_lost))
            dead = dead.filter(pc.invert(pc.is_in(as_large(dead), value_set=lost)))
        keys = changes.keys.filter(pa.array(kept))
        superseded = concat_keys([keys, dead])
        return replace(
            changes,
            rows=changes.rows.filter(pa.array(kept)),
            keys=keys,
            superseded=superseded.take(pc.sort_indices(superseded)),
        )

    @contextmanager
    def _deleted_on_failure(self) -> Iterator[list[DataFile]]:
        """Collect the files of a flush, and delete them when it certainly failed."""
        written: list[DataFile] = []
        try:
            yield written
        except OutcomeUnknown:
            raise
        except NeveError:
            self._files.writers.discard_files(written)
            raise

    def _merged(
        self, view: MemtableView, partial: GivenRows, target: FlushTarget, version: Version
    ) -> tuple[FlushTarget, pa.Table]:
        """Return a target on a Version, and a memtable's rows merged with those of the Version."""
        base = self._files.view(version)
        merging = replace(
            target,
            base=version,
            # Rows of the base may have columns that the current view's schema lacks.
            mapping=base.context.mapping_from(target.mapping.source.schema_id),
            spec=self._files.definitions.spec(version.facts.spec_id),
        )
        schema, rows = merging.mapping.target, merging.mapping.table(view.live())
        rules = merging.mapping.source.rules
        return merging, merged_on(
            base, 0, rows, view.live_keys(), partial, schema=schema, rules=rules
        )

    def _written(
        self, changes: _Changes, view: MemtableView, target: FlushTarget, written: list[DataFile]
    ) -> Proposal:
        """Write the files of changes, collect them in `written`, and propose them."""
        rows = self._write(changes, view, target)
        written.extend(rows)
        deletes: tuple[DataFile, ...] = ()
        if changes.deletes is not None and target.order is not None:
            schema_id = target.mapping.source.schema_id
            deletes = (self._files.writers.deletes(changes.deletes, schema_id=schema_id),)
            written.extend(deletes)
        return Proposal.of_rows(
            target.base,
            added=rows,
            marked=self._files.superseded(target.base, changes.superseded),
            keys=(changes.superseded,),
            wal_segments=target.segments,
            deletes=deletes,
            is_ordered=target.order is not None,
        )

    def _write(
        self, changes: _Changes, view: MemtableView, target: FlushTarget
    ) -> tuple[DataFile, ...]:
        rows, keys = changes.rows, changes.keys
        if not rows.num_rows:
            return ()
        schema = target.mapping.target
        # Logs whose changes were all overwritten contributed no row.
        segments = tuple(
            replace(each, first_frame=max(each.first_frame, view.sequence_min))
            for each in target.segments
            if each.last_frame >= view.sequence_min
        )
        written: list[WrittenFile] = []
        # Files of many partitions are stored together: their syncs would take most of the time.
        together = self._files.writers.new_files()
        try:
            for spec, given, places in split_by_spec(
                rows, self._files.definitions.specs_from(target.spec.spec_id), schema
            ):
                given_keys = keys if places is None else keys.take(places)
                for partition in split_by_partition(given, spec, schema):
                    writer = self._files.writers.data_files(
                        schema,
                        spec_id=spec.spec_id,
                        partition=partition,
                        level=0,
                        file_format=target.format,
                        sequences=(view.sequence_min, view.sequence_max),
                        segments=segments,
                        together=together,
                    )
                    positions = partition.positions
                    if positions is None:
                        writer.append(given, given_keys)
                    else:
                        writer.append(given.take(positions), given_keys.take(positions))
                    written.extend(writer.finish())
            together.store_all()
        except BaseException:
            self._files.writers.discard(written)
            raise
        return tuple(each.file for each in written)
