"""The acts of the demo, in the order in which they are played.

Each is one function from the stage to what it found, and each checks what it claims: an act whose
claim does not hold raises, and the demo ends with that error's exit code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from neve.cli.demo_crash import crash
from neve.cli.demo_rocksdb import rocksdb
from neve.cli.demo_rows import write
from neve.cli.demo_spark import spark
from neve.cli.demo_stage import Finding, Stage
from neve.cli.demo_upkeep import damage, upkeep
from neve.cli.demo_versions import change, flush, travel


@dataclass(frozen=True, slots=True)
class Act:
    """One act: its name in the JSON, its title, and the function that plays it."""

    name: str
    title: str
    play: Callable[[Stage], tuple[Finding, ...]]


ACTS: Final = (
    Act("write", "A table: rows and Arrow batches, durable when acknowledged", write),
    Act("crash", "A writer is killed in the middle of writing", crash),
    Act("flush", "A flush is a clean Version, in Parquet that anyone reads", flush),
    Act("change", "Updates and deletes mark rows, and rewrite nothing", change),
    Act("travel", "Old Versions, snapshots, tags, rollback", travel),
    Act("upkeep", "Compact, expire, collect garbage", upkeep),
    Act("damage", "One bit flips", damage),
    Act("spark", "The same tables on Spark, beside a live writer", spark),
    Act("rocksdb", "A log of neve, opened by the real RocksDB", rocksdb),
)
