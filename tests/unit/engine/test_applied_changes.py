"""Change feeds: upserts and deletes as one batch, in their own order, exactly once."""

import base64
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from uuid import UUID

import polars as pl
import pyarrow as pa
import pytest

import neve
from neve.engine.applied_changes import OPERATIONS
from neve.errors import InvalidArgument, SchemaMismatch
from tests.unit.engine.tables import a_catalog, a_table

SCHEMA = {"id": "long!", "v": "long!", "text": "string"}


@pytest.fixture
def table() -> Iterator[neve.Table]:
    with a_catalog() as catalog:
        yield a_table(catalog)


def change(op: str, key: int, v: int = 0, **more: object) -> dict[str, object]:
    if op == "d":
        return {"op": op, "id": key, **more}
    return {"op": op, "id": key, "v": v, "text": "t", **more}


def rows(table: neve.Table) -> dict[object, object]:
    return {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


def as_arrow(changes: list[dict[str, object]]) -> pa.Table:
    names = list(dict.fromkeys(name for each in changes for name in each))
    return pa.table({name: [each.get(name) for each in changes] for name in names})


@pytest.mark.parametrize("form", [list, as_arrow])
def test_upserts_and_deletes_are_one_batch(table: neve.Table, form: object) -> None:
    table.put({"id": 1, "v": 1, "text": "one"})
    changes = [change("d", 1), change("c", 2, 2), change("u", 3, 3), change("d", 4)]

    sequence = table.apply(form(changes))  # type: ignore[operator]

    assert rows(table) == {2: 2, 3: 3}
    assert sequence == 5


@pytest.mark.parametrize("form", [list, as_arrow])
def test_the_last_change_of_a_key_wins_without_an_order(table: neve.Table, form: object) -> None:
    changes = [change("c", 1, 1), change("d", 1), change("c", 2, 1), change("u", 2, 9)]

    table.apply(form(changes))  # type: ignore[operator]

    assert rows(table) == {2: 9}


@pytest.mark.parametrize("form", [list, as_arrow])
def test_the_greatest_order_wins_and_of_equal_ones_the_last(
    table: neve.Table, form: object
) -> None:
    changes = [
        change("u", 1, 9, lsn=3),
        change("c", 1, 1, lsn=1),
        change("d", 2, lsn=7),
        change("c", 2, 5, lsn=6),
        change("c", 3, 1, lsn=2),
        change("u", 3, 2, lsn=2),
    ]

    table.apply(form(changes), order_by="lsn")  # type: ignore[operator]

    assert rows(table) == {1: 9, 3: 2}


def test_an_order_may_have_several_columns(table: neve.Table) -> None:
    changes = [
        change("c", 1, 1, file="b", pos=1),
        change("c", 1, 2, file="a", pos=9),
        change("c", 1, 3, file="b", pos=2),
    ]

    table.apply(changes, order_by=["file", "pos"])

    assert rows(table) == {1: 3}


def test_columns_of_the_feed_that_the_table_has_are_stored(table: neve.Table) -> None:
    table.apply([change("c", 1, 5), change("c", 1, 4)], order_by="v")

    assert rows(table) == {1: 5}


@pytest.mark.parametrize("operation", [*OPERATIONS, "INSERT", "+I", "-U", "D"])
def test_every_operation_does_what_it_says(table: neve.Table, operation: str) -> None:
    table.put({"id": 1, "v": 1, "text": ""})

    table.apply([{"op": operation, "id": 1, "v": 2, "text": ""}])

    kept = {"upsert": {1: 2}, "delete": {}, "skip": {1: 1}}
    assert rows(table) == kept[OPERATIONS[operation.lower()]]


def test_a_mapping_names_operations_of_ones_own(table: neve.Table) -> None:
    operations = {"new": "upsert", "gone": "delete", "note": "skip", "u": "skip"}
    table.put({"id": 2, "v": 1, "text": ""})

    table.apply(
        [change("new", 1, 1), change("gone", 2), change("note", 3), change("u", 4)],
        operations=operations,
    )

    assert rows(table) == {1: 1}


@pytest.mark.parametrize("form", [list, as_arrow])
def test_a_mapping_is_for_small_and_capital_letters(table: neve.Table, form: object) -> None:
    table.put({"id": 2, "v": 1, "text": ""})
    changes = [change("NEW", 1, 1), change("Gone", 2), change("D", 3, 3)]

    table.apply(form(changes), operations={"New": "upsert", "gone": "delete", "d": "skip"})  # type: ignore[operator]

    assert rows(table) == {1: 1}
    with pytest.raises(InvalidArgument, match="operation 'x' has two meanings"):
        table.apply([], operations={"X": "skip", "x": "delete"})


@pytest.mark.parametrize("blank", [None, float("nan")])
@pytest.mark.parametrize("form", [list, as_arrow])
@pytest.mark.parametrize("own_order", [False, True])
def test_what_is_skipped_needs_no_order(
    tmp_path: Path, form: object, own_order: bool, blank: float | None
) -> None:
    order = ["lsn"] if own_order else []
    changes = [
        change("-U", 1, 8, lsn=blank),
        change("c", 2, 5, lsn=6.5),
        change("u", 1, 9, lsn=3.5),
        change("-U", 2, 0, lsn=blank),
        change("d", 2, lsn=7.5),
        change("c", 1, 1, lsn=1.5),
    ]
    schema = {**SCHEMA, "lsn": "double!"} if own_order else SCHEMA
    with neve.open(tmp_path) as lake, lake.create_table("a.b", schema, ["id"], order_by=order) as t:
        t.apply(form(changes), order_by="lsn")  # type: ignore[operator]

        assert rows(t) == {1: 9}
        with pytest.raises(SchemaMismatch) as refused:
            t.apply(form([*changes, change("d", 3, lsn=blank)]), order_by="lsn")  # type: ignore[operator]
        assert refused.value.row == 6


@pytest.mark.parametrize("form", [list, as_arrow])
def test_an_unknown_operation_is_refused_with_its_row(table: neve.Table, form: object) -> None:
    changes = [change("c", 1), change("x", 2), change("y", 3)]

    with pytest.raises(InvalidArgument, match="operation 'x' of change 1 and 1 more is unknown"):
        table.apply(form(changes))  # type: ignore[operator]

    assert rows(table) == {}


@pytest.mark.parametrize("form", [list, as_arrow])
def test_what_is_wrong_with_a_change_is_said_before_anything_is_written(
    table: neve.Table, form: object
) -> None:
    def refuse(kind: type[Exception], match: str, **changed: object) -> None:
        order_by = changed.pop("order_by", None)
        changes = [change("c", 1), {**change("c", 2), **changed}]
        with pytest.raises(kind, match=match):
            table.apply(form(changes), order_by=order_by)  # type: ignore[arg-type, operator]

    refuse(SchemaMismatch, "unknown|not in the table|no column", other=1)
    refuse(SchemaMismatch, "order column 'lsn'", lsn=None, order_by="lsn")
    refuse(InvalidArgument, "operation 5|operation None|is unknown", op=None)
    with pytest.raises(SchemaMismatch, match="no operation column 'kind'"):
        table.apply(form([change("c", 1)]), op="kind")  # type: ignore[operator]
    with pytest.raises(SchemaMismatch, match="id"):
        table.apply(form([{"op": "d", "v": 1}]))  # type: ignore[operator]
    with pytest.raises(InvalidArgument, match="means 'drop'"):
        table.apply([], operations={"x": "drop"})
    with pytest.raises(InvalidArgument, match="cannot be read from int"):
        table.apply(5)  # type: ignore[arg-type]
    assert rows(table) == {}


# Exactly once


def test_a_batch_that_is_repeated_is_skipped_and_one_that_goes_back_refused(
    table: neve.Table,
) -> None:
    assert table.last_batch("feed") is None
    table.apply([change("c", 1, 1)], app_id="feed", batch=7)

    again = table.apply([change("c", 1, 2)], app_id="feed", batch=7)

    assert rows(table) == {1: 1}
    assert again == table._open.engine.current.sequence
    assert table.last_batch("feed") == 7
    with pytest.raises(InvalidArgument, match="batch 6 of 'feed' is older than batch 7"):
        table.apply([change("c", 1, 3)], app_id="feed", batch=6)
    assert rows(table) == {1: 1}
    assert table.last_batch("other") is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"app_id": "a"}, "belong together"),
        ({"batch": 1}, "belong together"),
        ({"app_id": "a", "batch": -1}, "is not a number"),
        ({"app_id": "a", "batch": 1.5}, "is not a number"),
        ({"app_id": "a", "batch": True}, "is not a number"),
        ({"app_id": 5, "batch": 1}, "not text"),
        ({"app_id": "", "batch": 1}, "application"),
        ({"app_id": "a\n", "batch": 1}, "application"),
    ],
)
def test_a_name_or_number_that_cannot_be_kept_is_refused(
    table: neve.Table, given: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        table.apply([change("c", 1)], **given)  # type: ignore[arg-type]

    assert rows(table) == {}


@pytest.mark.parametrize("flush", ["never", "at the end", "after each"])
@pytest.mark.parametrize("changes", [[], [change("c", 1, 1)], [change("d", 5)]])
def test_a_number_survives_with_its_rows(
    tmp_path: Path, flush: str, changes: list[dict[str, object]]
) -> None:
    for number in range(3):
        with neve.open(tmp_path) as lake:
            table = lake.create_table("a.t", schema=SCHEMA, primary_key="id", exists_ok=True)
            assert table.last_batch("feed") == (None if number == 0 else number - 1)
            table.apply(changes, app_id="feed", batch=number)
            if flush == "after each" or (flush == "at the end" and number == 2):
                table.flush()

    with neve.open(tmp_path) as lake, lake.table("a.t") as table:
        assert table.last_batch("feed") == 2
        table.compact(full=True)
        table.expire(keep_last=1)
        table.apply([change("c", 9, 9)], app_id="feed", batch=2)
        assert table.get(9) is None
        table.rollback(table.version)
        assert table.last_batch("feed") == 2


def test_a_batch_that_a_job_committed_is_known_to_the_writer() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        with lake.bulk("a.b", app_id="feed", batch=4) as job:
            job.upsert([{"id": 1, "v": 1, "text": ""}])

        table.apply([change("c", 1, 2)], app_id="feed", batch=4)

        assert table.last_batch("feed") == 4
        table.refresh()
        assert rows(table) == {1: 1}


def test_a_batch_before_one_that_a_job_committed_is_refused_though_an_older_one_is_in_memory() -> (
    None
):
    with a_catalog() as lake:
        table = a_table(lake)
        table.apply([change("c", 1, 1)], app_id="feed", batch=5)
        with lake.bulk("a.b", app_id="feed", batch=9) as job:
            job.upsert([{"id": 2, "v": 1, "text": ""}])

        assert table.last_batch("feed") == 9
        with pytest.raises(InvalidArgument, match="batch 7 of 'feed' is older than batch 9"):
            table.apply([change("c", 3, 1)], app_id="feed", batch=7)


@pytest.mark.parametrize("form", [list, as_arrow])
def test_a_wrong_row_is_counted_among_all_changes(table: neve.Table, form: object) -> None:
    def row_of(*changes: dict[str, object]) -> object:
        with pytest.raises(SchemaMismatch) as refused:
            table.apply(form(list(changes)), order_by="lsn")  # type: ignore[operator]
        return refused.value.row

    good = change("d", 1, lsn=1)
    assert row_of(good, {**change("c", 2, lsn=1), "id": None}) == 1
    assert row_of(change("c", 2, lsn=1), good, {**good, "id": None}) == 2
    assert row_of(good, {**good, "lsn": None}) == 1
    assert row_of({**good, "other": 1}, change("c", 2, lsn=1, other=1)) in {None, 1}


def test_an_order_may_be_a_column_of_categories(table: neve.Table) -> None:
    changes = as_arrow([change("u", 1, 9, lsn="b"), change("u", 1, 1, lsn="a")])
    place = changes.column_names.index("lsn")
    encoded = changes.set_column(place, "lsn", changes["lsn"].dictionary_encode())

    table.apply(encoded, order_by="lsn")

    assert rows(table) == {1: 9}


def test_a_reader_sees_the_number_beside_the_writer(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table("a.t", schema=SCHEMA, primary_key="id")
        table.apply([change("c", 1)], app_id="feed", batch=3)
        with neve.open(tmp_path) as other, other.table("a.t", read_only=True) as reader:
            assert reader.last_batch("feed") == 3
            with pytest.raises(InvalidArgument, match="reading only"):
                reader.apply([change("c", 2)])


def test_a_shuffled_feed_ends_as_its_oracle(tmp_path: Path) -> None:
    random = Random(11)
    events = [
        change(random.choice("cud"), random.randrange(60), number, lsn=number)
        for number in range(3_000)
    ]
    last = {each["id"]: each for each in events}
    random.shuffle(events)
    with neve.open(tmp_path) as lake:
        table = lake.create_table("a.t", schema=SCHEMA, primary_key="id")
        table.apply(events, order_by="lsn", app_id="feed", batch=0)

        assert rows(table) == {key: each["v"] for key, each in last.items() if each["op"] != "d"}
        table.flush()
        assert rows(table) == {key: each["v"] for key, each in last.items() if each["op"] != "d"}


# Debezium


def envelope(op: str, row: dict[str, object] | None, **source: object) -> dict[str, object]:
    before, after = (row, None) if op == "d" else (None, row)
    return {"op": op, "before": before, "after": after, "source": source, "ts_ms": 5}


RECORDS = [
    envelope("r", {"id": 1, "v": 1, "text": "a"}, lsn=1),
    envelope("u", {"id": 1, "v": 2, "text": "b"}, lsn=3),
    envelope("d", {"id": 2}, lsn=4),
    envelope("c", {"id": 2, "v": 5, "text": "c"}, lsn=2),
]


@pytest.mark.parametrize(
    "records",
    [
        RECORDS,
        [{"schema": None, "payload": each} for each in RECORDS],
        [json.dumps(each) for each in RECORDS],
        [json.dumps(each).encode() for each in [*RECORDS, None]],
        "\n".join(json.dumps(each) for each in RECORDS),
        [(b"key", json.dumps(each).encode()) for each in RECORDS] + [(b"key", None)],
        pa.array(RECORDS),
        pa.Table.from_pylist(RECORDS),
    ],
)
def test_debezium_records_are_applied_whatever_they_come_in(
    table: neve.Table, records: object
) -> None:
    table.apply(neve.cdc.debezium(records), order_by="lsn")

    assert rows(table) == {1: 2}


def test_a_delete_without_the_row_before_takes_the_key_of_the_message(table: neve.Table) -> None:
    table.put({"id": 7, "v": 1, "text": ""})

    table.apply(neve.cdc.debezium([('{"id": 7}', json.dumps(envelope("d", None)))]))

    assert rows(table) == {}


def test_values_of_debeziums_types_become_what_they_mean() -> None:
    fields = [
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "ms", "type": "int64", "name": "io.debezium.time.Timestamp"},
        {"field": "zoned", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        {"field": "clock", "type": "int64", "name": "io.debezium.time.MicroTime"},
        {"field": "raw", "type": "bytes"},
        {
            "field": "price",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        },
        {"field": "n", "type": "int32"},
    ]
    row = {
        "day": 19_000,
        "at": 1_700_000_000_123_456,
        "ms": 1_700_000_000_123,
        "zoned": "2024-01-31T12:00:00.5+02:00",
        "clock": 3_600_000_000,
        "raw": "AP8=",
        "price": "BNI=",
        "n": None,
    }
    record = {
        "schema": {"fields": [{"field": "after", "fields": fields}]},
        "payload": envelope("c", row),
    }

    (found,) = neve.cdc.debezium(json.dumps(record))

    assert found["price"] == Decimal("12.34")
    assert found["raw"] == b"\x00\xff"
    assert [str(found[name]) for name in ("day", "at", "ms", "zoned", "clock")] == [
        "2022-01-08",
        "2023-11-14 22:13:20.123456",
        "2023-11-14 22:13:20.123000",
        "2024-01-31 10:00:00.500000+00:00",
        "01:00:00",
    ]
    assert found["n"] is None


def test_json_without_a_schema_means_what_the_columns_of_the_table_say(tmp_path: Path) -> None:
    columns = {
        "id": "uuid!",
        "price": "decimal(9,2)",
        "rate": "double",
        "day": "date",
        "at": "timestamptz",
        "raw": "binary",
    }
    key = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
    row = {
        "id": key,
        "price": "12.34",
        "rate": 1.5,
        "day": 19_000,
        "at": "2024-01-31T12:00:00Z",
        "raw": "AP8=",
    }
    with neve.open(tmp_path) as lake:
        table = lake.create_table("a.t", schema=columns, primary_key="id")
        table.apply(neve.cdc.debezium(json.dumps(envelope("c", row))))

        found = table.get(UUID(key))
        assert found is not None
        assert [str(found[name]) for name in ("price", "rate", "day", "at", "raw")] == [
            "12.34",
            "1.5",
            "2022-01-08",
            "2024-01-31 12:00:00+00:00",
            "b'\\x00\\xff'",
        ]
        with pytest.raises(SchemaMismatch, match="expected a Decimal, got str"):
            table.apply(neve.cdc.debezium(json.dumps(envelope("c", {**row, "price": "much"}))))
        table.apply(neve.cdc.debezium(json.dumps(envelope("d", {"id": key}))))
        assert table.get(UUID(key)) is None


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{", "not JSON"),
        ([5], "it is int"),
        (7, "given as int"),
        (envelope("t", {"id": 1}), "operation is 't'"),
        (envelope("c", None), "nothing in 'after'"),
        (envelope("d", None), "nothing in 'before'"),
    ],
)
def test_what_is_not_a_change_is_refused_with_its_number(record: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        neve.cdc.debezium(record)


def test_heartbeats_and_tombstones_are_skipped() -> None:
    assert neve.cdc.debezium([None, b"", {"ts_ms": 5}, {"payload": None}]) == []


def test_a_decimal_keeps_all_of_its_digits() -> None:
    digits = 12_345_678_901_234_567_890_123_456_789_012
    fields = [
        {
            "field": "a",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        }
    ]
    for number in (digits, -digits):
        text = base64.b64encode(number.to_bytes(16, signed=True)).decode()
        record = {
            "schema": {"fields": [{"field": "after", "fields": fields}]},
            "payload": envelope("c", {"id": 1, "a": text}),
        }

        (found,) = neve.cdc.debezium(record)

        sign = "-" if number < 0 else ""
        assert str(found["a"]) == f"{sign}123456789012345678901234567890.12"


def test_positions_that_are_text_of_digits_are_ordered_as_numbers(table: neve.Table) -> None:
    records = [
        envelope("u", {"id": 1, "v": 2, "text": "new"}, scn="1000"),
        envelope("u", {"id": 1, "v": 1, "text": "old"}, scn="999"),
    ]

    table.apply(neve.cdc.debezium(records), order_by="scn")

    assert rows(table) == {1: 2}


def test_a_row_and_its_source_may_use_one_name() -> None:
    columns: dict[str, pa.DataType] = {
        "id": pa.int64(),
        "v": pa.int64(),
        "pos": pa.int64(),
        "op": pa.string(),
    }
    with a_catalog() as lake:
        table = a_table(lake, columns=columns)
        records = [
            envelope("u", {"id": 1, "v": 2, "pos": 1, "op": "mine"}, file="b", pos=200),
            envelope("u", {"id": 1, "v": 1, "pos": 9, "op": "other"}, file="b", pos=100),
            envelope("c", {"id": 2, "v": 3, "op": "mine"}, file="b", pos=300),
        ]

        changes = neve.cdc.debezium(records)
        table.apply(changes[:2], order_by=["file", "pos"])
        table.apply(changes[2:])

        assert table.get(1) == {"id": 1, "v": 2, "pos": 1, "op": "mine"}
        assert table.get(2) == {"id": 2, "v": 3, "pos": None, "op": "mine"}


@pytest.mark.parametrize("ops", ["uu", "ud", "du", "dd"])
@pytest.mark.parametrize("is_of_table", [True, False])
@pytest.mark.parametrize(
    ("kind", "older", "newer"),
    [
        ("decimal(9,2)", "9.50", "10.00"),
        ("timestamptz", "2024-01-01T10:00:00+05:00", "2024-01-01T06:00:00Z"),
        ("timestamp", "2024-01-01T10:00:00", "2024-01-01T10:00:00.5"),
        ("date", "2024-01-01", "2024-01-02"),
        ("double", 9.5, 10.25),
        ("long", 9, 10),
        ("string", "9", "a"),
        ("uuid", str(UUID(int=9)), str(UUID(int=10))),
        ("binary", "YQ==", "Yg=="),
    ],
)
def test_changes_are_ordered_by_the_values_that_json_stands_for(
    kind: str, older: object, newer: object, ops: str, *, is_of_table: bool
) -> None:
    records = [
        envelope(op, {"id": 1, "v": place, "o": value})
        for op, place, value in zip(ops, (1, 2), (newer, older), strict=True)
    ]
    lines = "\n".join(map(json.dumps, records))
    with a_catalog() as lake:
        table = lake.create_table(
            "shop.rows",
            {"id": "long!", "v": "long", "o": kind},
            primary_key="id",
            order_by="o" if is_of_table else (),
        )

        table.apply(neve.cdc.debezium(lines), order_by=None if is_of_table else "o")

        assert rows(table) == ({1: 1} if ops[0] == "u" else {})


@pytest.mark.parametrize("value", [7.5, "7", 1 << 70, True])
def test_the_order_of_a_delete_is_checked_like_a_row(value: object) -> None:
    with a_catalog() as lake:
        table = lake.create_table(
            "shop.rows", {"id": "long!", "v": "long", "o": "long"}, primary_key="id", order_by="o"
        )
        table.put({"id": 1, "v": 1, "o": 7})

        with pytest.raises(SchemaMismatch, match="column 'o'") as refused:
            table.apply([{"op": "d", "id": 2, "o": 1}, {"op": "d", "id": 1, "o": value}])

        assert refused.value.row == 1
        assert rows(table) == {1: 1}


@pytest.mark.parametrize(
    "record",
    [
        {"after": {"id": 1}, "ts_ms": 5},
        {"id": 1, "ts_ms": 5},
        {"payload": 5},
        {"schema": "text", "payload": envelope("c", {"id": 1})},
        "[" * 100_000,
    ],
)
def test_a_record_of_another_form_is_refused_and_not_skipped(record: object) -> None:
    with pytest.raises(InvalidArgument, match="not a change of Debezium"):
        neve.cdc.debezium(record)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("io.debezium.time.MicroTimestamp", 2**63 - 1),
        ("io.debezium.time.MicroTimestamp", "text"),
        ("io.debezium.time.Date", 2**31 - 1),
        ("io.debezium.time.MicroTime", -1),
        ("io.debezium.time.Time", 86_400_000),
        ("io.debezium.time.ZonedTimestamp", "garbage"),
        ("org.apache.kafka.connect.data.Decimal", "!!!"),
        ("io.debezium.data.VariableScaleDecimal", 5),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused(kind: str, value: object) -> None:
    fields = [{"field": "a", "type": "bytes", "name": kind}]
    schema = {"fields": [{"field": "after", "fields": fields}]}

    with pytest.raises(InvalidArgument, match="not a change of Debezium"):
        neve.cdc.debezium({"schema": schema, "payload": envelope("c", {"id": 1, "a": value})})


def test_json_text_may_hold_line_breaks_and_take_several_lines() -> None:
    record = envelope("c", {"id": 1, "v": 1, "text": "a\u2028b\u0085c"})

    for text in (json.dumps(record, ensure_ascii=False), json.dumps(record, indent=1)):
        assert neve.cdc.debezium(text) == neve.cdc.debezium([record])
        assert neve.cdc.debezium(bytearray(text.encode())) == neve.cdc.debezium([record])


def test_frames_of_polars_are_applied(table: neve.Table) -> None:
    frame = pl.DataFrame({"op": ["c", "c", "d"], "id": [1, 2, 2], "v": [1, 2, 0], "text": "t"})

    table.apply(frame.with_columns(pl.col("op").cast(pl.Categorical), s=pl.lit("x")), order_by="s")

    assert rows(table) == {1: 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (pa.table([["u"], ["d"], [1]], names=["op", "op", "id"]), "several columns 'op'"),
        (pa.table({"op": [["u"]], "id": [1]}), "is list.*, not text"),
        (pa.table({"op": [1], "id": [1]}), "is int64, not text"),
    ],
)
def test_arrow_of_another_form_is_refused(
    table: neve.Table, changes: pa.Table, message: str
) -> None:
    with pytest.raises((SchemaMismatch, InvalidArgument), match=message):
        table.apply(changes)

    assert rows(table) == {}


@pytest.mark.parametrize("value", [{"a": 1}, float("nan")])
def test_order_values_that_have_no_order_are_refused(table: neve.Table, value: object) -> None:
    changes = [change("c", 1, s=value), change("c", 1, s=value)]

    with pytest.raises((SchemaMismatch, InvalidArgument), match=r"cannot be compared|no value"):
        table.apply(changes, order_by="s")

    assert rows(table) == {}


@pytest.mark.parametrize("form", [list, as_arrow])
def test_nan_is_not_an_order_value(table: neve.Table, form: object) -> None:
    changes = [change("c", 1, 1, s=float("nan")), change("c", 1, 2, s=1.0)]

    with pytest.raises(SchemaMismatch, match="no value in order column 's'"):
        table.apply(form(changes), order_by="s")  # type: ignore[operator]

    assert rows(table) == {}


@pytest.mark.parametrize("form", [list, as_arrow])
@pytest.mark.parametrize("order_by", [None, "v"])
def test_a_batch_without_changes_is_noted(
    table: neve.Table, form: object, order_by: str | None
) -> None:
    table.apply(form([]), order_by=order_by)  # type: ignore[operator]
    table.apply(form([]), order_by=order_by, app_id="a", batch=3)  # type: ignore[operator]

    assert rows(table) == {}
    assert table.last_batch("a") == 3
