"""Text of SQL into statements, by sqlglot's readers of the dialects of DuckDB and Spark.

A query stays as it was written: only the names of tables are replaced, and the clauses of old
versions with them, so the engine sees the text of the user and its messages point into it.

    select o.id from shop.orders for version as of 12 o
    select o.id from "shop.orders@12" o

Names with a dot are tables of the lake. In other statements the parts are written again from
what sqlglot read.

SQL-1  What is not a statement of `neve.sql.statements` is refused: there is no way to SET, COPY,
       ATTACH, INSTALL, LOAD or PRAGMA.
SQL-2  `?` is numbered before anything else, so a statement may use its parameters in any order:
       `$1` for DuckDB, `:_1` for Spark.
"""

import logging
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from neve.errors import InvalidArgument, LimitExceeded
from neve.model.display import shown
from neve.sql.definition_parser import (
    alter_table,
    create_namespace,
    create_table,
    dotted,
    drop,
)
from neve.sql.statements import (
    Assignments,
    Call,
    ChangesRelation,
    Control,
    Delete,
    Dialect,
    Explain,
    Insert,
    Merge,
    MergeAction,
    MergeClause,
    MergeWhen,
    NamedRelation,
    OnConflict,
    Query,
    Relation,
    Relations,
    Show,
    Statement,
    TableRelation,
    Target,
    Update,
)

THIS: Final = "this"
TEXT_MAX: Final = 1 << 20
_CACHED: Final = 256
_PARAMETER: Final = {Dialect.DUCKDB: "$", Dialect.SPARK: ":_"}
_QUERIES: Final = (exp.Query, exp.Pivot, exp.Summarize, exp.Values, exp.Table)
_VERSION: Final = re.compile(
    r"\s*(?:"
    r"(?:FOR\s+)?(?P<unit>VERSION|TIMESTAMP|SYSTEM_TIME)\s+AS\s+OF\s+(?P<at>{value})"
    r"|AT\s*\(\s*(?P<unit2>VERSION|TIMESTAMP)\s*=>\s*(?P<at2>{value})\s*\)"
    r")".format(value=r"(?:(?:TIMESTAMP(?:TZ|\s+WITH\s+TIME\s+ZONE)?\s+)?'(?:[^']|'')*'|\d+)"),
    re.IGNORECASE,
)
_TYPED_TEXT: Final = re.compile(r"'((?:[^']|'')*)'\s*\Z")
_SHOW: Final = re.compile(
    r"SHOW\s+(?:(?P<what>TABLES|NAMESPACES|SCHEMAS|COLUMNS)"
    r"(?:\s+(?:IN|FROM)\s+(?P<name>\S+))?)\s*\Z",
    re.IGNORECASE,
)
_EXPLAIN: Final = re.compile(r"\s*EXPLAIN\s+(?P<analyze>ANALYZE\s+)?", re.IGNORECASE)
_CALL: Final = re.compile(r"\s*CALL\s+(?P<procedure>[A-Za-z_]\w*)\s*(?=\()", re.IGNORECASE)
_CONTROL: Final = {
    exp.Transaction: Control.BEGIN,
    exp.Commit: Control.COMMIT,
    exp.Rollback: Control.ROLLBACK,
}
# sqlglot warns of what it reads only roughly; such statements are refused here.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


def parse(text: str, dialect: Dialect = Dialect.DUCKDB) -> tuple[Statement, ...]:
    """Read statements that are separated by semicolons; raises InvalidArgument, LimitExceeded."""
    if not isinstance(text, str):
        raise InvalidArgument(f"SQL is text, not {type(text).__name__}", hint="Pass a str")
    if len(text) > TEXT_MAX:
        raise LimitExceeded(
            "the text of SQL is too long",
            limit=TEXT_MAX,
            actual=len(text),
            hint="Pass many rows as a frame, by name",
        )
    return _parsed(text, dialect)


@lru_cache(maxsize=_CACHED)
def _parsed(text: str, dialect: Dialect) -> tuple[Statement, ...]:
    return tuple(_Text(each, dialect).statement() for each in split(text, dialect))


def ends_statement(text: str) -> bool:
    """Return whether a text ends with the semicolon of a statement, and not inside of quotes."""
    try:
        tokens = sqlglot.tokenize(text, read=Dialect.DUCKDB)
    except TokenError:
        return False
    return bool(tokens) and tokens[-1].token_type is TokenType.SEMICOLON


def split(text: str, dialect: Dialect = Dialect.DUCKDB) -> list[str]:
    """Return the texts of statements that are separated by semicolons, without empty ones."""
    try:
        tokens = sqlglot.tokenize(text, read=dialect)
    except TokenError as error:
        raise _unreadable(text, str(error)) from error
    texts: list[str] = []
    own: list[Token] = []
    parameters = 0
    for token in [*tokens, None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            own.append(token)
            continue
        if own:
            parts: list[str] = []
            at = own[0].start
            for each in own:
                if each.token_type is TokenType.PLACEHOLDER:
                    parameters += 1
                    parts.append(f"{text[at : each.start]}{_PARAMETER[dialect]}{parameters}")
                    at = each.end + 1
            found = "".join(parts) + text[at : own[-1].end + 1]
            explained = _EXPLAIN.match(found)
            if explained is not None and own[0].token_type is TokenType.COMMAND:
                # To the reader of Spark's dialect, what follows EXPLAIN is one word.
                words = found[: explained.end()]
                texts += [f"{words}{each}" for each in split(found[explained.end() :], dialect)]
            else:
                texts.append(found)
        own = []
    return texts


def _unreadable(text: str, reason: str, *, line: int = 0, column: int = 0) -> InvalidArgument:
    """Return the error for a mistake, with the line it is in and a caret below it."""
    drawing = ""
    lines = text.splitlines()
    if 0 < line <= len(lines):
        shown_line = lines[line - 1].replace("\t", " ")
        drawing = f"\nLINE {line}: {shown_line}\n{' ' * (len(f'LINE {line}: ') + column - 1)}^"
    if reason.startswith("Invalid expression"):
        reason = "this is not expected here"
    elif reason.startswith("Required keyword"):
        reason = "something is missing here"
    return InvalidArgument(
        f"the SQL cannot be read{drawing}\n{reason}"
        if drawing
        else f"the SQL cannot be read: {reason}",
        hint="Check quotes, commas and parentheses",
    )


class _Text:
    """One statement's text, and what its names mean."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect
        self._relations: dict[str, Relation] = {}

    def statement(self) -> Statement:
        text = self._text
        explained = _EXPLAIN.match(text)
        if explained is not None:
            inner = _Text(text[explained.end() :], self._dialect).statement()
            if not isinstance(inner, Query):
                self._refuse("EXPLAIN of this statement", "Explain a query")
            return Explain(query=inner, analyze=explained["analyze"] is not None)
        called = _CALL.match(text)
        if called is not None:
            return self._call(called["procedure"].lower(), text[called.end() :])
        asked = _SHOW.match(text)
        if asked is not None:
            what = asked["what"].upper().replace("SCHEMAS", "NAMESPACES")
            return Show(what=what, name=(asked["name"] or "").replace('"', ""))
        return self._read(self._tree(text))

    def _tree(self, text: str) -> exp.Expr:
        try:
            trees = sqlglot.parse(text, read=self._dialect)
        except ParseError as error:
            first = error.errors[0] if error.errors else {}
            column = int(first.get("col") or 0) - len(str(first.get("highlight") or "")) + 1
            raise _unreadable(
                text,
                str(first.get("description") or error).rstrip("."),
                line=int(first.get("line") or 0),
                column=max(column, 1),
            ) from error
        except (SqlglotError, RecursionError) as error:
            raise _unreadable(text, str(error).partition("\n")[0]) from error
        if len(trees) != 1 or trees[0] is None:
            raise _unreadable(text, "it has no statement")
        return trees[0]

    def _read(self, tree: exp.Expr) -> Statement:
        for kind, control in _CONTROL.items():
            if isinstance(tree, kind):
                return control
        match tree:
            case exp.Describe(this=exp.Table() as table) if isinstance(table.this, exp.Identifier):
                return Show(what="COLUMNS", name=dotted(table))
            case exp.Describe() | exp.Pivot() | exp.Summarize():
                return self._query(tree)
            case exp.Insert():
                return self._insert(tree)
            case exp.Update():
                return self._update(tree)
            case exp.Delete():
                return self._delete(tree)
            case exp.TruncateTable() if len(tree.expressions) == 1:
                return Delete(target=self._target(tree.expressions[0]), relations=self._found())
            case exp.Merge():
                return self._merge(tree)
            case exp.Create(kind="TABLE"):
                rows = tree.args.get("expression")
                return create_table(tree, None if rows is None else self._part(rows))
            case exp.Create(kind="NAMESPACE" | "SCHEMA"):
                return create_namespace(tree)
            case exp.Drop(kind="TABLE" | "NAMESPACE" | "SCHEMA"):
                return drop(tree)
            case exp.Alter(kind="TABLE"):
                return alter_table(tree)
            case _ if isinstance(tree, _QUERIES):
                return self._query(tree)
            case _:
                pass
        raise InvalidArgument(
            f"{self._text.split(maxsplit=1)[0].upper()} is not a statement that neve runs",
            hint="Use SELECT, INSERT, UPDATE, DELETE, MERGE, CREATE, ALTER, DROP, SHOW, DESCRIBE, "
            "EXPLAIN, CALL, BEGIN, COMMIT or ROLLBACK",
        )

    def _refuse(self, what: str, hint: str) -> NoReturn:
        raise InvalidArgument(f"{what} is not a statement that neve runs", hint=hint)

    # Names of tables

    def _query(self, tree: exp.Expr) -> Query:
        """Replace names in the text as it was written."""
        edits: dict[int, tuple[int, str]] = {}
        columns = list(tree.find_all(exp.Column))
        called = {each.table or each.name for each in columns}
        for table, relation, name in self._tables(tree):
            start, end = _extent(table)
            version = _VERSION.match(self._text, end)
            if isinstance(relation, ChangesRelation):
                end = self._end_of_call(end)
            elif version is not None:
                end = version.end()
            alias = ""
            if not table.alias and table.name in called and isinstance(relation, TableRelation):
                alias = f" AS {self._dialect.quoted(table.name)}"
            edits[start] = (end, f"{self._dialect.quoted(name)}{alias}")
        for column in columns:
            if column.args.get("db") is not None:
                start, _ = _position(column.parts[0])
                _, end = _position(column.parts[-2])
                edits[start] = (end, self._dialect.quoted(column.table))
        parts: list[str] = []
        at = 0
        for start, (end, replacement) in sorted(edits.items()):
            parts += [self._text[at:start], replacement]
            at = end
        return Query(text="".join(parts) + self._text[at:], relations=self._found())

    def _found(self) -> Relations:
        return tuple(self._relations.items())

    def _tables(self, tree: exp.Expr) -> Iterator[tuple[exp.Table, Relation, str]]:
        """Find the names of relations, and remember what they mean."""
        local = {each.alias.casefold() for each in tree.find_all(exp.CTE)}
        for table in list(tree.find_all(exp.Table)):
            relation = self._relation(table)
            if isinstance(relation, NamedRelation):
                if relation.name.casefold() not in local:
                    self._relations[relation.name] = relation
            elif relation is not None:
                name = self._free_name(relation)
                self._relations[name] = relation
                yield table, relation, name

    def _free_name(self, relation: TableRelation | ChangesRelation) -> str:
        """Return a name for a relation; DuckDB does not distinguish case, and lakes do."""
        name = _name_of(relation)
        folded = {known.casefold(): known for known in self._relations}
        while folded.get(name.casefold(), name) != name:
            name += "'"
        return name

    def _relation(self, table: exp.Table) -> Relation | None:
        if isinstance(table.this, exp.Func):
            if table.this.name.casefold() == "table_changes":
                return _changes(table.this)
            return None
        if not isinstance(table.this, exp.Identifier):
            return None
        if table.args.get("db") is None:
            return NamedRelation(name=table.name)
        version: int | None = None
        timestamp: str | None = None
        found = _VERSION.match(self._text, _extent(table)[1])
        if found is not None:
            unit = (found["unit"] or found["unit2"]).upper()
            at = found["at"] or found["at2"]
            if unit == "VERSION":
                version = _whole(at)
            else:
                timestamp = _moment_text(at)
        elif table.args.get("version") is not None:
            raise InvalidArgument(
                f"the version of {dotted(table)} is not a literal",
                hint="Write FOR VERSION AS OF 12 or FOR TIMESTAMP AS OF '2024-01-31T12:00:00Z'",
            )
        return TableRelation(
            table=dotted(table),
            is_quoted=_is_quoted(table),
            version=version,
            timestamp=timestamp,
        )

    def _end_of_call(self, at: int) -> int:
        """Return the position after the parentheses of a call, whose arguments are literals."""
        tokens = sqlglot.tokenize(self._text[at:], read=self._dialect)
        for token in tokens:
            if token.token_type is TokenType.R_PAREN:
                return at + token.end + 1
        return at

    def _part(self, tree: exp.Expr) -> Query:
        """Write a part of a statement as a query of its own."""
        return Query(text=self._written(tree), relations=self._found())

    def _written(self, tree: exp.Expr | None) -> str:
        """Write a part of a statement again, with the names of relations replaced."""
        if not isinstance(tree, exp.Expr):
            return ""
        tree = tree.copy()
        holder = exp.Paren(this=tree)  # so that the tree itself can be replaced
        for table, relation, name in self._tables(holder):
            known = exp.Table(this=exp.to_identifier(name, quoted=True))
            alias = table.args.get("alias")
            if alias is None and isinstance(relation, TableRelation):
                alias = exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))
            known.set("alias", alias)
            joins = table.args.get("joins")
            if joins:
                known.set("joins", joins)
            table.replace(known)
        for column in list(holder.find_all(exp.Column)):
            if column.args.get("db") is not None:
                column.set("db", None)
                column.set("catalog", None)
        return str(holder.this.sql(dialect=self._dialect))

    # Changes of rows

    def _target(self, table: exp.Expr) -> Target:
        if isinstance(table, exp.Table) and table.sql(dialect=self._dialect).casefold() == THIS:
            self._relations[THIS] = NamedRelation(name=THIS)
            return Target(table=THIS, alias=table.alias or THIS)
        if not isinstance(table, exp.Table) or table.args.get("db") is None:
            raise InvalidArgument(
                f"{shown(table.sql(self._dialect))} is not a table of the lake, to be changed",
                hint="Name it with its namespace, such as shop.orders",
            )
        if table.args.get("version") is not None:
            raise InvalidArgument("an old version cannot be changed", hint="Name only the table")
        is_quoted = _is_quoted(table)
        target = Target(table=dotted(table), alias=table.alias or table.name, is_quoted=is_quoted)
        self._relations[target.table] = TableRelation(table=target.table, is_quoted=is_quoted)
        return target

    def _ctes(self, tree: exp.Expr) -> str:
        with_ = tree.args.get("with_")
        return "" if with_ is None else f"{self._written(with_)} "

    def _assignments(self, expressions: list[exp.Expr]) -> Assignments:
        found: list[tuple[str, str]] = []
        for each in expressions:
            if not isinstance(each, exp.EQ) or not isinstance(each.this, exp.Column):
                self._refuse(f"SET {each.sql(dialect=self._dialect)}", "Write SET column = value")
            value = each.expression
            if isinstance(value, exp.Column) and value.name.upper() == "DEFAULT":
                raise InvalidArgument("SET … = DEFAULT is not supported", hint="Write the value")
            found.append((each.this.name, self._written(value)))
        names = [name.casefold() for name, _ in found]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise InvalidArgument(f"column {shown(repeated)} is set twice", hint="Set it once")
        return tuple(found)

    def _refuse_returning(self, tree: exp.Expr) -> None:
        if tree.args.get("returning") is not None:
            self._refuse("RETURNING", "Query the table before or after the change")

    def _insert(self, tree: exp.Insert) -> Insert:
        self._refuse_returning(tree)
        into = tree.this
        columns: tuple[str, ...] = ()
        if isinstance(into, exp.Schema):
            columns = tuple(each.name for each in into.expressions)
            into = into.this
        target = self._target(into)
        rows = tree.expression
        if rows is None or tree.args.get("overwrite"):
            self._refuse("this INSERT", "Write INSERT INTO … VALUES or SELECT")
        if any(each.name.upper() == "DEFAULT" for each in rows.find_all(exp.Var)):
            raise InvalidArgument(
                "DEFAULT among VALUES is not supported",
                hint="Leave the column out of the list of columns: it gets its default",
            )
        text = self._written(rows)
        ctes = self._ctes(tree)
        conflict, updates, where = self._conflict(tree)
        return Insert(
            target=target,
            rows=Query(text=f"{ctes}{text}", relations=self._found()),
            columns=columns,
            is_by_name=bool(tree.args.get("by_name")),
            on_conflict=conflict,
            updates=updates,
            where=where,
        )

    def _conflict(self, tree: exp.Insert) -> tuple[OnConflict, Assignments, str]:
        alternative = str(tree.args.get("alternative") or "").upper()
        if alternative == "REPLACE":
            return OnConflict.REPLACE, (), ""
        if alternative == "IGNORE" or tree.args.get("ignore"):
            return OnConflict.IGNORE, (), ""
        conflict = tree.args.get("conflict")
        if conflict is None:
            return OnConflict.FAIL, (), ""
        if conflict.args["action"].name.upper() == "DO NOTHING":
            return OnConflict.IGNORE, (), ""
        where = conflict.args.get("where")
        return (
            OnConflict.UPDATE,
            self._assignments(conflict.expressions),
            "" if where is None else self._written(where.this),
        )

    def _update(self, tree: exp.Update) -> Update:
        self._refuse_returning(tree)
        target = self._target(tree.this)
        sources = tree.args.get("from_")
        where = tree.args.get("where")
        return Update(
            target=target,
            assignments=self._assignments(tree.expressions),
            sources="" if sources is None else self._written(sources.this),
            where="" if where is None else self._written(where.this),
            ctes=self._ctes(tree),
            relations=self._found(),
        )

    def _delete(self, tree: exp.Delete) -> Delete:
        self._refuse_returning(tree)
        target = self._target(tree.this)
        where = tree.args.get("where")
        sources = ", ".join(self._written(each) for each in tree.args.get("using") or ())
        return Delete(
            target=target,
            sources=sources,
            where="" if where is None else self._written(where.this),
            ctes=self._ctes(tree),
            relations=self._found(),
        )

    def _merge(self, tree: exp.Merge) -> Merge:
        self._refuse_returning(tree)
        target = self._target(tree.this)
        using = tree.args["using"]
        on = tree.args.get("on")
        alias = using.alias or using.name
        if not on or not alias:
            self._refuse("this MERGE", "Write MERGE INTO t USING s ON t.id = s.id, with names")
        source = self._written(using)
        clauses = tuple(self._clause(each) for each in tree.args["whens"].expressions)
        return Merge(
            target=target,
            source=source,
            source_alias=alias,
            on=self._written(on),
            equal_columns=self._equalities(on, target, alias),
            clauses=clauses,
            ctes=self._ctes(tree),
            relations=self._found(),
        )

    def _equalities(self, on: exp.Expr, target: Target, source: str) -> tuple[tuple[str, str], ...]:
        found: dict[str, str] = {}
        on = on.unnest()
        for each in on.flatten() if isinstance(on, exp.And) else [on]:
            if not isinstance(each.unnest(), exp.EQ):
                return ()
            sides = (each.unnest().this, each.unnest().expression)
            for mine, other in (sides, sides[::-1]):
                if (
                    isinstance(mine, exp.Column)
                    and mine.table.casefold() == target.alias.casefold()
                    and isinstance(other, exp.Column)
                    and other.table.casefold() == source.casefold()
                ):
                    found[mine.name] = self._written(other)
                    break
            else:
                return ()
        return tuple(found.items())

    def _clause(self, tree: exp.When) -> MergeClause:
        when = MergeWhen.NOT_MATCHED
        if tree.args.get("matched"):
            when = MergeWhen.MATCHED
        elif tree.args.get("source"):
            when = MergeWhen.NOT_MATCHED_BY_SOURCE
        then = tree.args["then"]
        assignments: Assignments | None = None
        match then:
            case exp.Update():
                action = MergeAction.UPDATE
                if then.expressions and not isinstance(then.expressions[0], exp.Star):
                    assignments = self._assignments(then.expressions)
            case exp.Insert():
                action = MergeAction.INSERT
                assignments = self._inserted(then)
            case exp.Var() if then.name.upper() == "DELETE":
                action = MergeAction.DELETE
            case exp.Var() if then.name.upper() == "DO NOTHING":
                action = MergeAction.NOTHING
            case _:
                self._refuse(
                    f"THEN {then.sql(dialect=self._dialect)}", "Use UPDATE, INSERT or DELETE"
                )
        if (action is MergeAction.INSERT) != (when is MergeWhen.NOT_MATCHED) and (
            action is not MergeAction.NOTHING
        ):
            self._refuse(
                f"WHEN {when.upper()} THEN {action.upper()}",
                "Insert rows that are not matched; update and delete the others",
            )
        is_unnamed = action is MergeAction.UPDATE and assignments is None
        if is_unnamed and when is MergeWhen.NOT_MATCHED_BY_SOURCE:
            self._refuse("UPDATE SET * without a source", "Name the columns")
        return MergeClause(
            when=when,
            action=action,
            condition=self._written(tree.args.get("condition")),
            assignments=assignments,
        )

    def _inserted(self, then: exp.Insert) -> Assignments | None:
        columns, values = then.this, then.expression
        if columns is None or isinstance(columns, exp.Star):
            if values:
                self._refuse("INSERT VALUES without columns", "Write INSERT (id, …) VALUES (…)")
            return None
        names = [each.name for each in columns.expressions]
        written = [self._written(each) for each in values.expressions] if values else []
        if len(names) != len(written):
            raise InvalidArgument(
                f"INSERT names {len(names)} columns and has {len(written)} values",
                hint="Write as many values as columns",
            )
        return tuple(zip(names, written, strict=True))

    # Calls

    def _call(self, procedure: str, arguments: str) -> Call:
        tree = self._tree(f"SELECT neve_call{arguments}")  # some procedures are keywords
        call = tree.expressions[0] if tree.expressions else None
        if not isinstance(call, exp.Anonymous):
            self._refuse(f"CALL {procedure}{arguments}", "Write CALL compact('shop.orders')")
        positional: list[object] = []
        named: list[tuple[str, object]] = []
        for each in call.expressions:
            if isinstance(each, exp.Kwarg | exp.PropertyEQ | exp.EQ):
                named.append((each.this.name, _literal(each.expression)))
            else:
                positional.append(_literal(each))
        return Call(procedure=procedure, positional=tuple(positional), named=tuple(named))


def _extent(table: exp.Table) -> tuple[int, int]:
    """Return where a name of a table begins and ends in the text."""
    parts = table.parts
    if isinstance(table.this, exp.Func):
        start, end = _position(table.this)
        return start, end
    return _position(parts[0])[0], _position(parts[-1])[1]


def _is_quoted(table: exp.Table) -> bool:
    return all(bool(each.args.get("quoted")) for each in table.parts)


def _position(part: exp.Expr) -> tuple[int, int]:
    return int(part.meta["start"]), int(part.meta["end"]) + 1


def _name_of(relation: TableRelation | ChangesRelation) -> str:
    match relation:
        case TableRelation(table=table, version=int(version)):
            return f"{table}@{version}"
        case TableRelation(table=table, timestamp=str(timestamp)):
            return f"{table}@{timestamp}"
        case TableRelation(table=table):
            return table
        case ChangesRelation(table=table, since=since, until=until):
            return f"table_changes({table}, {since}, {until})"


def _changes(call: exp.Func) -> ChangesRelation:
    arguments = [_literal(each) for each in call.args.get("expressions") or ()]
    match arguments:
        case [str(table), int(since)]:
            return ChangesRelation(table=table, since=since)
        case [str(table), int(since), int() | None as until]:
            return ChangesRelation(table=table, since=since, until=until)
        case _:
            raise InvalidArgument(
                "table_changes takes a table and one or two versions",
                hint="Write table_changes('shop.orders', 3, 7)",
            )


def _literal(value: exp.Expr) -> object:
    match value:
        case exp.Literal(is_string=True):
            return value.name
        case exp.Literal():
            return _whole(value.name)
        case exp.Boolean():
            return bool(value.this)
        case exp.Null():
            return None
        case exp.Neg(this=exp.Literal() as literal):
            return -_whole(literal.name)
        case _:
            raise InvalidArgument(
                f"{value.sql()} is not a literal",
                hint="Pass numbers, text, true, false or NULL",
            )


def _whole(text: str) -> int:
    if not text.isdigit():
        raise InvalidArgument(f"{shown(text)} is not a whole number", hint="Write 12")
    return int(text)


def _moment_text(text: str) -> str:
    found = _TYPED_TEXT.search(text)
    return text if found is None else found[1].replace("''", "'")
