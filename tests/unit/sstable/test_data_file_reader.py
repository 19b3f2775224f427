"""Reading data files: rows, ranges, keys; and what happens when bytes are gone or damaged."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.errors import Corruption, InvalidArgument, NeveError, NotFound
from neve.keys.arrays import key_at
from neve.model.data_file import ROW_FORMATS, DataFile, FileFormat
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema
from neve.observability.metrics import SSTABLE_GROUPS_DECODED, SSTABLE_INDEX_REBUILDS
from neve.sstable.data_file_reader import DataFileReader
from neve.sstable.data_file_writer import WrittenFile
from neve.sstable.parquet_groups import GroupCache
from neve.storage.local_store import LocalStore
from tests.conftest import Record
from tests.gates import Gate
from tests.unit.sstable.data_files import (
    FORMATS,
    PATHS,
    Files,
    index_path_of,
    key_values,
    named_rows,
    path_of,
    plain_rows,
    rows_of_all_types,
)

BUILDERS: dict[str, Callable[[int], tuple[TableSchema, pa.Table]]] = {
    "exact": plain_rows,
    "hashed": named_rows,
}
CASES = {
    f"{fmt}-{keys}": (FORMATS[fmt], BUILDERS[keys]) for fmt, keys in product(FORMATS, BUILDERS)
}
every_case = pytest.mark.parametrize(("file_format", "build"), CASES.values(), ids=CASES)
every_format = pytest.mark.parametrize("file_format", FORMATS.values(), ids=FORMATS)


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make groups of 64 rows at most, so that small files have many; two are a short range."""
    monkeypatch.setattr("neve.sstable.parquet_layout.GROUP_ROWS_MAX", 64)
    monkeypatch.setattr("neve.sstable.data_file_reader._CACHED_RANGE_ROWS", 128)


class Open:
    """A written table and an open reader of it."""

    def __init__(
        self,
        file_format: FileFormat,
        build: Callable[[int], tuple[TableSchema, pa.Table]] = plain_rows,
        count: int = 300,
    ) -> None:
        schema, self.rows = build(count)
        self.files = Files(schema)
        self.written: WrittenFile = self.files.write_one(self.rows, file_format)
        self.file: DataFile = self.written.file
        self.keys: list[bytes] = [
            self.files.encoder.encode(values)
            for values in key_values(self.rows, self.files.encoder.names)
        ]

    @property
    def reader(self) -> DataFileReader:
        return self.files.open(self.file)

    def damage(self, path: str, at: int) -> None:
        payload = bytearray(self.files.store.get(path).payload)
        payload[at] ^= 1
        self.files.store.put(path, bytes(payload))


# Failures first


def test_a_missing_file_is_not_found_by_name() -> None:
    opened = Open(FileFormat.COLUMNAR)
    opened.files.store.delete(path_of(opened.file))
    with pytest.raises(NotFound) as caught:
        _ = opened.reader
    assert caught.value.path == path_of(opened.file)


@pytest.mark.parametrize("surplus", [-1, 1], ids=["shorter", "longer"])
def test_a_file_of_another_size_is_corruption(surplus: int) -> None:
    opened = Open(FileFormat.COLUMNAR)
    payload = opened.files.bytes_of(opened.file)
    changed = payload + b"\0" if surplus > 0 else payload[:surplus]
    opened.files.store.put(path_of(opened.file), changed)
    with pytest.raises(Corruption, match="SSTABLE-1:") as caught:
        _ = opened.reader
    assert caught.value.path == path_of(opened.file)


def test_a_damaged_footer_is_corruption_when_the_file_is_opened() -> None:
    opened = Open(FileFormat.COLUMNAR)
    opened.damage(path_of(opened.file), opened.file.file_bytes - 20)
    with pytest.raises(Corruption, match="damaged footer"):
        _ = opened.reader


def test_a_footer_longer_than_the_first_read_is_read_whole() -> None:
    arrow = pa.schema([(f"column {n:04}", pa.int64()) for n in range(600)])
    schema = TableSchema.from_arrow(arrow, primary_key=["column 0000"])
    rows = pa.table({name: [1, 2] for name in arrow.names}, schema=schema.arrow_schema)
    files = Files(schema)
    reader = files.open(files.write_one(rows).file)
    assert reader.read(None, start=0, stop=2).equals(rows)
    reader.verify()


def test_other_facts_than_the_file_has_are_corruption() -> None:
    opened = Open(FileFormat.COLUMNAR)
    more = replace(opened.file, row_count=301)
    with pytest.raises(Corruption, match="SSTABLE-3:"):
        opened.files.open(more).group(0)


def test_a_damaged_column_is_corruption_only_for_who_reads_it() -> None:
    opened = Open(FileFormat.COLUMNAR)
    metadata = pq.read_metadata(pa.BufferReader(opened.files.bytes_of(opened.file)))
    opened.damage(path_of(opened.file), metadata.row_group(1).column(2).data_page_offset + 3)
    with pytest.raises(Corruption, match=r"'score' of row group 1 is damaged") as caught:
        opened.reader.read(["score"], start=0, stop=300)
    assert caught.value.path == path_of(opened.file)
    assert opened.reader.read(["id", "name"], start=0, stop=300).num_rows == 300
    assert opened.reader.read(["score"], start=0, stop=64).num_rows == 64


def test_rows_that_are_not_there_are_refused() -> None:
    reader = Open(FileFormat.COLUMNAR).reader
    for start, stop in ((-1, 3), (5, 4), (0, 301)):
        with pytest.raises(InvalidArgument, match="Ask for rows from 0"):
            reader.read(None, start=start, stop=stop)


def test_a_column_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match="Did you mean 'score'"):
        Open(FileFormat.COLUMNAR).reader.read(["scor"], start=0, stop=1)


@every_case
@pytest.mark.parametrize("harm", ["missing", "empty", "of another file", "head", "end"])
def test_an_index_file_of_no_use_changes_no_answer(
    file_format: FileFormat, build: Callable[[int], tuple[TableSchema, pa.Table]], harm: str
) -> None:
    opened = Open(file_format, build)
    other = opened.files.write_one(opened.rows.slice(0, 299), file_format)
    path = index_path_of(opened.file)
    payload = opened.files.store.get(path).payload
    match harm:
        case "missing":
            opened.files.store.delete(path)
        case "empty":
            opened.files.store.put(path, b"")
        case "of another file":
            foreign = opened.files.store.get(index_path_of(other.file)).payload
            opened.files.store.put(path, foreign)
        case "head":
            opened.damage(path, 10)
        case _:
            opened.damage(path, len(payload) - 20)
    reader = opened.reader
    assert reader.read(None, start=0, stop=300).equals(opened.rows)
    assert [reader.find(key) for key in opened.keys] == list(range(300))
    assert reader.row(123) == opened.rows.slice(123, 1).to_pylist()[0]
    assert reader.positions_of(opened.written.keys).tolist() == list(range(300))
    assert opened.files.counters.total(SSTABLE_INDEX_REBUILDS) > 0


# Rows


@every_format
@pytest.mark.parametrize("key", ["id", "string", "wide_decimal", "uuid", "fixed", "timestamp_ns"])
def test_rows_of_all_types_and_keys_come_back(file_format: FileFormat, key: str) -> None:
    schema, rows = rows_of_all_types(200, key=(key,) if key == "id" else (key, "id"))
    files = Files(schema)
    keys = files.encoder.encode_arrays([rows.column(name) for name in files.encoder.names])
    order = np.argsort(np.array(keys.to_pylist(), dtype=object))
    rows = rows.take(order).combine_chunks()
    reader = files.open(files.write_one(rows, file_format).file)
    found = reader.read(None, start=0, stop=200)
    assert found.schema.equals(schema.arrow_schema, check_metadata=True)
    # Compared as text: NaN equals nothing.
    assert str(found.to_pylist()) == str(rows.to_pylist())
    (batch,) = rows.to_batches()
    codec = RowCodec(schema)
    assert [str(reader.row(at)) for at in range(200)] == [
        str(codec.decode(value)) for value in codec.encode_batch(batch)
    ]
    assert [reader.find(key_at(keys, int(at))) for at in order] == list(range(200))
    reader.verify()


@every_format
@pytest.mark.parametrize("columns", [None, ["score", "id"], ["name"], []], ids=str)
@pytest.mark.parametrize("parallel_bytes", [16 << 20, 1], ids=["few bytes", "many bytes"])
def test_every_range_of_rows_can_be_read(
    file_format: FileFormat,
    columns: list[str] | None,
    parallel_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("neve.sstable.parquet_groups._PARALLEL_BYTES", parallel_bytes)
    opened = Open(file_format)
    reader = opened.reader
    expected = opened.rows if columns is None else opened.rows.select(columns)
    places = (0, 1, 63, 64, 65, 128, 299, 300)
    for start, stop in [(a, b) for a in places for b in places if a <= b]:
        for use_threads in (True, False):
            found = reader.read(columns, start=start, stop=stop, use_threads=use_threads)
            assert found.schema.equals(expected.schema, check_metadata=True)
            assert found.num_rows == stop - start or columns == []
            assert found.equals(expected.slice(start, stop - start)) or columns == []


@every_format
def test_groups_are_what_the_file_is_made_of(file_format: FileFormat) -> None:
    opened = Open(file_format)
    reader = opened.reader
    assert (reader.group_count, reader.group_rows) == (5, 64)
    groups = [reader.group(n) for n in range(5)]
    assert [group.num_rows for group in groups] == [64, 64, 64, 64, 44]
    assert pa.Table.from_batches(groups).equals(opened.rows)


@every_format
def test_rows_are_taken_in_the_order_asked_for(file_format: FileFormat) -> None:
    opened = Open(file_format)
    positions = np.array([299, 0, 64, 64, 5, 200, 63])
    found = opened.reader.take(positions, ["name", "id"])
    assert found.equals(opened.rows.take(positions).select(["name", "id"]))
    nothing = opened.reader.take(np.zeros(0, np.int64), ["id"])
    assert nothing.num_rows == 0
    assert nothing.schema.names == ["id"]


def test_rows_of_a_columnar_file_are_decoded_once_while_the_cache_holds_them() -> None:
    opened = Open(FileFormat.COLUMNAR)
    reader = opened.reader
    rows = [reader.row(at) for at in range(300)]
    assert rows == opened.rows.to_pylist()
    assert [reader.row(at) for at in range(300)] == rows
    assert opened.files.counters.total(SSTABLE_GROUPS_DECODED) == 5


def test_few_columns_of_rows_are_decoded_alone_unless_the_group_is_there() -> None:
    opened = Open(FileFormat.COLUMNAR)
    reader, positions = opened.reader, np.array([3, 70, 71])
    expected = opened.rows.take(positions).select(["score"])

    for _ in range(2):
        assert reader.take(positions, ["score"]).equals(expected)
    assert opened.files.counters.total(SSTABLE_GROUPS_DECODED) == 2
    assert opened.files.cache.byte_count < 2 * 64 * 10
    opened.files.cache.clear()
    for n in (0, 1):
        reader.group(n)
    assert reader.take(positions, ["score"]).equals(expected)
    assert opened.files.counters.total(SSTABLE_GROUPS_DECODED) == 4


def test_a_short_range_that_comes_again_is_not_decoded_again() -> None:
    opened = Open(FileFormat.COLUMNAR)
    reader = opened.reader
    for columns in (None, ["name"], ["id", "score"]):
        found = reader.read(columns, start=70, stop=130)
        names = opened.rows.schema.names if columns is None else columns
        assert found.equals(opened.rows.slice(70, 60).select(names))
    assert opened.files.counters.total(SSTABLE_GROUPS_DECODED) == 2


def test_whole_groups_and_single_columns_do_not_fill_the_cache() -> None:
    opened = Open(FileFormat.COLUMNAR)
    reader = opened.reader
    reader.read(None, start=0, stop=300)
    reader.read(None, start=64, stop=192)
    reader.read(None, start=10, stop=200)
    reader.read(["name"], start=70, stop=80)
    assert opened.files.cache.byte_count == 0


def test_a_cache_without_room_changes_no_row() -> None:
    schema, rows = plain_rows(300)
    files = Files(schema, cache_bytes=0)
    reader = files.open(files.write_one(rows).file)
    assert [reader.row(at) for at in range(300)] == rows.to_pylist()
    assert files.cache.byte_count == 0


def test_rows_of_a_dual_file_are_not_decoded() -> None:
    opened = Open(FileFormat.DUAL)
    reader = opened.reader
    assert [reader.row(at) for at in range(300)] == opened.rows.to_pylist()
    assert opened.files.counters.total(SSTABLE_GROUPS_DECODED) == 0


@every_format
def test_files_on_disk_are_read_like_those_in_memory(
    file_format: FileFormat, tmp_path: object
) -> None:
    schema, rows = plain_rows(300)
    files = Files(schema, store=LocalStore(str(tmp_path)))
    reader = files.open(files.write_one(rows, file_format).file)
    assert reader.read(None, start=0, stop=300).equals(rows)
    assert reader.row(299) == rows.slice(299, 1).to_pylist()[0]
    reader.verify()


@every_case
def test_many_threads_read_one_file_at_once(
    file_format: FileFormat, build: Callable[[int], tuple[TableSchema, pa.Table]]
) -> None:
    opened = Open(file_format, build)
    # Room for two groups only, so that threads take groups away from each other.
    opened.files.cache = GroupCache(2 * opened.reader.group(0).get_total_buffer_size())
    reader = opened.reader
    expected = opened.rows.to_pylist()

    def work(seed: int) -> bool:
        random = Random(seed)
        found = True
        for _ in range(40):
            at = random.randrange(300)
            found &= reader.row(reader.find(opened.keys[at])) == expected[at]
        return found and bool(reader.read(None, start=0, stop=300).equals(opened.rows))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


# Keys


@every_case
def test_every_key_is_found_and_no_other(
    file_format: FileFormat, build: Callable[[int], tuple[TableSchema, pa.Table]]
) -> None:
    opened = Open(file_format, build)
    reader = opened.reader
    assert [reader.find(key) for key in opened.keys] == list(range(300))
    present = set(opened.keys)
    changed = {key[:-1] + bytes((key[-1] ^ bit,)) for key in opened.keys for bit in (1, 2, 64)}
    assert len(changed - present) > 300
    assert {reader.find(key) for key in changed - present} == {-1}


@every_case
def test_many_keys_are_found_in_any_order(
    file_format: FileFormat, build: Callable[[int], tuple[TableSchema, pa.Table]]
) -> None:
    opened = Open(file_format, build)
    reader, files = opened.reader, opened.files
    places = np.random.default_rng(1).permutation(300)[:100]
    more = Open(file_format, build, count=400).written.keys
    wanted = more.take([*places.tolist(), 399, 350])
    hits, positions = reader.find_many(wanted, files.hashes.of(wanted))
    assert hits.tolist() == list(range(100))
    assert positions.tolist() == places.tolist()
    assert reader.positions_of(wanted).tolist() == sorted(places.tolist())
    assert reader.keys_at(places).to_pylist() == [opened.keys[place] for place in places]


def test_keys_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    # A hash that is the same for every key: all rows are candidates of each.
    monkeypatch.setattr("neve.keys.key_hashes._hash", lambda _: 7)
    monkeypatch.setattr(
        "neve.keys.key_hashes.KeyHashes.of",
        lambda _, keys: np.full(len(keys), 7, np.uint64),
    )
    for file_format in ROW_FORMATS:
        opened = Open(file_format, named_rows, count=70)
        reader = opened.reader
        assert [reader.find(key) for key in opened.keys] == list(range(70))
        assert reader.find(opened.keys[0] + b"\0") == -1
        assert reader.positions_of(opened.written.keys.take([3, 65])).tolist() == [3, 65]


@every_case
def test_bounds_of_any_bytes_lie_where_the_order_of_keys_says(
    file_format: FileFormat, build: Callable[[int], tuple[TableSchema, pa.Table]]
) -> None:
    opened = Open(file_format, build)
    reader = opened.reader
    probes = [b"", b"\xff" * 20, *opened.keys[::17]]
    probes += [key[:-1] for key in opened.keys[::23]] + [key + b"\0" for key in opened.keys[::29]]
    probes += [key[:-1] + bytes((key[-1] ^ 3,)) for key in opened.keys[::31]]
    for probe in probes:
        assert reader.key_bound(probe, side="left") == sum(key < probe for key in opened.keys)
        assert reader.key_bound(probe, side="right") == sum(key <= probe for key in opened.keys)


# Files of others


def test_a_file_that_others_wrote_is_read_with_its_uneven_groups() -> None:
    schema, rows = plain_rows(300)
    files = Files(schema)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema.arrow_schema, write_page_checksum=True) as writer:
        for start, stop in ((0, 10), (10, 200), (200, 300)):
            writer.write_table(rows.slice(start, stop - start))
    payload = sink.getvalue().to_pybytes()
    files.store.put(f"{PATHS.root}/data/foreign.parquet", payload)
    file = DataFile(
        path="data/foreign.parquet",
        file_bytes=len(payload),
        row_count=300,
        level=1,
        key_min=files.encoder.encode([0]),
        key_max=files.encoder.encode([897]),
    )
    reader = files.open(file)
    assert (reader.group_count, reader.group_rows) == (3, 190)
    assert reader.read(None, start=5, stop=250).equals(rows.slice(5, 245))
    assert [reader.row(at) for at in range(300)] == rows.to_pylist()
    assert reader.find(files.encoder.encode([600])) == 200
    reader.verify()
    next_chunk = pq.read_metadata(pa.BufferReader(payload)).row_group(2).column(0)
    damaged = bytearray(payload)
    damaged[(next_chunk.dictionary_page_offset or next_chunk.data_page_offset) - 3] ^= 4
    files.store.put(f"{PATHS.root}/data/foreign.parquet", bytes(damaged))
    with pytest.raises(Corruption, match="row group 1"):
        files.open(file).read(None, start=0, stop=300)


def test_a_null_in_a_column_that_has_none_is_corruption() -> None:
    schema, rows = plain_rows(3)
    files = Files(schema)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [None, 3, 6], "name": ["a"] * 3, "score": [1.0] * 3}), sink)
    payload = sink.getvalue().to_pybytes()
    files.store.put(f"{PATHS.root}/data/a.parquet", payload)
    file = DataFile(
        path="data/a.parquet",
        file_bytes=len(payload),
        row_count=rows.num_rows,
        level=1,
        key_min=files.encoder.encode([0]),
        key_max=files.encoder.encode([6]),
    )
    with pytest.raises(Corruption, match="column 'id' has NULL"):
        files.open(file).read(None, start=0, stop=3)


# Verification


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"key_min": b"\x7f"}, id="lowest key"),
        pytest.param({"key_max": b"\xff"}, id="highest key"),
    ],
)
def test_verifying_compares_the_keys_with_the_facts(facts: dict[str, bytes]) -> None:
    opened = Open(FileFormat.COLUMNAR)
    changed = replace(
        opened.file,
        key_min=facts.get("key_min", opened.file.key_min),
        key_max=facts.get("key_max", opened.file.key_max),
    )
    with pytest.raises(Corruption, match="key of the data file") as caught:
        opened.files.open(changed).verify()
    assert caught.value.path == path_of(opened.file)


def test_verifying_finds_rows_out_of_order() -> None:
    schema, rows = plain_rows(100)
    files = Files(schema)
    sink = pa.BufferOutputStream()
    pq.write_table(rows.take([*range(50), 51, 50, *range(52, 100)]), sink)
    payload = sink.getvalue().to_pybytes()
    files.store.put(f"{PATHS.root}/data/a.parquet", payload)
    file = DataFile(
        path="data/a.parquet",
        file_bytes=len(payload),
        row_count=100,
        level=1,
        key_min=files.encoder.encode([0]),
        key_max=files.encoder.encode([297]),
    )
    with pytest.raises(Corruption, match="do not ascend"):
        files.open(file).verify()


# R11


def answers(reader: DataFileReader, keys: list[bytes]) -> list[object]:
    """Ask a reader all that it can be asked."""
    rows = reader.file.row_count
    return [
        reader.read(None, start=0, stop=rows).to_pylist(),
        reader.read(["name"], start=1, stop=rows).to_pylist(),
        [reader.row(reader.find(key)) for key in keys],
        reader.key_bound(keys[1], side="left"),
    ]


def test_no_flipped_bit_of_a_data_file_changes_an_answer(scoreboard: Record) -> None:
    lakes = {
        name: Open(file_format, build, count=70) for name, (file_format, build) in CASES.items()
    }
    expected = {name: answers(lake.reader, lake.keys) for name, lake in lakes.items()}
    payloads = {name: lake.files.bytes_of(lake.file) for name, lake in lakes.items()}
    bits = [(name, bit) for name, payload in payloads.items() for bit in range(8 * len(payload))]
    Random(1).shuffle(bits)
    gate = Gate("R11 data file bit flips with a wrong answer", aim=len(bits), full=len(bits))
    noticed = 0
    for seed in gate.seeds():
        name, bit = bits[seed]
        lake = lakes[name]
        damaged = bytearray(payloads[name])
        damaged[bit >> 3] ^= 1 << (bit & 7)
        lake.files.store.put(path_of(lake.file), bytes(damaged))
        lake.files.cache.clear()
        gate.cases += 1
        try:
            gate.violations += answers(lake.reader, lake.keys) != expected[name]
        except NeveError as error:
            noticed += isinstance(error, Corruption)
            gate.violations += not isinstance(error, Corruption)
        with pytest.raises(Corruption):
            lake.reader.verify()
        lake.files.store.put(path_of(lake.file), payloads[name])
    scoreboard(gate.line())
    assert noticed
    assert not gate.violations
