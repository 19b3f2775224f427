"""A change feed as databases send it, an oracle for it, and the ways by which it reaches a table.

The feed has lives of some thousand events. The log position of an event is greater than that of all
earlier ones of its key, but events arrive shuffled in windows, deletes often before the row that
they delete, some events again, and some only in the next life. A life is cut into chunks of any
size, and each chunk takes one way:

    LIVE      through the process that writes the table
    BESIDE    from a second process, beside that writer
    ALONE     while no process writes

Every process makes the same feed from its seed, so nothing but numbers goes between them. A line on
standard output says what happened: `done CHUNK` for each chunk that was acknowledged, and `failed
ERROR` when one raised.

Each chunk goes into two tables: `shop.orders` has an order column; `shop.totals` has merge
functions, and relies on the numbers of batches.
"""

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa

import neve

EVENTS_PER_LIFE: Final = 10_000
KEYS: Final = 1_500
WINDOW: Final = 300
ORDERS: Final = "shop.orders"
TOTALS: Final = "shop.totals"
COLUMNS: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "lsn": pa.int64(),
    "name": pa.string(),
    "amount": pa.int64(),
    "least": pa.int64(),
    "seen": pa.bool_(),
}
MERGE: Final = {"amount": "sum", "least": "min", "seen": "bool_or", "lsn": "max", "name": "max"}
OPTIONS: Final = neve.TableOptions(
    memtable_bytes=131_072,
    log_bytes=262_144,
    level0_files=3,
    level1_bytes=262_144,
    file_bytes=65_536,
)

Row = dict[str, object]
Orders = dict[int, tuple[int, Row | None]]
"""By key, the greatest position and the row that was written there, None for a delete."""
Totals = dict[int, Row]


@dataclass(frozen=True, slots=True)
class Event:
    """One change of a key."""

    key: int
    lsn: int
    is_delete: bool

    def as_change(self) -> Row:
        """Return the event as a row with an operation; a delete has its key and position."""
        if self.is_delete:
            return {"op": "d", "id": self.key, "lsn": self.lsn}
        return {"op": "u" if self.lsn % 3 else "c", **self.row()}

    def row(self) -> Row:
        """Return the row that it writes."""
        return {
            "id": self.key,
            "lsn": self.lsn,
            "name": f"name {self.lsn:012}",
            "amount": self.lsn % 97 - 48,
            "least": -(self.lsn % 1_013),
            "seen": self.lsn % 5 == 0,
        }


@cache
def _sent(seed: int, life: int) -> tuple[Event, ...]:
    """Return the events of a life as the source made them."""
    random = Random(f"sent {seed} {life}")
    return tuple(
        Event(random.randrange(KEYS), life * 1_000_000 + place, random.random() < 0.25)
        for place in range(EVENTS_PER_LIFE)
    )


def arrived(seed: int, life: int) -> list[Event]:
    """Return the events of a life as they arrive: shuffled in windows, some again, some late."""
    random = Random(f"arrived {seed} {life}")
    events = list(_sent(seed, life))
    events += random.sample(events, EVENTS_PER_LIFE // 20)
    if life:
        events += random.sample(_sent(seed, life - 1), EVENTS_PER_LIFE // 20)
    moved = [(place + random.uniform(0, WINDOW), event) for place, event in enumerate(events)]
    return [event for _, event in sorted(moved, key=lambda each: each[0])]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some events that arrive together, and the way that they take."""

    number: int
    """Of all chunks of a seed; grows."""
    way: str
    events: tuple[Event, ...]

    def changes(self) -> list[Row]:
        """Return the events as rows with an operation."""
        return [event.as_change() for event in self.events]

    def amounts(self) -> list[Row]:
        """Return the changes of totals, which are never deleted."""
        return [{"op": "u", **event.row()} for event in self.events if not event.is_delete]


@cache
def chunks_of(seed: int, life: int) -> tuple[Chunk, ...]:
    """Cut a life into chunks; the last takes the way of a process that is alone."""
    random = Random(f"chunks {seed} {life}")
    events = arrived(seed, life)
    chunks: list[Chunk] = []
    while events:
        size = random.choice((1, 20, 200, 600))
        way = random.choice((*LIVE, *LIVE, *BESIDE)) if len(events) > size else "command"
        number = life * 10_000 + len(chunks)
        chunks.append(Chunk(number, way, tuple(events[:size])))
        events = events[size:]
    return tuple(chunks)


def follow_orders(known: Orders, events: Iterable[Event]) -> None:
    """Do to a dict what events do to a table with an order: the greatest position wins."""
    for event in events:
        if event.lsn >= known.get(event.key, (-1, None))[0]:
            known[event.key] = event.lsn, None if event.is_delete else event.row()


def follow_totals(known: Totals, events: Iterable[Event]) -> None:
    """Do to a dict what events do to a table with merge functions."""
    for event in events:
        if event.is_delete:
            continue
        new, old = event.row(), known.get(event.key)
        if old is None:
            known[event.key] = new
            continue
        known[event.key] = {
            "id": event.key,
            "amount": int(str(old["amount"])) + int(str(new["amount"])),
            "least": min(int(str(old["least"])), int(str(new["least"]))),
            "seen": bool(old["seen"] or new["seen"]),
            "lsn": max(int(str(old["lsn"])), event.lsn),
            "name": max(str(old["name"]), str(new["name"])),
        }


def create_tables(lake: neve.Lake) -> None:
    """Create both tables."""
    lake.create_table(ORDERS, pa.schema(COLUMNS), ["id"], order_by=["lsn"], options=OPTIONS)
    lake.create_table(TOTALS, pa.schema(COLUMNS), ["id"], merge=MERGE, options=OPTIONS)


class Writer:
    """The process that writes both tables."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open()

    def _open(self) -> None:
        self.lake = neve.open(self.path)
        self.orders = self.lake.table(ORDERS, options=OPTIONS, wait_seconds=60)
        self.totals = self.lake.table(TOTALS, options=OPTIONS, wait_seconds=60)

    def rest(self, number: int) -> None:
        """Do what tables do between two writes, decided by the number of a chunk."""
        random = Random(f"rest {number}")
        for table in (self.orders, self.totals):
            match random.choice(("", "", "", "flush", "flush", "compact", "refresh", "clean up")):
                case "flush":
                    table.flush()
                case "compact":
                    table.compact(full=random.random() < 0.3)
                case "refresh":
                    table.refresh()
                case "clean up":
                    table.expire(keep_last=2)
                    table.collect_garbage(dry_run=False)
                case _:
                    pass
        if random.random() < 0.03:
            self.lake.close()
            self._open()


def apply_live(writer: Writer, chunk: Chunk) -> None:
    """Apply changes as a consumer of a feed does; sometimes a batch is sent again."""
    random = Random(f"apply {chunk.number}")
    for _ in range(random.choice((1, 1, 2))):
        changes: neve.Rows = chunk.changes()
        if random.random() < 0.5:
            changes = pa.Table.from_pylist(
                chunk.changes(), pa.schema({"op": pa.string(), **COLUMNS})
            )
        writer.orders.apply(changes, app_id="live", batch=chunk.number)
        writer.totals.apply(chunk.amounts(), app_id="live", batch=chunk.number)


def write_plainly(writer: Writer, chunk: Chunk) -> None:
    """Write rows and deletes by themselves, in two calls and a few single ones."""
    random = Random(f"plain {chunk.number}")
    singles = random.sample(chunk.events, min(8, len(chunk.events)))
    for event in singles:
        if event.is_delete:
            writer.orders.apply([event.as_change()])
        else:
            writer.orders.put(event.row())
    rows = [event.row() for event in chunk.events if not event.is_delete]
    deletes = [event.as_change() for event in chunk.events if event.is_delete]
    if random.random() < 0.5:
        writer.orders.apply(deletes)
    writer.orders.upsert(rows)
    writer.orders.apply(deletes)
    writer.totals.apply(chunk.amounts(), app_id="live", batch=chunk.number)


def apply_beside(path: Path, chunk: Chunk) -> None:
    """Commit a chunk from another process; a job that lost too many races is run again."""
    with neve.open(path) as lake:
        for name, changes in ((ORDERS, chunk.changes()), (TOTALS, chunk.amounts())):
            for _ in range(20):
                try:
                    with lake.bulk(name, app_id="beside", batch=chunk.number) as job:
                        job.apply(changes)
                    break
                except neve.Conflict:
                    continue
            else:
                raise AssertionError(f"chunk {chunk.number} loses every race")


def apply_by_command(path: Path, chunk: Chunk) -> None:
    """Apply a chunk with the command line, twice."""
    file = path.with_name(f"chunk-{chunk.number}.jsonl")
    for name, changes in ((ORDERS, chunk.changes()), (TOTALS, chunk.amounts())):
        file.write_text("".join(json.dumps(each) + "\n" for each in changes))
        words = ["apply", name, str(file), "--app-id", "command", "--batch", str(chunk.number)]
        words += ["--order-by", "lsn"] if name == ORDERS else []
        said = subprocess.run(
            [sys.executable, "-m", "neve", *words, "--lake", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stderr
    file.unlink()


LIVE: Final[dict[str, Callable[[Writer, Chunk], None]]] = {
    "apply": apply_live,
    "plain": write_plainly,
}
BESIDE: Final[dict[str, Callable[[Path, Chunk], None]]] = {"bulk": apply_beside}
ALONE: Final[dict[str, Callable[[Path, Chunk], None]]] = {"command": apply_by_command}


def work(role: str, path: Path, seed: int, life: int, after: int) -> None:
    """Bring the chunks of a life into the tables that take the ways of a role, after a number."""
    writer = Writer(path) if role == "live" else None
    for chunk in chunks_of(seed, life):
        if chunk.number <= after:
            continue
        if writer is not None and chunk.way in LIVE:
            LIVE[chunk.way](writer, chunk)
        elif writer is None and chunk.way in BESIDE:
            BESIDE[chunk.way](path, chunk)
        else:
            continue
        say(f"done {chunk.number}")
        if writer is not None:
            writer.rest(chunk.number)
    if writer is not None:
        writer.lake.close()


def say(line: str) -> None:
    """Write a whole line at once: what reached the pipe outlives the process."""
    os.write(1, line.encode() + b"\n")


def nursery() -> None:
    """Fork a worker for each line of standard input, and say when it is gone."""
    # What is imported before a fork is there in every worker.
    neve.open("memory://warm").create_namespace("warm")
    for line in sys.stdin:
        role, path, *numbers = line.rstrip("\n").split("\t")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                work(role, Path(path), *map(int, numbers))
                code = 0
            except BaseException as error:
                traceback.print_exc()
                say(f"failed {error!r}")
                raise
            finally:
                os._exit(code)
        say(f"worker {pid}")
        _, status = os.waitpid(pid, 0)
        say(f"gone {os.waitstatus_to_exitcode(status)}")
