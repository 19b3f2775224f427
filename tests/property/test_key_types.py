"""Every type of key, alone and with others, through the whole engine against a dict.

put, upsert, delete, flush, full compaction and reopening; get, get_many, scan in key order, ranges.
"""

import datetime as dt
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock

UTC = dt.UTC
VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "bool": (pa.bool_(), [False, True]),
    "int8": (pa.int32(), [-128, -1, 0, 1, 127]),
    "int32": (pa.int32(), [-(2**31), -256, -1, 0, 1, 255, 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), -(2**32), -1, 0, 1, 2**32, 2**63 - 1]),
    "float32": (pa.float32(), [float("-inf"), -1.5, 0.0, 2.0**-149, 1.5, float("inf")]),
    "float64": (pa.float64(), [float("-inf"), -1e300, -5e-324, 0.0, 5e-324, 1e300, float("inf")]),
    "decimal": (
        pa.decimal128(9, 2),
        [
            Decimal("-9999999.99"),
            Decimal("-0.01"),
            Decimal("0.00"),
            Decimal("0.01"),
            Decimal("9999999.99"),
        ],
    ),
    "wide decimal": (
        pa.decimal128(38, 10),
        [Decimal(-(10**27)), Decimal("-1E-10"), Decimal(0), Decimal("1E-10"), Decimal(10**27)],
    ),
    "date": (
        pa.date32(),
        [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    ),
    "time": (pa.time64("us"), [dt.time(0), dt.time(0, 0, 0, 1), dt.time(23, 59, 59, 999_999)]),
    "timestamp": (
        pa.timestamp("us"),
        [
            dt.datetime.fromisoformat(text)
            for text in ("0001-01-01", "1969-12-31T23:59:59", "1970-01-01", "2262-04-12")
        ],
    ),
    "timestamptz": (
        pa.timestamp("us", tz="UTC"),
        [
            dt.datetime(1900, 1, 1, tzinfo=UTC),
            dt.datetime(1970, 1, 1, tzinfo=UTC),
            dt.datetime(2100, 1, 1, 1, 2, 3, 4, tzinfo=UTC),
        ],
    ),
    "string": (pa.string(), ["", "\0", "\0\0", "a", "a\0", "a\0b", "aa", "ä", "é", "\U0001f600"]),
    "binary": (
        pa.binary(),
        [b"", b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"\xff", b"\xff\0", b"\xff\xff"],
    ),
    "fixed": (pa.binary(3), [b"\0\0\0", b"\0\0\1", b"abc", b"\xff\xff\xff"]),
    "uuid": (
        pa.uuid(),
        [uuid.UUID(int=0), uuid.UUID(int=1), uuid.UUID(int=2**127), uuid.UUID(int=2**128 - 1)],
    ),
}
ALONE: list[tuple[str, ...]] = [(name,) for name in VALUES]
TOGETHER: list[tuple[str, ...]] = [
    ("string", "int64"),
    ("int32", "int32"),
    ("binary", "string"),
    ("bool", "date", "string"),
    ("float64", "decimal"),
    ("uuid", "timestamptz"),
    ("fixed", "bool"),
    ("wide decimal", "time", "float32"),
    ("timestamp", "binary", "int64"),
    ("string", "string", "string"),
]
OPTIONS = neve.TableOptions(background=False)

Key = tuple[object, ...]


def keys_of(names: tuple[str, ...]) -> list[Key]:
    """Return keys in ascending order: every value of the first column, some of the others."""
    keys: list[Key] = [()]
    for place, name in enumerate(names):
        values = VALUES[name][1]
        chosen = values if place == 0 or len(names) == 1 else values[:2] + values[-2:]
        seen: list[object] = []
        for value in chosen:
            if value not in seen:
                seen.append(value)
        keys = [(*key, value) for key in keys for value in seen]
    return keys


class Subject:
    """A table of some key columns, and what must be in it."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.columns = [f"k{place}" for place in range(len(names))]
        types = [VALUES[name][0] for name in names]
        self._objects = MemoryStore("keys")
        self._fields = dict(zip(self.columns, types, strict=True))
        self.catalog = self._open()
        self.table = self.catalog.create_table(
            "k.t", pa.schema({**self._fields, "n": pa.int64()}), self.columns, options=OPTIONS
        )
        self.rows: dict[Key, int] = {}

    def row(self, key: Key, number: int) -> dict[str, object]:
        return {**dict(zip(self.columns, key, strict=True)), "n": number}

    def asked(self, key: Key) -> object:
        return key[0] if len(key) == 1 else key

    def put(self, key: Key, number: int) -> None:
        self.table.put(self.row(key, number))
        self.rows[key] = number

    def upsert(self, keys: list[Key], number: int) -> None:
        fields = {**self._fields, "n": pa.int64()}
        arrays = [
            pa.array([key[place] for key in keys], self._fields[name])
            for place, name in enumerate(self.columns)
        ]
        counts = pa.array([number] * len(keys), pa.int64())
        self.table.upsert(pa.Table.from_arrays([*arrays, counts], schema=pa.schema(fields)))
        self.rows.update(dict.fromkeys(keys, number))

    def delete(self, keys: list[Key]) -> None:
        if len(keys) == 1:
            self.table.delete(self.asked(keys[0]))
        else:
            self.table.delete_many([self.asked(key) for key in keys])
        for key in keys:
            self.rows.pop(key, None)

    def reopen(self) -> None:
        self.catalog.close()
        self.catalog = self._open()
        self.table = self.catalog.table("k.t", options=OPTIONS)

    def check(self, keys: list[Key]) -> None:
        """Compare every way of reading with the dict; `keys` are all there are, ascending."""
        expected = [self.row(key, self.rows[key]) for key in keys if key in self.rows]
        for key in keys:
            wanted = self.row(key, self.rows[key]) if key in self.rows else None
            assert self.table.get(self.asked(key)) == wanted
        asked = [self.asked(key) for key in reversed(keys)]
        assert self.table.get_many(asked).to_pylist() == expected[::-1]
        assert self.table.scan(reverse=True).to_arrow().to_pylist() == expected[::-1]
        assert self.table.scan().count() == len(expected)
        middle = len(keys) // 2
        bounds = self.asked(keys[1]), self.asked(keys[middle])
        between = [self.row(key, self.rows[key]) for key in keys[1:middle] if key in self.rows]
        assert self.table.scan(key_range=bounds).to_arrow().to_pylist() == between

    def _open(self) -> Lake:
        return Lake(self._objects, clock=SimulatedClock(), ids=SeededIds(7))


@pytest.fixture(params=ALONE + TOGETHER, ids=" and ".join)
def names(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = request.param
    return found


def test_keys_of_every_type_live_through_the_whole_engine(names: tuple[str, ...]) -> None:
    subject, keys = Subject(names), keys_of(names)

    for number, key in enumerate(keys):
        subject.put(key, number)
    subject.check(keys)
    subject.table.flush()
    subject.check(keys)

    subject.upsert(keys[::2], 1_000)
    subject.delete(keys[:1])
    subject.check(keys)
    subject.reopen()
    subject.check(keys)
    subject.table.flush()
    subject.check(keys)

    subject.delete(keys[1::3])
    subject.upsert(keys[:1], 2_000)
    subject.table.compact(full=True)
    subject.check(keys)
    subject.table.verify()
    subject.reopen()
    subject.check(keys)

    subject.delete(keys)
    assert subject.table.scan().count() == 0
    subject.table.compact(full=True)
    subject.check(keys)
    assert subject.table.files().num_rows == 0
    subject.catalog.close()


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_minus_zero_is_the_row_of_plus_zero_everywhere(kind: str) -> None:
    subject = Subject((kind,))
    for step in range(3):
        subject.table.put({"k0": -0.0, "n": step})
        subject.table.upsert([{"k0": 0.0, "n": step + 10}])
        assert subject.table.get(-0.0) == {"k0": 0.0, "n": step + 10}
        subject.table.flush()
        subject.table.put({"k0": -0.0, "n": step + 20})
        assert subject.table.scan().to_arrow()["n"].to_pylist() == [step + 20]
        subject.table.compact(full=True)
        assert subject.table.get_many([-0.0, 0.0])["n"].to_pylist() == [step + 20] * 2
    subject.table.delete(-0.0)
    subject.table.flush()
    assert subject.table.get(0.0) is None
    subject.catalog.close()


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_nan_is_refused_as_a_key_before_anything_is_logged(kind: str) -> None:
    subject = Subject((kind,))
    before = subject.table.put({"k0": 1.0, "n": 1})
    for call in (
        lambda: subject.table.put({"k0": float("nan"), "n": 1}),
        lambda: subject.table.upsert([{"k0": 2.0, "n": 1}, {"k0": float("nan"), "n": 1}]),
        lambda: subject.table.delete(float("nan")),
        lambda: subject.table.get(float("nan")),
    ):
        with pytest.raises((neve.SchemaMismatch, neve.InvalidArgument)):
            call()
    assert subject.table.put({"k0": 1.0, "n": 2}) == before + 1
    subject.catalog.close()
