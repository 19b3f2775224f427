"""What the acts of the demo share: a lake to work in, its table of orders, and what they check."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from examples.demo.narrator import Narrator
from examples.demo.order_rows import DemoTable, by_key

from neve.catalog.kv_catalog import KVCatalog
from neve.catalog.table import Table
from neve.errors import Corruption
from neve.observability.metrics import Counters
from neve.storage.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The lake of one run of the demo, its table of orders, and the tools to work on them."""

    root: Path
    lake: KVCatalog
    orders: Table
    counters: Counters
    """Takes the metrics of the lake's tables."""
    clock: Clock
    table: DemoTable
    run_id: str
    """Part of every name, so that runs in one lake do not meet."""
    narrator: Narrator

    def name(self, table: str) -> str:
        """Full name of a table of this run."""
        return f"{namespace_of(self.run_id)}.{table}"

    @contextmanager
    def timed(self) -> Iterator[Callable[[], float]]:
        """Return a function that tells the seconds since the beginning, or until the end."""
        began_at = self.clock.monotonic()
        ended_at: list[float] = []
        try:
            yield lambda: (ended_at or [self.clock.monotonic()])[0] - began_at
        finally:
            ended_at.append(self.clock.monotonic())


def namespace_of(run_id: str) -> str:
    """Namespace of the tables of one run."""
    return f"demo_{run_id}"


def check_equal(found: pa.Table, due: pa.Table, what: str) -> None:
    """Raise Corruption unless the rows found, in whatever order, are exactly those due."""
    if found.num_rows != due.num_rows:
        raise Corruption(f"{what}: {found.num_rows:,} rows, {due.num_rows:,} are due")
    if not by_key(found).equals(due):
        raise Corruption(f"{what}: a row is not what was written")


def check(claim: object, what: str) -> None:
    """Raise Corruption when something the demo claims does not hold."""
    if not claim:
        raise Corruption(what, hint="This must never happen: please report it with the lake")
