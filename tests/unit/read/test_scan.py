"""Scans: which rows, in which order, and how little is touched for them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from threading import current_thread
from threading import enumerate as enumerate_threads
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from neve.errors import Closed, Corruption, InvalidArgument, NotFound
from neve.model.data_file import FileFormat, PartitionValue
from neve.model.partition_spec import PartitionSpec
from neve.model.plain_values import encode_single_value
from neve.model.predicate import col
from neve.model.schema import Column
from neve.read.scan import Scan
from neve.sstable.parquet_groups import ParquetGroups
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore
from neve.testing.simulated_disk import SimulatedDisk
from tests.unit.read.table_bench import (
    FORMATS,
    NUMBERED,
    PATHS,
    PLACED,
    TableBench,
    numbered,
    small_groups,
)

every_format = pytest.mark.parametrize("file_format", FORMATS.values(), ids=FORMATS)


def ids_of(scan: Scan) -> list[object]:
    return scan.to_arrow().column("id").to_pylist()


@pytest.fixture
def two_levels() -> TableBench:
    """Ids 0 to 299 in level 1, a few of them again in level 0 and in memory."""
    bench = TableBench()
    bench.add(numbered(range(200)), level=1, dead=[3, 150])
    bench.add(numbered(range(200, 300)), level=1, file_format=FileFormat.DUAL)
    bench.add(numbered([3, 150, 400], "new "), level=0)
    bench.put(numbered([5], "newest ")[0])
    bench.delete({"id": 6})
    return bench


# Rows


@every_format
def test_marked_rows_are_left_out(file_format: FileFormat) -> None:
    bench = TableBench()
    bench.add(numbered(range(50)), file_format=file_format, dead=[0, 17, 49])

    assert ids_of(bench.scan()) == [each for each in range(50) if each not in (0, 17, 49)]
    assert bench.scan().count() == 47


def test_each_key_is_given_once_and_newest(two_levels: TableBench) -> None:
    rows = two_levels.rows()

    names = {row["id"]: row["name"] for row in rows}
    assert len(rows) == len(names) == 300
    assert [names[3], names[150], names[5], names[4]] == ["new 3", "new 150", "newest 5", "4"]
    assert 6 not in names


def test_a_newer_memtable_hides_the_rows_of_an_older_one() -> None:
    bench = TableBench()
    bench.upsert(numbered([1, 2, 3], "old "))
    bench.begin_memtable()
    bench.put(numbered([2], "new ")[0])
    bench.delete({"id": 3})

    assert [row["name"] for row in bench.rows(key_range=(None, None))] == ["old 1", "new 2"]
    assert bench.scan().count() == 2


def test_a_scan_does_not_see_what_is_written_after_it_was_made() -> None:
    bench = TableBench()
    bench.add(numbered([1, 2]))
    bench.put(numbered([3])[0])
    scan = bench.scan()

    bench.put(numbered([4])[0])
    bench.delete({"id": 1})

    assert sorted(map(str, ids_of(scan))) == ["1", "2", "3"]
    assert scan.count() == 3


def test_a_scan_may_run_again_and_gives_the_same(two_levels: TableBench) -> None:
    scan = two_levels.scan(filter="amount > 3", columns=["id"])

    assert scan.to_arrow().equals(scan.to_arrow())


def test_an_empty_table_gives_no_rows_but_its_schema() -> None:
    scan = TableBench().scan(columns=["name"])

    assert scan.to_arrow().equals(pa.table({"name": pa.array([], pa.string())}))
    assert list(scan.to_batches()) == []
    assert scan.count() == 0
    assert ids_of(TableBench().scan(reverse=True)) == []


def test_a_limit_of_nothing_reads_nothing(two_levels: TableBench) -> None:
    assert two_levels.scan(limit=0).to_arrow().num_rows == 0
    assert two_levels.opened == []


# Forms


def test_other_libraries_take_it_as_it_is(two_levels: TableBench) -> None:
    scan = two_levels.scan(columns=["id", "name"])

    assert pa.table(scan).num_rows == 300
    assert scan.to_reader().read_all().num_rows == 300
    assert sum(batch.num_rows for batch in scan) == 300
    assert scan.to_pylist() == scan.to_arrow().to_pylist()
    assert len(scan.to_pylist()) == 300
    assert scan.to_pandas().shape == (300, 2)
    assert scan.to_polars().shape == (300, 2)


def test_options_of_pandas_are_those_of_arrow(two_levels: TableBench) -> None:
    scan = two_levels.scan(columns=["id", "name"])

    assert scan.to_pandas(strings_to_categorical=True)["name"].dtype == "category"
    arrow = scan.to_pandas(types_mapper=pd.ArrowDtype)
    assert arrow.dtypes["id"] == pd.ArrowDtype(pa.int64())


@pytest.mark.parametrize(
    "options", [{"no_such": 1}, {"types_mapper": 5}], ids=["unknown", "of another type"]
)
def test_an_option_that_arrow_refuses_is_refused_before_a_row_is_read(
    two_levels: TableBench, options: dict[str, object]
) -> None:
    with pytest.raises(InvalidArgument, match="to_pandas") as refused:
        two_levels.scan().to_pandas(**options)

    assert next(iter(options)) in str(refused.value)
    assert two_levels.opened == []


def test_an_error_inside_of_a_stream_is_still_itself(two_levels: TableBench) -> None:
    (path, *_) = two_levels.files
    two_levels.store.delete(f"{PATHS.root}/{path}")

    with pytest.raises(NotFound, match=path):
        two_levels.scan().to_reader().read_all()


def test_damage_is_reported_and_not_given_as_rows() -> None:
    store = MemoryStore()
    bench = TableBench(store=store)
    file = bench.add(numbered(range(100)))
    path = f"{PATHS.root}/{file.path}"
    content = bytearray(store.get(path).payload)
    content[40] ^= 1
    store.put(path, bytes(content))

    with pytest.raises(Corruption, match=file.path):
        bench.scan().to_arrow()


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"columns": ["nmae"]}, NotFound),
        ({"columns": "name"}, InvalidArgument),
        ({"columns": []}, InvalidArgument),
        ({"columns": ["id", "id"]}, InvalidArgument),
        ({"columns": [3]}, InvalidArgument),
        ({"limit": -1}, InvalidArgument),
        ({"limit": True}, InvalidArgument),
        ({"limit": 1.5}, InvalidArgument),
        ({"filter": "nmae = 'x'"}, NotFound),
        ({"key_range": (3, 1)}, InvalidArgument),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_cannot_be_asked_is_refused_before_anything_runs(
    two_levels: TableBench, asked: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        two_levels.scan(**asked)


# Order


@every_format
def test_a_key_range_begins_with_its_low_key_and_ends_before_its_high_one(
    file_format: FileFormat,
) -> None:
    bench = TableBench()
    bench.add(numbered(range(0, 100, 2)), level=1, file_format=file_format)
    bench.add(numbered(range(1, 100, 2)), level=0, file_format=file_format)

    assert ids_of(bench.scan(key_range=(20, 70))) == list(range(20, 70))
    assert ids_of(bench.scan(key_range=(20, 70), reverse=True)) == list(range(69, 19, -1))
    assert ids_of(bench.scan(key_range=(None, 5))) == [0, 1, 2, 3, 4]
    assert ids_of(bench.scan(key_range=(95, None), reverse=True)) == [99, 98, 97, 96, 95]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(9, None, [9]), (None, 0, []), (None, 9, list(range(9))), (0, 9, list(range(9)))],
    ids=["from the last", "up to the first", "up to the last", "all but the last"],
)
def test_a_range_may_end_at_the_bounds_of_a_file(
    low: int | None, high: int | None, expected: list[object]
) -> None:
    bench = TableBench()
    bench.add(numbered(range(10)))
    scan = bench.scan(key_range=(low, high))

    assert ids_of(scan) == expected
    assert scan.count() == len(expected)
    assert scan.explain().files_read == (1 if expected else 0)


@pytest.mark.parametrize("reverse", [False, True], ids=["ascending", "descending"])
def test_many_rows_in_memory_come_in_order_too(
    *, monkeypatch: pytest.MonkeyPatch, reverse: bool
) -> None:
    monkeypatch.setattr("neve.read.memory_rows.MEMORY_ROWS", 4)
    bench = TableBench()
    bench.add(numbered(range(1, 30, 3)))
    bench.upsert(numbered(range(0, 30, 3)))
    bench.upsert(numbered(range(2, 30, 3)))

    assert ids_of(bench.scan(reverse=reverse, key_range=(None, None))) == sorted(
        range(30), reverse=reverse
    )
    assert [row["id"] for row in bench.rows(limit=2, reverse=reverse, key_range=(4, 20))] == (
        [19, 18] if reverse else [4, 5]
    )


def test_a_range_of_a_composite_key_may_be_by_its_first_column() -> None:
    bench = TableBench(PLACED)
    places = [("a", 1), ("a", 2), ("ab", 1), ("b", 1), ("b", 2), ("c", 1)]
    bench.add([{"amount": 1.0, "shop": shop, "id": number} for shop, number in places])

    found = bench.scan(key_range=("ab", ("b", 2)), columns=["shop", "id"]).to_arrow().to_pylist()

    assert [(row["shop"], row["id"]) for row in found] == [("ab", 1), ("b", 1)]


def test_the_last_rows_of_a_large_table_touch_a_few_groups(two_levels: TableBench) -> None:
    scan = two_levels.scan(reverse=True, limit=10)

    assert ids_of(scan) == [400, *range(299, 290, -1)]
    # Of the first file of level 1 nothing is wanted: it is not even opened.
    (_, second, young) = two_levels.files
    assert sorted(set(two_levels.opened)) == sorted([second, young])
    assert scan.explain().groups_read == 3


def test_two_live_rows_of_one_key_are_damage() -> None:
    bench = TableBench()
    bench.add(numbered(range(5)))
    bench.add(numbered([3]))

    with pytest.raises(Corruption, match="two live rows have the key"):
        bench.scan(key_range=(0, 5)).to_arrow()


# Pruning


def test_a_file_outside_of_the_keys_is_not_opened(two_levels: TableBench) -> None:
    assert ids_of(two_levels.scan(filter="id = 250", columns=["id"])) == [250]

    (_, second, _) = two_levels.files
    assert set(two_levels.opened) <= {second, list(two_levels.files)[2]}
    assert two_levels.scan(filter="id = 250").explain().pruned_by_key == 1


def test_a_file_is_left_out_by_the_bounds_of_its_columns() -> None:
    bench = TableBench()
    bench.add(numbered(range(100)))
    far = bench.add(numbered(range(1_000, 1_100)))

    scan = bench.scan(filter="amount > 200")

    assert len(ids_of(scan)) == scan.count() == 86
    assert set(bench.opened) == {far.path}
    explained = scan.explain()
    assert (explained.files_read, explained.pruned_by_statistics) == (1, 1)


def test_where_every_row_matches_by_bounds_the_filter_is_not_asked() -> None:
    bench = TableBench()
    file = bench.add([{"id": n, "name": "x", "amount": n + 1.0, "day": None} for n in range(40)])

    explained = bench.scan(filter="amount > 0", columns=["id"]).explain()

    assert explained.needs_filter == {file.path: False}
    assert bench.scan(filter="amount > 0").count() == 40
    assert bench.opened == []
    assert bench.scan(filter=pc.field("amount") > 0).explain().needs_filter == {file.path: True}


@every_format
def test_groups_are_left_out_by_the_bounds_of_their_columns(file_format: FileFormat) -> None:
    bench = TableBench()
    bench.add(numbered(range(160)), file_format=file_format)
    scan = bench.scan(filter="amount >= 10 and amount < 11")

    assert ids_of(scan) == [40, 41, 42, 43]

    assert (scan.explain().groups_read, scan.explain().groups_pruned) == (1, 9)


def test_groups_without_live_rows_are_not_read() -> None:
    bench = TableBench()
    bench.add(numbered(range(64)), dead=range(16, 48))
    scan = bench.scan()

    assert len(ids_of(scan)) == 32

    assert (scan.explain().groups_read, scan.explain().groups_pruned) == (2, 2)


class CountingStore(MemoryStore):
    """Counts how often bytes of files are asked for."""

    ranges = 0
    byte_count = 0

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        self.ranges += 1
        self.byte_count += length
        return super().get_range(path, start=start, length=length)


def test_small_groups_that_follow_each_other_are_fetched_together() -> None:
    store = CountingStore()
    bench = TableBench(store=store)
    bench.add(numbered(range(160)), dead=range(64, 80))
    scan = bench.scan()
    scan.to_arrow()
    store.ranges = 0

    assert ids_of(scan) == [*range(64), *range(80, 160)]

    # Ten groups, of which one has no live row: those before it, and those behind it.
    assert (scan.explain().groups_read, scan.explain().groups_pruned) == (9, 1)
    assert store.ranges == 2


def test_groups_of_many_bytes_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neve.read.file_rows._PIECE_BYTES_MAX", 1)
    store = CountingStore()
    bench = TableBench(store=store)
    bench.add(numbered(range(160)))
    scan = bench.scan()
    scan.to_arrow()
    store.ranges = 0

    assert ids_of(scan) == [*range(160)]
    assert (scan.explain().groups_read, store.ranges) == (10, 10)


def test_the_first_group_is_enough_for_few_rows() -> None:
    store = CountingStore()
    bench = TableBench(store=store)
    bench.add(numbered(range(160)))
    bench.scan().to_arrow()
    store.byte_count = 0
    bench.scan().to_arrow()
    whole, store.byte_count = store.byte_count, 0

    assert ids_of(bench.scan(limit=5)) == [*range(5)]

    assert store.byte_count < whole / 5


def test_only_partitions_that_can_match_are_read() -> None:
    spec = PartitionSpec.parse(["month(day)"], NUMBERED)
    bench = TableBench(spec=spec)
    (month,) = spec.fields
    for place, day in enumerate([date(2024, 1, 5), date(2024, 2, 5), None]):
        value = None if day is None else encode_single_value(pa.int32(), 12 * 54 + day.month - 1)
        rows = [{"id": place * 10 + n, "name": "x", "amount": 0.0, "day": day} for n in range(5)]
        file = bench.add(rows, partition=(PartitionValue(field_id=month.field_id, value=value),))
        # Only the partition is left to tell.
        bench.files[file.path] = replace(file, statistics=())

    january = bench.scan(filter="day < '2024-01-31'")
    unknown = bench.scan(filter=col("day").is_null())

    assert (january.count(), january.explain().pruned_by_partition) == (5, 2)
    assert (unknown.count(), unknown.explain().pruned_by_partition) == (5, 2)
    assert ids_of(january) == [0, 1, 2, 3, 4]
    # A partition cannot tell what is asked of another column.
    assert bench.scan(filter="day < '2024-01-31' or id = 12").count() == 6


def test_one_column_is_read_when_one_is_asked_for(two_levels: TableBench) -> None:
    whole = two_levels.scan().explain().byte_count
    amounts = two_levels.scan(columns=["amount"]).explain().byte_count

    assert 0 < amounts < whole / 2


# Counting


def test_counting_without_a_filter_reads_the_manifest_alone() -> None:
    bench = TableBench()
    bench.add(numbered(range(100)), dead=[1, 2])

    assert bench.scan().count() == 98
    assert bench.scan(limit=5).count() == 5
    assert bench.opened == []


def test_counting_and_explaining_decode_no_row_in_memory(
    two_levels: TableBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> pa.Table:
        pytest.fail("rows were decoded")

    monkeypatch.setattr("neve.memtable.memtable_view.MemtableView.live", refuse)

    assert two_levels.scan().count() == 300
    assert two_levels.scan(key_range=(5, 7)).count() == 1
    assert two_levels.scan(filter="id < 10").explain().rows_memtable == 1


def test_counting_a_key_range_reads_no_rows(two_levels: TableBench) -> None:
    for file in two_levels.files.values():
        assert two_levels.open_files.reader(file).key_index.is_exact
        two_levels.open_files.groups.clear()

    assert two_levels.scan(key_range=(0, 10)).count() == 9
    assert two_levels.open_files.groups.byte_count == 0


# Evolution


@every_format
def test_files_of_an_older_schema_are_given_in_the_present_one(file_format: FileFormat) -> None:
    bench = TableBench()
    bench.add(numbered(range(20)), file_format=file_format)
    old = bench.schema
    renamed = tuple(
        replace(column, name="title") if column.name == "name" else column
        for column in old.columns
        if column.name != "day"
    )
    added = Column(field_id=9, name="note", type=pa.string(), nullable=True, initial_default="none")
    later = Column(field_id=10, name="later", type=pa.int32(), nullable=True)
    bench.evolve(replace(old, schema_id=1, columns=(*renamed, added, later), last_field_id=10))
    bench.put({"id": 50, "title": "t", "amount": 1.0, "note": "some", "later": 3})

    assert bench.rows(filter="id in (1, 50)", key_range=(None, None)) == [
        {"id": 1, "title": "1", "amount": 0.25, "note": "none", "later": None},
        {"id": 50, "title": "t", "amount": 1.0, "note": "some", "later": 3},
    ]
    assert bench.scan(filter="note = 'none'").count() == 20
    assert bench.scan(filter="note = 'none'", columns=["note"]).to_arrow().num_rows == 20
    assert bench.rows(filter="title = '3'", columns=["note", "id"]) == [{"note": "none", "id": 3}]
    assert bench.scan(filter="note = 'some'").explain().pruned_by_statistics == 1
    assert bench.scan(filter="later is not null").explain().pruned_by_statistics == 1


def test_rows_in_memory_of_an_older_schema_are_given_in_the_present_one() -> None:
    bench = TableBench()
    bench.upsert(numbered([1, 2]))
    kept = tuple(column for column in bench.schema.columns if column.name in ("id", "name"))
    added = Column(field_id=9, name="note", type=pa.string(), nullable=True, initial_default="no")
    bench.evolve(replace(bench.schema, schema_id=1, columns=(*kept, added), last_field_id=9))
    bench.begin_memtable()
    bench.put({"id": 2, "name": "two", "note": "yes"})

    assert bench.rows(key_range=(None, None)) == [
        {"id": 1, "name": "1", "note": "no"},
        {"id": 2, "name": "two", "note": "yes"},
    ]
    assert bench.rows(filter="note = 'no'", columns=["name"]) == [{"name": "1"}]


@every_format
@pytest.mark.parametrize("key", ["exact", "hashed"])
def test_files_from_before_a_key_column_was_renamed_are_read_and_superseded(
    file_format: FileFormat, key: str
) -> None:
    bench = TableBench(NUMBERED if key == "exact" else PLACED)
    name = bench.schema.key_columns[0].name
    places = [{"amount": 1.0, "shop": f"s{number:02}", "id": number} for number in range(40)]
    bench.add(numbered(range(40)) if key == "exact" else places, file_format=file_format)
    renamed = tuple(
        replace(column, name="renamed") if column.name == name else column
        for column in bench.schema.columns
    )
    bench.evolve(replace(bench.schema, schema_id=1, columns=renamed))
    bench.delete({"renamed": 5} if key == "exact" else {"renamed": "s05", "id": 5})

    last = bench.rows(reverse=True, limit=2, columns=["renamed"])

    assert bench.scan().count() == bench.scan().to_arrow().num_rows == 39
    assert [row["renamed"] for row in last] == ([39, 38] if key == "exact" else ["s39", "s38"])
    assert bench.scan(key_range=(last[1]["renamed"], None)).count() == 2


# How much is read at once


def small_file(store: ObjectStore | None = None) -> TableBench:
    bench = TableBench(store=store)
    with small_groups(rows=16):
        bench.add(numbered(range(200)), level=1, dead=[3, 150])
    return bench


def local_store() -> LocalStore:
    return LocalStore("/lake", disk=SimulatedDisk())


def test_columns_of_fixed_width_are_read_in_pieces_of_many_groups() -> None:
    bench = small_file(local_store())
    reads: list[int] = []

    def note(self: ParquetGroups, groups: range, *args: Any, **options: Any) -> pa.Table:  # noqa: ANN401 - passed on
        reads.append(len(groups))
        return read(self, groups, *args, **options)

    read = ParquetGroups.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParquetGroups, "read", note)
        patch.setattr("neve.read.file_rows.BATCH_ROWS", 32)
        amounts = bench.scan(columns=["amount"]).to_arrow()
        assert reads == [13]
        reads.clear()
        # Texts may be long: only a few groups at a time.
        names = bench.scan(columns=["name"]).to_arrow()
        assert reads == [2] * 6 + [1]
        reads.clear()
        patch.setattr("neve.read.file_rows._PIECE_BYTES_MAX", 64 * 8)
        assert bench.scan(columns=["amount"]).to_arrow().equals(amounts)
        assert reads == [4, 4, 4, 1]
    expected = [row for at, row in enumerate(numbered(range(200))) if at not in {3, 150}]
    assert amounts.to_pylist() == [{"amount": row["amount"]} for row in expected]
    assert names.to_pylist() == [{"name": row["name"]} for row in expected]


@pytest.mark.parametrize(("store", "threaded"), [(local_store, False), (MemoryStore, True)])
def test_few_bytes_of_a_local_table_are_read_without_threads(
    store: Callable[[], ObjectStore], threaded: bool
) -> None:
    bench = small_file(store())
    names: set[str] = set()

    def note(self: ParquetGroups, *args: Any, **options: Any) -> pa.Table:  # noqa: ANN401 - passed on
        names.add(current_thread().name)
        return read(self, *args, **options)

    read = ParquetGroups.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParquetGroups, "read", note)
        patch.setattr("neve.read.file_rows.BATCH_ROWS", 32)
        expected = bench.scan().to_arrow()
        assert any(name.startswith("neve-scan") for name in names) is threaded
        names.clear()
        patch.setattr("neve.read.scan._THREADED_BYTES", 100)
        assert bench.scan().to_arrow().equals(expected)
        assert all(name.startswith("neve-scan") for name in names)


@pytest.mark.parametrize("columns", [["amount"], ["name"], ["id", "name"], None], ids=str)
def test_marked_rows_are_left_out_of_one_column_and_of_all(columns: list[str] | None) -> None:
    bench = small_file(local_store())
    bench.delete({"id": 77})
    found = bench.scan(columns=columns).to_arrow()
    expected = [row for row in numbered(range(200)) if row["id"] not in {3, 77, 150}]
    wanted = bench.batch(expected).select(columns or bench.schema.arrow_schema.names)
    assert found.combine_chunks().to_batches() == [wanted]
    assert bench.scan(filter="id > 70", columns=columns).count() == 127


# Care for files


def test_files_are_pinned_while_a_run_lasts_and_not_longer(two_levels: TableBench) -> None:
    pins = 0
    checks = 0

    class Lease:
        def check(self) -> None:
            nonlocal checks
            checks += 1
            assert pins == 1

    @contextmanager
    def pin() -> Iterator[Lease]:
        nonlocal pins
        pins += 1
        try:
            yield Lease()
        finally:
            pins -= 1

    scan = two_levels.scan(pin=pin)
    batches = scan.to_batches()
    assert pins == 0

    next(batches)
    assert pins == 1
    assert checks > 0
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    assert pins == 0
    assert not [each for each in enumerate_threads() if each.name.startswith("neve-scan")]

    assert scan.count() == 300
    assert scan.to_arrow().num_rows == 300
    assert pins == 0


def test_a_closed_table_ends_a_run(two_levels: TableBench) -> None:
    is_closed = False

    def check() -> None:
        if is_closed:
            raise Closed("the table was closed")

    batches = two_levels.scan(check=check, limit=200).to_batches()
    next(batches)
    is_closed = True

    with pytest.raises(Closed):
        list(batches)


# Explaining


def test_an_explanation_is_a_text_and_its_facts(two_levels: TableBench) -> None:
    scan = two_levels.scan(
        filter="id >= 100 and amount > 5", columns=["id"], key_range=(None, 250), limit=7
    )

    explained = scan.explain()

    assert two_levels.opened == []
    assert explained.files_total == 3
    assert explained.files_read == 2 + 1
    assert explained.order == "ascending"
    assert explained.groups_read is None
    assert "filter     id >= 100 and amount > 5" in str(explained)
    assert "at most 7 rows" in str(explained)
    assert "3 of 3" in str(explained)
    assert "at most 7 rows" in scan._repr_html_()
    assert "id &gt;= 100" in scan._repr_html_()
    assert "version=3" in repr(scan)
