"""ReplacedPartitions: all that some partitions hold goes, in the commit that fills them anew.

    files of the spec, in one of the partitions     removed
    files of other specs                            their rows of the partitions are marked
    rows of the new keys in other partitions        marked, as in any write

Which files that are is decided on the Version that the commit follows.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from pyroaring import BitMap64

from neve.engine.job_base import JobBase
from neve.manifest.rebase import Proposal
from neve.model.data_file import DataFile, PartitionValue
from neve.model.partition_groups import partition_groups
from neve.model.version import Operation, Version
from neve.sstable.deletion_vector import bitmap_of


class ReplacedPartitions:
    """Partitions, under the spec of a job's base, that a commit replaces; for one thread."""

    def __init__(self, base: JobBase, partitions: Iterable[tuple[PartitionValue, ...]]) -> None:
        self._base = base
        self._partitions = frozenset(partitions)

    def taken_from(self, proposal: Proposal, current: Version) -> Proposal:
        """Give a proposal that also takes away what the partitions hold in a Version."""
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
        return file.spec_id == self._base.spec.spec_id and file.partition in self._partitions

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
            batch = mapping.table(rows, names).combine_chunks().to_batches()[0]
            for group in partition_groups(base.spec, base.spec.values(batch, base.schema)):
                if group.values in self._partitions:
                    found |= bitmap_of(np.sort(group.positions) + start)
            start = stop
        return found
