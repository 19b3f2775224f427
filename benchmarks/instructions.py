"""Instructions of single-row calls: what they cost where clocks cannot be trusted.

    python -m benchmarks.instructions           print the counts beside those that are kept
    python -m benchmarks.instructions --keep    keep the counts of this Python

Counted are the instructions of the interpreter and its calls of C functions, in the median call.
The same code has the same counts on every machine and under every load, but not on every Python:
each minor version has its own in `instructions.json`, with the compiled kernel and without it
(`NEVE_KERNEL=0`). What happens inside C functions (a write, a checksum, a search of Arrow) is not
counted: the suites measure time.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median_low
from types import FrameType
from typing import Any, Final

import numpy as np

import neve
from benchmarks.peers.table_rows import SCHEMA
from benchmarks.table_sample import make_rows
from neve.kernel import is_compiled
from neve.wal.log_options import SyncPolicy

KEPT: Final = Path(__file__).with_name("instructions.json")
PYTHON: Final = (
    f"{sys.version_info.major}.{sys.version_info.minor}{' with the kernel' if is_compiled else ''}"
)
TOLERANCE: Final = 0.05
"""More than this share above what is kept is a regression."""

_ROWS: Final = 400
_CALLS: Final = 50
_MANY: Final = 100
_SEED: Final = 1

Counts = dict[str, dict[str, int]]
"""By call: instructions of the interpreter, and calls of C functions."""


def count_all() -> Counts:
    """Count the instructions of every call."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            **_counts_of_writes(Path(folder) / "synced", "put, synced", sync=SyncPolicy.GROUP),
            **_counts_of_writes(Path(folder) / "writes", "put", sync=SyncPolicy.NONE),
            **_counts_of_commits(Path(folder) / "commits"),
            **_counts_of_reads(Path(folder) / "reads"),
            **_counts_of_readers(Path(folder) / "beside"),
        }


def kept_counts() -> Counts | None:
    """Return the counts that are kept for this Python; None without any."""
    found: dict[str, Counts] = json.loads(KEPT.read_text())
    return found.get(PYTHON)


def regressions(found: Counts, kept: Counts) -> list[str]:
    """Say which calls take more than they did."""
    return [
        f"{call}: {count} {what}, {kept[call][what]} before"
        for call, counts in found.items()
        for what, count in counts.items()
        if call in kept and count > kept[call][what] * (1 + TOLERANCE)
    ]


@contextmanager
def _table(folder: Path, *, sync: SyncPolicy) -> Iterator[neve.Table]:
    options = neve.TableOptions(sync=sync, background=False)
    with (
        neve.open(str(folder)) as lake,
        lake.create_table("b.r", schema=SCHEMA, primary_key=["id"], options=options) as table,
    ):
        yield table


def _rows() -> list[dict[str, Any]]:
    generator = np.random.default_rng(_SEED)
    return make_rows(np.arange(_ROWS, dtype=np.int64) * 2, generator).to_pylist()


def _counts_of_writes(folder: Path, name: str, *, sync: SyncPolicy) -> Counts:
    rows = _rows()
    with _table(folder, sync=sync) as table:
        for row in rows[_CALLS:]:
            table.put(row)
        return {name: _median(table.put, rows[:_CALLS])}


def _counts_of_commits(folder: Path) -> Counts:
    """Count writes that depend on rows; a transaction reads two rows and writes both."""
    rows = _rows()
    with _table(folder, sync=SyncPolicy.NONE) as table:

        def compare(row: dict[str, Any]) -> None:
            assert table.compare_and_put(row, row) is not None

        def transact(pair: Sequence[dict[str, Any]]) -> None:
            with table.transaction() as transaction:
                for row in pair:
                    transaction.put(transaction.get(row["id"]) or row)

        for row in rows:
            table.put(row)
        pairs = list(zip(rows[:_CALLS], rows[_CALLS:], strict=False))
        return {
            "compare_and_put": _median(compare, rows[:_CALLS]),
            "transaction of 2 rows": _median(transact, pairs),
        }


def _counts_of_reads(folder: Path) -> Counts:
    rows = _rows()
    keys = [row["id"] for row in rows]
    counts: Counts = {}
    with _table(folder, sync=SyncPolicy.NONE) as table:
        for where in ("memory", "a young file"):
            if where == "memory":
                for row in rows:
                    table.put(row)
            else:
                table.flush()
            for key in keys:
                table.get(key)
            table.get_many(keys)
            counts[f"get from {where}"] = _median(table.get, keys[:_CALLS])
            asked = [keys[at : at + _MANY] for at in range(0, _ROWS, _MANY)]
            counts[f"get_many of {_MANY} from {where}"] = _median(table.get_many, asked)
    return counts


def _counts_of_readers(folder: Path) -> Counts:
    """Count how a reader beside the writer reads what was put since its last look."""
    first, *rows = _rows()
    with _table(folder, sync=SyncPolicy.NONE) as table, neve.open(str(folder)) as lake:
        table.put(first)
        with lake.table("b.r", read_only=True) as follower:
            follower.get(0)
            for row in rows:
                table.put(row)
            return {f"refresh after {len(rows)} puts": _count(follower.refresh)}


def _median(call: Callable[[Any], object], arguments: Sequence[Any]) -> dict[str, int]:
    counts = [_count(partial(call, each)) for each in arguments]
    return {what: median_low(count[what] for count in counts) for what in counts[0]}


def _count(call: Callable[[], object]) -> dict[str, int]:
    """Return the instructions of one call."""
    counts: Counter[str] = Counter(instructions=0, functions=0)

    def trace(frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counts["instructions"] += event == "opcode"
        return trace

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        counts["functions"] += event == "c_call"

    sys.setprofile(profile)
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
        sys.setprofile(None)
    # The two calls above that end the counting.
    counts["functions"] -= 2
    return dict(counts)


def main(arguments: Sequence[str]) -> None:
    """Print or keep the counts."""
    found = count_all()
    kept = kept_counts() or {}
    for call, counts in found.items():
        before = kept.get(call, {})
        words = [
            f"{count:,} {what} (kept: {before.get(what, '-')})" for what, count in counts.items()
        ]
        sys.stdout.write(f"{call}: {', '.join(words)}\n")
    if "--keep" in arguments:
        everything = json.loads(KEPT.read_text()) | {PYTHON: found}
        KEPT.write_text(json.dumps(everything, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
