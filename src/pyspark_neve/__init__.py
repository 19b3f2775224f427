"""Lets Spark find the format "neve" by itself.

Spark looks for sources in importable packages whose names begin with `pyspark_`.
"""

from neve.spark.source import NeveSource as DefaultSource

__all__ = ["DefaultSource"]
