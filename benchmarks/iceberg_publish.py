"""`iceberg_publish` and `iceberg_visible`: what it costs to show a commit to other engines.

`iceberg_publish` publishes one commit after the other to tables of few and of many files. The data
files are facts only, as publishing never opens one; vectors are real.

`iceberg_visible` puts real rows, and has other engines count the rows of the table by its location
until they see each:

    put ──► returns ──► flush, or a thread after flush_seconds ──► published ──► counted
                     ▲                                                                 ▲
                     └────────────────────────── a call ───────────────────────────────┘

PyIceberg and delta-rs append each row to a table of their own, and count; a call begins before the
append, which shows the row at its end.
"""

import functools
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, TypedDict, cast

import pyarrow as pa
from pyiceberg.table import StaticTable
from pyroaring import BitMap64

import neve
from benchmarks.duckdb_iceberg import duckdb_with_iceberg
from benchmarks.harness import (
    FIXED_TIME,
    Candidate,
    Kind,
    Outcome,
    Ratio,
    Scale,
    Shows,
    Stopwatch,
    Workload,
)
from benchmarks.iceberg_peers import LEFT_OUT, start_peer
from benchmarks.manifest_table import data_file
from benchmarks.peer_process import PeerProcess, measured_together
from benchmarks.peers.json_lines import TimedPart
from benchmarks.result_file import Pace
from neve.catalog.table import Table, open_table_of
from neve.model.data_file import DataFile, VectorRef
from neve.model.version import Operation, Version, VersionEdit, VersionFacts
from neve.sstable.puffin import write_puffin

_FEW: Final = 10
_RATE_OF_TWICE_THE_TIME: Final = 0.5
_OPTIONS: Final = neve.TableOptions(background=False, iceberg_publish="demand")
_FILES_FOR_EACH_PUT: Final = 1_000
"""A whole run puts ten rows to be seen."""
_PUTS_MIN: Final = 3
_FLUSH_SECONDS: Final = 1.0
_COUNT_SECONDS: Final = 0.5

_COLUMNS: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "name": pa.string(),
    "score": pa.float64(),
    "visits": pa.int32(),
    "payload": pa.binary(),
}


class _SeenReply(TypedDict):
    timed: TimedPart
    latencies_ns: list[int]
    seen: list[int]


def build_iceberg_publish(scale: Scale, _directory: Path) -> Workload:
    """Publish commits to a small and to a large table."""
    changes: dict[str, Callable[[Table, Version, int], VersionEdit]] = {
        "append": _append,
        "update": _update,
    }
    candidates = [
        Candidate(
            name=f"{verb}, {files:,} files",
            kind=Kind.NEVE,
            trial=functools.partial(
                _publish, files=files, commits=scale.growth_commits // 4, make_edit=make_edit
            ),
            sync="each file",
        )
        for verb, make_edit in changes.items()
        for files in (_FEW, scale.table_files)
    ]
    return Workload(
        name="iceberg_publish",
        sentence="Commits of one file, or of one file and one vector, are published one by one.",
        unit="commits",
        candidates=candidates,
        ratios=[
            Ratio(
                of=f"{verb}, {scale.table_files:,} files",
                to=f"{verb}, {_FEW} files",
                target=_RATE_OF_TWICE_THE_TIME,
                by=Pace.MEDIAN_CALL,
            )
            for verb in changes
        ],
        notes=(
            "A call is one publish: manifests, list, document and hint, each durable in turn.",
            "An update marks a row of an old file, so its vector's manifest is rewritten.",
        ),
    )


def build_iceberg_visible(scale: Scale, _directory: Path) -> Workload:
    """From a put to a count of another engine that has the row."""
    puts = max(scale.table_files // _FILES_FOR_EACH_PUT, _PUTS_MIN)
    engines = {"DuckDB": _count_duckdb, "PyIceberg": _count_pyiceberg}
    waits = {"flush": None, f"flush_seconds={_FLUSH_SECONDS:g}": _FLUSH_SECONDS}
    with ExitStack() as starting:
        peers = {
            f"{name}, append": process
            for name, module in (
                ("PyIceberg", "benchmarks.peers.pyiceberg_commits"),
                ("delta-rs", "benchmarks.peers.delta_commits"),
            )
            if (process := start_peer(module, starting)) is not None
        }
        return Workload(
            name="iceberg_visible",
            sentence="A row is put, and another engine counts the rows of the table until it sees "
            "it.",
            unit="rows",
            candidates=[
                *(
                    Candidate(
                        name=f"neve to {engine}, {wait}",
                        kind=Kind.NEVE,
                        trial=functools.partial(
                            _see, puts=puts, count=count, flush_seconds=seconds
                        ),
                        sync="each row",
                    )
                    for wait, seconds in waits.items()
                    for engine, count in engines.items()
                ),
                *(
                    Candidate(
                        name=name,
                        kind=Kind.PEER,
                        trial=functools.partial(_see_elsewhere, puts=puts, process=process),
                        sync="never",
                    )
                    for name, process in peers.items()
                ),
            ],
            ratios=[
                *(
                    Ratio(of=f"neve to {engine}, flush", to=peer, by=Pace.MEDIAN_CALL)
                    for engine in engines
                    for peer in peers
                ),
                *(
                    Ratio(
                        of=f"neve to {engine}, flush_seconds={_FLUSH_SECONDS:g}",
                        to=FIXED_TIME,
                        seconds=_FLUSH_SECONDS + _COUNT_SECONDS,
                    )
                    for engine in engines
                ),
            ],
            parameters={"rows_per_trial": puts, "flush_seconds": _FLUSH_SECONDS},
            notes=(
                "A call is from the return of the put to the end of the first count that has it.",
                "Counting is a part of it: with `flush` the first count has the row.",
                f"Target with `flush_seconds`: within that time and {_COUNT_SECONDS:g} s to count.",
                "PyIceberg and delta-rs append to tables of their own, and count those themselves.",
                *(() if peers else (LEFT_OUT,)),
            ),
            shows=Shows.SECONDS,
            release=starting.pop_all().close,
        )


def _publish(
    directory: Path,
    stopwatch: Stopwatch,
    *,
    files: int,
    commits: int,
    make_edit: Callable[[Table, Version, int], VersionEdit],
) -> Outcome:
    with neve.open(directory / "lake") as lake:
        table = lake.create_table("a.b", pa.schema(_COLUMNS), ["id"], options=_OPTIONS)
        versions = open_table_of(table).stored.versions
        version = versions.snapshot_latest().version
        version = _committed(
            table, VersionEdit(base=1, facts=_facts(version), added=_files(0, files))
        )
        # Every old file has a vector already, as in a table that lives.
        version = _committed(table, _marked(table, version, list(version.files)))
        table.iceberg_metadata()
        publisher = open_table_of(table).stored.publisher
        latencies = []
        with stopwatch:
            for number in range(commits):
                version = _committed(table, make_edit(table, version, files + number))
                began = time.perf_counter_ns()
                publisher.publish_once()
                latencies.append(time.perf_counter_ns() - began)
        static = StaticTable.from_metadata(table.iceberg_metadata())
        summary = static.metadata.snapshots[-1].summary
        assert summary is not None
        answer = int(summary["total-data-files"] or 0)
        table.close()
    return Outcome(
        rows=commits,
        calls=commits,
        logical_bytes=0,
        answer=[answer],
        expected=[files + commits],
        latencies_ns=latencies,
    )


def _append(_table: Table, version: Version, number: int) -> VersionEdit:
    return VersionEdit(base=version.number, facts=_facts(version), added=_files(number, 1))


def _update(table: Table, version: Version, number: int) -> VersionEdit:
    old = list(version.files)[number * 7 % _FEW]
    return replace(_marked(table, version, [old]), added=_files(number, 1))


def _marked(table: Table, version: Version, paths: list[str]) -> VersionEdit:
    puffin = f"deletes/{version.number:032x}.puffin"
    locations = {path: f"{table.location}/{path}" for path in paths}
    first_rows = {location: BitMap64([0]) for location in locations.values()}
    payload, places = write_puffin(first_rows, created_by="benchmark")
    stored = open_table_of(table).stored
    stored.objects.put(f"{stored.paths.root}/{puffin}", payload)
    vectors = {
        path: VectorRef(path=puffin, offset=place.offset, length=place.length, cardinality=1)
        for path, place in ((path, places[locations[path]]) for path in paths)
    }
    facts = replace(_facts(version), operation=Operation.OVERWRITE)
    return VersionEdit(base=version.number, facts=facts, vectors=vectors)


def _committed(table: Table, edit: VersionEdit) -> Version:
    return open_table_of(table).stored.versions.apply_version_edits([edit]).snapshot.version


def _facts(version: Version) -> VersionFacts:
    return replace(version.facts, operation=Operation.APPEND, summary={}, wal_segments=())


def _files(first: int, count: int) -> tuple[DataFile, ...]:
    return tuple(
        replace(data_file(number, level=0), row_count=100, key_min=key, key_max=key)
        for number in range(first, first + count)
        for key in (struct.pack(">Q", number),)
    )


def _see(
    directory: Path,
    stopwatch: Stopwatch,
    *,
    puts: int,
    count: Callable[[str], int],
    flush_seconds: float | None,
) -> Outcome:
    options = neve.TableOptions(flush_seconds=flush_seconds)
    with neve.open(directory / "lake") as lake:
        table = lake.create_table("a.b", pa.schema(_COLUMNS), ["id"], options=options)
        table.put({"id": -1})
        table.flush()
        seen = [count(table.location)]
        latencies = []
        with stopwatch:
            for number in range(puts):
                table.put({"id": number})
                began = time.perf_counter_ns()
                if flush_seconds is None:
                    table.flush()
                while (found := count(table.location)) == seen[-1]:
                    pass
                latencies.append(time.perf_counter_ns() - began)
                seen.append(found)
        table.close()
    return Outcome(
        rows=puts,
        calls=puts,
        logical_bytes=0,
        answer=seen,
        expected=list(range(1, puts + 2)),
        latencies_ns=latencies,
    )


def _see_elsewhere(
    directory: Path, stopwatch: Stopwatch, *, puts: int, process: PeerProcess
) -> Outcome:
    reply = cast("_SeenReply", process.ask("append_seen", directory=str(directory), commits=puts))
    stopwatch.take(measured_together([reply["timed"]]))
    return Outcome(
        rows=puts,
        calls=puts,
        logical_bytes=0,
        answer=reply["seen"],
        expected=list(range(1, puts + 1)),
        latencies_ns=reply["latencies_ns"],
    )


def _count_pyiceberg(location: str) -> int:
    return StaticTable.from_metadata(location).scan().to_arrow().num_rows


def _count_duckdb(location: str) -> int:
    found = duckdb_with_iceberg().execute(f"SELECT count(*) FROM iceberg_scan('{location}')")
    row = found.fetchone()
    assert row is not None
    return int(row[0])
