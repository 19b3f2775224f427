"""ScanPlan: which files a scan reads, decided by what the manifest says of them.

1. The keys that can match: those asked for, and those that the filter implies.
2. A file is left out when its keys lie outside of them (by key), when no row of its partition can
   match (by partition), or when none can by the bounds of its columns (by statistics).
3. Where every row of a file matches by its bounds, the filter need not be asked of its rows.

No data file is opened. `neve.read.file_rows` goes on inside of each file.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from neve.errors import InvalidArgument
from neve.keys.ranges import KeyRange
from neve.model.bound_predicate import Always
from neve.model.data_file import DataFile
from neve.model.display import shown
from neve.model.pruning import Match, match
from neve.read.filters import RowFilter
from neve.read.scan_plan import PartitionPruning, implied_range, intersected, statistics_facts
from neve.table.file_set import FileProbe
from neve.table.table_view import TableView


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that is read, and whether the filter must be asked of its rows."""

    probe: FileProbe
    needs_filter: bool

    @property
    def file(self) -> DataFile:
        """What the manifest says of the file."""
        return self.probe.file


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What is read, and why the rest is not."""

    names: tuple[str, ...]
    """Columns that are given, in their order."""
    filter: RowFilter
    """What is left to ask of rows whose keys are in the range."""
    key_range: KeyRange
    files: tuple[PlannedFile, ...]
    files_total: int
    pruned_by_key: int
    pruned_by_partition: int
    pruned_by_statistics: int

    def names_read(self, *, needs_filter: bool) -> tuple[str, ...]:
        """Columns that are read, with those that only the filter needs."""
        if not needs_filter:
            return self.names
        return (*self.names, *(each for each in self.filter.names if each not in self.names))


def plan_scan(
    view: TableView, *, names: tuple[str, ...], row_filter: RowFilter, key_range: KeyRange
) -> ScanPlan:
    """Choose the files of a view that a scan has to read."""
    context = view.context
    implied, rest = implied_range(row_filter.predicate, context)
    wanted = intersected(key_range, implied)
    filter_left = row_filter.reduced_to(rest)
    partitions = PartitionPruning(row_filter.predicate, context.schema, context.spec_of)
    files: list[PlannedFile] = []
    total = by_key = by_partition = by_statistics = 0
    for probe in view.files.probes():
        total += 1
        file = probe.file
        if not _may_hold(file, wanted):
            by_key += 1
        elif partitions.excludes(file):
            by_partition += 1
        else:
            answer = match(rest, statistics_facts(file, context, rest.field_ids))
            if answer is Match.NEVER:
                by_statistics += 1
                continue
            is_settled = answer is Match.ALWAYS and filter_left.expression is None
            files.append(PlannedFile(probe, needs_filter=not is_settled))
    if isinstance(rest, Always) and not rest.answer:
        wanted = KeyRange(b"", b"")
    return ScanPlan(
        names=names,
        filter=filter_left,
        key_range=wanted,
        files=tuple(files),
        files_total=total,
        pruned_by_key=by_key,
        pruned_by_partition=by_partition,
        pruned_by_statistics=by_statistics,
    )


def _may_hold(file: DataFile, wanted: KeyRange) -> bool:
    if wanted.is_empty or (wanted.end is not None and file.key_min >= wanted.end):
        return False
    return wanted.start is None or file.key_max >= wanted.start


def asked_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Check that columns are a list of names, none of them twice; raises InvalidArgument."""
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise InvalidArgument(
            f"columns are given as {type(columns).__name__}", hint="Pass a list of names"
        )
    if not columns:
        raise InvalidArgument("no columns were asked for", hint="Name one, or use count()")
    names: list[str] = []
    for name in columns:
        if not isinstance(name, str):
            raise InvalidArgument(
                f"a column is given as {type(name).__name__}", hint="Pass a list of names"
            )
        if name in names:
            raise InvalidArgument(
                f"column {shown(name)} is asked for twice", hint="Name each column once"
            )
        names.append(name)
    return tuple(names)
