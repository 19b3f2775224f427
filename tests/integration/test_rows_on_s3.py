"""Rows in a bucket: a live writer, takeovers, followers, jobs and other engines, on two servers."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import neve
from neve.catalog.lake import Lake
from neve.catalog.table import open_table_of
from neve.jobs.maintenance import CommittedMaintenance
from neve.storage.bucket_log import BucketLogs
from neve.storage.object_store import AppendFiles, ObjectStore, RequestCount
from neve.storage.open_store import open_store
from neve.testing.append_contract import AppendFilesContract
from neve.testing.faulty_store import WRITES, Fault, Operation, PlannedFault
from neve.testing.s3_servers import MotoServer, S3Endpoint
from neve.testing.simulated_clock import SeededIds
from tests.conftest import Record
from tests.gates import Gate
from tests.interop.iceberg_readers import DuckDb
from tests.unit.jobs.bulk_jobs import Jobs

pytestmark = pytest.mark.s3

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})
BY_HAND = neve.TableOptions(background=False)
Opened = Callable[[], Lake]


class ContractOnAServer(AppendFilesContract):
    reserves_space = False


class TestLogsOnMoto(ContractOnAServer):
    @pytest.fixture
    def files(self, moto: MotoServer, prefix: str) -> tuple[AppendFiles, ObjectStore]:
        store = open_store(moto.at.location(prefix), storage_options=moto.at.storage_options())
        logs = BucketLogs(store, ids=SeededIds())
        return logs, logs


class TestLogsOnSeaweed(ContractOnAServer):
    @pytest.fixture
    def files(self, seaweed: S3Endpoint, prefix: str) -> tuple[AppendFiles, ObjectStore]:
        options = seaweed.storage_options(listing="unordered")
        store = open_store(seaweed.location(prefix), storage_options=options)
        logs = BucketLogs(store, ids=SeededIds())
        return logs, logs


@pytest.fixture(params=["moto", "seaweed"])
def opened(request: pytest.FixtureRequest, prefix: str) -> Opened:
    """Return a function that opens one lake, as another process would."""
    if request.param == "moto":
        at, options = request.getfixturevalue("moto").at, {}
    else:
        at, options = request.getfixturevalue("seaweed"), {"listing": "unordered"}
    return lambda: neve.open(at.location(prefix), storage_options=at.storage_options(**options))


def rows(*ids: int, v: int = 0) -> list[dict[str, int]]:
    return [{"id": number, "v": v} for number in ids]


def test_a_table_lives_its_life_in_a_bucket(opened: Opened) -> None:
    with opened() as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=BY_HAND)
        table.upsert(rows(*range(1_000)))
        first = table.flush()
        table.put({"id": 5, "v": 1})
        table.delete(6)
        table.delete_where("id >= 990")
        second = table.flush()
        table.upsert(rows(2_000, v=2))

        assert table.get(5) == {"id": 5, "v": 1}
        assert table.get(6) is None
        assert table.scan().count() == 990
        assert table.at(version=first).get(6) == {"id": 6, "v": 0}
        assert table.changes(since=first, until=second).read_all().num_rows == 13
        table.tag("kept", first)

    with opened() as lake:
        table = lake.table("a.b", options=BY_HAND)
        assert table.get(2_000) == {"id": 2_000, "v": 2}
        table.compact(full=True)
        table.expire(keep_last=1)
        table.collect_garbage(dry_run=False)
        assert table.verify().row_count == 990
        assert table.at(tag="kept").scan().count() == 1_000
        with table.evolve() as change:
            change.add_column("note", "string")
        table.put({"id": 1, "v": 9, "note": "x"})
        lake.rename_table("a.b", "a.c")

    with opened() as lake:
        assert lake.table("a.c", options=BY_HAND).get(1) == {"id": 1, "v": 9, "note": "x"}
        lake.drop_table("a.c", purge=True)
        assert lake.list_tables() == []


def test_the_next_writer_ends_the_last_one_and_loses_nothing(opened: Opened) -> None:
    first = opened().create_table("a.b", SCHEMA, ["id"], options=BY_HAND)
    first.upsert(rows(*range(100)))
    second = opened().table("a.b", options=BY_HAND)

    with pytest.raises(neve.Fenced):
        first.put({"id": 777, "v": 0})
    with pytest.raises(neve.NeveError):
        first.flush()
    second.put({"id": 100, "v": 0})
    second.flush()

    assert second.scan().count() == 101
    assert second.get(777) is None
    second.close()


def test_a_follower_reads_the_slots_of_a_live_writer(opened: Opened) -> None:
    writer = opened().create_table("a.b", SCHEMA, ["id"], options=BY_HAND)
    writer.upsert(rows(1, 2))
    with opened() as lake:
        reader = lake.table("a.b", read_only=True)
        assert reader.scan().count() == 2

        for number in range(3, 40):
            writer.put({"id": number, "v": 0})
            if number % 10 == 0:
                writer.flush()
        reader.refresh()

        assert reader.scan().count() == 39
    writer.close()


def test_jobs_and_consumers_work_beside_the_writer(opened: Opened) -> None:
    with opened() as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=BY_HAND)
        table.upsert(rows(*range(100)))
        table.flush()
        assert table.changes(consumer="copy").read_all().num_rows == 100
        with lake.bulk("a.b") as job:
            job.upsert(rows(*range(50, 60), v=1))
        table.refresh()

        assert table.changes(consumer="copy").read_all().num_rows == 20
        assert table.scan("v = 1").count() == 10


def test_rows_that_jobs_commit_are_read_compacted_and_verified(
    moto: MotoServer, prefix: str
) -> None:
    with neve.open(moto.at.location(prefix), storage_options=moto.at.storage_options()) as lake:
        lake.create_table("a.b", SCHEMA, ["id"]).close()
        with lake.table("a.b", read_only=True) as table:
            parts = open_table_of(table).engine.parts
            Jobs(parts).upsert(rows(*range(100)))
            second = Jobs(parts).upsert(rows(*range(50, 60), v=1))
            Jobs(parts).delete([3])
            table.refresh()

            assert table.scan().count() == 99
            assert table.at(version=second.version).get(3) == {"id": 3, "v": 0}
            CommittedMaintenance(parts, options=neve.TableOptions()).compact(full=True)
            table.refresh()
            assert table.files()["deleted_count"].to_pylist() == [0]
            assert table.verify().row_count == 99


def test_other_engines_read_the_published_table_from_the_bucket(
    moto: MotoServer, prefix: str, tmp_path: Path
) -> None:
    at = moto.at
    with neve.open(at.location(prefix), storage_options=at.storage_options()) as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=BY_HAND)
        table.upsert(rows(*range(100)))
        table.flush()
        table.delete(7)
        table.flush()
        location = table.iceberg_metadata()
        expected = table.scan().to_arrow().sort_by("id").to_pylist()

    options = {
        "s3.endpoint": at.endpoint,
        "s3.access-key-id": at.access_key_id,
        "s3.secret-access-key": at.secret_access_key,
        "s3.region": "eu-central-1",
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
    }
    static = StaticTable.from_metadata(location, properties=options)
    assert static.scan().to_arrow().sort_by("id").to_pylist() == expected
    found = pl.scan_iceberg(location, storage_options=options, reader_override="pyiceberg")
    assert found.sort("id").collect().to_dicts() == expected
    duck = DuckDb(tmp_path)
    duck.connection.execute(
        "CREATE SECRET (TYPE s3, URL_STYLE 'path', USE_SSL false, REGION 'eu-central-1', "
        f"ENDPOINT '{at.endpoint.removeprefix('http://')}', KEY_ID '{at.access_key_id}', "
        f"SECRET '{at.secret_access_key}')"
    )
    read = duck.connection.execute(f"FROM iceberg_scan('{location}') ORDER BY id")
    assert read.to_arrow_table().to_pylist() == expected


def test_commands_write_and_read_a_bucket(moto: MotoServer, prefix: str) -> None:
    at = moto.at
    given = [
        part
        for name, value in at.storage_options().items()
        for part in ("--storage-option", f"{name}={value}")
    ]

    def neve_command(*arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "neve", *arguments, "--lake", at.location(prefix), *given],
            capture_output=True,
            text=True,
            check=True,
        )
        return ran.stdout

    neve_command("create", "a.b", "id:long", "v:long", "--key", "id")
    neve_command("put", "a.b", '{"id": 1, "v": 5}')

    assert '"v": 5' in neve_command("get", "a.b", "1", "--json")
    described = json.loads(neve_command("describe", "a.b", "--json"))["requests"]
    assert described["get"]["requests"] > 0
    assert described["get"]["cost"] > 0
    assert "requests (" in neve_command("describe", "a.b")
    assert "1 logged row" in neve_command("verify", "a.b")


# Takeovers under load (R30)


class Load:
    """Threads that write distinct rows through one handle until it is fenced."""

    def __init__(self, table: neve.Table, *, first: int, threads: int) -> None:
        self._table = table
        self.acknowledged: list[int] = []
        self.refused: list[int] = []
        self.unexpected: list[BaseException] = []
        self.started = Event()
        self._threads = [
            Thread(target=self._write, args=(first + n, threads)) for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, number: int, step: int) -> None:
        while True:
            try:
                self._table.put({"id": number, "v": 1})
            except neve.Fenced:
                self.refused.append(number)
                return
            except (neve.OutcomeUnknown, neve.Closed):
                return
            except BaseException as error:  # noqa: BLE001 - reported by the test
                self.unexpected.append(error)
                return
            self.acknowledged.append(number)
            self.started.set()
            number += step

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


def test_takeovers_under_load_lose_no_acknowledged_row_and_show_no_refused_one(
    opened: Opened, scoreboard: Record, request: pytest.FixtureRequest
) -> None:
    gate = Gate(f"R30 takeovers under load ({request.node.callspec.id}): violations", 8, 200)
    known: set[int] = set()
    rng = random.Random(0)
    options = neve.TableOptions(
        background=False, puts_in_flight=rng.choice((1, 4)), memtable_bytes=1 << 20
    )
    table = opened().create_table("a.b", SCHEMA, ["id"], options=options)
    for seed in gate.seeds():
        rng = random.Random(seed)
        load = Load(table, first=1_000_000 * (seed + 1), threads=rng.choice((1, 4)))
        load.started.wait(30)
        Event().wait(rng.random() * 0.1)
        options = neve.TableOptions(background=False, puts_in_flight=rng.choice((1, 2, 4)))
        table = opened().table("a.b", options=options)
        found = set(table.scan().to_arrow()["id"].to_pylist())
        load.join()
        known |= set(load.acknowledged)
        gate.cases += 1
        gate.violations += bool(known - found) + bool(found & set(load.refused))
        assert not load.unexpected
        if rng.random() < 0.3:
            table.flush()
    found = set(table.scan().to_arrow()["id"].to_pylist())
    gate.violations += bool(known - found)
    table.close()
    scoreboard(gate.line())
    assert gate.violations == 0


# Answers that are lost, late or doubled, at every request of a life


def small_life(lake: Lake) -> dict[int, int]:
    """Write, flush and compact; return the rows that were acknowledged."""
    known: dict[int, int] = {}
    table = lake.create_table("a.b", SCHEMA, ["id"], options=BY_HAND, exists_ok=True)
    for number in range(4):
        table.put({"id": number, "v": number})
        known[number] = number
    table.flush()
    table.put({"id": 1, "v": 10})
    known[1] = 10
    table.flush()
    table.compact(full=True)
    table.put({"id": 9, "v": 9})
    known[9] = 9
    return known


@pytest.fixture
def call_count(moto: MotoServer, prefix: str) -> int:
    with at_once(moto, f"{prefix}/counted") as lake:
        small_life(lake)
    return len(moto.application.calls)


def at_once(moto: MotoServer, prefix: str) -> Lake:
    options = moto.at.storage_options(timeout_seconds="0.5", patience_seconds="5")
    return neve.open(moto.at.location(prefix), storage_options=options)


FAULTS = (Fault.LOST, Fault.LATE, Fault.TWICE, Fault.BEFORE, Fault.BUSY, Fault.CONFLICT)


def cases(seeds: Iterator[int], calls: int) -> Iterator[tuple[int, Fault]]:
    rng = random.Random(0)
    every = [(call, fault) for call in range(1, calls + 1) for fault in FAULTS]
    rng.shuffle(every)
    for seed in seeds:
        if seed >= len(every):
            return
        yield every[seed]


def test_an_answer_that_goes_wrong_at_any_request_loses_nothing(
    moto: MotoServer, prefix: str, call_count: int, scoreboard: Record
) -> None:
    gate = Gate("R16 faults at every request of a table's life on S3: violations", 60, 10_000)
    for call, fault in cases(gate.seeds(), call_count):
        gate.cases += 1
        place = f"{prefix}/{call}-{fault}"
        moto.application.follow([PlannedFault(fault=fault, call=call)])
        known: dict[int, int] | None = None
        try:
            with at_once(moto, place) as lake:
                known = small_life(lake)
        except (neve.OutcomeUnknown, neve.Unavailable, neve.Closed, neve.NotPublished):
            pass
        moto.application.follow([])
        with at_once(moto, place) as lake:
            again = small_life(lake) if known is None else known
            table = lake.table("a.b")
            found = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
            table.verify()
        gate.violations += found != again
        assert found == again, (call, fault)
    scoreboard(gate.line())


def test_a_group_in_flight_behind_a_lost_slot_is_not_acknowledged(
    moto: MotoServer, prefix: str
) -> None:
    options = neve.TableOptions(background=False, puts_in_flight=4)
    with at_once(moto, prefix) as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=options)
        table.put({"id": 0, "v": 0})
        moto.application.follow(
            [
                PlannedFault(
                    fault=Fault.BEFORE,
                    operation=Operation.PUT_IF_ABSENT,
                    path_prefix="",
                    times=1_000,
                )
            ]
        )
        with ThreadPoolExecutor(4) as threads:
            writes = [threads.submit(table.put, {"id": n, "v": 0}) for n in range(1, 5)]
        outcomes = [write.exception() for write in writes]
        moto.application.follow([])

    assert all(isinstance(each, neve.OutcomeUnknown | neve.Closed) for each in outcomes)
    with at_once(moto, prefix) as lake:
        assert lake.table("a.b").scan().count() == 1


def test_nothing_is_left_on_the_disk_of_the_writer(
    moto: MotoServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with at_once(moto, prefix) as lake:
        lake.create_table("a.b", SCHEMA, ["id"]).put({"id": 1, "v": 1})

    assert list(tmp_path.iterdir()) == []


# Copies and requests


def spent(table: neve.Table, call: Callable[[], object]) -> dict[str, int]:
    """Return the requests that a call takes, by kind."""

    def counts() -> dict[str, int]:
        requests = open_table_of(table).engine.parts.objects.requests()  # type: ignore[attr-defined]
        return {kind: count.requests for kind, count in requests.items()}

    before = counts()
    call()
    after = counts()
    return {
        kind: after[kind] - before.get(kind, 0) for kind in after if after[kind] != before.get(kind)
    }


@pytest.mark.parametrize("place", ["memory", "directory"])
def test_a_cold_get_takes_two_requests_and_an_index_and_a_warm_one_none(
    moto: MotoServer, prefix: str, tmp_path: Path, place: str
) -> None:
    at = moto.at
    with neve.open(at.location(prefix), storage_options=at.storage_options()) as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=BY_HAND)
        table.upsert(rows(*range(10_000)))
        table.flush()
        table.delete_where("id < 100")
        table.flush()
    more = {"cache_directory": str(tmp_path)} if place == "directory" else {}

    def read() -> dict[str, int]:
        options = at.storage_options(**more)
        with neve.open(at.location(prefix), storage_options=options) as lake:
            table = lake.table("a.b", read_only=True)
            cold = spent(table, lambda: table.get(5_000))
            warm = spent(table, lambda: table.get(5_001))
            assert sum(warm.values()) == 0
            assert table.get(50) is None
            stats = table.stats().requests
            assert stats["get"].bytes_received > 0
            return cold

    first, second = read(), read()

    assert sum(first.values()) <= 3
    assert second == ({} if place == "directory" else first)


WIDE_COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "v": pa.binary()}
WIDE = pa.schema(WIDE_COLUMNS)


@pytest.mark.parametrize("place", ["memory", "directory"])
@pytest.mark.parametrize("key", ["id", "v"])
def test_a_cold_get_of_a_large_file_reads_one_group_and_the_keys_of_its_index(
    moto: MotoServer, prefix: str, tmp_path: Path, place: str, key: str
) -> None:
    at, count = moto.at, 200_000
    noise = random.Random(0)
    wide = pa.table(
        {"id": range(count), "v": [noise.randbytes(40) for _ in range(count)]}, schema=WIDE
    )
    with neve.open(at.location(prefix), storage_options=at.storage_options()) as lake:
        table = lake.create_table("a.b", WIDE, [key], options=BY_HAND)
        table.upsert(wide)
        table.flush()
        file_bytes = table.stats().file_bytes
    more = {"cache_directory": str(tmp_path / "copies")} if place == "directory" else {}
    options = at.storage_options(cache_bytes=str(1 << 30), **more)
    with neve.open(at.location(prefix), storage_options=options, read_only=True) as lake:
        table = lake.table("a.b")
        before = table.stats().requests.get("get_range", RequestCount())
        expected = wide.slice(count // 2, 1).to_pylist()[0]
        cold = spent(table, lambda: table.get(expected[key]))
        read = table.stats().requests["get_range"].bytes_received - before.bytes_received

        assert cold == {"get_range": 3}
        index_bytes = count * (8 if key == "id" else 12)
        assert read < file_bytes / 2 + index_bytes + (1 << 20)
        assert table.get(expected[key]) == expected
        assert not spent(table, lambda: table.get(expected[key]))


def test_requests_are_priced_by_the_table_that_the_user_sets(
    moto: MotoServer, prefix: str, tmp_path: Path
) -> None:
    at, prices = moto.at, tmp_path / "prices.json"
    prices.write_text('{"put": 1000000, "get": 0, "head": 0, "list": 0, "gib_sent": 1024}')
    costs = []
    for more in ({}, {"prices": str(prices)}, {"prices": prices.read_text()}):
        with neve.open(at.location(prefix), storage_options=at.storage_options(**more)) as lake:
            table = lake.create_table("a.b", SCHEMA, ["id"], options=BY_HAND, exists_ok=True)
            table.upsert(rows(*range(1_000)))
            stats = table.stats()
            assert stats.requests == lake.requests()
            costs.append(stats.request_cost)
            puts = stats.requests["put"]
            if more:
                assert stats.request_cost == pytest.approx(puts.requests + puts.bytes_sent / 2**20)
            else:
                assert puts.cost == puts.requests * 5 / 1e6

    assert 0 < costs[0] < 0.001


def test_the_commit_of_a_flush_takes_three_requests_and_one_for_each_file(
    moto: MotoServer, prefix: str
) -> None:
    at = moto.at
    options = neve.TableOptions(background=False, iceberg_publish="demand")
    with neve.open(at.location(prefix), storage_options=at.storage_options()) as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=options)
        table.upsert(rows(*range(100)))
        table.flush()
        table.upsert(rows(*range(80), v=1))
        moto.application.follow([])
        table.flush()

        calls = moto.application.calls
        files = [each for each in calls if each.operation is Operation.PUT]
        manifest = [each for each in calls if "/manifest/version/" in each.path]
        written = {each.path.rsplit("/", 2)[-2] for each in files}
        assert written == {"data", "index", "deletes"}
        assert len(files) == 3
        assert [each.operation for each in manifest] == [
            Operation.GET_IF_CHANGED,
            Operation.PUT_IF_ABSENT,
            Operation.PUT_IF_MATCH,
        ]
        others = [each for each in calls if each not in manifest and each not in files]
        assert {each.operation for each in others} == {Operation.DELETE}


@pytest.mark.parametrize(("ids", "manifests"), [(range(200, 300), 1), (range(50, 60), 2)])
def test_publishing_a_flush_takes_four_requests_and_one_more_for_deletes(
    moto: MotoServer, prefix: str, ids: range, manifests: int
) -> None:
    at = moto.at
    with neve.open(at.location(prefix), storage_options=at.storage_options()) as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=BY_HAND)
        for each in (range(100), range(100, 200), ids):
            table.upsert(rows(*each))
            moto.application.follow([])
            table.flush()

        calls = moto.application.calls
        writes = [each for each in calls if "/metadata/" in each.path]
        # Iceberg keeps data files and deletes in separate manifests.
        kinds = [each.path.rpartition("/")[2].partition("-")[0] for each in writes]
        assert kinds[:manifests] == ["m"] * manifests
        assert kinds[manifests] == "snap"
        assert kinds[manifests + 2 :] == ["version"]
        reads = [each for each in calls if each.operation not in WRITES]
        assert [each.path.rpartition("/")[2] for each in reads] == ["HEAD"]


def test_damage_in_the_bucket_is_found_although_a_copy_is_whole(
    moto: MotoServer, prefix: str
) -> None:
    at = moto.at
    with neve.open(at.location(prefix), storage_options=at.storage_options()) as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=BY_HAND)
        table.upsert(rows(*range(1_000)))
        table.flush()
        assert table.verify().is_sound
        store = open_store(at.location(prefix), storage_options=at.storage_options())
        (damaged,) = [info.path for info in store.list("tables/") if "/data/" in info.path]
        store.put(damaged, store.get(damaged).payload[:-1] + b"x")

        assert table.get(5) is not None
        with pytest.raises(neve.Corruption):
            table.verify()


# What can be wrong with a bucket


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"secret_access_key": "wrong-secret"}, "credentials"),
        ({"access_key_id": "wrong-key"}, "credentials"),
    ],
)
def test_wrong_credentials_are_named_without_their_values(
    seaweed: S3Endpoint, prefix: str, options: dict[str, str], expected: str
) -> None:
    given = {**seaweed.storage_options(listing="unordered", patience_seconds="2"), **options}

    with pytest.raises(neve.Unavailable) as refusal:
        neve.open(seaweed.location(prefix), storage_options=given)

    shown = f"{refusal.value} {refusal.value!r} {refusal.value.__cause__!r}"
    assert expected in shown
    assert seaweed.bucket in shown
    secrets = (*options.values(), seaweed.secret_access_key)
    assert not [secret for secret in secrets if secret in shown]


def test_a_missing_bucket_is_named(moto: MotoServer) -> None:
    with pytest.raises(neve.Unavailable, match="no-such-bucket-here") as refusal:
        neve.open("s3://no-such-bucket-here/x", storage_options=moto.at.storage_options())

    assert "bucket" in str(refusal.value.hint)


def test_a_bucket_that_becomes_read_only_acknowledges_nothing(
    moto: MotoServer, prefix: str
) -> None:
    with at_once(moto, prefix) as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=BY_HAND)
        table.put({"id": 1, "v": 1})
        moto.application.follow(
            [PlannedFault(fault=Fault.BEFORE, operation=each, times=10_000) for each in WRITES]
        )
        with pytest.raises(neve.OutcomeUnknown) as refusal:
            table.put({"id": 2, "v": 2})
        assert ".slot" in str(refusal.value) or "wal/" in str(refusal.value)
        with pytest.raises(neve.NeveError):
            table.put({"id": 3, "v": 3})
        moto.application.follow([])
    with at_once(moto, prefix) as lake:
        assert [row["id"] for row in lake.table("a.b").scan().to_arrow().to_pylist()] == [1]
