"""Transactions of tables whose logs are in a bucket: groups in flight, and takeovers."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import neve
from neve.catalog.lake import Lake
from neve.catalog.transaction import LakeTransaction
from neve.errors import Conflict, Fenced, NeveError
from neve.manifest.decisions import Decisions
from neve.storage.memory_store import MemoryStore
from neve.testing.faulty_store import FaultyStore

NAMES = ("s.a", "s.b")
OPTIONS = neve.TableOptions(background=False, puts_in_flight=4)


def opened(objects: MemoryStore) -> Lake:
    """Open the bucket as another process would."""
    return Lake(FaultyStore(objects))


def made(objects: MemoryStore) -> tuple[Lake, list[neve.Table]]:
    lake = opened(objects)
    tables = [
        lake.create_table(name, {"id": "long", "v": "long"}, "id", options=OPTIONS)
        for name in NAMES
    ]
    for table in tables:
        table.upsert([{"id": key, "v": 0} for key in range(8)])
    return lake, tables


def write_both(tx: LakeTransaction, v: int) -> None:
    for name in NAMES:
        tx.table(name).put({"id": 1, "v": v})


def values(lake: Lake) -> list[int]:
    rows = [lake.table(name, options=OPTIONS).get(1) for name in NAMES]
    return [-1 if row is None else row["v"] for row in rows]


def test_groups_in_flight_count_every_commit() -> None:
    objects = MemoryStore()
    lake, (one, other) = made(objects)

    def add(tx: LakeTransaction) -> None:
        for name in NAMES:
            row = tx.table(name).get(2)
            assert row is not None
            tx.table(name).put({**row, "v": row["v"] + 1})

    def work(number: int) -> None:
        for turn in range(10):
            if number % 2:
                lake.retry(add, attempts=10_000)
            else:
                with one.transaction() as tx:
                    tx.put({"id": 100 + number, "v": turn})
            while True:
                row = one.get(3)
                assert row is not None
                if one.compare_and_put({**row, "v": row["v"] + 1}, row) is not None:
                    break

    with ThreadPoolExecutor(6) as pool:
        for each in [pool.submit(work, number) for number in range(6)]:
            each.result()

    assert [table.get(2) for table in (one, other)] == [{"id": 2, "v": 30}] * 2
    assert one.get(3) == {"id": 3, "v": 60}
    lake.close()
    with opened(objects) as lake:
        assert lake.table("s.a").get(3) == {"id": 3, "v": 60}
        assert lake.table("s.b").get(2) == {"id": 2, "v": 30}


@pytest.mark.parametrize("is_late", [False, True], ids=["before the decision", "after it"])
def test_a_writer_that_takes_over_settles_the_transaction(
    monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    objects = MemoryStore()
    lake, _held = made(objects)
    decide = Decisions.decide
    second: list[Lake] = []

    def take_over() -> None:
        second.append(opened(objects))
        second[0].table("s.a", options=OPTIONS)

    def slowly(decisions: Decisions, transaction: str, parts: dict[str, int]) -> bool:
        steps: list[Callable[[], object]] = [take_over]
        steps.insert(0 if is_late else 1, lambda: decide(decisions, transaction, parts))
        answers = [step() for step in steps]
        return any(answer is True for answer in answers)

    tx = lake.transaction()
    write_both(tx, 5)
    monkeypatch.setattr(Decisions, "decide", slowly)
    if is_late:
        tx.commit()
    else:
        with pytest.raises(Conflict, match="took over"):
            tx.commit()

    assert values(second[0]) == ([5, 5] if is_late else [0, 0])
    tx = lake.transaction()
    write_both(tx, 6)
    with pytest.raises(NeveError) as raised:
        tx.commit()
    assert isinstance(raised.value, Fenced | Conflict)
    assert values(second[0]) == ([5, 5] if is_late else [0, 0])
