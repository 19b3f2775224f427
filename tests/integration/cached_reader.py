"""A process that reads a table in a bucket through a small cache, and says what that took.

`python -m tests.integration.cached_reader <location> <storage options as JSON> <seed> <gets>`
"""

import json
import random
import re
import sys
from pathlib import Path

import neve

VALUE_BYTES = 1_000


def value_of(number: int) -> bytes:
    """Return the value of a row, which does not compress."""
    return random.Random(number).randbytes(VALUE_BYTES)


def peak_bytes() -> int:
    """Return the most memory that this process has had; not what it had before it was executed."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 0 if found is None else int(found[1]) << 10


def main(location: str, options: str, seed: str, gets: str) -> None:
    """Get rows at random and scan all of them; print wrong answers, requests and peak memory."""
    given = json.loads(options)
    rng = random.Random(int(seed))
    with neve.open(location, storage_options=given, read_only=True) as lake:
        # Decoded groups count too; the table is several times as large as all of it.
        table = lake.table("a.b", options=neve.TableOptions(cache_bytes=4 << 20))
        count = table.scan().count()
        before = peak_bytes()
        wrong = 0
        for _ in range(int(gets)):
            number = rng.randrange(count)
            wrong += table.get(number) != {"id": number, "v": value_of(number)}
        seen = 0
        for batch in table.scan():
            for row in batch.slice(0, 20).to_pylist():
                wrong += row["v"] != value_of(row["id"])
            seen += batch.num_rows
        wrong += seen != count
        grown = peak_bytes() - before
        requests = {kind: each.requests for kind, each in table.stats().requests.items()}
    print(json.dumps({"wrong": wrong, "grown": grown, "requests": requests}))


if __name__ == "__main__":
    main(*sys.argv[1:])
