"""Unsigned LEB128 numbers, as LevelDB writes them: seven bits a byte, lowest first."""

from typing import Final

from neve.errors import Corruption

_CONTINUES: Final = 0x80
_U64_BITS: Final = 64


def encode_varint(value: int) -> bytes:
    """Return the shortest encoding of a number from 0 to 2^64 - 1."""
    assert 0 <= value < 1 << _U64_BITS
    if value < _CONTINUES:
        return bytes((value,))
    encoded = bytearray()
    while value >= _CONTINUES:
        encoded.append(value & 0x7F | _CONTINUES)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position` and where it ends; raises Corruption."""
    value = 0
    shift = 0
    while True:
        if position >= len(buffer):
            raise Corruption("a number is cut off")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < _CONTINUES:
            break
        shift += 7
        if shift >= _U64_BITS:
            raise Corruption("a number has more than 64 bits")
    if value >> _U64_BITS:
        raise Corruption("a number has more than 64 bits")
    return value, position
