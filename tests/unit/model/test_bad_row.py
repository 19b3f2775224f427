"""Halving finds the one row that is to blame."""

import math

import pytest

from neve.model.array_fit import first_bad_row


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 1_000])
def test_every_row_can_be_found(rows: int) -> None:
    for bad in range(rows):
        assert first_bad_row(rows, lambda length, bad=bad: length <= bad) == bad  # type: ignore[misc]


def test_a_million_rows_are_judged_twenty_times() -> None:
    judged: list[int] = []

    def is_good(rows: int) -> bool:
        judged.append(rows)
        return rows <= 123_456

    assert first_bad_row(1_000_000, is_good) == 123_456
    assert len(judged) <= math.ceil(math.log2(1_000_000))
