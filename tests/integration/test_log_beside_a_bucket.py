"""A log on a disk beside a table in a bucket: it is used, found again, and never silently left."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.storage.memory_store import MemoryStore
from neve.testing.faulty_store import FaultyStore, Operation

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})


class Bucket:
    """A bucket in memory, opened as several processes would."""

    def __init__(self) -> None:
        self.objects = MemoryStore()

    def opened(self) -> tuple[Lake, FaultyStore]:
        store = FaultyStore(self.objects)
        return Lake(store), store

    def table(self, **given: object) -> neve.Table:
        lake, _ = self.opened()
        return lake.table("a.b", **given)  # type: ignore[arg-type]


@pytest.fixture
def bucket() -> Bucket:
    made = Bucket()
    made.opened()[0].create_table("a.b", SCHEMA, ["id"]).close()
    return made


def options(log: Path | None) -> neve.TableOptions:
    return neve.TableOptions(background=False, log=None if log is None else os.fspath(log))


def test_writes_go_to_the_disk_and_not_to_the_bucket(bucket: Bucket, tmp_path: Path) -> None:
    lake, store = bucket.opened()
    table = lake.table("a.b", options=neve.TableOptions(background=False), log=tmp_path / "wal")
    before = len(store.calls)

    for number in range(10):
        table.put({"id": number, "v": 0})

    assert store.calls[before:] == ()
    assert list((tmp_path / "wal").rglob("*.wal"))
    table.flush()
    assert [call for call in store.calls[before:] if call.operation is Operation.PUT]
    lake.close()


def test_rows_are_found_again_with_the_same_log(bucket: Bucket, tmp_path: Path) -> None:
    with bucket.table(options=options(tmp_path)) as table:
        table.put({"id": 1, "v": 1})

    with bucket.table(options=options(tmp_path)) as table:
        assert table.get(1) == {"id": 1, "v": 1}


def test_a_log_elsewhere_is_not_silently_left(bucket: Bucket, tmp_path: Path) -> None:
    with bucket.table(options=options(tmp_path / "one")) as table:
        table.put({"id": 1, "v": 1})

    for other in (None, tmp_path / "two"):
        with pytest.raises(neve.InvalidArgument, match="may have rows") as refusal:
            bucket.table(options=options(other))
        assert "/one" in str(refusal.value)
    with bucket.table(options=options(tmp_path / "one")) as table:
        table.flush()
    with bucket.table(options=options(None)) as table:
        assert table.get(1) == {"id": 1, "v": 1}


def test_rows_in_the_bucket_are_not_silently_left(bucket: Bucket, tmp_path: Path) -> None:
    with bucket.table(options=options(None)) as table:
        table.put({"id": 1, "v": 1})

    with pytest.raises(neve.InvalidArgument, match="log in the bucket"):
        bucket.table(options=options(tmp_path))
    with bucket.table(options=options(None)) as table:
        table.flush()
    with bucket.table(options=options(tmp_path)) as table:
        assert table.get(1) == {"id": 1, "v": 1}


def test_a_lost_machine_loses_only_what_was_not_flushed(bucket: Bucket, tmp_path: Path) -> None:
    with bucket.table(options=options(tmp_path)) as table:
        table.put({"id": 1, "v": 1})
        table.flush()
        table.put({"id": 2, "v": 2})

    given_up = neve.TableOptions(background=False, recovery="point_in_time")
    with bucket.table(options=given_up) as table:
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "v": 1}]
        table.put({"id": 3, "v": 3})
    with bucket.table(options=options(None)) as table:
        assert table.scan().count() == 2


def test_one_process_at_a_time_has_the_log(bucket: Bucket, tmp_path: Path) -> None:
    with bucket.table(options=options(tmp_path)), pytest.raises(neve.Fenced):
        bucket.table(options=options(tmp_path))


def test_a_follower_reads_the_log_on_its_machine(bucket: Bucket, tmp_path: Path) -> None:
    with bucket.table(options=options(tmp_path)) as table:
        table.put({"id": 1, "v": 1})

        assert bucket.table(options=options(tmp_path), read_only=True).scan().count() == 1
        assert bucket.table(options=options(None), read_only=True).scan().count() == 0


def test_a_lake_on_a_disk_has_its_log_there(tmp_path: Path) -> None:
    with neve.open(tmp_path / "lake") as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=options(tmp_path / "wal"))
        with pytest.raises(neve.InvalidArgument, match="bucket"):
            table.put({"id": 1, "v": 1})
