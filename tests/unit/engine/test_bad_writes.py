"""What cannot be a row is refused with the column's name before anything is logged."""

import errno
import os
from collections.abc import Callable, Iterator

import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest

import neve
from neve.engine.row_input import arrow_batches
from neve.errors import InvalidArgument, LimitExceeded, SchemaMismatch, Unavailable
from neve.wal import batch_codec, write_ahead_log
from tests.unit.engine.tables import a_catalog, log_bytes

GOOD: dict[str, object] = {"id": 2, "sub": "b", "amount": 1.5, "text": "t"}
COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("sub", pa.string(), nullable=False),
        pa.field("amount", pa.float64(), nullable=False),
        pa.field("text", pa.string()),
    ]  # type: ignore[arg-type]  # the stubs know no list of different fields
)


@pytest.fixture
def table() -> Iterator[neve.Table]:
    with a_catalog() as lake:
        table = lake.create_table(
            "a.b", COLUMNS, ["id", "sub"], options=neve.TableOptions(background=False)
        )
        table.put({"id": 1, "sub": "a", "amount": 0.5, "text": None})
        yield table


def without(name: str) -> dict[str, object]:
    return {key: value for key, value in GOOD.items() if key != name}


BAD_ROWS: dict[str, tuple[object, str]] = {
    "a key column is missing": (without("sub"), "sub"),
    "a required column is missing": (without("amount"), "amount"),
    "an unknown column": ({**GOOD, "more": 1}, "more"),
    "text for a number": ({**GOOD, "id": "2"}, "id"),
    "a number for text": ({**GOOD, "text": 7}, "text"),
    "a fraction for a whole number": ({**GOOD, "id": 2.5}, "id"),
    "a bool for a number": ({**GOOD, "id": True}, "id"),
    "bytes for text": ({**GOOD, "text": b"x"}, "text"),
    "NULL in a key": ({**GOOD, "sub": None}, "sub"),
    "NULL in a required column": ({**GOOD, "amount": None}, "amount"),
    "a number too large": ({**GOOD, "id": 2**63}, "id"),
    "half of a surrogate pair": ({**GOOD, "text": "\ud800"}, "text"),
}


@pytest.mark.parametrize("name", list(BAD_ROWS))
@pytest.mark.parametrize("call", ["put", "upsert", "a batch"])
def test_a_bad_row_is_refused_whole_and_nothing_is_logged(
    table: neve.Table, call: str, name: str
) -> None:
    row, column = BAD_ROWS[name]
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: table.put(row),  # type: ignore[arg-type]
        "upsert": lambda: table.upsert(row),  # type: ignore[arg-type]
        "a batch": lambda: table.upsert(
            [{**GOOD, "id": 10}, row, {**GOOD, "id": 11}]  # type: ignore[list-item]
        ),
    }
    before, sequence = log_bytes(table), table.stats().sequence

    with pytest.raises(SchemaMismatch) as refused:
        calls[call]()

    assert refused.value.column == column
    assert column in str(refused.value)
    assert log_bytes(table) == before
    assert table.stats().sequence == sequence
    assert table.scan().count() == 1


@pytest.mark.parametrize(
    "batch",
    [
        pa.table({"id": [2], "sub": ["b"], "text": ["t"]}),
        pa.table({"id": [2], "sub": ["b"], "amount": [1.0], "text": ["t"], "more": [1]}),
        pa.table({"id": [2, None], "sub": ["b", "c"], "amount": [1.0, 2.0], "text": ["t", "u"]}),
        pa.table({"id": [2, 3], "sub": ["b", "c"], "amount": [1.0, None], "text": ["t", "u"]}),
        pa.table({"id": ["2"], "sub": ["b"], "amount": [1.0], "text": ["t"]}),
    ],
    ids=["missing", "unknown", "null key", "null required", "other type"],
)
def test_a_bad_arrow_table_is_refused_whole_and_nothing_is_logged(
    table: neve.Table, batch: pa.Table
) -> None:
    before = log_bytes(table)

    with pytest.raises(SchemaMismatch):
        table.upsert(batch)

    assert log_bytes(table) == before
    assert table.scan().count() == 1


def test_of_a_table_in_chunks_one_bad_chunk_refuses_all(table: neve.Table) -> None:
    good = pa.table({"id": [2], "sub": ["b"], "amount": [1.0], "text": ["t"]})
    bad = pa.table(
        {"id": [3], "sub": ["b"], "amount": pa.array([None], pa.float64()), "text": ["t"]}
    )
    before = log_bytes(table)

    with pytest.raises(SchemaMismatch):
        table.upsert(pa.concat_tables([good, bad]))

    assert log_bytes(table) == before


BAD_KEYS: dict[str, object] = {
    "one value": 1,
    "short": (1,),
    "none": None,
    "long": (1, "a", "b"),
    "other types": ("a", 1),
    "null": (1, None),
    "other type": (1, 2),
    "list": [1, "a", 3],
    "dict": {"id": 1},
}
BOUNDS = {"one value", "short", "none"}
"""No bound, or the beginning of a key, is a bound."""


@pytest.mark.parametrize(
    ("call", "key"),
    [
        pytest.param(call, key, id=f"{call}-{name}")
        for call in ("get", "delete", "get_many", "delete_many", "key_range")
        for name, key in BAD_KEYS.items()
        if call != "key_range" or name not in BOUNDS
    ],
)
def test_a_key_that_is_none_is_refused_by_every_call(
    table: neve.Table, call: str, key: object
) -> None:
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: table.get(key),
        "delete": lambda: table.delete(key),
        "get_many": lambda: table.get_many([(1, "a"), key]),
        "delete_many": lambda: table.delete_many([(1, "a"), key]),
        "key_range": lambda: table.scan(key_range=(key, (9, "z"))).to_arrow(),
    }
    before = log_bytes(table)

    with pytest.raises((InvalidArgument, SchemaMismatch)):
        calls[call]()

    assert log_bytes(table) == before
    assert table.scan().count() == 1


@pytest.mark.parametrize("given", [None, 5, "text", b"bytes", [1, 2]], ids=repr)
def test_what_is_no_rows_is_refused(table: neve.Table, given: object) -> None:
    with pytest.raises((InvalidArgument, SchemaMismatch)):
        table.upsert(given)  # type: ignore[arg-type]
    assert table.scan().count() == 1


def test_an_empty_batch_writes_nothing(table: neve.Table) -> None:
    before, sequence = log_bytes(table), table.stats().sequence
    assert table.upsert([]) == table.upsert(COLUMNS.empty_table()) == sequence
    assert table.delete_many([]) == sequence
    assert log_bytes(table) == before


def test_a_row_of_many_megabytes_is_kept_whole(table: neve.Table) -> None:
    giant = "x" * (20 << 20)
    table.put({**GOOD, "text": giant})
    table.upsert([{**GOOD, "id": 3, "text": giant}])
    table.flush()

    for key in ((2, "b"), (3, "b")):
        row = table.get(key)
        assert row is not None
        assert row["text"] == giant
    assert table.scan("id = 3", columns=["text"]).to_arrow()["text"][0].as_py() == giant


def test_a_write_beyond_the_limit_of_the_log_is_refused_and_nothing_is_logged(
    table: neve.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_codec, "RECORD_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(write_ahead_log, "BATCH_BYTES_MAX", 1 << 20)
    before = log_bytes(table)

    giant = {**GOOD, "text": "x" * (2 << 20)}
    with pytest.raises(LimitExceeded) as refused:
        table.put(giant)
    assert refused.value.limit == 1 << 20
    with pytest.raises(LimitExceeded):
        table.upsert([giant])

    assert log_bytes(table) == before
    assert table.scan().count() == 1


def test_a_stream_that_ends_with_an_error_keeps_whole_batches_only(table: neve.Table) -> None:
    schema = COLUMNS

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{**GOOD, "id": 20}, {**GOOD, "id": 21}], schema)
        raise pa.ArrowInvalid("the source broke")

    with pytest.raises(InvalidArgument, match="the source broke"):
        table.upsert(pa.RecordBatchReader.from_batches(schema, batches()))

    assert table.scan("id >= 20").count() == 2


@pytest.mark.parametrize("keep_last", [0, -1, "3", 1.5, True])
def test_what_is_no_number_of_versions_expires_nothing(
    table: neve.Table, keep_last: object
) -> None:
    table.flush()

    with pytest.raises(InvalidArgument, match="keep_last"):
        table.expire(keep_last=keep_last)  # type: ignore[arg-type]

    assert table.history().num_rows == 2


def test_the_nameless_index_of_a_pandas_frame_is_no_column(table: neve.Table) -> None:
    rows = [GOOD, {**GOOD, "id": 3}, {**GOOD, "id": 4}]
    frame = pa.Table.from_pylist(rows, schema=COLUMNS).to_pandas()

    table.upsert(frame[frame.id > 2])

    assert [table.get((number, "b")) is None for number in (2, 3, 4)] == [True, False, False]


def test_a_pandas_column_of_several_types_is_named_with_them(table: neve.Table) -> None:
    frame = pd.DataFrame([GOOD, {**GOOD, "id": 3, "text": None}, {**GOOD, "id": 4, "text": 7}])

    with pytest.raises(InvalidArgument, match=r"column 'text' .* it holds str and int") as failed:
        table.upsert(frame)

    assert "rows['text'].astype" in (failed.value.hint or "")


def test_a_query_of_polars_that_was_not_run_is_told_to_be(table: neve.Table) -> None:
    with pytest.raises(InvalidArgument, match=r"LazyFrame\. .*rows\.collect\(\)"):
        table.upsert(pl.LazyFrame([GOOD]))  # type: ignore[arg-type]


def test_a_stream_that_ends_with_an_error_of_its_file_is_a_typed_error() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])

    def failing(error: OSError) -> pa.RecordBatchReader:
        def fail(_: int) -> pa.RecordBatch:
            raise error

        return pa.RecordBatchReader.from_batches(schema, map(fail, range(1)))

    with pytest.raises(InvalidArgument, match="Unexpected end of stream"):
        list(arrow_batches(failing(OSError("Unexpected end of stream"))) or ())
    with pytest.raises(Unavailable, match="Input/output error"):
        list(arrow_batches(failing(OSError(errno.EIO, os.strerror(errno.EIO)))) or ())
