"""Numbers of seven bits a byte."""

import pytest

from neve.errors import Corruption
from neve.model.varint import encode_varint, read_varint

PINNED = [
    (0, "00"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    ((1 << 32) - 1, "ffffffff0f"),
    ((1 << 64) - 1, "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("number", "encoded"), PINNED)
def test_bytes_never_change(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded
    assert read_varint(b"x" + bytes.fromhex(encoded) + b"y", 1) == (number, 1 + len(encoded) // 2)


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [("", "cut off"), ("80", "cut off"), ("ff" * 9 + "02", "64 bits"), ("80" * 11, "64 bits")],
)
def test_what_is_no_number_is_corruption(damaged: str, reason: str) -> None:
    with pytest.raises(Corruption, match=reason):
        read_varint(bytes.fromhex(damaged), 0)
