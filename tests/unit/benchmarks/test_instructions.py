"""Single-row calls take no more instructions than those that are kept."""

import sys

import pytest

from benchmarks.instructions import PYTHON, TOLERANCE, count_all, kept_counts, regressions


def test_a_call_takes_no_more_instructions_than_are_kept() -> None:
    if sys.gettrace() is not None or sys.getprofile() is not None:
        pytest.skip("a debugger or a coverage tool counts, too")
    kept = kept_counts()
    if kept is None:
        pytest.skip(f"no counts of Python {PYTHON}: run `python -m benchmarks.instructions --keep`")

    found = count_all()

    assert found.keys() == kept.keys()
    assert not regressions(found, kept)


def test_more_than_the_tolerance_is_a_regression() -> None:
    kept = {"put": {"instructions": 1_000, "functions": 30}}
    most = int(1_000 * (1 + TOLERANCE))

    assert not regressions({"put": {"instructions": most, "functions": 30}}, kept)
    assert regressions({"put": {"instructions": most + 1, "functions": 30}}, kept) == [
        f"put: {most + 1} instructions, 1000 before"
    ]
