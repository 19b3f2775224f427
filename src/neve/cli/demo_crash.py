"""The act in which a writer is killed: every acknowledged row must be there afterwards, none torn.

1. Start a writer in a process of its own; it prints each row's number once it is acknowledged.
2. Kill it with SIGKILL while it writes, and read what it still had printed.
3. Take its lock, which the kernel freed; recover; compare row by row.
4. Write on behind the recovered rows, close, and read everything again.
"""

import os
import select
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from neve.cli.demo_stage import Finding, Stage
from neve.cli.shown_text import counted
from neve.errors import Corruption, Unavailable
from neve.model.write_batch import PutRow
from neve.storage.table_paths import TablePaths
from neve.wal.recovery_mode import ReplayReport
from neve.wal.replay import Replay
from neve.wal.write_ahead_log import WriteAheadLog

_ROWS_BEFORE_KILL: Final = 4_000
_SECONDS_BEFORE_KILL: Final = 5.0
_SECONDS_TO_START: Final = 60.0
_ROWS_AFTERWARDS: Final = 100
_READ_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class _Recovered:
    """What recovery found."""

    rows: dict[int, PutRow]
    report: ReplayReport
    seconds: float


def crash(stage: Stage) -> tuple[Finding, ...]:
    """Kill a writer, recover, and prove that nothing acknowledged is lost."""
    paths = stage.paths("crash")
    narrator = stage.narrator
    acknowledged = _killed_writer(stage, paths)
    narrator.say(
        f"kill -9 in the middle of writing, {len(acknowledged):,} rows acknowledged so far"
    )
    stage.store.lock(paths.lock).release()
    narrator.found("the kernel freed its lock at once: no time-out, no stale lock file")
    recovered = _recover(stage, paths)
    lost = [sequence for sequence in acknowledged if sequence not in recovered.rows]
    torn = _torn_rows(stage, acknowledged, recovered.rows)
    if lost or torn:
        raise Corruption(
            f"{len(lost)} acknowledged rows are lost and {len(torn)} are torn",
            path=paths.wal,
            hint="This must never happen: please report it with the lake",
        )
    extra = len(recovered.rows) - len(acknowledged)
    narrator.found(
        f"all {len(acknowledged):,} acknowledged rows are there, bit for bit; lost 0, torn 0"
    )
    narrator.say(
        f"{counted(extra, 'more row')} survived, durable but not yet acknowledged; recovery took "
        f"{recovered.seconds * 1000:.0f} ms"
    )
    _write_on(stage, paths, recovered)
    narrator.found(f"{_ROWS_AFTERWARDS} more rows written behind them, and everything read again")
    return (
        Finding("acknowledged", len(acknowledged)),
        Finding("recovered", len(recovered.rows)),
        Finding("lost", len(lost), f"of {len(acknowledged):,} acknowledged rows lost by kill -9"),
        Finding("torn", len(torn)),
        Finding("recovery_seconds", round(recovered.seconds, 4), "seconds to recover them"),
    )


def _killed_writer(stage: Stage, paths: TablePaths) -> dict[int, int]:
    """Run a writer, kill it, and give the rows it had acknowledged by sequence number."""
    command = [sys.executable, "-m", "neve.cli.demo_writer", str(stage.root), paths.table_id]
    # In a session of its own, so that an interrupt from the keyboard reaches only the demo.
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    ) as writer:
        assert writer.stdout is not None
        try:
            printed = _read_until_enough(stage, writer.stdout.fileno())
        finally:
            writer.kill()
        printed += writer.stdout.read()
    pairs = [line.split() for line in printed.splitlines()]
    return {int(sequence): int(number) for sequence, number in pairs}


def _read_until_enough(stage: Stage, handle: int) -> bytes:
    clock = stage.clock
    printed = bytearray()
    rows = 0
    ends_at = clock.monotonic() + _SECONDS_TO_START
    with stage.narrator.progress("a writer in another process", total=_ROWS_BEFORE_KILL) as told:
        while rows < _ROWS_BEFORE_KILL and clock.monotonic() < ends_at:
            ready, _, _ = select.select([handle], [], [], max(0.0, ends_at - clock.monotonic()))
            piece = os.read(handle, _READ_BYTES) if ready else b""
            if not piece:
                break
            if rows == 0:
                ends_at = clock.monotonic() + _SECONDS_BEFORE_KILL
            printed += piece
            rows += piece.count(b"\n")
            told(rows)
    if rows == 0:
        raise Unavailable(
            "the writer process acknowledged nothing", hint="Its own words are above; try again"
        )
    return bytes(printed)


def _recover(stage: Stage, paths: TablePaths) -> _Recovered:
    began_at = stage.clock.monotonic()
    replay = Replay(stage.store, stage.logs(paths))
    rows: dict[int, PutRow] = {}
    # One step per logged row; the writer is killed after a few thousand.
    for logged in replay:
        for sequence, change in enumerate(logged.batch.changes, start=logged.sequence):
            assert isinstance(change, PutRow), "the writer only puts rows"
            rows[sequence] = change
    return _Recovered(rows, replay.report, stage.clock.monotonic() - began_at)


def _torn_rows(stage: Stage, acknowledged: dict[int, int], rows: dict[int, PutRow]) -> list[int]:
    """Give the sequence numbers of rows that are not exactly what was written."""
    numbers_by_key = {stage.table.key(number): number for number in range(len(rows) + 1_000)}
    torn = []
    for sequence, row in rows.items():
        number = acknowledged.get(sequence, numbers_by_key.get(row.key, -1))
        if number < 0 or not stage.table.is_row(number, key=row.key, value=row.value):
            torn.append(sequence)
    return torn


def _write_on(stage: Stage, paths: TablePaths, recovered: _Recovered) -> None:
    logs = stage.logs(paths)
    next_sequence = recovered.report.next_sequence
    assert next_sequence is not None, "rows were recovered"
    log = WriteAheadLog(
        files=stage.store,
        store=stage.store,
        log_path=lambda number: paths.wal_file(0, number),
        next_log_number=logs[-1].number + 1,
        next_sequence=next_sequence,
        older_logs=logs,
    )
    for number in range(_ROWS_AFTERWARDS):
        log.append(stage.table.put(number))
    log.close()
    again = _recover(stage, paths)
    if len(again.rows) != len(recovered.rows) + _ROWS_AFTERWARDS:
        raise Corruption(
            f"{len(again.rows):,} rows are there after writing on, "
            f"{len(recovered.rows) + _ROWS_AFTERWARDS:,} are due",
            path=paths.wal,
        )
