"""Entry of `make bench`: runs workloads beside their peers and writes what came out.

    python -m benchmarks.run [--only NAME]... [--rounds N] [--quick] [--out DIR]

A whole run writes <date>-log.json, .md and .svg into benchmarks/results. A partial or a quick one
prints its numbers, and writes files only where --out says: it must not replace a whole one.
Everything is written below benchmarks/.scratch, which is removed afterwards. Peers that need an
environment of their own get it on the first run that needs them, in .venv-peers; where it cannot be
made, the run goes on without them and the page says so.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.environment import describe_environment, load_averages
from benchmarks.harness import (
    FULL,
    QUICK,
    ROUNDS_MIN,
    SEED,
    BadTrial,
    BuildWorkload,
    Scale,
    run_workload,
)
from benchmarks.key_encoding import build_encode_keys
from benchmarks.log_append import build_append_batches, build_append_rows
from benchmarks.log_replay import build_replay_batches, build_replay_rows
from benchmarks.log_sync import build_append_synced
from benchmarks.manifest_commits import build_manifest_commits, build_manifest_commits_s3
from benchmarks.manifest_growth import build_manifest_growth, build_manifest_open
from benchmarks.peer_environment import PeerEnvironment
from benchmarks.report import terminal_table, write_report
from benchmarks.result_file import FORMAT, RunRecord, WorkloadRecord, write_run
from benchmarks.start_up import build_start_up

WORKLOADS: Final[Mapping[str, BuildWorkload]] = {
    "append_rows": build_append_rows,
    "append_batches": build_append_batches,
    "append_synced": build_append_synced,
    "replay_rows": build_replay_rows,
    "replay_batches": build_replay_batches,
    "encode_keys": build_encode_keys,
    "start_up": build_start_up,
    "manifest_commits": build_manifest_commits,
    "manifest_commits_s3": build_manifest_commits_s3,
    "manifest_growth": build_manifest_growth,
    "manifest_open": build_manifest_open,
}

_HERE: Final = Path(__file__).parent
_SCRATCH: Final = _HERE / ".scratch"
_RESULTS: Final = _HERE / "results"
_ROUNDS: Final = 5
_WITH_PEERS: Final = frozenset({"manifest_commits"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for; gives the exit code."""
    options = _parse(arguments)
    names = options.only or list(WORKLOADS)
    is_whole = not options.quick and set(names) == set(WORKLOADS)
    try:
        run = _run(names, rounds=options.rounds, quick=options.quick)
    except BadTrial as error:
        print(f"stopped: {error}", file=sys.stderr)
        return 1
    out: Path | None = options.out or (_RESULTS if is_whole else None)
    if out is None:
        print("nothing was written: give --out DIR to keep a partial or quick run")
        return 0
    json_path = out / f"{run['date']}-log{'-quick' if options.quick else ''}.json"
    write_run(run, json_path)
    for path in (json_path, *write_report(json_path)):
        print(f"wrote {path}")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        choices=list(WORKLOADS),
        metavar="NAME",
        help=f"one of {', '.join(WORKLOADS)}; may be repeated",
    )
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"{ROUNDS_MIN} or more")
    parser.add_argument("--quick", action="store_true", help="small samples, to try things out")
    parser.add_argument("--out", type=Path, help="directory for the result files")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    options = parser.parse_args(arguments)
    if options.rounds < ROUNDS_MIN:
        parser.error(f"--rounds {options.rounds} says nothing about the spread: use {ROUNDS_MIN}+")
    return options


def _run(names: Sequence[str], *, rounds: int, quick: bool) -> RunRecord:
    _SCRATCH.mkdir(exist_ok=True)
    began_at = time.perf_counter()
    date = datetime.now(UTC).date().isoformat()
    environment = describe_environment(_SCRATCH)
    load_before = load_averages()
    print(f"files on {environment['file_system']}, load {load_before[0]:.2f}, {rounds} rounds")
    scale = QUICK if quick else FULL
    if not _WITH_PEERS.isdisjoint(names):
        PeerEnvironment().prepare(print)
    try:
        workloads = [_run_one(name, scale, rounds=rounds) for name in names]
    finally:
        # Another run may be using it; the last one removes it.
        with suppress(OSError):
            _SCRATCH.rmdir()
    options = "".join(f" --only {name}" for name in names) if len(names) < len(WORKLOADS) else ""
    return RunRecord(
        format=FORMAT,
        date=date,
        command=f"python -m benchmarks.run --rounds {rounds}{' --quick' if quick else ''}{options}",
        seed=SEED,
        rounds=rounds,
        quick=quick,
        seconds=time.perf_counter() - began_at,
        environment=environment,
        load_before=load_before,
        load_after=load_averages(),
        workloads=workloads,
    )


def _run_one(name: str, scale: Scale, *, rounds: int) -> WorkloadRecord:
    print(f"{name}: preparing", flush=True)
    began_at = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=_SCRATCH) as scratch:
        directory = Path(scratch)
        workload = WORKLOADS[name](scale, directory)
        record = run_workload(workload, rounds=rounds, directory=directory, progress=_show)
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
