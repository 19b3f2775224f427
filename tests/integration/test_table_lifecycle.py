"""How tables are opened and let go of: nothing is left behind, whoever forgets to close."""

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

import neve
from neve.engine.table_engine import TableEngine
from neve.errors import Closed, Fenced, InvalidArgument, NotFound
from neve.table.table_context import TableParts
from tests.conftest import Record
from tests.gates import Gate

COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "v": pa.string()}
SCHEMA = pa.schema(COLUMNS)
WAIT_SECONDS = 20
pytestmark = pytest.mark.usefixtures("no_forgotten")
TINY = neve.TableOptions(sync="none", memtable_bytes=4_096, level0_files=2)

HOLD = """
import sys, neve
with neve.open(sys.argv[1]) as lake, lake.table("a.b") as table:
    table.put({"id": 7, "v": "held"})
    print("held", flush=True)
    sys.stdin.readline()
"""
READ = """
import sys, neve, psutil
import pyarrow as pa
before = psutil.Process().num_threads()
options = neve.TableOptions(background=False, sync="none")
schema = pa.schema({"id": pa.int64(), "v": pa.string(), "at": pa.int64()})
rules = {"order_by": "at", "keep_deletes": "1 hour"}
with neve.open(sys.argv[1]) as lake:
    for name, ruled in ("a.plain", {}), ("a.ruled", rules):
        table = lake.create_table(name, schema, ["id"], options=options, **ruled)
        for version in range(3):
            table.upsert([{"id": id, "v": "x" * id, "at": version} for id in range(20)])
            deletes = pa.table({"op": ["d"], "id": [version], "v": pa.nulls(1), "at": [9]})
            table.apply(deletes, op="op")
            table.flush()
            table.get(7), table.get_many([9, 3, 99]), table.scan("id > 3").count()
            table.scan("v like 'x%'").to_arrow()
        table.compact()
        table.verify(independent=True)
    print(psutil.Process().num_threads() - before)
"""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    place = tmp_path / "lake"
    with neve.open(place) as catalog:
        catalog.create_table("a.b", SCHEMA, ["id"])
    return place


@pytest.fixture
def holder(lake: Path) -> Iterator["subprocess.Popen[str]"]:
    """Yield a process that has the table open for writing."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lake)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def own_threads() -> list[str]:
    return sorted(each.name for each in threading.enumerate() if each.name.startswith("neve-"))


def has_ended(is_over: Callable[[], bool]) -> bool:
    """Wait for something that another thread does."""
    ends_at = time.monotonic() + WAIT_SECONDS
    waiting = threading.Event()
    while not is_over():
        if time.monotonic() > ends_at:
            return False
        waiting.wait(0.005)
    return True


def temporaries(place: Path) -> list[str]:
    return [path.name for path in place.rglob(".*") if path.is_file() and path.name != ".lock"]


# Leaks


@pytest.mark.parametrize("place", ["memory://lake", "disk"])
def test_reading_starts_no_thread_of_arrow_that_would_outlive_the_interpreter(
    place: str, tmp_path: Path
) -> None:
    """One that releases bytes of Python while the interpreter ends aborts the process."""
    command = [sys.executable, "-c", READ, place]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("0\n", 0), ran.stderr


def test_opening_writing_and_closing_over_and_over_leaks_nothing(
    lake: Path, scoreboard: Record
) -> None:
    gate = Gate("R25 leaks of descriptors, threads, files after cycles", aim=1_000, full=1_000)
    process = psutil.Process()

    def cycle(number: int) -> None:
        with neve.open(lake) as catalog, catalog.table("a.b", options=TINY) as table:
            table.put({"id": number % 50, "v": "x" * 100})
            if number % 5 == 0:
                table.flush()
            if number % 20 == 0:
                table.compact()
                table.expire(keep_last=1)
                table.collect_garbage(dry_run=False)
            with table.snapshot() as snapshot:
                assert snapshot.get(number % 50) is not None
            with catalog.table("a.b", read_only=True) as reader:
                assert reader.get(number % 50) is not None
            table.scan().count()

    for number in range(20):
        cycle(number)  # what is made once is there now
    gc.collect()
    descriptors, threads = process.num_fds(), process.num_threads()
    for number in gate.seeds():
        cycle(number)
        gate.cases += 1
    with neve.open(lake) as catalog, catalog.table("a.b") as table:
        table.compact(full=True)
        table.expire(keep_last=1)
        table.collect_garbage(dry_run=False)
        listed = table.files().num_rows
    gc.collect()

    leaks = {
        "descriptors": process.num_fds() - descriptors,
        "threads": process.num_threads() - threads,
        "own threads": len(own_threads()),
        "temporary files": len(temporaries(lake)),
        "data files": len(list(lake.rglob("*.parquet"))) - listed,
        "logs": max(0, len(list(lake.rglob("*.wal"))) - 2),
        "leases": len(list(lake.rglob("leases/[!.]*"))),
    }
    gate.violations = sum(max(count, 0) for count in leaks.values())
    scoreboard(gate.line())
    assert {name: count for name, count in leaks.items() if count > 0} == {}


def test_opening_and_closing_at_once_never_hangs(lake: Path) -> None:
    with neve.open(lake) as catalog:
        for _ in range(100):
            catalog.table("a.b").close()
    assert own_threads() == []


def test_rows_are_synced_in_the_background_when_writers_pause(lake: Path) -> None:
    options = neve.TableOptions(sync="interval", sync_interval_seconds=0.05)
    with neve.open(lake) as catalog, catalog.table("a.b", options=options) as table:
        # The second comes too soon after the first to sync by itself.
        table.put({"id": 1, "v": "a"})
        last = table.put({"id": 2, "v": "b"})
        log = table._open.engine.writer._buffer.log
        assert has_ended(lambda: log.durable_through >= last)


# Handles that are dropped


def test_a_table_that_is_forgotten_ends_its_threads_and_frees_the_lock(lake: Path) -> None:
    table: neve.Table | None = neve.open(lake).table("a.b", options=TINY)
    assert table is not None
    table.put({"id": 1, "v": "a"})
    gone = weakref.ref(table)
    assert own_threads() != []

    table = None
    gc.collect()

    assert gone() is None
    assert has_ended(lambda: own_threads() == [])
    with neve.open(lake) as catalog, catalog.table("a.b") as again:
        assert again.get(1) == {"id": 1, "v": "a"}


def test_a_table_that_is_forgotten_while_another_one_opens_is_closed(lake: Path) -> None:
    """Forgotten objects are noticed at any moment, also in the middle of an opening."""
    catalog = neve.open(lake)
    other = catalog.create_table("a.c", SCHEMA, ["id"])
    gc.disable()
    try:
        cycle: list[object] = [catalog.table("a.b", options=TINY)]
        cycle.append(cycle)
        del cycle  # only the collector finds it now

        def make_parts() -> TableParts:
            gc.collect()
            warehouse = catalog._stores
            return other._open.stored.parts(
                {}, recorder=warehouse.recorder, listener=warehouse.listener
            )

        def open_other() -> None:
            live = catalog._stores.live_tables
            acquired.append(
                live.acquire("other", read_only=False, options=None, make_parts=make_parts)
            )

        acquired: list[TableEngine] = []
        opening = threading.Thread(target=open_other, daemon=True)
        opening.start()
        opening.join(WAIT_SECONDS)
    finally:
        gc.enable()

    assert acquired, "opening waits for itself"
    acquired[0].close()
    assert has_ended(lambda: own_threads() == [])
    catalog.close()


def test_a_snapshot_that_is_forgotten_ends_its_lease(lake: Path) -> None:
    with neve.open(lake) as catalog, catalog.table("a.b", options=TINY) as table:
        table.put({"id": 1, "v": "a"})
        snapshot: neve.Snapshot | None = table.snapshot()
        assert snapshot is not None
        assert table.stats().open_snapshots == 1

        snapshot = None
        gc.collect()

        assert has_ended(lambda: table.stats().open_snapshots == 0)


def test_a_process_that_ends_without_closing_keeps_its_rows(lake: Path) -> None:
    script = "import neve, sys; t = neve.open(sys.argv[1]).table('a.b'); t.put({'id': 3, 'v': 'c'})"

    ended = subprocess.run(
        [sys.executable, "-c", script, str(lake)],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
    )

    assert ended.stderr == ""
    with neve.open(lake) as catalog, catalog.table("a.b") as table:
        assert table.get(3) == {"id": 3, "v": "c"}


def test_handles_of_one_table_share_what_is_open_until_the_last_one_ends(lake: Path) -> None:
    with neve.open(lake) as catalog:
        first, second = catalog.table("a.b"), catalog.table("a.b")
        first.put({"id": 1, "v": "a"})
        assert second.get(1) == {"id": 1, "v": "a"}

        first.close()
        with pytest.raises(Closed):
            first.get(1)
        second.put({"id": 2, "v": "b"})
        second.close()

        assert own_threads() == []
        with catalog.table("a.b") as third:
            assert third.scan().count() == 2


def test_other_options_for_a_table_that_is_open_are_refused(lake: Path) -> None:
    with neve.open(lake) as catalog, catalog.table("a.b", options=TINY) as table:
        table.put({"id": 1, "v": "a"})
        with pytest.raises(InvalidArgument, match="other options"):
            catalog.table("a.b", options=neve.TableOptions(memtable_bytes=1 << 20))


def test_a_closed_catalog_closes_its_tables_and_scans(lake: Path) -> None:
    catalog = neve.open(lake)
    table = catalog.table("a.b")
    table.put({"id": 1, "v": "a"})
    scan, snapshot = table.scan(), table.snapshot()

    catalog.close()
    catalog.close()

    for call in (
        lambda: table.get(1),
        lambda: table.put({"id": 1, "v": "b"}),
        lambda: table.upsert([{"id": 1, "v": "b"}]),
        lambda: table.delete(1),
        lambda: table.get_many([1]),
        table.scan,
        table.snapshot,
        table.flush,
        table.compact,
        table.verify,
        scan.to_arrow,
        scan.count,
        lambda: catalog.table("a.b"),
    ):
        with pytest.raises(Closed):
            call()
    with pytest.raises(Closed):
        snapshot.get(1)
    snapshot.close()
    assert own_threads() == []


def test_threads_that_open_one_handle_at_once_open_it_once(lake: Path) -> None:
    with neve.open(lake) as catalog:
        table = catalog.create_table("a.c", SCHEMA, ["id"], options=TINY)
        together = threading.Barrier(8)

        def write(number: int) -> None:
            together.wait(WAIT_SECONDS)
            table.put({"id": number, "v": ""})

        crew = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for each in crew:
            each.start()
        for each in crew:
            each.join()
        assert table.scan().count() == 8

        table.close()

        assert own_threads() == []


def test_a_writer_sweeps_what_dead_ones_left_a_day_ago(lake: Path) -> None:
    with neve.open(lake) as catalog:
        stored = catalog.load_table("a.b").stored
        folders = [lake / stored.paths.data, lake / stored.paths.manifest]
        elsewhere = lake / "elsewhere"
        for folder in (*folders, elsewhere):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".tmp-young").touch()
            (folder / ".tmp-old").touch()
            os.utime(folder / ".tmp-old", (0, 0))

        with catalog.table("a.b", options=neve.TableOptions(background=False)) as table:
            table._open.engine._sweep_once()

    assert not [folder for folder in folders if (folder / ".tmp-old").exists()]
    assert all((folder / ".tmp-young").exists() for folder in folders)
    assert (elsewhere / ".tmp-old").exists()


def test_a_dropped_table_takes_no_more_calls(lake: Path) -> None:
    with neve.open(lake) as catalog:
        table = catalog.table("a.b")
        table.put({"id": 1, "v": "a"})
        reader = catalog.table("a.b", read_only=True)
        catalog.drop_table("a.b")
        for use in (
            lambda: table.put({"id": 2, "v": "b"}),
            lambda: table.get(1),
            lambda: reader.get(1),
            lambda: reader.scan().to_arrow(),
        ):
            with pytest.raises(Closed, match="the table was dropped"):
                use()
        with pytest.raises(NotFound):
            catalog.table("a.b")


def test_a_table_that_another_process_drops_takes_no_more_writes(lake: Path) -> None:
    with neve.open(lake) as catalog, neve.open(lake) as other:
        table = catalog.table("a.b", options=neve.TableOptions(background=False))
        table.put({"id": 1, "v": "a"})
        other.drop_table("a.b")

        with pytest.raises(NotFound):
            table.flush()
        with pytest.raises(NotFound):
            table.put({"id": 2, "v": "b"})


# One writer


def test_a_second_process_cannot_write_and_can_read(
    lake: Path, holder: "subprocess.Popen[str]"
) -> None:
    with neve.open(lake) as catalog:
        with pytest.raises(Fenced, match="LOCK"):
            catalog.table("a.b")
        with catalog.table("a.b", read_only=True) as reader:
            assert reader.get(7) == {"id": 7, "v": "held"}

        holder.kill()
        holder.wait(WAIT_SECONDS)

        with catalog.table("a.b") as table:
            assert table.get(7) == {"id": 7, "v": "held"}


def test_a_second_catalog_of_the_same_process_cannot_write_either(lake: Path) -> None:
    with neve.open(lake) as first, neve.open(lake) as second:
        with first.table("a.b") as table:
            table.put({"id": 1, "v": "a"})
            with pytest.raises(Fenced):
                second.table("a.b")
        with second.table("a.b") as table:
            assert table.get(1) == {"id": 1, "v": "a"}


def test_an_open_that_fails_leaves_the_lock_and_the_epoch_to_others(lake: Path) -> None:
    with neve.open(lake) as catalog:
        with catalog.table("a.b") as table:
            table.put({"id": 1, "v": "a" * 50})
        (log,) = [path for path in lake.rglob("*.wal") if b"a" * 50 in path.read_bytes()]
        content = log.read_bytes()
        log.write_bytes(content.replace(b"a" * 50, b"a" * 49 + b"b") + bytes(100))

        strict = neve.TableOptions(recovery="absolute")
        with pytest.raises(neve.Corruption):
            catalog.table("a.b", options=strict)
        assert own_threads() == []
        log.write_bytes(content)

        with catalog.table("a.b") as again:
            assert again.get(1) == {"id": 1, "v": "a" * 50}


@pytest.mark.parametrize("call", ["put", "upsert", "delete", "flush", "compact"])
def test_a_writer_that_was_taken_over_is_fenced_and_its_rows_are_not_lost(
    lake: Path, call: str
) -> None:
    """A paused process whose lock was lost, as on a network file system, wakes up."""
    options = neve.TableOptions(background=False)
    with neve.open(lake) as catalog:
        table = catalog.table("a.b", options=options)
        table.put({"id": 1, "v": "a"})
        table._open.stored.writer_state.take_over()
        with pytest.raises(Fenced, match="writer epoch 1 has ended") as refused:
            table.flush()
        assert refused.value.hint

        calls: dict[str, Callable[[], object]] = {
            "put": lambda: table.put({"id": 2, "v": "b"}),
            "upsert": lambda: table.upsert([{"id": 2, "v": "b"}]),
            "delete": lambda: table.delete(1),
            "flush": table.flush,
            "compact": table.compact,
        }
        with pytest.raises(Fenced):
            calls[call]()
        assert table.get(1) == {"id": 1, "v": "a"}
        table.close()

        with catalog.table("a.b") as again:
            assert again.scan().to_arrow().to_pylist() == [{"id": 1, "v": "a"}]


def test_a_forked_child_refuses_to_write_and_leaves_the_parents_lock(lake: Path) -> None:
    script = """
import os, sys, warnings, neve
warnings.simplefilter("ignore")
lake = neve.open(sys.argv[1])
table = lake.table("a.b", options=neve.TableOptions(background=False))
table.put({"id": 1, "v": "a"})
pid = os.fork()
if pid == 0:
    try:
        table.put({"id": 2, "v": "child"})
        print("child wrote", flush=True)
    except neve.NeveError as error:
        print(type(error).__name__, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
table.put({"id": 3, "v": "parent"})
try:
    neve.open(sys.argv[1]).table("a.b")
except neve.Fenced:
    print("still locked", flush=True)
table.close()
"""
    said = subprocess.run(
        [sys.executable, "-c", script, str(lake)],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
    )

    assert said.stdout.split("\n")[:2] == ["Closed", "still locked"], said.stderr
    with neve.open(lake) as catalog, catalog.table("a.b") as table:
        assert set(table.scan().to_arrow()["id"].to_pylist()) == {1, 3}


def test_what_reads_keeps_the_handle_it_was_made_from(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        with lake.create_table("shop.orders", SCHEMA, ["id"]) as orders:
            orders.put({"id": 1, "v": "a"})
            orders.flush()

        assert lake.table("shop.orders").scan().to_arrow().num_rows == 1
        assert lake.table("shop.orders").snapshot().get(1) is not None
        assert lake.table("shop.orders").at(2).get(1) is not None
        assert sum(batch.num_rows for batch in lake.table("shop.orders").scan()) == 1
