"""Entry of `make bench`: runs workloads beside their peers and writes what came out.

    python -m benchmarks.run [--suite log|iceberg|sql|files|table|history|growth|bucket|spark]
                             [--only NAME]... [--rounds N] [--quick] [--growth] [--out DIR]

A whole run of a suite writes <date>-<suite>.json, .md and .svg into benchmarks/results. A partial
or a quick one prints its numbers, and writes files only where --out says: it must not replace a
whole one. Everything is written below benchmarks/.scratch, which is removed afterwards. Peers that
need an environment of their own get it on the first run that needs them, in .venv-peers or
.venv-pypaimon; where it cannot be made, the run goes on without them and the page says so.

Tables have NEVE_BENCH_ROWS rows, a million by default; --growth looks at ten times as many too, and
at fifty times as many where rows are upserted into buckets. On Spark tables have five million rows
by default, and twenty million with --growth. In a bucket they have 200,000. The suite growth ends
at ten million rows by default, and at a hundred million with --growth.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.bucket_suite import (
    BUCKET_QUICK_ROWS,
    BUCKET_ROWS,
    BUCKET_WORKLOADS,
    BucketSession,
    bucket_session,
)
from benchmarks.environment import describe_environment, load_averages
from benchmarks.files_suite import FILES_WORKLOADS
from benchmarks.harness import (
    FULL,
    QUICK,
    ROUNDS_MIN,
    SEED,
    BadTrial,
    BuildWorkload,
    Workload,
    run_workload,
)
from benchmarks.iceberg_suite import ICEBERG_WITH_PEERS, ICEBERG_WORKLOADS
from benchmarks.key_encoding import build_encode_keys
from benchmarks.log_append import build_append_batches, build_append_rows
from benchmarks.log_replay import build_replay_batches, build_replay_rows
from benchmarks.log_sync import build_append_synced
from benchmarks.manifest_commits import build_manifest_commits, build_manifest_commits_s3
from benchmarks.manifest_growth import build_manifest_growth, build_manifest_open
from benchmarks.many_tables import build_flush_partitions, build_list_tables
from benchmarks.merge_growth import build_merge_growth
from benchmarks.peer_environment import PEERS, PYPAIMON, PeerEnvironment
from benchmarks.report import terminal_table, write_report
from benchmarks.rest_catalog import build_rest_commit, build_rest_list, build_rest_load
from benchmarks.result_file import FORMAT, RunRecord, WorkloadRecord, write_run
from benchmarks.spark_bench import SparkBench, spark_scale
from benchmarks.spark_suite import (
    SPARK_GROWTH_FACTOR,
    SPARK_QUICK_ROWS,
    SPARK_ROWS,
    SPARK_WITH_PEERS,
    SPARK_WORKLOADS,
)
from benchmarks.sql_suite import SQL_WORKLOADS
from benchmarks.start_up import build_start_up
from benchmarks.table_session import TableSession
from benchmarks.table_suite import (
    FULL_ROWS,
    GROWTH_FACTOR,
    GROWTH_ROWS,
    GROWTH_WORKLOADS,
    HISTORY_WORKLOADS,
    QUICK_ROWS,
    TABLE_WORKLOADS,
    growth_scale,
    table_scale,
)

WORKLOADS: Final[Mapping[str, BuildWorkload]] = {
    "append_rows": build_append_rows,
    "append_batches": build_append_batches,
    "append_synced": build_append_synced,
    "replay_rows": build_replay_rows,
    "replay_batches": build_replay_batches,
    "encode_keys": build_encode_keys,
    "merge_growth": build_merge_growth,
    "flush_partitions": build_flush_partitions,
    "list_tables": build_list_tables,
    "start_up": build_start_up,
    "manifest_commits": build_manifest_commits,
    "manifest_commits_s3": build_manifest_commits_s3,
    "rest_load": build_rest_load,
    "rest_commit": build_rest_commit,
    "rest_list": build_rest_list,
    "manifest_growth": build_manifest_growth,
    "manifest_open": build_manifest_open,
}

SUITES: Final[Mapping[str, Sequence[str]]] = {
    "log": tuple(WORKLOADS),
    "iceberg": tuple(ICEBERG_WORKLOADS),
    "sql": tuple(SQL_WORKLOADS),
    "files": tuple(FILES_WORKLOADS),
    "table": tuple(TABLE_WORKLOADS),
    "history": tuple(HISTORY_WORKLOADS),
    "growth": tuple(GROWTH_WORKLOADS),
    "bucket": tuple(BUCKET_WORKLOADS),
    "spark": tuple(SPARK_WORKLOADS),
}

_HERE: Final = Path(__file__).parent
_SCRATCH: Final = _HERE / ".scratch"
_RESULTS: Final = _HERE / "results"
_ROUNDS: Final = 5
_WITH_PEERS: Final[Mapping[str, frozenset[str]]] = {
    PEERS: frozenset({"manifest_commits", *TABLE_WORKLOADS, *BUCKET_WORKLOADS})
    | ICEBERG_WITH_PEERS
    | SPARK_WITH_PEERS,
    PYPAIMON: frozenset(TABLE_WORKLOADS),
}
"""The workloads that each environment of peers is for."""
_ROWS_MIN: Final = 10_000
_ROWS: Final = {
    "spark": (SPARK_QUICK_ROWS, SPARK_ROWS),
    "bucket": (BUCKET_QUICK_ROWS, BUCKET_ROWS),
    "growth": (QUICK_ROWS, GROWTH_ROWS),
}
"""Rows of a quick and of a whole run, where they are not those of a table on a disk."""

BuildHere = Callable[[Path], Workload]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for; gives the exit code."""
    options = _parse(arguments)
    for suite, members in SUITES.items():
        names = [name for name in members if not options.only or name in options.only]
        if not names or options.suite not in {None, suite}:
            continue
        try:
            run = _run(suite, names, options)
        except BadTrial as error:
            print(f"stopped: {error}", file=sys.stderr)
            return 1
        _write(run, is_whole=not options.quick and len(names) == len(members), out=options.out)
    return 0


def _write(run: RunRecord, *, is_whole: bool, out: Path | None) -> None:
    out = out or (_RESULTS if is_whole else None)
    if out is None:
        print("nothing was written: give --out DIR to keep a partial or quick run")
        return
    json_path = out / f"{run['date']}-{run['suite']}{'-quick' if run['quick'] else ''}.json"
    write_run(run, json_path)
    for path in (json_path, *write_report(json_path)):
        print(f"wrote {path}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    every = [name for members in SUITES.values() for name in members]
    parser.add_argument("--suite", choices=list(SUITES), help="run only this one")
    parser.add_argument(
        "--only",
        action="append",
        choices=every,
        metavar="NAME",
        help=f"one of {', '.join(every)}; may be repeated",
    )
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS_MIN} or more; by default {_ROUNDS}")
    parser.add_argument(
        "--quick", action="store_true", help="small samples and one round, to try things out"
    )
    parser.add_argument("--growth", action="store_true", help="larger tables too: see above")
    parser.add_argument("--out", type=Path, help="directory for the result files")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    options = parser.parse_args(arguments)
    rounds_min = 1 if options.quick else ROUNDS_MIN
    if options.rounds is None:
        options.rounds = rounds_min if options.quick else _ROUNDS
    if options.rounds < rounds_min:
        parser.error(f"--rounds {options.rounds} says nothing about the spread: use {rounds_min}+")
    return options


def _run(suite: str, names: Sequence[str], options: argparse.Namespace) -> RunRecord:
    rounds, quick = options.rounds, options.quick
    _SCRATCH.mkdir(exist_ok=True)
    began_at = time.perf_counter()
    date = datetime.now(UTC).date().isoformat()
    environment = describe_environment(_SCRATCH)
    load_before = load_averages()
    print(f"files on {environment['file_system']}, load {load_before[0]:.2f}, {rounds} rounds")
    for home, users in _WITH_PEERS.items():
        if not users.isdisjoint(names):
            PeerEnvironment(name=home).prepare(print)
    with ExitStack() as ending:
        # Another run may be using it; the last one removes it.
        ending.callback(_remove_scratch)
        builders = _builders(suite, ending, quick=quick, growth=options.growth)
        workloads = [_run_one(name, builders[name], rounds=rounds) for name in names]
    return RunRecord(
        format=FORMAT,
        suite=suite,
        date=date,
        command=_command(suite, names, options),
        seed=SEED,
        rounds=rounds,
        quick=quick,
        seconds=time.perf_counter() - began_at,
        environment=environment,
        load_before=load_before,
        load_after=load_averages(),
        workloads=workloads,
    )


def _command(suite: str, names: Sequence[str], options: argparse.Namespace) -> str:
    parts = [f"python -m benchmarks.run --suite {suite} --rounds {options.rounds}"]
    parts += [f"--{flag}" for flag in ("quick", "growth") if getattr(options, flag)]
    if len(names) < len(SUITES[suite]):
        parts += [f"--only {name}" for name in names]
    return " ".join(parts)


def _builders(
    suite: str, ending: ExitStack, *, quick: bool, growth: bool
) -> Mapping[str, BuildHere]:
    """Return what makes each workload in a directory; what they share ends with the stack."""
    plain = {
        "log": WORKLOADS,
        "iceberg": ICEBERG_WORKLOADS,
        "sql": SQL_WORKLOADS,
        "files": FILES_WORKLOADS,
    }.get(suite)
    if plain is not None:
        scale = QUICK if quick else FULL
        return {name: partial(build, scale) for name, build in plain.items()}
    few, many = _ROWS.get(suite, (QUICK_ROWS, FULL_ROWS))
    if growth:
        many *= {"spark": SPARK_GROWTH_FACTOR, "growth": GROWTH_FACTOR}.get(suite, 1)
    rows = int(os.environ.get("NEVE_BENCH_ROWS") or (few if quick else many))
    if rows < _ROWS_MIN:
        raise SystemExit(f"NEVE_BENCH_ROWS={rows} is less than a batch: use {_ROWS_MIN}+")
    place = Path(ending.enter_context(tempfile.TemporaryDirectory(dir=_SCRATCH)))
    if suite == "spark":
        bench = SparkBench(place / "spark", spark_scale(rows, quick=quick))
        ending.callback(bench.close)
        return {name: _with_bench(build, bench) for name, build in SPARK_WORKLOADS.items()}
    if suite == "bucket":
        away = bucket_session(place / "bucket", rows, quick=quick)
        ending.callback(away.close)
        return {name: _with_bucket(build, away) for name, build in BUCKET_WORKLOADS.items()}
    sizes = (
        growth_scale(rows, quick=quick)
        if suite == "growth"
        else table_scale(rows, quick=quick, growth=growth)
    )
    session = TableSession(place / "tables", sizes)
    ending.callback(session.close)
    workloads = {
        "table": TABLE_WORKLOADS,
        "history": HISTORY_WORKLOADS,
        "growth": GROWTH_WORKLOADS,
    }[suite]
    return {name: _ignoring_place(build, session) for name, build in workloads.items()}


def _ignoring_place(build: Callable[[TableSession], Workload], session: TableSession) -> BuildHere:
    return lambda _directory: build(session)


def _with_bucket(build: Callable[[BucketSession], Workload], session: BucketSession) -> BuildHere:
    return lambda _directory: build(session)


def _with_bench(build: Callable[[SparkBench], Workload], bench: SparkBench) -> BuildHere:
    return lambda _directory: build(bench)


def _remove_scratch() -> None:
    with suppress(OSError):
        _SCRATCH.rmdir()


def _run_one(name: str, build: BuildHere, *, rounds: int) -> WorkloadRecord:
    print(f"{name}: preparing", flush=True)
    began_at = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=_SCRATCH) as scratch:
        directory = Path(scratch)
        workload = build(directory)
        record = run_workload(
            workload, rounds=rounds, directory=directory, progress=_show, rounds_min=1
        )
    _show("")
    print(f"{name}: {time.perf_counter() - began_at:.0f} s")
    print(terminal_table(record), flush=True)
    return record


def _show(line: str) -> None:
    """Overwrite the progress line on a terminal; elsewhere say nothing."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K{line}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
