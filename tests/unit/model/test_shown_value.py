"""Whatever a message shows is short, on one line, and as people would write it."""

from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from neve.model.display import (
    listed,
    shown,
    shown_bytes,
    shown_moment,
    shown_type,
)

HOSTILE: dict[str, object] = {
    "long text": "x" * 2_000_000,
    "text of odd letters": "\U000e0001" * 2_000_000,
    "long bytes": b"x" * 2_000_000,
    "long bytearray": bytearray(2_000_000),
    "long memoryview": memoryview(bytes(2_000_000)),
    "great int": 10**5_000,
    "great negative int": -(10**5_000),
    "great int in a list": [10**5_000],
    "long list": ["x" * 1_000] * 1_000,
    "long decimal": Decimal("1" * 100_000),
    "array": np.arange(100_000).reshape(1_000, 100),
    "deep list": [[[[[[[["x" * 100]]]]]]]],
    "lines": "a\nb",
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_value_is_one_short_line(value: object) -> None:
    text = shown(value)

    assert text
    assert len(text) <= 1_000
    assert "\n" not in text


@pytest.mark.parametrize("value", ["name", b"ab", 7, -1.5, None, date(2024, 1, 1), Decimal("1.50")])
def test_an_ordinary_value_is_shown_as_it_is_written(value: object) -> None:
    assert shown(value) == repr(value)


def test_a_long_name_is_cut_and_says_so() -> None:
    assert shown("x" * 81) == repr("x" * 80) + "…"
    assert shown("x" * 80) == repr("x" * 80)


def test_a_great_int_is_shown_by_its_size() -> None:
    assert shown(1 << 1_000) == "an int of 1,001 bits"


def test_a_wide_type_is_cut() -> None:
    wide = pa.struct([(f"field{number}", pa.int64()) for number in range(10_000)])

    assert len(shown_type(wide)) < 250
    assert shown_type(pa.int64()) == "int64"


def test_many_names_are_counted() -> None:
    assert listed(["a", "b"]) == "'a', 'b'"
    assert (
        listed([f"c{number}" for number in range(8)]) == "'c0', 'c1', 'c2', 'c3', 'c4' and 3 more"
    )


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (999_940, "999.9 kB"),
        (999_960, "1.0 MB"),
        (3_400_000_000, "3.4 GB"),
        (2 * 10**18, "2,000.0 PB"),
    ],
)
def test_a_size_is_shown_in_the_largest_unit_that_it_fills(count: int, words: str) -> None:
    assert shown_bytes(count) == words


def test_a_moment_is_shown_in_utc_and_one_beyond_the_calendar_as_a_number() -> None:
    assert shown_moment(1_706_702_400_123) == "2024-01-31T12:00:00.123+00:00"
    assert shown_moment(-1) == "1969-12-31T23:59:59.999+00:00"
    assert shown_moment(1 << 62) == f"{1 << 62} ms"
