"""Logs that were cut, emptied, deleted, swapped or replaced: never a row less without a word."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import neve
from neve.catalog.table import Table
from neve.errors import Corruption
from neve.wal.replay import RecoveryMode
from tests.conftest import Record
from tests.gates import Gate

COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "table": pa.string()}
SCHEMA = pa.schema(COLUMNS)
OPTIONS = neve.TableOptions(
    background=False, iceberg_publish="demand", log_bytes=32 << 10, memtable_bytes=1 << 20
)
ORDERS = "shop.orders"
OTHER = "shop.other"
ROWS = 100

Damage = Callable[[Path, Path, Random], None]


def cut(log: Path, _foreign: Path, rng: Random) -> None:
    os.truncate(log, rng.randrange(1, log.stat().st_size))


def cut_in_half(log: Path, _foreign: Path, _rng: Random) -> None:
    os.truncate(log, log.stat().st_size // 2)


def empty(log: Path, _foreign: Path, _rng: Random) -> None:
    os.truncate(log, 0)


def delete(log: Path, _foreign: Path, _rng: Random) -> None:
    log.unlink()


def delete_the_directory(log: Path, _foreign: Path, _rng: Random) -> None:
    shutil.rmtree(log.parent)


def delete_all_logs(log: Path, _foreign: Path, _rng: Random) -> None:
    shutil.rmtree(log.parent.parent)


def swap(log: Path, foreign: Path, _rng: Random) -> None:
    shutil.copyfile(foreign, log)


def link(log: Path, _foreign: Path, _rng: Random) -> None:
    moved = log.with_suffix(".moved")
    log.rename(moved)
    log.symlink_to(moved)


def link_to_nothing(log: Path, _foreign: Path, _rng: Random) -> None:
    log.unlink()
    log.symlink_to(log.with_suffix(".nowhere"))


def pipe(log: Path, _foreign: Path, _rng: Random) -> None:
    log.unlink()
    os.mkfifo(log)


def directory(log: Path, _foreign: Path, _rng: Random) -> None:
    log.unlink()
    log.mkdir()


def listening(log: Path, _foreign: Path, _rng: Random) -> None:
    log.unlink()
    with socket.socket(socket.AF_UNIX) as there, _at(log.parent):
        there.bind(log.name)


@contextmanager
def _at(place: Path) -> Iterator[None]:
    """Go to a directory: the name of a socket may not be long."""
    before = Path.cwd()
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)


DAMAGES: tuple[Damage, ...] = (
    *(cut, cut_in_half, empty, delete, delete_the_directory, delete_all_logs, swap),
    *(link, link_to_nothing, pipe, directory, listening),
)


def made(lake: Path | str, *, rows: int = ROWS) -> tuple[neve.Catalog, Table]:
    """Return a lake of two tables with rows that only the log has; the first is still open."""
    opened = neve.open(lake)
    other = opened.create_table(OTHER, SCHEMA, ["id"], options=OPTIONS)
    for number in range(rows):
        other.put({"id": -number, "table": OTHER})
    other.close()
    table = opened.create_table(ORDERS, SCHEMA, ["id"], options=OPTIONS)
    for number in range(rows):
        table.put({"id": number, "table": ORDERS})
    return opened, table


def logs_of(lake: Path, table: int) -> list[Path]:
    """Return the logs of a table, by the order in which the tables were made."""
    (place,) = lake.glob(f"tables/t{table:06}-*")
    return sorted(place.glob("wal/*/*.wal"), key=lambda log: log.name)


def rows_of(
    lake: Path, *, read_only: bool, recovery: RecoveryMode = RecoveryMode.TOLERATE_TORN_TAIL
) -> Sequence[Mapping[str, object]]:
    options = neve.TableOptions(background=False, recovery=recovery)
    with neve.open(lake, create=False) as opened:
        table = opened.table(ORDERS, read_only=read_only, options=options)
        return table.scan().to_arrow().sort_by("id").to_pylist()


@pytest.fixture(scope="module")
def closed_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake that was closed in good order; tests damage a copy."""
    lake = tmp_path_factory.mktemp("closed") / "lake"
    opened, _ = made(lake)
    opened.close()
    return lake


@pytest.fixture
def lake(closed_lake: Path, tmp_path: Path) -> Path:
    shutil.copytree(closed_lake, tmp_path / "lake")
    return tmp_path / "lake"


def test_a_copy_of_a_closed_lake_opens_with_all_its_rows(lake: Path) -> None:
    for read_only in (True, False, True):
        assert len(rows_of(lake, read_only=read_only)) == ROWS


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_log_of_a_closed_table_is_reported_with_its_file_and_rows(
    lake: Path, damage: Damage, read_only: bool
) -> None:
    (log,) = logs_of(lake, 2)

    damage(log, logs_of(lake, 1)[0], Random(1))

    with pytest.raises(Corruption, match=r"missing \([0-9]+ in all\)") as caught:
        rows_of(lake, read_only=read_only)
    assert str(caught.value.path).endswith("/wal/1/000001.wal")
    if damage not in (cut, cut_in_half):
        assert f"rows 1 to {ROWS} are missing ({ROWS} in all)" in caught.value.message


@pytest.mark.parametrize("recovery", [RecoveryMode.POINT_IN_TIME, RecoveryMode.SKIP_CORRUPT])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_recovery_that_accepts_the_loss_keeps_the_rest_and_writes_on(
    lake: Path, damage: Damage, recovery: RecoveryMode
) -> None:
    (log,) = logs_of(lake, 2)
    damage(log, logs_of(lake, 1)[0], Random(1))

    kept = rows_of(lake, read_only=False, recovery=recovery)
    assert len(kept) < ROWS
    assert all(row["table"] == ORDERS for row in kept)
    with neve.open(lake) as opened:
        options = neve.TableOptions(background=False, recovery=recovery)
        table = opened.table(ORDERS, options=options)
        table.put({"id": 7_000, "table": ORDERS})
        table.flush()
    # What is in the place of the old log holds nothing any more that is needed.
    assert len(rows_of(lake, read_only=False)) == len(kept) + 1


@pytest.mark.parametrize("damage", [cut_in_half, empty, delete, swap, pipe, link])
def test_verify_reports_logs_that_were_damaged_under_an_open_table(
    tmp_path: Path, damage: Damage
) -> None:
    opened, table = made(tmp_path / "lake")
    with opened:
        table.verify()
        damage(logs_of(tmp_path / "lake", 2)[0], logs_of(tmp_path / "lake", 1)[0], Random(1))

        with pytest.raises(Corruption, match="missing"):
            table.verify()


def test_something_else_among_the_logs_is_passed_over_when_it_is_a_plain_file(lake: Path) -> None:
    (log,) = logs_of(lake, 2)
    log.with_suffix(".wal.bak").write_bytes(b"a copy")
    (log.parent.parent / "notes.txt").write_text("plain")
    (log.parent.parent / "lost+found").mkdir()
    assert len(rows_of(lake, read_only=False)) == ROWS

    os.mkfifo(log.with_suffix(".strange"))

    with pytest.raises(Corruption, match="not a plain file"):
        rows_of(lake, read_only=False)


def test_a_mark_that_is_damaged_or_another_tables_is_reported(lake: Path) -> None:
    first, second = (next(lake.glob(f"tables/t{number:06}-*/wal.mark")) for number in (1, 2))
    whole = second.read_bytes()
    for content in (first.read_bytes(), whole[:-1], b"", whole[:-1] + bytes(1)):
        second.write_bytes(content)
        if content != whole:
            with pytest.raises(Corruption, match="mark"):
                rows_of(lake, read_only=True)

    assert len(rows_of(lake, read_only=False, recovery=RecoveryMode.SKIP_CORRUPT)) == ROWS
    assert len(rows_of(lake, read_only=True)) == ROWS


def test_a_renamed_table_keeps_its_log_and_a_new_one_of_its_name_has_another(lake: Path) -> None:
    with neve.open(lake) as opened:
        opened.rename_table(ORDERS, "shop.renamed")
        assert opened.table("shop.renamed").scan().count() == ROWS
        opened.create_table(ORDERS, SCHEMA, ["id"], options=OPTIONS).put({"id": 1, "table": "new"})
    assert rows_of(lake, read_only=True) == [{"id": 1, "table": "new"}]
    with neve.open(lake) as opened:
        opened.drop_table(ORDERS, purge=True)
        opened.create_table(ORDERS, SCHEMA, ["id"], options=OPTIONS)
    assert rows_of(lake, read_only=False) == []


def test_a_lake_in_memory_closes_and_opens() -> None:
    opened, table = made("memory://logs")
    table.close()
    assert opened.table(ORDERS).scan().count() == ROWS
    opened.close()


class _State:
    """A lake as it is found, before somebody damages a log."""

    def __init__(self, seed: int, place: Path) -> None:
        rng = Random(seed)
        self.lake = place / "found"
        self.expected: Sequence[Mapping[str, object]] = []
        opened, table = made(place / "lake", rows=30)
        with opened:
            count = 30
            for _ in range(rng.choice((0, 1, 3))):
                table.engine.writer._log.log.rotate()
                for _ in range(rng.randrange(1, 20)):
                    table.put({"id": count, "table": ORDERS})
                    count += 1
                if rng.random() < 0.2:
                    table.flush()
            self.expected = [{"id": number, "table": ORDERS} for number in range(count)]
            if rng.random() < 0.5:
                # What a killed process leaves: the files as they are now.
                shutil.copytree(place / "lake", self.lake)
        if not self.lake.exists():
            (place / "lake").rename(self.lake)


def test_no_damage_to_a_log_gives_fewer_rows_or_foreign_ones_without_a_word(
    tmp_path: Path, scoreboard: Record
) -> None:
    gate = Gate("R26 damaged logs: silently missing or foreign rows", aim=300, full=2_000)
    for seed in gate.seeds():
        place = tmp_path / f"{seed}"
        place.mkdir()
        state = _State(seed, place)
        assert rows_of(state.lake, read_only=True) == state.expected
        rng = Random(seed)
        foreign = logs_of(state.lake, 1)[0]
        for damage in DAMAGES:
            copy = place / "damaged"
            shutil.copytree(state.lake, copy)
            damage(rng.choice(logs_of(copy, 2)), foreign, rng)
            with suppress(Corruption):
                assert rows_of(copy, read_only=True) == state.expected, (seed, damage)
            with suppress(Corruption):
                assert rows_of(copy, read_only=False) == state.expected, (seed, damage)
            shutil.rmtree(copy)
            gate.cases += 1
        shutil.rmtree(place)
    scoreboard(gate.line())
