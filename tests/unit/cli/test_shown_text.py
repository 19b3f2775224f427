"""How bytes and values are shown: never a control character, and always said which form."""

import datetime as dt
import decimal
import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from neve.inspect.shown_text import (
    ShownBytes,
    drawn_in_ascii,
    is_drawable,
    show_bytes,
    shown_text,
    value_to_json,
    value_to_text,
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"\x00\xff", ShownBytes("hex", "00ff"), id="not UTF-8"),
        pytest.param(b"a\nb", ShownBytes("hex", "610a62"), id="a line end"),
        pytest.param(b"\x1b[31m", ShownBytes("hex", "1b5b33316d"), id="a terminal's control"),
        pytest.param("\u202e".encode(), ShownBytes("hex", "e280ae"), id="right to left"),
        pytest.param(b"", ShownBytes("text", ""), id="empty"),
        pytest.param(b"abc", ShownBytes("text", "abc"), id="letters"),
        pytest.param("žluť 雪".encode(), ShownBytes("text", "žluť 雪"), id="any script"),
    ],
)
def test_bytes_are_text_only_where_all_of_it_is_printable(
    content: bytes, expected: ShownBytes
) -> None:
    assert show_bytes(content) == expected


def test_text_is_shown_as_hexadecimal_when_that_is_asked_for() -> None:
    assert show_bytes(b"abc", hex_only=True).to_json() == {"hex": "616263"}


def test_a_long_text_is_clipped_and_shows_that_it_is() -> None:
    assert show_bytes(b"x" * 100).clipped(10) == '"xxxxxxxx…'
    assert show_bytes(b"x").clipped(10) == '"x"'
    assert show_bytes(b"\xff").clipped(10) == "0xff"


def test_characters_that_do_not_print_are_written_as_escapes() -> None:
    assert shown_text("a\x1b[0m\n\udc80b") == r"a\x1b[0m\n\udc80b"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (0.5, 0.5),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ("a\x1b", "a\x1b"),
        (b"\xff", {"hex": "ff"}),
        (decimal.Decimal("1.50"), "1.50"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), "2026-01-02T03:00:00+00:00"),
        (dt.time(1, 2, 3), "01:02:03"),
        ([1, b"a"], [1, {"text": "a"}]),
        ({"x": (1, None)}, {"x": [1, None]}),
        (3j, "3j"),
    ],
    ids=str,
)
def test_a_value_of_a_row_becomes_json(value: object, expected: object) -> None:
    shown = value_to_json(value)

    assert shown == expected
    assert json.loads(json.dumps(shown, allow_nan=False)) == expected


@given(st.one_of(st.text(), st.binary(), st.integers(), st.none()), st.integers(8, 40))
def test_a_value_on_a_terminal_fits_and_has_no_control_characters(
    value: object, length: int
) -> None:
    shown = value_to_text(value, length=length)

    assert shown.isprintable()
    assert len(shown) <= length


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [("ascii", False), ("latin-1", False), ("no such encoding", False), ("utf-8", True)],
)
def test_an_encoding_has_all_characters_of_drawings_or_counts_as_having_none(
    encoding: str, *, expected: bool
) -> None:
    assert is_drawable(encoding) is expected


def test_every_character_of_a_drawing_has_one_of_ascii() -> None:
    drawing = "╭─ ╮╯╰ │ ┊ █▓▁·✗✔ … ×"

    in_ascii = drawn_in_ascii(drawing)

    assert in_ascii.isascii()
    assert len(in_ascii) == len(drawing)
    assert drawn_in_ascii("Böhm") == "Böhm"
