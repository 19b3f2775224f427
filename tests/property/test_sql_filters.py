"""SQL on a table gives exactly the rows that DuckDB finds in a plain copy of it.

DuckDB does not look at rows again once it has pushed a filter into a scan, so one filter that means
something else to neve than to DuckDB is a wrong answer. Predicates are random, over columns of all
types with NULL, NaN, -0.0, infinities, extreme dates and decimals; the table has files in
partitions, deleted rows and rows in memory.
"""

import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest

import neve
from neve.errors import NeveError
from neve.storage.memory_store import forget_memory_stores
from tests.conftest import Record
from tests.gates import Gate

NEW_YEAR: Final = datetime(2024, 1, 1, tzinfo=UTC)
TYPES: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "flag": pa.bool_(),
    "small": pa.int32(),
    "big": pa.int64(),
    "f": pa.float64(),
    "g": pa.float32(),
    "dec": pa.decimal128(9, 2),
    "wide": pa.decimal128(38, 10),
    "d": pa.date32(),
    "t": pa.time64("us"),
    "ts": pa.timestamp("us"),
    "tz": pa.timestamp("us", "UTC"),
    "ns": pa.timestamp("ns"),
    "s": pa.string(),
    "b": pa.binary(),
    "fixed": pa.binary(3),
    "u": pa.uuid(),
    "st": pa.struct([("x", pa.int32()), ("y", pa.float64())]),
    "l": pa.list_(pa.int32()),
}
FLOATS: Final = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, 5.0, -3.25, 0.1]
VALUES: Final[dict[str, list[object]]] = {
    "flag": [True, False],
    "small": [-(1 << 31), -1, 0, 1, 5, (1 << 31) - 1],
    "big": [-(1 << 63), -1, 0, 7, 1 << 53, (1 << 63) - 1],
    "f": [*FLOATS, 1e300, 5e-324],
    "g": [*FLOATS, 16777216.0],
    "dec": [Decimal("-1.50"), Decimal("0.00"), Decimal("9.50"), Decimal("9999999.99")],
    "wide": [Decimal("0.0000000001"), Decimal(10) ** 27 - 1, -(Decimal(10) ** 27) + 1],
    "d": [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)],
    "t": [time(0), time(12, 30), time(23, 59, 59, 999_999)],
    "ts": [datetime(1, 1, 1), NEW_YEAR.replace(tzinfo=None), datetime(9999, 12, 31, 23, 59)],  # noqa: DTZ001
    "tz": [NEW_YEAR, NEW_YEAR + timedelta(microseconds=1), datetime(1969, 5, 1, 12, tzinfo=UTC)],
    "ns": [datetime(2024, 1, 1), datetime(1970, 1, 1), datetime(2262, 1, 1)],  # noqa: DTZ001
    "s": ["", "a", "ab", "abc", "b%", "é", "it's", "A", "\U0010ffff", "a\x00b"],
    "b": [b"", b"\x00", b"a\xff", b"ab"],
    "fixed": [b"\x00\x00\x00", b"abc", b"\xff\x00a"],
    "u": [UUID(int=0), UUID(int=1), UUID(int=1 << 127), UUID(int=(1 << 128) - 1)],
    "st": [{"x": 1, "y": math.nan}, {"x": None, "y": 2.0}, {"x": 5, "y": -0.0}],
    "l": [[], [1], [None, 2]],
}
LITERALS: Final[dict[str, list[str]]] = {
    "id": ["7", "100", "100.5", "'12'", "-1"],
    "flag": ["true", "false"],
    "small": ["0", "5", "1.5", "3000000000", "-2147483648", "2147483647"],
    "big": ["0", "7", "9007199254740992", "9007199254740993", "9223372036854775807", "1e30"],
    "f": ["0", "-0.0", "5.0", "0.1", "'nan'::double", "'inf'::double", "'-inf'::double", "1e300"],
    "g": ["0", "1.5::float", "'nan'::float", "0.1", "0.1::float", "16777217", "'inf'::float"],
    "dec": ["9.5", "9.505", "0", "-1.50", "9999999.99", "1e20"],
    "wide": ["0.0000000001", "999999999999999999999999999.0", "0"],
    "d": ["date '2024-02-29'", "'infinity'::date", "'-infinity'::date", "date '0001-01-01'",
          "timestamp '2024-02-29 01:00:00'"],
    "t": ["time '12:30:00'", "time '23:59:59.999999'"],
    "ts": ["timestamp '2024-01-01'", "'infinity'::timestamp", "date '2024-01-01'"],
    "tz": ["timestamptz '2024-01-01 00:00:00+00'", "timestamp '2024-01-01'",
           "'-infinity'::timestamptz"],
    "ns": ["timestamp_ns '2024-01-01 00:00:00.000000001'", "timestamp '2024-01-01'"],
    "s": ["'a'", "''", "'é'", "'it''s'", "'b%'", "chr(1114111)", "'a' || chr(0) || 'b'"],
    "b": ["'ab'::blob", "''::blob", "'\\x00'::blob"],
    "fixed": ["'abc'::blob", "'ab'::blob"],
    "u": ["'00000000-0000-0000-0000-000000000001'::uuid",
          "'80000000-0000-0000-0000-000000000000'::uuid"],
    "st.x": ["1", "5"],
    "st.y": ["0", "'nan'::double", "2.0"],
}  # fmt: skip
SIGNS: Final = ["=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"]
PATTERNS: Final = ["a%", "%b", "_", "a_c", "b\\%", "%", "", "a%c", "é%"]
ROWS: Final = 240


@pytest.fixture(scope="module")
def lake() -> Iterator[neve.Lake]:
    with neve.open("memory://sql-filters") as lake:
        made = random.Random(17)
        schema = pa.schema(
            [pa.field(name, type_, nullable=name != "id") for name, type_ in TYPES.items()]
        )
        table = lake.create_table(
            "a.b", schema, primary_key=["id"], partition_by=["truncate(1, s)"]
        )

        def rows(numbers: range) -> list[dict[str, object]]:
            return [
                {"id": n} | {name: made.choice([None, *some]) for name, some in VALUES.items()}
                for n in numbers
            ]

        table.upsert(rows(range(ROWS)))
        table.flush()
        table.upsert(rows(range(0, ROWS, 7)))
        table.delete_many(list(range(3, ROWS, 13)))
        table.flush()
        table.upsert(rows(range(0, ROWS, 11)))
        table.delete_many(list(range(5, ROWS, 29)))
        yield lake
    forget_memory_stores()


@pytest.fixture(scope="module")
def copy(lake: neve.Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", lake.table("a.b").scan().to_arrow())
        connection.execute("CREATE TABLE copied AS SELECT * FROM rows")
        yield connection


def simple_predicate(random_: random.Random) -> str:
    column = random_.choice(list(LITERALS))
    literals = LITERALS[column]
    one, two = random_.choice(literals), random_.choice(literals)
    form = random_.randrange(12)
    match form:
        case 0:
            return f"{column} is null"
        case 1:
            return f"{column} is not null"
        case 2:
            return f"{column} between {one} and {two}"
        case 3:
            return f"{column} in ({', '.join(random_.choices(literals, k=3))})"
        case 4:
            return f"{column} not in ({one}, {two})"
        case 5 if column == "s":
            return f"s {random_.choice(['like', 'not like', 'ilike'])} '{random_.choice(PATTERNS)}'"
        case 6 if column in {"f", "g"}:
            return random_.choice([f"isnan({column})", f"not isnan({column})", f"isinf({column})"])
        case 7 if column == "flag":
            return random_.choice(["flag", "not flag"])
        case 8 if column == "s":
            return f"starts_with(s, {one})"
        case 9:
            return f"not ({column} {random_.choice(SIGNS[:6])} {one})"
        case _:
            return f"{column} {random_.choice(SIGNS)} {one}"


def predicate(random_: random.Random, depth: int = 0) -> str:
    if depth == 2 or random_.random() < 0.5:
        return simple_predicate(random_)
    left, right = predicate(random_, depth + 1), predicate(random_, depth + 1)
    joined = f"({left}) {random_.choice(['and', 'and', 'or'])} ({right})"
    return f"not ({joined})" if random_.random() < 0.1 else joined


def test_random_predicates_find_what_duckdb_finds_in_a_plain_copy(
    lake: neve.Lake, copy: duckdb.DuckDBPyConnection, scoreboard: Record
) -> None:
    gate = Gate("R41 predicates of SQL: other rows than DuckDB in a copy", aim=500, full=20_000)
    for seed in gate.seeds():
        asked = predicate(random.Random(seed))
        try:
            wanted = copy.execute(f"select id from copied where {asked} order by id").fetchall()
        except duckdb.Error:
            with pytest.raises(NeveError):
                lake.sql(f"select id from a.b where {asked} order by id")
            continue
        gate.cases += 1
        found = lake.sql(f"select id from a.b where {asked} order by id").fetchall()
        assert found == wanted, f"seed {seed}: {asked}"
    scoreboard(gate.line())


def test_filters_that_joins_push_down_find_what_duckdb_finds(
    lake: neve.Lake, copy: duckdb.DuckDBPyConnection
) -> None:
    for column in ("id", "small", "f", "g", "s", "d", "tz", "ns", "b", "u"):
        text = (
            f"select l.id, r.id from {{0}} l join {{0}} r on l.{column} = r.{column} "
            "where r.id < 20 order by all"
        )
        wanted = copy.execute(text.format("copied")).fetchall()

        assert lake.sql(text.format("a.b")).fetchall() == wanted, column


def test_the_greatest_rows_are_those_of_duckdb(
    lake: neve.Lake, copy: duckdb.DuckDBPyConnection
) -> None:
    for column in ("small", "f", "s", "d", "tz", "dec"):
        for order in ("asc", "desc", "desc nulls last"):
            text = f"select id from {{}} order by {column} {order}, id limit 7"
            wanted = copy.execute(text.format("copied")).fetchall()

            assert lake.sql(text.format("a.b")).fetchall() == wanted


KEY_LITERALS: Final = [
    "7", "-7", "007", "2147483647", "2147483648", "-2147483648", "99999999999999999999", "7.0",
    "7e0", "'7'", "null", "true", "7::bigint", "(7)", "?", "$1", "$key",
]  # fmt: skip
TEXT_LITERALS: Final = [
    "'a'", "''", "'it''s'", "'é'", "'A'", "'a '", "'zz'", "7", "null", "'a'::varchar", "?", "$2",
    "$text", "E'a'", "'a\\n'",
]  # fmt: skip
PARAMETERS: Final = [7, -7, 2**31, 2**70, 7.0, True, None, "7", "a", "it's", "é", b"a", "a\0b"]
COLUMN_LISTS: Final = [
    "*", "k, s", "S", "f, f", '"k"', "flag, dec, d, ts, tz, f, b", "k as x", "distinct", "u", "l",
    "nothing", "rowid", '"order"', "order", "k, *", "count(*)", "st", "fixed", "t", "ns",
]  # fmt: skip


def key_text(made: random.Random) -> str:
    key, text = made.choice(KEY_LITERALS), made.choice(TEXT_LITERALS)
    if made.random() < 0.3:
        key, text = made.choice(["7", "-7"]), made.choice(["'a'", "'it''s'"])
    parts = [f"k = {key}", f"s = {text}"]
    if made.random() < 0.2:
        parts.append(made.choice(["k = 7", "f > 0", "K = -7", "true"]))
    made.shuffle(parts)
    if made.random() < 0.1:
        parts.pop()
    ending = made.choice(["", "", ";", " limit 1", " limit 0", " order by k", " -- and f > 0"])
    word = made.choice(["and", "AND", "and", "or"])
    table = made.choice(["a.keyed", "a.keyed", "A.Keyed", '"a"."keyed"', "keyed"])
    columns = made.choice(COLUMN_LISTS[: made.choice([2, len(COLUMN_LISTS)])])
    return f"select {columns} from {table} where {f' {word} '.join(parts)}{ending}"


def key_params(made: random.Random, text: str) -> object:
    if "$key" in text or "$text" in text:
        return {name: made.choice(PARAMETERS) for name in ("key", "text") if f"${name}" in text}
    return [made.choice(PARAMETERS) for _ in range(text.count("?") + text.count("$"))] or None


def test_queries_for_one_key_answer_what_duckdb_answers(
    lake: neve.Lake, scoreboard: Record
) -> None:
    gate = Gate("R41 queries for a key: other answers than DuckDB's", aim=500, full=20_000)
    fields: list[pa.Field[Any]] = [
        pa.field("k", pa.int32(), nullable=False),
        pa.field("s", pa.string(), nullable=False),
    ]
    fields += [pa.field(n, t) for n, t in TYPES.items() if n not in {"id", "s"}]
    fields.append(pa.field("order", pa.int64()))
    table = lake.create_table("a.keyed", pa.schema(fields), primary_key=["k", "s"])
    made = random.Random(5)
    for number, keys in enumerate(([7, -7], [2147483647, -2147483648, 7])):
        table.upsert(
            [
                {"k": k, "s": s, "order": number}
                | {n: made.choice([None, *some]) for n, some in VALUES.items() if n != "s"}
                for k in keys
                for s in ("a", "", "it's", "é", "a ", "7")
            ]
        )
        if not number:
            table.flush()
    found_rows = 0
    for seed in gate.seeds():
        made = random.Random(seed)
        text = key_text(made)
        params: Any = key_params(made, text)
        answers: list[object] = []
        # A query that names a frame is always DuckDB's.
        for frames in ({}, {"unused": pa.table({"x": [1]})}):
            try:
                rows = lake.sql(text, params, **frames).to_arrow()
            except NeveError as error:
                answers.append((type(error), error.message))
            else:
                found_rows += rows.num_rows
                answers.append((rows.schema.to_string(), repr(rows.to_pylist())))
        gate.cases += 1
        assert answers[0] == answers[1], f"seed {seed}: {text} {params}"
    assert found_rows
    scoreboard(gate.line())
