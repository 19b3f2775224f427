"""neve[spark]: a session with the Java that comes along, an upsert, and a read of a table."""

import sys
import tempfile

import pyarrow as pa

import neve
from neve import spark as ns


def main() -> None:
    """Write and read a table on Spark; the Java is none of the machine's."""
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "amount": pa.float64()}
    with tempfile.TemporaryDirectory() as lake:
        with (
            neve.open(lake) as catalog,
            catalog.create_table("a.b", pa.schema(columns), ["id"]) as t,
        ):
            t.put({"id": 1, "amount": 1.0})
            t.flush()
        session = ns.session(config={"spark.sql.shuffle.partitions": "2"})
        [java] = session.sql("select reflect('java.lang.System', 'getProperty', 'java.home')").head(
            1
        )
        assert str(java[0]).startswith(sys.prefix), java
        ns.upsert(
            session.createDataFrame([(1, 9.0), (2, 2.0)], "id long, amount double"), lake, "a.b"
        )
        rows = ns.read(session, lake, "a.b").orderBy("id").collect()
        ns.attach(session, lake, "lake")
        session.sql("insert into lake.a.b values (3, 3.0)")
        assert session.sql("select count(*) from lake.a.b").collect() == [(3,)]
        session.stop()
    assert [(row["id"], row["amount"]) for row in rows] == [(1, 9.0), (2, 2.0)], rows


if __name__ == "__main__":
    main()
