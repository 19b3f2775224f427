"""Eight threads on one table with background work on, checked against the history of every key.

A key's values only grow. So a reader that saw value n may never see a smaller one afterwards, no
matter by which call, and never one that was not begun. A batch writes one stamp to many keys: a
reader sees the same stamp in all of them.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import neve
from neve.errors import NeveError
from tests.conftest import Record
from tests.gates import GATE_SECONDS, TORTURE

SECONDS = 120.0 if TORTURE else min(GATE_SECONDS, 10.0)
WRITERS = 3
KEYS_EACH = 40
BATCH_KEYS = 50
COLUMNS: dict[str, pa.DataType] = {"key": pa.string(), "count": pa.int64(), "text": pa.string()}
SCHEMA = pa.schema(COLUMNS)
TINY = neve.TableOptions(
    sync="none",
    memtable_bytes=16_384,
    log_bytes=65_536,
    level0_files=2,
    level1_bytes=65_536,
    level_ratio=2,
    file_bytes=16_384,
    cache_bytes=200_000,
)


@pytest.fixture(autouse=True)
def _threads_change_often() -> Iterator[None]:
    """Let Python change threads a thousand times as often as it does by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


class Histories:
    """What was begun and what was acknowledged, per key; deleted is a value too: an odd count."""

    def __init__(self) -> None:
        self.begun: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}

    def check(self, key: str, seen: int, least: int) -> None:
        assert seen >= least, f"{key}: {seen} seen after {least}"
        assert seen <= self.begun.get(key, 0), f"{key}: {seen} was never written"


class Crew:
    """Threads that run until time is up or one of them fails."""

    def __init__(self, seconds: float) -> None:
        self.errors: list[BaseException] = []
        self.rounds = 0
        self._stop = threading.Event()
        self._ends_at = time.monotonic() + seconds
        self._threads: list[threading.Thread] = []

    def add(self, work: Callable[[Random], None], seed: int) -> None:
        def run() -> None:
            random = Random(seed)
            try:
                while not self._stop.is_set() and time.monotonic() < self._ends_at:
                    work(random)
                    self.rounds += 1
            except BaseException as error:  # noqa: BLE001 - given to the test
                self.errors.append(error)
                self._stop.set()

        self._threads.append(threading.Thread(target=run))

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


@contextmanager
def open_table(place: Path) -> Iterator[neve.Table]:
    with neve.open(place / "lake") as lake:
        yield lake.create_table("a.b", SCHEMA, ["key"], options=TINY)


def writer_of(table: neve.Table, histories: Histories, writer: int) -> Callable[[Random], None]:
    """Return a writer of keys of its own: counts go up, a delete is the odd count in between."""

    def write(random: Random) -> None:
        key = f"w{writer}-{random.randrange(KEYS_EACH)}"
        count = histories.begun.get(key, 0) // 2 * 2 + 2
        histories.begun[key] = count
        table.put({"key": key, "count": count, "text": "x" * random.choice((1, 50, 400))})
        histories.acknowledged[key] = count
        if random.random() < 0.1:
            histories.begun[key] = count + 1
            table.delete(key)
            histories.acknowledged[key] = count + 1

    return write


def batch_writer_of(table: neve.Table) -> Callable[[Random], None]:
    """Return a writer that stamps all of its keys by one batch."""
    stamps = iter(range(1, 1_000_000_000))

    def write(random: Random) -> None:
        stamp = next(stamps)
        keys = [f"batch-{number}" for number in range(BATCH_KEYS)]
        random.shuffle(keys)
        texts = [f"{stamp}" * random.choice((1, 20))] * BATCH_KEYS
        table.upsert(pa.table({"key": keys, "count": [stamp] * BATCH_KEYS, "text": texts}))

    return write


def reader_of(table: neve.Table, histories: Histories) -> Callable[[Random], None]:
    """Return a reader that asks for one key in every way, one after the other."""
    seen: dict[str, int] = {}

    def ways(key: str) -> list[Callable[[], int | None]]:
        def count_in(rows: pa.Table) -> int | None:
            return rows.column("count")[0].as_py() if rows.num_rows else None

        def by_get() -> int | None:
            row = table.get(key)
            count = None if row is None else row["count"]
            assert count is None or isinstance(count, int)
            return count

        def by_snapshot() -> int | None:
            with table.snapshot() as snapshot:
                row = snapshot.get(key)
                again = count_in(snapshot.get_many([key]))
                scanned = count_in(snapshot.scan(neve.col("key") == key).to_arrow())
                assert (None if row is None else row["count"]) == again == scanned
                return again

        return [
            by_get,
            lambda: count_in(table.get_many([key])),
            lambda: count_in(table.scan(neve.col("key") == key).to_arrow()),
            lambda: count_in(table.scan(key_range=(key, key + "\0")).to_arrow()),
            by_snapshot,
        ]

    def read(random: Random) -> None:
        key = f"w{random.randrange(WRITERS)}-{random.randrange(KEYS_EACH)}"
        ask = ways(key)
        for _ in range(3):
            least = max(seen.get(key, 0), histories.acknowledged.get(key, 0))
            found = random.choice(ask)()
            if found is None:
                # Deleted, or not written yet: an odd count, or none.
                begun = histories.begun.get(key, 0)
                assert least == 0 or least % 2 or begun > least, f"{key} is gone"
                # It is at least the first delete that is not older than what was seen.
                seen[key] = least if least == 0 or least % 2 else least + 1
            else:
                histories.check(key, found, least)
                seen[key] = found

    return read


def batch_reader_of(table: neve.Table) -> Callable[[Random], None]:
    """Return a reader that asks for all keys of the batch at once, and finds one stamp."""
    keys = [f"batch-{number}" for number in range(BATCH_KEYS)]
    seen = [0]

    def read(random: Random) -> None:
        way = random.randrange(4)
        if way == 0:
            rows = table.get_many(keys)
        elif way == 1:
            rows = table.scan("key like 'batch-%'").to_arrow()
        elif way == 2:
            rows = table.scan(key_range=("batch-", "batch."), reverse=True).to_arrow()
        else:
            with table.snapshot() as snapshot:
                rows = snapshot.get_many(keys)
                again = snapshot.scan("key like 'batch-%'", columns=["count"]).to_arrow()
                assert set(again["count"].to_pylist()) == set(rows["count"].to_pylist())
        stamps = {int(stamp.as_py()) for stamp in rows["count"]}
        assert rows.num_rows in (0, BATCH_KEYS), f"{rows.num_rows} rows of a batch"
        assert len(stamps) <= 1, f"parts of {len(stamps)} batches: {sorted(stamps)}"
        stamp = max(stamps, default=0)
        assert stamp >= seen[0], f"stamp {stamp} seen after {seen[0]}"
        seen[0] = stamp

    return read


def tend(table: neve.Table) -> Callable[[Random], None]:
    """Return a thread that flushes, compacts, expires and collects as fast as it can."""

    def work(random: Random) -> None:
        match random.randrange(4):
            case 0:
                table.flush()
            case 1:
                table.compact()
            case 2:
                table.expire(keep_last=1)
                table.collect_garbage(dry_run=False)
            case _:
                table.stats()

    return work


def test_threads_never_see_an_older_value_after_a_newer_one_nor_half_a_batch(
    tmp_path: Path, scoreboard: Record
) -> None:
    histories = Histories()
    with open_table(tmp_path) as table:
        crew = Crew(SECONDS)
        for writer in range(WRITERS):
            crew.add(writer_of(table, histories, writer), writer)
        crew.add(batch_writer_of(table), 10)
        crew.add(reader_of(table, histories), 20)
        crew.add(reader_of(table, histories), 21)
        crew.add(batch_reader_of(table), 30)
        crew.add(tend(table), 40)

        crew.run()

        final = {row["key"]: row["count"] for row in table.scan().to_arrow().to_pylist()}
        expected = {key: count for key, count in histories.acknowledged.items() if count % 2 == 0}
        assert {key: n for key, n in final.items() if key.startswith("w")} == expected
        report = table.verify()
        versions = table.stats().version
    scoreboard(
        f"R12 8 threads on a table, {SECONDS:.0f} s: 0 of {crew.rounds:,} calls wrong, "
        f"{versions:,} versions"
    )
    assert report.is_sound


def test_a_scan_that_is_read_slowly_is_as_of_its_beginning(tmp_path: Path) -> None:
    with open_table(tmp_path) as table:
        rows = [{"key": f"{number:04}", "count": 0, "text": "t" * 100} for number in range(2_000)]
        table.upsert(rows)
        table.flush()
        scan = iter(table.scan(columns=["key", "count"]))
        table.put({"key": "zz", "count": 1, "text": ""})
        first = next(scan)
        for turn in range(1, 4):
            table.upsert([{**row, "count": turn} for row in rows])
            table.compact(full=True)
            table.expire(keep_last=1)
            table.collect_garbage(dry_run=False)

        found = pa.Table.from_batches([first, *scan])

        assert found.num_rows == 2_000
        assert set(found["count"].to_pylist()) == {0}


@pytest.mark.parametrize("threads", [2, 8])
def test_threads_that_delete_where_and_write_lose_nothing(tmp_path: Path, threads: int) -> None:
    with open_table(tmp_path) as table:

        def work(number: int) -> None:
            for turn in range(10):
                table.upsert(
                    [{"key": f"{number}-{i}", "count": turn, "text": None} for i in range(10)]
                )
                table.delete_where(f"key like '{number}-%' and count < {turn}")

        crew = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()

        found = table.scan().to_arrow()
        assert found.num_rows == threads * 10
        assert set(found["count"].to_pylist()) == {9}


def test_a_batch_of_many_pieces_has_one_moment(tmp_path: Path) -> None:
    """Two chunks of one Arrow table are one batch, although they are two changes of the log."""
    with open_table(tmp_path) as table:
        errors: list[BaseException] = []
        stop = threading.Event()

        def read() -> None:
            try:
                while not stop.is_set():
                    rows = table.scan(columns=["count"]).to_arrow()
                    assert len(set(rows["count"].to_pylist())) <= 1
                    assert rows.num_rows in (0, 20)
            except (AssertionError, NeveError) as error:
                errors.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        for turn in range(100):
            halves = [
                pa.table(
                    {"key": [f"{h}{i}" for i in range(10)], "count": [turn] * 10, "text": [""] * 10}
                )
                for h in "ab"
            ]
            table.upsert(pa.concat_tables(halves))
        stop.set()
        reader.join()

        assert not errors
