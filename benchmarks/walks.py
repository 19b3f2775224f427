"""Walks: how many modules one call of a table passes through, and how many hops it makes.

    python -m benchmarks.walks                     a table for people
    python -m benchmarks.walks --json              the same for programs
    python -m benchmarks.walks --hops flush        every hop of one walk, in order
    python -m benchmarks.walks --spark             also the driver of an upsert on Spark

A *walk* is one public call on a small table on disk. It is watched by Python's profiler in every
thread.

    module   A module of neve with at least one function that ran.
    hop      A call of a function in one module of neve by a function in another one. Frames of
             other libraries in between are skipped, and so are imports. A generator that is resumed
             from another module hops each time.
    pairs    The hops without repetition: how many different pairs of functions there are.

Modules and pairs depend on the layout of the code; hops also on how many files and columns the
table has. Each walk is done once to fill caches and then several times; the shortest one counts,
because work that is due now and then (a mark of the log, a checkpoint) is not part of each call.

Iceberg's metadata is written on demand here, so that publishing is a walk of its own. With default
options a flush and a compaction include it.

Only public calls are used, so this file also measures an older checkout:

    PYTHONPATH=OLDER/src:. python -m benchmarks.walks
"""

import argparse
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import pyarrow as pa

import neve

ROWS: Final = 100
FILES: Final = 2
BATCH_ROWS: Final = 10
REPEATS: Final = 3
_PACKAGE: Final = "neve"
_TABLE: Final = "walks.rows"


@dataclass(frozen=True, slots=True)
class Hop:
    """One call from a function into a function of another module."""

    caller: str
    callee: str

    def __str__(self) -> str:
        return f"{self.caller} -> {self.callee}"


@dataclass(frozen=True, slots=True)
class Walk:
    """What one call went through."""

    name: str
    modules: frozenset[str]
    hops: tuple[Hop, ...]

    @property
    def pairs(self) -> int:
        """How many different pairs of functions call each other across modules."""
        return len(set(self.hops))


class Recorder:
    """Collects modules and hops while it is on, in the threads that are watched."""

    def __init__(self) -> None:
        self._is_on = False
        self._modules: set[str] = set()
        self._hops: list[Hop] = []

    def watch(self) -> None:
        """Watch this thread and all that start later."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def unwatch(self) -> None:
        """Stop watching this thread and new ones."""
        sys.setprofile(None)
        threading.setprofile(None)

    def record(self, name: str, call: Callable[[], object]) -> Walk:
        """Make a call and return its walk."""
        self._modules, self._hops = set(), []
        self._is_on = True
        try:
            call()
        finally:
            self._is_on = False
        return Walk(name=name, modules=frozenset(self._modules), hops=tuple(self._hops))

    def _see(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self._is_on or event != "call" or not _is_ours(frame):
            return
        module = _module_of(frame)
        self._modules.add(module)
        caller = frame.f_back
        while caller is not None and not _is_ours(caller):
            caller = caller.f_back
        if caller is not None and _module_of(caller) != module:
            self._hops.append(Hop(_function_of(caller), _function_of(frame)))


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_ours(frame: FrameType) -> bool:
    # The body of a module that is imported is not a function of it.
    return _module_of(frame).startswith(f"{_PACKAGE}.") and frame.f_code.co_name != "<module>"


def _function_of(frame: FrameType) -> str:
    return f"{_module_of(frame).removeprefix(f'{_PACKAGE}.')}.{frame.f_code.co_qualname}"


def measure(*, with_spark: bool = False) -> list[Walk]:
    """Do each walk on a table of its own lake and return the shortest of several tries."""
    recorder = Recorder()
    # From the beginning, so that threads of pools are watched too.
    recorder.watch()
    try:
        with _sample_table() as (table, _):
            tries = [_embedded_walks(recorder, table) for _ in range(REPEATS + 1)][1:]
        walks = [min(same, key=lambda walk: len(walk.hops)) for same in zip(*tries, strict=True)]
        return [*walks, _spark_walk(recorder)] if with_spark else walks
    finally:
        recorder.unwatch()


@contextmanager
def _sample_table() -> Iterator[tuple[neve.Table, str]]:
    columns: dict[str, pa.DataType] = {
        "id": pa.int64(),
        "name": pa.string(),
        "amount": pa.float64(),
    }
    options = neve.TableOptions(background=False, iceberg_publish="demand")
    with (
        tempfile.TemporaryDirectory() as directory,
        neve.open(directory) as lake,
        lake.create_table(_TABLE, pa.schema(columns), primary_key=["id"], options=options) as table,
    ):
        yield table, directory


def _rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([f"row {number}" for number in ids]),
            "amount": pa.array([number / 4 for number in ids]),
        }
    )


def _embedded_walks(recorder: Recorder, table: neve.Table) -> list[Walk]:
    """Fill files that overlap, then do each walk once; the last one leaves a single file."""
    for number in range(FILES):
        table.upsert(_rows(number * ROWS // 2, ROWS))
        table.flush()
    in_file = FILES * ROWS // 2 + ROWS // 4
    # Nothing is left over from before: marks of the log, footers and vectors, older Versions.
    table.put({"id": 0, "name": "first", "amount": 0.0})
    table.get(in_file)
    table.scan().to_arrow()
    table.iceberg_metadata()
    return [
        recorder.record("put", lambda: table.put({"id": 1, "name": "one", "amount": 1.0})),
        recorder.record("upsert", lambda: table.upsert(_rows(5, BATCH_ROWS))),
        recorder.record("get", lambda: table.get(in_file)),
        recorder.record("scan", lambda: table.scan().to_arrow()),
        recorder.record("flush", table.flush),
        recorder.record("publish", table.iceberg_metadata),
        recorder.record("compact", table.compact),
    ]


def _spark_walk(recorder: Recorder) -> Walk:
    """Upsert a small frame; workers are processes of their own and are not watched."""
    from neve import spark as ns  # noqa: PLC0415 - Spark and Java are needed for this walk alone

    session = ns.session(config={"spark.sql.shuffle.partitions": "1"})
    with _sample_table() as (table, directory):
        table.upsert(_rows(0, ROWS))
        table.flush()

        def upsert() -> None:
            rows = session.createDataFrame(_rows(5, BATCH_ROWS))
            ns.upsert(rows, directory, _TABLE, tasks=1)

        upsert()
        walks = [recorder.record("Spark upsert", upsert) for _ in range(REPEATS)]
    session.stop()
    return min(walks, key=lambda walk: len(walk.hops))


def shown_table(walks: list[Walk]) -> str:
    """Return the counts as a Markdown table."""
    lines = ["| walk | modules | hops | pairs |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| {walk.name} | {len(walk.modules)} | {len(walk.hops)} | {walk.pairs} |" for walk in walks
    ]
    return "\n".join(lines)


def shown_json(walks: list[Walk]) -> str:
    """Return the counts and the modules as JSON."""
    return json.dumps(
        {
            walk.name: {
                "modules": len(walk.modules),
                "hops": len(walk.hops),
                "pairs": walk.pairs,
                "module_names": sorted(walk.modules),
            }
            for walk in walks
        },
        indent=2,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.walks", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="Print JSON with the modules' names.")
    parser.add_argument("--hops", metavar="WALK", help="Print every hop of this walk.")
    parser.add_argument("--spark", action="store_true", help="Also walk an upsert on Spark.")
    options = parser.parse_args()
    walks = measure(with_spark=options.spark)
    if options.hops is not None:
        print(*(hop for walk in walks if walk.name == options.hops for hop in walk.hops), sep="\n")
    elif options.json:
        print(shown_json(walks))
    else:
        source = Path(neve.__file__).parent
        count = sum(1 for _ in source.rglob("*.py"))
        print(f"{count} modules\n\n{shown_table(walks)}")


if __name__ == "__main__":
    main()
