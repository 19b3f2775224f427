"""One of several neve processes that commit to the same table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from benchmarks.manifest_table import BenchTable, CountingStore, time_commits, tiny_appends
from benchmarks.peers.json_lines import PartTimer, serve
from neve.storage.open_store import open_store


class Committer:
    """A table opened once, and what is committed to it on request."""

    def __init__(self) -> None:
        self._store: CountingStore | None = None
        self._table: BenchTable | None = None

    def open(self, location: str, storage_options: Mapping[str, str]) -> int:
        """Open a table; gives its newest Version's number."""
        self._store = CountingStore(open_store(location, storage_options=storage_options))
        self._table = BenchTable(self._store)
        return self._table.newest()

    def commit(self, numbers: Sequence[int], base: int) -> dict[str, object]:
        """Commit the rows of these numbers, one by one."""
        assert self._store is not None
        assert self._table is not None
        appends = tiny_appends(numbers)
        before = self._store.traffic
        with PartTimer() as timer:
            latencies = time_commits(self._table.append, appends, base=base)
        traffic = self._store.traffic.since(before)
        return {"timed": timer.part, "latencies_ns": latencies, "traffic": asdict(traffic)}


if __name__ == "__main__":
    committer = Committer()
    serve("neve", {"open": committer.open, "commit": committer.commit})
