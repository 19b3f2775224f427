"""Readers beside a live writer: read-only handles, snapshots, time travel, changed schemas."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import neve
from neve.errors import Closed, InvalidArgument, NotFound
from neve.model.schema import Column
from tests.conftest import Record
from tests.gates import Gate

COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "v": pa.int64(), "text": pa.string()}
BY_HAND = neve.TableOptions(background=False, sync="none")
TINY = neve.TableOptions(
    sync="none", memtable_bytes=8_192, level0_files=2, level1_bytes=65_536, file_bytes=16_384
)
WAIT_SECONDS = 60

Pair = tuple[neve.Table, neve.Table]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Yield a writer and a reader of another catalog, as two processes would have them."""
    with neve.open(tmp_path / "lake") as here, neve.open(tmp_path / "lake") as there:
        writer = here.create_table("a.b", pa.schema(COLUMNS), ["id"], options=BY_HAND)
        writer.put({"id": 0, "v": 0, "text": "first"})
        yield writer, there.table("a.b", read_only=True)


def fill(table: neve.Table, count: int, v: int) -> None:
    table.upsert([{"id": number, "v": v, "text": "t" * 50} for number in range(count)])


def widen(table: neve.Table, kind: pa.DataType) -> None:
    """Add a column `more` at the end."""
    schema = table.schema
    column = Column(field_id=schema.last_field_id + 1, name="more", type=kind, nullable=True)
    table._open.update_schema(
        replace(schema, columns=(*schema.columns, column), last_field_id=schema.last_field_id + 1)
    )


def listing(place: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in place.rglob("*")
        if path.is_file()
    }


# A read-only handle


def test_refresh_shows_logged_rows_flushed_rows_and_deletes(pair: Pair) -> None:
    writer, reader = pair
    assert reader.get(0) == {"id": 0, "v": 0, "text": "first"}

    writer.put({"id": 1, "v": 1, "text": "logged"})
    assert reader.get(1) is None
    assert reader.refresh().get(1) == {"id": 1, "v": 1, "text": "logged"}

    writer.put({"id": 1, "v": 2, "text": "overwritten"})
    writer.delete(0)
    writer.flush()
    reader.refresh()
    assert reader.get(1) == {"id": 1, "v": 2, "text": "overwritten"}
    assert reader.get(0) is None
    assert reader.scan().count() == 1

    writer.put({"id": 2, "v": 3, "text": "after the flush"})
    writer.compact(full=True)
    writer.expire(keep_last=1)
    writer.collect_garbage(dry_run=False)
    assert set(reader.refresh().scan().to_arrow()["v"].to_pylist()) == {2, 3}


def test_a_reader_that_never_refreshes_keeps_reading_while_files_go(pair: Pair) -> None:
    writer, reader = pair
    fill(writer, 100, 1)
    writer.flush()
    reader.refresh()
    for turn in range(2, 5):
        fill(writer, 100, turn)
        writer.compact(full=True)
        writer.expire(keep_last=1)
        writer.collect_garbage(dry_run=False)

    found = reader.scan().to_arrow()

    assert found.num_rows == 100
    assert len(set(found["v"].to_pylist())) == 1
    assert reader.get(5) is not None


@pytest.mark.parametrize(
    "call",
    [
        "put",
        "upsert",
        "delete",
        "delete_many",
        "delete_where",
        "flush",
        "compact",
        "expire",
        "collect_garbage",
        "rollback",
    ],
)
def test_a_read_only_handle_refuses_to_write(pair: Pair, call: str) -> None:
    _, reader = pair
    arguments: dict[str, object] = {
        "put": {"id": 1, "v": 1, "text": ""},
        "upsert": [{"id": 1, "v": 1, "text": ""}],
        "delete": 0,
        "delete_many": [0],
        "delete_where": "id = 0",
        "rollback": 1,
    }
    given = [arguments[call]] if call in arguments else []

    with pytest.raises(InvalidArgument, match="reading only"):
        getattr(reader, call)(*given)

    assert reader.refresh().get(0) is not None


def test_a_read_only_handle_makes_no_log_and_changes_no_file(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    with neve.open(place) as lake:
        writer = lake.create_table("a.b", pa.schema(COLUMNS), ["id"], options=BY_HAND)
        fill(writer, 10, 1)
        writer.flush()
        fill(writer, 5, 2)
        writer.close()
    before = listing(place)

    with neve.open(place) as lake, lake.table("a.b", read_only=True) as reader:
        assert reader.get(1) == {"id": 1, "v": 2, "text": "t" * 50}
        assert reader.scan().count() == 10
        reader.refresh()
        reader.stats()
        reader.history()

    after = {name: facts for name, facts in listing(place).items() if "/leases/" not in name}
    assert after == {name: facts for name, facts in before.items() if "/leases/" not in name}


READ_ONLY_DISK = """
import sys, neve
with neve.open(sys.argv[1]) as lake, lake.table("a.b", read_only=True) as reader:
    assert reader.scan().count() == 10
    with reader.snapshot() as snapshot:
        assert snapshot.get(1) is not None
    reader.refresh()
    print(reader.get(9)["v"])
"""


def test_a_table_on_a_disk_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    with neve.open(place) as lake:
        writer = lake.create_table("a.b", pa.schema(COLUMNS), ["id"], options=BY_HAND)
        fill(writer, 10, 1)
        writer.flush()
        fill(writer, 5, 2)
        writer.close()
    script = [sys.executable, "-c", READ_ONLY_DISK, str(place)]
    if os.geteuid() == 0:
        # Nobody may write anywhere but root; so the disk itself says no.
        mounted = subprocess.run(
            ["mount", "--bind", "-o", "ro", str(place), str(place)],
            capture_output=True,
            check=False,
        )
        remounted = subprocess.run(
            ["mount", "-o", "remount,bind,ro", str(place)], capture_output=True, check=False
        )
        if mounted.returncode or remounted.returncode:
            subprocess.run(["umount", str(place)], capture_output=True, check=False)
            pytest.skip("nothing can be mounted here")
    else:
        for path in [*place.rglob("*"), place]:
            path.chmod(path.stat().st_mode & 0o555)
    try:
        said = subprocess.run(
            script, capture_output=True, text=True, check=False, timeout=WAIT_SECONDS
        )
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", str(place)], check=True)
        else:
            for path in [place, *place.rglob("*")]:
                path.chmod(path.stat().st_mode | 0o700)

    assert (said.stdout, said.returncode) == ("1\n", 0), said.stderr


def test_a_reader_beside_a_busy_writer_never_goes_back(tmp_path: Path, scoreboard: Record) -> None:
    gate = Gate("R12 refreshes beside a busy writer that went back or failed", aim=500, full=5_000)
    with neve.open(tmp_path / "lake") as here, neve.open(tmp_path / "lake") as there:
        writer = here.create_table("a.b", pa.schema(COLUMNS), ["id"], options=TINY)
        fill(writer, 20, 0)
        acknowledged = [0]
        stop, errors = threading.Event(), list[BaseException]()

        def write() -> None:
            random = Random(0)
            try:
                turn = 0
                while not stop.is_set():
                    turn += 1
                    fill(writer, 20, turn)
                    acknowledged[0] = turn
                    if random.random() < 0.05:
                        writer.compact()
            except BaseException as error:  # noqa: BLE001 - given to the test
                errors.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            with there.table("a.b", read_only=True) as reader:
                seen = 0
                for _ in gate.seeds():
                    least = max(seen, acknowledged[0])
                    reader.refresh()
                    rows = reader.scan(columns=["v"]).to_arrow()
                    stamps = {int(v.as_py()) for v in rows["v"]}
                    assert rows.num_rows == 20
                    assert len(stamps) == 1, f"parts of {len(stamps)} batches"
                    assert max(stamps) >= least, f"{max(stamps)} seen after {least}"
                    seen = max(stamps)
                    gate.cases += 1
        finally:
            stop.set()
            thread.join()
        scoreboard(gate.line())
        assert not errors


# Snapshots


def test_a_snapshot_is_the_same_through_flush_compaction_expiry_and_garbage(pair: Pair) -> None:
    writer, _ = pair
    fill(writer, 200, 1)
    writer.flush()
    fill(writer, 50, 2)
    with writer.snapshot() as snapshot:
        before = snapshot.scan(reverse=True).to_arrow()
        for turn in range(3, 6):
            fill(writer, 220, turn)
            writer.delete_many(list(range(0, 100, 3)))
            assert snapshot.scan(reverse=True).to_arrow().equals(before)
            writer.flush()
            assert snapshot.scan(reverse=True).to_arrow().equals(before)
            writer.compact(full=True)
            writer.expire(keep_last=1)
            writer.collect_garbage(dry_run=False)
            writer._open.engine.files.close()

            assert snapshot.scan(reverse=True).to_arrow().equals(before)
            row, old = snapshot.get(10), snapshot.get(150)
            assert row is not None
            assert old is not None
            assert (row["v"], old["v"], snapshot.get(210)) == (2, 1, None)
            assert snapshot.get_many([10, 150, 210])["v"].to_pylist() == [2, 1]
    with pytest.raises(Closed):
        snapshot.get(1)

    writer.expire(keep_last=1)
    assert writer.collect_garbage(dry_run=False).file_count > 0


def test_an_old_version_is_read_until_it_expires(pair: Pair) -> None:
    writer, reader = pair
    fill(writer, 30, 1)
    first = writer.flush()
    writer.tag("kept", first)
    fill(writer, 30, 2)
    second = writer.flush()
    fill(writer, 30, 3)
    writer.compact(full=True)

    with writer.at(version=second) as old:
        assert set(old.scan().to_arrow()["v"].to_pylist()) == {2}
    writer.expire(keep_last=1)
    writer.collect_garbage(dry_run=False)

    with pytest.raises(NotFound):
        writer.at(version=second)
    for table in (writer, reader.refresh()):
        with table.at(tag="kept") as tagged:
            assert set(tagged.scan().to_arrow()["v"].to_pylist()) == {1}
    writer.verify()


# A changed schema


def test_a_new_column_reaches_rows_that_are_not_flushed(pair: Pair) -> None:
    writer, reader = pair
    fill(writer, 3, 1)
    widen(writer, pa.string())
    writer.refresh()

    writer.put({"id": 1, "v": 9, "text": "x", "more": "new"})
    expected = {
        0: {"id": 0, "v": 1, "text": "t" * 50, "more": None},
        1: {"id": 1, "v": 9, "text": "x", "more": "new"},
    }

    def check(table: neve.Table) -> None:
        for key, row in expected.items():
            assert table.get(key) == row
        found = table.scan(reverse=True).to_arrow()
        assert found.column_names == ["id", "v", "text", "more"]
        assert found["more"].to_pylist() == [None, "new", None]

    check(writer)
    check(reader.refresh())
    writer.flush()
    check(writer)
    check(reader.refresh())
    writer.compact(full=True)
    check(writer)
    writer.verify()


def test_rows_logged_under_an_older_schema_are_replayed_under_the_new_one(tmp_path: Path) -> None:
    with neve.open(tmp_path / "lake") as lake:
        table = lake.create_table("a.b", pa.schema(COLUMNS), ["id"], options=BY_HAND)
        table.put({"id": 1, "v": 1, "text": "row"})
        table.upsert([{"id": 2, "v": 2, "text": "batch"}])
        widen(table, pa.int64())
        table.close()

        with lake.table("a.b", options=BY_HAND) as again:
            again.put({"id": 3, "v": 3, "text": "after", "more": 7})
            for _ in range(2):
                rows = again.scan(reverse=True).to_arrow().to_pylist()
                assert [row["more"] for row in rows] == [7, None, None]
                again.flush()


READ_ALL_WAYS = """
import sys
import neve

with neve.open(sys.argv[1]) as lake:
    table = lake.table("shop.orders")
    assert table.get(4)["name"] == "four"
    assert table.get_many([5, 4]).column("id").to_pylist() == [5, 4]
    assert table.scan().to_arrow().num_rows == 2
    assert table.scan(key_range=(5, None)).to_arrow().num_rows == 1
assert "pandas" not in sys.modules
"""


def test_the_first_reads_of_a_process_do_not_import_pandas(tmp_path: Path) -> None:
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "name": pa.string()}
    with neve.open(tmp_path) as lake:
        table = lake.create_table("shop.orders", schema=pa.schema(columns), primary_key=["id"])
        table.upsert([{"id": 4, "name": "four"}, {"id": 5, "name": "five"}])
        table.flush()
        table.put({"id": 5, "name": "5"})
    ran = subprocess.run(
        [sys.executable, "-c", READ_ALL_WAYS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
