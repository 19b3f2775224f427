"""A small pipeline on whatever PySpark runs it: every function of `neve.spark` that moves rows.

    python spark_functions.py FOLDER [LOCATION OPTIONS.json]

The lake is in the folder, or at the location, a bucket with storage options. It prints the version
of PySpark and how the last read went. Where there is `format("neve")`, that is read and written
too. It needs only PySpark and neve.
"""

import json
import sys
from pathlib import Path
from typing import Any

import neve
from neve import spark as ns

NAME = "shop.orders"
DDL = "id long, v long, text string"
ROWS = 1_000


def rows_of(frame: Any) -> dict[int, tuple[int, str]]:  # noqa: ANN401 - of any PySpark
    return {row.id: (row.v, row.text) for row in frame.collect()}


def main(folder: str, location: str | None = None, options: str | None = None) -> None:
    here = Path(folder)
    lake = str(here / "lake") if location is None else location
    storage: dict[str, str] = {} if options is None else json.loads(Path(options).read_text())
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(here / "local"),
        "spark.sql.warehouse.dir": str(here / "warehouse"),
        **json.loads((here / "settings.json").read_text()),
    }
    session = ns.session(master="local[2]", config=settings)
    given: dict[str, Any] = {"storage_options": storage or None}
    with neve.open(lake, **given) as opened:
        opened.create_table(NAME, {"id": int, "v": int, "text": str}, "id").close()

    ns.load(
        session.range(ROWS).selectExpr("id", "id * 2 as v", "'loaded' as text"), lake, NAME, **given
    )
    model = {n: (n * 2, "loaded") for n in range(ROWS)}
    rows = session.createDataFrame([(5, 1, "upserted"), (2_000, 2, "upserted")], DDL)
    assert ns.upsert(rows, lake, NAME, job_id="once", **given).rows_superseded == 1
    assert ns.upsert(rows, lake, NAME, job_id="once", **given).was_already_done
    model |= {5: (1, "upserted"), 2_000: (2, "upserted")}
    ns.merge(
        session.createDataFrame([(6, 0, "gone"), (7, 9, "set"), (3_000, 3, "new")], DDL),
        lake,
        NAME,
        when_matched=[
            ns.Clause("delete", "source.text = 'gone'"),
            ns.Clause("update", "source.v < target.v", set={"v": "source.v + target.v"}),
        ],
        **given,
    )
    del model[6]
    model |= {7: (9 + 14, "loaded"), 3_000: (3, "new")}
    changes = [(8, 1, "a", "upsert"), (8, 2, "b", "upsert"), (9, 1, "x", "delete")]
    feed = session.createDataFrame(changes, f"{DDL}, op string")
    ns.apply(feed, lake, NAME, order_by="v", **given)
    del model[9]
    model[8] = (2, "b")
    ns.delete(session.range(10, 20), lake, NAME, **given)
    model = {n: row for n, row in model.items() if not 10 <= n < 20}

    ways = [None, False]
    if location is None or "spark.hadoop.fs.s3a.endpoint" in settings:
        ways.append(True)
    for native in ways:
        found = ns.read(session, lake, NAME, native=native, **given)
        assert rows_of(found) == model, native
        some = ns.read(session, lake, NAME, native=native, columns=["v"], filter="id < 9", **given)
        assert sorted(row.v for row in some.collect()) == sorted(
            v for n, (v, _) in model.items() if n < 9
        )
    ns.compact(session, lake, NAME, full=True, **given)
    assert ns.verify(session, lake, NAME, **given).row_count == len(model)
    assert rows_of(ns.read(session, lake, NAME, **given)) == model
    stream(session, here, lake, model, given)
    if not session.version.startswith("3."):
        by_format(session, lake, model, storage)
    assert rows_of(ns.read(session, lake, NAME, **given)) == model
    print(session.version, ns.explain(session, lake, NAME, **given).through)
    session.stop()


def stream(
    session: Any,  # noqa: ANN401 - of any PySpark
    here: Path,
    lake: str,
    model: dict[int, tuple[int, str]],
    given: dict[str, Any],
) -> None:
    """Upsert a stream by batches."""
    session.createDataFrame([(1, 8, "streamed")], DDL).write.parquet(str(here / "source"))
    query = (
        session.readStream.schema(DDL)
        .parquet(str(here / "source"))
        .writeStream.foreachBatch(ns.upsert_batch(lake, NAME, app_id="stream", **given))
        .option("checkpointLocation", str(here / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    model[1] = (8, "streamed")


def by_format(
    session: Any,  # noqa: ANN401 - of any PySpark
    lake: str,
    model: dict[int, tuple[int, str]],
    storage: dict[str, str],
) -> None:
    """Write, read and follow the table by its format."""

    def told(builder: Any) -> Any:  # noqa: ANN401 - of any PySpark
        builder = builder.format("neve").option("table", NAME)
        for name, value in storage.items():
            builder = builder.option(f"storage.{name}", value)
        return builder

    told(session.createDataFrame([(2, 9, "by format")], DDL).write).mode("append").save(lake)
    model[2] = (9, "by format")
    assert rows_of(told(session.read).load(lake)) == model
    assert rows_of(told(session.read).load(lake).where("id < 3 and v > 0")) == {
        n: row for n, row in model.items() if n < 3 and row[0] > 0
    }
    feed = told(session.readStream).option("since", "0").load(lake)
    query = (
        feed.writeStream.format("memory").queryName("changes").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    count = session.sql("select count(*) as n from changes where _change_type = 'insert'")
    assert count.collect()[0].n >= ROWS


if __name__ == "__main__":
    main(*sys.argv[1:])
