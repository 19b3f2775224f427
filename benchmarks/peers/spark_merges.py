"""What the libraries beside the Spark workloads are asked: to merge changes into a table.

load     rows of each file of a directory, appended in the order of their names
merge    timed: the changes are read from their files, then merged by id
         answer: rows, sum of stamps, sum of ids, read back when the clock has stopped
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.json_lines import PartTimer, serve


class MergedTable(ABC):
    """A table of a library, opened again for each call."""

    @abstractmethod
    def append(self, rows: pa.Table) -> None:
        """Add rows in a commit of their own."""

    @abstractmethod
    def merge(self, changes: pa.Table) -> None:
        """Replace rows that have the id of a change, add the changes of other ids; one commit."""

    @abstractmethod
    def answer(self) -> tuple[int, int, int]:
        """Return the number of rows, the sum of their stamps and the sum of their ids."""


Ways = Mapping[str, Callable[[Path, pa.Schema], MergedTable]]
"""Opens a table in a directory, or makes it with a schema, for each way to merge."""


def load(open_table: Callable[[Path, pa.Schema], MergedTable], directory: Path, rows: Path) -> int:
    """Fill a new table; gives the number of its files' sources."""
    sources = sorted(rows.glob("*.parquet"))
    for source in sources:
        found = pq.read_table(source)
        open_table(directory, found.schema).append(found)
    return len(sources)


def merge(
    open_table: Callable[[Path, pa.Schema], MergedTable], directory: Path, changes: Path
) -> dict[str, object]:
    """Merge under the clock; gives the time, and the answer of a table that is opened again."""
    with PartTimer() as timer:
        found = pq.read_table(changes)
        open_table(directory, found.schema).merge(found)
    return {"timed": timer.part, "answer": open_table(directory, found.schema).answer()}


def serve_merges(greeting: str, ways: Ways) -> None:
    """Answer calls about the tables of one library until the input ends."""
    serve(
        greeting,
        {
            "load": lambda way, directory, rows: load(ways[way], Path(directory), Path(rows)),
            "merge": lambda way, directory, changes: merge(
                ways[way], Path(directory), Path(changes)
            ),
        },
    )
