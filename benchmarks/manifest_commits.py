"""`manifest_commits` and `manifest_commits_s3`: tiny commits to a new table.

    neve                     one file per commit, carried over when another committer was first
    neve, alone              the same without the committer: the shortest way there is
    neve with Parquet        the same, and the file of one row written through the store before
    neve without syncs       as neve, on a disk that is not waited for: comparable with peers
                             that do not wait either
    PyIceberg, delta-rs      one snapshot or version per commit; with and without a Parquet file
    bare files, requests     the fewest writes such a commit can have, without a format

Threads share one handle, and so its queue of commits: those that wait together are published in one
segment, each as a Version of its own. Processes have a handle each.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Barrier
from typing import Final, TypedDict, cast

from benchmarks.harness import (
    Candidate,
    Kind,
    Outcome,
    Ratio,
    Scale,
    Stopwatch,
    Trial,
    Workload,
)
from benchmarks.manifest_table import (
    BenchTable,
    CommitTiny,
    CountingStore,
    TinyAppend,
    Traffic,
    UnsyncedDisk,
    append_edit,
    data_file,
    file_path,
    read_newest,
    time_commits,
    tiny_appends,
)
from benchmarks.peer_environment import PeerEnvironment
from benchmarks.peer_process import PeerProcess, measured_together
from benchmarks.peers.json_lines import TimedPart
from neve.manifest.version_codec import encode_edit
from neve.storage.local_store import LocalStore
from neve.storage.object_store import ObjectStore
from neve.storage.open_store import open_store

_THREADS: Final = 8
_PROCESSES: Final = 4
_BARRIER_SECONDS: Final = 60.0
_HEAD_BYTES: Final = 100

_EACH_COMMIT: Final = "each commit"
_NEVER: Final = "never"
_CATALOG_ONLY: Final = "catalog only"

_ONE: Final = "neve, 1 thread"
_ALONE: Final = "neve, alone"
_PARQUET: Final = "neve with Parquet"
_UNSYNCED: Final = "neve without syncs"
_THREADED: Final = f"neve, {_THREADS} threads"
_DIVIDED: Final = f"neve, {_PROCESSES} processes"
_BARE_FILES: Final = "bare files"
_BARE_REQUESTS: Final = "bare requests"

_NOTES: Final = (
    "A commit adds one data file with the facts of five columns.",
    "The file itself is written only by `with Parquet` and `append`.",
    "`alone` commits without the committer that carries a change over to a newer Version.",
    "Reads and writes per commit count calls of the object store, those of lost races included.",
    f"Each of {_THREADS} threads makes as many commits as one alone does.",
    "Commits of threads that wait at the same time share a segment, and so its reads and writes.",
)
_PEERS_LEFT_OUT: Final = (
    "PyIceberg and delta-rs did not take part: their environment, `.venv-peers`, could not be made."
)

OpenPlace = Callable[[Path], "Place"]
ChooseCommit = Callable[[BenchTable], CommitTiny]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a table is, in words that another process understands too."""

    location: str
    storage_options: Mapping[str, str]

    def open(self) -> ObjectStore:
        """Open the store there."""
        return open_store(self.location, storage_options=self.storage_options)


class _Bucket(TypedDict):
    location: str
    storage_options: dict[str, str]


class _CommitterReply(TypedDict):
    timed: TimedPart
    latencies_ns: list[int]
    traffic: dict[str, int]


class _PeerReply(TypedDict):
    timed: TimedPart
    latencies_ns: list[int]
    commits: int
    ids: list[int]


def build_manifest_commits(scale: Scale, _directory: Path) -> Workload:
    """Commits on the local disk, beside PyIceberg and delta-rs."""
    commits = scale.commits
    with ExitStack() as starting:
        neve = (
            _neve(_ONE, commit_in_threads(commits, _on_disk)),
            _neve(_ALONE, commit_in_threads(commits, _on_disk, choose=_alone)),
            _neve(_PARQUET, commit_in_threads(commits, _on_disk, choose=_with_parquet)),
            _neve(_UNSYNCED, commit_in_threads(commits, _on_disk_unsynced), sync=_NEVER),
            _neve(_THREADED, commit_in_threads(commits * _THREADS, _on_disk, threads=_THREADS)),
            _neve(
                _DIVIDED, commit_in_processes(commits, _start_committers(starting), _place_on_disk)
            ),
        )
        peers, versions = _start_peers(commits, starting)
        bare = Candidate(
            name=_BARE_FILES,
            kind=Kind.LIMIT,
            sync=_EACH_COMMIT,
            trial=lambda directory, stopwatch: _write_bare_files(directory, stopwatch, commits),
        )
        return Workload(
            name="manifest_commits",
            sentence="Commits of one added file each to a new table on disk.",
            unit="commits",
            candidates=(*neve, *peers, bare),
            ratios=(
                Ratio(of=_ONE, to=_BARE_FILES),
                Ratio(of=_THREADED, to=_ONE),
                Ratio(of=_DIVIDED, to=_ONE),
                *(Ratio(of=mine, to=peer.name) for peer in peers for mine in _rivals(peer)),
            ),
            parameters={"commits_per_trial": commits, "peers": versions or "left out"},
            notes=(
                *_NOTES,
                "PyIceberg syncs its SQLite catalog and none of its files; delta-rs syncs nothing.",
                "Written bytes per commit are what was handed to write calls.",
                "`bare files` writes, syncs and renames two files per commit, and their directory.",
                *(() if versions else (_PEERS_LEFT_OUT,)),
            ),
            release=starting.pop_all().close,
        )


def build_manifest_commits_s3(scale: Scale, _directory: Path) -> Workload:
    """Commits on S3, served by moto on loopback in a process of its own."""
    commits = scale.commits
    with ExitStack() as starting:
        place = _start_bucket(starting)
        committers = _start_committers(starting)

        def objects(directory: Path) -> ObjectStore:
            return place(directory).open()

        bare = Candidate(
            name=_BARE_REQUESTS,
            kind=Kind.LIMIT,
            sync=_EACH_COMMIT,
            trial=lambda directory, stopwatch: _send_bare_requests(
                objects(directory), stopwatch, commits
            ),
        )
        return Workload(
            name="manifest_commits_s3",
            sentence="The same commits, to S3 served by moto on loopback.",
            unit="commits",
            candidates=(
                _neve(_ONE, commit_in_threads(commits, objects)),
                _neve(_ALONE, commit_in_threads(commits, objects, choose=_alone)),
                _neve(_THREADED, commit_in_threads(commits * _THREADS, objects, threads=_THREADS)),
                _neve(_DIVIDED, commit_in_processes(commits, committers, place)),
                bare,
            ),
            ratios=(
                Ratio(of=_ALONE, to=_BARE_REQUESTS),
                Ratio(of=_ONE, to=_BARE_REQUESTS),
                Ratio(of=_THREADED, to=_ONE),
                Ratio(of=_DIVIDED, to=_ONE),
            ),
            parameters={"commits_per_trial": commits},
            notes=(
                *_NOTES,
                "moto answers one request at a time, in milliseconds; its CPU time is not counted.",
                "Requests per commit carry over to a real bucket, rates do not.",
                "Written bytes per commit are those on the wire, with the headers of HTTP.",
                "`bare requests` is one conditional read and two conditional writes each time.",
            ),
            uses_disk=False,
            release=starting.pop_all().close,
        )


# Who takes part


def _neve(name: str, trial: Trial, *, sync: str = _EACH_COMMIT) -> Candidate:
    return Candidate(name=name, kind=Kind.NEVE, sync=sync, trial=trial)


def _start_committers(starting: ExitStack) -> Sequence[PeerProcess]:
    return [_start("benchmarks.peers.neve_committer", starting) for _ in range(_PROCESSES)]


def _start_bucket(starting: ExitStack) -> OpenPlace:
    """Start an S3 server; gives places in its bucket, a new one each time."""
    greeting = cast("_Bucket", _start("benchmarks.peers.s3_server", starting).greeting)
    numbers = count()

    def place(_directory: Path) -> Place:
        return Place(
            location=f"{greeting['location']}trial-{next(numbers)}",
            storage_options=greeting["storage_options"],
        )

    return place


def _start_peers(commits: int, starting: ExitStack) -> tuple[Sequence[Candidate], str]:
    """Start the peers; gives them with their versions, or nobody when they are not installed."""
    environment = PeerEnvironment()
    if not environment.is_ready():
        return (), ""
    iceberg = _start("benchmarks.peers.pyiceberg_commits", starting, environment)
    delta = _start("benchmarks.peers.delta_commits", starting, environment)
    candidates = (
        _peer("PyIceberg add_files", iceberg, "add_files", commits, sync=_CATALOG_ONLY),
        _peer("PyIceberg append", iceberg, "append", commits, sync=_CATALOG_ONLY),
        _peer("delta-rs add action", delta, "add_action", commits, sync=_NEVER),
        _peer("delta-rs append", delta, "append", commits, sync=_NEVER),
    )
    return candidates, f"{iceberg.greeting}, {delta.greeting}"


def _start(
    module: str, starting: ExitStack, environment: PeerEnvironment | None = None
) -> PeerProcess:
    process = PeerProcess(module, python=environment.python if environment else None)
    starting.callback(process.close)
    return process


def _peer(name: str, process: PeerProcess, call: str, commits: int, *, sync: str) -> Candidate:
    def commit(directory: Path, stopwatch: Stopwatch) -> Outcome:
        answer = process.ask(call, directory=str(directory), commits=commits)
        reply = cast("_PeerReply", answer)
        stopwatch.take(measured_together([reply["timed"]]))
        return _outcome(
            stopwatch,
            commits,
            reply["latencies_ns"],
            answer=(reply["commits"], reply["ids"]),
            expected=(commits, list(range(commits))),
        )

    return Candidate(name=name, kind=Kind.PEER, sync=sync, trial=commit)


def _rivals(peer: Candidate) -> Sequence[str]:
    """Candidates of neve's that do as much as a peer."""
    return (_PARQUET,) if peer.name.endswith("append") else (_ONE, _UNSYNCED)


# Where they commit


def _place_on_disk(directory: Path) -> Place:
    return Place(location=str(directory), storage_options={})


def _on_disk(directory: Path) -> ObjectStore:
    return _place_on_disk(directory).open()


def _on_disk_unsynced(directory: Path) -> ObjectStore:
    return LocalStore(str(directory), disk=UnsyncedDisk())


# How they commit


def _carried_over(table: BenchTable) -> CommitTiny:
    return table.append


def _alone(table: BenchTable) -> CommitTiny:
    return table.append_alone


def _with_parquet(table: BenchTable) -> CommitTiny:
    return table.append_with_parquet


def commit_in_threads(
    commits: int,
    open_objects: Callable[[Path], ObjectStore],
    *,
    threads: int = 1,
    choose: ChooseCommit = _carried_over,
) -> Trial:
    """Commit from threads that share one handle."""

    def commit(directory: Path, stopwatch: Stopwatch) -> Outcome:
        objects = open_objects(directory)
        counted = CountingStore(objects)
        table = BenchTable(counted)
        base = table.create()
        appends = tiny_appends(range(commits))
        before = counted.traffic
        latencies = _commit_shares(
            choose(table),
            [appends[thread::threads] for thread in range(threads)],
            base=base,
            stopwatch=stopwatch,
        )
        return _neve_outcome(objects, stopwatch, commits, latencies, counted.traffic.since(before))

    return commit


def _commit_shares(
    commit: CommitTiny, shares: Sequence[Sequence[TinyAppend]], *, base: int, stopwatch: Stopwatch
) -> list[int]:
    """Commit every share in a thread of its own; gives all latencies."""
    if len(shares) == 1:
        with stopwatch:
            return time_commits(commit, shares[0], base=base)
    barrier = Barrier(len(shares) + 1)

    def commit_share(share: Sequence[TinyAppend]) -> list[int]:
        barrier.wait(_BARRIER_SECONDS)
        return time_commits(commit, share, base=base)

    with ThreadPoolExecutor(len(shares)) as pool:
        running = [pool.submit(commit_share, share) for share in shares]
        with stopwatch:
            barrier.wait(_BARRIER_SECONDS)
            latencies = [thread.result() for thread in running]
    return [latency for share in latencies for latency in share]


def commit_in_processes(commits: int, committers: Sequence[PeerProcess], place: OpenPlace) -> Trial:
    """Commit from processes that have a handle each."""

    def commit(directory: Path, stopwatch: Stopwatch) -> Outcome:
        where = place(directory)
        objects = where.open()
        base = BenchTable(objects).create()
        for committer in committers:
            committer.ask(
                "open", location=where.location, storage_options=dict(where.storage_options)
            )
        for number, committer in enumerate(committers):
            committer.send(
                "commit", numbers=list(range(number, commits, len(committers))), base=base
            )
        replies = [cast("_CommitterReply", committer.receive()) for committer in committers]
        stopwatch.take(measured_together([reply["timed"] for reply in replies]))
        latencies = [latency for reply in replies for latency in reply["latencies_ns"]]
        traffic = Traffic(
            reads=sum(reply["traffic"]["reads"] for reply in replies),
            writes=sum(reply["traffic"]["writes"] for reply in replies),
            written_bytes=sum(reply["traffic"]["written_bytes"] for reply in replies),
        )
        return _neve_outcome(objects, stopwatch, commits, latencies, traffic)

    return commit


def _write_bare_files(directory: Path, stopwatch: Stopwatch, commits: int) -> Outcome:
    payloads = _bare_payloads(commits)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with stopwatch:
            for number, payload in enumerate(payloads):
                for name, piece in (
                    (f"segment-{number}", payload),
                    ("HEAD", payload[-_HEAD_BYTES:]),
                ):
                    _write_bare_file(directory, name, piece)
                    os.fsync(handle)
    finally:
        os.close(handle)
    answer = [(directory / f"segment-{number}").read_bytes() for number in range(commits)]
    return _outcome(stopwatch, commits, answer=answer, expected=payloads)


def _write_bare_file(directory: Path, name: str, payload: bytes) -> None:
    temporary = directory / "temporary"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, payload)
        os.fdatasync(handle)
    finally:
        os.close(handle)
    temporary.rename(directory / name)


def _send_bare_requests(objects: ObjectStore, stopwatch: Stopwatch, commits: int) -> Outcome:
    payloads = _bare_payloads(commits)
    tag = objects.put("HEAD", b"before")
    with stopwatch:
        for number, payload in enumerate(payloads):
            objects.get_if_changed("HEAD", tag=tag)
            objects.put_if_absent(f"segment-{number}", payload)
            tag = objects.put_if_match("HEAD", payload[-_HEAD_BYTES:], tag=tag) or ""
    answer = [objects.get(f"segment-{number}").payload for number in range(commits)]
    return _outcome(stopwatch, commits, answer=answer, expected=payloads)


def _bare_payloads(commits: int) -> list[bytes]:
    """Make payloads of the size of a commit's segment, all different."""
    return [encode_edit(append_edit(data_file(number), number)) for number in range(commits)]


# What came of it


def _neve_outcome(
    objects: ObjectStore,
    stopwatch: Stopwatch,
    commits: int,
    latencies: Sequence[int],
    traffic: Traffic,
) -> Outcome:
    return _outcome(
        stopwatch,
        commits,
        latencies,
        answer=read_newest(objects),
        expected=(commits + 1, [file_path(number) for number in range(commits)]),
        facts=traffic.per_commit(commits),
    )


def _outcome(
    stopwatch: Stopwatch,
    commits: int,
    latencies: Sequence[int] = (),
    *,
    answer: object,
    expected: object,
    facts: Mapping[str, float] | None = None,
) -> Outcome:
    written = stopwatch.written_bytes
    return Outcome(
        rows=commits,
        calls=commits,
        logical_bytes=0,
        answer=answer,
        expected=expected,
        latencies_ns=latencies,
        facts=dict(facts or {})
        | ({} if written is None else {"written_bytes_per_commit": written / commits}),
    )
