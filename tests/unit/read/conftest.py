"""Row groups of few rows, so that small files have many."""

from collections.abc import Iterator

import pytest

from tests.unit.read.table_bench import small_groups


@pytest.fixture(autouse=True)
def _few_rows_a_group() -> Iterator[None]:
    with small_groups(16):
        yield
