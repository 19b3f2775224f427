"""The workloads of a table in a bucket: one SeaweedFS, with time added to each request.

    put       single rows, durable when the call returns, from 1, 16 and 64 threads
    upsert    batches, each durable before the next
    commit    batches, each seen by readers elsewhere before the next
    get_cold  the first row by key after opening, with nothing of the table on the machine
    get_warm  rows by key from a table that was asked for others before
    scan      everything, warm

SlateDB has no commits that other formats see: its commit is a flush of its memory. delta-rs and
PyIceberg have no durable puts but commits. Each candidate goes through the same proxy, which also
counts its requests.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Final, TypedDict, cast

from benchmarks.harness import SEED, Candidate, Kind, Outcome, Shows, Stopwatch, Trial, Workload
from benchmarks.peer_process import PeerProcess, measured_together
from benchmarks.peers.bucket_place import BucketPlace
from benchmarks.peers.bucket_server import DELAYS_MS
from benchmarks.peers.table_calls import Reply
from benchmarks.peers.table_rows import digest
from benchmarks.table_sample import of_keys
from benchmarks.table_session import (
    BATCH_ROWS,
    DELTA,
    NEVE,
    PYICEBERG,
    SLATEDB,
    TablePeer,
    TableScale,
    TableSession,
    left_out,
    outcome,
)
from neve.model.display import counted
from neve.storage.cloud_options import RequestPrices

BUCKET_ROWS: Final = 200_000
BUCKET_QUICK_ROWS: Final = 20_000
_THREADS: Final = (1, 16, 64)
_KIND: Final = "bucket"
_COMMITS: Final = 3
_COMMIT_ROWS: Final = 1_000
_PUTS_PER_SECOND_MAX: Final = 20_000
_UPSERT_ROWS: Final = 50_000
# What a peer takes long for, it is asked for less often.
_GETS: Final[Mapping[str, int]] = {"neve": 200, "SlateDB": 50, "delta-rs": 3, "PyIceberg": 2}
_FACTS: Final = frozenset({"requests_per_call", "open_ms"})
_DURABLE: Final = "in the bucket"
_NOTES: Final = (
    "One SeaweedFS on the loopback behind a proxy; the time in a name is added to each request.",
    "`requests_per_call` counts the requests of the timed part, those of background work included.",
    "`usd_per_million_calls` prices them as S3 Standard in us-east-1 does, without bytes.",
)


class _Server(TypedDict):
    bucket: str
    access_key_id: str
    secret_access_key: str
    endpoints: dict[str, str]


@dataclass(kw_only=True)
class BucketSession(TableSession):
    """The stores of a run, with their tables in one bucket."""

    chosen: Sequence[TablePeer] = (SLATEDB, DELTA, PYICEBERG)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbers = count()
        self._tables: dict[tuple[str, int], Path] = {}

    @cached_property
    def _server(self) -> _Server:
        process = PeerProcess("benchmarks.peers.bucket_server")
        # Added first, so that it ends last.
        self._ending.callback(process.close)
        return cast("_Server", process.greeting)

    def point(self, directory: Path, delay: int, prefix: str | None = None) -> str:
        """Let the store of a directory be in a part of the bucket; return that part."""
        server = self._server
        prefix = prefix or f"bench/{next(self._numbers)}"
        BucketPlace(
            endpoint=server["endpoints"][str(delay)],
            bucket=server["bucket"],
            prefix=prefix,
            access_key_id=server["access_key_id"],
            secret_access_key=server["secret_access_key"],
        ).write(directory)
        return prefix

    def table(self, peer: TablePeer, delay: int) -> Path:
        """Return the directory of a loaded table, for as long as nobody writes there."""
        if (peer.name, delay) not in self._tables:
            place = self.directory / "bucket" / f"{peer.name}-{delay}"
            prefix = self.point(place, 0)
            self.ask(
                peer,
                "load",
                directory=str(place),
                kind=_KIND,
                sample=str(self.sample.directory),
                rows=self.rows_of(peer),
                batch_rows=BATCH_ROWS,
            )
            self.point(place, delay, prefix)
            self._tables[peer.name, delay] = place
        return self._tables[peer.name, delay]


def bucket_session(directory: Path, rows: int, *, quick: bool) -> BucketSession:
    """Return a session for tables of so many rows."""
    return BucketSession(
        directory=directory,
        scale=TableScale(
            rows=rows,
            unflushed_rows=0,
            put_seconds=0,
            synced_seconds=1.0 if quick else 3.0,
            read_seconds=0.5,
            growth_rows=(),
            growth_columns=(),
        ),
    )


def _priced(reply: Reply, expected: str) -> Outcome:
    """Return what a timed call did, with what a million of them cost by S3's prices."""
    prices = asdict(RequestPrices())
    facts = reply["facts"]
    cost = sum(facts.get(f"{kind}_per_call", 0.0) * price for kind, price in prices.items())
    kept = {name: value for name, value in facts.items() if name in _FACTS}
    return outcome({**reply, "facts": kept}, expected, facts={"usd_per_million_calls": cost})


def _candidates(
    session: BucketSession,
    peers: Sequence[TablePeer],
    trial: Callable[..., Outcome],
    *,
    sync: str = "",
    threads: Sequence[int | None] = (None,),
) -> list[Candidate]:
    """Return a candidate for each peer, number of threads and delay."""

    def named(peer: TablePeer, many: int | None, delay: int) -> Candidate:
        more = {} if many is None else {"threads": many}
        run: Trial = functools.partial(trial, session, peer, delay, **more)
        words = [peer.name, *([] if many is None else [counted(many, "thread")]), f"{delay} ms"]
        kind = Kind.NEVE if peer is NEVE else Kind.PEER
        return Candidate(name=", ".join(words), kind=kind, trial=run, sync=sync)

    return [
        named(peer, many, delay)
        for delay in DELAYS_MS
        for many in threads
        for peer in (NEVE, *session.peers(*peers))
    ]


def build_put(session: BucketSession) -> Workload:
    """Single rows, durable in the bucket."""
    return Workload(
        name="bucket_put",
        sentence="Rows of five columns, one put each, in the bucket when the put returns.",
        unit="rows",
        candidates=_candidates(session, (SLATEDB,), _put, sync=_DURABLE, threads=_THREADS),
        parameters={"seconds_per_trial": session.scale.synced_seconds, "seed": SEED},
        notes=(*_NOTES, *left_out(session)),
        rounds_max=3,
    )


def _put(
    session: BucketSession,
    peer: TablePeer,
    delay: int,
    directory: Path,
    stopwatch: Stopwatch,
    *,
    threads: int,
) -> Outcome:
    session.point(directory, delay)
    seconds = session.scale.synced_seconds
    rows = min(int(seconds * _PUTS_PER_SECOND_MAX), session.scale.rows)
    reply = session.timed(
        stopwatch,
        peer,
        "put",
        directory=str(directory),
        kind=_KIND,
        sample=str(session.sample.directory),
        rows=rows,
        seconds=seconds,
        threads=threads,
        synced=True,
    )
    return _priced(reply, session.sample.written(rows, reply["shares"]))


def build_upsert(session: BucketSession) -> Workload:
    """Batches, each durable in the bucket before the next."""
    return Workload(
        name="bucket_upsert",
        sentence=f"Batches of {BATCH_ROWS:,} rows, each in the bucket before the next.",
        unit="rows",
        candidates=_candidates(session, (SLATEDB, DELTA), _upsert, sync=_DURABLE),
        parameters={"batch_rows": BATCH_ROWS, "seed": SEED},
        notes=(*_NOTES, "delta-rs merges each batch.", *left_out(session)),
        rounds_max=3,
    )


def _upsert(
    session: BucketSession, peer: TablePeer, delay: int, directory: Path, stopwatch: Stopwatch
) -> Outcome:
    session.point(directory, delay)
    rows = min(_UPSERT_ROWS, session.scale.rows)
    durable, _ = cast(
        "list[Reply]",
        session.ask(
            peer,
            "upsert",
            directory=str(directory),
            kind=_KIND,
            sample=str(session.sample.directory),
            rows=rows,
            batch_rows=BATCH_ROWS,
        ),
    )
    stopwatch.take(measured_together([durable["timed"]]))
    return _priced(durable, digest(session.sample.loaded(rows)))


def build_commit(session: BucketSession) -> Workload:
    """Commits that readers elsewhere see."""
    return Workload(
        name="bucket_commit",
        sentence=f"Commits of {_COMMIT_ROWS:,} new rows, each seen by readers before the next.",
        unit="rows",
        candidates=_candidates(session, (SLATEDB, DELTA, PYICEBERG), _commit, sync=_DURABLE),
        parameters={"commits": _COMMITS, "rows_per_commit": _COMMIT_ROWS, "seed": SEED},
        notes=(
            *_NOTES,
            "neve's commit is an upsert and a flush, published for other engines.",
            "delta-rs and PyIceberg append; PyIceberg's catalog is a local file.",
            *left_out(session),
        ),
        shows=Shows.SECONDS,
        rounds_max=3,
    )


def _commit(
    session: BucketSession, peer: TablePeer, delay: int, directory: Path, stopwatch: Stopwatch
) -> Outcome:
    session.point(directory, delay)
    rows = _COMMITS * _COMMIT_ROWS
    reply = session.timed(
        stopwatch,
        peer,
        "commit",
        directory=str(directory),
        kind=_KIND,
        sample=str(session.sample.directory),
        rows=rows,
        batch_rows=_COMMIT_ROWS,
    )
    return _priced(reply, digest(session.sample.loaded(rows)))


def build_get_cold(session: BucketSession) -> Workload:
    """The first row of a table that the machine has nothing of."""
    return Workload(
        name="bucket_get_cold",
        sentence="The first row by key after opening; nothing of the table is on the machine.",
        unit="rows",
        candidates=_candidates(session, (SLATEDB, DELTA, PYICEBERG), _get_cold),
        parameters={"rows": session.scale.rows},
        notes=(*_NOTES, "`open_ms` is the time to open, which is not part of it."),
        shows=Shows.SECONDS,
        rounds_max=3,
    )


def _get_cold(
    session: BucketSession, peer: TablePeer, delay: int, directory: Path, stopwatch: Stopwatch
) -> Outcome:
    loaded = session.table(peer, delay)
    place = directory / "machine"
    session.point(place, delay, BucketPlace.of(loaded).prefix)
    if (loaded / "catalog.db").exists():
        (place / "catalog.db").write_bytes((loaded / "catalog.db").read_bytes())
    keys = session.sample.keys[:1]
    reply = session.timed(
        stopwatch,
        peer,
        "get_first",
        directory=str(place),
        kind=_KIND,
        sample=str(session.sample.directory),
        count=len(keys),
    )
    return _priced(reply, digest(of_keys(session.sample.base, keys), in_order=True))


def build_get_warm(session: BucketSession) -> Workload:
    """Rows by key from a warm table."""
    return Workload(
        name="bucket_get_warm",
        sentence="Rows by key, one call each, from a table that was asked for others before.",
        unit="rows",
        candidates=_candidates(session, (SLATEDB, DELTA, PYICEBERG), _get_warm),
        parameters={"rows": session.scale.rows},
        notes=(*_NOTES, *left_out(session)),
        shows=Shows.SECONDS,
        rounds_max=3,
    )


def _get_warm(
    session: BucketSession, peer: TablePeer, delay: int, _directory: Path, stopwatch: Stopwatch
) -> Outcome:
    asked = _GETS[peer.name]
    keys = session.sample.keys[asked : 2 * asked]
    reply = session.timed(
        stopwatch,
        peer,
        "get",
        directory=str(session.table(peer, delay)),
        kind=_KIND,
        sample=str(session.sample.directory),
        start=asked,
        count=asked,
    )
    return _priced(reply, digest(of_keys(session.sample.base, keys), in_order=True))


def build_scan(session: BucketSession) -> Workload:
    """Everything, as Arrow."""
    return Workload(
        name="bucket_scan",
        sentence="All rows of a table that was read before, as Arrow.",
        unit="rows",
        candidates=_candidates(session, (SLATEDB, DELTA, PYICEBERG), _scan),
        parameters={"rows": session.scale.rows},
        notes=(*_NOTES, "SlateDB holds a tenth of the rows.", *left_out(session)),
        rounds_max=3,
    )


def _scan(
    session: BucketSession, peer: TablePeer, delay: int, _directory: Path, stopwatch: Stopwatch
) -> Outcome:
    reply = session.timed(
        stopwatch,
        peer,
        "read",
        directory=str(session.table(peer, delay)),
        kind=_KIND,
        what="scan",
        arguments=[],
        seconds=session.scale.read_seconds,
    )
    return _priced(reply, digest(session.sample.loaded(session.rows_of(peer))))


BUCKET_WORKLOADS: Final[Mapping[str, Callable[[BucketSession], Workload]]] = {
    "bucket_put": build_put,
    "bucket_upsert": build_upsert,
    "bucket_commit": build_commit,
    "bucket_get_cold": build_get_cold,
    "bucket_get_warm": build_get_warm,
    "bucket_scan": build_scan,
}
