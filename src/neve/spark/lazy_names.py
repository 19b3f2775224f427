"""Names of `neve.spark`, each loaded when somebody asks for it.

PySpark is an extra and takes a while to load: `neve.spark` itself needs neither. The types of the
names are in `neve/spark/__init__.pyi`.
"""

import importlib
import sys
from importlib.util import find_spec
from typing import Final

from neve.errors import Unavailable

HOMES: Final = {
    "Clause": "neve.spark.merging",
    "collect_garbage": "neve.spark.maintenance",
    "compact": "neve.spark.maintenance",
    "delete": "neve.spark.writing",
    "executor": "neve.spark.maintenance",
    "expire": "neve.spark.maintenance",
    "load": "neve.spark.writing",
    "merge": "neve.spark.merging",
    "migrate": "neve.spark.migration",
    "overwrite_partitions": "neve.spark.writing",
    "read": "neve.spark.reading",
    "rebuild_indexes": "neve.spark.maintenance",
    "session": "neve.spark.spark_session",
    "upsert": "neve.spark.writing",
    "upsert_batch": "neve.spark.writing",
    "verify": "neve.spark.maintenance",
    "view": "neve.spark.reading",
}


def find_lazily(name: str) -> object:
    """Return a name of `neve.spark`; raises AttributeError for one it has not."""
    home = HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'neve.spark' has no attribute {name!r}")
    if find_spec("pyspark") is None:
        raise Unavailable(
            f"neve.spark.{name} needs PySpark, which is not installed",
            hint="Install it with: pip install 'neve[spark]'",
        )
    return getattr(importlib.import_module(home), name)


def list_names() -> list[str]:
    """Name everything that `neve.spark` has, loaded or not, as `dir` and completion show it."""
    return sorted({*vars(sys.modules["neve.spark"]), *HOMES})
