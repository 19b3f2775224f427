"""Raw change events become a table on Spark, beside a live writer; every engine reads the same.

It prints:

    3 orders out of 5 events
    order 4 was written live, order 1 costs 12.5 since the stream
    3 files, no row marked
    spark  (4, 50.0)
    duckdb (4, 50.0)
    neve   (4, 50.0)
"""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow.compute as pc
from pyspark.sql import functions as sf

import neve
from neve import spark as ns

FIELDS = "id long, customer string, amount double, at timestamp"
DAY1 = "1,ada,9.5,2024-03-01 10:00\n2,bob,5,2024-03-01 10:01\n1,ada,10,2024-03-01 11:00\n"
DAY1 += "3,eve,20.5,2024-03-01 11:30\n,nobody,1,2024-03-01 12:00\n"
DAY2 = "1,ada,12.5,2024-03-02 09:00\n"
SUM = "select count(*), sum(amount) from"

with tempfile.TemporaryDirectory() as place, neve.open(f"{place}/lake") as catalog:
    lake, name = f"{place}/lake", "shop.orders"
    for day, text in (1, DAY1), (2, DAY2):
        Path(place, f"raw{day}").mkdir()
        Path(place, f"raw{day}", "events.csv").write_text(text)
    session = ns.session(master="local[2]", config={"spark.driver.memory": "1g"})
    events = session.read.csv(f"{place}/raw1", FIELDS)
    newest = sf.max_by(sf.struct("*"), "at").alias("event")
    rows = events.where("id is not null").groupBy("id").agg(newest).select("event.*")
    schema = rows.toArrow().schema
    orders = catalog.create_table(name, schema, ["id"], partition_by=["day(at)"])
    print(ns.upsert(rows, lake, name).rows_written, f"orders out of {events.count()} events")

    orders.put({"id": 4, "customer": "dan", "amount": 12.0, "at": datetime(2024, 3, 3, tzinfo=UTC)})
    stream = session.readStream.csv(f"{place}/raw2", FIELDS).writeStream
    stream = stream.foreachBatch(ns.upsert_batch(lake, name, app_id="events"))
    stream = stream.option("checkpointLocation", f"{place}/checkpoint")
    stream.trigger(availableNow=True).start().awaitTermination()
    price = (orders.refresh().get(1) or {})["amount"]
    print(f"order 4 was written live, order 1 costs {price} since the stream")

    orders.flush()
    ns.compact(session, lake, name, full=True)
    files = [f"{orders.location}/{path.as_py()}" for path in orders.refresh().files()["file_path"]]
    print(len(files), "files,", orders.stats().deleted_count or "no", "row marked")
    ns.read(session, lake, name).createOrReplaceTempView("orders")
    print("spark ", *map(tuple, session.sql(f"{SUM} orders").collect()))
    print("duckdb", duckdb.execute(f"{SUM} read_parquet(?)", [files]).fetchone())
    amounts = orders.scan().to_arrow()["amount"]
    print("neve  ", (len(amounts), pc.sum(amounts).as_py()))
