"""`neve evolve`, and what `neve describe` tells of it afterwards."""

import json
from uuid import uuid4

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import neve
from neve.catalog.lake import Lake
from neve.cli.main import cli
from neve.engine.table_options import TableOptions
from neve.model.row_rules import rule_texts

_COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "count": pa.int32(),
    "ts": pa.timestamp("us", tz="UTC"),
    "place": pa.struct([("street", pa.string()), ("zip", pa.int32())]),
}


@pytest.fixture
def lake() -> str:
    """Return the location of a warehouse with one table, of this test alone."""
    location = f"memory://{uuid4()}"
    with neve.open(location) as catalog:
        catalog.create_table("shop.orders", pa.schema(_COLUMNS), ["id"])
    return location


@pytest.fixture
def catalog(lake: str) -> Lake:
    """Return the catalog of the same warehouse."""
    return neve.open(lake)


def run(*arguments: str, lake: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--lake", lake])


def evolve(*arguments: str, lake: str) -> Result:
    return run("evolve", "shop.orders", *arguments, lake=lake)


def test_each_change_is_one_version(lake: str, catalog: Lake) -> None:
    changes = [
        ["add", "note:string", "--default", "-"],
        ["add", "stars:int!", "--default", "3"],
        ["add", "boxes:list<struct<w: int, h: int>>"],
        ["add", "place.city:string"],
        ["drop", "place.street"],
        ["rename", "place.zip", "postcode"],
        ["move", "note", "--after", "id"],
        ["move", "ts", "--first"],
        ["widen", "count:long"],
        ["default", "count", "7"],
        ["nullable", "stars"],
        ["partition-by", "day(ts)", "bucket(4, id)"],
        ["sort-by", "id"],
        ["order-by", "count", "--keep-deletes", "2 days"],
        ["merge", "stars=max", "note=first"],
        ["ttl", "ts", "90 days"],
    ]

    for number, change in enumerate(changes, start=2):
        done = evolve(*change, lake=lake)
        assert done.exit_code == 0, done.stderr
        assert done.stdout.startswith(f"shop.orders is at version {number}, schema ")

    table = catalog.load_table("shop.orders")
    names = ["ts", "id", "note", "count", "place", "stars", "boxes"]
    assert table.schema.arrow_schema.names == names
    assert table.schema.column("note").initial_default == "-"
    assert table.schema.column("stars").initial_default == 3
    assert table.schema.column("stars").nullable
    assert table.schema.column("count").write_default == 7
    assert str(table.schema.column("place").type) == "struct<postcode: int32, city: string>"
    assert table.spec.texts(table.schema) == ["day(ts)", "bucket(4, id)"]
    assert str(table.sort_order) == "id"
    assert rule_texts(table.schema) == {
        "order_by": "count",
        "keep_deletes": "2 days",
        "merge": "note: first, stars: max",
        "ttl": "ts: 90 days",
    }
    assert "order by" in run("describe", "shop.orders", lake=lake).stdout


def test_partitions_order_and_defaults_can_be_taken_away(lake: str, catalog: Lake) -> None:
    evolve("partition-by", "day(ts)", lake=lake)
    evolve("sort-by", "id", lake=lake)
    evolve("default", "count", "7", lake=lake)
    evolve("order-by", "count", lake=lake)
    evolve("ttl", "ts", "1 hour", lake=lake)

    for change in (
        ["order-by", "--none"],
        ["merge", "--none"],
        ["ttl", "--none"],
        ["partition-by", "--none"],
        ["sort-by", "--none"],
        ["default", "count", "--none"],
    ):
        assert evolve(*change, lake=lake).exit_code == 0

    table = catalog.load_table("shop.orders")
    assert table.spec.is_unpartitioned
    assert not table.sort_order.fields
    assert not rule_texts(table.schema)
    assert table.schema.column("count").write_default is None


def test_json_says_whether_anything_changed(lake: str) -> None:
    first = evolve("widen", "count:long", "--json", lake=lake)
    second = evolve("widen", "count:long", "--json", lake=lake)

    answer = {"table": "shop.orders", "changed": True, "version": 2, "schema_version": 1}
    assert json.loads(first.stdout) == {**answer, "spec_id": 0}
    assert json.loads(second.stdout) == {**answer, "changed": False, "spec_id": 0}
    assert evolve("widen", "count:long", lake=lake).stdout == "shop.orders has not changed\n"


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        ("drop id", "in the key", "copy the rows"),
        ("add x:int!", "is required", "give it a default"),
        ("add x", "the column 'x' has no type", "Write x:string"),
        ("add x:lnog", "there is no type 'lnog'", "Did you mean long?"),
        ("add x:int --default y", "the default of column 'x' is not int", "a value of that type"),
        ("default count x", "the default of column 'count' is not int", "a value of that type"),
        ("default nope 3", "no column is named 'nope'", "The table has 'id', 'count'"),
        ("default count", "no default is given", "--none"),
        ("default count 3 --none", "both a default and --none", "--none"),
        ("rename count id", "the field 'id' already exists", "another name"),
        ("move count", "0 places given for the column", "--first"),
        ("move count --first --after id", "2 places given for the column", "--first"),
        ("widen count:string", "cannot change", "int widens to long"),
        ("widen count:long!", "cannot become required", "Leave out the !"),
        ("partition-by week(ts)", "unknown partition transform", ""),
        ("partition-by", "no fields are given", "--none"),
        ("order-by id", "in the key and cannot order", "log position"),
        ("merge count=median", "unknown merge function 'median'", "last, last_non_null"),
        ("ttl count", "1 word given", "90 days"),
        ("ttl count soon", "'soon' is not a duration", "90 days"),
        ("sort-by --none count", "both fields and --none are given", "--none"),
        ("sort-by -count", "in the order of the key ['id'], not by '-count'", "first columns"),
        ("sort-by -nope", "no column is named 'nope'", "The table has 'id', 'count'"),
    ],
)
def test_what_cannot_be_is_refused(lake: str, words: str, said: str, hint: str) -> None:
    refused = evolve(*words.split(" "), lake=lake)

    assert refused.exit_code == 2
    assert said in refused.stderr
    assert hint in refused.stderr
    assert "Traceback" not in refused.stderr


def test_who_names_no_table_is_told_how_to_see_them(lake: str) -> None:
    refused = run("evolve", "nope.x", "drop", "a", lake=lake)

    assert refused.exit_code == 2
    assert "`neve tables`" in refused.stderr


def test_describe_tells_how_the_table_came_to_be_what_it_is(lake: str, catalog: Lake) -> None:
    table = catalog.table("shop.orders", options=TableOptions(background=False))
    table.put({"id": 1, "count": None, "ts": None, "place": None})
    with table.evolve() as e:
        e.add_column("shop", "string", default="north")
        e.rename_column("place.zip", "postcode")
        e.move_column("place.postcode", first=True)
        e.widen_column("count", "long")
        e.set_default("count", 7)
        e.set_partition_by(["shop"])
    table.put({"id": 2, "shop": "south", "count": 1, "ts": None, "place": None})
    table.flush()
    with table.evolve() as e:
        e.drop_column("place")
        e.drop_column("shop")
        e.set_partition_by([])

    shown = run("describe", "shop.orders", lake=lake).stdout
    lines = {" ".join(line.split()) for line in shown.splitlines()}
    told = json.loads(run("describe", "shop.orders", "--json", lake=lake).stdout)

    changes = (
        "added shop string, widened count from int to long, renamed place.zip to postcode, "
        "reordered place, set the default of count to 7"
    )
    assert {"schema 0 4 columns", f"schema 1 {changes}", "spec 1 shop"} <= lines
    assert "schema 2 dropped place, dropped shop" in lines
    assert "shop=north 1 file · 1 row" in {line[:25] for line in lines}
    assert [each["schema_version"] for each in told["schemas"]] == [0, 1, 2]
    assert told["schemas"][1]["changes"] == changes.split(", ")
    assert told["schemas"][1]["columns"][-1]["initial_default"] == "north"
    assert told["partition_specs"][1] == {"spec_id": 1, "partition_by": ["shop"]}
    assert {each["values"]["shop"] for each in told["partitions"]} == {"north", "south"}
