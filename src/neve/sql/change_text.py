"""The SELECTs of INSERT, UPDATE, DELETE and MERGE, as text for any engine.

Each finds whole new rows of the changed table, and the keys of the old ones beside them. What can
be checked without looking at rows is checked here, so every engine refuses the same statements:
unknown columns, columns of the key, columns that merge what is written to them.

    target        the changed table, under the name that the statement has for it
    old key       `neve old id`, a column for each one of the key
    clause        `neve clause`, the number of the clause of MERGE that a row is for
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from neve.errors import AlreadyExists, InvalidArgument, NotFound
from neve.model.display import shown
from neve.model.schema import TableSchema
from neve.model.suggestions import known_names_hint
from neve.sql.statements import (
    Assignments,
    Delete,
    Dialect,
    Insert,
    Merge,
    MergeAction,
    MergeClause,
    MergeWhen,
    Target,
    Update,
)

ROWS: Final = "neve rows"
FOUND: Final = "neve found"
SOURCE: Final = "neve source"
CLAUSE: Final = "neve clause"
KEYS_SHOWN: Final = 3
_MATCHED: Final = "neve matched"
_OLD: Final = "neve old "


class Clash(StrEnum):
    """Why a statement would give two rows one key (SQL-3, SQL-5)."""

    INSERT_TWICE = "INSERT has two rows with one key"
    INSERT_EXISTS = "INSERT of a row whose key exists"
    UPDATE_TWICE = "UPDATE would give two rows one key"
    UPDATE_EXISTS = "UPDATE would give a row a key that exists"
    MERGE_TWICE = "MERGE would insert two rows with one key"
    MERGE_EXISTS = "MERGE would insert a row whose key exists"


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


class ChangeText:
    """Writes the SELECTs of one statement."""

    def __init__(
        self, target: Target, schema: TableSchema, types: Mapping[str, str], dialect: Dialect
    ) -> None:
        """Begin; `types` are those of the columns, as the engine spells them."""
        self._target = target
        self._schema = schema
        self._types = types
        self._quoted = dialect.quoted
        self._literal = dialect.literal
        self._alias = dialect.quoted(target.alias)
        self.names: list[str] = schema.arrow_schema.names
        self.key: list[str] = [column.name for column in schema.key_columns]
        self.old_key: list[str] = [f"{_OLD}{name}" for name in self.key]
        self.relation: str = dialect.quoted(target.table)

    # INSERT

    def inserted_columns(self, statement: Insert, given: Sequence[str]) -> list[str]:
        """Return the columns of the table that the given ones are for; raises."""
        if statement.is_by_name:
            names = list(given)
        elif statement.columns:
            names = list(statement.columns)
        else:
            names = self.names
        if len(names) != len(given):
            raise InvalidArgument(
                f"INSERT into {len(names)} columns has rows of {len(given)} values",
                hint=f"Name the columns of the values: {', '.join(self.names[:10])}",
            )
        found = [self.column(name) for name in names]
        missing = [name for name in self.key if name not in found]
        if missing:
            raise InvalidArgument(
                f"INSERT leaves out the key column {shown(missing[0])}",
                hint="Give every column of the primary key",
            )
        return found

    def conflict_values(self, statement: Insert) -> dict[str, str]:
        """Return what ON CONFLICT DO UPDATE sets."""
        values = self.set(statement.updates)
        self._refuse_key(values)
        return values

    def on_conflict(self, statement: Insert) -> str:
        """Select the rows of ON CONFLICT DO UPDATE, from those found and the new ones."""
        values = self.conflict_values(statement)
        same = " AND ".join(
            f"{self._alias}.{self._quoted(k)} = excluded.{self._quoted(k)}" for k in self.key
        )
        where = f" WHERE {statement.where}" if statement.where else ""
        return (
            f"SELECT {self._whole_rows(values)}{self._old_keys()} FROM {self._quoted(FOUND)} AS "
            f"{self._alias} JOIN {self._quoted(ROWS)} AS excluded ON {same}{where}"
        )

    # UPDATE and DELETE

    def update(self, statement: Update) -> str:
        """Select the new rows of UPDATE."""
        values = self.set(statement.assignments)
        return (
            f"{statement.ctes}SELECT {self._whole_rows(values)}{self._old_keys()} "
            f"{self._from(statement)}"
        )

    def delete(self, statement: Delete) -> str:
        """Select the keys of DELETE."""
        keys = ", ".join(f"{self._alias}.{self._quoted(name)}" for name in self.key)
        return f"{statement.ctes}SELECT DISTINCT {keys} {self._from(statement)}"

    def _from(self, statement: Update | Delete) -> str:
        sources = f", {statement.sources}" if statement.sources else ""
        where = f" WHERE {statement.where}" if statement.where else ""
        return f"FROM {self.relation} AS {self._alias}{sources}{where}"

    def _old_keys(self) -> str:
        return "".join(
            f", {self._alias}.{self._quoted(name)} AS {self._quoted(old)}"
            for name, old in zip(self.key, self.old_key, strict=True)
        )

    # MERGE

    def source(self, statement: Merge) -> str:
        """Select the source of MERGE."""
        return f"{statement.ctes}SELECT * FROM {statement.source}"

    def source_keys(self, statement: Merge) -> str | None:
        """Select the keys that the source can match, when ON compares the whole key."""
        if all(each.when is MergeWhen.NOT_MATCHED_BY_SOURCE for each in statement.clauses):
            return None  # rows are matched only to leave them out
        equal = {name.casefold(): value for name, value in statement.equal_columns}
        if set(equal) != {name.casefold() for name in self.key}:
            return None
        parts = ", ".join(f"{equal[n.casefold()]} AS {self._quoted(n)}" for n in self.key)
        known = " AND ".join(f"{equal[name.casefold()]} IS NOT NULL" for name in self.key)
        return (
            f"SELECT DISTINCT {parts} FROM {self._quoted(SOURCE)} AS "
            f"{self._quoted(statement.source_alias)} WHERE {known}"
        )

    def merge(self, statement: Merge, source: Sequence[str], *, is_found: bool) -> list[str]:
        """Select the changes of MERGE; `source` are its columns.

        `is_found` says that the rows that the source can match are a relation of their own.
        """
        clauses = statement.clauses
        joined = [
            n for n, each in enumerate(clauses) if each.when is not MergeWhen.NOT_MATCHED_BY_SOURCE
        ]
        unmatched = [n for n in range(len(clauses)) if n not in joined]
        texts: list[str] = []
        if joined:
            texts.append(self._matched_part(statement, source, joined, is_found=is_found))
        if unmatched:
            texts.append(self._unmatched_part(statement, source, unmatched))
        return texts

    def _matched_part(
        self, statement: Merge, source: Sequence[str], numbers: list[int], *, is_found: bool
    ) -> str:
        """Join the source with the rows it matches; the first clause that fits counts."""
        target = self._quoted(FOUND) if is_found else self.relation
        matched = f"{self._alias}.{self._quoted(_MATCHED)} IS NOT NULL"
        choice = _choice(
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
        return (
            f"SELECT {choice} AS {self._quoted(CLAUSE)}, "
            f"{self._merged(statement, source, numbers, choice)}{self._old_keys()} "
            f"FROM {self._quoted(SOURCE)} AS {self._quoted(statement.source_alias)} "
            f"LEFT JOIN (SELECT *, TRUE AS {self._quoted(_MATCHED)} FROM {target}) AS "
            f"{self._alias} ON {statement.on} WHERE {choice} >= 0"
        )

    def _unmatched_part(self, statement: Merge, source: Sequence[str], numbers: list[int]) -> str:
        choice = _choice([(n, "TRUE", statement.clauses[n]) for n in numbers])
        return (
            f"SELECT {choice} AS {self._quoted(CLAUSE)}, "
            f"{self._merged(statement, source, numbers, choice)}{self._old_keys()} "
            f"FROM {self.relation} AS {self._alias} WHERE NOT EXISTS "
            f"(SELECT 1 FROM {self._quoted(SOURCE)} AS {self._quoted(statement.source_alias)} "
            f"WHERE {statement.on}) AND {choice} >= 0"
        )

    def _merged(
        self, statement: Merge, source: Sequence[str], numbers: list[int], choice: str
    ) -> str:
        """Return the columns of the new rows, depending on the clause that was chosen."""
        values = {n: self.clause_values(statement.clauses[n], statement, source) for n in numbers}
        columns: list[str] = []
        for name in self.names:
            cases = ""
            for number, given in values.items():
                if statement.clauses[number].action is MergeAction.INSERT:
                    value = given.get(name, self.default(name))
                else:
                    value = given.get(name, f"{self._alias}.{self._quoted(name)}")
                cases += f" WHEN {number} THEN {self.cast(value, name)}"
            columns.append(f"CASE {choice}{cases} END AS {self._quoted(name)}")
        return ", ".join(columns)

    def clause_values(
        self, clause: MergeClause, statement: Merge, source: Sequence[str]
    ) -> dict[str, str]:
        """Return what a clause of MERGE writes, by column."""
        if clause.action in (MergeAction.DELETE, MergeAction.NOTHING):
            return {}
        if clause.assignments is not None:
            values = self.set(clause.assignments, is_new=clause.action is MergeAction.INSERT)
            if clause.action is MergeAction.UPDATE:
                self._refuse_key(values)
            return values
        alias = self._quoted(statement.source_alias)
        known = {name.casefold(): name for name in source}
        values = {
            name: f"{alias}.{self._quoted(known[name.casefold()])}"
            for name in self.names
            if name.casefold() in known
        }
        if clause.action is MergeAction.UPDATE:
            matched = {name.casefold() for name, _ in statement.equal_columns}
            values = {
                name: value for name, value in values.items() if name.casefold() not in matched
            }
            self._refuse_key(values)
        return values

    # Values

    def column(self, name: str) -> str:
        """Return a column as the table spells it; raises NotFound."""
        for each in self.names:
            if each.casefold() == name.casefold():
                return each
        raise NotFound(
            f"the table {shown(self._target.table)} has no column {shown(name)}",
            hint=known_names_hint(name, self.names),
        )

    def set(self, assignments: Assignments, *, is_new: bool = False) -> dict[str, str]:
        """Return expressions by column, as the table spells it; raises."""
        values = {self.column(name): value for name, value in assignments}
        if not is_new:
            self._refuse_merged(values)
        return values

    def _refuse_merged(self, names: Iterable[str]) -> None:
        by_id = {self._schema.column(name).field_id: name for name in names}
        for field_id, function in self._schema.rules.merge:
            if field_id in by_id:
                raise InvalidArgument(
                    f"column {shown(by_id[field_id])} cannot be set: what is written to it is "
                    f"merged with the old value by {function}",
                    hint="INSERT OR REPLACE a row with what is to be merged, or DELETE it first",
                )

    def _refuse_key(self, values: Mapping[str, str]) -> None:
        """Refuse values of key columns, and whole rows of a table that merges some columns."""
        self._refuse_merged(self.names)
        key = next((name for name in self.key if name in values), None)
        if key is not None:
            raise InvalidArgument(
                f"key column {shown(key)} cannot be set here",
                hint="UPDATE may change keys; or delete the row and insert another",
            )

    def _whole_rows(self, values: Mapping[str, str]) -> str:
        return ", ".join(
            f"{self.cast(values[name], name)} AS {self._quoted(name)}"
            if name in values
            else f"{self._alias}.{self._quoted(name)} AS {self._quoted(name)}"
            for name in self.names
        )

    def default(self, name: str) -> str:
        """Return the default of a column as an expression."""
        value = self._schema.column(name).write_default
        return "NULL" if value is None else self._literal(value)

    def cast(self, value: str, name: str) -> str:
        """Return an expression with the type of a column."""
        return f"CAST({value} AS {self._types[name]})"

    # Errors

    def exists(self, keys: Iterable[Mapping[str, Any]], clash: Clash) -> AlreadyExists:
        """Return the error for rows whose keys are there."""
        return AlreadyExists(
            f"{clash}: {_shown_keys({name: row[name] for name in self.key} for row in keys)}",
            hint="INSERT OR REPLACE replaces them"
            if clash is Clash.INSERT_EXISTS
            else "Give each row a key of its own",
        )


def several_change_one(keys: Iterable[Mapping[str, Any]]) -> InvalidArgument:
    """Return the error for rows of a source that change the same row."""
    return InvalidArgument(
        f"several rows of the source change one row: {_shown_keys(keys)}",
        hint="Make the source have one row for each row that it matches",
    )


def _choice(clauses: Sequence[tuple[int, str, MergeClause]]) -> str:
    whens = " ".join(
        f"WHEN {kind}{f' AND ({clause.condition})' if clause.condition else ''} THEN {number}"
        for number, kind, clause in clauses
    )
    return f"CAST(CASE {whens} ELSE -1 END AS INTEGER)"


def _shown_keys(keys: Iterable[Mapping[str, Any]]) -> str:
    return "; ".join(
        ", ".join(f"{name.removeprefix(_OLD)}={shown(value)}" for name, value in row.items())
        for row in list(keys)[:KEYS_SHOWN]
    )
