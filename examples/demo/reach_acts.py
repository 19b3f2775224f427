"""The acts that reach beyond one table: a change feed, SQL, another engine by name, a bucket.

feed       changes of another database: shuffled, repeated, interrupted; each counts once
sql        a join with a data frame, a MERGE, and a transaction over two tables
names      PyIceberg writes through the REST catalog, beside the live writer
bucket     the same calls on S3: rows are durable in the bucket, a second process reads them

An act whose packages are not installed says so.
"""

import importlib
import importlib.util
import json
from collections import Counter
from contextlib import ExitStack
from random import Random
from typing import Any, Final

import pyarrow as pa

import neve
from examples.demo.order_rows import ARROW_SCHEMA, KEY, PARTITIONS, by_key
from examples.demo.stage import Finding, Found, Stage, check, check_equal, shown_seconds
from neve.catalog.transaction import LakeTransaction
from neve.errors import Unavailable

_ACCOUNTS: Final = 2_000
_EVENTS: Final = 20_000
_BATCH_EVENTS: Final = 2_500
_BUCKET_ROWS: Final = 20_000
_APPENDED: Final = 500
_ACCOUNT_COLUMNS: Final = {"id": pa.int64(), "balance": pa.int64(), "lsn": pa.int64()}


def feed(stage: Stage) -> tuple[Found, ...]:
    """Apply Debezium's events in a wrong order, some of them twice; compare with a dictionary."""
    narrator = stage.narrator
    accounts = stage.lake.create_table(
        stage.name("accounts"), pa.schema(_ACCOUNT_COLUMNS), ["id"], order_by=["lsn"]
    )
    events, due = _events()
    batches = [events[at : at + _BATCH_EVENTS] for at in range(0, len(events), _BATCH_EVENTS)]
    with stage.timed() as seconds, narrator.progress("batches", total=len(batches)) as told:
        for number, batch in enumerate(batches, start=1):
            changes = neve.cdc.debezium("\n".join(batch))
            for _ in range(2):  # the second time as after a crash: it changes nothing
                accounts.apply(changes, app_id="bank", batch=number)
            told(number)
    check(accounts.last_batch("bank") == len(batches), "the ledger does not know the last batch")
    rows = {row["id"]: row["balance"] for row in accounts.scan().to_arrow().to_pylist()}
    check(rows == due, "the table is not what the events say")
    accounts.close()
    narrator.say(
        f"{len(events):,} events in {len(batches)} batches, shuffled, one in twenty repeated, and "
        f"every batch sent twice: {shown_seconds(seconds())}"
    )
    narrator.found(f"{len(rows):,} accounts, each with its newest balance; deleted ones stay away")
    return (
        Finding("events", len(events)),
        Finding("accounts", len(rows)),
        Finding("events_per_second", round(len(events) * 2 / seconds())),
    )


def _events() -> tuple[list[str], dict[int, int]]:
    """Return envelopes in an order in which they did not happen, and the balances after all."""
    random = Random(7)  # noqa: S311 - the same events in every run
    balances: dict[int, int] = {}
    events = []
    for lsn in range(1, _EVENTS + 1):
        account = random.randrange(_ACCOUNTS)
        if account in balances and random.random() < 0.1:
            events.append(_envelope("d", account, balances.pop(account), lsn))
        else:
            kind = "u" if account in balances else "c"
            balances[account] = random.randrange(10_000)
            events.append(_envelope(kind, account, balances[account], lsn))
    events += random.sample(events, _EVENTS // 20)
    random.shuffle(events)
    return events, balances


def _envelope(kind: str, account: int, balance: int, lsn: int) -> str:
    row = {"id": account, "balance": balance}
    sides = {"before": row, "after": None} if kind == "d" else {"before": None, "after": row}
    return json.dumps({"op": kind, **sides, "source": {"lsn": lsn}})


def sql(stage: Stage) -> tuple[Found, ...]:
    """Ask and change tables with SQL; then change two of them in one transaction."""
    narrator, lake = stage.narrator, stage.lake
    if not _are_installed("duckdb", "sqlglot"):
        narrator.left_out("DuckDB is not installed here: pip install 'neve[sql]'")
        return (Finding("sql_is_installed", value=False),)
    orders, totals = stage.orders.name, stage.name("totals")
    lake.sql(f"create table {totals} (customer text primary key, orders bigint, spent decimal)")
    cities = pa.table({"customer": ["Ada", "Grace"], "city": ["London", "New York"]})
    with stage.timed() as seconds:
        asked = lake.sql(
            f"select city, count(*) as orders from {orders} join cities using (customer) "  # noqa: S608 - names of our own
            "group by city order by city",
            cities=cities,
        ).to_arrow()
    by_customer = Counter(stage.table.rows_after["customer"].to_pylist())
    check(
        asked["orders"].to_pylist() == [by_customer["Ada"], by_customer["Grace"]],
        "SQL counts other orders than there are",
    )
    narrator.found(
        f"a join with a data frame: {stage.table.rows_after.num_rows:,} orders grouped in "
        f"{shown_seconds(seconds())}"
    )
    merged = lake.sql(
        f"merge into {totals} t using (select customer, count(*) as orders, sum(amount) as spent "  # noqa: S608
        f"from {orders} group by customer) s on t.customer = s.customer "
        "when matched then update set * when not matched then insert *"
    )
    check(merged.count == len(by_customer), "MERGE changed another number of rows")
    narrator.found(f"MERGE INTO: {merged.count} customers with their totals, as one commit")
    _transact(stage, totals)
    return (Finding("sql_is_installed", value=True), Finding("merged_rows", merged.count))


def _transact(stage: Stage, totals: str) -> None:
    """Move a row from one table to another; a write in between refuses the first attempt."""
    lake = stage.lake
    moved = lake.create_table(stage.name("moved"), lake.table(totals).schema, ["customer"])
    attempts: list[dict[str, Any]] = []

    def move(tx: LakeTransaction) -> None:
        row = tx.table(totals).get("Ada") or {}
        if not attempts:
            lake.table(totals).put({**row, "orders": 0})  # another writer comes first
        attempts.append(row)
        tx.table(totals).delete("Ada")
        tx.table(moved.name).put(row)

    lake.retry(move)
    check(lake.table(totals).get("Ada") is None, "a committed transaction is not seen")
    check(moved.get("Ada") == {**attempts[0], "orders": 0}, "a transaction moved an old row")
    stage.narrator.found(
        f"a transaction over two tables: another writer came first, so it ran {len(attempts)} "
        "times; it moved the newest row"
    )
    moved.close()


def names(stage: Stage) -> tuple[Found, ...]:
    """Serve the lake; PyIceberg finds a table by its name, appends to it, and deletes from it."""
    narrator = stage.narrator
    if not _are_installed("starlette", "uvicorn"):
        narrator.left_out("the server is not installed here: pip install 'neve[server]'")
        return (Finding("server_is_installed", value=False),)
    load_catalog = importlib.import_module("pyiceberg.catalog").load_catalog
    name = stage.name("shared")
    shared = stage.lake.create_table(
        name, ARROW_SCHEMA, KEY, partition_by=PARTITIONS, properties={"format-version": "2"}
    )
    shared.upsert(stage.table.rows(range(1_000)))
    shared.flush()
    appended = pa.Table.from_batches([stage.table.rows(range(1_000, 1_000 + _APPENDED))])
    with stage.lake.serve() as server, stage.timed() as seconds:
        theirs = load_catalog("lake", type="rest", uri=server.url).load_table(name)
        theirs.append(appended.cast(theirs.schema().as_arrow()))
        theirs.delete("id < 10")
        seen = theirs.scan().to_arrow()
    due = pa.Table.from_batches([stage.table.rows(range(10, 1_000 + _APPENDED))])
    shared.refresh()
    check_equal(shared.scan().to_arrow(), by_key(due), "after PyIceberg's commits")
    check(seen.num_rows == due.num_rows, "PyIceberg sees other rows")
    shared.put(stage.table.row(0))
    check(shared.get(stage.table.key_values(0)) is not None, "the writer did not go on")
    shared.close()
    narrator.say(f"PyIceberg attached {server.url} and found {name} by its name")
    narrator.found(
        f"its append of {_APPENDED} rows and its delete are Versions of neve, beside the live "
        f"writer: {shown_seconds(seconds())}"
    )
    return (Finding("server_is_installed", value=True), Finding("appended_rows", _APPENDED))


def bucket(stage: Stage) -> tuple[Found, ...]:
    """Do the same in a bucket of SeaweedFS, a small S3 server on this machine."""
    narrator = stage.narrator
    with ExitStack() as running:
        try:
            servers = importlib.import_module("neve.testing.s3_servers")
            at = running.enter_context(servers.seaweedfs())
        except Unavailable as missing:
            narrator.left_out(f"{missing.message}. {missing.hint}")
            return (Finding("bucket_is_installed", value=False),)
        location, options = at.location("lake"), at.storage_options(listing="unordered")
        with neve.open(location, storage_options=options) as lake:
            orders = lake.create_table("shop.orders", ARROW_SCHEMA, KEY)
            with stage.timed() as seconds:
                orders.put(stage.table.row(0))
            orders.upsert(stage.table.rows(range(_BUCKET_ROWS)))
            orders.flush()
            orders.put(stage.table.changed_row(0))
            with neve.open(location, storage_options=options, read_only=True) as other:
                row = other.table("shop.orders").get(stage.table.key_values(0))
                rows = other.table("shop.orders").scan().count()
            requests = sum(each.requests for each in lake.requests().values())
    check(row == stage.table.changed_row(0), "a reader does not see a row that is durable")
    check(rows == _BUCKET_ROWS, "a reader sees another number of rows")
    narrator.say(
        f"{location}: a durable put is one conditional request, {shown_seconds(seconds())}"
    )
    narrator.found(
        f"{rows:,} rows, and one that is not flushed, read through a second handle; the writer "
        f"made {requests} requests in all"
    )
    return (Finding("bucket_is_installed", value=True), Finding("bucket_rows", rows))


def _are_installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)
