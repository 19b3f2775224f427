"""Histories of concurrent transactions: checked for anomalies, with kills and with planted bugs."""

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

import neve
from neve.catalog.transaction import IsolationName, LakeTransaction
from neve.engine.joint_commits import JointCommits
from neve.engine.transaction import TableTransaction
from neve.memtable.memtable import Memtable
from neve.model.write_batch import SEQUENCE_MAX
from neve.table.table_view import Row, TableView
from neve.testing.histories import History
from tests.conftest import Record
from tests.crash.transacting_clients import history_of, last_lists, make_tables, run_clients
from tests.gates import Gate

REPOSITORY = Path(__file__).parents[2]
COUNT = 25
GET_AT = TableView.get_at


def lived(location: str, seed: int, isolation: IsolationName, count: int = COUNT) -> History:
    """Run clients on a lake, beside its background work; return their history."""
    lines: list[list[object]] = []
    with neve.open(location) as lake:
        held = make_tables(lake, seed)
        run_clients(lake, seed, isolation, lines.append, count=count)
        last = last_lists(lake)
        del held
    return history_of(lines, last)


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_histories_have_no_anomaly(
    isolation: IsolationName, tmp_path: Path, scoreboard: Record
) -> None:
    gate = Gate(
        f"{isolation} transactions in checked histories: anomalies", aim=5_000, full=200_000
    )

    for seed in gate.seeds():
        history = lived(str(tmp_path / str(seed)), seed, isolation)
        gate.cases += len(history._all)
        assert history.anomalies(serializable=isolation == "serializable") == [], f"seed {seed}"

    scoreboard(gate.line())


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_histories_with_kills_have_no_anomaly(
    isolation: IsolationName, tmp_path: Path, scoreboard: Record
) -> None:
    gate = Gate(f"kills among {isolation} transactions: anomalies", aim=20, full=500)
    location, lines = str(tmp_path / "lake"), list[list[object]]()
    random = Random(7)

    for seed in gate.seeds():
        lines += killed(location, seed, isolation, after=random.randrange(1, 120))
        gate.cases += 1
        with neve.open(location) as lake:
            last = last_lists(lake)
        found = history_of(lines, last).anomalies(serializable=isolation == "serializable")
        assert found == [], f"after kill {seed}"

    scoreboard(gate.line())


def killed(location: str, seed: int, isolation: str, *, after: int) -> list[list[object]]:
    """Run clients in a process, kill it after some lines, and return all that it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.transacting_clients", location, str(seed), isolation],
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    assert process.stdout is not None
    with process, process.stdout as output:
        heard = [output.readline() for _ in range(after)]
        process.kill()
        heard += output.readlines()
    return [json.loads(line) for line in heard if line.endswith(b"\n")]


# Registers and a bank: what every history must keep


def test_a_register_counts_every_commit(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        tables = make_tables(lake, 0)

        def count(name: str) -> None:
            def add(tx: LakeTransaction) -> None:
                row = tx.table(name).get(0)
                number = 1 if row is None else int(row["items"]) + 1
                tx.table(name).put({"id": 0, "items": str(number)})

            for _ in range(40):
                lake.retry(add, attempts=10_000)

        with ThreadPoolExecutor(4) as pool:
            for each in [pool.submit(count, "s.a") for _ in range(4)]:
                each.result()
        assert tables[0].get(0) == {"id": 0, "items": "160"}


def test_a_bank_keeps_its_money(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        tables = make_tables(lake, 0)
        for table in tables:
            table.upsert([{"id": key, "items": "100"} for key in range(4)])

        def total(tx: LakeTransaction) -> int:
            return sum(
                int(row["items"])
                for table in tables
                for row in tx.table(table.name).scan().to_pylist()
            )

        def work(number: int) -> None:
            random = Random(number)

            def move(tx: LakeTransaction) -> None:
                amount = random.randrange(50)
                for sign in (-1, 1):
                    table = tx.table(random.choice(tables).name)
                    row = table.get(random.randrange(4))
                    assert row is not None
                    table.put({**row, "items": str(int(row["items"]) + sign * amount)})

            for _ in range(25):
                lake.retry(move, attempts=10_000)
                with lake.transaction() as audit:
                    assert total(audit) == 1_200

        with ThreadPoolExecutor(4) as pool:
            for each in [pool.submit(work, number) for number in range(4)]:
                each.result()


# Bugs that the checker must find


def no_check(_transaction: TableTransaction, *_: object) -> bool:
    return True


def newest(memtable: Memtable, _sequence: int) -> Memtable:
    return memtable


def newest_row(view: TableView, key: bytes, _sequence: int) -> Row | None:
    return GET_AT(view, key, SEQUENCE_MAX)


def none(_commits: JointCommits, _engines: object) -> list[object]:
    return []


@pytest.mark.parametrize(
    ("owner", "name", "planted", "isolation"),
    [
        (TableTransaction, "check", no_check, "snapshot"),
        (TableTransaction, "has_reads", False, "serializable"),
        (Memtable, "as_of", newest, "snapshot"),
        (TableView, "get_at", newest_row, "snapshot"),
        (JointCommits, "moments", none, "snapshot"),
    ],
    ids=[
        "nothing is checked",
        "reads are not",
        "later writes are seen",
        "later rows are seen",
        "no common moment",
    ],
)
def test_a_planted_bug_is_found(
    owner: type,
    name: str,
    planted: Callable[..., object],
    isolation: IsolationName,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, planted)
    if name == "check":
        monkeypatch.setattr(TableTransaction, "check_unapplied", no_check)
    if name == "moments":
        monkeypatch.setattr(
            "neve.engine.table_engine.TableEngine.opened_at", Anything(), raising=False
        )
    found: list[str] = []
    for seed in range(1, 40):
        history = lived(f"memory://planted-{name}-{seed}", seed, isolation)
        found = history.anomalies(serializable=isolation == "serializable")
        if found:
            break

    assert found


class Anything:
    """Equals everything, whatever is stored in its place."""

    def __get__(self, *_: object) -> "Anything":
        return self

    def __set__(self, *_: object) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]
