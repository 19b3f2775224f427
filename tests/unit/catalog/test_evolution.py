"""Evolution blocks: what they change, together or not at all, and what they refuse."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest

from neve.catalog.catalog_table import CatalogTable
from neve.catalog.evolution import Evolution
from neve.catalog.kv_catalog import KVCatalog
from neve.errors import (
    AlreadyExists,
    CatalogConflict,
    Closed,
    InvalidArgument,
    NeveError,
    NotFound,
    SchemaMismatch,
)
from neve.model.arrow_types import field_id_of
from neve.model.field_ids import walk_fields
from neve.model.schema import TableSchema
from neve.model.type_words import parse_type
from tests.unit.catalog.builders import a_catalog

_COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int32(),
    "name": pa.string(),
    "count": pa.int32(),
    "price": pa.decimal128(9, 2),
    "ratio": pa.float32(),
    "ts": pa.timestamp("us", tz="UTC"),
    "place": pa.struct([("street", pa.string()), ("zip", pa.int32())]),
    "only": pa.struct([("x", pa.int32())]),
    "tags": pa.list_(pa.int32()),
    "stops": pa.list_(pa.struct([("at", pa.int32())])),
    "costs": pa.map_(pa.int32(), pa.float32()),
}

Block = Callable[[Evolution], None]


def a_table(
    catalog: KVCatalog | None = None, *, properties: dict[str, str] | None = None
) -> CatalogTable:
    lake = a_catalog() if catalog is None else catalog
    lake.create_table(
        "shop.orders",
        pa.schema(_COLUMNS),
        ["id"],
        partition_by=["day(ts)"],
        sort_by=["-count"],
        properties=properties,
    )
    return lake.load_table("shop.orders")


def evolved(block: Block, *, table: CatalogTable | None = None) -> CatalogTable:
    changed = a_table() if table is None else table
    with changed.evolve() as e:
        block(e)
    return changed


def ids_by_path(schema: TableSchema) -> dict[str, int | None]:
    return {path: field_id_of(field) for path, field in walk_fields(tuple(schema.arrow_schema))}


# What a block changes


def test_all_changes_of_a_block_are_one_version() -> None:
    table = a_table()
    before = table.version

    with table.evolve() as e:
        e.add_column("note", "string", default="-")
        e.drop_column("ratio")
        e.rename_column("name", "customer")
        e.move_column("note", after="id")
        e.widen_column("count", "long")
        e.set_partition_by(["bucket(4, id)"])
        e.set_sort_by(["customer"])

    assert table.version == e.version == before + 1
    assert table.history().column("operation").to_pylist()[-1] == "evolve"
    assert table.schema.arrow_schema.names[:4] == ["id", "note", "customer", "count"]
    assert "ratio" not in table.schema
    assert table.schema.column("count").type == pa.int64()
    assert table.spec.texts(table.schema) == ["bucket(4, id)"]
    assert str(table.sort_order) == "customer"


def test_a_block_that_fails_changes_nothing() -> None:
    table = a_table()
    before = table.version

    with pytest.raises(ZeroDivisionError), table.evolve() as e:
        e.add_column("note", "string")
        raise ZeroDivisionError

    assert table.refresh().version == before
    assert e.version is None
    assert "note" not in table.schema


@pytest.mark.parametrize(
    "block",
    [
        lambda _: None,
        lambda e: e.rename_column("name", "name"),
        lambda e: (e.add_column("x", "int"), e.drop_column("x")),
        lambda e: (e.rename_column("name", "x"), e.rename_column("x", "name")),
        lambda e: e.widen_column("count", "int"),
        lambda e: e.set_partition_by(["day(ts)"]),
        lambda e: e.set_sort_by(["-count"]),
        lambda e: e.move_column("id", first=True),
        lambda e: e.set_default("name", None),
    ],
    ids=[
        "nothing",
        "same name",
        "added and dropped",
        "back again",
        "same type",
        "same partitions",
        "same order",
        "same place",
        "same default",
    ],
)
def test_a_block_that_comes_to_nothing_makes_no_version(block: Block) -> None:
    table = a_table()
    before = table.version

    evolved(block, table=table)

    assert table.version == before
    assert len(table.schemas) == 1


def test_a_block_that_has_ended_takes_no_more_calls() -> None:
    with a_table().evolve() as e:
        pass

    with pytest.raises(Closed, match="has ended"):
        e.add_column("note", "string")
    with pytest.raises(Closed, match="has ended"), e:
        pass


def test_a_schema_that_others_changed_meanwhile_is_a_conflict() -> None:
    catalog = a_catalog()
    table = a_table(catalog)
    e = table.evolve()
    e.add_column("note", "string")
    evolved(lambda other: other.add_column("other", "int"), table=catalog.load_table("shop.orders"))

    with pytest.raises(CatalogConflict) as conflict, e:
        pass

    assert conflict.value.keys == ("schema_id",)
    assert "note" not in table.refresh().schema


def test_files_that_others_commit_meanwhile_are_no_conflict() -> None:
    table = a_table()
    with table.evolve() as e:
        e.add_column("note", "string")
        table.set_properties({"neve.retention.versions": "9"})

    assert "note" in table.schema


# Columns


def test_a_default_stands_for_rows_that_exist_and_for_rows_to_come() -> None:
    table = evolved(lambda e: e.add_column("stars", pa.int16(), default=3, nullable=False))

    column = table.schema.column("stars")
    assert (column.initial_default, column.write_default, column.nullable) == (3, 3, False)
    assert column.type == pa.int32()
    assert column.field_id == table.schema.last_field_id


@pytest.mark.parametrize(
    ("type_", "default", "stored"),
    [
        ("boolean", True, True),
        ("double", 1, 1.0),
        ("decimal(9,2)", "1.5", None),
        ("decimal(9,2)", Decimal("1.5"), Decimal("1.50")),
        ("date", dt.date(2024, 3, 1), dt.date(2024, 3, 1)),
        ("binary", b"\x00", b"\x00"),
        ("string", "", ""),
    ],
    ids=["boolean", "double", "text for decimal", "decimal", "date", "binary", "string"],
)
def test_a_default_is_a_value_of_its_column(type_: str, default: object, stored: object) -> None:
    if stored is None:
        with pytest.raises(SchemaMismatch, match="default of column 'x'"):
            evolved(lambda e: e.add_column("x", type_, default=default))
        return

    table = evolved(lambda e: e.add_column("x", type_, default=default))

    assert table.schema.column("x").initial_default == stored


def test_a_default_set_later_is_for_rows_to_come() -> None:
    table = evolved(lambda e: e.add_column("stars", "int", default=3))
    evolved(lambda e: e.set_default("stars", 5), table=table)
    column = table.schema.column("stars")
    assert (column.initial_default, column.write_default) == (3, 5)

    evolved(lambda e: e.set_default("stars", None), table=table)

    column = table.schema.column("stars")
    assert (column.initial_default, column.write_default) == (3, None)


def test_ids_are_given_out_once() -> None:
    table = a_table()
    first = table.schema.last_field_id
    evolved(lambda e: e.add_column("x", "struct<a: int, b: list<int>>"), table=table)
    evolved(lambda e: e.drop_column("x"), table=table)

    evolved(lambda e: e.add_column("x", "int"), table=table)

    assert table.schema.column("x").field_id == first + 5
    assert table.schema.last_field_id == first + 5


def test_renaming_and_moving_keep_ids_at_every_depth() -> None:
    before = a_table()
    ids = ids_by_path(before.schema)

    def block(e: Evolution) -> None:
        e.rename_column("place", "address")
        e.rename_column("address.zip", "address.postcode")
        e.move_column("address.postcode", before="street")
        e.move_column("address", first=True)
        e.rename_column("stops.element.at", "when")

    after = ids_by_path(evolved(block, table=before).schema)

    assert list(after)[:3] == ["address", "address.postcode", "address.street"]
    assert after["address"] == ids["place"]
    assert after["address.postcode"] == ids["place.zip"]
    assert after["address.street"] == ids["place.street"]
    assert after["stops.element.when"] == ids["stops.element.at"]


@pytest.mark.parametrize(
    ("how", "names"),
    [
        ({"first": True}, "c a b"),
        ({"after": "a"}, "a c b"),
        ({"before": "b"}, "a c b"),
        ({"before": "a"}, "c a b"),
        ({"after": "b"}, "a b c"),
    ],
    ids=["first", "after", "before", "before the first", "after the last"],
)
def test_a_column_goes_where_it_is_told(how: dict[str, object], names: str) -> None:
    catalog = a_catalog()
    columns = {name: pa.int64() for name in "abc"}
    catalog.create_table("a.b", pa.schema(columns), ["a"])
    table = catalog.load_table("a.b")

    with table.evolve() as e:
        e.move_column("c", **how)  # type: ignore[arg-type]

    assert table.schema.arrow_schema.names == names.split()


def test_a_field_added_below_a_list_or_map_goes_into_its_structs() -> None:
    table = evolved(
        lambda e: (
            e.add_column("stops.note", "string"),
            e.add_column("boxes", "map<string, struct<w: int>>"),
            e.add_column("boxes.h", "int"),
        )
    )

    paths = ids_by_path(table.schema)
    assert {"stops.element.note", "boxes.value.w", "boxes.value.h"} <= set(paths)


def test_partitions_and_order_follow_columns_that_are_renamed_in_the_same_block() -> None:
    def block(e: Evolution) -> None:
        e.set_partition_by(["month(ts)", "truncate(3, name)"])
        e.set_sort_by(["-price"])
        e.rename_column("ts", "moment")
        e.rename_column("name", "customer")
        e.rename_column("price", "cost")

    table = evolved(block)

    assert table.spec.texts(table.schema) == ["month(moment)", "truncate(3, customer)"]
    assert str(table.sort_order) == "-cost"


def test_a_partition_source_may_go_when_the_partitions_do() -> None:
    table = evolved(lambda e: (e.drop_column("ts"), e.set_partition_by([])))

    assert table.spec.is_unpartitioned
    assert len(table.specs) == 2


def test_a_required_column_may_become_nullable() -> None:
    table = evolved(lambda e: e.add_column("stars", "int", default=3, nullable=False))

    evolved(lambda e: e.make_nullable("stars"), table=table)

    assert table.schema.column("stars").nullable


# What is refused


@pytest.mark.parametrize(
    ("block", "kind", "said"),
    [
        (lambda e: e.drop_column("id"), SchemaMismatch, "U1.*copy the rows"),
        (lambda e: e.widen_column("id", "long"), SchemaMismatch, "U1.*copy the rows"),
        (lambda e: e.make_nullable("id"), SchemaMismatch, "U1.*copy the rows"),
        (lambda e: e.add_column("x", "int", nullable=False), SchemaMismatch, "U5.*a default"),
        (lambda e: e.add_column("place.x", "int", nullable=False), SchemaMismatch, "U5.*be NULL"),
        (lambda e: e.add_column("place.x", "int", default=1), InvalidArgument, "Only columns"),
        (lambda e: e.set_default("place.zip", 1), InvalidArgument, "Only columns"),
        (lambda e: e.set_default("place", {}), InvalidArgument, "cannot have a default"),
        (lambda e: e.set_default("count", "x"), SchemaMismatch, "default of column 'count'"),
        (lambda e: e.add_column("name", "int"), AlreadyExists, "another name"),
        (lambda e: e.add_column("place.zip", "int"), AlreadyExists, "another name"),
        (lambda e: e.add_column("nam.x", "int"), NotFound, "'name'"),
        (lambda e: e.add_column("name.x", "int"), InvalidArgument, "is a string"),
        (lambda e: e.add_column("costs.key.x", "int"), SchemaMismatch, "U7"),
        (lambda e: e.add_column("costs.x", "int"), InvalidArgument, "is a float"),
        (lambda e: e.add_column("x", "lnog"), InvalidArgument, "mean long"),
        (lambda e: e.add_column("x", 3), InvalidArgument, "given as int"),
        (lambda e: e.add_column("_neve_x", "int"), InvalidArgument, "S3"),
        (lambda e: e.add_column("", "int"), InvalidArgument, "S2"),
        (lambda e: e.add_column(3, "int"), InvalidArgument, "text, not int"),
        (lambda e: e.add_column("x", pa.uint64()), SchemaMismatch, r"decimal128\(20, 0\)"),
        (lambda e: e.drop_column("nmae"), NotFound, "'name'"),
        (lambda e: e.drop_column("only.x"), InvalidArgument, "Drop 'only' instead"),
        (lambda e: e.drop_column("tags.element"), InvalidArgument, "Drop 'tags' as a whole"),
        (lambda e: e.drop_column("costs.value"), InvalidArgument, "part of its map"),
        (lambda e: e.drop_column("ts"), InvalidArgument, "'ts_day'.*same step"),
        (lambda e: e.drop_column("count"), InvalidArgument, "sorted by it"),
        (
            lambda e: (e.set_partition_by(["name"]), e.drop_column("name")),
            InvalidArgument,
            "'name' is made",
        ),
        (lambda e: e.rename_column("name", "id"), AlreadyExists, "another name"),
        (lambda e: e.rename_column("place.zip", "street"), AlreadyExists, "another name"),
        (lambda e: e.rename_column("place.zip", "only.zip"), InvalidArgument, "stays where it is"),
        (lambda e: e.rename_column("tags.element", "x"), InvalidArgument, "no names"),
        (lambda e: e.rename_column("name", "ts_day"), InvalidArgument, "partition field"),
        (lambda e: e.rename_column("count", "a,b"), InvalidArgument, "comma"),
        (lambda e: e.move_column("name"), InvalidArgument, "Give one of"),
        (lambda e: e.move_column("name", first=True, after="id"), InvalidArgument, "Give one of"),
        (lambda e: e.move_column("name", after="place.zip"), NotFound, "neighbours"),
        (lambda e: e.move_column("place.zip", after="name"), NotFound, "neighbours"),
        (lambda e: e.move_column("name", after="name"), InvalidArgument, "beside itself"),
        (lambda e: e.move_column("costs.value", first=True), InvalidArgument, "an order"),
        (lambda e: e.widen_column("name", "binary"), SchemaMismatch, "U3.*int widens to long"),
        (lambda e: e.widen_column("count", "double"), SchemaMismatch, "U3.*copy the values"),
        (lambda e: e.widen_column("ratio", "long"), SchemaMismatch, "U3"),
        (lambda e: e.widen_column("price", "decimal(8,2)"), SchemaMismatch, "U3"),
        (lambda e: e.widen_column("price", "decimal(12,3)"), SchemaMismatch, "U3"),
        (lambda e: e.widen_column("ts", "timestamp"), SchemaMismatch, "U3"),
        (lambda e: e.widen_column("place", "long"), SchemaMismatch, "U3.*one by one"),
        (lambda e: e.widen_column("count", "list<int>"), SchemaMismatch, "U3"),
        (lambda e: e.widen_column("costs.key", "long"), SchemaMismatch, "U7"),
        (lambda e: e.set_partition_by("day(ts)"), InvalidArgument, "a list"),
        (lambda e: e.set_partition_by(["week(ts)"]), InvalidArgument, "unknown partition"),
        (lambda e: e.set_partition_by(["day(tss)"]), NotFound, "'ts'"),
        (lambda e: e.set_partition_by(["day(name)"]), NeveError, "name"),
        (lambda e: e.set_sort_by(["place"]), InvalidArgument, "has no order"),
    ],
)  # fmt: skip
def test_what_rows_could_not_follow_is_refused_with_the_reason(
    block: Block, kind: type[NeveError], said: str
) -> None:
    table = a_table()
    before = table.version

    with pytest.raises(kind, match=f"(?s){said}"):
        evolved(block, table=table)

    assert table.refresh().version == before


def test_a_default_for_rows_that_exist_needs_format_version_3() -> None:
    table = a_table(properties={"format-version": "2"})

    with pytest.raises(SchemaMismatch, match=r"U6.*set one for rows to come"):
        evolved(lambda e: e.add_column("stars", "int", default=3), table=table)
    evolved(lambda e: (e.add_column("stars", "int"), e.set_default("stars", 3)), table=table)

    column = table.schema.column("stars")
    assert (column.initial_default, column.write_default) == (None, 3)


# Types in words


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("long", pa.int64()),
        (" Int64 ", pa.int64()),
        ("decimal( 9 , 2 )", pa.decimal128(9, 2)),
        ("fixed(16)", pa.binary(16)),
        ("fixed[16]", pa.binary(16)),
        ("list<long>", pa.list_(pa.field("element", pa.int64()))),
        ("list<long!>", pa.list_(pa.field("element", pa.int64(), nullable=False))),
        (
            "map<string, decimal(9,2)>",
            pa.map_(
                pa.field("key", pa.string(), nullable=False), pa.field("value", pa.decimal128(9, 2))
            ),
        ),
        (
            "struct<a: int!, b: list<struct<c: map<int, text>>>>",
            pa.struct(
                [
                    pa.field("a", pa.int32(), nullable=False),
                    pa.field(
                        "b",
                        pa.list_(
                            pa.field(
                                "element", pa.struct([("c", pa.map_(pa.int32(), pa.string()))])
                            )
                        ),
                    ),
                ]
            ),
        ),
    ],
)
def test_types_are_read_as_people_write_them(text: str, type_: pa.DataType) -> None:
    assert parse_type(text) == type_


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("list<>", "0 parts"),
        ("list<int, int>", "2 parts"),
        ("map<int>", "1 parts"),
        ("struct<>", "0 parts"),
        ("struct<int>", "lacks its name"),
        ("struct<a: >", "there is no type ''"),
        ("list<lnog>", "mean long"),
        ("list<int", "there is no type"),
        ("list<" * 40 + "int" + ">" * 40, "deeper than"),
        ("int" * 10_000, "there is no type"),
    ],
    ids=lambda value: value[:20],
)
def test_words_that_are_no_type_are_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        parse_type(text)
