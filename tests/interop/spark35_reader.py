"""Spark 3.5 with Iceberg's runtime, in an environment of its own: reads tables, writes Parquet.

    python spark35_reader.py TASKS.json JAR SCRATCH

TASKS.json: {"lakes": {name: folder}, "reads": [{"query": SQL, "out": folder}
                                                | {"location": folder of a table, "out": folder}]}

A lake is a catalog of Iceberg's Hadoop kind: the folder `tables` is a namespace, and what is in it
are tables. The script knows nothing of neve, which is not installed where it runs.
"""

import json
import sys
from pathlib import Path

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
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.extensions": ("org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"),
}


def start(jar: str, scratch: str, lakes: dict[str, str]) -> SparkSession:
    """Start Spark with a catalog for each lake."""
    builder = SparkSession.builder.master("local[2]").appName("neve interop")
    settings = {
        **_SETTINGS,
        "spark.driver.extraClassPath": jar,
        "spark.local.dir": f"{scratch}/local",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
    }
    for name, folder in lakes.items():
        prefix = f"spark.sql.catalog.{name}"
        settings[prefix] = "org.apache.iceberg.spark.SparkCatalog"
        settings[f"{prefix}.type"] = "hadoop"
        settings[f"{prefix}.warehouse"] = folder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(tasks_path: str, jar: str, scratch: str) -> None:
    """Do what the file of tasks says."""
    tasks = json.loads(Path(tasks_path).read_text())
    spark = start(jar, scratch, tasks["lakes"])
    try:
        for read in tasks["reads"]:
            if "query" in read:
                found = spark.sql(read["query"])
            else:
                found = spark.read.format("iceberg").load(read["location"])
            found.coalesce(1).write.parquet(read["out"])
        print(spark.version)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
