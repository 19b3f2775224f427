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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from neve.catalog.sql_door import Parameters
from neve.errors import AlreadyExists, InvalidArgument, NotFound, SchemaMismatch
from neve.model.array_fit import nulls
from neve.model.arrow_types import child_fields
from neve.model.display import shown
from neve.model.schema import TableSchema
from neve.model.suggestions import known_names_hint
from neve.sql.database import names_of
from neve.sql.parser import quoted
from neve.sql.relations import RelationSet
from neve.sql.statements import (
    Assignments,
    Change,
    Delete,
    Insert,
    Merge,
    MergeAction,
    MergeClause,
    MergeWhen,
    OnConflict,
    Target,
    Update,
)

_ROWS: Final = "neve rows"
_FOUND: Final = "neve found"
_SOURCE: Final = "neve source"
_CLAUSE: Final = "neve clause"
_MATCHED: Final = "neve matched"
_KEYS_SHOWN: Final = 3
ArrowColumn: TypeAlias = "pa.ChunkedArray[pa.Scalar[pa.DataType]]"


class ChangingTable(Protocol):
    """The table of a transaction that a statement changes."""

    @property
    def schema(self) -> TableSchema:
        """Columns of its rows."""
        ...

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the key columns, in key order."""
        ...

    def get_many(self, keys: object, *, with_missing: bool = False) -> pa.Table:
        """Return the rows of keys."""
        ...

    def upsert(self, rows: pa.Table, columns: Sequence[str] | None = None) -> object:
        """Write rows, or some columns of them."""
        ...

    def delete_many(self, keys: object) -> object:
        """Delete the rows of keys."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """How many rows a statement inserted, updated and deleted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def count(self) -> int:
        """Rows in all."""
        return self.inserted + self.updated + self.deleted

    def rows(self) -> pa.Table:
        """Return the counts as a result."""
        return pa.table(
            {
                "inserted": [self.inserted],
                "updated": [self.updated],
                "deleted": [self.deleted],
            }
        )


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
        self._target = target
        self._params = params
        self._schema = table.schema.arrow_schema
        self._key = table.primary_key
        self._old_key = [f"neve old {name}" for name in self._key]
        lossy = [
            name for name in self._key if not _is_kept_by_duckdb(self._schema.field(name).type)
        ]
        if lossy:
            raise InvalidArgument(
                f"SQL cannot change rows by the key column {shown(lossy[0])}: DuckDB does not keep "
                "its nanoseconds",
                hint="Use upsert and delete_many",
            )
        self._relation = quoted(target.table)
        self._types = self._column_types()

    # INSERT

    def insert(self, statement: Insert) -> Changed:
        given = self._rows(statement.rows.text)
        names = self._inserted_columns(statement, given)
        self._relations.add(_ROWS, given.rename_columns([f"c{at}" for at in range(len(names))]))
        chosen = ", ".join(
            f"{self._cast(f'c{at}', name)} AS {quoted(name)}" for at, name in enumerate(names)
        )
        rows = self._fitted(self._plain_rows(f"SELECT {chosen} FROM {quoted(_ROWS)}"))
        missing = [name for name in self._key if name not in names]
        if missing:
            raise InvalidArgument(
                f"INSERT leaves out the key column {shown(missing[0])}",
                hint="Give every column of the primary key",
            )
        self._relations.add(_ROWS, rows)
        repeated = self._repeated(_ROWS, self._key)
        if statement.on_conflict is OnConflict.IGNORE and repeated.num_rows:
            rows = self._first_of_each()
        elif repeated.num_rows:
            raise self._exist(repeated, "INSERT has two rows with one key")
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
            raise self._exist(
                existing, "INSERT of a row whose key exists", "INSERT OR REPLACE replaces them"
            )
        self._relations.add(_ROWS, rows)
        self._relations.add(_FOUND, existing)
        same = " AND ".join(f"n.{quoted(k)} = o.{quoted(k)}" for k in self._key)
        new = self._plain_rows(
            f"SELECT n.* FROM {quoted(_ROWS)} n WHERE NOT EXISTS "
            f"(SELECT 1 FROM {quoted(_FOUND)} o WHERE {same})"
        )
        if statement.on_conflict is OnConflict.IGNORE:
            return self._write(inserted=new)
        return self._write(inserted=new, updated=self._on_conflict(statement))

    def _inserted_columns(self, statement: Insert, given: pa.Table) -> list[str]:
        if statement.is_by_name:
            names = given.column_names
        elif statement.columns:
            names = list(statement.columns)
        else:
            names = self._schema.names
        if len(names) != given.num_columns:
            raise InvalidArgument(
                f"INSERT into {len(names)} columns has rows of {given.num_columns} values",
                hint=f"Name the columns of the values: {', '.join(self._schema.names[:10])}",
            )
        return [self._column(name) for name in names]

    def _on_conflict(self, statement: Insert) -> pa.Table:
        values = self._set(statement.updates)
        self._refuse_key(values)
        alias = quoted(self._target.alias)
        same = " AND ".join(f"{alias}.{quoted(k)} = excluded.{quoted(k)}" for k in self._key)
        where = f" WHERE {statement.where}" if statement.where else ""
        found = self._plain_rows(
            f"SELECT {self._whole_rows(values)}{self._old_keys()} FROM {quoted(_FOUND)} AS {alias} "
            f"JOIN {quoted(_ROWS)} AS excluded ON {same}{where}",
            with_params=True,
        )
        return self._fitted(self._restored(found, values).drop_columns(self._old_key))

    # UPDATE and DELETE

    def update(self, statement: Update) -> Changed:
        values = self._set(statement.assignments)
        moves = any(name in self._key for name in values)
        found = self._rows(
            f"{statement.ctes}SELECT {self._whole_rows(values)}{self._old_keys()} "
            f"{self._from(statement)}"
        )
        if statement.sources:
            self._relations.add(_ROWS, found)
            self._refuse_repeated(self._old_key)
        found = self._restored(found, values)
        if moves:
            return self._move(found)
        rows = self._fitted(found.drop_columns(self._old_key))
        if self._table.schema.rules.merge and rows.num_rows:
            self._table.upsert(rows.select([*self._key, *values]), columns=list(values))
            return Changed(updated=rows.num_rows)
        return self._write(updated=rows)

    def delete(self, statement: Delete) -> Changed:
        keys = ", ".join(f"{quoted(self._target.alias)}.{quoted(name)}" for name in self._key)
        found = self._rows(f"{statement.ctes}SELECT DISTINCT {keys} {self._from(statement)}")
        return self._write(deleted=found)

    def _from(self, statement: Update | Delete) -> str:
        sources = f", {statement.sources}" if statement.sources else ""
        where = f" WHERE {statement.where}" if statement.where else ""
        return f"FROM {self._relation} AS {quoted(self._target.alias)}{sources}{where}"

    def _old_keys(self) -> str:
        alias = quoted(self._target.alias)
        return "".join(
            f", {alias}.{quoted(name)} AS {quoted(old)}"
            for name, old in zip(self._key, self._old_key, strict=True)
        )

    def _move(self, found: pa.Table) -> Changed:
        """Write rows under new keys, and delete the old ones."""
        self._relations.add(_ROWS, found.select([*self._key, *self._old_key]))
        repeated = self._repeated(_ROWS, self._key)
        if repeated.num_rows:
            raise self._exist(repeated, "UPDATE would give two rows one key")
        kept = " AND ".join(
            f"n.{quoted(name)} = o.{quoted(old)}"
            for name, old in zip(self._key, self._old_key, strict=True)
        )
        new_keys = self._plain_rows(
            f"SELECT {names_of(self._key)} FROM {quoted(_ROWS)} n WHERE NOT EXISTS "
            f"(SELECT 1 FROM {quoted(_ROWS)} o WHERE {kept})"
        )
        taken = self._table.get_many(self._fitted(new_keys))
        if taken.num_rows:
            raise self._exist(taken, "UPDATE would give a row a key that exists")
        old = found.select(self._old_key).rename_columns(list(self._key))
        if old.num_rows:
            self._table.delete_many(self._fitted(old))
        return self._write(updated=self._fitted(found.drop_columns(self._old_key)))

    # MERGE

    def merge(self, statement: Merge) -> Changed:
        source = self._rows(f"{statement.ctes}SELECT * FROM {statement.source}")
        self._relations.add(_SOURCE, source)
        parts: list[pa.Table] = []
        clauses = statement.clauses
        actions = [clause.action for clause in clauses]
        joined = [
            n for n, each in enumerate(clauses) if each.when is not MergeWhen.NOT_MATCHED_BY_SOURCE
        ]
        if joined:
            parts.append(self._merge_part(statement, source, joined))
        unmatched = [n for n in range(len(clauses)) if n not in joined]
        if unmatched:
            parts.append(self._unmatched_part(statement, source, unmatched))
        found = pa.concat_tables(parts, promote_options="permissive")
        clause = found.column(_CLAUSE)
        numbers = {
            action: pa.array([n for n, each in enumerate(actions) if each is action], pa.int32())
            for action in MergeAction
        }
        chosen = {
            action: found.filter(pc.is_in(clause, value_set=numbers[action]))
            for action in MergeAction
        }
        changed = pa.concat_tables([chosen[MergeAction.UPDATE], chosen[MergeAction.DELETE]])
        self._relations.add(_ROWS, changed)
        self._refuse_repeated(self._old_key)
        rest = [_CLAUSE, *self._old_key]
        inserted = self._fitted(chosen[MergeAction.INSERT].drop_columns(rest))
        updates = [
            self._updated(found.filter(pc.field(_CLAUSE) == number), each, statement, source)
            for number, each in enumerate(clauses)
            if each.action is MergeAction.UPDATE
        ]
        updated = pa.concat_tables(updates) if updates else None
        deleted = self._fitted(
            chosen[MergeAction.DELETE].select(self._old_key).rename_columns(list(self._key))
        )
        self._check_inserted(inserted, deleted)
        return self._write(inserted=inserted, updated=updated, deleted=deleted)

    def _updated(
        self, found: pa.Table, clause: MergeClause, statement: Merge, source: pa.Table
    ) -> pa.Table:
        values = self._clause_values(clause, statement, source)
        rows = self._restored(found, values).drop_columns([_CLAUSE, *self._old_key])
        return self._fitted(rows)

    def _check_inserted(self, inserted: pa.Table, deleted: pa.Table) -> None:
        """Raise AlreadyExists for rows whose keys exist and are not deleted by this statement."""
        if not inserted.num_rows:
            return
        self._relations.add(_ROWS, inserted)
        repeated = self._repeated(_ROWS, self._key)
        if repeated.num_rows:
            raise self._exist(repeated, "MERGE would insert two rows with one key")
        existing = self._table.get_many(inserted.select(list(self._key)))
        if existing.num_rows and deleted.num_rows:
            self._relations.add(_FOUND, existing)
            self._relations.add(_ROWS, deleted)
            existing = self._plain_rows(
                f"SELECT * FROM {quoted(_FOUND)} ANTI JOIN {quoted(_ROWS)} USING "
                f"({names_of(self._key)})"
            )
        if existing.num_rows:
            raise self._exist(existing, "MERGE would insert a row whose key exists")

    def _merge_part(self, statement: Merge, source: pa.Table, numbers: list[int]) -> pa.Table:
        """Join the source with the rows it matches; of several clauses the first one counts."""
        alias = quoted(self._target.alias)
        target = self._relation
        found = self._rows_of_keys(statement)
        if found is not None:
            self._relations.add(_FOUND, found)
            target = quoted(_FOUND)
        matched = f"{alias}.{quoted(_MATCHED)} IS NOT NULL"
        choice = self._choice(
            [
                (
                    n,
                    matched
                    if statement.clauses[n].when is MergeWhen.MATCHED
                    else f"NOT ({matched})",
                    statement.clauses[n],
                )
                for n in numbers
            ]
        )
        return self._rows(
            f"SELECT {choice} AS {quoted(_CLAUSE)}, {self._merged(statement, source, choice)}"
            f"{self._old_keys()} FROM {quoted(_SOURCE)} AS {quoted(statement.source_alias)} "
            f"LEFT JOIN (SELECT *, TRUE AS {quoted(_MATCHED)} FROM {target}) AS {alias} "
            f"ON {statement.on} WHERE {choice} >= 0"
        )

    def _unmatched_part(self, statement: Merge, source: pa.Table, numbers: list[int]) -> pa.Table:
        alias = quoted(self._target.alias)
        choice = self._choice([(n, "TRUE", statement.clauses[n]) for n in numbers])
        return self._rows(
            f"SELECT {choice} AS {quoted(_CLAUSE)}, {self._merged(statement, source, choice)}"
            f"{self._old_keys()} FROM {self._relation} AS {alias} WHERE NOT EXISTS "
            f"(SELECT 1 FROM {quoted(_SOURCE)} AS {quoted(statement.source_alias)} "
            f"WHERE {statement.on}) AND {choice} >= 0"
        )

    def _choice(self, clauses: Sequence[tuple[int, str, MergeClause]]) -> str:
        whens = " ".join(
            f"WHEN {kind}{f' AND ({clause.condition})' if clause.condition else ''} THEN {number}"
            for number, kind, clause in clauses
        )
        return f"CAST(CASE {whens} ELSE -1 END AS INTEGER)"

    def _merged(self, statement: Merge, source: pa.Table, choice: str) -> str:
        """Return the columns of the new rows, depending on the clause that was chosen."""
        alias = quoted(self._target.alias)
        values = [self._clause_values(each, statement, source) for each in statement.clauses]
        by_source = choice.startswith("CAST(CASE WHEN TRUE")
        columns: list[str] = []
        for name in self._schema.names:
            cases = ""
            for number, (clause, given) in enumerate(zip(statement.clauses, values, strict=True)):
                if (clause.when is MergeWhen.NOT_MATCHED_BY_SOURCE) != by_source:
                    continue
                if clause.action is MergeAction.INSERT:
                    value = given.get(name, self._default(name))
                else:
                    value = given.get(name, f"{alias}.{quoted(name)}")
                cases += f" WHEN {number} THEN {self._cast(value, name)}"
            columns.append(f"CASE {choice}{cases} END AS {quoted(name)}")
        return ", ".join(columns)

    def _clause_values(
        self, clause: MergeClause, statement: Merge, source: pa.Table
    ) -> dict[str, str]:
        if clause.action in (MergeAction.DELETE, MergeAction.NOTHING):
            return {}
        if clause.assignments is not None:
            values = self._set(clause.assignments, is_new=clause.action is MergeAction.INSERT)
            if clause.action is MergeAction.UPDATE:
                self._refuse_key(values)
            return values
        alias = quoted(statement.source_alias)
        known = {name.casefold(): name for name in source.column_names}
        values = {
            name: f"{alias}.{quoted(known[name.casefold()])}"
            for name in self._schema.names
            if name.casefold() in known
        }
        if clause.action is MergeAction.UPDATE:
            matched = {name.casefold() for name, _ in statement.equal_columns}
            values = {
                name: value for name, value in values.items() if name.casefold() not in matched
            }
            self._refuse_key(values)
        return values

    def _rows_of_keys(self, statement: Merge) -> pa.Table | None:
        """Return the rows that the source can match, when ON is about the whole key."""
        equal = {name.casefold(): value for name, value in statement.equal_columns}
        if set(equal) != {name.casefold() for name in self._key}:
            return None
        parts = ", ".join(f"{equal[name.casefold()]} AS {quoted(name)}" for name in self._key)
        known = " AND ".join(f"{equal[name.casefold()]} IS NOT NULL" for name in self._key)
        keys = self._plain_rows(
            f"SELECT DISTINCT {parts} FROM {quoted(_SOURCE)} AS {quoted(statement.source_alias)} "
            f"WHERE {known}"
        )
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

    # Values

    def _column(self, name: str) -> str:
        """Return a column as the table spells it; raises NotFound."""
        for each in self._schema.names:
            if each.casefold() == name.casefold():
                return each
        raise NotFound(
            f"the table {shown(self._target.table)} has no column {shown(name)}",
            hint=known_names_hint(name, self._schema.names),
        )

    def _set(self, assignments: Assignments, *, is_new: bool = False) -> dict[str, str]:
        values = {self._column(name): value for name, value in assignments}
        if not is_new:
            self._refuse_merged(values)
        return values

    def _refuse_merged(self, names: Iterable[str]) -> None:
        schema = self._table.schema
        by_id = {schema.column(name).field_id: name for name in names}
        for field_id, function in schema.rules.merge:
            if field_id in by_id:
                raise InvalidArgument(
                    f"column {shown(by_id[field_id])} cannot be set: what is written to it is "
                    f"merged with the old value by {function}",
                    hint="INSERT OR REPLACE a row with what is to be merged, or DELETE it first",
                )

    def _refuse_key(self, values: dict[str, str]) -> None:
        """Refuse values of key columns, and whole rows of a table that merges some columns."""
        self._refuse_merged(self._schema.names)
        key = next((name for name in self._key if name in values), None)
        if key is not None:
            raise InvalidArgument(
                f"key column {shown(key)} cannot be set here",
                hint="UPDATE may change keys; or delete the row and insert another",
            )

    def _whole_rows(self, values: dict[str, str]) -> str:
        alias = quoted(self._target.alias)
        return ", ".join(
            f"{self._cast(values[name], name)} AS {quoted(name)}"
            if name in values
            else f"{alias}.{quoted(name)} AS {quoted(name)}"
            for name in self._schema.names
        )

    def _default(self, name: str) -> str:
        value = self._table.schema.column(name).write_default
        if value is None:
            return "NULL"
        text = str(value).replace("'", "''")
        return f"'{text}'"

    def _cast(self, value: str, name: str) -> str:
        return f"CAST({value} AS {self._types[name]})"

    def _column_types(self) -> dict[str, str]:
        """Return the types of the columns as DuckDB spells them."""
        found = self._relations.rows(f"DESCRIBE {self._relation}")
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

    def _repeated(self, relation: str, key: Sequence[str]) -> pa.Table:
        names = names_of(key)
        return self._plain_rows(
            f"SELECT {names} FROM {quoted(relation)} GROUP BY {names} HAVING count(*) > 1 "
            f"LIMIT {_KEYS_SHOWN}"
        )

    def _first_of_each(self) -> pa.Table:
        names = names_of(self._key)
        return self._fitted(
            self._plain_rows(
                f"SELECT * FROM {quoted(_ROWS)} "
                f"QUALIFY row_number() OVER (PARTITION BY {names}) = 1"
            )
        )

    def _refuse_repeated(self, key: Sequence[str]) -> None:
        repeated = self._repeated(_ROWS, key)
        if repeated.num_rows:
            raise InvalidArgument(
                f"several rows of the source change one row: {_shown_keys(repeated)}",
                hint="Make the source have one row for each row that it matches",
            )

    def _exist(self, keys: pa.Table, what: str, hint: str = "") -> AlreadyExists:
        return AlreadyExists(
            f"{what}: {_shown_keys(keys.select(list(self._key)))}",
            hint=hint or "Give each row a key of its own",
        )

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


def _shown_keys(keys: pa.Table) -> str:
    rows = keys.slice(0, _KEYS_SHOWN).to_pylist()
    return "; ".join(
        ", ".join(f"{name.removeprefix('neve old ')}={shown(value)}" for name, value in row.items())
        for row in rows
    )
