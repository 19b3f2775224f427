"""Evolution blocks: what they change, together or not at all, and what they refuse."""

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from neve.catalog.catalog_table import CatalogTable
from neve.catalog.lake import Lake
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
from neve.model.type_parser import parse_type
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


def a_table(
    catalog: Lake | None = None, *, properties: dict[str, str] | None = None
) -> CatalogTable:
    lake = a_catalog() if catalog is None else catalog
    lake.create_table(
        "shop.orders",
        pa.schema(_COLUMNS),
        ["id"],
        partition_by=["day(ts)"],
        sort_by=["id"],
        properties=properties,
    )
    return lake.load_table("shop.orders")


def evolved(*calls: str, table: CatalogTable | None = None) -> CatalogTable:
    """Evolve a table by calls such as `add_column note string default="-"`."""
    changed = a_table() if table is None else table
    with changed.evolve() as e:
        for call in filter(None, calls):
            name, *words = call.split(" ")
            named = dict(word.split("=") for word in words if "=" in word)
            given = [value_of(word) for word in words if "=" not in word]
            getattr(e, name)(*given, **{key: value_of(word) for key, word in named.items()})
    return changed


def value_of(word: str) -> object:
    """Read a word as JSON where it is JSON; otherwise it stands for itself."""
    try:
        return json.loads(word)
    except ValueError:
        return word


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
        e.set_sort_by([])

    assert table.version == e.version == before + 1
    assert table.history().column("operation").to_pylist()[-1] == "EVOLVE"
    assert table.schema.arrow_schema.names[:4] == ["id", "note", "customer", "count"]
    assert "ratio" not in table.schema
    assert table.schema.column("count").type == pa.int64()
    assert table.spec.texts(table.schema) == ["bucket(4, id)"]
    assert not table.sort_order.fields


def test_a_block_that_fails_changes_nothing() -> None:
    table = a_table()
    before = table.version

    with pytest.raises(SchemaMismatch):
        evolved("add_column note string", "drop_column id", table=table)

    assert table.refresh().version == before
    assert "note" not in table.schema


@pytest.mark.parametrize(
    "calls",
    [
        "",
        "rename_column name name",
        "add_column x int; drop_column x",
        "rename_column name x; rename_column x name",
        "widen_column count int",
        'set_partition_by ["day(ts)"]',
        'set_sort_by ["id"]',
        "move_column id first=true",
        "set_default name null",
    ],
)
def test_a_block_that_comes_to_nothing_makes_no_version(calls: str) -> None:
    table = a_table()
    before = table.version

    evolved(*calls.split("; "), table=table)

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
    evolved("add_column other int", table=catalog.load_table("shop.orders"))

    with pytest.raises(CatalogConflict) as conflict, e:
        pass

    assert conflict.value.keys == ("schema_id",)
    assert "note" not in table.refresh().schema


@pytest.mark.parametrize(
    ("call", "other", "key"),
    [
        ('set_partition_by ["name"]', 'set_partition_by ["count"]', "spec_id"),
        ("set_partition_by []", 'set_partition_by ["name"]', "spec_id"),
        ('set_sort_by ["id"]', "set_sort_by []", "sort_order"),
    ],
)
def test_partitions_and_order_that_others_changed_meanwhile_are_a_conflict(
    call: str, other: str, key: str
) -> None:
    catalog = a_catalog()
    table = a_table(catalog)
    theirs = catalog.load_table("shop.orders")

    e = table.evolve()
    name, words = call.split(" ", 1)
    getattr(e, name)(value_of(words))
    evolved(other, table=theirs)

    with pytest.raises(CatalogConflict) as conflict, e:
        pass

    assert conflict.value.keys == (key,)
    assert table.refresh().version == theirs.version


def test_parts_that_a_block_leaves_alone_may_change_meanwhile() -> None:
    catalog = a_catalog()
    table = a_table(catalog)
    with table.evolve() as e:
        e.set_sort_by([])
        evolved('set_partition_by ["count"]', table=catalog.load_table("shop.orders"))

    assert not table.sort_order.fields
    assert table.spec.texts(table.schema) == ["count"]


def test_files_that_others_commit_meanwhile_are_no_conflict() -> None:
    table = a_table()
    with table.evolve() as e:
        e.add_column("note", "string")
        table.set_properties({"neve.retention.versions": "9"})

    assert "note" in table.schema


# Columns


def test_a_default_stands_for_rows_that_exist_and_for_rows_to_come() -> None:
    table = evolved("add_column stars int default=3 nullable=false")

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
    table = a_table()
    if stored is None:
        with pytest.raises(SchemaMismatch, match="default of column 'x'"), table.evolve() as e:
            e.add_column("x", type_, default=default)
        return

    with table.evolve() as e:
        e.add_column("x", type_, default=default)

    assert table.schema.column("x").initial_default == stored


def test_a_default_set_later_is_for_rows_to_come() -> None:
    table = evolved("add_column stars int default=3")
    evolved("set_default stars 5", table=table)
    column = table.schema.column("stars")
    assert (column.initial_default, column.write_default) == (3, 5)

    evolved("set_default stars null", table=table)

    column = table.schema.column("stars")
    assert (column.initial_default, column.write_default) == (3, None)


def test_ids_are_given_out_once() -> None:
    table = a_table()
    first = table.schema.last_field_id
    evolved("add_column x struct<a:int,b:list<int>>", table=table)
    evolved("drop_column x", table=table)

    evolved("add_column x int", table=table)

    assert table.schema.column("x").field_id == first + 5
    assert table.schema.last_field_id == first + 5


def test_renaming_and_moving_keep_ids_at_every_depth() -> None:
    before = a_table()
    ids = ids_by_path(before.schema)

    changed = evolved(
        "rename_column place address",
        "rename_column address.zip address.postcode",
        "move_column address.postcode before=street",
        "move_column address first=true",
        "rename_column stops.element.at when",
        table=before,
    )

    after = ids_by_path(changed.schema)
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
        "add_column stops.note string",
        "add_column boxes map<string,struct<w:int>>",
        "add_column boxes.h int",
    )

    paths = ids_by_path(table.schema)
    assert {"stops.element.note", "boxes.value.w", "boxes.value.h"} <= set(paths)


def test_partitions_and_order_follow_columns_that_are_renamed_in_the_same_block() -> None:
    table = evolved(
        'set_partition_by ["month(ts)","truncate(3,name)"]',
        'set_sort_by ["id"]',
        "rename_column ts moment",
        "rename_column name customer",
        "rename_column id number",
    )

    assert table.spec.texts(table.schema) == ["month(moment)", "truncate(3, customer)"]
    assert str(table.sort_order) == "number"


def test_a_partition_source_may_go_when_the_partitions_do() -> None:
    table = evolved("drop_column ts", "set_partition_by []")

    assert table.spec.is_unpartitioned
    assert len(table.specs) == 2


def test_a_required_column_may_become_nullable() -> None:
    table = evolved("add_column stars int default=3 nullable=false")

    evolved("make_nullable stars", table=table)

    assert table.schema.column("stars").nullable


# What is refused


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        ("drop_column id", SchemaMismatch, "CATALOG-26.*copy the rows"),
        ("widen_column id long", SchemaMismatch, "CATALOG-26.*copy the rows"),
        ("make_nullable id", SchemaMismatch, "CATALOG-26.*copy the rows"),
        ("add_column x int nullable=false", SchemaMismatch, "CATALOG-30.*a default"),
        ("add_column place.x int nullable=false", SchemaMismatch, "CATALOG-30.*Make it nullable"),
        ("add_column place.x int default=1", InvalidArgument, "only columns have defaults"),
        ("set_default place.zip 1", InvalidArgument, "default of a column instead"),
        ("set_default place {}", InvalidArgument, "cannot have a default"),
        ("set_default count x", SchemaMismatch, "default of column 'count'"),
        ("set_default id 60", SchemaMismatch, "CATALOG-33.*Write the key of every row"),
        ("add_column name int", AlreadyExists, "another name"),
        ("add_column place.zip int", AlreadyExists, "another name"),
        ("add_column nam.x int", NotFound, "'name'"),
        ("add_column name.x int", InvalidArgument, "is a string"),
        ("add_column costs.key.x int", SchemaMismatch, "CATALOG-32"),
        ("add_column costs.x int", InvalidArgument, "is a float"),
        ("add_column x lnog", InvalidArgument, "mean long"),
        ("add_column x 3", InvalidArgument, "given as int"),
        ("add_column _neve_x int", InvalidArgument, "MODEL-3"),
        ('add_column "" int', InvalidArgument, "MODEL-2"),
        ("add_column 3 int", InvalidArgument, "text, not int"),
        ("drop_column nmae", NotFound, "'name'"),
        ("drop_column NAME", NotFound, "mean 'name'"),
        ("drop_column zzz", NotFound, "The table has 'id', 'name', 'count', .* and 9 more"),
        ("drop_column only.x", InvalidArgument, "Drop 'only' instead"),
        ("drop_column tags.element", InvalidArgument, "Drop 'tags' as a whole"),
        ("drop_column costs.value", InvalidArgument, "part of its map"),
        ("drop_column ts", InvalidArgument, "'ts_day'.*same step"),
        ("rename_column name id", AlreadyExists, "another name"),
        ("rename_column place.zip street", AlreadyExists, "another name"),
        ("rename_column place.zip only.zip", InvalidArgument, "stays where it is"),
        ("rename_column tags.element x", InvalidArgument, "Rename a column"),
        ("rename_column name ts_day", InvalidArgument, "partition field"),
        ("rename_column id a,b", InvalidArgument, "comma"),
        ("move_column name", InvalidArgument, "Pass one of"),
        ("move_column name first=true after=id", InvalidArgument, "Pass one of"),
        ("move_column name after=place.zip", NotFound, "no sibling"),
        ("move_column place.zip after=name", NotFound, "siblings"),
        ("move_column name after=name", InvalidArgument, "beside itself"),
        ("move_column costs.value first=true", InvalidArgument, "Move a column"),
        ("widen_column name binary", SchemaMismatch, "CATALOG-28.*int widens to long"),
        ("widen_column count double", SchemaMismatch, "CATALOG-28.*copy the values"),
        ("widen_column ratio long", SchemaMismatch, "CATALOG-28"),
        ("widen_column price decimal(8,2)", SchemaMismatch, "CATALOG-28"),
        ("widen_column price decimal(12,3)", SchemaMismatch, "CATALOG-28"),
        ("widen_column ts timestamp", SchemaMismatch, "CATALOG-28"),
        ("widen_column place long", SchemaMismatch, "CATALOG-28.*one by one"),
        ("widen_column count list<int>", SchemaMismatch, "CATALOG-28"),
        ("widen_column costs.key long", SchemaMismatch, "CATALOG-32"),
        ("set_partition_by day(ts)", InvalidArgument, "a list"),
        ('set_partition_by ["week(ts)"]', InvalidArgument, "unknown partition"),
        ('set_partition_by ["day(tss)"]', NotFound, "'ts'"),
        ('set_partition_by ["zzz"]', NotFound, "The table has 'id', 'name'"),
        ('set_partition_by ["day(name)"]', NeveError, "name"),
        ('set_sort_by ["place"]', InvalidArgument, "has no order"),
        ('set_sort_by ["count"]', InvalidArgument, "CATALOG-36.*first columns of the key"),
        ('set_sort_by ["-id"]', InvalidArgument, "CATALOG-36.*first columns of the key"),
        ('set_sort_by ["id","count"]', InvalidArgument, "CATALOG-36.*first columns of the key"),
    ],
)
def test_what_rows_could_not_follow_is_refused_with_the_reason(
    call: str, kind: type[NeveError], said: str
) -> None:
    table = a_table()
    before = table.version

    with pytest.raises(kind, match=f"(?s){said}"):
        evolved(call, table=table)

    assert table.refresh().version == before


def test_a_partition_source_cannot_be_dropped_in_the_step_that_makes_it_one() -> None:
    with pytest.raises(InvalidArgument, match="'name' uses a column that is dropped"):
        evolved('set_partition_by ["name"]', "drop_column name")


def test_a_key_column_gets_no_default_from_whoever_makes_the_schema() -> None:
    table = a_table()
    key, *others = table.schema.columns
    asked = replace(table.schema, columns=(replace(key, write_default=60), *others))

    with pytest.raises(SchemaMismatch, match="CATALOG-33"):
        table.update_schema(asked)


def test_a_type_that_no_table_holds_is_refused_with_what_to_use() -> None:
    with pytest.raises(SchemaMismatch, match=r"decimal128\(20, 0\)"), a_table().evolve() as e:
        e.add_column("x", pa.uint64())


def test_a_default_for_rows_that_exist_needs_format_version_3() -> None:
    table = a_table(properties={"format-version": "2"})

    with pytest.raises(SchemaMismatch, match=r"CATALOG-31.*set one for later rows"):
        evolved("add_column stars int default=3", table=table)
    evolved("add_column stars int", "set_default stars 3", table=table)

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
            pa.map_(pa.string(), pa.decimal128(9, 2)),
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
