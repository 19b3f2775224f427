"""Copies of files of a bucket: bounded below the table, shared, checked, and never needed."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.storage.file_cache import CachedStore
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore
from neve.storage.posix_disk import PosixDisk
from neve.testing.disk_calls import CallKind
from neve.testing.faulty_disk import Failure, FaultyDisk
from neve.testing.s3_servers import MotoServer, S3Endpoint
from tests.integration.cached_reader import value_of

pytestmark = pytest.mark.s3

ROWS = 40_000
CACHE_BYTES = 4 << 20
# Files that are smaller than the largest copy, which is a quarter of the cache.
OPTIONS = neve.TableOptions(background=False, file_bytes=800_000)
COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "v": pa.binary()}
SCHEMA = pa.schema(COLUMNS)


@pytest.fixture(scope="module")
def large(running_moto: MotoServer) -> S3Endpoint:
    """Return where a table of ten times the cache is: its prefix is `large`."""
    at = running_moto.at
    running_moto.application.follow([])
    with neve.open(at.location("large"), storage_options=at.storage_options()) as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=OPTIONS)
        values = [value_of(number) for number in range(ROWS)]
        table.upsert(pa.table({"id": range(ROWS), "v": values}, schema=SCHEMA))
        table.flush()
        sizes: list[int] = table.files()["file_size_bytes"].to_pylist()  # type: ignore[assignment]
        assert sum(sizes) > 9.5 * CACHE_BYTES
        assert max(sizes) < CACHE_BYTES // 4
    return at


def started(at: S3Endpoint, seed: int, **more: str) -> "subprocess.Popen[str]":
    options = json.dumps(at.storage_options(cache_bytes=str(CACHE_BYTES), **more))
    arguments = [at.location("large"), options, str(seed), "60"]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.cached_reader", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(process: "subprocess.Popen[str]") -> dict[str, int]:
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    told: dict[str, int] = json.loads(printed)
    return told


def used(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir() if path.is_file())


@pytest.mark.parametrize("place", ["memory", "directory"])
def test_a_table_larger_than_the_cache_is_read_in_bounded_memory_and_space(
    large: S3Endpoint, tmp_path: Path, place: str
) -> None:
    copies = tmp_path / "copies"
    more = {"cache_directory": os.fspath(copies)} if place == "directory" else {}

    told = answer(started(large, 0, **more))
    assert told["wrong"] == 0
    assert told["grown"] < 6 * CACHE_BYTES
    assert place == "memory" or 0 < used(copies) <= CACHE_BYTES


def test_processes_that_share_a_directory_read_right_answers_in_its_bounds(
    large: S3Endpoint, tmp_path: Path
) -> None:
    readers = [started(large, seed, cache_directory=os.fspath(tmp_path)) for seed in range(3)]

    assert [answer(each)["wrong"] for each in readers] == [0, 0, 0]
    # Each may have added one file since the others looked.
    assert used(tmp_path) <= CACHE_BYTES * 2


# A directory that is damaged, full, read-only or not there: it costs requests, never an answer


class Bucket:
    """A bucket in memory with a table of two files, opened through a cache on a disk."""

    def __init__(self, name: str) -> None:
        self.objects = MemoryStore(name)
        self.expected = [{"id": number, "v": value_of(number)} for number in range(200)]
        with Lake(self.objects) as lake:
            table = lake.create_table("a.b", SCHEMA, ["id"], options=OPTIONS)
            for half in (self.expected[:100], self.expected[100:]):
                table.upsert(half)
                table.flush()

    def check(self, copies: LocalStore) -> None:
        """Read everything, by key and in order, and write one row."""
        store = CachedStore(self.objects, copies, bytes_max=64 << 20)
        with Lake(store) as lake:
            table = lake.table("a.b", options=OPTIONS)
            found = [table.get(row["id"]) for row in self.expected]
            assert found == self.expected
            assert table.scan().to_arrow().sort_by("id").to_pylist() == self.expected
            table.put(self.expected[0])
            table.flush()
            assert table.get(0) == self.expected[0]
            table.verify()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("at", [1, 3])
def test_a_directory_that_is_full_or_read_only_costs_no_answer(
    tmp_path: Path, number: int, at: int
) -> None:
    disk = FaultyDisk(PosixDisk())
    copies = LocalStore(os.fspath(tmp_path), disk=disk)
    bucket = Bucket("full")
    disk.plan(Failure(at=at, kind=CallKind.CREATE_FILE, number=number, is_lasting=True))

    bucket.check(copies)


def test_copies_that_were_damaged_are_read_again(tmp_path: Path) -> None:
    bucket = Bucket("damaged")
    bucket.check(LocalStore(os.fspath(tmp_path)))
    copies = [*tmp_path.glob("*-rest"), *tmp_path.glob("*-part")]
    assert copies
    for at, copy in enumerate(copies):
        payload = bytearray(copy.read_bytes())
        payload[at % len(payload)] ^= 1
        copy.write_bytes(payload[: len(payload) - at % 2])

    bucket.check(LocalStore(os.fspath(tmp_path)))


def test_two_lakes_and_files_of_others_share_a_directory(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a copy")
    first, second = Bucket("first"), Bucket("second")
    second.expected = second.expected[:50]
    with Lake(second.objects) as lake:
        lake.table("a.b", options=OPTIONS).delete_where("id >= 50")
    for bucket in (first, second, first):
        bucket.check(LocalStore(os.fspath(tmp_path)))

    assert (tmp_path / "notes.txt").read_text() == "not a copy"


def test_a_directory_that_cannot_be_made_is_said_and_copies_are_in_memory(
    moto: MotoServer, prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    at = moto.at
    (tmp_path / "file").write_text("")
    options = at.storage_options(cache_directory=os.fspath(tmp_path / "file" / "copies"))
    with neve.open(at.location(prefix), storage_options=options) as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=OPTIONS)
        table.put({"id": 1, "v": b"x"})
        table.flush()
        assert table.get(1) == {"id": 1, "v": b"x"}

    assert "could not open the directory of copies" in caplog.text
