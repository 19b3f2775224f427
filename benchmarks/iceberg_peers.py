"""`iceberg_commits` and `iceberg_scan`: neve's published tables beside tables of others.

iceberg_commits   rows are committed one by one, each visible to other engines when it returns;
                  beside PyIceberg, which appends them to a table of its SQLite catalog
iceberg_scan      PyIceberg and DuckDB read all rows of a table of which a tenth was updated:
                  the one that neve published, and one of their own with the same updates
"""

import functools
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypedDict, cast

import duckdb
import pyarrow as pa
from pyiceberg.table import StaticTable

import neve
from benchmarks.duckdb_iceberg import duckdb_with_iceberg
from benchmarks.harness import Candidate, Kind, Outcome, Ratio, Scale, Stopwatch, Workload
from benchmarks.peer_environment import PeerEnvironment
from benchmarks.peer_process import PeerProcess, measured_together
from benchmarks.peers.json_lines import TimedPart
from benchmarks.peers.one_row import SCHEMA as ONE_ROW
from benchmarks.peers.one_row import one_row
from benchmarks.peers.table_rows import SCHEMA, digest
from benchmarks.table_sample import ROW_BYTES, TableSample

_NEVE: Final = "neve"
_PYICEBERG: Final = "PyIceberg append"
_ANSWER_SECONDS: Final = 1_800.0
_FILES_FOR_EACH: Final = 10
"""A whole run makes 1,000 commits, a quick one 100."""
LEFT_OUT: Final = "Peers did not take part: `.venv-peers` could not be made."
_UNCOMPACTED: Final = neve.TableOptions(
    background=False, level0_files=1 << 20, level0_files_slow=1 << 20, level0_files_max=1 << 20
)


class _CommitsReply(TypedDict):
    timed: TimedPart
    latencies_ns: list[int]
    commits: int
    ids: list[int]


class _ScanReply(TypedDict):
    timed: TimedPart
    digest: str


def build_iceberg_commits(scale: Scale, _directory: Path) -> Workload:
    """Small commits, beside PyIceberg with its SQLite catalog."""
    commits = scale.table_files // _FILES_FOR_EACH
    with ExitStack() as starting:
        process = start_peer("benchmarks.peers.pyiceberg_commits", starting)
        peers: Sequence[Candidate] = ()
        if process is not None:
            append = functools.partial(_append_elsewhere, process=process, commits=commits)
            peers = (Candidate(name=_PYICEBERG, kind=Kind.PEER, sync="catalog only", trial=append),)
        return Workload(
            name="iceberg_commits",
            sentence="Rows are committed and published one by one to a new table.",
            unit="commits",
            candidates=(
                Candidate(
                    name=_NEVE,
                    kind=Kind.NEVE,
                    sync="each commit",
                    trial=functools.partial(_commit, commits=commits),
                ),
                *peers,
            ),
            ratios=[Ratio(of=_NEVE, to=peer.name) for peer in peers],
            parameters={"commits_per_trial": commits},
            notes=(
                "neve logs, flushes, commits and publishes each row, all durable; no compaction.",
                "PyIceberg syncs its SQLite catalog and none of its files.",
                *(() if peers else (LEFT_OUT,)),
            ),
            rounds_max=1,
            release=starting.pop_all().close,
        )


def build_iceberg_scan(scale: Scale, directory: Path) -> Workload:
    """Scans of a table with updates, published and their own."""
    sample = TableSample.make(directory / "sample", scale.keys)
    expected, rows = digest(sample.updated), sample.updated.num_rows
    location = _published(directory / "lake", sample)
    own = _own_duckdb(directory / "own.duckdb", sample)
    with ExitStack() as starting:
        starting.callback(own.close)
        here = {
            "DuckDB, neve's table": (duckdb_with_iceberg(), f"FROM iceberg_scan('{location}')"),
            "DuckDB, its own": (own, "FROM rows"),
        }
        candidates = [
            Candidate(
                name=name,
                kind=Kind.NEVE if query.startswith("FROM iceberg") else Kind.PEER,
                trial=functools.partial(
                    _scan_duckdb, connection=connection, query=query, expected=expected, rows=rows
                ),
            )
            for name, (connection, query) in here.items()
        ]
        ratios = [Ratio(of="DuckDB, neve's table", to="DuckDB, its own")]
        process = start_peer("benchmarks.peers.iceberg_scans", starting)
        if process is not None:
            place = directory / "pyiceberg"
            place.mkdir()
            process.ask("prepare", directory=str(place), sample=str(sample.directory))
            asked = {
                "PyIceberg, neve's table": ("scan_published", {"location": location}),
                "PyIceberg, its own": ("scan_own", {"directory": str(place)}),
            }
            candidates += [
                Candidate(
                    name=name,
                    kind=Kind.NEVE if call == "scan_published" else Kind.PEER,
                    trial=functools.partial(
                        _scan_elsewhere, process=process, call=call, arguments=arguments,
                        expected=expected, rows=rows,
                    ),
                )
                for name, (call, arguments) in asked.items()
            ]  # fmt: skip
            ratios.append(Ratio(of="PyIceberg, neve's table", to="PyIceberg, its own"))
        return Workload(
            name="iceberg_scan",
            sentence="All rows of a table are read into Arrow after a tenth of them was updated.",
            unit="rows",
            candidates=candidates,
            ratios=ratios,
            parameters={"rows": rows},
            notes=(
                "neve's table has the updates as new files and deletion vectors.",
                "PyIceberg's own was written again, sorted; DuckDB's own updated its file.",
                *(() if process is not None else (LEFT_OUT,)),
            ),
            uses_disk=False,
            release=starting.pop_all().close,
        )


def start_peer(module: str, starting: ExitStack) -> PeerProcess | None:
    """Start a peer; None when their environment is not there."""
    environment = PeerEnvironment()
    if not environment.is_ready():
        return None
    process = PeerProcess(module, python=environment.python, answer_seconds=_ANSWER_SECONDS)
    starting.callback(process.close)
    return process


# Commits


def _commit(directory: Path, stopwatch: Stopwatch, *, commits: int) -> Outcome:
    rows = [one_row(number) for number in range(commits)]
    latencies = []
    with neve.open(directory / "lake") as lake:
        table = lake.create_table("bench.commits", ONE_ROW, ["id"], options=_UNCOMPACTED)
        with stopwatch:
            for row in rows:
                began = time.perf_counter_ns()
                table.upsert(row)
                table.flush()
                latencies.append(time.perf_counter_ns() - began)
        static = StaticTable.from_metadata(table.iceberg_metadata())
        found = static.scan(selected_fields=("id",)).to_arrow().sort_by("id")
        answer = (table.version - 1, found["id"].to_pylist())
        table.close()
    return Outcome(
        rows=commits,
        calls=commits,
        logical_bytes=sum(row.nbytes for row in rows),
        answer=answer,
        expected=(commits, list(range(commits))),
        latencies_ns=latencies,
    )


def _append_elsewhere(
    directory: Path, stopwatch: Stopwatch, *, process: PeerProcess, commits: int
) -> Outcome:
    answer = process.ask("append", directory=str(directory), commits=commits)
    reply = cast("_CommitsReply", answer)
    stopwatch.take(measured_together([reply["timed"]]))
    return Outcome(
        rows=commits,
        calls=commits,
        logical_bytes=sum(one_row(number).nbytes for number in range(commits)),
        answer=(reply["commits"], reply["ids"]),
        expected=(commits, list(range(commits))),
        latencies_ns=reply["latencies_ns"],
    )


# Scans


def _published(directory: Path, sample: TableSample) -> str:
    """Make neve's table, with the updates as they come; gives its published location."""
    with neve.open(directory) as lake:
        table = lake.create_table("bench.rows", SCHEMA, ["id"])
        table.upsert(sample.base)
        table.compact()
        table.upsert(sample.updates)
        table.flush()
        location = table.iceberg_metadata()
        table.close()
    return location


def _own_duckdb(path: Path, sample: TableSample) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(str(path))
    connection.execute(
        "CREATE TABLE rows"
        " (id bigint PRIMARY KEY, name varchar, score double, visits integer, payload blob)"
    )
    for rows in (sample.base, sample.updates):
        connection.register("source", rows)
        connection.execute("INSERT OR REPLACE INTO rows FROM source")
        connection.unregister("source")
    connection.execute("CHECKPOINT")
    return connection


def _scan_duckdb(
    _directory: Path,
    stopwatch: Stopwatch,
    *,
    connection: duckdb.DuckDBPyConnection,
    query: str,
    expected: str,
    rows: int,
) -> Outcome:
    with stopwatch:
        found: pa.Table = connection.execute(query).to_arrow_table()
    return _scanned(rows, answer=digest(found), expected=expected)


def _scan_elsewhere(
    _directory: Path,
    stopwatch: Stopwatch,
    *,
    process: PeerProcess,
    call: str,
    arguments: dict[str, str],
    expected: str,
    rows: int,
) -> Outcome:
    reply = cast("_ScanReply", process.ask(call, **arguments))
    stopwatch.take(measured_together([reply["timed"]]))
    return _scanned(rows, answer=reply["digest"], expected=expected)


def _scanned(rows: int, *, answer: str, expected: str) -> Outcome:
    return Outcome(
        rows=rows, calls=1, logical_bytes=rows * ROW_BYTES, answer=answer, expected=f"{expected}"
    )
