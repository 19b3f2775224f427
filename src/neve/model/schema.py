"""TableSchema: the columns of a table, their field ids, and its primary key.

A field id names a column, or a field inside a nested one, forever: renaming and reordering keep it,
a dropped id is never used again. Arrow carries it as field metadata `PARQUET:field_id`.

MODEL-1  A schema has 1 to 10,000 fields, nested ones counted, each with an id of its own from 1 to
         `last_field_id`.
MODEL-2  Full names such as `address.street` are unique; a name is 1 to 255 bytes of UTF-8 without
         NUL.
MODEL-3  No column is named `_row_id` or `_last_updated_sequence_number` (Iceberg's row lineage),
         nor begins with `_neve`.
MODEL-4  The primary key is 1 or more distinct primitive columns, never NULL.
MODEL-5  A default is a value of its column. Only primitive columns have one.

Float and double columns may be in the key, but Iceberg has no float identifier fields: such a
schema publishes no identifier fields, see `key_is_iceberg_identifier`.
"""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import cast

import pyarrow as pa

from neve.errors import (
    Corruption,
    InvalidArgument,
    LimitExceeded,
    NeveError,
    NotFound,
    SchemaMismatch,
)
from neve.model.array_fit import fit_column, nulls
from neve.model.arrow_types import (
    NESTED_KINDS,
    ArrowField,
    TypeKind,
    doc_of,
    field_id_of,
    field_metadata,
    kind_of,
    normalize_type,
)
from neve.model.display import shown, shown_type
from neve.model.field_ids import (
    FIELD_ID_MAX,
    FIELDS_MAX,
    check_fields,
    check_name,
    check_not_reserved,
    check_text,
    have_unique_ids,
    too_many_fields,
    walk_fields,
    with_fresh_ids,
)
from neve.model.row_rules import NO_RULES, MergeFunction, RowRules, TimeToLive
from neve.model.scalar_values import Unfit, canonical_scalar
from neve.model.schema_json import (
    SCHEMA_JSON_BYTES_MAX,
    Json,
    JsonObject,
    default_from_json,
    default_to_json,
    dump_canonical,
    flag_member,
    is_json_default,
    number_member,
    numbers_member,
    objects_member,
    parse_object,
    text_member,
    type_from_json,
    type_to_json,
)
from neve.model.schema_view import ArrowArray
from neve.model.suggestions import known_names_hint

# Similar names are searched among this many columns, so that an error stays cheap.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Column:
    """One top-level column; ids of fields inside `type` are in its Arrow metadata.

    `initial_default` is the value in rows written before the column existed, `write_default` in
    rows that leave it out; None means no default.
    """

    field_id: int
    name: str
    type: pa.DataType
    nullable: bool
    doc: str | None = None
    initial_default: object = None
    write_default: object = None

    def __post_init__(self) -> None:
        check_name(self.name, where=self.name)
        check_not_reserved(self.name)
        if not 1 <= self.field_id <= FIELD_ID_MAX:
            raise InvalidArgument(
                f"MODEL-1: field {shown(self.name)} has id {shown(self.field_id)}, not one of 1 to "
                f"{FIELD_ID_MAX}"
            )
        normal = normalize_type(self.type, column=self.name)
        if not self.type.equals(normal, check_metadata=True):
            raise SchemaMismatch(
                f"column {shown(self.name)} has type {shown_type(self.type)}, which a table holds "
                f"as {shown_type(normal)}",
                column=self.name,
                hint="Pass the type through normalize_type, or use TableSchema.from_arrow",
            )
        if self.doc is not None:
            check_text(self.doc, what=f"doc of column {shown(self.name)}")
        for name in ("initial_default", "write_default"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, self._canonical_default(getattr(self, name)))

    def _canonical_default(self, value: object) -> object:
        if kind_of(self.type) in NESTED_KINDS:
            raise InvalidArgument(
                f"column {shown(self.name)} is {kind_of(self.type)} and cannot have a default",
                hint="Make it nullable instead",
            )
        try:
            canonical = canonical_scalar(self.type, value)
        except Unfit as unfit:
            raise SchemaMismatch(
                f"default of column {shown(self.name)}: {unfit.reason}", column=self.name
            ) from unfit
        if not is_json_default(canonical):
            raise InvalidArgument(
                f"default of column {shown(self.name)} is {canonical}, which JSON cannot express",
                hint="Use a finite number",
            )
        return canonical

    @property
    def arrow_field(self) -> ArrowField:
        """The column as an Arrow field with its id and doc as metadata."""
        metadata = field_metadata(field_id=self.field_id, doc=self.doc)
        return pa.field(self.name, self.type, nullable=self.nullable, metadata=metadata)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Column):
            return NotImplemented
        # Arrow ignores ids and docs of nested fields unless asked, which dataclasses cannot do.
        return self._facts() == other._facts() and self.type.equals(other.type, check_metadata=True)

    def __hash__(self) -> int:
        return hash(self._facts())

    def _facts(self) -> tuple[object, ...]:
        defaults = (self.initial_default, self.write_default)
        return (self.field_id, self.name, self.type, self.nullable, self.doc, *defaults)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """Columns in order, the primary key as field ids in key order, and the highest id so far."""

    columns: tuple[Column, ...]
    primary_key: tuple[int, ...]
    schema_id: int
    last_field_id: int
    rules: RowRules = NO_RULES
    arrow_schema: pa.Schema = field(init=False, repr=False, compare=False)
    key_columns: tuple[Column, ...] = field(init=False, repr=False, compare=False)
    _by_name: dict[str, Column] = field(init=False, repr=False, compare=False)
    _by_id: dict[int, Column] = field(init=False, repr=False, compare=False)
    _json: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Bounded before anything walks them: a schema may come from a hostile file.
        if len(self.columns) > FIELDS_MAX:
            raise too_many_fields(len(self.columns))
        if self.schema_id < 0:
            raise InvalidArgument(f"schema id {shown(self.schema_id)} is negative")
        fields = tuple(column.arrow_field for column in self.columns)
        check_fields(fields, last_field_id=self.last_field_id)
        by_id = {column.field_id: column for column in self.columns}
        _check_key(self.primary_key, by_id)
        self.rules.check(by_id, self.primary_key)
        object.__setattr__(self, "arrow_schema", pa.schema(fields))
        object.__setattr__(self, "key_columns", tuple(by_id[each] for each in self.primary_key))
        object.__setattr__(self, "_by_name", {column.name: column for column in self.columns})
        object.__setattr__(self, "_by_id", by_id)
        object.__setattr__(self, "_json", self._written())
        json_bytes = len(self._json)
        if json_bytes > SCHEMA_JSON_BYTES_MAX:
            raise LimitExceeded(
                f"schema takes {json_bytes} bytes as JSON",
                limit=SCHEMA_JSON_BYTES_MAX,
                actual=json_bytes,
                hint="Use shorter names and docs, or fewer columns",
            )

    @classmethod
    def from_arrow(cls, schema: pa.Schema, *, primary_key: Sequence[str]) -> "TableSchema":
        """Make the first schema of a table: types normalised, key columns NOT NULL, ids assigned.

        Field ids in the metadata are kept when every field, nested ones too, has one of its own;
        otherwise all are assigned again, as Iceberg does: the fields of a struct first, then the
        fields inside each of them.
        """
        if len(schema) > FIELDS_MAX:
            raise too_many_fields(len(schema))
        _check_key_names(primary_key, schema.names)
        fields = tuple(_normal_field(each) for each in schema)
        if not have_unique_ids(fields):
            fields = with_fresh_ids(fields, itertools.count(1))
        columns = tuple(_column_of(each, required=each.name in primary_key) for each in fields)
        ids = {column.name: column.field_id for column in columns}
        return cls(
            columns=columns,
            primary_key=tuple(ids[name] for name in primary_key),
            schema_id=0,
            last_field_id=max(
                (field_id_of(each) or 0 for _, each in walk_fields(fields)), default=1
            ),
        )

    @classmethod
    @lru_cache(maxsize=256)  # the catalog and the version store of a table have the same text
    def from_json(cls, text: str) -> "TableSchema":
        """Read what `to_json` wrote, or any Iceberg schema that has identifier fields.

        Raises Corruption for anything that is wrong with the text.
        """
        members = parse_object(text)
        try:
            return _schema_from_json(members)
        except Corruption:
            raise
        except NeveError as error:
            raise Corruption(f"schema JSON is not a valid schema: {error}") from error

    def to_json(self) -> str:
        """Return the schema as Iceberg's schema JSON.

        Some members are neve's own, which Iceberg's readers skip: `primary-key`, because
        `identifier-field-ids` has no order, `last-column-id`, and the rules of rows.
        """
        return self._json

    def _written(self) -> str:
        members: JsonObject = {
            "type": "struct",
            "schema-id": self.schema_id,
            "fields": [_column_to_json(column, docs=True) for column in self.columns],
            "primary-key": list(self.primary_key),
            "last-column-id": self.last_field_id,
        }
        if self.key_is_iceberg_identifier:
            members["identifier-field-ids"] = [*sorted(self.primary_key)]
        return dump_canonical(members | _rules_to_json(self.rules))

    def fingerprint(self) -> str:
        """SHA-256, in hex, of what decides how rows are stored and read.

        Covers ids, names, types, nullability, defaults, column order, key and rules. Leaves out
        `schema_id`, `last_field_id` and docs, which do not affect rows.
        """
        members: JsonObject = {
            "type": "struct",
            "fields": [_column_to_json(column, docs=False) for column in self.columns],
            "primary-key": list(self.primary_key),
            **_rules_to_json(self.rules),
        }
        return hashlib.sha256(dump_canonical(members).encode()).hexdigest()

    @property
    def key_schema(self) -> pa.Schema:
        """Arrow schema of the key columns, in key order."""
        return pa.schema([column.arrow_field for column in self.key_columns])

    @property
    def key_is_iceberg_identifier(self) -> bool:
        """Whether Iceberg accepts the key as identifier fields: it refuses float and double."""
        floats = {TypeKind.FLOAT, TypeKind.DOUBLE}
        return all(kind_of(column.type) not in floats for column in self.key_columns)

    @property
    def order_names(self) -> tuple[str, ...]:
        """Names of the order columns; empty when the last change wins."""
        return tuple(self._by_id[each].name for each in self.rules.order_by)

    def column(self, name: str) -> Column:
        """Return a column by name; raises NotFound with the most similar name."""
        found = self._by_name.get(name)
        if found is None:
            raise _no_such_column(name, list(self._by_name))
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def column_by_id(self, field_id: int) -> Column:
        """Return a column by field id; raises NotFound."""
        found = self._by_id.get(field_id)
        if found is None:
            raise NotFound(f"no column has field id {shown(field_id)}")
        return found


def normalize_batch(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """Return the batch with exactly `schema.arrow_schema`: columns by name, cast without loss.

    A missing column becomes its write default, or NULL. Raises SchemaMismatch for an unknown
    column, a missing required one, a value that would change, or a NULL where none is allowed,
    naming the column and the first bad row.
    """
    positions: dict[str, int] = {}
    for at, name in enumerate(batch.schema.names):
        if name not in schema:
            raise SchemaMismatch(
                f"column {shown(name)} of the batch is not in the table",
                column=name,
                hint=known_names_hint(name, schema.arrow_schema.names),
            )
        if name in positions:
            raise SchemaMismatch(f"column {shown(name)} is in the batch twice", column=name)
        positions[name] = at
    arrays = [
        fit_column(batch.column(positions[column.name]), arrow_field)
        if column.name in positions
        else _left_out(column, length=batch.num_rows)
        for column, arrow_field in zip(schema.columns, schema.arrow_schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow_schema)


def constant_array(column: Column, value: object, *, length: int) -> ArrowArray:
    """Return an array that repeats one value of a primitive column, or NULL for None."""
    if value is None:
        return nulls(length, column.type)
    scalar = pa.scalar(value, column.type)
    return cast("ArrowArray", pa.repeat(scalar, length))  # type: ignore[call-overload]


def _left_out(column: Column, *, length: int) -> ArrowArray:
    if column.write_default is None and not column.nullable:
        raise SchemaMismatch(
            f"column {shown(column.name)} is missing from the batch and has no default",
            column=column.name,
            hint="Add the column: it is never NULL",
        )
    return constant_array(column, column.write_default, length=length)


def _no_such_column(name: str, names: Sequence[str]) -> NotFound:
    return NotFound(f"no column is named {shown(name)}", hint=known_names_hint(name, names))


def _normal_field(arrow_field: ArrowField) -> ArrowField:
    check_name(arrow_field.name, where=arrow_field.name)
    return pa.field(
        arrow_field.name,
        normalize_type(arrow_field.type, column=arrow_field.name),
        nullable=arrow_field.nullable,
        metadata=field_metadata(field_id=field_id_of(arrow_field), doc=doc_of(arrow_field)),
    )


def _column_of(arrow_field: ArrowField, *, required: bool) -> Column:
    field_id = field_id_of(arrow_field)
    assert field_id is not None, "ids are assigned before columns are made"
    return Column(
        field_id=field_id,
        name=arrow_field.name,
        type=arrow_field.type,
        nullable=arrow_field.nullable and not required,
        doc=doc_of(arrow_field),
    )


def _check_key_names(primary_key: Sequence[str], names: Sequence[str]) -> None:
    if isinstance(primary_key, str):
        raise InvalidArgument(
            f"MODEL-4: the primary key is the text {shown(primary_key)}, not a list of columns",
            hint=f"Pass [{shown(primary_key)}]",
        )
    for name in primary_key:
        if not isinstance(name, str):
            raise InvalidArgument(f"MODEL-4: {shown(name)} in the primary key is not a column name")
        if name not in names:
            raise _no_such_column(name, names)


def _check_key(primary_key: tuple[int, ...], by_id: dict[int, Column]) -> None:
    if not primary_key:
        raise InvalidArgument("MODEL-4: no primary key", hint="Name at least one column")
    if len(set(primary_key)) != len(primary_key):
        raise InvalidArgument("MODEL-4: a column is in the primary key twice")
    for field_id in primary_key:
        column = by_id.get(field_id)
        if column is None:
            raise InvalidArgument(
                f"MODEL-4: no column has field id {shown(field_id)} of the primary key"
            )
        if kind_of(column.type) in NESTED_KINDS:
            raise InvalidArgument(
                f"MODEL-4: key column {shown(column.name)} is a {kind_of(column.type)}",
                hint="Use a primitive column as key",
            )
        if column.nullable:
            raise InvalidArgument(f"MODEL-4: key column {shown(column.name)} may be NULL")


def _column_to_json(column: Column, *, docs: bool) -> Json:
    members: JsonObject = {
        "id": column.field_id,
        "name": column.name,
        "required": not column.nullable,
        "type": type_to_json(column.type, docs=docs),
    }
    if docs and column.doc is not None:
        members["doc"] = column.doc
    if column.initial_default is not None:
        members["initial-default"] = default_to_json(column.type, column.initial_default)
    if column.write_default is not None:
        members["write-default"] = default_to_json(column.type, column.write_default)
    return members


def _column_from_json(members: JsonObject, *, where: str) -> Column:
    arrow_type = type_from_json(members.get("type"), where=f"{where}.type")

    def default(name: str) -> object:
        value = members.get(name)
        if value is None:
            return None
        return default_from_json(arrow_type, value, where=f"{where}.{name}")

    return Column(
        field_id=number_member(members, "id", where=where),
        name=text_member(members, "name", where=where),
        type=arrow_type,
        nullable=not flag_member(members, "required", where=where),
        doc=None if members.get("doc") is None else text_member(members, "doc", where=where),
        initial_default=default("initial-default"),
        write_default=default("write-default"),
    )


def _schema_from_json(members: JsonObject) -> TableSchema:
    if text_member(members, "type", where="schema") != "struct":
        raise Corruption("schema JSON is not of type struct")
    objects = objects_member(members, "fields", where="schema")
    if len(objects) > FIELDS_MAX:
        raise too_many_fields(len(objects))
    columns = tuple(
        _column_from_json(each, where=f"schema.fields[{at}]") for at, each in enumerate(objects)
    )
    key_name = "primary-key" if "primary-key" in members else "identifier-field-ids"
    primary_key = numbers_member(members, key_name, where="schema")
    identifiers = members.get("identifier-field-ids", list(primary_key))
    if not isinstance(identifiers, list) or set(map(str, identifiers)) != set(
        map(str, primary_key)
    ):
        raise Corruption("schema JSON has identifier-field-ids that differ from its primary-key")
    if "last-column-id" in members:
        last_field_id = number_member(members, "last-column-id", where="schema")
    else:
        fields = tuple(column.arrow_field for column in columns)
        last_field_id = max((field_id_of(each) or 0 for _, each in walk_fields(fields)), default=0)
    has_id = "schema-id" in members
    return TableSchema(
        columns=columns,
        primary_key=tuple(primary_key),
        schema_id=number_member(members, "schema-id", where="schema") if has_id else 0,
        last_field_id=last_field_id,
        rules=_rules_from_json(members),
    )


def _rules_to_json(rules: RowRules) -> JsonObject:
    """Return the members of a schema's rules; none for a schema without rules."""
    members: JsonObject = {}
    if rules.order_by:
        members["order-by"] = list(rules.order_by)
        members["keep-deletes-ms"] = rules.keep_deletes_ms
    if rules.merge:
        members["merge"] = [{"id": each, "function": str(name)} for each, name in rules.merge]
    if rules.ttl is not None:
        members["ttl"] = {"id": rules.ttl.field_id, "ms": rules.ttl.milliseconds}
    return members


def _rules_from_json(members: JsonObject) -> RowRules:
    rules = NO_RULES
    if "order-by" in members:
        rules = replace(
            rules,
            order_by=tuple(numbers_member(members, "order-by", where="schema")),
            keep_deletes_ms=number_member(members, "keep-deletes-ms", where="schema"),
        )
    if "merge" in members:
        functions = [
            (
                number_member(each, "id", where="schema.merge"),
                _function_of(text_member(each, "function", where="schema.merge")),
            )
            for each in objects_member(members, "merge", where="schema")
        ]
        rules = replace(rules, merge=tuple(functions))
    ttl = members.get("ttl")
    if isinstance(ttl, dict):
        field_id = number_member(ttl, "id", where="schema.ttl")
        milliseconds = number_member(ttl, "ms", where="schema.ttl")
        rules = replace(rules, ttl=TimeToLive(field_id=field_id, milliseconds=milliseconds))
    return rules


def _function_of(name: str) -> MergeFunction:
    try:
        return MergeFunction(name)
    except ValueError:
        raise Corruption(
            f"schema JSON has the unknown merge function {shown(name)}",
            hint="A newer neve wrote it: update neve",
        ) from None
