"""Lakes that releases wrote: every later one reads them, writes to them and keeps their history."""

import zipfile
from pathlib import Path

import pytest

import neve
from tests.compatibility import kept_lake
from tests.interop.iceberg_walk import Lineage, read_metadata, walk

LAKES = sorted((Path(__file__).parent / "lakes").glob("*.zip"))


def test_there_is_a_lake_of_a_release() -> None:
    assert LAKES


@pytest.fixture(params=LAKES, ids=lambda path: path.stem)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(tmp_path)
    return tmp_path / "lake"


def rows_of(table: neve.Table | neve.Snapshot) -> dict[object, kept_lake.Row]:
    return {row["id"]: row for row in table.scan().to_arrow().to_pylist()}


def lineage_of(table: neve.Table) -> Lineage:
    metadata = read_metadata(table.iceberg_metadata())
    return walk(metadata, metadata["current-snapshot-id"]).lineage()


def test_all_rows_are_there_also_those_in_the_log(lake: Path) -> None:
    with neve.open(lake) as opened:
        orders, words = opened.table(kept_lake.ORDERS), opened.table(kept_lake.WORDS)

        assert rows_of(orders) == kept_lake.CURRENT
        assert orders.get(15) is None
        assert orders.get(45) == kept_lake.CURRENT[45]
        found = words.get_many(list(kept_lake.TEXTS)).to_pylist()
        assert {row["word"]: row["raw"] for row in found} == kept_lake.TEXTS
        assert opened.list_namespaces() == ["empty", "notes", "shop"]


def test_history_is_there(lake: Path) -> None:
    with neve.open(lake, create=False) as opened:
        orders = opened.table(kept_lake.ORDERS)
        then = orders.at(tag=kept_lake.TAG)

        assert rows_of(then) == {
            number: {name: value for name, value in row.items() if name != "place"}
            for number, row in kept_lake.TAGGED.items()
        }
        operations = orders.history()["operation"].to_pylist()
        assert operations[:5] == ["CREATE", "APPEND", "REPLACE", "EVOLVE", "OVERWRITE"]


def test_it_takes_rows_and_upkeep_and_is_sound(lake: Path) -> None:
    with neve.open(lake) as opened:
        orders = opened.table(kept_lake.ORDERS)
        orders.put(kept_lake.order(7, "9.00", place="today"))
        orders.compact(full=True)
        orders.verify()

        expected = kept_lake.CURRENT | {7: kept_lake.order(7, "9.00", place="today")}
        assert rows_of(orders) == expected


def test_full_compaction_keeps_the_lineage_that_is_published_for_its_rows(lake: Path) -> None:
    with neve.open(lake) as opened:
        orders = opened.table(kept_lake.ORDERS)
        orders.flush()
        before = lineage_of(orders)

        orders.compact(full=True)

        assert len(before) == len(kept_lake.CURRENT)
        assert lineage_of(orders) == before
