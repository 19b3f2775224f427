"""ReplacedPartitions: all that some partitions hold goes, in the commit that fills them again.

    files of the spec, in one of the partitions     removed
    files of other specs                            their rows of the partitions are marked
    rows of the new keys in other partitions        marked, as in any write

Which files that are is decided on the Version that the commit follows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from neve.jobs.run import JobBase
from neve.manifest.rebase import Proposal
from neve.model.data_file import DataFile, PartitionValue
from neve.model.partitions import Positions, partition_groups
from neve.model.version import Operation, Version
from neve.sstable.deletion_vector import bitmap_of
from neve.table.partitions import refused_rows


class ReplacedPartitions:
    """Partitions, under the spec of a job's base, that a commit replaces; for one thread."""

    def __init__(self, base: JobBase, partitions: Iterable[tuple[PartitionValue, ...]]) -> None:
        self._base = base
        self._partitions = frozenset(
            base.identity.of_values(base.spec.spec_id, each) for each in partitions
        )

    def taken_from(self, proposal: Proposal, current: Version) -> Proposal:
        """Return a proposal that also takes away what the partitions hold in a Version."""
        removed: list[str] = []
        marked = dict(proposal.marked)
        for path, file in current.files.items():
            if self._is_whole(file):
                removed.append(path)
                marked.pop(path, None)
                continue
            rows = self._rows_inside(file)
            if rows:
                marked[path] = marked.get(path, BitMap64()) | rows
        is_change = bool(removed or marked)
        operation = Operation.OVERWRITE if is_change else proposal.facts.operation
        return replace(
            proposal,
            facts=replace(proposal.facts, operation=operation),
            removed=tuple(removed),
            marked=marked,
        )

    def _is_whole(self, file: DataFile) -> bool:
        return self._base.identity.of(file) in self._partitions

    def _rows_inside(self, file: DataFile) -> BitMap64:
        """Find rows of the partitions in a file that was divided in another way."""
        base = self._base
        found = BitMap64()
        if file.spec_id == base.spec.spec_id or not self._partitions:
            return found
        if base.spec.is_unpartitioned:
            return BitMap64(range(file.row_count))
        names = [base.schema.column_by_id(each.source_id).name for each in base.spec.fields]
        mapping = base.context.mapping_from(file.schema_id)
        reader = base.files.reader(file)
        start = 0
        for stop in reader.group_starts[1:]:
            rows = reader.read(mapping.source_names(names), start=start, stop=stop)
            for positions in self._places_inside(mapping.table(rows, names)):
                found |= bitmap_of(np.sort(positions) + start)
            start = stop
        return found

    def _places_inside(self, rows: pa.Table) -> Iterator[Positions]:
        """Find the rows of each of the partitions; some of the others may have none at all."""
        base = self._base
        batch = rows.combine_chunks().to_batches()[0]
        refused = refused_rows(batch, base.spec, base.schema)
        placed = np.setdiff1d(np.arange(batch.num_rows), refused)
        if not len(placed):
            return
        chosen = batch.take(placed) if len(refused) else batch
        for group in partition_groups(base.spec, base.spec.values(chosen, base.schema)):
            if base.identity.of_values(base.spec.spec_id, group.values) in self._partitions:
                yield placed[group.positions]
