"""RowRules: reading what calls take, refusing what does not fit, and keeping it in the schema."""

from dataclasses import replace
from datetime import timedelta
from typing import cast

import pyarrow as pa
import pytest

from neve.errors import Corruption, InvalidArgument, NotFound
from neve.model.row_rules import (
    NO_RULES,
    AskedRules,
    MergeFunction,
    TimeToLive,
    duration_text,
    milliseconds_of,
    rule_texts,
)
from neve.model.schema import TableSchema

DAY_MS = 24 * 60 * 60 * 1_000


def schema(**asked: object) -> TableSchema:
    columns: dict[str, pa.DataType] = {
        "id": pa.int64(),
        "lsn": pa.int64(),
        "part": pa.int32(),
        "total": pa.decimal128(9, 2),
        "name": pa.string(),
        "is_paid": pa.bool_(),
        "tags": pa.list_(pa.string()),
        "ts": pa.timestamp("us", tz="UTC"),
    }
    plain = TableSchema.from_arrow(pa.schema(columns), primary_key=["id"])
    return replace(plain, rules=AskedRules(**asked).on(plain))  # type: ignore[arg-type]


def test_a_schema_without_rules_is_written_as_before() -> None:
    assert schema().rules == NO_RULES
    assert "order-by" not in schema().to_json()
    assert "ttl" not in schema().to_json()


def test_deletes_are_kept_only_in_a_table_with_an_order() -> None:
    with pytest.raises(InvalidArgument, match="without order columns"):
        schema(keep_deletes="2 days")


def test_rules_survive_json_and_change_the_fingerprint() -> None:
    made = schema(
        order_by=["lsn", "part"],
        keep_deletes="2 days",
        merge={"total": "sum", "name": "last", "tags": "first"},
        ttl=("ts", timedelta(days=90)),
    )

    assert TableSchema.from_json(made.to_json()) == made
    assert made.fingerprint() != schema().fingerprint()
    assert made.rules.order_by == (2, 3)
    assert made.rules.keep_deletes_ms == 2 * DAY_MS
    assert made.rules.merge == ((4, MergeFunction.SUM), (7, MergeFunction.FIRST))
    assert made.rules.ttl == TimeToLive(field_id=8, milliseconds=90 * DAY_MS)
    assert rule_texts(made) == {
        "order_by": "lsn, part",
        "keep_deletes": "2 days",
        "merge": "total: sum, tags: first",
        "ttl": "ts: 90 days",
    }


def test_a_function_of_a_newer_neve_is_refused() -> None:
    text = schema(merge={"total": "sum"}).to_json().replace('"sum"', '"median"')

    with pytest.raises(Corruption, match="median"):
        TableSchema.from_json(text)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"order_by": ["id"]}, "in the key"),
        ({"order_by": ["tags"]}, "is a list"),
        ({"order_by": ["lsn", "lsn"]}, "twice"),
        ({"order_by": 7}, "order_by is int"),
        ({"order_by": [7]}, "is int"),
        ({"merge": {"total": "median"}}, "unknown merge function"),
        ({"merge": {"name": "sum"}}, "does not fit"),
        ({"merge": {"total": "bool_or"}}, "does not fit"),
        ({"merge": {"tags": "max"}}, "does not fit"),
        ({"merge": {"id": "max"}}, "in the key"),
        ({"merge": {"lsn": "max"}, "order_by": "lsn"}, "orders rows"),
        ({"merge": ["total"]}, "merge is list"),
        ({"ttl": ("lsn", "90 days")}, "cannot expire"),
        ({"ttl": ("ts", "90")}, "not a duration"),
        ({"ttl": ("ts", "0 days")}, "not positive"),
        ({"ttl": "90 days"}, "ttl is"),
    ],
)
def test_what_does_not_fit_is_refused(asked: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        schema(**asked)


@pytest.mark.parametrize(
    "asked", [{"order_by": "lsm"}, {"merge": {"totl": "sum"}}, {"ttl": ("tss", "1 day")}]
)
def test_an_unknown_column_is_named(asked: dict[str, object]) -> None:
    with pytest.raises(NotFound, match="no column is named"):
        schema(**asked)


def test_parts_that_are_not_asked_for_stay() -> None:
    made = schema(order_by="lsn", merge={"total": "sum"}, ttl=("ts", "1 hour"))

    assert AskedRules().on(made) == made.rules
    assert AskedRules(ttl=()).on(made).ttl is None
    assert AskedRules(order_by=[]).on(made).order_by == ()
    assert AskedRules(merge={}).on(made).merge == ()


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("90 days", 90 * DAY_MS), ("1 Week", 7 * DAY_MS), ("12h", None), ("5seconds", 5_000)],
)
def test_durations(text: str, milliseconds: int | None) -> None:
    if milliseconds is None:
        with pytest.raises(InvalidArgument):
            milliseconds_of(text)
    else:
        assert milliseconds_of(text) == milliseconds
        assert milliseconds_of(duration_text(milliseconds)) == milliseconds


def test_a_rule_must_have_its_column() -> None:
    made = schema(order_by="lsn")
    fewer = tuple(column for column in made.columns if column.name != "lsn")

    with pytest.raises(InvalidArgument, match="orders the changes"):
        replace(made, columns=fewer)
    assert cast("object", made.rules.function_of(4)) is MergeFunction.LAST
