"""The catalog on an S3 server: probes, races, lost answers."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

import neve
from neve.catalog.lake import Lake
from neve.errors import AlreadyExists, NeveError, NotFound, Unavailable
from neve.testing.faulty_store import Fault, Operation, PlannedFault
from neve.testing.s3_servers import MotoServer, S3Endpoint, locked_moto
from tests.conftest import Record
from tests.gates import TORTURE
from tests.integration.catalog_races import Ledger, check, work
from tests.unit.catalog.builders import a_file, a_table, an_append, with_renamed

pytestmark = pytest.mark.s3

WORKERS = 8
ROUNDS = 20 if TORTURE else 1


def opened(at: S3Endpoint, prefix: str, **options: str) -> Lake:
    return neve.open(at.location(prefix), storage_options=at.storage_options(**options))


def test_a_server_that_ignores_conditions_is_refused(prefix: str) -> None:
    with locked_moto(ignore_conditions=True) as server:
        with pytest.raises(Unavailable, match="If-None-Match") as refusal:
            opened(server.at, prefix)

        assert refusal.value.hint
        written = [each.path for each in server.application.requests if each.method == "PUT"]
        assert written
        assert not [path for path in written if "/manifest/" in path]


def test_a_server_that_lists_out_of_order_is_refused_until_it_is_said(
    seaweed: S3Endpoint, prefix: str
) -> None:
    with pytest.raises(Unavailable, match=r"listing=unordered|out of order"):
        opened(seaweed, prefix)

    with opened(seaweed, prefix, listing="unordered") as lake:
        a_table(lake)
        assert lake.list_tables() == ["shop.orders"]


def test_the_probes_run_before_the_first_catalog_only(moto: MotoServer, prefix: str) -> None:
    opened(moto.at, prefix)
    assert [each for each in moto.application.requests if "/probe-" in each.path]

    moto.application.follow([])
    opened(moto.at, prefix)

    assert not [each for each in moto.application.requests if each.method != "GET"]


def test_a_table_lives_its_life_on_s3(moto: MotoServer, prefix: str) -> None:
    with opened(moto.at, prefix) as lake:
        table = a_table(lake, partition_by=["day(ts)"], properties={"owner": "anna"})
        table.commit([an_append(1, a_file("a", partition={1000: None}))])
        table.update_schema(with_renamed(table.schema, "customer", "client"))
        lake.rename_table("shop.orders", "shop.sales")

    with opened(moto.at, prefix) as lake:
        table = lake.load_table("shop.sales")
        assert table.location == f"{moto.at.location(prefix)}/tables/{table.table_id}"
        assert table.history().column("operation").to_pylist() == ["CREATE", "APPEND", "EVOLVE"]
        assert table.stats().row_count == 10
        assert "customer" in table.at(1).schema
        assert lake.system_table("__files").num_rows == 2
        lake.drop_table("shop.sales", purge=True)
        assert lake.list_tables() == []


def test_threads_that_fight_over_names_lose_no_table(
    moto: MotoServer, prefix: str, scoreboard: Record
) -> None:
    opened(moto.at, prefix)
    barrier = Barrier(WORKERS)

    def run(me: int) -> Ledger:
        lake = opened(moto.at, prefix)
        barrier.wait()
        return work(lake, me, ROUNDS)

    with ThreadPoolExecutor(WORKERS) as pool:
        ledgers = list(pool.map(run, range(WORKERS)))

    figures = check(opened(moto.at, prefix), ledgers)
    scoreboard(f"R15 tables lost or doubled by {WORKERS} catalogs on S3: 0 ({figures})")


@pytest.mark.parametrize(
    "fault", [Fault.LOST, Fault.BUSY, Fault.BEFORE, Fault.CONFLICT, Fault.TWICE]
)
@pytest.mark.parametrize("place", ["catalog/segments", "catalog/HEAD", "version/"])
def test_an_operation_whose_answers_are_lost_happens_once(
    moto: MotoServer, prefix: str, fault: Fault, place: str
) -> None:
    with opened(moto.at, prefix) as lake:
        operations = (Operation.PUT_IF_ABSENT, Operation.PUT_IF_MATCH)
        moto.application.follow(
            [
                PlannedFault(fault=fault, operation=each, path_prefix=f"{prefix}/manifest/{place}")
                for each in operations
            ]
        )

        table = a_table(lake)
        table.update_sort_order(["id"])
        lake.rename_table("shop.orders", "shop.sales")

    moto.application.follow([])
    with opened(moto.at, prefix) as lake:
        assert lake.list_tables() == ["shop.sales"]
        assert lake.load_table("shop.sales").version == 2
        with pytest.raises(AlreadyExists):
            a_table(lake, "shop.sales")
        with pytest.raises(NotFound):
            lake.load_table("shop.orders")


def test_a_server_that_is_away_is_unavailable_and_nothing_changes(
    moto: MotoServer, prefix: str
) -> None:
    opened(moto.at, prefix)
    lake = opened(moto.at, prefix, patience_seconds="0.2", timeout_seconds="0.2")
    moto.application.follow([PlannedFault(fault=Fault.BEFORE, times=100_000)])

    with pytest.raises(NeveError) as failure:
        lake.create_namespace("shop")

    assert isinstance(failure.value, Unavailable)
    moto.application.follow([])
    assert lake.list_namespaces() == []
