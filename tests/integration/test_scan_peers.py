"""Filters choose the rows that DuckDB chooses, on a real table with files, vectors and a memtable.

DuckDB gets every row and the same text as its WHERE; neve prunes partitions, files and row groups.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import neve
from neve.model.arrow_types import ArrowField

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
WORDS = ["", "a", "ab", "abc", "b", "it's", "é", "z%"]
FIELDS: list[ArrowField] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("word", pa.string()),
    pa.field("amount", pa.float64()),
    pa.field("pieces", pa.int32()),
    pa.field("ts", pa.timestamp("us", tz="UTC")),
]
SCHEMA = pa.schema(FIELDS)

Row = dict[str, object]


def rows_of(random: Random, ids: list[int]) -> list[Row]:
    return [
        {
            "id": number,
            "word": random.choice([None, *WORDS]),
            "amount": random.choice([None, number / 8, -1.5]),
            "pieces": random.choice([None, number % 13]),
            "ts": FIRST + timedelta(hours=number % 200),
        }
        for number in ids
    ]


@pytest.fixture(scope="module", params=["by day", "whole"])
def orders(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[neve.Table]:
    """Yield a table of about 600 rows: compacted, overwritten, and partly in memory."""
    random = Random(4)
    root: Path = tmp_path_factory.mktemp("lake")
    with neve.open(str(root)) as lake:
        table = lake.create_table(
            "shop.orders",
            schema=SCHEMA,
            primary_key=["id"],
            partition_by=["day(ts)"] if request.param == "by day" else [],
        )
        table.upsert(rows_of(random, list(range(500))))
        table.flush()
        table.compact()
        table.upsert(rows_of(random, random.sample(range(600), 120)))
        table.delete_many(random.sample(range(500), 30))
        table.flush()
        table.upsert(rows_of(random, random.sample(range(600), 40)))
        table.delete_many(random.sample(range(500), 10))
        yield table


def random_filter(random: Random, depth: int = 2) -> str:
    """Spell a filter that means the same in both languages."""
    number = random.randrange(600)
    low = random.randrange(600)
    moment = FIRST + timedelta(hours=random.randrange(200))
    word = random.choice(WORDS).replace("'", "''")
    prefix = random.choice(["a", "ab", "b", ""])
    sign = random.choice(["=", "!=", "<>", "<", "<=", ">", ">="])
    simple = [
        f"id {sign} {number}",
        f"{number} {sign} id",
        f"amount {sign} {number / 16}",
        f"pieces {sign} {number % 15}",
        f"pieces {sign} 4.5",
        f"word {sign} '{word}'",
        f"ts {sign} '{moment.isoformat()}'",
        f"id between {low} and {low + 50}",
        f"id in ({number}, {low}, 3)",
        f"pieces not in ({number % 15}, 4)",
        f"word in ('{word}', 'abc')",
        f"word like '{prefix}%'",
        f"word not like '{prefix}%'",
        "amount is null",
        "word is not null",
    ]
    if not depth or random.random() < 0.3:
        return random.choice(simple)
    one, other = random_filter(random, depth - 1), random_filter(random, depth - 1)
    return random.choice([f"{one} and {other}", f"({one}) or ({other})", f"not ({one})"])


@pytest.mark.parametrize("seed", range(8))
def test_a_filter_chooses_what_duckdb_chooses(orders: neve.Table, seed: int) -> None:
    random = Random(seed)
    everything = orders.scan().to_arrow()
    with duckdb.connect() as peer:
        peer.execute("SET TimeZone = 'UTC'")
        peer.register("orders", everything)
        for _ in range(25):
            text = random_filter(random)
            asked = f"select id from orders where {text} order by id"
            expected = [row[0] for row in peer.execute(asked).fetchall()]

            scan = orders.scan(filter=text, columns=["id"])

            assert sorted(scan.to_arrow().column("id").to_numpy().tolist()) == expected, text
            assert scan.count() == len(expected), text
            last = orders.scan(filter=text, reverse=True, limit=3).to_arrow()
            assert last.column("id").to_pylist() == expected[::-1][:3], text


def test_duckdb_and_polars_read_a_scan_as_it_is(orders: neve.Table) -> None:
    scan = orders.scan(filter="id < 100", columns=["id", "amount"])
    count = scan.count()

    with duckdb.connect() as peer:
        peer.register("scanned", scan.to_reader())
        found = peer.execute("select count(*), sum(amount) from scanned").fetchone()
    frame = pl.DataFrame(scan)

    assert found is not None
    assert found[0] == frame.height == count > 0
    assert found[1] == frame["amount"].sum()


def test_a_day_is_read_from_its_partition_alone(orders: neve.Table) -> None:
    explained = orders.scan(filter="ts < '2024-01-02T00:00:00+00:00'").explain()

    pruned = explained.pruned_by_partition + explained.pruned_by_statistics
    is_partitioned = explained.files_total > 5
    assert (explained.pruned_by_partition > 0) == is_partitioned
    assert explained.files_read + pruned + explained.pruned_by_key == explained.files_total
