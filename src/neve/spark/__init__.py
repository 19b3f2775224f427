"""The data pipeline on Spark: reads, writes, streams and maintenance of the same tables.

from neve import spark as ns

session = ns.session()
ns.read(session, "./lake", "shop.orders").show()

PySpark is an extra and takes a while to load: each name is loaded at its first use. The types of
the names are in `neve/spark/__init__.pyi`.
"""

import importlib
from importlib.util import find_spec
from typing import Final

from neve.errors import Unavailable

__all__ = [
    "Clause",
    "apply",
    "apply_batch",
    "attach",
    "collect_garbage",
    "compact",
    "delete",
    "executor",
    "expire",
    "explain",
    "load",
    "merge",
    "migrate",
    "overwrite_partitions",
    "read",
    "rebuild_indexes",
    "session",
    "sql",
    "upsert",
    "upsert_batch",
    "verify",
    "view",
]

_HOMES: Final = {
    "Clause": "neve.spark.merging",
    "apply": "neve.spark.writing",
    "apply_batch": "neve.spark.writing",
    "attach": "neve.spark.sql_catalog",
    "collect_garbage": "neve.spark.maintenance",
    "compact": "neve.spark.maintenance",
    "delete": "neve.spark.writing",
    "executor": "neve.spark.maintenance",
    "expire": "neve.spark.maintenance",
    "explain": "neve.spark.reading",
    "load": "neve.spark.writing",
    "merge": "neve.spark.merging",
    "migrate": "neve.spark.migration",
    "overwrite_partitions": "neve.spark.writing",
    "read": "neve.spark.reading",
    "rebuild_indexes": "neve.spark.maintenance",
    "session": "neve.spark.spark_session",
    "sql": "neve.spark.sql_statements",
    "upsert": "neve.spark.writing",
    "upsert_batch": "neve.spark.writing",
    "verify": "neve.spark.maintenance",
    "view": "neve.spark.reading",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'neve.spark' has no attribute {name!r}")
    if find_spec("pyspark") is None:
        raise Unavailable(
            f"neve.spark.{name} needs PySpark, which is not installed",
            hint="Install it with: pip install 'neve[spark]'",
        )
    if name == "sql" and (find_spec("sqlglot") is None or find_spec("duckdb") is None):
        raise Unavailable(
            "neve.spark.sql needs the extra sql, which is not installed",
            hint="Install it with: pip install 'neve[spark,sql]'",
        )
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    standard = {name for name in globals() if name.startswith("__")}
    return sorted({*__all__, *standard})
