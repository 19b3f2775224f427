"""Table schemas: their rules, their ids, their JSON and their fingerprint."""

import datetime as dt
import decimal
import hashlib
import json
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from neve.errors import (
    Corruption,
    InvalidArgument,
    LimitExceeded,
    NeveError,
    NotFound,
    SchemaMismatch,
)
from neve.model.schema import Column, TableSchema, normalize_batch

FIELDS: list["pa.Field[Any]"] = [
    pa.field("id", pa.int64()),
    pa.field("customer", pa.string(), metadata={"doc": "who paid"}),
    pa.field("amount", pa.decimal128(9, 2)),
    pa.field("lines", pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int16())]))),
    pa.field("labels", pa.map_(pa.string(), pa.list_(pa.int64()))),
    pa.field("at", pa.timestamp("ns", tz="Europe/Paris")),
]
ORDERS = pa.schema(FIELDS)

UNNUMBERED = pa.list_(pa.field("element", pa.int32()))


def orders() -> TableSchema:
    return TableSchema.from_arrow(ORDERS, primary_key=["id"])


def column(  # the facts of a column, with a required long of id 1 where nothing is said
    name: str = "x",
    arrow_type: pa.DataType | None = None,
    *,
    field_id: int = 1,
    nullable: bool = False,
    doc: str | None = None,
    initial_default: object = None,
    write_default: object = None,
) -> Column:
    return Column(
        field_id=field_id,
        name=name,
        type=arrow_type or pa.int64(),
        nullable=nullable,
        doc=doc,
        initial_default=initial_default,
        write_default=write_default,
    )


def schema_of(*columns: Column, primary_key: tuple[int, ...] = (1,)) -> TableSchema:
    last = max(each.field_id for each in columns)
    return TableSchema(columns=columns, primary_key=primary_key, schema_id=0, last_field_id=last)


def iceberg_json() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(orders().to_json())
    return loaded


@pytest.mark.parametrize(
    ("fields", "primary_key", "error"),
    [
        ([], ["id"], NotFound),
        ([("id", pa.int64())], [], InvalidArgument),
        ([("id", pa.int64())], "id", InvalidArgument),
        ([("id", pa.int64())], ["id", "id"], InvalidArgument),
        ([("id", pa.int64())], [7], InvalidArgument),
        ([("id", pa.int64())], ["key"], NotFound),
        ([("id", pa.list_(pa.int64()))], ["id"], InvalidArgument),
        ([("id", pa.int64()), ("id", pa.int64())], ["id"], InvalidArgument),
        ([("id", pa.int64()), ("", pa.int64())], ["id"], InvalidArgument),
        ([("id", pa.int64()), ("n" * 256, pa.int64())], ["id"], InvalidArgument),
        ([("id", pa.int64()), ("é" * 128, pa.int64())], ["id"], InvalidArgument),
        ([("id", pa.int64()), ("a\0b", pa.int64())], ["id"], InvalidArgument),
        ([("id", pa.int64()), ("_row_id", pa.int64())], ["id"], InvalidArgument),
        (
            [("_last_updated_sequence_number", pa.int64()), ("id", pa.int64())],
            ["id"],
            InvalidArgument,
        ),
        ([("id", pa.int64()), ("_neve_x", pa.int64())], ["id"], InvalidArgument),
        ([("id", pa.uint64())], ["id"], SchemaMismatch),
        ([("id", pa.int64()), ("s", pa.struct([("a", pa.int8())] * 2))], ["id"], InvalidArgument),
        ([("id", pa.int64()), ("s", pa.struct([("", pa.int8())]))], ["id"], InvalidArgument),
        (
            [("id", pa.int64()), ("s", pa.struct([("a", pa.int8())])), ("s.a", pa.int8())],
            ["id"],
            InvalidArgument,
        ),
        ([(f"c{at}", pa.int64()) for at in range(10_001)], ["c0"], LimitExceeded),
        (
            [("id", pa.int64()), ("s", pa.struct([(f"c{at}", pa.int8()) for at in range(9_999)]))],
            ["id"],
            LimitExceeded,
        ),
    ],
    ids=str,
)
def test_a_schema_that_breaks_a_rule_is_refused(
    fields: list[tuple[str, pa.DataType]], primary_key: list[str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        TableSchema.from_arrow(pa.schema(fields), primary_key=primary_key)


@pytest.mark.parametrize(
    ("columns", "primary_key"),
    [
        ([column(), column("y")], (1,)),
        ([column(nullable=True)], (1,)),
        ([column()], (2,)),
        ([column(), column("y", UNNUMBERED, field_id=2)], (1,)),
    ],
    ids=["id twice", "key may be NULL", "no such id", "nested without id"],
)
def test_columns_that_do_not_make_a_schema_are_refused(
    columns: list[Column], primary_key: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidArgument):
        schema_of(*columns, primary_key=primary_key)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: column(arrow_type=pa.int8()), SchemaMismatch),
        (lambda: column(field_id=0), InvalidArgument),
        (lambda: column(field_id=2_147_483_448), InvalidArgument),
        (lambda: column(doc="\ud800"), InvalidArgument),
        (lambda: column("\ud800"), InvalidArgument),
        (lambda: column(write_default="one"), SchemaMismatch),
        (lambda: column(write_default=True), SchemaMismatch),
        (lambda: column(initial_default=1 << 63), SchemaMismatch),
        (lambda: column(arrow_type=pa.float64(), write_default=float("nan")), InvalidArgument),
        (
            lambda: column(arrow_type=orders().column("lines").type, write_default=[]),
            InvalidArgument,
        ),
    ],
    ids=[
        "not normalised",
        "zero",
        "reserved id",
        "doc",
        "name",
        "text",
        "bool",
        "range",
        "nan",
        "nested",
    ],
)
def test_a_column_that_breaks_a_rule_is_refused(
    make: Callable[[], Column], error: type[Exception]
) -> None:
    with pytest.raises(error):
        make()


def test_more_columns_than_the_limit_are_refused() -> None:
    columns = [column(f"c{at}", field_id=at) for at in range(1, 10_002)]

    with pytest.raises(LimitExceeded) as caught:
        schema_of(*columns)

    assert caught.value.limit == 10_000


def test_a_schema_too_large_for_its_json_is_refused() -> None:
    with pytest.raises(LimitExceeded):
        schema_of(column(doc="d" * (9 << 20)))


def test_an_unknown_column_is_answered_with_the_most_similar_one() -> None:
    with pytest.raises(NotFound, match="Did you mean 'customer'"):
        orders().column("custommer")
    with pytest.raises(NotFound):
        orders().column_by_id(99)
    assert orders().column_by_id(2) == orders().column("customer")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("CUSTOMER", "Did you mean 'customer'?"),
        ("zzz", "The table has 'id', 'customer', 'amount'"),
        ("z" * 2_000, "The table has 'id', 'customer', 'amount'"),
    ],
    ids=["in capitals", "like none", "longer than any"],
)
def test_an_unknown_column_is_answered_with_what_there_is(name: str, hint: str) -> None:
    with pytest.raises(NotFound) as found:
        orders().column(name)
    assert found.value.hint is not None
    assert found.value.hint.startswith(hint)


def test_of_many_columns_the_first_are_told_and_the_rest_counted() -> None:
    fields = [(f"c{number:02}", pa.int64()) for number in range(1_200)]
    schema = TableSchema.from_arrow(pa.schema(fields), primary_key=["c00"])

    with pytest.raises(NotFound, match=r"has 'c00', 'c01', .*, 'c09' and 1,190 more$"):
        schema.column("zzz")


def test_key_columns_become_required_and_keep_key_order() -> None:
    schema = TableSchema.from_arrow(ORDERS, primary_key=["customer", "id"])

    assert [each.name for each in schema.key_columns] == ["customer", "id"]
    assert schema.primary_key == (2, 1)
    assert schema.key_schema.names == ["customer", "id"]
    assert not any(each.nullable for each in schema.key_columns)
    assert schema.column("amount").nullable


def test_a_float_key_is_allowed_and_is_no_iceberg_identifier() -> None:
    columns: list[tuple[str, pa.DataType]] = [("at", pa.float64()), ("id", pa.int64())]
    fields = pa.schema(columns)
    by_float = TableSchema.from_arrow(fields, primary_key=["id", "at"])
    by_id = TableSchema.from_arrow(fields, primary_key=["id"])

    assert not by_float.key_is_iceberg_identifier
    assert "identifier-field-ids" not in json.loads(by_float.to_json())
    assert by_id.key_is_iceberg_identifier
    assert json.loads(by_id.to_json())["identifier-field-ids"] == [2]
    assert TableSchema.from_json(by_float.to_json()).primary_key == (2, 1)


def test_fresh_ids_are_given_as_iceberg_gives_them() -> None:
    fields: list[tuple[str, pa.DataType]] = [
        ("id", pa.int64()),
        ("a", pa.struct([("b", pa.list_(pa.struct([("c", pa.int8()), ("d", pa.int8())])))])),
        ("e", pa.map_(pa.string(), pa.struct([("f", pa.map_(pa.string(), pa.int8()))]))),
        ("g", pa.list_(pa.list_(pa.int8()))),
    ]

    schema = TableSchema.from_arrow(pa.schema(fields), primary_key=["id"])

    assert [each.field_id for each in schema.columns] == [1, 2, 3, 4]
    assert schema.last_field_id == 15
    theirs = Schema.model_validate_json(schema.to_json())
    assert assign_fresh_schema_ids(theirs) == theirs


def test_ids_in_the_metadata_are_kept_when_every_field_has_its_own() -> None:
    def numbered(name: str, field_id: int, arrow_type: pa.DataType) -> "pa.Field[pa.DataType]":
        return pa.field(name, arrow_type, metadata={"PARQUET:field_id": str(field_id)})

    inner = numbered("a", 5, pa.int8())
    fields = [numbered("id", 9, pa.int64()), numbered("s", 3, pa.struct([inner]))]

    kept = TableSchema.from_arrow(pa.schema(fields), primary_key=["id"])
    missing = TableSchema.from_arrow(
        pa.schema([*fields, pa.field("z", pa.int8())]), primary_key=["id"]
    )
    twice = TableSchema.from_arrow(
        pa.schema([*fields, numbered("z", 5, pa.int8())]), primary_key=["id"]
    )

    assert [each.field_id for each in kept.columns] == [9, 3]
    assert kept.last_field_id == 9
    assert [each.field_id for each in missing.columns] == [1, 2, 3]
    assert [each.field_id for each in twice.columns] == [1, 2, 3]


def test_the_arrow_schema_carries_ids_and_docs_and_makes_the_same_schema_again() -> None:
    schema = orders()

    fields = schema.arrow_schema
    again = TableSchema.from_arrow(fields, primary_key=["id"])

    assert fields.field("id").metadata == {b"PARQUET:field_id": b"1"}
    assert fields.field("customer").metadata == {b"PARQUET:field_id": b"2", b"doc": b"who paid"}
    element = fields.field("lines").type.value_field
    assert element.metadata == {b"PARQUET:field_id": b"7"}
    assert again == schema


def test_columns_differ_when_only_an_id_inside_a_nested_type_does() -> None:
    def nested(field_id: int) -> Column:
        element = pa.field("element", pa.int32(), metadata={"PARQUET:field_id": str(field_id)})
        return column(arrow_type=pa.list_(element))

    assert nested(2) == nested(2)
    assert hash(nested(2)) == hash(nested(2))
    assert nested(2) != nested(3)
    assert nested(2) != "x"


def test_the_json_is_pinned() -> None:
    schema = schema_of(
        column("id"),
        column("n", pa.decimal128(9, 2), field_id=2, write_default=decimal.Decimal("1.5")),
        column("b", pa.binary(3), field_id=4, nullable=True, doc="raw"),
    )

    assert schema.to_json() == (
        '{"fields":['
        '{"id":1,"name":"id","required":true,"type":"long"},'
        '{"id":2,"name":"n","required":true,"type":"decimal(9,2)","write-default":"1.50"},'
        '{"doc":"raw","id":4,"name":"b","required":false,"type":"fixed[3]"}],'
        '"identifier-field-ids":[1],"last-column-id":4,"primary-key":[1],'
        '"schema-id":0,"type":"struct"}'
    )
    covered = (
        b'{"fields":['
        b'{"id":1,"name":"id","required":true,"type":"long"},'
        b'{"id":2,"name":"n","required":true,"type":"decimal(9,2)","write-default":"1.50"},'
        b'{"id":4,"name":"b","required":false,"type":"fixed[3]"}],'
        b'"primary-key":[1],"type":"struct"}'
    )
    assert schema.fingerprint() == hashlib.sha256(covered).hexdigest()


def test_pyiceberg_reads_the_json_as_its_own() -> None:
    theirs = Schema.model_validate_json(orders().to_json())

    assert theirs.column_names[:3] == ["id", "customer", "amount"]
    assert theirs.identifier_field_ids == [1]
    assert theirs.find_field("lines.element.count").field_id == 9
    assert str(theirs.find_type("at")) == "timestamptz_ns"


def test_icebergs_own_json_is_read() -> None:
    theirs = Schema.model_validate_json(orders().to_json()).model_dump_json()

    schema = TableSchema.from_json(theirs)

    assert schema == orders()


def test_docs_survive_json_inside_nested_types_too() -> None:
    inner = pa.field("a", pa.int32(), metadata={"doc": "inside"})
    element = pa.field("item", pa.struct([inner]), metadata={"doc": "nowhere to say this"})
    fields = [pa.field("id", pa.int64()), pa.field("x", pa.list_(element))]
    schema = TableSchema.from_arrow(pa.schema(fields), primary_key=["id"])

    assert TableSchema.from_json(schema.to_json()) == schema
    assert '"doc":"inside"' in schema.to_json()


def test_defaults_of_every_type_survive_json_in_icebergs_form() -> None:
    utc = dt.UTC
    cases: list[tuple[pa.DataType, object, object]] = [
        (pa.bool_(), True, True),
        (pa.int32(), 34, 34),
        (pa.int64(), -1, -1),
        (pa.float32(), 0.5, 0.5),
        (pa.float64(), 1, 1.0),
        (pa.decimal128(9, 2), decimal.Decimal("14.2"), "14.20"),
        (pa.date32(), dt.date(2017, 11, 16), "2017-11-16"),
        (pa.time64("us"), dt.time(22, 31, 8, 123456), "22:31:08.123456"),
        (
            pa.timestamp("us"),
            dt.datetime(2017, 11, 16, 22, 31, 8),  # noqa: DTZ001 - a column without zone
            "2017-11-16T22:31:08.000000",
        ),
        (
            pa.timestamp("us", tz="UTC"),
            dt.datetime(2017, 11, 16, 22, 31, 8, 123456, tzinfo=utc),
            "2017-11-16T22:31:08.123456+00:00",
        ),
        (pa.timestamp("ns"), -1, "1969-12-31T23:59:59.999999999"),
        (pa.timestamp("ns", tz="UTC"), 1, "1970-01-01T00:00:00.000000001+00:00"),
        (pa.string(), "iceberg", "iceberg"),
        (pa.binary(), b"\x00\x01\x02\xff", "000102ff"),
        (pa.binary(2), b"\x0a\x0b", "0a0b"),
        (
            pa.uuid(),
            uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
            "f79c3e09-677c-4bbd-a479-3f349cb785e7",
        ),
    ]
    for arrow_type, value, spelled in cases:
        schema = schema_of(
            column("id"),
            column("x", arrow_type, field_id=2, initial_default=value, write_default=value),
        )

        loaded = json.loads(schema.to_json())
        again = TableSchema.from_json(schema.to_json())

        assert loaded["fields"][1]["initial-default"] == spelled, arrow_type
        assert loaded["fields"][1]["write-default"] == spelled, arrow_type
        assert again == schema, arrow_type


def test_the_fingerprint_covers_what_touches_rows_and_nothing_else() -> None:
    base = schema_of(column("id"), column("x", pa.int32(), field_id=2, nullable=True))
    same = [
        TableSchema(columns=base.columns, primary_key=(1,), schema_id=7, last_field_id=9),
        schema_of(column("id", doc="key"), column("x", pa.int32(), field_id=2, nullable=True)),
    ]
    other = [
        schema_of(column("id"), column("x", pa.int32(), field_id=3, nullable=True)),
        schema_of(column("id"), column("y", pa.int32(), field_id=2, nullable=True)),
        schema_of(column("id"), column("x", pa.int64(), field_id=2, nullable=True)),
        schema_of(column("id"), column("x", pa.int32(), field_id=2)),
        schema_of(column("id"), column("x", pa.int32(), field_id=2), primary_key=(2, 1)),
        schema_of(
            column("id"), column("x", pa.int32(), field_id=2, nullable=True, write_default=1)
        ),
        schema_of(column("x", pa.int32(), field_id=2, nullable=True), column("id")),
    ]

    assert {each.fingerprint() for each in same} == {base.fingerprint()}
    assert len({each.fingerprint() for each in [base, *other]}) == len(other) + 1


def _with(path: list[str | int], value: object) -> str:
    members = iceberg_json()
    place: Any = members
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(members)


def _deep(levels: int) -> object:
    arrow_type: object = "int"
    for at in range(levels):
        arrow_type = {
            "type": "list",
            "element-id": 100 + at,
            "element-required": True,
            "element": arrow_type,
        }
    return arrow_type


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "NaN",
        "[" * 100_000,
        '{"type":"struct","type":"struct"}',
        "{" + " " * (9 << 20) + "}",
        '{"x":' + "9" * 5_000 + "}",
        _with(["type"], "list"),
        _with(["schema-id"], "0"),
        _with(["schema-id"], True),
        _with(["schema-id"], -1),
        _with(["fields"], {}),
        _with(["fields"], []),
        _with(["fields"], [{}] * 10_001),
        _with(["fields", 0], 7),
        _with(["fields", 0, "id"], "1"),
        _with(["fields", 0, "id"], 1.0),
        _with(["fields", 0, "id"], -1),
        _with(["fields", 0, "id"], 2),
        _with(["fields", 0, "id"], 10**30),
        _with(["fields", 0, "name"], None),
        _with(["fields", 0, "name"], "customer"),
        _with(["fields", 0, "name"], "\ud800"),
        _with(["fields", 0, "name"], "_neve"),
        _with(["fields", 0, "required"], 1),
        _with(["fields", 0, "required"], False),
        _with(["fields", 0, "doc"], 1),
        _with(["fields", 0, "type"], None),
        _with(["fields", 0, "type"], "int128"),
        _with(["fields", 0, "type"], "decimal(39,2)"),
        _with(["fields", 0, "type"], "decimal(5,9)"),
        _with(["fields", 0, "type"], "decimal(0,0)"),
        _with(["fields", 0, "type"], "fixed[0]"),
        _with(["fields", 0, "type"], "fixed[99999]"),
        _with(["fields", 0, "type"], "variant"),
        _with(["fields", 0, "type"], {"type": "struct", "fields": []}),
        _with(["fields", 0, "type"], {"type": ["list"]}),
        _with(["fields", 3, "type", "element-id"], 1),
        _with(["fields", 3, "type", "element", "fields", 0, "name"], "\ud800"),
        _with(["fields", 3, "type", "element", "fields", 0, "initial-default"], "x"),
        _with(["fields", 4, "type", "key"], {"type": "struct", "fields": []}),
        _with(["fields", 3, "type"], _deep(33)),
        _with(["fields", 3, "type"], _deep(400)),
        _with(["fields", 1, "write-default"], 1),
        _with(["fields", 2, "write-default"], "1e999999999"),
        _with(["fields", 2, "write-default"], 1.5),
        _with(["fields", 5, "write-default"], "2020-01-01T00:00:00.000000001"),
        _with(["fields", 5, "write-default"], "yesterday"),
        _with(["primary-key"], []),
        _with(["primary-key"], [True]),
        _with(["primary-key"], [99]),
        _with(["primary-key"], 1),
        _with(["identifier-field-ids"], [2]),
        _with(["identifier-field-ids"], None),
        _with(["last-column-id"], 3),
        _with(["last-column-id"], 10**40),
    ],
    ids=lambda text: text[:0] or None,
)
def test_hostile_json_is_corruption(text: str) -> None:
    with pytest.raises(Corruption):
        TableSchema.from_json(text)


def test_json_without_any_key_is_corruption() -> None:
    members = iceberg_json()
    del members["primary-key"], members["identifier-field-ids"]

    with pytest.raises(Corruption, match="identifier-field-ids"):
        TableSchema.from_json(json.dumps(members))


def test_a_name_too_long_to_read_is_shown_in_short() -> None:
    long = "x" * 2_000_000
    table = TableSchema.from_arrow(pa.schema([("id", pa.int64())]), primary_key=["id"])
    nested = pa.struct([pa.field(long, pa.uint64())])
    calls: list[Callable[[], object]] = [
        lambda: table.column(long),
        lambda: TableSchema.from_arrow(table.arrow_schema, primary_key=[long]),
        lambda: TableSchema.from_arrow(table.arrow_schema, primary_key=long),
        lambda: TableSchema.from_arrow(table.arrow_schema, primary_key=[[long] * 10]),  # type: ignore[list-item]
        lambda: TableSchema.from_arrow(pa.schema([(long, pa.int64())]), primary_key=[long]),
        lambda: Column(field_id=1, name=f"{long}\ud800", type=pa.int64(), nullable=True),
        lambda: TableSchema.from_arrow(
            pa.schema([("id", pa.int64()), ("n", nested)]), primary_key=["id"]
        ),
        lambda: normalize_batch(pa.record_batch({long: pa.array([1])}), table),
        lambda: normalize_batch(pa.record_batch({"id": pa.array([{long: 1}])}), table),
    ]
    for call in calls:
        with pytest.raises(NeveError) as caught:
            call()
        assert len(str(caught.value)) < 1_000


def test_an_id_too_long_to_read_is_refused_in_short() -> None:
    huge = 10**5_000
    column = Column(field_id=1, name="id", type=pa.int64(), nullable=False)
    calls: list[Callable[[], object]] = [
        lambda: Column(field_id=huge, name="id", type=pa.int64(), nullable=False),
        lambda: TableSchema(columns=(column,), primary_key=(huge,), schema_id=0, last_field_id=1),
        lambda: TableSchema(columns=(column,), primary_key=(1,), schema_id=-huge, last_field_id=1),
        lambda: TableSchema(columns=(column,), primary_key=(1,), schema_id=0, last_field_id=huge),
        lambda: TableSchema(
            columns=(column,), primary_key=(1,), schema_id=0, last_field_id=1
        ).column_by_id(huge),
    ]
    for call in calls:
        with pytest.raises((InvalidArgument, NotFound)) as caught:
            call()
        assert len(str(caught.value)) < 300
