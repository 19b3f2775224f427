"""Keys as bytes whose order is the order of their values.

A user key is the concatenation of its columns, in primary-key order; all numbers big-endian:

    bool                              00 or 01
    int32, date32                     4 bytes, sign bit flipped
    int64, time64, timestamp          8 bytes, sign bit flipped
    decimal128                        16 bytes, two's complement unscaled value, sign bit flipped
    float32, float64                  IEEE bits; negative: all bits inverted, else sign bit flipped
    fixed_size_binary(n), uuid        the bytes as they are
    string (UTF-8), binary            each 00 written as 00 FF, then 00 00

KEYS-1  Bytewise order of keys is the order of the tuples of their values.
KEYS-2  No key is the prefix of another key of the same columns, so what follows a key (a sequence
    number, a length) never changes the order of different keys.
KEYS-3  Equal values are one key: −0.0 is written as +0.0, decimals in the column's scale,
    timestamps as UTC. There is no NULL and no NaN in a key.
KEYS-4  Decoding accepts exactly the bytes that encoding makes; all else is Corruption.
"""

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.keys.columns import (
    KEY_BYTES_MAX,
    ArrowArray,
    ArrowColumn,
    EncodeValue,
    KeyArray,
    KeyColumn,
    unescape,
    value_codec,
)
from neve.keys.ranges import KeyRange
from neve.keys.vectors import KeyVectors
from neve.model.display import counted, listed, shown


class KeyEncoder:
    """Turns the values of one table's key columns into key bytes and back."""

    __slots__ = ("_assemble", "_columns", "_decoders", "_encoders", "_vectors", "_width")

    def __init__(self, types: Sequence[pa.DataType], names: Sequence[str]) -> None:
        if not types or len(types) != len(names) or len(set(names)) != len(names):
            raise InvalidArgument(
                f"{len(types)} key types for {len(set(names))} different names",
                hint="Pass one type and one name for each key column, and at least one",
            )
        self._columns = tuple(map(KeyColumn.of, names, types))
        codecs = [value_codec(column) for column in self._columns]
        self._encoders = tuple(codec.encode for codec in codecs)
        self._decoders = tuple(codec.decode for codec in codecs)
        self._assemble = _assembler(self._encoders)
        self._vectors = KeyVectors(self._columns)
        widths = [column.width for column in self._columns if column.width is not None]
        self._width = sum(widths) if len(widths) == len(self._columns) else None
        _check_length(sum(widths))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the key columns, in key order."""
        return tuple(column.name for column in self._columns)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """Types of the key columns, in key order."""
        return tuple(column.type for column in self._columns)

    @property
    def width(self) -> int | None:
        """Bytes of every key, or None when they vary."""
        return self._width

    def encode(self, values: Sequence[object]) -> bytes:
        """Return the key of one row; `neve.keys.columns` says which Python values fit.

        Raises InvalidArgument for a wrong number of values, SchemaMismatch naming the column for
        a value that does not fit, LimitExceeded above KEY_BYTES_MAX.
        """
        kind = type(values)
        if (kind is not tuple and kind is not list) or len(values) != len(self._encoders):
            self._check_arity(values, at_least=len(self._encoders))
        key = self._assemble(values)
        if len(key) > KEY_BYTES_MAX:
            _check_length(len(key))
        return key

    def encode_arrays(self, arrays: Sequence[ArrowColumn]) -> KeyArray:
        """Return the keys of whole columns, byte for byte those of `encode`.

        The result is fixed-size binary when there is a `width`, otherwise binary, or large binary
        beyond 2 GiB. Raises SchemaMismatch with column and first row of a NULL, a NaN or a value
        that its type forbids, LimitExceeded for a key above KEY_BYTES_MAX.
        """
        return self._vectors.encode(arrays)

    def decode(self, key: bytes) -> tuple[object, ...]:
        """Return the values of one key; raises Corruption with the offset of the damage."""
        if not isinstance(key, bytes):
            raise InvalidArgument(f"a key is {type(key).__name__}", hint="Pass bytes")
        if len(key) > KEY_BYTES_MAX:
            raise Corruption(f"key has {len(key)} bytes", offset=KEY_BYTES_MAX)
        values: list[object] = []
        at = 0
        for column, decode in zip(self._columns, self._decoders, strict=True):
            if column.width is None:
                piece, following = unescape(key, at)
            else:
                following = at + column.width
                piece = key[at:following]
                if following > len(key):
                    raise Corruption(
                        f"key ends inside column {shown(column.name)}", offset=len(key)
                    )
            values.append(decode(piece, at))
            at = following
        if at != len(key):
            raise Corruption(f"key has {len(key) - at} bytes left over", offset=at)
        return tuple(values)

    def decode_arrays(self, keys: ArrowArray) -> list[ArrowArray]:
        """Return the key columns of many keys; raises Corruption naming the first bad row.

        `keys` is fixed-size binary, binary or large binary.
        """
        return self._vectors.decode(keys)

    def prefix_range(self, values: Sequence[object]) -> KeyRange:
        """Return the range of all keys whose leading columns have these values; none: all keys."""
        self._check_arity(values, at_least=0)
        encoders = self._encoders[: len(values)]
        prefix = _concatenate(encoders, values)
        _check_length(len(prefix))
        return KeyRange.with_prefix(prefix)

    def _check_arity(self, values: Sequence[object], *, at_least: int) -> None:
        is_text = isinstance(values, str | bytes | bytearray | memoryview)
        if is_text or not isinstance(values, Sequence):
            raise InvalidArgument(
                f"key values are {type(values).__name__}, not a tuple",
                hint=f"Pass a tuple of {listed(self.names)}",
            )
        if not at_least <= len(values) <= len(self._encoders):
            raise InvalidArgument(
                f"{counted(len(values), 'value')} for a key of "
                f"{counted(len(self._encoders), 'column')}",
                hint=f"Pass {listed(self.names)}, in this order",
            )


def _assembler(encoders: Sequence[EncodeValue]) -> Callable[[Sequence[object]], bytes]:
    """Unroll the loop over columns for the short keys of most tables."""
    match encoders:
        case [only]:
            return lambda values: only(values[0])
        case [first, second]:
            return lambda values: first(values[0]) + second(values[1])
        case [first, second, third]:
            return lambda values: first(values[0]) + second(values[1]) + third(values[2])
        case _:
            return partial(_concatenate, encoders)


def _concatenate(encoders: Sequence[EncodeValue], values: Sequence[object]) -> bytes:
    return b"".join([encode(value) for encode, value in zip(encoders, values, strict=True)])


def _check_length(key_bytes: int) -> None:
    if key_bytes > KEY_BYTES_MAX:
        raise LimitExceeded(
            f"a key of {key_bytes} bytes",
            limit=KEY_BYTES_MAX,
            actual=key_bytes,
            hint=f"Use shorter key values: a key has at most {KEY_BYTES_MAX} bytes",
        )
