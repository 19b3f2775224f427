"""What the manifest knows of the rows of a data file, for telling whether any can match.

statistics   bounds and counts of each column       by the column's field id
partition    the values all rows of the file share   by the partition field's id
absent       a column younger than the file          its initial default, in every row
"""

from collections.abc import Callable, Iterable, Mapping

from neve.errors import Corruption, NeveError
from neve.model.bound_predicate import BoundPredicate
from neve.model.data_file import ColumnStatistics, DataFile
from neve.model.partition_spec import PartitionSpec
from neve.model.plain_values import PlainValue, to_plain
from neve.model.pruning import ColumnFacts, Match, match, project
from neve.model.schema import Column, TableSchema
from neve.model.single_value import decode_single_value
from neve.table.table_context import TableContext


def statistics_facts(
    file: DataFile, context: TableContext, field_ids: Iterable[int]
) -> dict[int, ColumnFacts]:
    """Return what is known of some columns of a file; what is unknown is left out."""
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
        # A nested default: whatever it is, nothing is known of it.
        return None
    return ColumnFacts.of_value(value)


class PartitionPruning:
    """Tells by a file's partition whether its rows can match; used by one thread at a time."""

    def __init__(
        self,
        predicate: BoundPredicate,
        schema: TableSchema,
        spec_of: Callable[[int], PartitionSpec] | None,
    ) -> None:
        self._predicate = predicate
        self._schema = schema
        self._spec_of = spec_of
        self._projected: dict[int, tuple[BoundPredicate, PartitionSpec]] = {}

    def excludes(self, file: DataFile) -> bool:
        """Whether no row of the file can match."""
        if self._spec_of is None or not file.partition:
            return False
        known = self._projected.get(file.spec_id)
        if known is None:
            spec = self._spec_of(file.spec_id)
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
            # The column may be gone, and then the predicate does not ask for it.
            if source is None or field.field_id not in stored:
                continue
            content = stored[field.field_id]
            value: PlainValue | None = None
            if content is not None:
                value = decode_single_value(field.transform.result_type(source.type), content)
            facts[field.field_id] = ColumnFacts.of_value(value)
        return facts
