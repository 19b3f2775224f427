"""KeyRange: half-open stretches of encoded keys."""

from typing import cast

import pytest

from neve.errors import InvalidArgument
from neve.keys.ranges import KeyRange


def test_a_range_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="ends before it starts"):
        KeyRange(b"b", b"a")


@pytest.mark.parametrize("bounds", [("a", None), (None, 5), (bytearray(b"a"), b"b")])
def test_a_bound_that_is_not_bytes_is_refused(bounds: tuple[object, object]) -> None:
    start, end = cast("tuple[bytes, bytes]", bounds)
    with pytest.raises(InvalidArgument, match="not bytes"):
        KeyRange(start, end)


def test_the_start_is_inside_and_the_end_is_not() -> None:
    wanted = KeyRange(b"b", b"d")
    assert [key for key in (b"a", b"b", b"b\x00", b"c\xff", b"d") if wanted.contains(key)] == [
        b"b",
        b"b\x00",
        b"c\xff",
    ]


def test_a_missing_bound_lets_everything_through_on_its_side() -> None:
    assert KeyRange().contains(b"")
    assert KeyRange(None, b"m").contains(b"")
    assert not KeyRange(None, b"m").contains(b"m")
    assert KeyRange(b"m", None).contains(b"\xff" * 100)
    assert not KeyRange(b"m", None).contains(b"l")


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (b"a", b"b"),
        (b"ab\xff", b"ac"),
        (b"a\xff\xff", b"b"),
        (b"\x00", b"\x01"),
        (b"a\x00", b"a\x01"),
        (b"\xff", None),
        (b"\xff\xff\xff", None),
        (b"", None),
    ],
)
def test_after_is_the_smallest_key_above_all_with_the_prefix(
    prefix: bytes, expected: bytes | None
) -> None:
    assert KeyRange.after(prefix) == expected


def test_with_prefix_holds_exactly_the_keys_that_begin_with_it() -> None:
    wanted = KeyRange.with_prefix(b"a\xff")
    for key in (b"a\xff", b"a\xff\x00", b"a\xff\xff\xff\xff"):
        assert wanted.contains(key)
    for key in (b"a", b"a\xfe\xff", b"b", b""):
        assert not wanted.contains(key)


@pytest.mark.parametrize(
    ("left", "right", "shared"),
    [
        (KeyRange(b"a", b"c"), KeyRange(b"b", b"d"), KeyRange(b"b", b"c")),
        (KeyRange(b"a", b"b"), KeyRange(b"b", b"c"), None),
        (KeyRange(b"a", b"b"), KeyRange(b"c", b"d"), None),
        (KeyRange(None, b"b"), KeyRange(b"a", None), KeyRange(b"a", b"b")),
        (KeyRange(None, None), KeyRange(b"a", b"b"), KeyRange(b"a", b"b")),
        (KeyRange(None, None), KeyRange(None, None), KeyRange(None, None)),
        (KeyRange(b"a", b"z"), KeyRange(b"c", b"d"), KeyRange(b"c", b"d")),
        (KeyRange(b"b", b"b"), KeyRange(b"a", b"c"), None),
        (KeyRange(None, b""), KeyRange(None, None), None),
    ],
)
def test_an_intersection_is_the_same_from_both_sides(
    left: KeyRange, right: KeyRange, shared: KeyRange | None
) -> None:
    for one, other in ((left, right), (right, left)):
        assert one.intersection(other) == shared


def test_a_range_without_room_for_a_key_is_empty() -> None:
    assert KeyRange(b"a", b"a").is_empty
    assert KeyRange(None, b"").is_empty
    assert not KeyRange(b"a", b"a\x00").is_empty
    assert not KeyRange(b"", None).is_empty
    assert not KeyRange(None, b"\x00").is_empty
