"""ScanPlan: the keys and files that a scan reads, chosen by the filter and the manifest.

1. Keys that can match are in the requested range and in the range that the filter implies.
   Conditions with "=" on leading key columns fix the beginning of the key, and an ordering on the
   next column bounds it:

       key (shop, day, id)
       shop = 3 and day >= 5 and id < 9     keys from (3, 5) up to (4); id < 9 filters the rows
       day >= 5                             every key: the first column is open

2. A file is left out when its keys are outside that range (by key), when no row of its partition
   can match (by partition), or when none can by the bounds of its columns (by statistics). A column
   added after a file was written has its initial default in every row.
3. Where every row of a file matches by its bounds, its rows are not filtered.

No data file is opened. `neve.read.file_rows` continues inside each file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from neve.errors import Corruption, InvalidArgument, LimitExceeded, NeveError
from neve.keys.encoding import KeyEncoder
from neve.keys.ranges import KeyRange
from neve.model.bound_predicate import (
    AllOf,
    Always,
    BoundCondition,
    BoundPredicate,
    Operator,
    all_of,
)
from neve.model.data_file import ColumnStatistics, DataFile
from neve.model.display import listed, shown
from neve.model.partition_spec import PartitionSpec
from neve.model.plain_values import PlainValue, decode_single_value, stored_type, to_plain
from neve.model.pruning import ColumnFacts, Match, match, project
from neve.model.schema import Column, TableSchema
from neve.model.schema_view import ArrowArray
from neve.read.filters import ALL_ROWS, RowFilter
from neve.table.file_set import FileProbe
from neve.table.table_context import Definitions, TableContext
from neve.table.table_view import TableView

ALL_KEYS: Final = KeyRange()
NO_KEYS: Final = KeyRange(b"", b"")
_TERMINATOR_BYTES: Final = 2
_SIDES: Final = 2


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that is read, and whether its rows must be filtered."""

    probe: FileProbe
    needs_filter: bool

    @property
    def file(self) -> DataFile:
        """The description of the file in the manifest."""
        return self.probe.file


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """The files that are read, and why the others are not."""

    names: tuple[str, ...]
    """Columns that are returned, in their order."""
    filter: RowFilter
    """The filter for rows whose keys are in the range."""
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
    view: TableView,
    *,
    names: tuple[str, ...],
    row_filter: RowFilter,
    key_range: KeyRange = ALL_KEYS,
) -> ScanPlan:
    """Choose the files of a view that a scan has to read."""
    context = view.context
    rest, wanted, filter_left = row_filter.predicate, key_range, row_filter
    partitions: PartitionPruning | None = None
    if rest != ALL_ROWS:
        partitions = PartitionPruning(rest, context.schema, context.definitions)
        implied, rest = implied_range(rest, context)
        wanted = intersected(key_range, implied)
        filter_left = row_filter.reduced_to(rest)
    files: list[PlannedFile] = []
    by_key = by_partition = by_statistics = 0
    for probe in view.files.by_path.values():
        file = probe.file
        if not _may_hold(file, wanted):
            by_key += 1
        elif partitions is None:
            files.append(PlannedFile(probe, needs_filter=filter_left.expression is not None))
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
        wanted = NO_KEYS
    return ScanPlan(
        names=names,
        filter=filter_left,
        key_range=wanted,
        files=tuple(files),
        files_total=len(view.files.by_path),
        pruned_by_key=by_key,
        pruned_by_partition=by_partition,
        pruned_by_statistics=by_statistics,
    )


def unexpired(row_filter: RowFilter, view: TableView) -> RowFilter:
    """Return a filter that also leaves out the rows that have expired in a view."""
    cutoff = view.cutoff
    return row_filter if cutoff is None else row_filter.joined_with(cutoff.live)


def _may_hold(file: DataFile, wanted: KeyRange) -> bool:
    if wanted.is_empty or (wanted.end is not None and file.key_min >= wanted.end):
        return False
    return wanted.start is None or file.key_max >= wanted.start


def asked_range(asked: object, encoder: KeyEncoder) -> KeyRange:
    """Return the keys from a low one, inclusive, to a high one, exclusive; raises InvalidArgument.

    Either may be None for no bound, a value for the first column, or a tuple of leading columns.
    """
    if asked is None:
        return ALL_KEYS
    if not isinstance(asked, tuple | list) or len(asked) != _SIDES:
        raise InvalidArgument(
            f"a key range is {shown(asked)}, not two keys",
            hint="Pass two keys, the first one and the one after the last; None for no bound",
        )
    low, high = (_prefix(bound, encoder) for bound in asked)
    return KeyRange(low, high)


def _prefix(bound: object, encoder: KeyEncoder) -> bytes | None:
    if bound is None:
        return None
    values: Sequence[object] = bound if isinstance(bound, tuple | list) else (bound,)
    if not values:
        raise InvalidArgument(
            "a bound of a key range has no values",
            hint=f"Pass None for no bound, or values of {listed(encoder.names)}",
        )
    return encoder.prefix_range(values).start


def intersected(one: KeyRange, other: KeyRange) -> KeyRange:
    """Return the keys inside both, which may be none."""
    found = one.intersection(other)
    return NO_KEYS if found is None else found


def implied_range(
    predicate: BoundPredicate, context: TableContext
) -> tuple[KeyRange, BoundPredicate]:
    """Return the keys that can match, and the rest of the predicate, for their rows."""
    conditions = predicate.operands if isinstance(predicate, AllOf) else (predicate,)
    known: set[int] = set()
    found = KeyRange()
    prefix = b""
    for column in context.schema.key_columns:
        mine = [
            (place, each)
            for place, each in enumerate(conditions)
            if isinstance(each, BoundCondition) and each.column.field_id == column.field_id
        ]
        fixed = [(place, each) for place, each in mine if each.operator is Operator.EQ]
        for place, each in fixed[:1] or mine:
            bounds = _bounds(prefix, column, each)
            if bounds is not None:
                found = intersected(found, bounds)
                if each.operator is not Operator.IN:
                    known.add(place)
        if not fixed or fixed[0][0] not in known:
            break
        prefix = _encoded(prefix, column, fixed[0][1].literal)
    rest = [each for place, each in enumerate(conditions) if place not in known]
    return found, all_of(rest)


def _bounds(prefix: bytes, column: Column, condition: BoundCondition) -> KeyRange | None:
    """Return the keys after a prefix whose next column meets a condition; None: unknown."""
    operator = condition.operator
    try:
        match operator:
            case Operator.EQ:
                return KeyRange.with_prefix(_encoded(prefix, column, condition.literal))
            case Operator.GE:
                low: bytes | None = _encoded(prefix, column, condition.literal)
            case Operator.GT:
                low = KeyRange.after(_encoded(prefix, column, condition.literal))
            case Operator.LT | Operator.LE:
                low = prefix
            case Operator.IN:
                low = _encoded(prefix, column, condition.literals[0])
            case Operator.STARTS_WITH:
                whole = _encoded(prefix, column, condition.literal)
                return KeyRange.with_prefix(whole[:-_TERMINATOR_BYTES])
            case _:
                return None
        high = KeyRange.after(prefix)
        if operator is Operator.LT:
            high = _encoded(prefix, column, condition.literal)
        elif operator in (Operator.LE, Operator.IN):
            high = KeyRange.after(_encoded(prefix, column, condition.literals[-1]))
    except LimitExceeded:
        # No key is that long; the rows are filtered.
        return None
    if low is None or (high is not None and low >= high):
        return NO_KEYS
    return KeyRange(low, high)


def _encoded(prefix: bytes, column: Column, value: PlainValue) -> bytes:
    storage: ArrowArray = pa.array([value], stored_type(column.type))
    array = storage
    if isinstance(column.type, pa.UuidType):
        array = pa.ExtensionArray.from_storage(column.type, storage)
    key = KeyEncoder([column.type], [column.name]).encode_arrays([array])[0].as_py()
    assert isinstance(key, bytes)
    return prefix + key


def statistics_facts(
    file: DataFile, context: TableContext, field_ids: Iterable[int]
) -> dict[int, ColumnFacts]:
    """Return the known facts about some columns of a file."""
    source = context.mapping_from(file.schema_id).source
    present = {column.field_id for column in source.columns}
    statistics = {known.field_id: known for known in file.statistics}
    facts: dict[int, ColumnFacts] = {}
    for field_id in field_ids:
        column = context.schema.column_by_id(field_id)
        if field_id not in present:
            absent = _absent_facts(column)
            if absent is not None:
                facts[field_id] = absent
            continue
        known = statistics.get(field_id)
        if known is not None:
            facts[field_id] = _column_facts(known, column, file)
    return facts


def _column_facts(known: ColumnStatistics, column: Column, file: DataFile) -> ColumnFacts:
    try:
        lower, upper = (
            None if stored is None else decode_single_value(column.type, stored)
            for stored in (known.lower, known.upper)
        )
    except Corruption as error:
        raise Corruption(
            f"bounds of column {column.name!a} in the manifest cannot be read: {error.message}",
            path=file.path,
            hint="Roll back to a Version before this file, or compact the table",
        ) from error
    return ColumnFacts(
        lower=lower,
        upper=upper,
        null_count=known.null_count,
        nan_count=known.nan_count,
        row_count=known.value_count,
    )


def _absent_facts(column: Column) -> ColumnFacts | None:
    if column.initial_default is None:
        return ColumnFacts.of_value(None)
    try:
        value = to_plain(column.initial_default, column.type, column=column.name)
    except NeveError:
        # A nested default has no facts.
        return None
    return ColumnFacts.of_value(value)


class PartitionPruning:
    """Excludes files by their partition; used by one thread at a time."""

    def __init__(
        self,
        predicate: BoundPredicate,
        schema: TableSchema,
        definitions: Definitions,
    ) -> None:
        self._predicate = predicate
        self._schema = schema
        self._definitions = definitions
        self._projected: dict[int, tuple[BoundPredicate, PartitionSpec]] = {}

    def excludes(self, file: DataFile) -> bool:
        """Whether no row of the file can match."""
        if not file.partition:
            return False
        known = self._projected.get(file.spec_id)
        if known is None:
            spec = self._definitions.spec(file.spec_id)
            known = project(self._predicate, spec), spec
            self._projected[file.spec_id] = known
        projected, spec = known
        return match(projected, self._facts(file, spec)) is Match.NEVER

    def _facts(self, file: DataFile, spec: PartitionSpec) -> Mapping[int, ColumnFacts]:
        stored = {each.field_id: each.value for each in file.partition}
        facts: dict[int, ColumnFacts] = {}
        sources = {column.field_id: column for column in self._schema.columns}
        for field in spec.fields:
            source = sources.get(field.source_id)
            # The column may have been dropped, and then the predicate does not use it.
            if source is None or field.field_id not in stored:
                continue
            content = stored[field.field_id]
            value: PlainValue | None = None
            if content is not None:
                value = decode_single_value(field.transform.result_type(source.type), content)
            facts[field.field_id] = ColumnFacts.of_value(value)
        return facts
