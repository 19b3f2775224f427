"""Spark 3.5 with Iceberg's runtime runs SQL on a REST catalog, in an environment of its own.

    python spark35_rest.py TASKS.json JAR SCRATCH

TASKS.json: {"url": address of the catalog, "statements": [SQL, …], "out": file}

The catalog is called `lake`. The file has one entry for each statement: its rows, or its error. The
script knows nothing of neve, which is not installed where it runs.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "rest",
}


def main(tasks_path: str, jar: str, scratch: str) -> None:
    """Run the statements, and write what they return."""
    tasks = json.loads(Path(tasks_path).read_text())
    builder = SparkSession.builder.master("local[2]").appName("neve interop")
    settings = {
        **_SETTINGS,
        "spark.driver.extraClassPath": jar,
        "spark.local.dir": f"{scratch}/local",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.catalog.lake.uri": tasks["url"],
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    found: list[dict[str, Any]] = []
    try:
        for statement in tasks["statements"]:
            try:
                found.append({"rows": [list(row) for row in spark.sql(statement).collect()]})
            except Exception as error:  # noqa: BLE001 - what Spark raises is what is asked for
                found.append({"error": str(error)[:2_000]})
    finally:
        spark.stop()
    Path(tasks["out"]).write_text(json.dumps(found, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
