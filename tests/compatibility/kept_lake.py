"""Writes the lake that a release keeps for every later one to open.

    python -m tests.compatibility.kept_lake tests/compatibility/lakes/<version>.zip

It has a bit of everything that is on disk: a partitioned table with two schemas, young and old
files, marked rows, a tag, and rows that are only in the log; a table with text keys; a namespace.
Since 0.2.0 also a table with an order, rows that expire, remembered deletes, a batch of a feed and
a consumer; one with merge functions; and a transaction over both that is only in their logs.
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
ACCOUNTS = "shop.accounts"
TOTALS = "shop.totals"
FEED, BATCH = "accounts-feed", 3
CONSUMER = "billing"
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

_ACCOUNT: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "lsn": pa.int64(),
    "name": pa.string(),
    "seen": pa.timestamp("us", "UTC"),
}
_TOTAL: dict[str, pa.DataType] = {"id": pa.int64(), "total": pa.int64(), "best": pa.int64()}
_TTL, _KEPT = "90000 days", "90000 days"

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
ACCOUNTS_NOW = {
    1: {"id": 1, "lsn": 20, "name": "twenty", "seen": _DAY},
    4: {"id": 4, "lsn": 14, "name": "fourteen", "seen": _DAY},
    5: {"id": 5, "lsn": 50, "name": "transaction", "seen": _DAY},
}
DELETED_AT = {2: 30, 3: 31}
"""Accounts that are gone, and the order of their deletes: one in a file, one in the log."""
TOTALS_NOW = {1: {"id": 1, "total": 111, "best": 7}, 2: {"id": 2, "total": 5, "best": None}}
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
        _write_rules(lake)


def _write_rules(lake: neve.Lake) -> None:
    """Write what came with 0.2.0."""
    accounts = lake.create_table(
        ACCOUNTS,
        pa.schema(_ACCOUNT),
        "id",
        order_by="lsn",
        ttl=("seen", _TTL),
        keep_deletes=_KEPT,
        options=_BY_HAND,
    )
    first = [(1, 20, "twenty"), (1, 10, "ten"), (2, 12, "twelve"), (3, 13, "thirteen")]
    accounts.apply(_events("c", *first), app_id=FEED, batch=1)
    accounts.apply(_events("d", (2, 30, None)), app_id=FEED, batch=2)
    accounts.flush()
    accounts.changes(consumer=CONSUMER).read_all()
    events = [*_events("d", (3, 31, None)), *_events("u", (2, 29, "late"), (4, 14, "fourteen"))]
    accounts.apply(events, app_id=FEED, batch=BATCH)
    totals = lake.create_table(
        TOTALS,
        pa.schema(_TOTAL),
        "id",
        merge={"total": "sum", "best": "max"},
        options=_BY_HAND,
    )
    totals.put({"id": 1, "total": 1, "best": 7})
    totals.flush()
    totals.put({"id": 1, "total": 10, "best": 3})
    with lake.transaction() as transaction:
        transaction.table(ACCOUNTS).put(ACCOUNTS_NOW[5])
        transaction.table(TOTALS).upsert(
            [{"id": 1, "total": 100, "best": None}, {"id": 2, "total": 5, "best": None}]
        )


def _events(operation: str, *changes: tuple[int, int, str | None]) -> list[Row]:
    return [
        {"op": operation, "id": number, "lsn": lsn, "name": name, "seen": _DAY}
        for number, lsn, name in changes
    ]


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
