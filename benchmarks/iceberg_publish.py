"""`iceberg_publish` and `iceberg_visible`: what it costs to show a commit to other engines.

`iceberg_publish` publishes one commit after the other to tables of few and of many files. The data
files are facts only, as publishing never opens one; vectors are real. `iceberg_visible` writes real
rows: from a put to a scan by PyIceberg and by DuckDB that has the row; a call is from the
acknowledged put on.
"""

import functools
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.table import StaticTable
from pyroaring import BitMap64

import neve
from benchmarks.duckdb_iceberg import duckdb_with_iceberg
from benchmarks.harness import Candidate, Kind, Outcome, Ratio, Scale, Stopwatch, Workload
from benchmarks.manifest_table import data_file
from benchmarks.result_file import Pace
from neve.catalog.table import Table, open_table_of
from neve.model.data_file import DataFile, VectorRef
from neve.model.version import Operation, Version, VersionEdit, VersionFacts
from neve.sstable.puffin import write_puffin

_FEW: Final = 10
_RATE_OF_TWICE_THE_TIME: Final = 0.5
_OPTIONS: Final = neve.TableOptions(background=False, iceberg_publish="demand")
_VISIBLE_PUTS: Final = 10

_COLUMNS: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "name": pa.string(),
    "score": pa.float64(),
    "visits": pa.int32(),
    "payload": pa.binary(),
}


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


def build_iceberg_visible(_scale: Scale, _directory: Path) -> Workload:
    """From a put to a scan of another engine that shows it."""
    return Workload(
        name="iceberg_visible",
        sentence="A row is put, flushed and published, and another engine counts the rows.",
        unit="rows",
        candidates=[
            Candidate(name=name, kind=Kind.NEVE, trial=functools.partial(_see, count=count))
            for name, count in (("PyIceberg", _count_pyiceberg), ("DuckDB", _count_duckdb))
        ],
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


def _see(directory: Path, stopwatch: Stopwatch, *, count: Callable[[str], int]) -> Outcome:
    with neve.open(directory / "lake") as lake:
        table = lake.create_table("a.b", pa.schema(_COLUMNS), ["id"], options=_OPTIONS)
        table.put({"id": -1})
        table.flush()
        seen = [count(table.iceberg_metadata())]
        latencies = []
        with stopwatch:
            for number in range(_VISIBLE_PUTS):
                table.put({"id": number})
                began = time.perf_counter_ns()
                table.flush()
                seen.append(count(table.iceberg_metadata()))
                latencies.append(time.perf_counter_ns() - began)
        table.close()
    return Outcome(
        rows=_VISIBLE_PUTS,
        calls=_VISIBLE_PUTS,
        logical_bytes=0,
        answer=seen,
        expected=list(range(1, _VISIBLE_PUTS + 2)),
        latencies_ns=latencies,
    )


def _count_pyiceberg(location: str) -> int:
    return StaticTable.from_metadata(location).scan().to_arrow().num_rows


def _count_duckdb(location: str) -> int:
    found = duckdb_with_iceberg().execute(f"SELECT count(*) FROM iceberg_scan('{location}')")  # noqa: S608
    row = found.fetchone()
    assert row is not None
    return int(row[0])
