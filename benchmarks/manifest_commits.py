"""`manifest_commits` and `manifest_commits_s3`: tiny commits to a new table.

    neve                     one file per commit, carried over when another committer was first
    neve, alone              the same without the committer: the shortest way there is
    neve with Parquet        the same, and the file of one row written through the store before
    neve without syncs       as neve, on a disk that is not waited for: comparable with peers
                             that do not wait either
    PyIceberg, delta-rs      one snapshot or version per commit; with and without a Parquet file
    bare files, requests     the fewest writes such a commit can have, without a format

Threads share one handle, and so its queue of commits; processes have a handle each.
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
    CommitFile,
    CountingStore,
    Traffic,
    UnsyncedDisk,
    append_edit,
    data_file,
    file_path,
    read_newest,
    time_commits,
)
from benchmarks.peer_environment import PeerEnvironment
from benchmarks.peer_process import PeerProcess, measured_together
from benchmarks.peers.json_lines import TimedPart
from neve.manifest.version_codec import encode_edit
from neve.model.data_file import DataFile
from neve.storage.local_store import LocalStore
from neve.storage.object_store import ObjectStore
from neve.storage.open_store import open_store

_THREADS: Final = 8
_PROCESSES: Final = 4
_BARRIER_SECONDS: Final = 60.0
_HEAD_BYTES: Final = 100
_COMMITTER: Final = "benchmarks.peers.neve_committer"

_EACH_COMMIT: Final = "each commit"
_NEVER: Final = "never"
_CATALOG_ONLY: Final = "catalog only"

_ONE: Final = "neve, 1 thread"
_MANY: Final = f"neve, {_THREADS} threads"
_PARQUET: Final = "neve with Parquet, 1 thread"
_UNSYNCED: Final = "neve without syncs, 1 thread"
_BARE_FILES: Final = "bare files"
_BARE_REQUESTS: Final = "bare requests"

_NOTES: Final = (
    "A commit adds one data file with the facts of five columns; the file itself is written only "
    "by `append` and `with Parquet`.",
    "Reads and writes per commit count calls of the object store; object bytes are those it was "
    "given to write. What lost races cost is included.",
)

ChooseCommit = Callable[[BenchTable], CommitFile]
OpenObjects = Callable[[Path], ObjectStore]


class _PeerReply(TypedDict):
    timed: TimedPart
    latencies_ns: list[int]
    commits: int
    ids: list[int]


class _CommitterReply(TypedDict):
    timed: TimedPart
    latencies_ns: list[int]
    traffic: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a table is, in words that another process understands."""

    location: str
    storage_options: Mapping[str, str]

    def open(self) -> ObjectStore:
        return open_store(self.location, storage_options=self.storage_options)


def build_manifest_commits(scale: Scale, _directory: Path) -> Workload:
    """Commits on the local disk, beside PyIceberg and delta-rs."""
    with ExitStack() as starting:
        committers = _start_committers(starting)
        neve = (
            _neve(_ONE, _threads(scale, 1, LocalDisk.synced)),
            _neve("neve, alone", _threads(scale, 1, LocalDisk.synced, _alone)),
            _neve(_PARQUET, _threads(scale, 1, LocalDisk.synced, _with_parquet)),
            _neve(_UNSYNCED, _threads(scale, 1, LocalDisk.unsynced), sync=_NEVER),
            _neve(_MANY, _threads(scale, _THREADS, LocalDisk.synced)),
            _neve(
                f"neve, {_PROCESSES} processes",
                _processes(scale, committers, lambda directory: _local_place(directory)),
            ),
        )
        peers, versions = _peers(scale, starting)
        bare = Candidate(
            name=_BARE_FILES, kind=Kind.LIMIT, sync=_EACH_COMMIT, trial=_bare_files(scale.commits)
        )
        peer_ratios = [
            Ratio(of=mine, to=peer.name)
            for peer in peers
            for mine in ((_PARQUET,) if "append" in peer.name else (_ONE, _UNSYNCED))
        ]
        return Workload(
            name="manifest_commits",
            sentence="Commits of one added file each, one after another per committer, on disk.",
            unit="commits",
            candidates=(*neve, *peers, bare),
            ratios=(
                Ratio(of=_ONE, to=_BARE_FILES),
                Ratio(of=_MANY, to=_ONE),
                Ratio(of=f"neve, {_PROCESSES} processes", to=_ONE),
                *peer_ratios,
            ),
            parameters={"commits_per_trial": scale.commits, "peers": versions or "left out"},
            notes=(
                *_NOTES,
                "PyIceberg syncs its SQLite catalog and none of its files; delta-rs syncs nothing.",
                "Written bytes per commit are those handed to write calls, by whomever.",
                *(() if versions else (_left_out(),)),
            ),
            release=starting.pop_all().close,
        )


def build_manifest_commits_s3(scale: Scale, _directory: Path) -> Workload:
    """Commits on S3, served by moto on loopback in a process of its own."""
    with ExitStack() as starting:
        server = PeerProcess("benchmarks.peers.s3_server")
        starting.callback(server.close)
        committers = _start_committers(starting)
        bucket = _bucket(server)
        prefixes = count()

        def place(_directory: Path) -> _Place:
            return _Place(
                location=f"{bucket.location}trial-{next(prefixes)}",
                storage_options=bucket.storage_options,
            )

        def objects(directory: Path) -> ObjectStore:
            return place(directory).open()

        one, many, several = "neve, 1 thread", "neve, 8 threads", f"neve, {_PROCESSES} processes"
        return Workload(
            name="manifest_commits_s3",
            sentence="The same commits, to S3 served by moto on loopback.",
            unit="commits",
            candidates=(
                _neve(one, _threads(scale, 1, objects)),
                _neve("neve, alone", _threads(scale, 1, objects, _alone)),
                _neve(many, _threads(scale, _THREADS, objects)),
                _neve(several, _processes(scale, committers, place)),
                Candidate(
                    name=_BARE_REQUESTS,
                    kind=Kind.LIMIT,
                    sync=_EACH_COMMIT,
                    trial=_bare_requests(scale.commits, objects),
                ),
            ),
            ratios=(
                Ratio(of="neve, alone", to=_BARE_REQUESTS),
                Ratio(of=one, to=_BARE_REQUESTS),
                Ratio(of=many, to=one),
                Ratio(of=several, to=one),
            ),
            parameters={"commits_per_trial": scale.commits},
            notes=(
                *_NOTES,
                "moto answers one request at a time, in a few milliseconds: how often a commit "
                "asks is what counts here, and carries over to a real bucket; rates do not.",
                "`bare requests` is one conditional read and two conditional writes per commit.",
            ),
            uses_disk=False,
            release=starting.pop_all().close,
        )
