"""A table as its catalog knows it: history, files, time travel, changes, requirements."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from threading import Barrier

import pyarrow as pa
import pytest

from neve.catalog.catalog_table import CatalogTable
from neve.catalog.compatibility import DefinitionChange
from neve.catalog.lake import Lake
from neve.catalog.version_view import FILES_SCHEMA
from neve.errors import (
    CatalogConflict,
    Conflict,
    InvalidArgument,
    NeveError,
    NotFound,
    SchemaMismatch,
)
from neve.manifest.leases import Leases
from neve.manifest.table_garbage import TableGarbage
from neve.manifest.table_head import HeadChange, Requirements, Retention
from neve.model.data_file import VectorRef
from neve.model.schema import Column
from neve.model.version import Operation, VersionEdit, VersionFacts
from neve.storage.memory_store import MemoryStore
from neve.testing.faulty_store import WRITES, Fault, FaultyStore, PlannedFault
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.unit.catalog.builders import (
    a_catalog,
    a_file,
    a_table,
    an_append,
    with_columns,
    with_renamed,
    with_type,
    without_column,
)

START_MS = SimulatedClock().now_ms()


def an_evolve(base: int) -> VersionEdit:
    facts = VersionFacts(operation=Operation.EVOLVE, timestamp_ms=0, schema_id=0, spec_id=0)
    return VersionEdit(base=base, facts=facts)


def new_column(table: CatalogTable, name: str = "note") -> Column:
    return Column(
        field_id=table.schema.last_field_id + 1, name=name, type=pa.string(), nullable=True
    )


# What it shows


def test_history_links_each_version_to_its_parent_with_tags() -> None:
    clock = SimulatedClock()
    table = a_table(a_catalog(clock=clock))
    clock.advance(1)
    table.commit([an_append(1, a_file("a"))])
    table.stored.writer_state.tag("monday", 2)
    table.stored.writer_state.tag("begin", 2)
    clock.advance(1)
    table.update_sort_order(["id"])

    history = table.refresh().history()

    assert history.schema.names == [
        "version",
        "parent",
        "timestamp",
        "operation",
        "summary",
        "tags",
    ]
    assert history.column("version").to_pylist() == [1, 2, 3]
    assert history.column("parent").to_pylist() == [None, 1, 2]
    assert history.column("operation").to_pylist() == ["CREATE", "APPEND", "EVOLVE"]
    assert history.column("tags").to_pylist() == [[], ["begin", "monday"], []]
    created, appended, evolved = (dict(row["summary"]) for row in history.to_pylist())
    assert created["total-records"] == "0"
    assert appended == {
        "added-files": "1",
        "added-data-files": "1",
        "added-records": "10",
        "added-files-size": "1000",
        "total-data-files": "1",
        "total-records": "10",
        "total-files-size": "1000",
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }
    assert evolved["changed"] == "sort-order"
    assert evolved["total-records"] == "10"
    assert history.column("timestamp").cast(pa.int64()).to_pylist() == [
        START_MS,
        START_MS + 1_000,
        START_MS + 2_000,
    ]


def test_files_and_stats_are_of_the_current_version() -> None:
    table = a_table(a_catalog(), partition_by=["customer"])
    file = replace(a_file("a", partition={1000: b"anna"}), level=1)
    table.commit([an_append(1, file, a_file("b", rows=5, partition={1000: None}))])
    vector = VectorRef(path="deletes/v.puffin", offset=4, length=40, cardinality=3)
    facts = VersionFacts(operation=Operation.DELETE, timestamp_ms=0, schema_id=0, spec_id=0)
    table.commit([VersionEdit(base=2, facts=facts, vectors={"data/a.parquet": vector})])

    files, stats = table.files(), table.stats()

    assert files.schema == FILES_SCHEMA
    assert files.column("file_path").to_pylist() == ["data/a.parquet", "data/b.parquet"]
    assert files.column("level").to_pylist() == [1, 0]
    assert files.column("record_count").to_pylist() == [10, 5]
    assert files.column("deleted_count").to_pylist() == [3, 0]
    assert files.column("file_size_bytes").to_pylist() == [1_000, 1_000]
    assert files.column("partition").to_pylist() == [[("customer", "anna")], [("customer", None)]]
    assert files.column("vector_path").to_pylist() == ["deletes/v.puffin", None]
    assert files.column("first_row_id").to_pylist() == [0, 10]
    assert (stats.version, stats.row_count, stats.deleted_count) == (3, 12, 3)
    assert (stats.file_count, stats.file_bytes, stats.vector_count) == (2, 2_000, 1)
    assert stats.level_file_counts == {0: 1, 1: 1}


def test_a_handle_shows_what_it_read_until_it_is_refreshed() -> None:
    objects = MemoryStore()
    table = a_table(a_catalog(objects))
    other = a_catalog(objects, seed=1).load_table("shop.orders")

    other.commit([an_append(1, a_file())])
    other.set_properties({"owner": "anna"})

    assert (table.version, table.properties) == (1, {})
    assert table.history().num_rows == 1
    table.refresh()
    assert (table.version, table.properties) == (2, {"owner": "anna"})


# Time travel


def test_a_version_is_found_by_number_time_and_tag() -> None:
    clock = SimulatedClock()
    table = a_table(a_catalog(clock=clock))
    for number, name in enumerate("abc", start=1):
        clock.advance(10)
        table.commit([an_append(number, a_file(name))])
    table.stored.writer_state.tag("second", 2)
    table.refresh()

    assert table.at(2).files().column("file_path").to_pylist() == ["data/a.parquet"]
    assert table.at(version=4).version.row_count == 30
    assert table.at(tag="second").number == 2
    for seconds, number in ((0, 1), (9.999, 1), (10, 2), (29.999, 3), (30, 4), (1e9, 4)):
        moment = START_MS + int(seconds * 1_000)
        assert table.at(timestamp=moment).number == number
    noon = datetime.fromtimestamp(START_MS / 1_000 + 15, tz=UTC)
    assert table.at(timestamp=noon).number == 2
    assert table.at(timestamp=noon.isoformat()).number == 2
    assert table.at(1).parent is None
    assert table.at(2).parent == 1
    assert table.at(2).summary == {"added-files": "1"}
    assert table.at(2).timestamp_ms == START_MS + 10_000


def test_a_version_is_shown_with_the_schema_and_spec_it_had() -> None:
    table = a_table(a_catalog(), partition_by=["day(ts)"])
    table.update_schema(with_renamed(table.schema, "customer", "client"))
    table.update_partition_spec(["bucket(4, id)"])

    assert "customer" in table.at(1).schema
    assert "client" in table.at(2).schema
    assert [field.name for field in table.at(2).spec.fields] == ["ts_day"]
    assert [field.name for field in table.at(3).spec.fields] == ["id_bucket"]


@pytest.mark.parametrize(
    ("ask", "error_type"),
    [
        (lambda table: table.at(3), NotFound),
        (lambda table: table.at(0), NotFound),
        (lambda table: table.at(-1), NotFound),
        (lambda table: table.at(timestamp=START_MS - 1), NotFound),
        (lambda table: table.at(tag="mondya"), NotFound),
        (lambda table: table.at(), InvalidArgument),
        (lambda table: table.at(1, tag="monday"), InvalidArgument),
        (lambda table: table.at(True), InvalidArgument),
        (lambda table: table.at("1"), InvalidArgument),
        (lambda table: table.at(timestamp="soon"), InvalidArgument),
    ],
    ids=range(10),
)
def test_a_version_that_is_not_there_is_refused_with_a_hint(
    ask: Callable[[CatalogTable], object], error_type: type[NeveError]
) -> None:
    table = a_table(a_catalog())
    table.stored.writer_state.tag("monday", 1)
    table.refresh()

    with pytest.raises(error_type) as refusal:
        ask(table)

    assert refusal.value.hint


def test_expired_versions_are_gone_but_for_tagged_ones() -> None:
    objects, clock = MemoryStore(), SimulatedClock()
    table = a_table(a_catalog(objects, clock=clock))
    for number in range(1, 9):
        clock.advance(60)
        table.commit([an_append(number, a_file(f"f{number}"))])
    stored = table.stored
    stored.writer_state.tag("kept", 3)
    leases = Leases(objects, stored.paths.manifest, clock=clock, ids=SeededIds())
    garbage = TableGarbage(
        stored.versions, stored.writer_state, leases, clock=clock, ids=SeededIds()
    )
    clock.advance(2 * 24 * 60 * 60)
    garbage.apply_gc_plan(garbage.compute_gc_plan())

    table.refresh()

    assert table.history().column("version").to_pylist() == [3, 5, 6, 7, 8, 9]
    assert table.at(tag="kept").version.row_count == 20
    # What was current between the tagged version and the oldest retained one is not known.
    with pytest.raises(NotFound, match="The oldest one, 5"):
        table.at(timestamp=START_MS + 150_000)
    with pytest.raises(NotFound):
        table.at(4)


# Changes of the definition


def test_schemas_and_specs_are_kept_for_ever() -> None:
    catalog = a_catalog()
    table = a_table(catalog, partition_by=["day(ts)"])

    table.update_schema(with_columns(table.schema, new_column(table)))
    table.update_schema(without_column(table.schema, "amount"))
    table.update_partition_spec(["bucket(8, id)"])

    assert [schema.schema_id for schema in table.schemas] == [0, 1, 2]
    assert [spec.spec_id for spec in table.specs] == [0, 1]
    assert table.schema.schema_id == 2
    meta = catalog.table_meta("shop.orders")
    assert meta.schemas == table.schemas
    assert meta.specs == table.specs
    assert (meta.schema_version, meta.spec_id) == (2, 1)
    assert meta.fingerprint == table.schema.fingerprint()


def test_partitions_that_come_back_get_their_old_spec_id() -> None:
    table = a_table(a_catalog(), partition_by=["day(ts)"])

    table.update_partition_spec([])
    table.update_partition_spec(["day(ts)"])

    assert [spec.spec_id for spec in table.specs] == [0, 1]
    assert table.spec.spec_id == 0
    assert table.version == 3


def test_several_parts_change_as_one_version() -> None:
    table = a_table(a_catalog(), sort_by=["id"], partition_by=["day(ts)"])

    number = table.update_definition(
        DefinitionChange(
            schema=without_column(without_column(table.schema, "amount"), "ts"),
            partition_by=["bucket(4, id)"],
            sort_by=[],
            retention=Retention(versions=9, milliseconds=1),
        )
    )

    assert number == table.version == 2
    assert table.current().summary == {"changed": "schema,partition-spec,sort-order,retention"}
    assert table.retention == Retention(versions=9, milliseconds=1)
    assert table.properties == {
        "neve.retention.versions": "9",
        "neve.retention.milliseconds": "1",
    }


def test_what_changes_nothing_makes_no_version() -> None:
    objects = MemoryStore()
    table = a_table(a_catalog(objects), partition_by=["day(ts)"], sort_by=["id"])
    before = {info.path for info in objects.list("")}

    assert table.update_schema(table.schema) == 1
    assert table.update_partition_spec(["day(ts)"]) == 1
    assert table.update_sort_order(["id"]) == 1
    assert table.update_definition(DefinitionChange()) == 1

    assert {info.path for info in objects.list("")} == before


def test_the_sort_order_follows_a_renamed_column() -> None:
    table = a_table(a_catalog(), sort_by=["id"])

    table.update_schema(with_renamed(table.schema, "id", "number"))

    assert str(table.sort_order) == "number"


def test_an_order_that_was_never_in_effect_is_none_and_goes_with_the_next_change() -> None:
    catalog = a_catalog()
    table = a_table(catalog)
    table.stored.versions.apply_version_edits([], HeadChange(sort_order="-amount"))
    table = catalog.load_table("shop.orders")

    assert not table.sort_order.fields
    assert table.update_sort_order([]) == 1
    table.update_schema(without_column(table.schema, "amount"))

    assert table.stored.versions.head().sort_order == ""


@pytest.mark.parametrize(
    ("change", "error_type"),
    [
        (lambda t: t.update_schema(without_column(t.schema, "ts")), InvalidArgument),
        (lambda t: t.update_sort_order(["amount"]), InvalidArgument),
        (lambda t: t.update_schema(with_renamed(t.schema, "customer", "ts_day")), InvalidArgument),
        (lambda t: t.update_schema(with_type(t.schema, "ts", pa.string())), SchemaMismatch),
        (lambda t: t.update_schema(replace(t.schema, schema_id=7)), CatalogConflict),
        (lambda t: t.update_partition_spec(["day(none)"]), NotFound),
        (lambda t: t.update_partition_spec("day(ts)"), InvalidArgument),
        (lambda t: t.update_sort_order(["none"]), NotFound),
        (lambda t: t.set_properties({"neve.nothing": "1"}), InvalidArgument),
        (lambda t: t.set_properties({"format-version": "2"}), InvalidArgument),
        (lambda t: t.set_properties({"a": "1"}, remove=["a"]), InvalidArgument),
    ],
    ids=range(11),
)
def test_a_change_that_cannot_be_leaves_everything_as_it_was(
    change: Callable[[CatalogTable], object], error_type: type[NeveError]
) -> None:
    objects = MemoryStore()
    table = a_table(a_catalog(objects), partition_by=["day(ts)"], sort_by=["id"])
    before = {info.path for info in objects.list("")}

    with pytest.raises(error_type):
        change(table)

    assert {info.path for info in objects.list("")} == before


def test_a_table_of_format_2_refuses_defaults_until_it_is_raised() -> None:
    table = a_table(a_catalog(), properties={"format-version": "2"})
    column = replace(new_column(table), initial_default="none")

    with pytest.raises(SchemaMismatch, match="CATALOG-31"):
        table.update_schema(with_columns(table.schema, column))
    table.set_properties({"format-version": "3"})
    table.update_schema(with_columns(table.schema, column))

    assert table.format_version == 3


# Properties


def test_properties_are_set_and_removed_and_others_stay() -> None:
    catalog = a_catalog()
    table = a_table(catalog, properties={"a": "1", "b": "2"})

    table.set_properties({"b": "3", "c": "4"}, remove=["a", "none"])

    assert table.properties == {"b": "3", "c": "4"}
    assert catalog.table_meta("shop.orders").properties == {"b": "3", "c": "4"}
    assert table.version == 1


def test_retention_is_a_part_of_the_definition() -> None:
    table = a_table(a_catalog())

    table.set_properties({"neve.retention.versions": "50"})
    assert table.stored.versions.head().retention == Retention(versions=50)
    assert table.properties == {"neve.retention.versions": "50"}
    assert table.current().summary == {"changed": "retention"}

    table.set_properties(remove="neve.retention.versions")
    assert table.stored.versions.head().retention == Retention()
    assert table.properties == {}


# Commits with requirements


def test_requirements_that_are_met_let_a_commit_through() -> None:
    table = a_table(a_catalog())
    required = Requirements(version=1, schema_id=0, table_uuid=table.uuid)

    committed = table.commit([an_append(1, a_file())], requirements=required)

    assert committed.snapshot.version.number == table.version == 2


@pytest.mark.parametrize(
    ("required", "unmet"),
    [
        (Requirements(version=7), ("version",)),
        (Requirements(schema_id=7), ("schema_id",)),
        (Requirements(table_uuid="another"), ("table_uuid",)),
        (Requirements(version=7, schema_id=0, table_uuid="x"), ("version", "table_uuid")),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize(
    "change",
    [
        lambda table, required: table.commit([an_append(1, a_file())], requirements=required),
        lambda table, required: table.commit([an_evolve(1)], requirements=required),
        lambda table, required: table.update_sort_order(["id"], requirements=required),
        lambda table, required: table.update_partition_spec(["id"], requirements=required),
        lambda table, required: table.update_schema(
            without_column(table.schema, "amount"), requirements=required
        ),
    ],
    ids=["append", "evolve", "sort", "spec", "schema"],
)
def test_an_unmet_requirement_is_a_conflict_that_names_it(
    change: Callable[[CatalogTable, Requirements], object],
    required: Requirements,
    unmet: tuple[str, ...],
) -> None:
    table = a_table(a_catalog())

    with pytest.raises(CatalogConflict, match=unmet[0]) as conflict:
        change(table, required)

    assert conflict.value.keys == unmet
    assert conflict.value.hint
    assert table.refresh().version == 1


def test_a_commit_of_files_on_an_older_version_is_a_conflict() -> None:
    table = a_table(a_catalog())
    table.commit([an_append(1, a_file("a"))])

    with pytest.raises(Conflict, match="at version 2, not 1"):
        table.commit([an_append(1, a_file("b"))])


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (lambda table: table.commit([an_append(1, a_file())]).snapshot.version.number, 2),
        (lambda table: table.update_sort_order(["id"]), 2),
        (lambda table: table.set_properties({"a": "b"}), None),
    ],
    ids=["commit", "definition", "properties"],
)
def test_a_commit_that_happened_is_never_told_as_failed(
    change: Callable[[CatalogTable], object], answer: object
) -> None:
    objects = MemoryStore()
    a_table(a_catalog(objects))
    faulty = FaultyStore(objects, [])
    table = a_catalog(faulty, seed=1).load_table("shop.orders")
    change(table)
    last_write = max(call.number for call in faulty.calls if call.operation in WRITES)
    # The same once more, with everything behind the last write failing.
    objects = MemoryStore()
    a_table(a_catalog(objects))
    later = range(last_write + 1, last_write + 1_000)
    faults = [PlannedFault(fault=Fault.BEFORE, call=number) for number in later]
    table = a_catalog(FaultyStore(objects, faults), seed=1).load_table("shop.orders")

    assert change(table) == answer

    changed = a_catalog(objects, seed=2).load_table("shop.orders")
    assert (changed.version, changed.properties) == ((2, {}) if answer else (1, {"a": "b"}))


def test_a_commit_that_touches_no_file_follows_the_table() -> None:
    table = a_table(a_catalog())
    table.commit([an_append(1, a_file("a"))])

    committed = table.commit([an_evolve(1), an_evolve(2)])

    assert committed.snapshot.version.number == 4


def test_a_commit_that_touches_no_file_takes_the_spec_the_table_has_by_now() -> None:
    table = a_table(a_catalog())
    table.update_partition_spec(["id"])

    committed = table.commit([an_evolve(1)])

    assert committed.snapshot.version.facts.spec_id == committed.snapshot.head.spec_id == 1


def test_a_schema_made_of_an_older_one_is_a_conflict() -> None:
    objects = MemoryStore()
    table = a_table(a_catalog(objects))
    other = a_catalog(objects, seed=1).load_table("shop.orders")
    other.update_schema(with_renamed(other.schema, "customer", "client"))

    with pytest.raises(CatalogConflict, match="made from schema 0") as conflict:
        table.update_schema(without_column(replace(table.schema, schema_id=0), "amount"))

    assert conflict.value.keys == ("schema_id",)


def test_changes_of_eight_threads_all_happen() -> None:
    catalog = Lake(MemoryStore())
    a_table(catalog)
    barrier = Barrier(8)

    def work(number: int) -> None:
        table = catalog.load_table("shop.orders")
        barrier.wait()
        for turn in range(4):
            table.set_properties({f"p{number}": str(turn)})
            table.update_sort_order(["id"] if (number + turn) % 2 else [])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))

    table = catalog.load_table("shop.orders")
    assert table.properties == {f"p{number}": "3" for number in range(8)}
    numbers = table.history().column("version").to_pylist()
    assert numbers == list(range(1, len(numbers) + 1))
    assert catalog.table_meta("shop.orders").sort_order == str(table.sort_order)
