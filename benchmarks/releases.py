"""Two checkouts of neve beside each other: the same calls, in turns, each in a process of its own.

    python -m benchmarks.releases OLDER/src [NEWER/src] [--rows N] [--turns N]

Each turn runs all calls once with either checkout, the first one alternating. The page shows the
median of the CPU seconds of each call, and the newer one's by the older one's. Only public calls
are used that both have.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

import pyarrow as pa

ROWS: Final = 200_000
TURNS: Final = 5
SINGLE_ROWS: Final = 20_000
GETS: Final = 20_000
BATCH_ROWS: Final = 10_000
_ROOT: Final = Path(__file__).parents[1]

Seconds = dict[str, float]


@contextmanager
def _measured(name: str, into: Seconds) -> Iterator[None]:
    before = time.process_time()
    yield
    into[name] = time.process_time() - before


def batch(first: int, count: int) -> pa.Table:
    """Return rows with a number, a text and a float."""
    numbers = pa.array(range(first, first + count), pa.int64())
    return pa.table(
        {
            "id": numbers,
            "name": pa.array([f"name-{number:012}" for number in range(first, first + count)]),
            "amount": numbers.cast(pa.float64()),
        }
    )


def measure(rows: int) -> Seconds:
    """Run every call once on a new lake; returns CPU seconds by name."""
    import neve  # noqa: PLC0415 - which one, the path says

    random, found = Random(7), Seconds()
    keys = [random.randrange(rows) for _ in range(GETS)]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *list(batch(0, 1).schema)[1:]])
    options = neve.TableOptions(background=False, sync="none")
    with tempfile.TemporaryDirectory(prefix="neve-releases-") as place:
        with neve.open(place) as lake:
            table = lake.create_table("b.t", schema, ["id"], options=options)
            with _measured("put, not synced", found):
                for number in range(SINGLE_ROWS):
                    table.put({"id": number, "name": "n", "amount": 0.5})
            batches = [batch(first, BATCH_ROWS) for first in range(0, rows, BATCH_ROWS)]
            with _measured("upsert of batches", found):
                for each in batches:
                    table.upsert(each)
            with _measured("flush and publish", found):
                table.flush()
            with _measured("get from files", found):
                for key in keys:
                    table.get(key)
            with _measured("get_many", found):
                table.get_many(keys)
            with _measured("scan", found):
                table.scan().to_arrow()
            with _measured("ordered scan", found):
                table.scan(key_range=(0, rows)).to_arrow()
            for each in batches[::4]:
                table.upsert(each)
                table.flush()
            with _measured("scan after updates", found):
                table.scan().to_arrow()
            with _measured("ordered scan after updates", found):
                table.scan(key_range=(0, rows)).to_arrow()
            with _measured("changes", found):
                table.changes(since=1).read_all()
            with _measured("compact", found):
                table.compact(full=True)
            with _measured("delete_many", found):
                table.delete_many(keys)
            table.upsert(batches[0])
        with _measured("reopen", found), neve.open(place) as lake:
            lake.table("b.t", options=options).get(1)
    return found


def _run(source: str, rows: int) -> Seconds:
    # Both measure with this file, and each imports its own neve.
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{_ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.releases", "--measure", "--rows", str(rows)],
        env=environment,
        cwd=source,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds: Seconds = json.loads(done.stdout)
    return seconds


def page(older: list[Seconds], newer: list[Seconds]) -> str:
    """Return the medians as a Markdown table."""
    lines = ["| call | older, CPU ms | newer | ratio |", "| --- | ---: | ---: | ---: |"]
    for name in older[0]:
        before, after = (median(each[name] for each in runs) * 1_000 for runs in (older, newer))
        lines.append(f"| {name} | {before:,.0f} | {after:,.0f} | {after / before:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Compare two checkouts, or measure the one that is on the path."""
    parser = argparse.ArgumentParser(prog="benchmarks.releases", description=__doc__)
    parser.add_argument("older", nargs="?", help="src of the older checkout")
    parser.add_argument("newer", nargs="?", default=str(_ROOT / "src"), help="of the newer one")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.rows)))
        return
    if options.older is None:
        parser.error("name the src directory of an older checkout")
    sources: dict[str, list[Seconds]] = {options.older: [], options.newer: []}
    order: Callable[[int], list[str]] = lambda turn: list(sources)[:: -1 if turn % 2 else 1]  # noqa: E731
    for turn in range(options.turns):
        for source in order(turn):
            sources[source].append(_run(source, options.rows))
    load = os.getloadavg()[0]
    print(f"{options.turns} turns, {options.rows:,} rows, load {load:.1f} at the end\n")
    print(page(*sources.values()))


if __name__ == "__main__":
    main()
