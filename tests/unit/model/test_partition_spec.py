"""Partition specs: what is read, what is refused, and Iceberg's JSON."""

import json
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionSpec as TheirSpec

from neve.errors import Corruption, InvalidArgument, LimitExceeded, NotFound, SchemaMismatch
from neve.model.partition_spec import PartitionField, PartitionSpec
from neve.model.schema import Column, TableSchema
from neve.model.transforms import Bucket, Identity, TimePart, TimeUnit, Transform, Truncate

COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "ts": pa.timestamp("us", "UTC"),
    "name": pa.string(),
    "x": pa.int32(),
    "a, b (c)": pa.int32(),
    "day": pa.date32(),
    "ratio": pa.float64(),
    "tags": pa.list_(pa.string()),
}
SCHEMA = TableSchema.from_arrow(pa.schema(COLUMNS), primary_key=["id"])
DAY = TimePart(TimeUnit.DAY)


def field(
    name: str, transform: Transform, *, source_id: int = 1, field_id: int = 1000
) -> PartitionField:
    return PartitionField(source_id=source_id, field_id=field_id, name=name, transform=transform)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("days(ts)", "Did you mean day?"),
        ("Bucket(4, id)", "Did you mean bucket?"),
        ("trunc(4, name)", "Did you mean truncate?"),
        ("zorder(ts)", "Use one of identity, year, month, day, hour, bucket, truncate"),
        ("void(ts)", "unknown partition transform"),
        ("bucket(id)", "number first: bucket(16, column)"),
        ("bucket(id, 16)", "number first"),
        ("bucket(-4, id)", "number first"),
        ("truncate(name)", "number first: truncate(16, column)"),
        (f"bucket({'9' * 5000}, id)", "number first"),
        ("bucket(0, id)", "Use 1 to 2147483647"),
        ("truncate(4294967296, name)", "Use 1 to 2147483647"),
        ("day(x)", "It takes identity, bucket(n, …), truncate(w, …)"),
        ("bucket(4, ratio)", "It takes identity"),
        ("hour(day)", "It takes identity, year, month, day"),
        ("tags", "a primitive type"),
    ],
)  # fmt: skip
def test_a_field_that_cannot_be_is_refused_with_advice(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        PartitionSpec.parse([text], SCHEMA)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["tz", "day(tz)", "bucket(4, nme)", "", "identity()"])
def test_an_unknown_column_is_not_found(text: str) -> None:
    with pytest.raises(NotFound):
        PartitionSpec.parse([text], SCHEMA)


@pytest.mark.parametrize("texts", ["day(ts)", [b"day(ts)"], [DAY]])
def test_anything_but_a_list_of_texts_is_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        PartitionSpec.parse(texts, SCHEMA)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["x", "identity(x)"], "'x' and 'x' have the same source column"),
        (["day(ts)", "day(ts)"], "'ts_day' and 'ts_day' have the same source column"),
        (["year(ts)", "day(ts)"], "keep the finest"),
        (["bucket(4, id)", "bucket(8, id)"], "'id_bucket' and 'id_bucket' have the same name"),
    ],
)
def test_fields_that_repeat_each_other_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(InvalidArgument, match="have the same") as caught:
        PartitionSpec.parse(texts, SCHEMA)
    assert message in str(caught.value)


def test_a_field_named_as_another_column_is_refused() -> None:
    schema = TableSchema.from_arrow(
        pa.schema([("ts", pa.timestamp("us")), ("ts_day", pa.int32())]), primary_key=["ts"]
    )

    with pytest.raises(InvalidArgument, match="named 'ts_day', as a column is"):
        PartitionSpec.parse(["day(ts)"], schema)


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["day(ts)", "day(when)"], ["ts_day_2", "ts_day"]),
        (["day(when)", "day(ts)"], ["ts_day", "ts_day_2"]),
        (["day(ts)"], ["ts_day"]),
    ],
    ids=str,
)
def test_a_field_is_numbered_when_a_renamed_column_has_its_name(
    texts: list[str], names: list[str]
) -> None:
    first = PartitionSpec.parse(["day(ts)"], SCHEMA)
    renamed = [replace(each, name="when") if each.name == "ts" else each for each in SCHEMA.columns]
    added = Column(field_id=SCHEMA.last_field_id + 1, name="ts", type=pa.date32(), nullable=True)
    schema = replace(SCHEMA, columns=(*renamed, added), last_field_id=SCHEMA.last_field_id + 1)

    spec = PartitionSpec.parse(texts, schema, spec_id=1, history=[first])

    assert [each.name for each in spec.fields] == names
    assert spec.texts(schema) == texts


def test_more_fields_than_anyone_needs_are_refused() -> None:
    fields = tuple(field(f"f{n}", Bucket(n + 1), field_id=1000 + n) for n in range(101))

    with pytest.raises(LimitExceeded) as caught:
        PartitionSpec(0, fields)
    assert (caught.value.limit, caught.value.actual) == (100, 101)


@pytest.mark.parametrize("field_id", [0, 1, 999, -1, 1 << 31])
def test_a_field_id_that_belongs_to_columns_is_refused(field_id: int) -> None:
    with pytest.raises(InvalidArgument, match="from 1000"):
        PartitionSpec(0, (field("x", Identity(), field_id=field_id),))


def test_fields_get_icebergs_names_and_ids_from_1000_on() -> None:
    texts = ["day(ts)", " bucket( 16 ,id ) ", "truncate(4, name)", "x"]
    texts += ["identity(a, b (c))", "month(day)"]

    spec = PartitionSpec.parse(texts, SCHEMA, spec_id=3)

    assert spec == PartitionSpec(
        3,
        (
            field("ts_day", DAY, source_id=2, field_id=1000),
            field("id_bucket", Bucket(16), source_id=1, field_id=1001),
            field("name_trunc", Truncate(4), source_id=3, field_id=1002),
            field("x", Identity(), source_id=4, field_id=1003),
            field("a, b (c)", Identity(), source_id=5, field_id=1004),
            field("day_month", TimePart(TimeUnit.MONTH), source_id=6, field_id=1005),
        ),
    )


def test_a_column_named_like_a_transform_is_a_column() -> None:
    assert PartitionSpec.parse(["day"], SCHEMA).fields[0].transform == Identity()


def test_a_field_that_comes_back_keeps_its_id_and_name() -> None:
    first = PartitionSpec.parse(["day(ts)", "x"], SCHEMA)
    second = PartitionSpec.parse(["bucket(4, id)"], SCHEMA, spec_id=1, history=[first])
    third = PartitionSpec.parse(
        ["x", "hour(ts)", "bucket(4, id)"], SCHEMA, spec_id=2, history=[first, second]
    )

    assert [each.field_id for each in second.fields] == [1002]
    assert [each.field_id for each in third.fields] == [1001, 1003, 1002]
    assert third.fields[0] is first.fields[1]


def test_a_table_in_one_piece_has_no_fields() -> None:
    spec = PartitionSpec.parse([], SCHEMA)

    assert spec.is_unpartitioned
    assert spec.values(pa.record_batch({"id": pa.array([1, 2])}), SCHEMA) == ()
    assert not PartitionSpec.parse(["x"], SCHEMA).is_unpartitioned


def test_values_are_the_transformed_columns_of_a_batch() -> None:
    spec = PartitionSpec.parse(["day(ts)", "truncate(2, name)", "x"], SCHEMA)
    batch = pa.record_batch(
        {
            "name": pa.array(["anna", None], pa.string()),
            "x": pa.array([None, 7], pa.int32()),
            "ts": pa.array([86_400_000_000, -1], pa.timestamp("us", "UTC")),
        }
    )

    days, names, numbers = spec.values(batch, SCHEMA)

    assert days.cast(pa.int32()).to_pylist() == [1, -1]
    assert names.to_pylist() == ["an", None]
    assert numbers.to_pylist() == [None, 7]


def test_a_batch_without_the_column_or_with_another_type_is_refused() -> None:
    spec = PartitionSpec.parse(["x"], SCHEMA)

    with pytest.raises(SchemaMismatch, match="no column 'x'") as caught:
        spec.values(pa.record_batch({"id": pa.array([1])}), SCHEMA)
    assert caught.value.column == "x"
    with pytest.raises(SchemaMismatch, match="is int64 in the batch and int32 in the table"):
        spec.values(pa.record_batch({"x": pa.array([1], pa.int64())}), SCHEMA)


def test_a_row_that_cannot_be_partitioned_is_named() -> None:
    spec = PartitionSpec.parse(["truncate(10, x)"], SCHEMA)
    batch = pa.record_batch({"x": pa.array([1, -(1 << 31)], pa.int32())})

    with pytest.raises(SchemaMismatch) as caught:
        spec.values(batch, SCHEMA)
    assert (caught.value.column, caught.value.row) == ("x", 1)


def test_json_is_icebergs_and_pyiceberg_reads_it() -> None:
    spec = PartitionSpec.parse(["day(ts)", "bucket(16, id)", "truncate(4, name)", "x"], SCHEMA)

    text = spec.to_json()

    assert json.loads(text) == {
        "spec-id": 0,
        "fields": [
            {"source-id": 2, "field-id": 1000, "name": "ts_day", "transform": "day"},
            {"source-id": 1, "field-id": 1001, "name": "id_bucket", "transform": "bucket[16]"},
            {"source-id": 3, "field-id": 1002, "name": "name_trunc", "transform": "truncate[4]"},
            {"source-id": 4, "field-id": 1003, "name": "x", "transform": "identity"},
        ],
    }
    theirs = TheirSpec.model_validate_json(text)
    assert [str(each.transform) for each in theirs.fields] == [
        str(each.transform) for each in spec.fields
    ]
    assert PartitionSpec.from_json(theirs.model_dump_json()) == spec
    assert PartitionSpec.from_json(text) == spec


GOOD_FIELD = {"source-id": 1, "field-id": 1000, "name": "x", "transform": "identity"}


def spec_json(*fields: object, **changed: object) -> str:
    return json.dumps({"spec-id": 0, "fields": fields or [{**GOOD_FIELD, **changed}]})


NO_SPECS = {
    "empty": "",
    "no JSON": "nonsense",
    "deep": "[" * 100_000,
    "list": "[]",
    "null": "null",
    "no members": "{}",
    "no fields": '{"spec-id":0}',
    "bool id": '{"spec-id":true,"fields":[]}',
    "text id": '{"spec-id":"0","fields":[]}',
    "fields no list": '{"spec-id":0,"fields":{}}',
    "field no object": '{"spec-id":0,"fields":[[]]}',
    "huge id": '{"spec-id":' + "9" * 5000 + ',"fields":[]}',
    "negative id": '{"spec-id":-1,"fields":[]}',
    "field id of a column": spec_json(**{"field-id": 1}),
    "float field id": spec_json(**{"field-id": 1000.0}),
    "field id beyond 32 bits": spec_json(**{"field-id": 1 << 40}),
    "no source": spec_json(**{"source-id": None}),
    "source below 1": spec_json(**{"source-id": 0}),
    "no name": spec_json(name=""),
    "name no text": spec_json(name=4),
    "no buckets": spec_json(transform="bucket[0]"),
    "unknown transform": spec_json(transform="zorder"),
    "twice the same": spec_json(GOOD_FIELD, GOOD_FIELD),
    "too many": spec_json(*[GOOD_FIELD] * 1000),
    "a member twice": '{"spec-id":0,"spec-id":0,"fields":[]}',
    "a member of a field twice": spec_json().replace('"name"', '"name": "x", "name"'),
    "a lone surrogate in a name": spec_json(name="a\ud800"),
    "a NUL in a name": spec_json(name="../x\0"),
    "a name without end": spec_json(name="x" * 2_000_000),
    "digits of another script": spec_json(transform="bucket[١٦]"),
    "a number that is none": '{"spec-id":NaN,"fields":[]}',
    "too long": " " * (1 << 21),
}


@pytest.mark.parametrize("text", NO_SPECS.values(), ids=NO_SPECS)
def test_json_that_is_no_spec_is_corruption(text: str) -> None:
    with pytest.raises(Corruption) as caught:
        PartitionSpec.from_json(text)
    assert len(str(caught.value)) < 300


def test_a_name_as_long_as_a_columns_can_be_partitioned_by() -> None:
    name = "n" * 255
    schema = TableSchema.from_arrow(pa.schema([(name, pa.int64())]), primary_key=[name])

    spec = PartitionSpec.parse([f"bucket(4, {name})"], schema)

    assert PartitionSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("text", ["bucket(١٦, id)", "truncate(٤, name)"])
def test_digits_of_another_script_are_no_parameter(text: str) -> None:
    with pytest.raises(InvalidArgument, match="lacks its number"):
        PartitionSpec.parse([text], SCHEMA)


def test_a_field_too_long_to_read_is_shown_in_short() -> None:
    calls: list[Callable[[], object]] = [
        lambda: PartitionSpec.parse(["x" * 2_000_000], SCHEMA),
        lambda: PartitionSpec.parse(["zorder(" + "x" * 2_000_000 + ")"], SCHEMA),
        lambda: PartitionSpec(0, (field("x" * 2_000_000, Identity()),)),
        lambda: Bucket(10**5_000),
        lambda: PartitionSpec(10**5_000, ()),
    ]
    for call in calls:
        with pytest.raises((InvalidArgument, NotFound)) as caught:
            call()
        assert len(str(caught.value)) < 600


def test_members_that_neve_does_not_know_are_passed_over() -> None:
    text = json.dumps({"spec-id": 5, "fields": [{**GOOD_FIELD, "note": 1}], "later": {}})

    assert PartitionSpec.from_json(text) == PartitionSpec(5, (field("x", Identity()),))
