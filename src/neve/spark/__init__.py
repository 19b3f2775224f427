"""The data pipeline on Spark: reads, writes, streams and maintenance of the same tables.

from neve import spark as ns

session = ns.session()
ns.read(session, "./lake", "shop.orders").show()
"""

from neve.spark.lazy_names import find_lazily as __getattr__  # noqa: F401 - Python calls it
from neve.spark.lazy_names import list_names as __dir__  # noqa: F401 - Python calls it

__all__ = [
    "Clause",
    "collect_garbage",
    "compact",
    "delete",
    "executor",
    "expire",
    "load",
    "merge",
    "migrate",
    "overwrite_partitions",
    "read",
    "rebuild_indexes",
    "session",
    "upsert",
    "upsert_batch",
    "verify",
    "view",
]
