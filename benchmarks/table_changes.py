"""`table_changes`: the change feed beside a scan of the same rows; neve alone."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

import neve
from benchmarks.harness import Candidate, Kind, Outcome, Ratio, Stopwatch, Workload
from benchmarks.peers.table_rows import SCHEMA, digest
from benchmarks.table_sample import ROW_BYTES, of_keys
from benchmarks.table_session import TableSession

_COMMITS: Final = 10
_SCAN: Final = "neve, scan"
_INSERTS: Final = "neve, changes of a load"
_UPDATES: Final = "neve, changes of updates"
_OPTIONS: Final = neve.TableOptions(sync="none", background=False, memtable_bytes=1 << 30)

ReadRows = Callable[[neve.Table], pa.Table]


@dataclass(eq=False)
class _Feed:
    """A table that was loaded by some commits and updated by as many, made on first use."""

    session: TableSession
    _table: neve.Table | None = None
    _lake_ends: Callable[[], None] = lambda: None
    loaded: int = 0
    """The last Version of the load."""

    def table(self) -> neve.Table:
        if self._table is None:
            lake = neve.open(str(self.session.directory / "changes"))
            self._lake_ends = lake.close
            self._table = lake.create_table("bench.rows", SCHEMA, ["id"], options=_OPTIONS)
            self.loaded = self._write(self._table, self.session.sample.base)
            self._write(self._table, self.session.sample.updates)
        return self._table

    def release(self) -> None:
        self._lake_ends()

    def _write(self, table: neve.Table, rows: pa.Table) -> int:
        size = -(-rows.num_rows // _COMMITS)
        for start in range(0, rows.num_rows, size):
            table.upsert(rows.slice(start, size))
            table.flush()
        return table.version


def build_changes(session: TableSession) -> Workload:
    """Rows told by the feed, beside rows scanned."""
    feed = _Feed(session)
    trial = functools.partial(_read, feed)
    return Workload(
        name="table_changes",
        sentence="What happened to rows is read as Arrow, batch by batch: those of a load, and "
        "updates of a tenth of them with the rows before.",
        unit="rows",
        candidates=[
            Candidate(
                name=_INSERTS,
                kind=Kind.NEVE,
                trial=functools.partial(
                    trial, lambda table: _all(table.changes(0, feed.loaded)), _base_digest
                ),
            ),
            Candidate(
                name=_UPDATES,
                kind=Kind.NEVE,
                trial=functools.partial(
                    trial, lambda table: _all(table.changes(feed.loaded)), _update_digests
                ),
            ),
            Candidate(
                name=_SCAN,
                kind=Kind.NEVE,
                trial=functools.partial(
                    trial, lambda table: _scanned(table, feed.loaded), _base_digest
                ),
            ),
        ],
        ratios=[Ratio(of=_INSERTS, to=_SCAN), Ratio(of=_UPDATES, to=_SCAN)],
        parameters={"rows": session.scale.rows, "commits": _COMMITS},
        notes=(
            "An update is two rows. Each commit marks rows in every group of every loaded file.",
            "Nothing is compacted: all three read files of the youngest level.",
        ),
        uses_disk=False,
        release=feed.release,
    )


def _read(
    feed: _Feed,
    read: ReadRows,
    expect: Callable[[TableSession, pa.Table], tuple[object, object]],
    _directory: Path,
    stopwatch: Stopwatch,
) -> Outcome:
    table = feed.table()
    with stopwatch:
        rows = read(table)
    answer, expected = expect(feed.session, rows)
    return Outcome(
        rows=rows.num_rows,
        calls=1,
        logical_bytes=rows.num_rows * ROW_BYTES,
        answer=answer,
        expected=expected,
    )


def _all(reader: pa.RecordBatchReader) -> pa.Table:
    return pa.Table.from_batches(list(reader), schema=reader.schema)


def _scanned(table: neve.Table, version: int) -> pa.Table:
    with table.at(version) as snapshot:
        scan = snapshot.scan()
        return pa.Table.from_batches(list(scan.to_batches()), schema=scan.schema)


def _base_digest(session: TableSession, rows: pa.Table) -> tuple[object, object]:
    return digest(rows), digest(session.sample.base)


def _update_digests(session: TableSession, rows: pa.Table) -> tuple[object, object]:
    before = rows.filter(pc.field("_change_type") == "update_preimage")
    after = rows.filter(pc.field("_change_type") == "update_postimage")
    updates = session.sample.updates
    ids = [int(each) for each in updates.column("id").to_numpy()]
    return (
        [digest(before), digest(after)],
        [digest(of_keys(session.sample.base, ids)), digest(updates)],
    )
