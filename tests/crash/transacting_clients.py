"""Clients that transact at random on lists in several tables, and say what they did.

A line on standard output is `["begun", name, client, reads, appends]` before a commit and
`["ended", name, outcome]` after it. What was begun and never ended has an unknown outcome.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from random import Random
from threading import Thread

import neve
from neve.catalog.transaction import IsolationName, LakeTransaction
from neve.errors import Conflict
from neve.testing.histories import History, Outcome, Transaction

TABLES = ("s.a", "s.b", "s.c")
CLIENTS = 4
KEYS = 3
Say = Callable[[list[object]], None]


def options(seed: int) -> neve.TableOptions:
    return neve.TableOptions(
        sync=("group", "always")[seed % 2],
        memtable_bytes=4_096,
        log_bytes=65_536,
        level0_files=2,
        file_bytes=16_384,
        iceberg_publish="demand",
    )


def make_tables(lake: neve.Lake, seed: int) -> list[neve.Table]:
    return [
        lake.create_table(
            name, {"id": "long", "items": "string"}, "id", options=options(seed), exists_ok=True
        )
        for name in TABLES
    ]


class Client:
    """One client: transactions one after the other, each with numbers of its own."""

    def __init__(self, lake: neve.Lake, number: int, seed: int, isolation: IsolationName) -> None:
        self._lake = lake
        self._isolation = isolation
        self._random = Random(f"{seed}/{number}")
        self._name = f"{seed}.{number}"
        self._next = (seed * CLIENTS + number) * 100_000
        # Some histories are of one table: they take its own path.
        self._tables = TABLES[:1] if seed % 3 == 0 else TABLES

    def transact(self, place: int, say: Say) -> None:
        """Read some lists, append to some of them, and commit."""
        random = self._random
        lists = [(random.choice(self._tables), random.randrange(KEYS)) for _ in range(3)]
        name = f"{self._name}.{place}"
        tx = self._lake.transaction(self._isolation)
        try:
            reads = {listed(*each): self._read(tx, *each) for each in lists}
            appends: dict[str, list[int]] = {}
            for table, key in dict.fromkeys(lists[: random.choice((0, 1, 2, 2))]):
                self._next += 1
                appends[listed(table, key)] = [self._next]
                items = [*reads[listed(table, key)], self._next]
                tx.table(table).put({"id": key, "items": ",".join(map(str, items))})
        except Conflict:
            tx.rollback()
            return
        say(["begun", name, self._name, reads, appends])
        try:
            tx.commit()
        except Conflict:
            say(["ended", name, "refused"])
        else:
            say(["ended", name, "committed"])

    def _read(self, tx: LakeTransaction, table: str, key: int) -> list[int]:
        if self._random.random() < 0.3:
            rows = tx.table(table).scan(f"id = {key}").to_pylist()
            row = rows[0] if rows else None
        else:
            row = tx.table(table).get(key)
        return numbers(row)


def listed(table: str, key: int) -> str:
    return f"{table}/{key}"


def numbers(row: Mapping[str, object] | None) -> list[int]:
    return [] if row is None else [int(each) for each in str(row["items"]).split(",")]


def last_lists(lake: neve.Lake) -> dict[str, list[int]]:
    return {
        listed(name, row["id"]): numbers(row)
        for name in TABLES
        for row in lake.table(name).scan().to_pylist()
    }


def history_of(lines: Iterable[list[object]], last: Mapping[str, list[int]]) -> History:
    """Return the history that clients told."""
    lines = list(lines)
    ended = {str(line[1]): Outcome(str(line[2])) for line in lines if line[0] == "ended"}
    return History(
        [
            Transaction(
                name=str(name),
                client=str(client),
                outcome=ended.get(str(name), Outcome.UNKNOWN),
                reads=reads,  # type: ignore[arg-type]  # as told
                appends=appends,  # type: ignore[arg-type]
            )
            for kind, name, client, reads, appends in (each for each in lines if len(each) == 5)
            if kind == "begun"
        ],
        last,
    )


def run_clients(
    lake: neve.Lake, seed: int, isolation: IsolationName, say: Say, *, count: int
) -> None:
    """Run all clients at once, each for some transactions; raises what they raise."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        client = Client(lake, number, seed, isolation)
        try:
            for place in range(count):
                client.transact(place, say)
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure


def main(location: str, seed: int, isolation: IsolationName) -> None:
    """Transact until the process is killed."""

    def say(line: list[object]) -> None:
        # A whole line at once: what reached the pipe outlives the process.
        os.write(1, json.dumps(line).encode() + b"\n")

    lake = neve.open(location)
    _held = make_tables(lake, seed)
    say(["opened"])
    run_clients(lake, seed, isolation, say, count=100_000)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])  # type: ignore[arg-type]
