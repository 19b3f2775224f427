"""A pipeline over Spark Connect, from the first rows to the same answer from three readers.

Run as a program, for a process has sessions of Connect or others, not both: an empty folder for the
warehouse and what the stream leaves behind.
"""

import sys
import warnings
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import neve
from neve import spark as ns
from neve.spark.read_plan import TableAddress
from neve.spark.reading import _way
from tests.spark.bulk_tables import DDL, NAME, Row, as_row, make_table
from tests.spark.conftest import SETTINGS

ROWS = 1_000


def rows_of(found: pa.Table) -> list[Row]:
    """Return rows by key."""
    return [as_row(row) for row in found.sort_by("id").to_pylist()]


def embedded_rows(lake: Path) -> list[Row]:
    """Read what the engine reads."""
    with neve.open(lake) as catalog, catalog.table(NAME, read_only=True) as table:
        return rows_of(table.scan().to_arrow())


def write(session: SparkSession, lake: Path, told: list[tuple[int, int]]) -> None:
    """Load, upsert and merge; somebody is told how far the tasks are."""
    first = session.range(ROWS).selectExpr("id", "id * 2 as v", "'loaded' as text")
    ns.load(first, lake, NAME, progress=lambda *each: told.append(each))
    changes = session.createDataFrame([(5, 1, "upserted"), (2_000, 2, "upserted")], DDL)
    assert ns.upsert(changes, lake, NAME, job_id="once").rows_superseded == 1
    assert ns.upsert(changes, lake, NAME, job_id="once").was_already_done
    merged = session.createDataFrame([(6, 0, "gone"), (7, 9, "set"), (3_000, 3, "new")], DDL)
    ns.merge(
        merged,
        lake,
        NAME,
        when_matched=[
            ns.Clause("delete", "source.text = 'gone'"),
            ns.Clause("update", "source.v < target.v", set={"v": "source.v + target.v"}),
        ],
    )


def stream(session: SparkSession, folder: Path, lake: Path) -> None:
    """Upsert a stream by batches; on Connect the function runs in a process of the server's."""
    session.createDataFrame([(8, 8, "streamed")], DDL).write.parquet(str(folder / "source"))
    rows = session.readStream.schema(DDL).parquet(str(folder / "source"))
    query = (
        rows.writeStream.foreachBatch(ns.upsert_batch(lake, NAME, app_id="connect"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def statements(session: SparkSession, lake: Path) -> None:
    """Query and change the table by SQL; the name is one of `ns.sql` only, and that is said."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        ns.attach(session, lake, "lake")
    assert "known to neve.spark.sql" in str(warned[0].message), warned
    ours = f"lake.{NAME}"
    session.range(5_000, 5_003).selectExpr(
        "id", "id as v", "'new' as text"
    ).createOrReplaceTempView("news")
    merge = f"""
        merge into {ours} t using news n on t.id = n.id
        when matched then delete when not matched and n.id > ? then insert *
    """
    for counts in ((2, 0, 0), (0, 0, 2)):
        (done,) = ns.sql(session, merge, [5_000]).collect()
        assert tuple(done) == counts, done
        (found,) = ns.sql(
            session,
            f"select count(*) as n from {ours} t join news using (id) where t.text = 'new'",
        ).collect()
        assert found.n == counts[0], found


def main() -> None:
    folder = Path(sys.argv[1])
    lake = folder / "lake"
    # A setting that a server does not take is told as a warning.
    warnings.simplefilter("error", UserWarning)
    session = ns.session(remote="local[2]", config=SETTINGS)
    assert ".connect." in type(session).__module__
    assert ns.session() is session
    make_table(lake)
    told: list[tuple[int, int]] = []
    write(session, lake, told)
    done, total = told[-1]
    assert done == total, told
    stream(session, folder, lake)

    rows = embedded_rows(lake)
    changed = {row[0]: row for row in rows if row[2] != "loaded" or row[0] == 7}
    assert changed == {
        5: (5, 1, "upserted"),
        7: (7, 9 + 14, "loaded"),
        8: (8, 8, "streamed"),
        2_000: (2_000, 2, "upserted"),
        3_000: (3_000, 3, "new"),
    }, changed
    assert len(rows) == ROWS - 1 + 2
    assert rows_of(ns.read(session, lake, NAME).toArrow()) == rows
    assert rows_of(ns.read(session, lake, NAME, native=False).toArrow()) == rows
    assert ns.explain(session, lake, NAME).through == "Spark"
    # The server is asked, and lacks the classes.
    assert not _way(session, TableAddress.of("s3://looks/lake", NAME), None).native

    statements(session, lake)
    ns.compact(session, lake, NAME, full=True, progress=lambda *each: told.append(each))
    assert told[-1] == (len(rows), len(rows)), told
    assert ns.verify(session, lake, NAME).row_count == len(rows)
    assert embedded_rows(lake) == rows
    source = session.read.format("neve").option("table", NAME).load(str(lake))
    assert rows_of(source.where("id >= 990").toArrow()) == [row for row in rows if row[0] >= 990]
    session.stop()


if __name__ == "__main__":
    main()
