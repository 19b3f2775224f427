"""Workloads that read: by key, many keys at once, everything, a range, one column."""

import functools
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.harness import (
    BEST_PEER,
    Candidate,
    Kind,
    Outcome,
    Ratio,
    Shows,
    Stopwatch,
    Workload,
)
from benchmarks.peers.table_rows import digest
from benchmarks.result_file import Pace
from benchmarks.table_sample import between, of_keys, score_sum
from benchmarks.table_session import (
    ALL_PEERS,
    DELTA,
    DUCKDB,
    DUCKLAKE,
    LMDB,
    NEVE,
    PAIMON,
    PYICEBERG,
    ROCKSDB,
    SQLITE,
    TablePeer,
    TableSession,
    candidate,
    left_out,
    outcome,
)

_MANY: Final = 1_000
# Keys are cut into so many parts: one to warm up with, one for each of the next rounds.
_KEY_SLICES: Final = 5
_UNCACHED: Final = "uncached"
_OLD: Final = "old files, no cache"
_BARE: Final = "bare Parquet read"
_COLUMNAR: Final = (DUCKDB, DELTA, PYICEBERG, PAIMON, DUCKLAKE)

_AGE_NOTE: Final = (
    "`neve` is the table as loading leaves it, with its cache of decoded rows. "
    "`old files` is after `compact(full=True)`: compressed Parquet only."
)
_CACHE_NOTE: Final = "`no cache` decodes its Parquet again each time, as a first read does."
_SMALL_NOTE: Final = (
    "SlateDB holds a tenth of the rows. pypaimon has an older pyarrow, since it asks for one below "
    "20."
)

FindTable = Callable[[TablePeer, str], Path]
Expect = Callable[[TablePeer], str]


def build_get(session: TableSession) -> Workload:
    """Rows by key from a warm table."""
    peers = session.peers(*ALL_PEERS)
    return Workload(
        name="table_get",
        sentence="Rows by key, one call each, in no order, from a table that was asked for others "
        "before.",
        unit="rows",
        candidates=[
            candidate(NEVE, _getting(session, NEVE)),
            candidate(NEVE, _getting(session, NEVE, kind="old"), detail="old files"),
            *(candidate(peer, _getting(session, peer)) for peer in peers),
        ],
        ratios=[
            Ratio(of="neve", to=peer.name, target=target, by=Pace.MEDIAN_CALL)
            for peer, target in ((ROCKSDB, 1 / 0.7), (LMDB, None), (SQLITE, None))
            if peer in peers
        ],
        parameters={"rows": session.scale.rows},
        notes=(
            "The kernel is compiled where a compiler is; `NEVE_KERNEL=0` measures without it.",
            _AGE_NOTE,
            _SMALL_NOTE,
            *left_out(session),
        ),
        shows=Shows.SECONDS,
        uses_disk=False,
    )


def build_get_first(session: TableSession) -> Workload:
    """Rows by key right after opening a table that is not in memory."""
    peers = session.peers(ROCKSDB, LMDB, SQLITE, DUCKDB)
    return Workload(
        name="table_get_first",
        sentence="The first rows by key after opening a table of which the operating system has "
        "nothing in memory.",
        unit="rows",
        candidates=[
            candidate(peer, functools.partial(_get_first, session, peer)) for peer in (NEVE, *peers)
        ],
        ratios=[
            Ratio(of="neve", to=peer.name, target=target, by=Pace.MEDIAN_CALL)
            for peer, target in ((LMDB, 1 / 1.5), (SQLITE, None), (ROCKSDB, None))
            if peer in peers
        ],
        parameters={"rows": session.scale.rows, "first_rows": NEVE.first_gets},
        notes=("The time to open is a column of its own, and is not part of the rows' time.",),
        shows=Shows.SECONDS,
        rounds_max=3,
    )


def build_get_many(session: TableSession) -> Workload:
    """A thousand keys in one call."""
    peers = session.peers(*ALL_PEERS)
    keys = session.sample.keys[:_MANY]
    many = functools.partial(_reading, session, arguments=[keys])

    def expect(_peer: TablePeer) -> str:
        return digest(of_keys(session.sample.base, keys))

    return Workload(
        name="table_get_many",
        sentence=f"{_MANY:,} rows by key in one call, as Arrow.",
        unit="rows",
        candidates=[
            *(
                candidate(peer, many(peer, "get_many", expect=expect, find=session.loaded))
                for peer in (NEVE, *peers)
            ),
            *(
                candidate(
                    peer,
                    many(peer, "get_tuples", expect=expect, find=session.loaded),
                    detail="as tuples",
                )
                for peer in session.peers(ROCKSDB, LMDB, SQLITE)
            ),
        ],
        ratios=[Ratio(of="neve", to=BEST_PEER, target=2.0, by=Pace.MEDIAN_CALL)] if peers else [],
        parameters={"rows": session.scale.rows, "keys": _MANY},
        notes=(
            "Stores that know rows take part twice: with Arrow and with tuples.",
            _SMALL_NOTE,
            *left_out(session),
        ),
        uses_disk=False,
    )


def build_scan(session: TableSession) -> Workload:
    """Everything, as Arrow."""
    peers = session.peers(*ALL_PEERS)
    expect = _expect_loaded(session, digest)
    trial = functools.partial(_reading, session, expect=expect, find=session.loaded)
    return Workload(
        name="table_scan",
        sentence="All rows as Arrow.",
        unit="rows",
        candidates=[
            candidate(NEVE, trial(NEVE, "scan")),
            candidate(NEVE, trial(NEVE, "scan", kind=_UNCACHED), detail=_OLD),
            Candidate(name=_BARE, kind=Kind.LIMIT, trial=trial(NEVE, "read_bare", kind=_UNCACHED)),
            *(candidate(peer, trial(peer, "scan")) for peer in peers),
        ],
        ratios=[
            *_both(peers, target=1.1),
            Ratio(of=f"neve, {_OLD}", to=_BARE, target=1 / 1.2, by=Pace.MEDIAN_CALL),
        ],
        parameters={"rows": session.scale.rows},
        notes=(
            _AGE_NOTE,
            _CACHE_NOTE,
            f"`{_BARE}` is `pq.read_table` of each of neve's files.",
            _SMALL_NOTE,
            *left_out(session),
        ),
        uses_disk=False,
    )


def build_scan_updated(session: TableSession) -> Workload:
    """Everything after a tenth was replaced."""
    peers = session.peers(ROCKSDB, LMDB, SQLITE, *_COLUMNAR)
    after = functools.partial(
        _reading, session, find=session.updated, expect=_expect_updated(session, digest)
    )
    before = functools.partial(
        _reading, session, find=session.loaded, expect=_expect_loaded(session, digest)
    )
    return Workload(
        name="table_scan_updated",
        sentence="All rows as Arrow, after a tenth of them was replaced in no order.",
        unit="rows",
        candidates=[
            candidate(NEVE, after(NEVE, "scan")),
            candidate(NEVE, after(NEVE, "scan", kind=_UNCACHED), detail=_OLD),
            candidate(NEVE, after(NEVE, "scan", kind="unflushed"), detail="updates in memory"),
            candidate(NEVE, before(NEVE, "scan", kind=_UNCACHED), detail=f"{_OLD}, before updates"),
            *(candidate(peer, after(peer, "scan")) for peer in peers),
        ],
        ratios=[
            *_both(peers, target=1.0),
            Ratio(
                of=f"neve, {_OLD}",
                to=f"neve, {_OLD}, before updates",
                target=1 / 1.3,
                by=Pace.MEDIAN_CALL,
            ),
        ],
        parameters={"rows": session.scale.rows},
        notes=(_AGE_NOTE, _CACHE_NOTE, _UPDATED_NOTE, *left_out(session)),
        uses_disk=False,
        rounds_max=3,
    )


def build_scan_range(session: TableSession) -> Workload:
    """One row in a hundred, between two keys."""
    peers = session.peers(*ALL_PEERS)
    # Ids are even numbers up to twice the rows: a hundredth of them lies between these.
    first, end = session.scale.rows, session.scale.rows + max(session.scale.rows // 50, 2)

    def expect(rows: pa.Table) -> str:
        return digest(between(rows, first, end))

    trial = functools.partial(
        _reading,
        session,
        find=session.loaded,
        expect=_expect_loaded(session, expect),
        arguments=[first, end],
    )
    return Workload(
        name="table_scan_range",
        sentence="One row in a hundred, between two keys, as Arrow.",
        unit="rows",
        candidates=[
            candidate(NEVE, trial(NEVE, "scan_range")),
            candidate(NEVE, trial(NEVE, "scan_range", kind=_UNCACHED), detail=_OLD),
            *(candidate(peer, trial(peer, "scan_range")) for peer in peers),
        ],
        ratios=_both(peers, target=1.0),
        parameters={"rows": session.scale.rows},
        notes=(_AGE_NOTE, _CACHE_NOTE, _SMALL_NOTE, *left_out(session)),
        uses_disk=False,
    )


def build_sum(session: TableSession) -> Workload:
    """One column added up."""
    return _sums(
        session,
        name="table_sum",
        sentence="One column added up.",
        find=session.loaded,
        expect=_expect_loaded(session, score_sum),
        notes=(
            _AGE_NOTE,
            _CACHE_NOTE,
        ),
    )


def build_sum_updated(session: TableSession) -> Workload:
    """One column added up, after a tenth was replaced."""
    return _sums(
        session,
        name="table_sum_updated",
        sentence="One column added up, after a tenth of the rows was replaced in no order.",
        find=session.updated,
        expect=_expect_updated(session, score_sum),
        notes=(_AGE_NOTE, _CACHE_NOTE, _UPDATED_NOTE),
    )


_UPDATED_NOTE: Final = (
    "Updates are flushed; delta-rs and DuckLake have merged them in one call, PyIceberg has "
    "written them again, pypaimon merges them as it reads."
)


def _sums(
    session: TableSession,
    *,
    name: str,
    sentence: str,
    find: FindTable,
    expect: Expect,
    notes: Sequence[str],
) -> Workload:
    peers = session.peers(ROCKSDB, LMDB, SQLITE, *_COLUMNAR)
    trial = functools.partial(_reading, session, find=find, expect=expect)
    return Workload(
        name=name,
        sentence=sentence,
        unit="sums",
        candidates=[
            candidate(NEVE, trial(NEVE, "sum_score")),
            candidate(NEVE, trial(NEVE, "sum_score", kind=_UNCACHED), detail=_OLD),
            *(candidate(peer, trial(peer, "sum_score")) for peer in peers),
        ],
        ratios=_both(peers, target=1 / 1.2),
        parameters={"rows": session.scale.rows},
        notes=(*notes, *left_out(session)),
        shows=Shows.SECONDS,
        uses_disk=False,
    )


def _both(peers: Sequence[TablePeer], *, target: float) -> list[Ratio]:
    """Compare neve with the best peer, with young files and with old ones."""
    if not peers:
        return []
    among = [peer.name for peer in peers if not peer.small]
    return [
        Ratio(of=name, to=BEST_PEER, target=target, by=Pace.MEDIAN_CALL, among=among)
        for name in ("neve", f"neve, {_OLD}")
    ]


def _expect_loaded(session: TableSession, show: Callable[[pa.Table], str]) -> Expect:
    @functools.cache
    def shown(rows: int) -> str:
        return show(session.sample.loaded(rows))

    return lambda peer: shown(session.rows_of(peer))


def _expect_updated(session: TableSession, show: Callable[[pa.Table], str]) -> Expect:
    @functools.cache
    def shown() -> str:
        return show(session.sample.updated)

    return lambda _peer: shown()


def _reading(
    session: TableSession,
    peer: TablePeer,
    what: str,
    *,
    find: FindTable,
    expect: Expect,
    kind: str = "plain",
    arguments: Sequence[object] = (),
) -> Callable[[Path, Stopwatch], Outcome]:
    def trial(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        reply = session.timed(
            stopwatch,
            peer,
            "read",
            directory=str(find(peer, kind)),
            kind=kind,
            what=what,
            arguments=list(arguments),
            seconds=session.scale.read_seconds,
        )
        return outcome(reply, expect(peer))

    return trial


def _getting(
    session: TableSession, peer: TablePeer, *, kind: str = "plain"
) -> Callable[[Path, Stopwatch], Outcome]:
    rounds = count(1)

    def trial(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        everything = session.sample.keys
        asked = min(peer.gets, len(everything) // _KEY_SLICES)
        # The first slice is what the table was asked before.
        start = (1 + next(rounds) % (_KEY_SLICES - 1)) * asked
        keys = everything[start : start + asked]
        reply = session.timed(
            stopwatch,
            peer,
            "get",
            directory=str(session.loaded(peer, kind)),
            kind=kind,
            sample=str(session.sample.directory),
            start=start,
            count=len(keys),
        )
        return outcome(reply, _rows_of_keys(session, keys))

    return trial


def _get_first(
    session: TableSession, peer: TablePeer, directory: Path, stopwatch: Stopwatch
) -> Outcome:
    keys = session.sample.keys[: peer.first_gets]
    reply = session.timed(
        stopwatch,
        peer,
        "get_first",
        directory=str(session.copy(peer, directory)),
        kind="plain",
        sample=str(session.sample.directory),
        count=len(keys),
    )
    return outcome(reply, _rows_of_keys(session, keys))


def _rows_of_keys(session: TableSession, keys: Sequence[int]) -> str:
    return digest(of_keys(session.sample.base, keys), in_order=True)
