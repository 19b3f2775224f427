from neve.spark.maintenance import (
    collect_garbage,
    compact,
    executor,
    expire,
    rebuild_indexes,
    verify,
)
from neve.spark.merging import Clause, merge
from neve.spark.migration import migrate
from neve.spark.reading import explain, read, view
from neve.spark.spark_session import session
from neve.spark.sql_catalog import attach
from neve.spark.sql_statements import sql
from neve.spark.writing import (
    apply,
    apply_batch,
    delete,
    load,
    overwrite_partitions,
    upsert,
    upsert_batch,
)

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
