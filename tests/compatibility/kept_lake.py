"""Writes the lake that a release keeps for every later one to open.

    python -m tests.compatibility.kept_lake tests/compatibility/lakes/<version>.zip

It has a bit of everything that is on disk: a partitioned table with two schemas, young and old
files, marked rows, a tag, and rows that are only in the log; a table with text keys; a namespace.
Metadata for other engines is left out: it names the place where it was written.
"""

import datetime as dt
import sys
import tempfile
import zipfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

import neve

ORDERS = "shop.orders"
WORDS = "notes.words"
TAG = "before"
_DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_BY_HAND = neve.TableOptions(background=False, iceberg_publish="demand")

_ORDER: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "amount": pa.decimal128(9, 2),
    "ts": pa.timestamp("us", "UTC"),
    "tags": pa.list_(pa.string()),
}
_WORD: dict[str, pa.DataType] = {"word": pa.string(), "raw": pa.binary()}

Row = dict[str, object]


def order(number: int, amount: str, *, place: str | None = None) -> Row:
    """Return an order as it is read today; a place came with the second schema."""
    return {
        "id": number,
        "amount": Decimal(amount),
        "ts": _DAY + dt.timedelta(hours=number),
        "tags": ["a", None] if number % 2 else None,
        "place": place,
    }


TAGGED = {number: order(number, "1.50") for number in range(100)}
CURRENT = (
    {number: row for number, row in TAGGED.items() if not 10 <= number < 20}
    | {number: order(number, "2.25", place="north") for number in range(30, 60)}
    | {number: order(number, "3.75", place="logged") for number in (5, 200)}
)
TEXTS = {"": b"", "ä\0b": b"\0\xff", "z" * 300: None}


def write(lake_directory: Path) -> None:
    """Write the lake, and close it."""
    with neve.open(lake_directory) as lake:
        orders = lake.create_table(
            ORDERS,
            pa.schema(_ORDER),
            ["id"],
            partition_by=["day(ts)"],
            options=_BY_HAND,
        )
        orders.upsert([_without_place(row) for row in TAGGED.values()])
        orders.tag(TAG, orders.flush())
        orders.compact(full=True)
        with orders.evolve() as change:
            change.add_column("place", pa.string())
        orders.upsert([CURRENT[number] for number in range(30, 60)])
        orders.delete_many(list(range(10, 20)))
        orders.flush()
        orders.upsert([CURRENT[5], CURRENT[200]])
        words = lake.create_table(
            WORDS,
            pa.schema(_WORD),
            ["word"],
            options=_BY_HAND,
        )
        words.upsert([{"word": word, "raw": raw} for word, raw in TEXTS.items()])
        lake.create_namespace("empty")


def _without_place(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "place"}


def main(target: Path) -> None:
    """Write the lake into a zip file."""
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory) / "lake")
        with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(Path(directory).rglob("*")):
                if path.is_file():
                    # Without the time: the same lake is the same bytes, but for its ids.
                    entry = zipfile.ZipInfo(str(path.relative_to(directory)))
                    archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
