"""`neve.open`: locations, options, and what it loads."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import neve
from neve.catalog.lake import Lake
from neve.errors import InvalidArgument, NotFound, Unavailable
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectInfo
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.unit.catalog.builders import ORDERS


def test_a_directory_is_made_and_opened_again(tmp_path: Path) -> None:
    place = tmp_path / "new" / "lake"
    with neve.open(str(place)) as lake:
        lake.create_table("shop.orders", schema=ORDERS, primary_key=["id"])
        assert lake.location == place.as_uri()

    for location in (place.as_uri(), place):
        with neve.open(location, create=False) as lake:
            assert lake.list_tables() == ["shop.orders"]


def test_one_name_in_memory_is_one_warehouse() -> None:
    location = f"memory://{uuid4()}"
    neve.open(location).create_namespace("shop")

    assert neve.open(location).list_namespaces() == ["shop"]


def test_clock_and_ids_are_those_that_were_given() -> None:
    clock = SimulatedClock(now_ms=5)
    lake = neve.open(f"memory://{uuid4()}", clock=clock, ids=SeededIds(7))

    table = lake.create_table("shop.orders", schema=ORDERS, primary_key=["id"])

    assert table._open.current().timestamp_ms == 5


def test_without_create_nothing_is_made() -> None:
    with pytest.raises(NotFound, match="no lake"):
        neve.open(f"memory://{uuid4()}", create=False)


def test_without_create_a_missing_directory_stays_missing(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as refusal:
        neve.open(tmp_path / "lake", create=False)

    assert str(tmp_path / "lake") in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_without_create_a_directory_without_a_catalog_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(NotFound, match="no lake"):
        neve.open(tmp_path, create=False)

    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "location",
    ["", "ftp://x", "s3://", "memory://a/b", "s3://user:pw@b/x", None, 7, b"lake"],
)
def test_a_location_that_names_no_store_is_refused(location: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        neve.open(location)

    assert refusal.value.hint


class _IgnoresConditions(MemoryStore):
    """A store elsewhere that takes every write, like servers that do not know `If-None-Match`."""

    @property
    def location(self) -> str:
        return "s3://bucket/lake"

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        return self.put(path, payload)


class _ListsByDirectory(MemoryStore):
    """A store elsewhere that lists directory by directory."""

    @property
    def location(self) -> str:
        return "s3://bucket/lake"

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        found = super().list(prefix, after=after)
        return iter(sorted(found, key=lambda info: info.path.split("/")))


class _Elsewhere(MemoryStore):
    """A store elsewhere that keeps its promises."""

    @property
    def location(self) -> str:
        return "s3://bucket/lake"


def test_a_store_that_ignores_conditions_is_refused_and_left_empty() -> None:
    objects = _IgnoresConditions()

    with pytest.raises(Unavailable, match="If-None-Match"):
        Lake(objects)

    assert list(objects.list("")) == []


def test_a_store_that_lists_out_of_order_is_refused_with_the_option_that_helps() -> None:
    objects = _ListsByDirectory()

    with pytest.raises(Unavailable, match="listing=unordered"):
        Lake(objects)

    assert list(objects.list("")) == []


def test_a_store_elsewhere_is_probed_before_its_first_catalog_and_not_again() -> None:
    objects = _Elsewhere()
    Lake(objects)
    assert {info.path.partition("/")[0] for info in objects.list("")} == {"manifest"}
    before = [info.path for info in objects.list("")]

    Lake(objects)

    assert [info.path for info in objects.list("")] == before


def test_importing_neve_loads_no_arrow() -> None:
    script = (
        "import sys, neve; "
        "print([m for m in ('pyarrow', 'numpy', 'google.protobuf') if m in sys.modules])"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"


def test_opening_a_lake_loads_no_sql() -> None:
    script = (
        "import sys, neve; lake = neve.open('memory://x'); "
        "lake.create_table('a.b', {'id': 'long'}, 'id').scan().to_arrow(); "
        "print([m for m in ('duckdb', 'sqlglot', 'pyarrow.dataset') if m in sys.modules])"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"


def test_a_lake_that_is_made_is_told_of_and_one_that_is_there_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="neve")

    for _ in range(2):
        neve.open(tmp_path / "lkae").close()

    told = [each.getMessage() for each in caplog.records if "made a lake" in each.getMessage()]
    assert told == [f"made a lake location={(tmp_path / 'lkae').as_uri()}"]


@pytest.mark.parametrize("below", [".", "lake"])
def test_a_file_in_place_of_a_directory_is_told_as_one(tmp_path: Path, below: str) -> None:
    file = tmp_path / "orders.csv"
    file.touch()

    with pytest.raises(InvalidArgument) as caught:
        neve.open(file / below)

    assert caught.value.hint == "Use a directory, which may be new"
