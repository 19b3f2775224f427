"""Flush: a frozen memtable becomes one clean Version.

Steps:

1. sort: the newest row per key, under the table's schema; keys whose newest change is a delete
   have no row
2. write the rows, per partition, as files of level 0
3. find where older rows of all these keys lie: they are superseded
4. commit new files, vectors and `flushed_sequence` as one edit; rebased when others were first
5. let go of the logs that nothing needs any more

A memtable with partial writes is merged again, between steps 1 and 2, with the rows of the Version
it is committed to; it is not rebased then but, when others were first, flushed again on theirs.

A crash before step 4 leaves files that nobody reaches, and the rows in the log; after it, the log
is read only above `flushed_sequence`. A flush of changes that come to nothing (only deletes of keys
that are nowhere) still moves `flushed_sequence`, without making a Version.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyroaring import BitMap64

from neve.engine.commit_facts import operation_of, summary_of
from neve.errors import CatalogConflict, Conflict, NeveError, OutcomeUnknown
from neve.keys.columns import KeyArray
from neve.manifest.commit import LostRaces, TableCommitter
from neve.manifest.rebase import Proposal, complete
from neve.manifest.retry import Patience
from neve.manifest.table_head import HEAD_KEY, RESERVATION_KEY, HeadChange, Requirements
from neve.manifest.table_versions import Committed
from neve.memtable.memtable import Memtable
from neve.memtable.memtable_view import MemtableView
from neve.model.data_file import FileFormat, VectorRef, WalSegmentRef
from neve.model.partition_spec import PartitionSpec
from neve.model.version import Version, VersionFacts
from neve.sstable.data_file_writer import WrittenFile
from neve.sstable.superseded_rows import superseded_rows
from neve.table.file_set import FileSet
from neve.table.file_writers import FileWriters
from neve.table.partial_merge import GivenRows, merged_on
from neve.table.partitions import KeyPartitions, PartitionedKeys, split_by_partition, split_by_spec
from neve.table.schema_mapping import SchemaMapping
from neve.table.table_context import TableContext
from neve.table.table_files import TableFiles
from neve.table.table_parts import Definitions, TableParts
from neve.table.table_view import TableView

_COMMIT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushTarget:
    """What a flush commits to."""

    base: Version
    mapping: SchemaMapping
    """From the memtable's schema, which may be older, to the one that base and spec belong to."""
    spec: PartitionSpec
    format: FileFormat
    segments: tuple[WalSegmentRef, ...]
    """Where the changes of the memtable are logged."""
    head_change: HeadChange


class Flush:
    """Turns memtables into Versions."""

    def __init__(
        self,
        parts: TableParts,
        making: FileWriters,
        files: TableFiles,
        *,
        definitions: Definitions,
        committer: TableCommitter,
        context: TableContext,
    ) -> None:
        self._parts = parts
        self._making = making
        self._files = files
        self._definitions = definitions
        self._versions = parts.versions
        self._committer = committer
        # The columns of the key stay what they are, whatever becomes of the schema.
        self._partitions = KeyPartitions(context.schema, context.encoder, definitions.spec)
        # Owned by the one flush that runs: what it wrote, by the path of the data file and the
        # place of the vector. Each try to commit may have written another one.
        self._vectors: dict[tuple[str, VectorRef], BitMap64] = {}

    def run(self, memtable: Memtable, target: FlushTarget) -> Committed:
        """Flush a frozen memtable; its files are gone again when this certainly failed."""
        self._vectors.clear()
        committed = self._run(memtable, target)
        self._remember_vectors(committed.snapshot.version)
        return committed

    def _run(self, memtable: Memtable, target: FlushTarget) -> Committed:
        view = memtable.view(memtable.last_sequence)
        partial = view.partial_rows()
        if partial:
            return self._run_merged(view, partial, target)
        rows = target.mapping.table(view.live())
        keys = view.keys()
        written = self._write(view, rows, target)
        try:
            proposal = self._proposal(written, keys, target)
            if not proposal.added and not proposal.marked:
                return self._commit_nothing(keys, target)
            return self._committer.commit(
                proposal,
                target.head_change,
                lookup=self._files,
                write_vectors=self._write_vectors,
            )
        except OutcomeUnknown:
            raise
        except NeveError:
            self._making.discard(written)
            raise

    def _run_merged(self, view: MemtableView, partial: GivenRows, target: FlushTarget) -> Committed:
        """Merge partial writes with the rows of the newest Version, and commit on that very one."""
        patience = Patience(self._parts.clock, self._parts.ids, _COMMIT_SECONDS)
        races = LostRaces(self._committer, patience, path=self._parts.paths.manifest)
        change = target.head_change
        while True:  # ends: each round another committer was first, and patience does
            base = self._base_view(self._versions.snapshot_latest().version)
            merging = replace(
                target,
                base=base.files.version,
                # Rows of the base may have columns that the schema shown so far lacks.
                mapping=base.context.mapping_from(target.mapping.source.schema_id),
                spec=self._definitions.spec(base.files.version.facts.spec_id),
            )
            rows = merged_on(
                base,
                0,
                merging.mapping.table(view.live()),
                view.live_keys(),
                partial,
                schema=merging.mapping.target,
            )
            written = self._write(view, rows, merging)
            try:
                proposal = self._proposal(written, view.keys(), merging)
                edit = complete(proposal, merging.base, self._files, self._write_vectors)
                committed = self._versions.apply_version_edits([edit], change)
            except OutcomeUnknown:
                raise
            except Conflict as conflict:
                self._making.discard(written)
                if not {HEAD_KEY, RESERVATION_KEY}.intersection(conflict.keys):
                    raise
                change = races.wait(conflict, change)
            except NeveError:
                self._making.discard(written)
                raise
            else:
                self._committer.checkpoint_once()
                return committed

    def _base_view(self, version: Version) -> TableView:
        schema = self._definitions.schema(version.facts.schema_id)
        context = TableContext(
            schema, schema_of=self._definitions.schema, spec_of=self._definitions.spec
        )
        files = FileSet(version, self._files, partitions=context.partitions)
        return TableView((), files, context)

    def _commit_nothing(self, keys: KeyArray, target: FlushTarget) -> Committed:
        """Move `flushed_sequence` past changes that come to nothing on the current Version."""
        while True:  # ends: each round, another committer was first
            try:
                return self._versions.apply_version_edits(
                    [], target.head_change, requirements=Requirements(version=target.base.number)
                )
            except CatalogConflict:
                base = self._versions.snapshot_latest().version
                target = replace(target, base=base)
            proposal = self._proposal((), keys, target)
            if proposal.marked:
                return self._committer.commit(
                    proposal,
                    target.head_change,
                    lookup=self._files,
                    write_vectors=self._write_vectors,
                )

    def _write_vectors(self, whole: Mapping[str, BitMap64]) -> Mapping[str, VectorRef]:
        refs = self._making.vectors(whole)
        self._vectors.update({(path, ref): whole[path] for path, ref in refs.items()})
        return refs

    def _remember_vectors(self, version: Version) -> None:
        """Keep the vectors that were committed, so that no reader has to read them."""
        for (path, ref), vector in self._vectors.items():
            file = version.files.get(path)
            if file is not None and file.vector == ref:
                self._files.vectors.remember(file, vector)
        self._vectors.clear()

    def _write(
        self, view: MemtableView, rows: pa.Table, target: FlushTarget
    ) -> tuple[WrittenFile, ...]:
        if not rows.num_rows:
            return ()
        schema, keys = target.mapping.target, view.live_keys()
        # Logs whose changes were all overwritten since brought no row.
        segments = tuple(
            replace(each, first_frame=max(each.first_frame, view.sequence_min))
            for each in target.segments
            if each.last_frame >= view.sequence_min
        )
        written: list[WrittenFile] = []
        try:
            for spec, given, places in split_by_spec(
                rows, self._definitions.specs_from(target.spec.spec_id), schema
            ):
                given_keys = keys if places is None else keys.take(places)
                for partition in split_by_partition(given, spec, schema):
                    writer = self._making.data_files(
                        schema,
                        spec_id=spec.spec_id,
                        partition=partition,
                        level=0,
                        file_format=target.format,
                        sequences=(view.sequence_min, view.sequence_max),
                        segments=segments,
                    )
                    positions = partition.positions
                    if positions is None:
                        writer.append(given, given_keys)
                    else:
                        writer.append(given.take(positions), given_keys.take(positions))
                    written.extend(writer.finish())
        except BaseException:
            self._making.discard(written)
            raise
        return tuple(written)

    def _proposal(
        self, written: tuple[WrittenFile, ...], keys: KeyArray, target: FlushTarget
    ) -> Proposal:
        partitioned = PartitionedKeys(keys, self._partitions)
        marked = superseded_rows(
            target.base.files.values(),
            keys,
            open_reader=self._files.reader,
            vector_of=self._files.vector,
            keys_for=partitioned.keys_for,
        )
        added = tuple(each.file for each in written)
        facts = VersionFacts(
            operation=operation_of(added_rows=sum(file.row_count for file in added), marked=marked),
            timestamp_ms=0,  # the commit sets it
            schema_id=target.base.facts.schema_id,
            spec_id=target.base.facts.spec_id,
            summary=summary_of(added),
            wal_segments=target.segments,
        )
        return Proposal(
            base=target.base.number, facts=facts, added=added, marked=marked, keys=(keys,)
        )
