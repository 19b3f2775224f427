"""The writer that is killed: a seeded list of changes, and the process that makes them.

A line on standard output says what happened: `writer PID`, `done THREAD` for each change that
returned, `gone CODE` when a writer ended, `failed ERROR` when a change raised.
"""

import json
import os
import sys
import threading
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

import neve
from neve.catalog.lake import Lake
from neve.wal.log_options import SyncPolicy

THREADS = 2
CHANGE_KINDS = ("put", "upsert", "delete", "delete_many", "flush", "compact")
_WEIGHTS = (60, 15, 10, 8, 5, 2)
_KEYS = 300

Rows = dict[str, tuple[int, str]]
Change = tuple[str, list[str], int, str]
"""Kind, keys, stamp, text."""


def change_of(thread: int, place: int) -> Change:
    """Return one change of a thread's list; the same whoever asks."""
    random = Random(thread * 1_000_003 + place)
    kind = random.choices(CHANGE_KINDS, _WEIGHTS)[0]
    count = 1 if kind in ("put", "delete") else random.choice((1, 3, 40))
    keys = [f"k{random.randrange(_KEYS)}" for _ in range(count)]
    return kind, keys, place, f"{thread}-{place}-" + "x" * random.choice((0, 20, 300))


def apply_change(rows: Rows, change: Change) -> None:
    """Do to a dict what the change does to the table."""
    kind, keys, stamp, text = change
    for key in keys:
        if kind in ("put", "upsert"):
            rows[key] = (stamp, text)
        elif kind in ("delete", "delete_many"):
            rows.pop(key, None)


def make_change(table: neve.Table, thread: int, change: Change) -> None:
    """Make a change of the table."""
    kind, keys, stamp, text = change
    rows = [{"thread": thread, "id": key, "stamp": stamp, "text": text} for key in keys]
    match kind:
        case "put":
            table.put(rows[0])
        case "upsert":
            table.upsert(rows)
        case "delete":
            table.delete((thread, keys[0]))
        case "delete_many":
            table.delete_many([(thread, key) for key in keys])
        case "flush":
            table.flush()
        case _:
            table.compact()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the lake is: a directory, or a bucket with its options."""

    location: str
    storage_options: dict[str, str] = field(default_factory=dict)

    def opened(self) -> Lake:
        """Open the lake."""
        return neve.open(self.location, storage_options=self.storage_options or None)


def write_for_ever(place: Place, seed: int, starts: list[int]) -> None:
    """Open the table and change it by several threads until the process ends."""
    catalog = place.opened()
    # In a bucket, what is not synced is only in the memory of the process.
    every = (SyncPolicy.GROUP, SyncPolicy.NONE, SyncPolicy.ALWAYS, SyncPolicy.INTERVAL)
    policies = every[:1] if place.storage_options else every
    options = neve.TableOptions(
        sync=policies[seed % len(policies)],
        puts_in_flight=1 + seed % 3,
        memtable_bytes=8_192,
        log_bytes=65_536,
        level0_files=2,
        level1_bytes=65_536,
        level_ratio=2,
        file_bytes=16_384,
    )
    table = catalog.table("a.b", options=options)

    def write(thread: int) -> None:
        place = starts[thread]
        while True:
            try:
                make_change(table, thread, change_of(thread, place))
            except BaseException as error:
                say(f"failed {error!r}")
                raise
            say(f"done {thread}")
            place += 1

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def say(line: str) -> None:
    """Write a whole line at once: what reached the pipe outlives the process."""
    os.write(1, line.encode() + b"\n")


def nursery() -> None:
    """Fork a writer for each line of standard input, and say when it is gone."""
    # What is imported before a fork is there in every writer.
    neve.open("memory://warm").create_namespace("warm")
    pa.array([b""])
    for line in sys.stdin:
        lake, given, seed, *starts = line.rstrip("\n").split("\t")
        place = Place(lake, json.loads(given))
        pid = os.fork()
        if pid == 0:
            try:
                write_for_ever(place, int(seed), [int(start) for start in starts])
            except BaseException as error:
                say(f"failed {error!r}")
                raise
            finally:
                os._exit(1)
        say(f"writer {pid}")
        _, status = os.waitpid(pid, 0)
        say(f"gone {os.waitstatus_to_exitcode(status)}")
