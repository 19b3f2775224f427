"""`table_apply` and `table_apply_order`: feeds of changes, with deletes and out of order.

table_apply         neve's `apply` beside a merge of delta-rs and beside pypaimon with a sequence
                    field
table_apply_order   what it costs neve to put changes into order: beside a plain upsert of the same
                    rows, until everything is flushed and published
"""

import functools
from pathlib import Path
from typing import Final, cast

from benchmarks.harness import SEED, Candidate, Outcome, Ratio, Stopwatch, Workload
from benchmarks.peer_process import measured_together
from benchmarks.peers.table_calls import Reply
from benchmarks.table_sample import CHANGE_WINDOW
from benchmarks.table_session import (
    BATCH_ROWS,
    DELTA,
    NEVE,
    PAIMON,
    TablePeer,
    TableSession,
    candidate,
    left_out,
    outcome,
)
from benchmarks.table_writes import PAIMON_FILES, PAIMON_SYNC

_SETTLED: Final = "settled"
_UPSERT: Final = "upsert"
_WAYS: Final = {"apply": "changes", "apply, ordering column": "ordered"}
"""neve's ways to put changes into order, each with its kind of table in `peers.table_neve`."""
_ORDER_TARGET: Final = 0.5
_DURABLE: Final = (
    "neve's rows are durable in its log when a call returns, and its own readers see them; "
    "`settled` is until all of them are flushed and published to other engines."
)
_MERGE: Final = (
    "A merge of delta-rs takes one row of each key, so the newest changes are picked with Arrow "
    "within the time. It compares the order with that of the table's row, and forgets the order of "
    "deleted rows. It syncs nothing."
)

assert CHANGE_WINDOW == BATCH_ROWS, "peers without an order across commits would differ"


def build_apply(session: TableSession) -> Workload:
    """Changes beside those who have an order for them."""
    peers = session.peers(DELTA, PAIMON)
    settled = f"neve, {_SETTLED}"
    return Workload(
        name="table_apply",
        sentence=f"Batches of {BATCH_ROWS:,} changes: updates, inserts and deletes, keys several "
        "times and out of order within a batch; the newest of each key counts.",
        unit="rows",
        candidates=[
            _candidate(session, NEVE, sync=NEVE.sync),
            _candidate(session, NEVE, detail=_SETTLED, settle=True, sync=NEVE.sync),
            *(_candidate(session, peer, sync=peer.sync) for peer in peers),
        ],
        ratios=[Ratio(of=of, to=peer.name) for of in ("neve", settled) for peer in peers],
        parameters=_parameters(session),
        notes=(
            _DURABLE,
            _MERGE,
            "pypaimon's table has `lsn` as its sequence field.",
            PAIMON_SYNC,
            PAIMON_FILES,
            *left_out(session),
        ),
        rounds_max=3,
    )


def build_apply_order(session: TableSession) -> Workload:
    """The order of changes beside no order."""
    upsert = f"neve, {_UPSERT}"
    return Workload(
        name="table_apply_order",
        sentence="The same changes, applied in their order or upserted as they come, until they "
        "are flushed and published.",
        unit="rows",
        candidates=[
            _candidate(session, NEVE, detail=_UPSERT, settle=True, plainly=True, sync=NEVE.sync),
            *(
                _candidate(session, NEVE, kind, detail=way, settle=True, sync=NEVE.sync)
                for way, kind in _WAYS.items()
            ),
        ],
        ratios=[Ratio(of=f"neve, {way}", to=upsert, target=_ORDER_TARGET) for way in _WAYS],
        parameters=_parameters(session),
        notes=("An upsert writes the rows of deletes too, the last of each key by arrival.",),
    )


def _parameters(session: TableSession) -> dict[str, str | int | float]:
    return {
        "rows": session.sample.changes.num_rows,
        "table_rows": session.scale.rows,
        "batch_rows": BATCH_ROWS,
        "seed": SEED,
    }


def _candidate(
    session: TableSession,
    peer: TablePeer,
    kind: str = "changes",
    *,
    detail: str = "",
    settle: bool = False,
    plainly: bool = False,
    sync: str,
) -> Candidate:
    trial = functools.partial(_apply, session, peer, kind, settle=settle, plainly=plainly)
    return candidate(peer, trial, detail=detail, sync=sync)


def _apply(
    session: TableSession,
    peer: TablePeer,
    kind: str,
    directory: Path,
    stopwatch: Stopwatch,
    *,
    settle: bool,
    plainly: bool,
) -> Outcome:
    asked = session.ask(
        peer,
        "apply",
        directory=str(session.copy(peer, directory, kind)),
        kind=kind,
        sample=str(session.sample.directory),
        batch_rows=BATCH_ROWS,
        plainly=plainly,
    )
    durable, settled = cast("list[Reply]", asked)
    reply = settled if settle else durable
    stopwatch.take(measured_together([reply["timed"]]))
    return outcome(reply, session.sample.upserted() if plainly else session.sample.applied())
