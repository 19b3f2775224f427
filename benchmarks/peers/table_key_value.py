"""Rows as keys and values, for stores that know nothing else.

    key      id                      8 bytes, big-endian; ids are never negative
    value    score │ visits │ payload        │ name
             8     │ 4      │ 100, as it is  │ the rest, UTF-8

Encoding and decoding are part of what such a store costs in Python, and are timed. Scans are
decoded column by column, with Arrow.
"""

import struct
from abc import abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from itertools import takewhile
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.peers.table_rows import SCHEMA, Row, row_tuples
from benchmarks.peers.table_store import TableStore

PAYLOAD_BYTES: Final = 100
_KEY: Final = struct.Struct(">q")
_FIXED: Final = struct.Struct("<di")
_SCORE: Final = struct.Struct("<d")
_PAYLOAD_ENDS: Final = _FIXED.size + PAYLOAD_BYTES
_NAME_ENDS: Final = 1 << 20

Pair = tuple[bytes, bytes]
encode_key = _KEY.pack


def encode_row(row: Row) -> Pair:
    """Return a row as key and value."""
    key, name, score, visits, payload = row
    return _KEY.pack(key), _FIXED.pack(score, visits) + payload + name.encode()


def decode_value(value: bytes) -> tuple[str, float, int, bytes]:
    """Return what a value holds."""
    score, visits = _FIXED.unpack_from(value)
    return value[_PAYLOAD_ENDS:].decode(), score, visits, value[_FIXED.size : _PAYLOAD_ENDS]


def encode_rows(rows: pa.Table) -> list[Pair]:
    """Return many rows as keys and values."""
    key, fixed = _KEY.pack, _FIXED.pack
    return [
        (key(number), fixed(score, visits) + payload + name.encode())
        for number, name, score, visits, payload in row_tuples(rows)
    ]


def decode_pairs(keys: Sequence[bytes], values: Sequence[bytes]) -> pa.Table:
    """Return keys and values as a table."""
    ids = array("q", b"".join(keys))
    ids.byteswap()
    column = pa.array(values, pa.binary())
    count = len(ids)
    return pa.table(
        [
            pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(ids)]),
            pc.binary_slice(column, _PAYLOAD_ENDS, _NAME_ENDS).cast(pa.string()),
            _fixed_column(column, pa.float64(), 0, 8),
            _fixed_column(column, pa.int32(), 8, 12),
            pc.binary_slice(column, _FIXED.size, _PAYLOAD_ENDS),
        ],
        schema=SCHEMA,
    )


def _fixed_column(
    values: pa.BinaryArray, kind: pa.DataType, start: int, stop: int
) -> "pa.Array[Any]":
    content = pc.binary_slice(values, start, stop).buffers()[2]
    return pa.Array.from_buffers(kind, len(values), [None, content])


class KeyValueStore(TableStore):
    """What all of them have in common."""

    @abstractmethod
    def pairs(self, first: bytes | None = None) -> Iterator[Pair]:
        """Return all pairs by ascending key, from a key on."""

    @abstractmethod
    def values_of(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        """Return the values of keys, in their order."""

    def get_many(self, keys: Sequence[int]) -> pa.Table:
        encoded = [*map(encode_key, keys)]
        return decode_pairs(encoded, self.values_of(encoded))

    def get_tuples(self, keys: Sequence[int]) -> Sequence[Row]:
        values = self.values_of([*map(encode_key, keys)])
        return [(key, *decode_value(value)) for key, value in zip(keys, values, strict=True)]

    def scan(self) -> pa.Table:
        return _decoded(list(self.pairs()))

    def scan_range(self, first: int, end: int) -> pa.Table:
        end_key = encode_key(end)
        pairs = self.pairs(encode_key(first))
        return _decoded(list(takewhile(lambda pair: pair[0] < end_key, pairs)))

    def sum_score(self) -> float:
        unpack = _SCORE.unpack_from
        return float(sum(unpack(value)[0] for _, value in self.pairs()))


def _decoded(pairs: Sequence[Pair]) -> pa.Table:
    return decode_pairs([*map(itemgetter(0), pairs)], [*map(itemgetter(1), pairs)])
