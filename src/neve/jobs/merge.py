"""BulkMerge: updates, deletes or inserts rows, depending on the rows of their keys in the base.

    key has a row     the clause that was chosen for matched rows:    update some columns, delete
    key has none      the clause that was chosen for the others:      insert

The caller has chosen a clause for each of the two cases; the lookup here picks the case. A row
without a clause changes nothing. A partial write updates some columns and, where there is no row
yet, inserts them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.errors import SchemaMismatch
from neve.jobs.rows import BulkRows
from neve.jobs.run import JobBase
from neve.keys.arrays import key_at
from neve.keys.columns import KeyArray
from neve.model.arrow_buffers import one_batch
from neve.model.display import shown
from neve.model.row_rules import NO_RULES
from neve.model.schema import TableSchema
from neve.table.partial_merge import MERGED_ROWS_MAX, merged, required_columns, widened

Choices = npt.NDArray[np.int64]
Fit = Callable[[pa.RecordBatch, TableSchema], pa.RecordBatch]
"""Returns rows with exactly this schema; raises SchemaMismatch."""

NO_CLAUSE: Final = -1


class ClauseKind(StrEnum):
    """What a clause does to a row."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClause:
    """One possible change of a row, and the columns besides the key that it sets."""

    kind: ClauseKind
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePiece:
    """Rows to merge: unique ascending keys, and the clauses chosen for each."""

    keys: KeyArray
    if_matched: Choices
    """Index of the clause when the key has a row; NO_CLAUSE for none."""
    if_unmatched: Choices
    values: Sequence[pa.RecordBatch | None]
    """For each clause, the key and its columns as given; None for deletes."""


def narrowed_schema(schema: TableSchema, names: Sequence[str]) -> TableSchema:
    """Return the schema of rows that have only the key and some columns."""
    wanted = {*schema.primary_key, *(schema.column(name).field_id for name in names)}
    return TableSchema(
        columns=tuple(each for each in schema.columns if each.field_id in wanted),
        primary_key=schema.primary_key,
        schema_id=schema.schema_id,
        last_field_id=schema.last_field_id,
    )


class BulkMerge:
    """Merges the rows of one task; for one thread."""

    def __init__(
        self,
        base: JobBase,
        clauses: Sequence[MergeClause],
        task: BulkRows,
        *,
        fit: Fit,
        folds: bool = False,
    ) -> None:
        """Begin; `folds` follows the merge functions of columns, instead of setting them."""
        self._rules = base.schema.rules if folds else NO_RULES
        self._base = base
        self._clauses = clauses
        self._task = task
        self._fit = fit
        self._view = base.view
        self._narrowed = [narrowed_schema(base.schema, clause.columns) for clause in clauses]

    def take(self, piece: MergePiece) -> None:
        """Merge rows, and pass them to the task; raises SchemaMismatch."""
        for start in range(0, len(piece.keys), MERGED_ROWS_MAX):
            self._take(_slice(piece, start, MERGED_ROWS_MAX))

    def _take(self, piece: MergePiece) -> None:
        found, places = self._view.get_many(piece.keys, 0)
        count = len(piece.keys)
        base_row = np.full(count, -1, np.int64)
        base_row[places] = np.arange(len(places))
        chosen = np.where(base_row >= 0, piece.if_matched, piece.if_unmatched)
        tables: list[pa.Table] = []
        positions: list[npt.NDArray[np.int64]] = []
        deleted: list[npt.NDArray[np.int64]] = []
        for number, clause in enumerate(self._clauses):
            own = np.flatnonzero(chosen == number)
            if not len(own):
                continue
            if clause.kind is ClauseKind.DELETE:
                deleted.append(own)
                continue
            values = piece.values[number]
            assert values is not None
            fitted = self._fit(values.take(own), self._narrowed[number])
            rows = self._whole(fitted, piece.keys.take(own), clause, found, base_row[own])
            tables.append(pa.Table.from_batches([rows]))
            positions.append(own)
        if tables:
            order = np.argsort(np.concatenate(positions), kind="stable")
            rows = one_batch(pa.concat_tables(tables).take(order))
            keys = piece.keys.take(np.sort(np.concatenate(positions)))
            self._task.upsert(rows, keys, is_final=True)
        if deleted:
            self._task.delete(piece.keys.take(np.sort(np.concatenate(deleted))))
        # Leaving a row alone is a decision, too.
        self._task.see(piece.keys.take(np.flatnonzero(chosen == NO_CLAUSE)))

    def _whole(
        self,
        values: pa.RecordBatch,
        keys: KeyArray,
        clause: MergeClause,
        found: pa.Table,
        base_row: npt.NDArray[np.int64],
    ) -> pa.RecordBatch:
        schema = self._base.schema
        given = [schema.column(name).field_id for name in clause.columns]
        has_base = np.flatnonzero(base_row >= 0)
        required = required_columns(schema, given)
        if required and len(has_base) < values.num_rows:
            missing = int(np.flatnonzero(base_row < 0)[0])
            key = self._base.context.encoder.decode(key_at(keys, missing))
            raise SchemaMismatch(
                f"key {key[0] if len(key) == 1 else tuple(key)!r} has no row yet, and column "
                f"{shown(required[0].name)} is not given",
                column=required[0].name,
                hint="Pass the column: it is never NULL and has no default",
            )
        whole = widened(values, schema)
        old = found.take(base_row[has_base])
        return merged(whole, old, has_base, given=given, schema=schema, rules=self._rules)


def choices_of(column: "pa.Array[pa.Scalar[pa.DataType]]") -> Choices:
    """Read the chosen clauses from a column; NULL is none."""
    numbers = column.cast(pa.int64()).fill_null(NO_CLAUSE)
    return numbers.to_numpy(zero_copy_only=False).astype(np.int64)


def _slice(piece: MergePiece, start: int, count: int) -> MergePiece:
    stop = start + count
    return MergePiece(
        keys=piece.keys.slice(start, count),
        if_matched=piece.if_matched[start:stop],
        if_unmatched=piece.if_unmatched[start:stop],
        values=[None if each is None else each.slice(start, count) for each in piece.values],
    )
