"""The catalog on the machine's own disk and in memory: many threads, processes, killed ones."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Barrier
from uuid import uuid4

import pytest

import neve
from neve.errors import AlreadyExists, Corruption, NotFound
from neve.storage.local_store import LocalStore
from tests.conftest import Record
from tests.gates import TORTURE
from tests.integration.catalog_races import Ledger, check, work
from tests.unit.catalog.builders import ORDERS, a_file, a_table, an_append, with_renamed

WORKERS = 8
ROUNDS = 50 if TORTURE else 4
KILLS = 40 if TORTURE else 4
ROOT = Path(__file__).parents[2]
SECONDS = 120

CREATE_AND_DROP_UNTIL_KILLED = """
import sys
import neve
from tests.unit.catalog.builders import a_table
lake = neve.open(sys.argv[1])
for number in range(1_000_000):
    a_table(lake, f"me.t{number}")
    print("created", number, flush=True)
    table = lake.load_table(f"me.t{number}")
    table.update_sort_order(["id"])
    print("sorted", number, flush=True)
    if number % 2:
        lake.drop_table(f"me.t{number}", purge=True)
        print("dropped", number, flush=True)
"""


@contextmanager
def python(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python that sees the tests."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        with process:
            yield process
    finally:
        process.kill()


def locations(tmp_path: Path) -> dict[str, str]:
    return {"disk": str(tmp_path / "lake"), "memory": f"memory://{uuid4()}"}


@pytest.mark.parametrize("where", ["disk", "memory"])
@pytest.mark.parametrize("share", [True, False], ids=["one catalog", "a catalog each"])
def test_threads_that_fight_over_names_lose_no_table(
    tmp_path: Path, where: str, *, share: bool, scoreboard: Record
) -> None:
    location = locations(tmp_path)[where]
    shared = neve.open(location)
    barrier = Barrier(WORKERS)

    def run(me: int) -> Ledger:
        lake = shared if share else neve.open(location)
        barrier.wait()
        return work(lake, me, ROUNDS)

    with ThreadPoolExecutor(WORKERS) as pool:
        ledgers = list(pool.map(run, range(WORKERS)))

    figures = check(neve.open(location), ledgers)
    scoreboard(f"R14 tables lost or doubled by {WORKERS} threads, {where}: 0 ({figures})")


def test_processes_that_fight_over_names_lose_no_table(tmp_path: Path, scoreboard: Record) -> None:
    location = str(tmp_path / "lake")
    neve.open(location)
    with ExitStack() as stack:
        workers = [
            stack.enter_context(
                python("-m", "tests.integration.catalog_races", location, str(me), str(ROUNDS))
            )
            for me in range(WORKERS)
        ]
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        printed = []
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        for worker in workers:
            assert worker.stdout is not None
            printed.append(worker.stdout.readline())
            assert worker.wait(SECONDS) == 0

    figures = check(neve.open(location), [Ledger(**json.loads(line)) for line in printed])
    scoreboard(f"R14 tables lost or doubled by {WORKERS} processes: 0 ({figures})")


ENSURE_AT_ONCE = """
import sys
import neve
lake = neve.open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    made = lake.create_table(f"a.t{number}", {"id": int, "x": str}, "id", exists_ok=True)
    print(made.table_id, flush=True)
"""


def test_processes_that_make_a_table_at_once_all_get_the_same_one(tmp_path: Path) -> None:
    location = str(tmp_path / "lake")
    neve.open(location).close()
    with ExitStack() as stack:
        workers = [
            stack.enter_context(python("-c", ENSURE_AT_ONCE, location, str(ROUNDS)))
            for _ in range(4)
        ]
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        told = []
        for worker in workers:
            assert worker.stdout is not None
            told.append(worker.stdout.read().split())
            assert worker.wait(SECONDS) == 0

    with neve.open(location) as lake:
        ids = [lake.load_table(f"a.t{number}").table_id for number in range(ROUNDS)]
    assert told == [ids] * len(workers)


def test_a_killed_process_leaves_a_catalog_that_opens_and_agrees_with_itself(
    tmp_path: Path,
) -> None:
    location = str(tmp_path / "lake")
    for kill in range(KILLS):
        told: list[list[str]] = []
        with python("-c", CREATE_AND_DROP_UNTIL_KILLED, location) as process:
            assert process.stdout is not None
            # Some lines further each time, so that different operations are cut.
            told.extend(process.stdout.readline().split() for _ in range(3 + kill))
            process.kill()
            told += [line.split() for line in process.stdout]

        lake = neve.open(location)
        report = lake.recover()

        assert not report.failures
        dropped = {number for what, number in told if what == "dropped"}
        for what, number in told:
            if what == "created" and number not in dropped:
                is_last = number == told[-1][1]
                assert lake.table_exists(f"me.t{number}") or is_last
            if what == "sorted" and number not in dropped and lake.table_exists(f"me.t{number}"):
                assert str(lake.load_table(f"me.t{number}").sort_order) == "id"
        for name in lake.list_tables():
            meta, table = lake.table_meta(name), lake.load_table(name)
            assert meta.sort_order == str(table.sort_order)
            lake.drop_table(name, purge=True)
        assert lake.list_tables() == []


def test_a_warehouse_can_be_moved(tmp_path: Path) -> None:
    with neve.open(str(tmp_path / "here")) as lake:
        table = a_table(lake)
        table.commit([an_append(1, a_file())])
    (tmp_path / "here").rename(tmp_path / "there")

    with neve.open(str(tmp_path / "there")) as lake:
        moved = lake.load_table("shop.orders")
        assert moved.location == f"{(tmp_path / 'there').as_uri()}/tables/{table.table_id}"
        assert moved.stats().row_count == 10


def test_what_one_process_changed_another_sees_at_once(tmp_path: Path) -> None:
    here, there = neve.open(str(tmp_path)), neve.open(str(tmp_path))
    table = a_table(here)

    other = there.load_table("shop.orders")
    other.update_schema(with_renamed(other.schema, "customer", "client"))
    there.rename_table("shop.orders", "shop.sales")

    assert here.list_tables() == ["shop.sales"]
    assert "client" in table.refresh().schema
    assert table.name == "shop.sales"
    with pytest.raises(AlreadyExists):
        a_table(here, "shop.sales")
    with pytest.raises(NotFound):
        here.load_table("shop.orders")


def test_foreign_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "manifest" / "catalog" / "segments").mkdir(parents=True)
    (tmp_path / "manifest" / "catalog" / "segments" / "README").write_text("mine")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / ".hidden").write_text("mine")

    with neve.open(str(tmp_path)) as lake:
        a_table(lake)
        lake.drop_table("shop.orders", purge=True)

    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "tables" / ".hidden").read_text() == "mine"


def test_a_link_out_of_the_warehouse_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    with neve.open(str(outside)) as lake:
        a_table(lake)
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "manifest").symlink_to(outside / "manifest")

    with pytest.raises(Corruption):
        neve.open(str(tmp_path / "lake"))


def test_a_purged_table_leaves_no_rows_behind(tmp_path: Path) -> None:
    with neve.open(str(tmp_path)) as lake:
        table = lake.create_table("shop.orders", ORDERS, primary_key=["id"])
        store = LocalStore(str(tmp_path))
        for name in ("a", "b"):
            store.put(table._open.stored.paths.data_file(name, partition_path="day=1"), b"rows")

        lake.drop_table("shop.orders", purge=True)

        assert not list(tmp_path.rglob("*.parquet"))


def test_a_catalog_with_many_changes_stays_small_and_quick_to_open(tmp_path: Path) -> None:
    with neve.open(str(tmp_path)) as lake:
        table = a_table(lake)
        for number in range(150):
            table.set_properties({"turn": str(number)})

    segments = list((tmp_path / "manifest" / "catalog" / "segments").iterdir())
    assert len(segments) < 150
    assert neve.open(str(tmp_path)).load_table("shop.orders").properties == {"turn": "149"}
