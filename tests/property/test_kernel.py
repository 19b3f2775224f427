"""The compiled kernel answers as its twins in Python do, for sound, damaged and hostile input."""

import gc
import sys
from collections import OrderedDict
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any, cast

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neve
from neve.errors import NeveError
from neve.kernel import is_compiled, kernel
from neve.model import row_codec
from neve.model.arrow_buffers import position_array
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema
from neve.sstable import row_cells
from neve.sstable.parquet_groups import GroupCache
from neve.sstable.row_cells import RowCells
from neve.sstable.row_gather import Gather, GatherSource
from neve.wal.put_records import put_record_in_python, read_puts_in_python
from neve.wal.record_format import Dialect, RecordType, checksum_seed
from tests.property.mutation import mutated
from tests.property.typed_values import Table, same, tables

pytestmark = pytest.mark.skipif(not is_compiled, reason="the kernel was not built, or is off")

LOG, NONCE = 7, 0x0123_4567_89AB_CDEF
SEED = checksum_seed(Dialect.CRC32C, record_type=int(RecordType.RECYCLABLE_FULL), log_number=LOG)
U64 = st.integers(0, (1 << 64) - 1)
LENGTHS = st.integers(0, 300) | st.sampled_from([127, 128, 16_383, 16_384, 32_700, 32_760])
# Values that most columns refuse, or take in some other way than most.
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1 << 31, 1 << 63, -(1 << 63), 1 << 200, 0.0, -0.0, 1e300, 1e-320),
    *(float("nan"), float("inf"), "", "\0", "\ud800", "é\U0001f600", b"", b"1234567", bytearray(7)),
    *(Decimal("1.5"), Decimal("NaN"), Decimal("1E+99"), [], [1], {}, {"f0": 1}, (), object()),
    *(np.int32(1), np.float32(1.5), np.bool_(True), np.str_("x")),
]


def no_row(_given: object) -> dict[str, object]:
    raise LookupError


def outcome(call: Callable[..., object], *given: object) -> object:
    """Return what a call returns, or its error in words."""
    try:
        return call(*given)
    except (NeveError, TypeError, ValueError, IndexError) as error:
        return type(error), str(error), getattr(error, "column", None)


@given(st.integers(0, (1 << 32) - 1), st.binary(max_size=100))
def test_checksums_are_those_of_the_library(seed: int, data: bytes) -> None:
    wanted = google_crc32c.extend(seed, data)

    assert kernel.crc32c_extend(seed, data) == wanted
    assert kernel.crc32c_extend(seed, data, True) == wanted


# Records


@given(LENGTHS, LENGTHS, st.integers(0, 200), U64, U64, U64, st.integers(-5, 40_000), st.data())
def test_a_put_has_the_same_record(  # noqa: PLR0917 - what a record is made of
    key_bytes: int,
    value_bytes: int,
    version: int,
    sequence: int,
    durable: int,
    nonce: int,
    room: int,
    data: st.DataObject,
) -> None:
    fill = data.draw(st.binary(min_size=1, max_size=1))
    row = (fill * key_bytes, fill * value_bytes, version)
    room = min(room, 32_757)

    made = row, sequence, durable, nonce, SEED, LOG, room

    assert kernel.put_record(*made) == put_record_in_python(*made)


def block_of(rng: Random) -> tuple[bytes, int]:
    """Return records of puts, one after the other, and the sequence number of the first."""
    first = rng.choice((1, 5, (1 << 56) - 3))
    block, version = b"", 0
    for sequence in range(first, first + rng.randrange(40)):
        key = rng.randbytes(rng.choice((0, 1, 8, 8, 8, 127)))
        value = rng.randbytes(rng.choice((0, 1, 127, 128, 129, 300, 16_384)))
        version = rng.choice((0, 1, 127)) if rng.random() < 0.05 else version
        nonce = rng.randrange(1 << 64) if rng.random() < 0.02 else NONCE
        record = put_record_in_python(
            (key, value, version), sequence, rng.randrange(first), nonce, SEED, LOG, 32_757
        )
        assert record is not None
        block += record
    return block, first


@pytest.mark.parametrize("seed", range(300))
def test_a_block_has_the_same_puts(seed: int) -> None:
    rng = Random(seed)
    block, first = block_of(rng)
    if block and rng.random() < 0.7:
        block = mutated(block, rng)
    limit = rng.choice((first, first + 3, 1 << 56))

    for start in (0, 1, rng.randrange(len(block) + 50)):
        read = (block[: rng.randrange(len(block) + 1)], start, first, limit, LOG, NONCE, SEED)
        assert kernel.read_puts(*read) == read_puts_in_python(*read)
        read = (block, *read[1:])
        assert kernel.read_puts(*read) == read_puts_in_python(*read)


def test_every_prefix_of_a_block_has_the_same_puts() -> None:
    records = [
        put_record_in_python((b"k" * n, b"v" * n, 1), n, 0, NONCE, SEED, LOG, 32_757)
        for n in (1, 2, 3)
    ]
    block = b"".join(filter(None, records))

    for end in range(len(block) + 1):
        read = (block[:end], 0, 1, 1 << 56, LOG, NONCE, SEED)
        assert kernel.read_puts(*read) == read_puts_in_python(*read)


# Rows


@given(tables(), st.data())
def test_a_row_has_the_same_bytes_or_the_same_error(table: Table, data: st.DataObject) -> None:
    codec = RowCodec(table.schema)
    for row in table.rows:
        assert codec.encode(row) == codec._writer.write(row)
        changed = dict(row)
        name = data.draw(st.sampled_from([*row]))
        match data.draw(st.sampled_from(["odd", "missing", "more", "order", "class"])):
            case "odd":
                changed[name] = data.draw(st.sampled_from(ODD))
            case "missing":
                del changed[name]
            case "more":
                changed[name + "x"] = changed[name]
            case "order":
                changed[name] = changed.pop(name)
            case _:
                changed = OrderedDict(changed)

        assert outcome(codec.encode, changed) == outcome(codec._writer.write, changed)


@pytest.mark.parametrize("row", [None, 1, [], "id", {}, {1: 2}, object()])
def test_what_is_no_row_is_the_same_error(row: object) -> None:
    codec = RowCodec(TableSchema.from_arrow(pa.schema({"id": pa.int64()}), primary_key=["id"]))

    assert str(outcome(codec.encode, row)) == str(outcome(codec._writer.write, row))


@given(tables(rows_max=2), st.randoms(use_true_random=False))
def test_bytes_are_the_same_row_or_the_same_error(table: Table, rng: Random) -> None:
    codec = RowCodec(table.schema)
    for row in table.rows:
        value = codec.encode(row)
        assert same(codec.decode(value), codec._readers.read(value))
        assert [*codec.decode(value)] == [*codec._readers.read(value)]
        for _ in range(20):
            damaged = mutated(value, rng)
            found = outcome(codec.decode, damaged), outcome(codec._readers.read, damaged)
            assert same(*found), damaged


def test_every_prefix_and_every_flipped_bit_of_a_row_is_the_same() -> None:
    kinds: dict[str, pa.DataType] = {
        "id": pa.int64(), "b": pa.bool_(), "f": pa.float32(), "s": pa.string(), "x": pa.binary(),
        "d": pa.date32(), "u": pa.uuid(), "l": pa.list_(pa.string()), "n": pa.int32(),
    }  # fmt: skip
    codec = RowCodec(TableSchema.from_arrow(pa.schema(kinds), primary_key=["id"]))
    value = codec.encode({"id": 1, "b": True, "s": "é", "x": b"12", "l": ["a", None], "n": -1})

    damaged = [value[:end] for end in range(len(value))]
    for bit in range(8 * len(value)):
        flipped = bytearray(value)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))

    for each in (*damaged, value + b"1"):
        assert same(outcome(codec.decode, each), outcome(codec._readers.read, each)), each


def test_a_row_of_many_columns_is_the_same() -> None:
    names = [f"c{at}" for at in range(300)]
    kinds: dict[str, pa.DataType] = {"id": pa.int64()} | {
        name: (pa.string(), pa.int32(), pa.binary(9))[at % 3] for at, name in enumerate(names)
    }
    codec = RowCodec(TableSchema.from_arrow(pa.schema(kinds), primary_key=["id"]))
    values = ("text" * 9, 5, b"123456789")
    row: dict[str, object] = {"id": 1} | {
        name: None if at % 7 == 0 else values[at % 3] for at, name in enumerate(names)
    }

    value = codec.encode(row)

    assert value == codec._writer.write(row)
    assert codec.decode(value) == codec._readers.read(value) == row


# Rows of batches


@given(tables(rows_max=9), st.data())
def test_a_batch_has_the_same_rows(table: Table, data: st.DataObject) -> None:
    codec, cells = RowCodec(table.schema), RowCells(table.schema)
    whole = codec.decode_many([codec.encode(row) for row in table.rows])
    start = data.draw(st.integers(0, whole.num_rows))
    batch = whole.slice(start, data.draw(st.integers(0, whole.num_rows - start)))

    row, twin = cells.bind(batch), cells.bind_in_python(batch)

    for at in range(-1, batch.num_rows + 2):
        if 0 <= at < batch.num_rows:
            assert same(row(at), twin(at))
        else:
            assert outcome(row, at) == outcome(twin, at)


@pytest.mark.parametrize("seed", range(100))
def test_offsets_that_lead_anywhere_read_nothing_else(seed: int) -> None:
    rng = Random(seed)
    kinds: dict[str, pa.DataType] = {"id": pa.int64(), "s": pa.string(), "x": pa.binary()}
    schema = TableSchema.from_arrow(pa.schema(kinds), primary_key=["id"])
    content = pa.py_buffer(rng.randbytes(20))
    wild = (0, 1, 5, 19, 20, 21, 1000, -1, -5, (1 << 31) - 1, -(1 << 31))
    columns: list[Any] = [pa.array([1, 2, 3, 4])]
    for kind in (pa.string(), pa.binary()):
        offsets = np.array([0, *rng.choices(wild, k=3), 20], np.int32)
        buffers = [None, pa.py_buffer(offsets.data), content]
        columns.append(pa.Array.from_buffers(kind, 4, buffers))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)
    cells = RowCells(schema)

    row, twin = cells.bind(batch), cells.bind_in_python(batch)

    for at in range(4):
        assert outcome(row, at) == outcome(twin, at)


def test_a_column_of_an_unknown_kind_or_with_too_few_bytes_is_refused() -> None:
    eight: Any = pa.py_buffer(bytes(8))
    none: Any = None
    wrong: list[Any] = [
        [("a", "q", 0, 1, none, none, eight, none)],
        [("a", "q", 0, -1, none, none, eight, none)],
        [("a", "q", 0, sys.maxsize, none, none, eight, none)],
        [("a", "i", 0, 0, none, none, none, none)],
        [("a", "t", 0, 1, none, none, eight, none)],
        [("a", "?", 0, 64, none, none, eight, none)],
        [("a", "i", 0, 64, none, eight, pa.py_buffer(bytes(400)), none)],
        [("a", "s", 0, 0, none, none, eight, none)],
        [("a", "s", -1, 0, none, none, eight, none)],
        [("a", "s", sys.maxsize, 0, none, none, eight, none)],
        [("a", "z", 0, 0, none, none, eight, none)],
        [("a", "o", 0, 0, none, none, none, none)],
    ]
    for columns in wrong:
        with pytest.raises(ValueError, match=r"short|kind"):
            kernel.BatchRows(1, columns, no_row, ())
    for unfit in ([1], [()], [(1, "q", 0, 0, none, none, eight, none)], (), None):
        with pytest.raises(TypeError):
            kernel.BatchRows(1, unfit, no_row, ())  # type: ignore[arg-type]


def test_what_is_not_a_row_is_no_reader_and_no_writer() -> None:
    with pytest.raises(ValueError, match="bitmap"):
        kernel.RowReader(b"h", 2, [("a", "q", 0, True, None)], no_row, ())
    with pytest.raises(ValueError, match="columns"):
        kernel.RowReader(b"h", 1, [("a", "o", 0, True, None)], no_row, ())
    with pytest.raises(ValueError, match="bitmap"):
        kernel.RowWriter(b"h", 0, 99, [("a", int, "q", 0, -1, None)], bytes, ())
    with pytest.raises(ValueError, match="columns"):
        kernel.RowWriter(b"h", 1, 99, [("a", int, "q", 0, 8, None)], bytes, ())
    columns: list[Any] = [("a", str, "t", 0, 1, None), ("b", int, "q", 0, 1, None)]
    with pytest.raises(ValueError, match="columns"):
        kernel.RowWriter(b"h", 1, 99, columns, bytes, ())
    for bitmap_bytes in (-1, 2, sys.maxsize):
        with pytest.raises(ValueError, match="bitmap"):
            kernel.RowWriter(b"h", bitmap_bytes, 99, [("a", int, "q", 0, 9, None)], bytes, ())
    wrong: list[Any] = [(), (b"h", 1), ("h", 1, [], bytes, ()), (b"h", 1, (), bytes, ())]
    for arguments in wrong:
        with pytest.raises(TypeError):
            kernel.RowReader(*arguments)


@pytest.mark.parametrize("width", [-1, 0, 1 << 31, sys.maxsize])
def test_a_width_that_no_value_has_is_refused(width: int) -> None:
    wide: list[Any] = [(name, bytes, "s", width, -1, None) for name in "ab"]
    with pytest.raises(ValueError, match="kind"):
        kernel.RowWriter(b"h", 1, 99, wide, bytes, ())
    with pytest.raises(ValueError, match="kind"):
        kernel.RowReader(b"h", 1, [(name, "s", width, False, None) for name in "ab"], no_row, ())


def test_columns_that_change_while_they_are_read_are_read_as_they_were() -> None:
    class Number:
        def __index__(self) -> int:
            columns.clear()
            gc.collect()
            return 4

    four: Any = Number()
    none: Any = None
    cells: Any = pa.py_buffer(bytes(8))
    columns: list[Any] = [("a", "s", four, True, None), ("b" * 9, "i", 0, True, None)]
    reader = kernel.RowReader(b"h", 1, columns, no_row, ())
    assert reader.read(b"h\0" + bytes(8)) == {"a": bytes(4), "b" * 9: 0}

    columns += [("a", bytes, "s", four, 0, None), ("b" * 9, int, "i", 0, 1, None)]
    writer = kernel.RowWriter(b"h", 1, 99, columns, bytes, ())
    assert writer.write({"a": b"1234", "b" * 9: 0}) == b"h\0" + b"1234" + bytes(4)

    columns += [(name, "s", four, 0, none, none, cells, none) for name in ("a", "b" * 9)]
    batch = kernel.BatchRows(1, columns, no_row, ())
    assert batch.row(0) == {"a": bytes(4), "b" * 9: bytes(4)}

    places = np.zeros(1, np.int64)
    columns += [(np.arange(8), none, none, four, places) for _ in range(2)]
    made = kernel.gather(8, columns, np.arange(2))
    assert made == (bytes(16), None, None)


class Interruption(OSError):
    """What a signal handler may raise in the middle of anything."""


def test_only_the_errors_that_the_twin_catches_lead_to_it() -> None:
    errors: list[Exception] = []

    def converted(_value: object) -> Any:  # noqa: ANN401 - never returns
        raise errors.pop()

    none: Any = None
    row: dict[str, object] = {"a": 1}
    twin: dict[str, object] = {"a": 2}
    writer = kernel.RowWriter(
        b"h", 1, 99, [("a", int, "i", 0, -1, converted)], lambda _: b"twin", (KeyError,)
    )
    reader = kernel.RowReader(
        b"h", 1, [("a", "i", 0, True, converted)], lambda _: twin, (ValueError, KeyError)
    )
    batches = [
        kernel.BatchRows(
            1, [("a", kind, 0, 0, converted, none, cells, none)], lambda _: twin, error
        )
        for kind, cells, error in (
            ("i", pa.py_buffer(bytes(4)), (KeyError,)),
            ("o", none, (KeyError,)),
        )
    ]
    calls: list[tuple[Callable[..., object], object, object]] = [
        (writer.write, row, b"twin"),
        (reader.read, b"h\0" + bytes(4), twin),
        *((batch.row, 0, twin) for batch in batches),
    ]
    for call, given_, by_twin in calls:
        errors.append(KeyError())
        assert call(given_) == by_twin
        for error in (Interruption(), MemoryError(), RecursionError()):
            errors.append(error)
            with pytest.raises(type(error)):
                call(given_)
    for number in (1 << 70, -(1 << 70)):
        assert batches[0].row(number) == twin


def test_an_interruption_of_a_row_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: dict[str, pa.DataType] = {"id": pa.int64(), "d": pa.decimal128(9, 2)}
    schema = TableSchema.from_arrow(pa.schema(kinds), primary_key=["id"])
    row: dict[str, object] = {"id": 1, "d": Decimal("1.50")}
    whole = RowCodec(schema).encode(row)
    batch = RowCodec(schema).decode_many([whole])
    is_due = False

    def once(convert: Callable[[Any], object] | None) -> Callable[[Any], object] | None:
        def converted(value: object) -> object:
            nonlocal is_due
            if is_due:
                is_due = False
                raise Interruption
            assert convert is not None
            return convert(value)

        return None if convert is None else converted

    def with_interruption(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: once(original(*given))

    for module, name in (
        (row_codec, "_quick_writer"),
        (row_codec, "value_reader"),
        (row_cells, "value_reader"),
    ):
        monkeypatch.setattr(module, name, with_interruption(getattr(module, name)))
    codec, bound = RowCodec(schema), RowCells(schema).bind(batch)
    calls: list[tuple[Callable[..., object], object, object]] = [
        (codec.encode, row, whole),
        (codec.decode, whole, row),
        (bound, 0, row),
    ]
    for call, argument, answer in calls:
        is_due = True
        with pytest.raises(Interruption):
            call(argument)
        assert call(argument) == answer


def test_a_row_of_fixed_width_that_is_too_long_is_left_to_the_twin() -> None:
    columns: list[Any] = [("a", int, "q", 0, -1, None)]
    for bytes_max in (-1, 0, 5, 9):
        writer = kernel.RowWriter(b"h", 1, bytes_max, columns, lambda _: b"twin", ())
        assert writer.write({"a": 1}) == b"twin"
    assert len(kernel.RowWriter(b"h", 1, 10, columns, bytes, ()).write({"a": 1})) == 10


def test_a_long_text_does_not_grow_when_it_is_written() -> None:
    kinds: dict[str, pa.DataType] = {"id": pa.int64(), "s": pa.string()}
    codec = RowCodec(TableSchema.from_arrow(pa.schema(kinds), primary_key=["id"]))
    text = "é" * 1025
    size = sys.getsizeof(text)

    codec.encode({"id": 1, "s": text})

    assert sys.getsizeof(text) == size


@pytest.mark.parametrize("count", range(9))
def test_a_wrong_number_of_arguments_is_refused(count: int) -> None:
    arguments: list[Any] = [1] * count
    for call, right in ((kernel.put_record, 7), (kernel.read_puts, 7), (kernel.gather, 3)):
        if count != right:
            with pytest.raises(TypeError):
                call(*arguments)
    with pytest.raises(TypeError):
        kernel.put_record((b"", b""), *[1] * 6)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        kernel.put_record((b"", b"", 1), -1, 0, 0, 0, 0, 99)
    with pytest.raises(ValueError, match="negative"):
        kernel.read_puts(b"", -1, 0, 0, 0, 0, 0)


def test_neither_answers_nor_errors_keep_memory() -> None:
    kinds: dict[str, pa.DataType] = {
        "id": pa.int64(),
        "s": pa.string(),
        "d": pa.date32(),
        "l": pa.list_(pa.int32()),
    }
    schema = TableSchema.from_arrow(pa.schema(kinds), primary_key=["id"])
    codec = RowCodec(schema)
    rows: list[Any] = [
        {"id": 1, "s": "é", "d": None, "l": [1]},
        {"id": 1 << 70, "s": "é", "d": None, "l": [1]},
        {"id": 1, "s": "\ud800", "d": None, "l": None},
        {"id": 1, "s": "x", "d": 5, "l": ["x"]},
        {"id": 1, "s": "x"},
        None,
    ]
    value = codec.encode(rows[0])
    record = kernel.put_record((b"k", value, 0), 1, 0, NONCE, SEED, LOG, 999)
    assert record is not None

    def work() -> None:
        for row in rows:
            outcome(codec.encode, row)
        for each in (value, value[:-1], value[:9], b"", value.replace(b"\xc3", b"\xff")):
            outcome(codec.decode, each)
        row = RowCells(schema).bind(codec.decode_many([value]))
        for at in (0, 1, -1):
            outcome(row, at)
        for block in (record, record[:-1], record * 2):
            kernel.read_puts(block, 0, 1, 9, LOG, NONCE, SEED)
        for columns in ([("a", "q", 0, True, None), ()], [()], [("a", "z", 0, True, None)]):
            outcome(kernel.RowReader, b"h", 1, columns, dict, ())

    def kept(times: int) -> int:
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(times):
            work()
        gc.collect()
        return sys.getallocatedblocks() - before

    kept(20)
    none_before = sys.getrefcount(None)
    assert kept(200) < 100
    assert abs(sys.getrefcount(None) - none_before) < 100


# Keys, and the rows of a file


@pytest.mark.parametrize("width", [4, 8])
@given(number=st.integers(-(1 << 65), 1 << 65) | st.integers(-(1 << 31) - 2, (1 << 31) + 2))
def test_an_int_is_the_same_key_and_everything_else_is_left_to_the_twin(
    width: int, number: int
) -> None:
    bias = 1 << (8 * width - 1)
    encode = kernel.IntegerKey(width, lambda value: repr(value).encode()).encode

    found = encode(number)

    is_in_range = -bias <= number < bias
    assert found == ((number + bias).to_bytes(width) if is_in_range else b"%d" % number)
    for odd in ODD:
        if type(odd) is not int:
            assert encode(odd) == repr(odd).encode()


@given(
    st.lists(st.integers(0, (1 << 64) - 1) | st.integers(0, 40), unique=True).map(sorted),
    st.integers(1, 9),
    st.sets(st.integers(0, 40)),
    st.booleans(),
    st.data(),
)
def test_a_file_has_the_same_rows(
    words: list[int], group_rows: int, marked: set[int], is_cached: bool, data: st.DataObject
) -> None:
    def get_row(position: int) -> dict[str, object]:
        return {"position": position}

    def getter(n: int) -> Callable[[int], dict[str, object]]:
        return lambda i: get_row(n * group_rows + i)

    getters = {n: getter(n) for n in range(20) if n % 2} if is_cached else {}
    array = np.array(words, np.uint64)
    find = kernel.FileRows(array, group_rows, getters, marked or None, get_row).find_row

    for word in (*words, data.draw(st.integers(0, (1 << 64) - 1)), 0, (1 << 64) - 1):
        position = words.index(word) if word in words else -1
        is_live = position >= 0 and position not in marked
        assert find(b"", word) == ({"position": position} if is_live else None)


def test_a_search_for_what_is_no_word_and_errors_of_rows_are_raised() -> None:
    words = np.array([5, 7], np.uint64)

    def fail(position: int) -> dict[str, object]:
        raise KeyError(position)

    rows = kernel.FileRows(words, 1, {0: fail}, None, fail)
    for word in (5, 7):
        with pytest.raises(KeyError):
            rows.find_row(b"", word)
    with pytest.raises(OverflowError):
        rows.find_row(b"", -1)
    with pytest.raises(TypeError):
        rows.find_row(b"")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        kernel.FileRows(words, 1, {}, 5, fail).find_row(b"", 5)  # type: ignore[arg-type]
    for group_rows, getters in ((0, {}), (1, [])):
        with pytest.raises(ValueError, match="group"):
            kernel.FileRows(words, group_rows, getters, None, fail)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="four or eight"):
        kernel.IntegerKey(3, repr)  # type: ignore[arg-type]


def test_a_row_has_its_key_or_is_left_to_the_twin() -> None:
    def fallback(row: object) -> tuple[bytes, bytes]:
        raise LookupError(row)

    def refuse(_row: object) -> bytes:
        raise ValueError

    def keyed(row: object, encode: Callable[..., bytes] = lambda _: b"value") -> object:
        return kernel.keyed_row(
            encode, lambda key: b"key of %d" % cast("int", key), "id", fallback, row
        )

    assert keyed({"id": 5}) == (b"key of 5", b"value")
    for row in ({}, {"other": 1}, OrderedDict(id=5), None):
        with pytest.raises(LookupError):
            keyed(row)
    with pytest.raises(ValueError):  # noqa: PT011 - that of the function
        keyed({"id": 5}, refuse)
    with pytest.raises(TypeError):
        keyed({"id": "x"})


def test_a_cached_group_that_is_read_stays_and_is_counted() -> None:
    schema = TableSchema.from_arrow(pa.schema({"id": pa.int64()}), primary_key=["id"])
    batch = pa.record_batch([pa.array([1, 2])], schema=schema.arrow_schema)
    cache = GroupCache(2 * batch.get_total_buffer_size())
    getters: dict[int, Callable[[int], dict[str, object]]] = {}

    def load(n: int) -> None:
        group = cache.load("file", n, lambda: batch)
        if group.read_row is None:
            group.read_row = RowCells(schema).bind(batch)
            cache.share(("file", n, ()), group, getters)

    load(0)
    load(1)
    # A row that is read after the cache was asked is counted once.
    group = cache.find("file", 0)
    assert group is not None
    assert group.read_row is not None
    group.read_row(0)
    assert cache.hits_and_misses == (0, 2)
    assert getters[0](1) == {"id": 2}
    load(2)

    # The first was read since it was loaded, so the second makes room.
    assert sorted(getters) == [0, 2]
    assert cache.hits_and_misses == (1, 3)
    load(3)
    load(4)
    assert sorted(getters) == [3, 4]
    cache.drop_file("file")
    assert not getters
    assert cache.byte_count == 0
    load(5)
    cache.clear()
    assert not getters


def test_gets_are_as_many_hits_and_misses_as_without_the_kernel() -> None:
    kinds: dict[str, pa.DataType] = {"id": pa.int64(), "text": pa.string()}
    options = neve.TableOptions(background=False)
    with neve.open("memory://lake") as lake:
        table = lake.create_table(
            "a.b", schema=pa.schema(kinds), primary_key=["id"], options=options
        )
        for number in range(50):
            table.put({"id": number, "text": "x"})
        table.flush()
        for _ in range(3):
            table.get(7)

        (engine,) = lake._stores.live_tables.engines()
        assert engine.files.groups.hits_and_misses == (2, 1)


# Rows of many batches


@given(tables(rows_max=30), st.data())
def test_rows_of_many_batches_are_those_of_arrow_by_their_places(
    table: Table, data: st.DataObject
) -> None:
    codec = RowCodec(table.schema)
    whole = codec.decode_many([codec.encode(row) for row in table.rows])
    gather, twin = Gather(table.schema.arrow_schema), Gather(table.schema.arrow_schema)
    count = 0
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, whole.num_rows - 1))
        batch = whole.slice(start, data.draw(st.integers(1, whole.num_rows - start)))
        drawn = data.draw(st.lists(st.integers(0, batch.num_rows - 1), max_size=9))
        for each in (gather, twin):
            each.add(GatherSource(batch), np.array(drawn, np.int64))
        count += len(drawn)
    places = np.array(data.draw(st.permutations(range(count))), np.int64) * 3

    rows, found = gather.result_by(places)

    rows.validate(full=True)
    assert rows.schema.equals(twin.result().schema)
    assert sorted(found.tolist()) == sorted(places.tolist())
    wanted = twin.result().take(position_array(np.argsort(places)))
    ordered = rows.take(position_array(np.argsort(found)))
    # As bytes, since NaN is not equal to itself.
    values, wanted_values = (
        [value for batch in each.to_batches() for value in codec.encode_batch(batch)]
        for each in (ordered, wanted)
    )
    assert values == wanted_values


@pytest.mark.parametrize("width", [0, 1, 4, 8, 16])
def test_places_and_offsets_that_lead_outside_are_refused(width: int) -> None:
    ends = np.array([0, 3, 5], np.int32)
    cells: Any = np.zeros(2 * width, np.uint8) if width else ends
    content: Any = None if width else np.arange(5, dtype=np.uint8)

    def taken(places: list[int], targets: list[int], **other: object) -> object:
        parts = {"cells": cells, "content": content, "bits": None, "first": 0} | other
        part: Any = (*parts.values(), np.array(places, np.int64))
        return kernel.gather(width, [part], np.array(targets, np.int64))

    assert taken([0, 1], [1, 0]) is not None
    assert taken([], []) is not None
    wild = (-1, 2, 3, 1 << 62, -(1 << 63), (1 << 63) - 1)
    for each in wild:
        assert taken([0, each], [1, 0]) is None
        assert taken([each, 0], [1, 0]) is None
        assert taken([0, 1], [1, each]) is None
    assert taken([0, 1], [0]) is None
    assert taken([0], [0, 1]) is None
    assert taken([0], [0], cells=np.zeros(0, np.uint8)) is None
    bits = np.array([1], np.uint8)
    for first in (7, 8, -1, 1 << 62, sys.maxsize - 1, sys.maxsize, -sys.maxsize):
        assert taken([1], [0], bits=bits, first=first) is None
    made = taken([0, 1], [1, 0], bits=bits)
    assert isinstance(made, tuple)
    assert made[2] is not None
    assert made[2][0] & 3 == 2
    if not width:
        for offsets in ([0, 6, 5], [-1, 3, 5], [3, 0, 5], [0, 1 << 30, 5]):
            assert taken([0, 1], [0, 1], cells=np.array(offsets, np.int32)) is None
        assert taken([0], [0], content=None) is None


def test_numbers_may_lie_at_any_address() -> None:
    odd: Any = memoryview(b"x" + np.array([1, 0]).tobytes())[1:]

    made = kernel.gather(8, [(np.arange(2), None, None, 0, odd)], odd)

    assert made == (np.arange(2).tobytes(), None, None)


def test_parts_that_are_none_are_an_error() -> None:
    targets: Any = np.zeros(0, np.int64)
    wrong: list[Any] = [
        (0, [1], targets),
        (0, [()], targets),
        (0, (), targets),
        (-1, [], targets),
        ("x", [], targets),
        (0, [(1, None, None, 0, targets)], targets),
        (0, [], 5),
    ]
    for arguments in wrong:
        with pytest.raises(TypeError):
            kernel.gather(*arguments)
