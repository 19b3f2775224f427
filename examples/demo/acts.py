"""The acts of the demo, in the order in which they are played.

Each is one function from the stage to what it found, and each checks what it claims: an act whose
claim does not hold raises, and the demo ends with that error's exit code. The code of an act is
what one would write to do the same; a test runs it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from examples.demo.crash import crash
from examples.demo.other_systems import readers, rocksdb
from examples.demo.reach_acts import bucket, feed, names, sql
from examples.demo.spark_act import spark
from examples.demo.stage import Found, Stage
from examples.demo.table_acts import change, damage, levels, query, travel, upkeep, write

_WRITE: Final = """\
lake = neve.open("./lake")
orders = lake.create_table("shop.orders", schema, ["customer", "id"],
                           partition_by=["day(ordered_at)"])
orders.put(row)      # durable when it returns
orders.upsert(rows)  # dicts, Arrow, pandas or Polars
"""
_CRASH: Final = """\
lake = neve.open("./lake")  # that is all
orders = lake.table("shop.orders")
"""
_QUERY: Final = """\
orders.flush()
orders.get(("Ada", 8))
orders.scan("amount > 999", columns=["id", "amount"]).to_arrow()
"""
_CHANGE: Final = """\
orders.upsert(changed_rows)
orders.delete_many(keys)
orders.delete_where("id >= 199000")
"""
_TRAVEL: Final = """\
orders.at(version=2).scan().to_arrow()
orders.changes(since=2).read_all()
orders.tag("first-load", 2)
"""
_READERS: Final = """\
metadata = orders.iceberg_metadata()
pyiceberg.table.StaticTable.from_metadata(metadata).scan().to_arrow()
duckdb.sql(f"select * from iceberg_scan('{metadata}')")
"""
_UPKEEP: Final = """\
orders.compact()
orders.expire(keep_last=1)
orders.collect_garbage(dry_run=False)
"""
_DAMAGE: Final = """\
orders.verify()
"""
_SPARK: Final = """\
ns.load(df, "./lake", "shop.by_day")  # ns.upsert, ns.merge, ns.compact
batch = ns.upsert_batch("./lake", "shop.by_day", app_id="demo")
stream.writeStream.foreachBatch(batch).start()
"""
_FEED: Final = """\
accounts = lake.create_table("bank.accounts", columns, ["id"],
                             order_by=["lsn"])
accounts.apply(neve.cdc.debezium(events), app_id="bank", batch=1)
"""
_SQL: Final = """\
lake.sql("select sum(amount) from shop.orders").to_arrow()
lake.sql("update shop.orders set note = 'changed' where id < 0").count
"""
_NAMES: Final = """\
server = lake.serve()  # or: neve serve --lake ./lake
catalog = pyiceberg.catalog.load_catalog("lake", uri=server.url)
catalog.load_table("shop.orders").scan().to_arrow()
server.close()
"""
_BUCKET: Final = """\
lake = neve.open("s3://bucket/lake", storage_options=options)
lake.table("shop.orders").put(row)
"""
_LEVELS: Final = """\
orders.files().group_by("level").aggregate([("record_count", "sum")])
"""


@dataclass(frozen=True, slots=True)
class Act:
    """One act: its name in the JSON, its title, the function that plays it, and its code."""

    name: str
    title: str
    play: Callable[[Stage], tuple[Found, ...]]
    code: str = ""


ACTS: Final = (
    Act("write", "A lake, and a table of orders by day", write, _WRITE),
    Act("crash", "A writer is killed in the middle of writing", crash, _CRASH),
    Act("query", "Flush, then ask: by key, by scan, by filter", query, _QUERY),
    Act("change", "Updates and deletes mark rows, and rewrite nothing", change, _CHANGE),
    Act("travel", "Time travel, and a feed of what changed", travel, _TRAVEL),
    Act("readers", "PyIceberg and DuckDB read the same table as it is", readers, _READERS),
    Act("upkeep", "Compact, expire, collect garbage, verify", upkeep, _UPKEEP),
    Act("damage", "One bit flips", damage, _DAMAGE),
    Act("rocksdb", "A log of neve, recovered by the real RocksDB", rocksdb),
    Act("feed", "Changes of another database, in a wrong order", feed, _FEED),
    Act("sql", "SQL, and a transaction over two tables", sql, _SQL),
    Act("names", "Another engine writes by name", names, _NAMES),
    Act("bucket", "The same in a bucket", bucket, _BUCKET),
    Act("spark", "A pipeline on Spark, beside a live writer", spark, _SPARK),
    Act("levels", "New rows on top: the levels of the table", levels, _LEVELS),
)
