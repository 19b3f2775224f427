"""Changes of a schema that the evolution matrix goes through, each with what it makes of a row."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from neve.catalog.evolution import Evolution
from neve.model.arrow_types import ArrowField

DAY: Final = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
_SPOT: Final = pa.struct([("x", pa.float32()), ("y", pa.float32())])
_PLACE: Final = pa.struct(
    [
        pa.field("street", pa.string()),
        pa.field("number", pa.int32(), nullable=False),
        pa.field("spot", _SPOT),
    ]
)
_FIELDS: Final["list[ArrowField]"] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("region", pa.string(), nullable=False),
    pa.field("count", pa.int32()),
    pa.field("ratio", pa.float32()),
    pa.field("price", pa.decimal128(9, 2)),
    pa.field("ts", pa.timestamp("us", tz="UTC")),
    pa.field("place", _PLACE),
    pa.field("marks", pa.list_(pa.struct([("at", pa.int32()), ("word", pa.string())]))),
    pa.field("prices", pa.map_(pa.string(), pa.struct([("cents", pa.int32())]))),
    pa.field("sizes", pa.list_(pa.int32())),
]
SCHEMA: Final = pa.schema(_FIELDS)

Row = dict[str, Any]
Turn = Callable[[Row], Row]


def a_row(key: int, *, shift: int = 0) -> Row:
    """Make a row in which everything that may be NULL is NULL for some key."""
    number = key + shift
    return {
        "id": key,
        "region": f"r{key % 3}",
        "count": None if key % 7 == 0 else number,
        "ratio": None if key % 5 == 0 else number / 4,
        "price": None if key % 6 == 0 else Decimal(number * 25) / 100,
        "ts": DAY + dt.timedelta(hours=number),
        "place": None
        if key % 4 == 0
        else {
            "street": None if key % 3 == 0 else f"s{number}",
            "number": number,
            "spot": None if key % 3 == 1 else {"x": number / 2, "y": None},
        },
        "marks": None
        if key % 5 == 1
        else [{"at": number, "word": "a"}, None, {"at": None, "word": None}][: key % 4],
        "prices": None if key % 6 == 1 else [("eur", {"cents": number}), ("usd", None)][: key % 3],
        "sizes": None if key % 4 == 3 else [number, None, 7],
    }


def same(row: Row) -> Row:
    return row


def with_value(name: str, value: object) -> Turn:
    return lambda row: {**row, name: value}


def without(name: str) -> Turn:
    return lambda row: {key: value for key, value in row.items() if key != name}


def renamed(old: str, new: str) -> Turn:
    return lambda row: {(new if key == old else key): value for key, value in row.items()}


def within(name: str, turn: Turn) -> Turn:
    """Turn the struct in a column, or every struct in a list or among the values of a map."""

    def change(value: Any) -> Any:  # noqa: ANN401 - a value of any column
        match value:
            case dict():
                return turn(value)
            case list():
                return [change(each) for each in value]
            case (key, inner):
                return key, change(inner)
            case _:
                return value

    return lambda row: {**row, name: change(row[name])}


def in_order(*names: str) -> Turn:
    return lambda row: {name: row[name] for name in (*names, *(set(row) - set(names)))}


@dataclass(frozen=True)
class Change:
    """One evolution, what it makes of rows, and a filter on what it changed."""

    evolve: Callable[[Evolution], None]
    turn: Turn
    filter: str
    keeps: Callable[[Row], bool]
    key: str = "id"
    more: Row = field(default_factory=dict)
    """What rows written after it have besides."""


def positive(name: str, limit: float = 5) -> Callable[[Row], bool]:
    return lambda row: row[name] is not None and row[name] > limit


def both_street_and_zip(e: Evolution) -> None:
    e.drop_column("place.street")
    e.add_column("place.street", "long")


def swapped(e: Evolution) -> None:
    e.rename_column("count", "other")
    e.rename_column("ratio", "count")
    e.rename_column("other", "ratio")


def dropped_and_added(e: Evolution) -> None:
    e.drop_column("count")
    e.add_column("count", "int")


def partitioned_by_new_column(e: Evolution) -> None:
    e.add_column("team", "string", default="red")
    e.set_partition_by(["team", "bucket(2, id)"])


def everything(e: Evolution) -> None:
    e.add_column("note", "string", default="-", nullable=False)
    e.drop_column("sizes")
    e.rename_column("count", "tally")
    e.widen_column("tally", pa.int64())
    e.widen_column("place.spot.x", "double")
    e.move_column("note", before="region")


def with_everything(row: Row) -> Row:
    row = renamed("count", "tally")(without("sizes")({**row, "note": "-"}))
    return in_order("id", "note", "region", "tally")(row)


CHANGES: Final[dict[str, Change]] = {
    "add": Change(
        lambda e: e.add_column("note", "string"),
        with_value("note", None),
        "note is null",
        lambda row: row["note"] is None,
        more={"note": "new"},
    ),
    "add with default": Change(
        lambda e: e.add_column("stars", pa.int32(), default=3, nullable=False),
        with_value("stars", 3),
        "stars = 3",
        lambda row: row["stars"] == 3,
        more={"stars": 4},
    ),
    "add a nested column": Change(
        lambda e: e.add_column("box", "struct<w: int!, tags: list<string>>"),
        with_value("box", None),
        "box is null",
        lambda row: row["box"] is None,
        more={"box": {"w": 1, "tags": ["a", None]}},
    ),
    "drop": Change(lambda e: e.drop_column("count"), without("count"), "id > 5", positive("id")),
    "drop a nested column": Change(
        lambda e: e.drop_column("place"), without("place"), "count > 5", positive("count")
    ),
    "drop and add again": Change(
        dropped_and_added,
        with_value("count", None),
        "count is null",
        lambda row: row["count"] is None,
        more={"count": 5},
    ),
    "rename": Change(
        lambda e: e.rename_column("count", "tally"),
        renamed("count", "tally"),
        "tally > 5",
        positive("tally"),
    ),
    "rename a key column": Change(
        lambda e: e.rename_column("id", "order_id"),
        renamed("id", "order_id"),
        "order_id > 5",
        positive("order_id"),
        key="order_id",
    ),
    "swap two names": Change(
        swapped,
        lambda row: {**row, "count": row["ratio"], "ratio": row["count"]},
        "ratio > 5",
        positive("ratio"),
    ),
    "move first": Change(
        lambda e: e.move_column("ts", first=True), in_order("ts"), "count > 5", positive("count")
    ),
    "move behind": Change(
        lambda e: e.move_column("id", after="count"), same, "count > 5", positive("count")
    ),
    "widen int": Change(
        lambda e: e.widen_column("count", "long"),
        same,
        "count > 5",
        positive("count"),
        more={"count": 1 << 40},
    ),
    "widen float": Change(
        lambda e: e.widen_column("ratio", pa.float64()),
        same,
        "ratio > 0.75",
        positive("ratio", 0.75),
        more={"ratio": 0.1},
    ),
    "widen decimal": Change(
        lambda e: e.widen_column("price", "decimal(18,2)"),
        same,
        "price > 1.5",
        lambda row: row["price"] is not None and row["price"] > Decimal("1.5"),
        more={"price": Decimal("1234567890123456.78")},
    ),
    "set default": Change(
        lambda e: e.set_default("count", 77),
        same,
        "count > 5",
        positive("count"),
    ),
    "add to a struct": Change(
        lambda e: e.add_column("place.city", "string"),
        within("place", with_value("city", None)),
        "place is not null",
        lambda row: row["place"] is not None,
    ),
    "drop from a struct": Change(
        lambda e: e.drop_column("place.number"),
        within("place", without("number")),
        "id > 5",
        positive("id"),
    ),
    "drop and add in a struct": Change(
        both_street_and_zip,
        within("place", with_value("street", None)),
        "place is null",
        lambda row: row["place"] is None,
    ),
    "rename in a struct": Change(
        lambda e: e.rename_column("place.street", "road"),
        within("place", renamed("street", "road")),
        "id > 5",
        positive("id"),
    ),
    "move in a struct": Change(
        lambda e: e.move_column("place.spot", first=True), same, "id > 5", positive("id")
    ),
    "widen in a struct": Change(
        lambda e: e.widen_column("place.number", "long"), same, "id > 5", positive("id")
    ),
    "widen in a struct in a struct": Change(
        lambda e: e.widen_column("place.spot.x", "double"), same, "id > 5", positive("id")
    ),
    "widen the element of a list": Change(
        lambda e: e.widen_column("sizes.element", "long"), same, "id > 5", positive("id")
    ),
    "add to structs in a list": Change(
        lambda e: e.add_column("marks.by", "string"),
        within("marks", with_value("by", None)),
        "marks is null",
        lambda row: row["marks"] is None,
    ),
    "rename in structs in a list": Change(
        lambda e: e.rename_column("marks.element.word", "text"),
        within("marks", renamed("word", "text")),
        "id > 5",
        positive("id"),
    ),
    "widen in the values of a map": Change(
        lambda e: e.widen_column("prices.value.cents", "long"), same, "id > 5", positive("id")
    ),
    "add to the values of a map": Change(
        lambda e: e.add_column("prices.tax", "int"),
        within("prices", with_value("tax", None)),
        "prices is not null",
        lambda row: row["prices"] is not None,
    ),
    "make nullable": Change(
        lambda e: e.make_nullable("region"),
        same,
        "region = 'r1'",
        lambda row: row["region"] == "r1",
        more={"region": None},
    ),
    "partition by": Change(
        lambda e: e.set_partition_by(["day(ts)", "region"]),
        same,
        "region = 'r1'",
        lambda row: row["region"] == "r1",
    ),
    "partition by a new column": Change(
        partitioned_by_new_column,
        with_value("team", "red"),
        "team = 'red'",
        lambda row: row["team"] == "red",
        more={"team": "blue"},
    ),
    "sort by": Change(lambda e: e.set_sort_by(["id"]), same, "count > 5", positive("count")),
    "everything at once": Change(everything, with_everything, "note = '-'", lambda _: True),
}
