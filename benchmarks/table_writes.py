"""Workloads that write: single rows, batches, deletes, and opening what was not closed."""

import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

from benchmarks.harness import (
    BEST_PEER,
    FIXED_TIME,
    SEED,
    Candidate,
    Kind,
    Outcome,
    Ratio,
    Shows,
    Stopwatch,
    Workload,
)
from benchmarks.log_peers import BARE_FRAME, RawFile
from benchmarks.log_sync import write_for
from benchmarks.peer_process import measured_together
from benchmarks.peers.table_calls import Reply
from benchmarks.peers.table_rows import digest
from benchmarks.result_file import Pace
from benchmarks.table_sample import ROW_BYTES, without
from benchmarks.table_session import (
    BATCH_ROWS,
    DELTA,
    DUCKDB,
    DUCKLAKE,
    LMDB,
    NEVE,
    PAIMON,
    PYICEBERG,
    ROCKSDB,
    SLATEDB,
    SQLITE,
    TablePeer,
    TableSession,
    candidate,
    left_out,
    outcome,
)

_THREADS: Final = 16
_SYNCED_ROUNDS: Final = 3
_PUTS_PER_SECOND_MAX: Final = 400_000
_SYNCED_PER_SECOND_MAX: Final = 100_000
_REOPEN_SECONDS: Final = 0.050
_NEVER: Final = "never"
_EACH_ROW: Final = "each row"

_SMALLER_LOADS: Final = (
    "Slow stores are loaded with fewer rows, which is easier for them: SQLite and DuckLake with a "
    "fifth, SlateDB with a fiftieth."
)
_SLATEDB_SYNC: Final = "SlateDB syncs nothing when its object store is the local disk."
PAIMON_SYNC: Final = (
    "pypaimon syncs data files, but not the manifests and snapshots that name them: a power cut "
    "may take a commit back. It has an older pyarrow, since it asks for one below 20."
)
PAIMON_FILES: Final = (
    "pypaimon has nothing left to do after its commits: it cannot compact, and reads merge its "
    "sorted files."
)
_DUCKLAKE_SYNC: Final = (
    "DuckLake syncs its catalog, a DuckDB file, but not the Parquet files. It knows no keys: an "
    "upsert is a `merge`."
)
_ENCODING: Final = "Key-value stores encode each row within the time; Arrow goes in elsewhere."


def build_put(session: TableSession) -> Workload:
    """Single rows that nobody waits for."""
    rows = min(int(session.scale.put_seconds * _PUTS_PER_SECOND_MAX), session.scale.rows)
    put = functools.partial(
        _put, session, rows=rows, seconds=session.scale.put_seconds, threads=1, synced=False
    )
    peers = session.peers(ROCKSDB, LMDB, SQLITE)
    return Workload(
        name="table_put",
        sentence="Rows of five columns, one put each, not waited for.",
        unit="rows",
        candidates=[
            candidate(peer, functools.partial(put, peer), sync=_NEVER) for peer in (NEVE, *peers)
        ],
        ratios=[Ratio(of="neve", to=BEST_PEER, target=3.0)] if peers else [],
        parameters={"seconds_per_trial": session.scale.put_seconds, "seed": SEED},
        notes=("A row is a dict for neve, a tuple elsewhere.", _ENCODING),
    )


def build_put_synced(session: TableSession) -> Workload:
    """Single rows, each durable before the next."""
    seconds = session.scale.synced_seconds
    rows = min(int(seconds * _SYNCED_PER_SECOND_MAX), session.scale.rows)
    one = functools.partial(_put, session, rows=rows, seconds=seconds, threads=1, synced=True)
    many = functools.partial(
        _put, session, rows=rows, seconds=seconds, threads=_THREADS, synced=True
    )
    threads = f"{_THREADS} threads"
    alone = session.peers(ROCKSDB, LMDB, SQLITE)
    together = session.peers(ROCKSDB, LMDB)
    return Workload(
        name="table_put_synced",
        sentence="Rows of five columns, one put each, durable when the put returns.",
        unit="rows",
        candidates=[
            *(
                candidate(peer, functools.partial(one, peer), detail="1 thread", sync=_EACH_ROW)
                for peer in (NEVE, *alone)
            ),
            Candidate(
                name="bare fdatasync",
                kind=Kind.LIMIT,
                sync=_EACH_ROW,
                trial=functools.partial(_sync_bare, rows=rows, seconds=seconds),
            ),
            *(
                candidate(peer, functools.partial(many, peer), detail=threads, sync=_EACH_ROW)
                for peer in (NEVE, *together)
            ),
        ],
        ratios=[
            Ratio(of="neve, 1 thread", to="bare fdatasync", target=0.95),
            Ratio(of=f"neve, {threads}", to="bare fdatasync", target=6.0),
            *(Ratio(of="neve, 1 thread", to=f"{peer.name}, 1 thread") for peer in alone),
            *(Ratio(of=f"neve, {threads}", to=f"{peer.name}, {threads}") for peer in together),
        ],
        parameters={"seconds_per_trial": seconds, "seed": SEED},
        notes=(
            "`bare fdatasync` is one pwrite and one fdatasync per row, on a preallocated file.",
            "SQLite has one connection, so it takes part with one thread only.",
        ),
        rounds_factor=_SYNCED_ROUNDS,
    )


def build_upsert(session: TableSession) -> Workload:
    """Batches, each durable before the next."""
    return _upserts(
        session,
        name="table_upsert",
        sentence=f"Batches of {BATCH_ROWS:,} rows with new keys in no order, each durable when "
        "the call returns.",
        settle=False,
        target=5.0,
        notes=(PAIMON_SYNC,),
    )


def build_upsert_settled(session: TableSession) -> Workload:
    """Batches, until they are in their lasting form."""
    return _upserts(
        session,
        name="table_upsert_settled",
        sentence="The same until everything is flushed and clean: Parquet and one row per key for "
        "neve, sorted files for RocksDB, a checkpoint for DuckDB and SQLite.",
        settle=True,
        target=2.0,
        notes=(PAIMON_SYNC, PAIMON_FILES),
    )


def _upserts(
    session: TableSession,
    *,
    name: str,
    sentence: str,
    settle: bool,
    target: float,
    notes: Sequence[str],
) -> Workload:
    peers = session.peers(ROCKSDB, LMDB, SQLITE, DUCKDB, SLATEDB, PAIMON, DUCKLAKE)
    run = functools.partial(_upsert, session, settle=settle)
    return Workload(
        name=name,
        sentence=sentence,
        unit="rows",
        candidates=[
            candidate(peer, functools.partial(run, peer), sync=peer.sync) for peer in (NEVE, *peers)
        ],
        ratios=[Ratio(of="neve", to=BEST_PEER, target=target)] if peers else [],
        parameters={"rows": session.scale.rows, "batch_rows": BATCH_ROWS, "seed": SEED},
        notes=(
            _SMALLER_LOADS,
            _ENCODING,
            _SLATEDB_SYNC,
            _DUCKLAKE_SYNC,
            *notes,
            *left_out(session),
        ),
        rounds_max=3,
    )


def build_delete(session: TableSession) -> Workload:
    """A tenth of the keys, in batches, each durable before the next."""
    peers = session.peers(ROCKSDB, LMDB, SQLITE, DUCKDB, DELTA, PAIMON, DUCKLAKE)
    return Workload(
        name="table_delete",
        sentence=f"A tenth of the rows deleted by key, {BATCH_ROWS:,} keys in a call, durable when "
        "it returns.",
        unit="rows",
        candidates=[
            candidate(peer, functools.partial(_delete, session, peer), sync=peer.sync)
            for peer in (NEVE, *peers)
        ],
        ratios=[Ratio(of="neve", to=BEST_PEER, target=5.0)] if peers else [],
        parameters={"rows": session.scale.rows, "seed": SEED},
        notes=(
            "delta-rs deletes all keys in one call: each rewrites its files. It syncs nothing.",
            "PyIceberg is left out: it would rewrite its files for each call.",
            PAIMON_SYNC,
            _DUCKLAKE_SYNC,
            *left_out(session),
        ),
        rounds_max=3,
    )


def build_reopen(session: TableSession) -> Workload:
    """Open with rows in the log, and read one of them."""
    peers = session.peers(ROCKSDB, LMDB, SQLITE, DUCKDB)
    return Workload(
        name="table_reopen",
        sentence=f"A table of which {session.scale.unflushed_rows:,} rows are only in the log is "
        "opened as a crash left it, and a row is read.",
        unit="opens",
        candidates=[
            candidate(peer, functools.partial(_reopen, session, peer)) for peer in (NEVE, *peers)
        ],
        ratios=[
            Ratio(of="neve", to=FIXED_TIME, seconds=_REOPEN_SECONDS),
            *([Ratio(of="neve", to="RocksDB")] if ROCKSDB in peers else []),
        ],
        parameters={"unflushed_rows": session.scale.unflushed_rows},
        notes=("LMDB has no log: its pages are in place.",),
        shows=Shows.SECONDS,
    )


def build_disk(session: TableSession) -> Workload:
    """Bytes on disk after everything was done to make them few."""
    peers = session.peers(ROCKSDB, LMDB, SQLITE, DUCKDB, DELTA, PYICEBERG, PAIMON, DUCKLAKE)
    ratios = [Ratio(of="neve", to="PyIceberg", target=1 / 1.3, by=Pace.MEGABYTES)]
    return Workload(
        name="table_disk",
        sentence="The loaded table is made as small as it gets; megabytes are what its directory "
        "takes, log and side files included.",
        unit="rows",
        candidates=[
            candidate(peer, functools.partial(_tidy, session, peer)) for peer in (NEVE, *peers)
        ],
        ratios=ratios if PYICEBERG in peers else [],
        parameters={"rows": session.scale.rows},
        shows=Shows.MEGABYTES,
        notes=(
            "neve: `compact(full=True)`, `expire(keep_last=1)`, `collect_garbage`.",
            "RocksDB: a full compaction; SQLite: `vacuum`; DuckDB: a checkpoint; others: nothing.",
            "DuckLake: files merged, snapshots expired, old files removed.",
            *left_out(session),
        ),
        rounds_max=1,
    )


def _put(
    session: TableSession,
    peer: TablePeer,
    directory: Path,
    stopwatch: Stopwatch,
    *,
    rows: int,
    seconds: float,
    threads: int,
    synced: bool,
) -> Outcome:
    reply = session.timed(
        stopwatch,
        peer,
        "put",
        directory=str(directory),
        kind="plain",
        sample=str(session.sample.directory),
        rows=rows,
        seconds=seconds,
        threads=threads,
        synced=synced,
    )
    return outcome(reply, session.sample.written(rows, reply["shares"]))


def _sync_bare(directory: Path, stopwatch: Stopwatch, *, rows: int, seconds: float) -> Outcome:
    record = BARE_FRAME + bytes(ROW_BYTES)
    file = RawFile(directory, preallocate_bytes=rows * len(record))
    write: Callable[[bytes, bytes], object] = lambda key, _value: file.write_durably(key)  # noqa: E731
    with stopwatch:
        latencies = write_for(seconds, [(record, b"")] * rows, write)
    return Outcome(
        rows=len(latencies),
        calls=len(latencies),
        logical_bytes=len(latencies) * ROW_BYTES,
        answer=file.close(),
        expected=record * len(latencies),
        latencies_ns=latencies,
    )


def _upsert(
    session: TableSession, peer: TablePeer, directory: Path, stopwatch: Stopwatch, *, settle: bool
) -> Outcome:
    rows = max(session.scale.rows // peer.load_share, 1)
    waiting = session.loads.setdefault(peer.name, [])
    if settle and waiting:
        # The same load was timed to both ends.
        reply = waiting.pop(0)
    else:
        asked = session.ask(
            peer,
            "upsert",
            directory=str(directory),
            kind="plain",
            sample=str(session.sample.directory),
            rows=rows,
            batch_rows=BATCH_ROWS,
        )
        durable, settled = cast("list[Reply]", asked)
        reply = settled if settle else durable
        if not settle:
            waiting.append(settled)
    stopwatch.take(measured_together([reply["timed"]]))
    return outcome(reply, digest(session.sample.loaded(rows)))


def _delete(
    session: TableSession, peer: TablePeer, directory: Path, stopwatch: Stopwatch
) -> Outcome:
    count = session.sample.updates.num_rows
    reply = session.timed(
        stopwatch,
        peer,
        "delete",
        directory=str(session.copy(peer, directory)),
        kind="plain",
        sample=str(session.sample.directory),
        count=count,
        batch_rows=count if peer is DELTA else BATCH_ROWS,
    )
    left = without(session.sample.base, session.sample.updates.column("id"))
    return outcome(reply, digest(left))


def _reopen(
    session: TableSession, peer: TablePeer, directory: Path, stopwatch: Stopwatch
) -> Outcome:

    place = directory / "table"
    shutil.copytree(session.unclosed(peer), place)
    written = session.sample.loaded(session.scale.unflushed_rows)
    reply = session.timed(
        stopwatch,
        peer,
        "reopen",
        directory=str(place),
        kind="plain",
        key=written.column("id")[-1].as_py(),
    )
    return outcome(reply, digest(written))


def _tidy(session: TableSession, peer: TablePeer, directory: Path, stopwatch: Stopwatch) -> Outcome:
    place = session.copy(peer, directory)
    reply = session.timed(stopwatch, peer, "tidy", directory=str(place), kind="plain")
    return outcome(reply, digest(session.sample.loaded(session.rows_of(peer))))
