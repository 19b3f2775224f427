"""Lakes that releases wrote: every later one reads them, writes to them and keeps their history."""

import zipfile
from pathlib import Path

import pytest

import neve
from tests.compatibility import kept_lake
from tests.interop.iceberg_walk import Lineage, read_metadata, walk

LAKES = sorted((Path(__file__).parent / "lakes").glob("*.zip"))
TODAY = Path("today.zip")
"""The lake that the next release will keep."""
RULED = [each for each in (*LAKES, TODAY) if each.stem != "0.1.0"]


def test_there_is_a_lake_of_a_release() -> None:
    assert LAKES


@pytest.fixture(params=[*LAKES, TODAY], ids=lambda path: path.stem)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == TODAY:
        kept_lake.write(tmp_path / "lake")
        return tmp_path / "lake"
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


has_rules = pytest.mark.parametrize("lake", RULED, indirect=True, ids=lambda path: path.stem)


@has_rules
def test_rules_go_on_after_deletes_batches_and_transactions_of_the_release(lake: Path) -> None:
    with neve.open(lake) as opened:
        accounts, totals = opened.table(kept_lake.ACCOUNTS), opened.table(kept_lake.TOTALS)
        assert rows_of(accounts) == kept_lake.ACCOUNTS_NOW
        assert rows_of(totals) == kept_lake.TOTALS_NOW
        last = kept_lake.ACCOUNTS_NOW[5]
        stale = [last | {"id": key, "lsn": lsn - 1} for key, lsn in kept_lake.DELETED_AT.items()]

        accounts.upsert(stale)
        accounts.upsert([row | {"lsn": 0} for row in kept_lake.ACCOUNTS_NOW.values()])
        accounts.apply(
            [last | {"op": "u", "lsn": 99}], app_id=kept_lake.FEED, batch=kept_lake.BATCH
        )
        totals.put({"id": 1, "total": 1_000, "best": 4})

        assert accounts.last_batch(kept_lake.FEED) == kept_lake.BATCH
        assert rows_of(accounts) == kept_lake.ACCOUNTS_NOW
        assert totals.get(1) == {"id": 1, "total": 1_111, "best": 7}
        for table in (accounts, totals):
            table.compact(full=True)
            assert table.verify().is_sound
        assert rows_of(accounts) == kept_lake.ACCOUNTS_NOW


@has_rules
def test_a_consumer_goes_on_where_it_was(lake: Path) -> None:
    with neve.open(lake) as opened:
        accounts = opened.table(kept_lake.ACCOUNTS)
        accounts.flush()

        told = accounts.changes(consumer=kept_lake.CONSUMER).read_all()

        assert sorted(
            zip(told["id"].to_pylist(), told["_change_type"].to_pylist(), strict=True)
        ) == [
            (3, "delete"),
            (4, "insert"),
            (5, "insert"),
        ]


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
