"""The catalog in memory: names, definitions, and that a refused call changes nothing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.catalog.settlement import Settled
from neve.catalog.stored_table import TableState
from neve.catalog.table import Table
from neve.catalog.table_meta import TableMeta
from neve.errors import (
    AlreadyExists,
    CatalogConflict,
    Closed,
    Corruption,
    InvalidArgument,
    NeveError,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from neve.manifest.leases import Leases
from neve.model.version import Operation
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore
from neve.testing.faulty_store import Fault, FaultyStore, PlannedFault
from neve.testing.faulty_store import Operation as Call
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.unit.catalog.builders import (
    ORDERS,
    a_catalog,
    a_file,
    a_table,
    an_append,
    orders_schema,
    with_renamed,
)


@pytest.mark.parametrize("flag", ["x", 1, None], ids=str)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("read_only", lambda _, flag: neve.open("memory://flags", read_only=flag)),
        ("create", lambda _, flag: neve.open("memory://flags", create=flag)),
        ("read_only", lambda lake, flag: lake.table("a.b", read_only=flag)),
        ("exists_ok", lambda lake, flag: lake.create_table("a.b", {}, "id", exists_ok=flag)),
    ],
    ids=["open read_only", "open create", "table", "create_table"],
)
def test_what_is_neither_true_nor_false_is_refused(
    name: str, call: Callable[[Lake, object], object], flag: object
) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}={flag!r} is invalid. Use True or False"):
        call(a_catalog(), flag)


def everything(objects: ObjectStore) -> dict[str, bytes]:
    return {info.path: objects.get(info.path).payload for info in objects.list("")}


# Namespaces


def test_namespaces_are_made_with_those_they_lie_in() -> None:
    catalog = a_catalog()

    catalog.create_namespace("eu.berlin", {"owner": "anna"})

    assert catalog.list_namespaces() == ["eu", "eu.berlin"]
    assert catalog.list_namespaces("eu") == ["eu.berlin"]
    assert catalog.namespace_properties("eu.berlin") == {"owner": "anna"}
    assert catalog.namespace_properties("eu") == {}


def test_an_empty_namespace_can_be_dropped_and_another_one_cannot() -> None:
    catalog = a_catalog()
    a_table(catalog)
    catalog.create_namespace("empty")

    catalog.drop_namespace("empty")

    assert catalog.list_namespaces() == ["shop"]
    with pytest.raises(InvalidArgument, match="not empty"):
        catalog.drop_namespace("shop")


# Tables


def test_a_new_table_has_version_1_and_its_namespace() -> None:
    catalog = a_catalog(MemoryStore("lake"))

    table = a_table(catalog, "eu.shop.orders", partition_by=["day(ts)"], sort_by=["id"])

    assert catalog.list_namespaces() == ["eu", "eu.shop"]
    assert catalog.list_tables("eu.shop") == ["eu.shop.orders"]
    assert catalog.list_tables("eu") == []
    assert table.version == 1
    assert table.current().operation is Operation.CREATE
    assert table.primary_key == ("id",)
    assert str(table.sort_order) == "id"
    assert [field.name for field in table.spec.fields] == ["ts_day"]
    assert table.location == f"memory://lake/tables/{table.table_id}"


def test_a_taken_name_is_refused_also_for_an_identical_definition() -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    a_table(catalog)
    before = everything(objects)

    with pytest.raises(AlreadyExists, match=r"Open it with lake\.table\('shop\.orders'\)"):
        a_table(catalog)

    assert everything(objects) == before


def test_ids_are_never_given_out_again() -> None:
    catalog = a_catalog()
    seen = set()
    for _ in range(3):
        seen.add(a_table(catalog).table_id)
        catalog.drop_table("shop.orders")

    assert [table_id.partition("-")[0] for table_id in sorted(seen)] == [
        "t000001",
        "t000002",
        "t000003",
    ]


def test_a_renamed_table_moves_no_file_and_stays_open() -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    table = a_table(catalog)
    table.commit([an_append(1, a_file())])
    files = {path for path in everything(objects) if not path.startswith("manifest/catalog")}

    catalog.rename_table("shop.orders", "archive.y2024.orders")

    assert catalog.list_tables() == ["archive.y2024.orders"]
    assert catalog.load_table("archive.y2024.orders").table_id == table.table_id
    assert table.refresh().name == "archive.y2024.orders"
    after = {path for path in everything(objects) if not path.startswith("manifest/catalog")}
    assert after == files
    with pytest.raises(NotFound, match=r"shop\.orders"):
        catalog.load_table("shop.orders")
    # The old name is free.
    assert a_table(catalog).table_id != table.table_id


@pytest.mark.parametrize(
    "call",
    [
        lambda lake: lake.load_table("shop.ordes"),
        lambda lake: lake.table_meta("shop.ordes"),
        lambda lake: lake.drop_table("shop.ordes"),
        lambda lake: lake.rename_table("shop.ordes", "shop.new"),
        lambda lake: lake.list_tables("shopp"),
        lambda lake: lake.drop_namespace("shopp"),
        lambda lake: lake.namespace_properties("shopp"),
        lambda lake: lake.list_namespaces("shopp"),
        lambda lake: lake.system_table("__table"),
    ],
    ids=range(9),
)
def test_an_unknown_name_is_refused_with_the_most_similar_one(
    call: Callable[[Lake], object],
) -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    a_table(catalog)
    before = everything(objects)

    with pytest.raises(NotFound, match="Did you mean"):
        call(catalog)

    assert everything(objects) == before


@pytest.mark.parametrize(
    ("call", "error_type"),
    [
        (lambda lake: lake.rename_table("shop.orders", "shop.items"), AlreadyExists),
        (lambda lake: lake.rename_table("shop.orders", "shop.orders"), AlreadyExists),
        (lambda lake: lake.rename_table("shop.orders", "items"), InvalidArgument),
        (lambda lake: lake.rename_table("shop.orders", "../x.y"), InvalidArgument),
        (lambda lake: lake.create_namespace("shop"), AlreadyExists),
        (lambda lake: lake.create_namespace("a/b"), InvalidArgument),
        (lambda lake: lake.create_namespace("a", {"x": 1}), InvalidArgument),
        (lambda lake: lake.drop_namespace("shop"), InvalidArgument),
        (lambda lake: a_table(lake, "shop.new", properties={"neve.x": "1"}), InvalidArgument),
        (lambda lake: a_table(lake, "shop.new", partition_by=["day(none)"]), NotFound),
        (lambda lake: lake.load_table("orders"), InvalidArgument),
        (lambda lake: lake.table_exists("a\0.b"), InvalidArgument),
        (lambda lake: lake.drop_table("shop"), InvalidArgument),
    ],
    ids=range(13),
)
def test_a_refused_call_changes_nothing(
    call: Callable[[Lake], object], error_type: type[NeveError]
) -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    a_table(catalog)
    a_table(catalog, "shop.items")
    before = everything(objects)

    with pytest.raises(error_type) as refusal:
        call(catalog)

    assert refusal.value.hint or refusal.value.message
    assert everything(objects) == before


def test_existence_follows_create_rename_and_drop() -> None:
    catalog = a_catalog()
    assert not catalog.table_exists("shop.orders")

    a_table(catalog)
    assert catalog.table_exists("shop.orders")

    catalog.rename_table("shop.orders", "shop.sales")
    assert not catalog.table_exists("shop.orders")
    assert catalog.table_exists("shop.sales")

    catalog.drop_table("shop.sales")
    assert not catalog.table_exists("shop.sales")


# Dropping


def test_a_dropped_table_takes_no_commit_of_a_handle_that_was_open() -> None:
    catalog = a_catalog()
    table = a_table(catalog)

    catalog.drop_table("shop.orders")

    assert catalog.list_tables() == []
    for change in (
        lambda: table.commit([an_append(1, a_file())]),
        lambda: table.set_properties({"a": "b"}),
        lambda: table.update_sort_order(["id"]),
        table.refresh,
    ):
        with pytest.raises(NotFound, match="dropped"):
            change()


def test_dropping_leaves_files_and_purging_deletes_them() -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    paths = []
    for name in ("shop.kept", "shop.purged"):
        stored = a_table(catalog, name).stored
        paths.append(stored.paths.data_file("a"))
        objects.put(paths[-1], b"rows")
        objects.put(stored.paths.wal_file(1, 1), b"log")

    catalog.drop_table("shop.kept")
    catalog.drop_table("shop.purged", purge=True)

    left = everything(objects)
    assert paths[0] in left
    purged_id = paths[1].split("/")[1]
    assert not [path for path in left if path.startswith(f"tables/{purged_id}/")]
    # The head stays: it tells a writer that slept that the table is gone.
    remains = [path for path in left if path.startswith(f"manifest/version/{purged_id}/")]
    assert [path.rpartition("/")[2][:5] for path in remains] == ["HEAD", "ckpt-"]


def test_a_purge_that_comes_later_waits_for_readers_and_recovery_finishes_it() -> None:
    objects, clock = MemoryStore(), SimulatedClock()
    catalog = a_catalog(objects, clock=clock)
    stored = a_table(catalog).stored
    objects.put(stored.paths.data_file("a"), b"rows")
    leases = Leases(objects, stored.paths.manifest, clock=clock, ids=SeededIds(7))
    leases.take(1, seconds=60)
    catalog.drop_table("shop.orders")

    assert not catalog.purge_table(stored.table_id)
    assert stored.paths.data_file("a") in everything(objects)
    clock.advance(3_600)
    assert catalog.recover().with_outcome(Settled.PURGED) == (stored.table_id,)

    assert stored.paths.data_file("a") not in everything(objects)
    assert [key for key, _ in stored.store.read().scan("")] == ["head"]


def test_a_purge_passes_over_files_that_no_store_can_name(tmp_path: Path) -> None:
    objects = LocalStore(str(tmp_path))
    catalog = a_catalog(objects)
    stored = a_table(catalog).stored
    objects.put(stored.paths.data_file("a"), b"rows")
    strange = tmp_path / stored.paths.root / "data" / "back\\slash" / "notes.txt"
    strange.parent.mkdir()
    strange.write_text("mine")

    assert catalog.drop_table("shop.orders", purge=True)

    assert [info.path for info in objects.list(f"{stored.paths.root}/data/a")] == []
    assert strange.read_text() == "mine"


def test_a_writer_that_slept_through_a_purge_cannot_commit() -> None:
    objects = MemoryStore()
    table = a_table(a_catalog(objects))
    table.stored.versions.head()
    other = a_catalog(objects, seed=1)

    other.drop_table("shop.orders", purge=True)

    with pytest.raises(NotFound, match="dropped"):
        table.commit([an_append(1, a_file())])


def test_a_purged_table_leaves_nothing_of_its_history_but_the_head() -> None:
    catalog = a_catalog()
    table = a_table(catalog)
    table.commit([an_append(1, a_file())])
    stored = table.stored

    catalog.drop_table("shop.orders", purge=True)

    assert [key for key, _ in stored.store.read().scan("")] == ["head"]


def test_names_that_are_gone_leave_no_documents_in_the_catalog() -> None:
    catalog = a_catalog()
    for name in ("shop.a", "shop.b", "shop.c"):
        a_table(catalog, name)
    catalog.rename_table("shop.a", "shop.d")
    catalog.drop_table("shop.b")

    keys = [key for key, _ in catalog._entries.store.read().scan("")]

    assert keys == ["__tables/shop.c", "__tables/shop.d", "root"]


def test_a_catalog_with_many_changes_is_checkpointed() -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    for number in range(300):
        catalog.create_namespace(f"n{number}")

    assert len(list(objects.list("manifest/catalog/segments/"))) < 300
    assert len(a_catalog(objects, seed=1).list_namespaces()) == 300


# Registering


def register(catalog: Lake, **changes: object) -> str:
    arguments: dict[str, object] = {
        "schema": ORDERS,
        "primary_key": ["id"],
        "partition_by": ["day(ts)"],
        **changes,
    }
    return catalog.register_table("shop.orders", **arguments).table_id  # type: ignore[arg-type]


def test_registering_the_same_definition_again_gives_the_same_table() -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    first = register(catalog)
    before = everything(objects)

    assert register(catalog) == first
    assert register(a_catalog(objects, seed=1)) == first
    assert everything(objects) == before


@pytest.mark.parametrize(
    ("changes", "different"),
    [
        ({"primary_key": ["id", "customer"]}, "key layout"),
        (
            {"schema": with_renamed(orders_schema(), "customer", "client")},
            "schema fingerprint",
        ),
        ({"schema_version": 1}, "schema version"),
        ({"properties": {"neve.retention.versions": "9"}}, "retention"),
        ({"partition_by": ["hour(ts)"]}, "partition spec"),
        ({"sort_by": ["id"]}, "sort order"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_registering_another_definition_is_a_conflict_that_names_the_difference(
    changes: dict[str, object], different: str
) -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    register(catalog)
    before = everything(objects)

    with pytest.raises(CatalogConflict, match=f"another {different}") as conflict:
        register(catalog, **changes)

    assert conflict.value.keys == (different,)
    assert conflict.value.hint
    assert everything(objects) == before


def test_a_table_that_was_evolved_is_registered_by_its_new_definition() -> None:
    catalog = a_catalog()
    register(catalog)
    table = catalog.load_table("shop.orders")
    table.update_schema(with_renamed(table.schema, "customer", "client"))

    with pytest.raises(CatalogConflict, match="schema fingerprint and schema version"):
        register(catalog)
    assert register(catalog, schema=table.schema, schema_version=1) == table.table_id


# Making a table that may exist


def ensure(catalog: Lake, **changes: object) -> Table:
    arguments: dict[str, object] = {
        "schema": ORDERS,
        "primary_key": "id",
        "partition_by": ["day(ts)"],
        **changes,
    }
    return catalog.create_table("shop.orders", exists_ok=True, **arguments)  # type: ignore[arg-type]


def test_a_table_that_may_exist_is_made_once_and_found_afterwards() -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    first = ensure(catalog).table_id
    before = everything(objects)

    assert ensure(catalog).table_id == first
    assert ensure(catalog, properties={"owner": "ben"}).properties == {}
    assert ensure(a_catalog(objects, seed=1)).table_id == first
    assert everything(objects) == before


@pytest.mark.parametrize(
    ("changes", "different"),
    [
        ({"primary_key": ["id", "customer"]}, "the primary key is 'id', not 'id', 'customer'"),
        (
            {"schema": with_renamed(orders_schema(), "customer", "client")},
            "it has no column 'client'",
        ),
        ({"partition_by": ["hour(ts)"]}, "it is partitioned by day of 'ts', not by hour of 'ts'"),
        ({"sort_by": ["id"]}, "it is sorted by nothing, not by id"),
    ],
    ids=["key", "columns", "partitions", "order"],
)
def test_a_table_that_exists_and_differs_is_refused_with_what_differs(
    changes: dict[str, object], different: str
) -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    ensure(catalog)
    before = everything(objects)

    with pytest.raises(AlreadyExists) as refusal:
        ensure(catalog, **changes)

    assert refusal.value.differences[0] == different
    assert different in str(refusal.value)
    assert refusal.value.hint
    assert everything(objects) == before


def test_a_table_that_was_evolved_is_found_by_what_it_has_become() -> None:
    catalog = a_catalog()
    ensure(catalog)
    with catalog.table("shop.orders") as table, table.evolve() as change:
        change.add_column("note", "string")

    with pytest.raises(AlreadyExists, match="it also has a column 'note'") as refusal:
        ensure(catalog)
    assert refusal.value.__suppress_context__, (
        "the first refusal advises exists_ok, which was passed"
    )
    grown = ORDERS.append(pa.field("note", pa.string()))
    assert ensure(catalog, schema=grown).table_id == table.table_id


def test_a_table_that_is_dropped_while_it_is_looked_for_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = a_catalog()
    first = ensure(catalog).table_id
    find = catalog._find
    dropped: list[str] = []

    def drop_first(name: str) -> tuple[TableMeta, TableState]:
        if not dropped:
            dropped.append(name)
            catalog.drop_table(name)
        return find(name)

    monkeypatch.setattr(catalog, "_find", drop_first)

    assert ensure(catalog).table_id != first
    assert dropped == ["shop.orders"]


def test_without_exists_ok_a_taken_name_is_refused_and_the_hint_names_the_way() -> None:
    catalog = a_catalog()
    ensure(catalog)

    with pytest.raises(AlreadyExists, match="exists_ok=True"):
        catalog.create_table("shop.orders", ORDERS, "id", partition_by=["day(ts)"])


# Opening and closing


def test_a_closed_catalog_and_its_tables_take_no_calls() -> None:
    with a_catalog() as catalog:
        table = a_table(catalog)
    catalog.close()

    for call in (
        catalog.list_tables,
        catalog.list_namespaces,
        catalog.recover,
        lambda: catalog.load_table("shop.orders"),
        lambda: catalog.table_exists("shop.orders"),
        lambda: catalog.create_namespace("x"),
        lambda: catalog.drop_table("shop.orders"),
        lambda: catalog.system_table("__tables"),
        table.history,
        table.refresh,
        lambda: table.commit([an_append(1, a_file())]),
    ):
        with pytest.raises(Closed, match=r"neve\.open"):
            call()


def test_without_create_a_missing_catalog_is_not_found_and_stays_missing() -> None:
    objects = MemoryStore()

    with pytest.raises(NotFound, match="no lake"):
        Lake(objects, create=False)

    assert everything(objects) == {}


def test_opening_an_existing_catalog_writes_nothing() -> None:
    objects = MemoryStore()
    a_table(a_catalog(objects))
    before = everything(objects)

    with Lake(objects, create=False) as catalog:
        assert catalog.list_tables() == ["shop.orders"]

    assert everything(objects) == before


def test_foreign_objects_beside_a_catalog_are_passed_over() -> None:
    objects = MemoryStore()
    for path in (
        "README.md",
        "manifest/notes.txt",
        "manifest/catalog/segments/notes",
        "manifest/catalog/leases/x",
        "manifest/version/t000001-xyz/HEAD",
        "tables/t000001/data/x.parquet",
    ):
        objects.put(path, b"foreign")

    catalog = a_catalog(objects)
    a_table(catalog)

    assert a_catalog(objects, seed=1).list_tables() == ["shop.orders"]
    assert objects.get("README.md").payload == b"foreign"


@pytest.mark.parametrize("payload", [b"", b"foreign", b"NEVE\x01\x01\xff\xff\xff\xff", b"\0" * 100])
def test_a_head_that_is_none_is_corruption_and_stays_as_it_is(payload: bytes) -> None:
    objects = MemoryStore()
    objects.put("manifest/catalog/HEAD", payload)

    with pytest.raises(Corruption) as damage:
        a_catalog(objects)

    assert damage.value.path == "manifest/catalog/HEAD"
    assert everything(objects) == {"manifest/catalog/HEAD": payload}


def test_a_flipped_bit_anywhere_is_reported_and_never_taken_for_the_truth() -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    table = a_table(catalog)
    table.update_sort_order(["id"])
    sound = {
        path: payload
        for path, payload in everything(objects).items()
        if path.startswith("manifest/")
    }

    for path, payload in sound.items():
        for at in range(0, len(payload), 5):
            damaged = bytearray(payload)
            damaged[at] ^= 1 << (at % 8)
            objects.put(path, bytes(damaged))
            with pytest.raises(Corruption):
                a_catalog(objects, seed=1).load_table("shop.orders")
        objects.put(path, payload)

    assert a_catalog(objects, seed=1).load_table("shop.orders").version == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("announced/../../etc/1", b'{"format":1}'),
        ("announced/x/1", b"not a document"),
        ("announced/t000001-000000000000/1", b'{"format":1,"table_id":"../x"}'),
        (
            "announced/t000001-000000000000/1",
            (
                b'{"format":1,"table_id":"t000001-000000000000","operation_id":"1",'
                b'"action":"explode","since_ms":0}'
            ),
        ),
        (
            "announced/../x/1",
            b'{"format":1,"table_id":"../x","operation_id":"1","action":"drop","since_ms":0}',
        ),
        ("root", b"{}"),
        ("__tables/shop.orders", b"{}"),
    ],
    ids=range(7),
)
def test_hostile_documents_are_corruption_and_lead_nowhere(key: str, value: bytes) -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    a_table(catalog)
    catalog._entries.store.transact(lambda session: session.put(key, value))
    before = everything(objects)

    with pytest.raises(Corruption) as damage:
        a_catalog(objects, seed=1).load_table("shop.orders")

    assert damage.value.path is not None
    assert damage.value.path.startswith("manifest/catalog")
    assert everything(objects) == before


def test_a_name_without_its_definition_is_corruption() -> None:
    catalog = a_catalog()
    a_table(catalog)
    catalog._entries.store.transact(lambda session: session.delete("__tables/shop.orders"))

    with pytest.raises(Corruption, match="is missing"):
        catalog.load_table("shop.orders")


def test_a_definition_under_another_name_is_corruption() -> None:
    catalog = a_catalog()
    a_table(catalog)
    a_table(catalog, "shop.other")
    payload = catalog._entries.store.read().get("__tables/shop.other")
    assert payload is not None
    catalog._entries.store.transact(lambda session: session.put("__tables/shop.orders", payload))

    with pytest.raises(Corruption, match="belongs to another"):
        catalog.load_table("shop.orders")


def test_a_catalog_that_lost_its_root_is_corruption_and_gets_no_new_one() -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    catalog._entries.store.transact(lambda session: session.delete("root"))

    with pytest.raises(Corruption, match="lost its root"):
        catalog.list_tables()
    with pytest.raises(Corruption, match="lost its root"):
        a_catalog(objects, seed=1)


def test_a_version_store_of_another_table_is_corruption() -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    mine, other = a_table(catalog, "shop.mine"), a_table(catalog, "shop.other")
    for info in list(objects.list(f"{other.stored.paths.manifest}/")):
        name = info.path.removeprefix(other.stored.paths.manifest)
        objects.put(f"{mine.stored.paths.manifest}{name}", objects.get(info.path).payload)

    with pytest.raises(Corruption, match="belongs to another table"):
        a_catalog(objects, seed=1).load_table("shop.mine")


# Failing stores


def test_a_create_whose_second_commit_fails_says_so_and_is_finished_by_opening() -> None:
    objects = MemoryStore()
    a_catalog(objects)
    faulty = FaultyStore(
        objects,
        [
            PlannedFault(
                fault=Fault.BEFORE,
                operation=Call.PUT_IF_ABSENT,
                path_prefix="manifest/version/",
                times=10_000,
            )
        ],
    )
    catalog = a_catalog(faulty, seed=1)

    with pytest.raises(OutcomeUnknown, match="first version may be missing"):
        a_table(catalog)

    reopened = a_catalog(objects, seed=2)
    assert reopened.load_table("shop.orders").version == 1
    with pytest.raises(AlreadyExists):
        a_table(reopened)


def test_a_drop_that_cannot_begin_leaves_the_table_alone() -> None:
    objects = MemoryStore()
    a_table(a_catalog(objects))
    faulty = FaultyStore(
        objects,
        [
            PlannedFault(
                fault=Fault.BEFORE,
                operation=Call.PUT_IF_ABSENT,
                path_prefix="manifest/version/",
                times=10_000,
            )
        ],
    )

    with pytest.raises(Unavailable):
        a_catalog(faulty, seed=1).drop_table("shop.orders")

    catalog = a_catalog(objects, seed=2)
    assert catalog.load_table("shop.orders").version == 1
    catalog.rename_table("shop.orders", "shop.sales")


def test_a_drop_whose_name_cannot_be_removed_says_so_and_is_finished_later() -> None:
    objects = MemoryStore()
    clock = SimulatedClock()
    a_table(a_catalog(objects, clock=clock))
    segments = len([*objects.list("manifest/catalog/segments/")])
    # The announcement gets through; what follows in the catalog does not.
    blocked = FaultyStore(
        objects,
        [
            PlannedFault(
                fault=Fault.BEFORE,
                operation=Call.PUT_IF_ABSENT,
                path_prefix=f"manifest/catalog/segments/seg-{segments + 2:020}",
                times=10_000,
            )
        ],
    )

    with pytest.raises(OutcomeUnknown, match="is dropped, but its name"):
        a_catalog(blocked, clock=clock, seed=1).drop_table("shop.orders")

    assert a_catalog(objects, clock=clock, seed=2).list_tables() == []


# Many at once


def test_eight_threads_creating_one_name_have_one_winner() -> None:
    catalog = Lake(MemoryStore())
    barrier = Barrier(8)

    def create(_: int) -> str | None:
        barrier.wait()
        try:
            return a_table(catalog).table_id
        except AlreadyExists:
            return None

    with ThreadPoolExecutor(8) as pool:
        made = [table_id for table_id in pool.map(create, range(8)) if table_id is not None]

    assert len(made) == 1
    assert catalog.load_table("shop.orders").table_id == made[0]


def test_eight_threads_registering_one_definition_get_one_table() -> None:
    catalog = Lake(MemoryStore())
    barrier = Barrier(8)

    def run(_: int) -> str:
        barrier.wait()
        return register(catalog)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(run, range(8)))) == 1


def test_eight_threads_dropping_one_table_have_one_winner() -> None:
    objects = MemoryStore()
    a_table(Lake(objects))
    barrier = Barrier(8)

    def drop(seed: int) -> bool:
        catalog = Lake(objects, ids=SeededIds(seed))
        barrier.wait()
        try:
            catalog.drop_table("shop.orders")
        except NotFound:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(drop, range(8))) == 1


def test_a_table_that_is_being_dropped_cannot_be_renamed_away() -> None:
    objects, clock = MemoryStore(), SimulatedClock()
    catalog = a_catalog(objects, clock=clock)
    a_table(catalog)
    catalog._entries.announce_drop("shop.orders")

    with pytest.raises(CatalogConflict, match="another process is dropping"):
        catalog.rename_table("shop.orders", "shop.sales")

    # Whoever announced it is long gone.
    clock.advance(601)
    catalog.rename_table("shop.orders", "shop.sales")
    assert catalog.list_tables() == ["shop.sales"]


# Arguments that Python's own types would refuse later, or not at all


@pytest.mark.parametrize("wrong", [7, None, ["a"], 1.5, b"shop"], ids=repr)
@pytest.mark.parametrize(
    "call",
    [
        lambda lake, wrong: lake.load_table(wrong),
        lambda lake, wrong: lake.table_exists(wrong),
        lambda lake, wrong: lake.drop_table(wrong),
        lambda lake, wrong: lake.rename_table("shop.orders", wrong),
        lambda lake, wrong: lake.create_namespace(wrong),
        lambda lake, wrong: lake.drop_namespace(wrong),
        lambda lake, wrong: lake.namespace_properties(wrong),
        lambda lake, wrong: lake.list_namespaces(wrong or 0),
        lambda lake, wrong: lake.list_tables(wrong or 0),
        lambda lake, wrong: lake.system_table(wrong),
        lambda lake, wrong: lake.load_table("shop.orders").at(tag=wrong or 0),
        lambda lake, wrong: lake.create_namespace("new", wrong or 7),
        lambda lake, wrong: lake.load_table("shop.orders").set_properties(wrong or 7),
        lambda lake, wrong: lake.create_table("a.b", ORDERS, ["id"], properties=wrong or 7),
        lambda lake, wrong: lake.load_table("shop.orders").set_properties(remove=[wrong]),
    ],
    ids=range(15),
)  # fmt: skip
def test_what_is_of_the_wrong_type_is_refused_and_changes_nothing(
    call: Callable[[Lake, object], object], wrong: object
) -> None:
    objects = MemoryStore()
    catalog = a_catalog(objects)
    a_table(catalog)
    before = everything(objects)

    with pytest.raises(InvalidArgument) as refusal:
        call(catalog, wrong)

    assert refusal.value.hint
    assert everything(objects) == before


@pytest.mark.parametrize("wrong", [7, None, 1.5], ids=repr)
@pytest.mark.parametrize(
    "call",
    [
        lambda lake, wrong: lake.create_table("a.b", ORDERS, wrong),
        lambda lake, wrong: lake.create_table("a.b", orders_schema(), wrong),
        lambda lake, wrong: lake.create_table("a.b", ORDERS, ["id"], partition_by=wrong),
        lambda lake, wrong: lake.create_table("a.b", ORDERS, ["id"], sort_by=wrong),
        lambda lake, wrong: lake.create_table("a.b", wrong, ["id"]),
        lambda lake, wrong: lake.load_table("shop.orders").update_partition_spec(wrong or 7),
        lambda lake, wrong: lake.load_table("shop.orders").update_sort_order(wrong or 7),
        lambda lake, wrong: lake.load_table("shop.orders").set_properties(remove=wrong),
    ],
    ids=range(8),
)
def test_what_is_no_list_is_refused_and_changes_nothing(
    call: Callable[[Lake, object], object], wrong: object
) -> None:
    catalog = a_catalog()
    a_table(catalog)

    with pytest.raises(InvalidArgument) as refusal:
        call(catalog, wrong)

    assert refusal.value.hint
    assert catalog.list_tables() == ["shop.orders"]


@pytest.mark.parametrize("wrong", ["1", None, True, 1.5, -1, 1 << 31], ids=repr)
def test_a_schema_version_is_a_whole_number(wrong: int) -> None:
    with pytest.raises(InvalidArgument, match="schema version"):
        a_catalog().register_table("a.b", ORDERS, ["id"], schema_version=wrong)


def test_an_unknown_namespace_with_a_long_name_is_refused_in_a_short_message() -> None:
    with pytest.raises(InvalidArgument) as refusal:
        a_catalog().list_tables("x" * 100_000)

    assert len(str(refusal.value)) < 200
