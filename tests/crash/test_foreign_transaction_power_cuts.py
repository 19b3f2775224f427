"""A client's transaction over several tables, on a disk that loses power in any call: all or none.

It is run with the power cut in one call of the disk. Whatever the disk kept, opening the lake gives
both tables their new rows or neither, and an acknowledged transaction is there. Then the tables
can be written again.
"""

import io
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from random import Random
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.catalog import foreign_transaction
from neve.catalog.foreign_transaction import ForeignPart, ForeignTransactions
from neve.catalog.lake import Lake
from neve.iceberg.foreign_snapshots import ReadSnapshot
from neve.jobs.foreign_commit import ForeignSnapshot
from neve.jobs.foreign_files import ForeignFile
from neve.model.schema_json import Json
from neve.storage.local_store import LocalStore
from neve.testing.disk_calls import CHANGES
from neve.testing.power_loss import Survival
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import PowerCut, SimulatedDisk
from tests.conftest import Record
from tests.gates import Gate

ROOT: Final = "/srv/lake"
NAMES: Final = ("shop.one", "shop.two")
OLD: Final = {1: "old", 2: "old"}
NEW: Final = {1: "new", 2: "old", 3: "new"}
LATER_SECONDS: Final = 60.0
# Far from every divisor of the number of calls, so that the cuts of a short gate are spread.
STRIDE: Final = 97


def open_lake(disk: SimulatedDisk, *, seed: int, seconds: float = 0.0) -> Lake:
    clock, ids = SimulatedClock(), SeededIds(seed)
    clock.advance(seconds)
    return Lake(LocalStore(ROOT, disk=disk, clock=clock, ids=ids), clock=clock, ids=ids)


def rows_of(rows: Mapping[int, str]) -> pa.Table:
    keys, cities = pa.array(list(rows), pa.int64()), pa.array(list(rows.values()), pa.string())
    return pa.table({"id": keys, "city": cities})


def write_client_file(lake: Lake, name: str) -> str:
    """Write the file that a client adds; return where it is."""
    sink = io.BytesIO()
    rows = rows_of({key: city for key, city in NEW.items() if city == "new"})
    fields = [
        each.with_metadata({"PARQUET:field_id": str(number)})
        for number, each in enumerate(rows.schema, start=1)
    ]
    pq.write_table(rows.cast(pa.schema(fields)), sink)
    path = f"{lake.load_table(name).stored.paths.root}/clients/data/1.parquet"
    lake.guests.objects.put(path, sink.getvalue())
    return f"{lake.guests.objects.location}/{path}"


def read_given(snapshot: Mapping[str, Json], _fetch: Callable[[str], bytes]) -> ReadSnapshot:
    """Read a snapshot that names its file itself: manifests are not what is tested."""
    number = snapshot["snapshot-id"]
    assert isinstance(number, int)
    added = (ForeignFile(location=str(snapshot["file"])),)
    changes = ForeignSnapshot(added=added)
    return ReadSnapshot(snapshot_id=number, operation="append", schema_id=0, changes=changes)


@cache
def prepared() -> tuple[SimulatedDisk, tuple[ForeignPart, ...]]:
    """Return a disk with two tables and the files of a client, and what the client asks for."""
    disk = SimulatedDisk()
    lake = open_lake(disk, seed=1)
    parts: list[ForeignPart] = []
    for name in NAMES:
        lake.create_table(name, {"id": "long!", "city": "string"}, "id").close()
        with lake.bulk(name, upkeep=False) as job:
            job.upsert(rows_of(OLD))
        table = lake.load_table(name)
        snapshot: dict[str, Json] = {"snapshot-id": 7, "file": write_client_file(lake, name)}
        parts.append(
            ForeignPart(table_id=table.table_id, base_version=table.version, snapshots=(snapshot,))
        )
    lake.close()
    return disk, tuple(parts)


def fresh_disk() -> SimulatedDisk:
    return prepared()[0].after_power_cut(Random(0), survival=Survival.EVERYTHING)


def run(disk: SimulatedDisk) -> bool:
    """Commit the transaction; return whether it was acknowledged."""
    with suppress(PowerCut):
        lake = open_lake(disk, seed=2)
        ForeignTransactions(lake._stores).commit(prepared()[1], lambda: None)
        return True
    return False


def found_in(lake: Lake) -> list[dict[int, str]]:
    found: list[dict[int, str]] = []
    for name in NAMES:
        with lake.table(name, read_only=True) as table:
            rows = table.scan().to_arrow().to_pylist()
        found.append({row["id"]: row["city"] for row in rows})
        assert len(found[-1]) == len(rows)
    return found


def violations_after(cut: int, seed: int) -> list[str]:
    disk = fresh_disk().power_cut_at(cut)
    was_acknowledged = run(disk)
    survivor = disk.after_power_cut(Random(seed))
    lake = open_lake(survivor, seed=3, seconds=LATER_SECONDS)
    found = found_in(lake)
    problems: list[str] = []
    if found not in ([OLD, OLD], [NEW, NEW]) or (was_acknowledged and found != [NEW, NEW]):
        problems.append(f"cut in call {cut}, seed {seed}: {found}")
    for name, rows in zip(NAMES, found, strict=True):
        with lake.bulk(name, upkeep=False) as job:
            job.upsert(rows_of({4: "later"}))
        rows[4] = "later"
    if found_in(lake) != found:
        problems.append(f"cut in call {cut}, seed {seed}: a later write changed other rows")
    lake.close()
    return problems


def test_no_power_cut_commits_a_part_of_a_transaction(
    scoreboard: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_transaction, "read_snapshot", read_given)
    whole = fresh_disk()
    assert run(whole)
    changing = [n for n, call in enumerate(whole.log, start=1) if call.kind in CHANGES]
    gate = Gate("R34 power cuts in a client's transaction", aim=60, full=5 * len(changing))
    found: list[str] = []

    for seed in gate.seeds(at_least=12):
        cut = changing[seed * STRIDE % len(changing)]
        found += violations_after(cut, seed)
        gate.cases += 1

    gate.violations = len(found)
    scoreboard(gate.line())
    assert found == []


def test_a_lake_that_forgets_decided_transactions_would_be_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(foreign_transaction, "read_snapshot", read_given)
    whole = fresh_disk()
    assert run(whole)
    changing = [n for n, call in enumerate(whole.log, start=1) if call.kind in CHANGES]
    monkeypatch.setattr(ForeignTransactions, "finish", lambda _self: None)

    # The first table's commit is about two thirds on the way.
    middle = changing[len(changing) // 2 : len(changing) * 4 // 5 : 7]
    assert any(violations_after(cut, seed) for seed, cut in enumerate(middle))
