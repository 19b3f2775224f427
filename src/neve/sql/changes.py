"""INSERT, UPDATE, DELETE and MERGE: one SELECT of whole new rows, then writes of a transaction.

    statement   SELECT                                          writes
    INSERT      the given rows                                  upsert, if their keys are new
    UPDATE      whole rows with their new values, old keys      delete of changed keys, upsert
    DELETE      keys                                            delete
    MERGE       source joined with target: clause, new rows     delete, upsert

Everything is selected and checked before the first write. Values become those of their columns as
in DuckDB: an expression is cast to the type of its column.

SQL-3  No two rows of a statement are written under one key, and no INSERT replaces a row unless it
       says so: AlreadyExists.
SQL-4  A row of the target that several rows of a source would change is refused, not changed by one
       of them: InvalidArgument.
SQL-5  An update of a key column deletes the row of the old key and inserts that of the new key,
       which must not exist: AlreadyExists.
SQL-6  A column with a merge function is not set by UPDATE: what is written to it is merged with the
       old value, so it would not be the value that was asked for. For the same reason a table with
       such columns refuses the updates of MERGE and ON CONFLICT, which write whole rows.
"""

import re
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from neve.catalog.sql_door import Parameters
from neve.errors import InvalidArgument, SchemaMismatch
from neve.model.array_fit import nulls
from neve.model.arrow_types import child_fields
from neve.model.display import shown
from neve.model.schema import TableSchema
from neve.sql.change_text import (
    CLAUSE,
    FOUND,
    KEYS_SHOWN,
    ROWS,
    SOURCE,
    Changed,
    ChangeText,
    Clash,
    several_change_one,
)
from neve.sql.database import names_of
from neve.sql.relations import RelationSet
from neve.sql.statements import (
    Change,
    Delete,
    Dialect,
    Insert,
    Merge,
    MergeAction,
    OnConflict,
    Target,
    Update,
)

quoted = Dialect.DUCKDB.quoted
# The column at the end of `s.id`, with or without quotes.
_COLUMN: Final = re.compile(r'\."?([A-Za-z_]\w*)"?\Z', re.ASCII)
ArrowColumn: TypeAlias = "pa.ChunkedArray[pa.Scalar[pa.DataType]]"


class ChangingTable(Protocol):
    """The table of a transaction that a statement changes."""

    @property
    def schema(self) -> TableSchema:
        """Columns of its rows."""

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the key columns, in key order."""

    def get_many(self, keys: object, *, with_missing: bool = False) -> pa.Table:
        """Return the rows of keys."""

    def upsert(self, rows: pa.Table, columns: Sequence[str] | None = None) -> object:
        """Write rows, or some columns of them."""

    def delete_many(self, keys: object) -> object:
        """Delete the rows of keys."""


def change_rows(
    statement: Change,
    table: ChangingTable,
    relations: RelationSet,
    params: Parameters | None,
) -> Changed:
    """Run a statement in a transaction, whose relations are registered; raises before it writes."""
    changer = _Changer(table, relations, statement.target, params)
    match statement:
        case Insert():
            return changer.insert(statement)
        case Update():
            return changer.update(statement)
        case Delete():
            return changer.delete(statement)
        case Merge():
            return changer.merge(statement)


class _Changer:
    """One statement on one table."""

    def __init__(
        self,
        table: ChangingTable,
        relations: RelationSet,
        target: Target,
        params: Parameters | None,
    ) -> None:
        self._table = table
        self._relations = relations
        self._params = params
        self._schema = table.schema.arrow_schema
        self._key = table.primary_key
        lossy = [
            name for name in self._key if not _is_kept_by_duckdb(self._schema.field(name).type)
        ]
        if lossy:
            raise InvalidArgument(
                f"SQL cannot change rows by the key column {shown(lossy[0])}: DuckDB does not keep "
                "its nanoseconds",
                hint="Use upsert and delete_many",
            )
        types = self._column_types(target)
        self._text = ChangeText(target, table.schema, types, Dialect.DUCKDB)
        self._old_key = self._text.old_key

    # INSERT

    def insert(self, statement: Insert) -> Changed:
        given = self._rows(statement.rows.text)
        names = self._text.inserted_columns(statement, given.column_names)
        self._relations.add(ROWS, given.rename_columns([f"c{at}" for at in range(len(names))]))
        chosen = ", ".join(
            f"{self._text.cast(f'c{at}', name)} AS {quoted(name)}" for at, name in enumerate(names)
        )
        rows = self._fitted(self._plain_rows(f"SELECT {chosen} FROM {quoted(ROWS)}"))
        repeated = self._repeated(rows, self._key)
        if statement.on_conflict is OnConflict.IGNORE and repeated.num_rows:
            rows = self._first_of_each()
        elif repeated.num_rows:
            raise self._text.exists(_first(repeated), Clash.INSERT_TWICE)
        existing = self._table.get_many(rows.select(list(self._key)))
        if not existing.num_rows:
            return self._write(inserted=rows)
        if statement.on_conflict is OnConflict.REPLACE:
            # As in DuckDB, columns that are not named stay.
            some = [name for name in names if name not in self._key]
            self._table.upsert(rows, None if len(names) == len(self._schema) else some)
            replaced = existing.num_rows
            return Changed(inserted=rows.num_rows - replaced, updated=replaced)
        if statement.on_conflict is OnConflict.FAIL:
            raise self._text.exists(_first(existing), Clash.INSERT_EXISTS)
        self._relations.add(ROWS, rows)
        self._relations.add(FOUND, existing)
        same = " AND ".join(f"n.{quoted(k)} = o.{quoted(k)}" for k in self._key)
        new = self._plain_rows(
            f"SELECT n.* FROM {quoted(ROWS)} n WHERE NOT EXISTS "
            f"(SELECT 1 FROM {quoted(FOUND)} o WHERE {same})"
        )
        if statement.on_conflict is OnConflict.IGNORE:
            return self._write(inserted=new)
        return self._write(inserted=new, updated=self._on_conflict(statement))

    def _on_conflict(self, statement: Insert) -> pa.Table:
        found = self._plain_rows(self._text.on_conflict(statement), with_params=True)
        values = self._text.conflict_values(statement)
        return self._fitted(self._restored(found, values).drop_columns(self._old_key))

    # UPDATE and DELETE

    def update(self, statement: Update) -> Changed:
        values = self._text.set(statement.assignments)
        moves = any(name in self._key for name in values)
        found = self._rows(self._text.update(statement))
        if statement.sources:
            self._refuse_repeated(found)
        found = self._restored(found, values)
        if moves:
            return self._move(found)
        rows = self._fitted(found.drop_columns(self._old_key))
        if self._table.schema.rules.merge and rows.num_rows:
            self._table.upsert(rows.select([*self._key, *values]), columns=list(values))
            return Changed(updated=rows.num_rows)
        return self._write(updated=rows)

    def delete(self, statement: Delete) -> Changed:
        return self._write(deleted=self._rows(self._text.delete(statement)))

    def _move(self, found: pa.Table) -> Changed:
        """Write rows under new keys, and delete the old ones."""
        repeated = self._repeated(found, self._key)
        if repeated.num_rows:
            raise self._text.exists(_first(repeated), Clash.UPDATE_TWICE)
        self._relations.add(ROWS, found.select([*self._key, *self._old_key]))
        kept = " AND ".join(
            f"n.{quoted(name)} = o.{quoted(old)}"
            for name, old in zip(self._key, self._old_key, strict=True)
        )
        new_keys = self._plain_rows(
            f"SELECT {names_of(self._key)} FROM {quoted(ROWS)} n WHERE NOT EXISTS "
            f"(SELECT 1 FROM {quoted(ROWS)} o WHERE {kept})"
        )
        taken = self._table.get_many(self._fitted(new_keys))
        if taken.num_rows:
            raise self._text.exists(_first(taken), Clash.UPDATE_EXISTS)
        old = found.select(self._old_key).rename_columns(list(self._key))
        if old.num_rows:
            self._table.delete_many(self._fitted(old))
        return self._write(updated=self._fitted(found.drop_columns(self._old_key)))

    # MERGE

    def merge(self, statement: Merge) -> Changed:
        source = self._rows(self._text.source(statement))
        self._relations.add(SOURCE, source)
        matched = self._rows_of_keys(statement, source)
        if matched is not None:
            self._relations.add(FOUND, matched)
        texts = self._text.merge(statement, source.column_names, is_found=matched is not None)
        parts = [self._rows(text) for text in texts]
        found = pa.concat_tables(parts, promote_options="permissive")

        def chosen(*actions: MergeAction) -> pa.Table:
            numbers = pa.array(statement.numbers(*actions), pa.int32())
            return found.filter(pc.is_in(found.column(CLAUSE), value_set=numbers))

        self._refuse_repeated(chosen(MergeAction.UPDATE, MergeAction.DELETE))
        rest = [CLAUSE, *self._old_key]
        inserted = self._fitted(chosen(MergeAction.INSERT).drop_columns(rest))
        updates = [
            self._updated(found.filter(pc.field(CLAUSE) == number), number, statement, source)
            for number in statement.numbers(MergeAction.UPDATE)
        ]
        updated = pa.concat_tables(updates) if updates else None
        deleted = self._fitted(
            chosen(MergeAction.DELETE).select(self._old_key).rename_columns(list(self._key))
        )
        self._check_inserted(inserted, deleted)
        return self._write(inserted=inserted, updated=updated, deleted=deleted)

    def _updated(
        self, found: pa.Table, number: int, statement: Merge, source: pa.Table
    ) -> pa.Table:
        clause = statement.clauses[number]
        values = self._text.clause_values(clause, statement, source.column_names)
        rows = self._restored(found, values).drop_columns([CLAUSE, *self._old_key])
        return self._fitted(rows)

    def _check_inserted(self, inserted: pa.Table, deleted: pa.Table) -> None:
        """Raise AlreadyExists for rows whose keys exist and are not deleted by this statement."""
        if not inserted.num_rows:
            return
        repeated = self._repeated(inserted, self._key)
        if repeated.num_rows:
            raise self._text.exists(_first(repeated), Clash.MERGE_TWICE)
        existing = self._table.get_many(inserted.select(list(self._key)))
        if existing.num_rows and deleted.num_rows:
            self._relations.add(FOUND, existing)
            self._relations.add(ROWS, deleted)
            existing = self._plain_rows(
                f"SELECT * FROM {quoted(FOUND)} ANTI JOIN {quoted(ROWS)} USING "
                f"({names_of(self._key)})"
            )
        if existing.num_rows:
            raise self._text.exists(_first(existing), Clash.MERGE_EXISTS)

    def _rows_of_keys(self, statement: Merge, source: pa.Table) -> pa.Table | None:
        """Return the rows that the source can match, when ON is about the whole key."""
        text = self._text.source_keys(statement)
        if text is None:
            return None
        keys = self._keys_in(source, statement)
        if keys is None:
            keys = self._plain_rows(text)
        for name in self._key:
            mine, theirs = self._schema.field(name).type, keys.schema.field(name).type
            both_whole = pa.types.is_integer(mine) and pa.types.is_integer(theirs)
            if mine != theirs and not both_whole:
                return None  # equal values may be written differently
        if any(pa.types.is_floating(keys.schema.field(name).type) for name in self._key):
            return None
        try:
            return self._table.get_many(self._fitted(keys))
        except (pa.ArrowException, InvalidArgument):
            return None

    def _keys_in(self, source: pa.Table, statement: Merge) -> pa.Table | None:
        """Return the keys of `source_keys`, without a query; None where only DuckDB knows them."""
        columns: dict[str, ArrowColumn] = {}
        for name in self._key:
            value = next(
                value
                for known, value in statement.equal_columns
                if known.casefold() == name.casefold()
            )
            plain = _COLUMN.search(value)
            same = [
                each
                for each in source.column_names
                if plain is not None and each.casefold() == plain[1].casefold()
            ]
            if len(same) != 1:
                return None
            columns[name] = source.column(same[0])
        keys = pa.table(columns).drop_null()
        return _distinct(keys)

    def _column_types(self, target: Target) -> dict[str, str]:
        """Return the types of the columns as DuckDB spells them."""
        found = self._relations.rows(f"DESCRIBE {quoted(target.table)}")
        return {row["column_name"]: row["column_type"] for row in found.to_pylist()}

    # Rows

    def _rows(self, text: str) -> pa.Table:
        return self._relations.rows(text, self._params)

    def _plain_rows(self, text: str, *, with_params: bool = False) -> pa.Table:
        return self._relations.rows(text, self._params if with_params else None)

    def _restored(self, found: pa.Table, values: dict[str, str]) -> pa.Table:
        """Take columns that were not set from the old rows, where DuckDB's types hold less."""
        lost = [
            each.name
            for each in self._schema
            if each.name not in values and not _is_kept_by_duckdb(each.type)
        ]
        if not lost or not found.num_rows:
            return found
        keys = found.select(self._old_key).rename_columns(list(self._key))
        old = self._table.get_many(self._fitted(keys))
        for name in lost:
            place = found.schema.get_field_index(name)
            found = found.set_column(place, self._schema.field(name), old.column(name))
        return found

    def _fitted(self, rows: pa.Table) -> pa.Table:
        """Return rows with the types of the table."""
        columns = {
            name: _fitted_column(rows.column(name), self._schema.field(name).type)
            for name in rows.column_names
        }
        return pa.table(columns)

    def _repeated(self, rows: pa.Table, key: Sequence[str]) -> pa.Table:
        """Return some keys that several rows have; such rows are then the relation ROWS."""
        keys = rows.select(key)
        distinct = _distinct(keys)
        if distinct is not None and distinct.num_rows == keys.num_rows:
            return keys.slice(0, 0)
        self._relations.add(ROWS, rows)
        names = names_of(key)
        return self._plain_rows(
            f"SELECT {names} FROM {quoted(ROWS)} GROUP BY {names} HAVING count(*) > 1 "
            f"ORDER BY {names} LIMIT {KEYS_SHOWN}"
        )

    def _first_of_each(self) -> pa.Table:
        names = names_of(self._key)
        return self._fitted(
            self._plain_rows(
                f"SELECT * FROM {quoted(ROWS)} QUALIFY row_number() OVER (PARTITION BY {names}) = 1"
            )
        )

    def _refuse_repeated(self, changed: pa.Table) -> None:
        repeated = self._repeated(changed, self._old_key)
        if repeated.num_rows:
            raise several_change_one(repeated.to_pylist())

    def _write(
        self,
        *,
        inserted: pa.Table | None = None,
        updated: pa.Table | None = None,
        deleted: pa.Table | None = None,
    ) -> Changed:
        counts: list[int] = []
        for rows, write in (
            (deleted, self._table.delete_many),
            (updated, self._table.upsert),
            (inserted, self._table.upsert),
        ):
            if rows is not None and rows.num_rows:
                write(rows)
            counts.append(0 if rows is None else rows.num_rows)
        return Changed(deleted=counts[0], updated=counts[1], inserted=counts[2])


def _distinct(keys: pa.Table) -> pa.Table | None:
    """Return each key once; None where Arrow may not compare as DuckDB does."""
    if not all(pa.types.is_integer(each) or pa.types.is_string(each) for each in keys.schema.types):
        return None
    return keys.group_by(keys.column_names, use_threads=False).aggregate([])


def _first(rows: pa.Table) -> list[dict[str, object]]:
    """Return the rows that an error shows."""
    return rows.slice(0, KEYS_SHOWN).to_pylist()


def _is_kept_by_duckdb(type_: pa.DataType, *, is_inside: bool = False) -> bool:
    """Return whether values of a type come out of DuckDB as they went in."""
    if isinstance(type_, pa.TimestampType):
        return type_.unit == "us" or type_.tz is None
    if isinstance(type_, pa.UuidType) or pa.types.is_fixed_size_binary(type_):
        return not is_inside
    if pa.types.is_nested(type_):
        return all(_is_kept_by_duckdb(each.type, is_inside=True) for each in child_fields(type_))
    return True


def _fitted_column(column: ArrowColumn, type_: pa.DataType) -> ArrowColumn:
    if column.type == type_:
        return column
    if not len(column):
        return pa.chunked_array([nulls(0, type_)])
    if not _is_kept_by_duckdb(type_) and pa.types.is_nested(type_):
        raise SchemaMismatch(
            f"SQL cannot write values of {type_}", hint="Write the rows with upsert"
        )
    if isinstance(type_, pa.UuidType):
        plain = pc.replace_substring(column.cast(pa.string()), "-", "").combine_chunks()
        values = [None if each is None else bytes.fromhex(each) for each in plain.to_pylist()]
        return pa.chunked_array([pa.array(values, type_)])
    return column.cast(type_)
