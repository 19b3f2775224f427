"""Rows taken from many batches at once are those that Arrow takes from each of them."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.sstable.row_gather import GatherSource, gathered
from tests.unit.sstable.data_files import rows_of_all_types

_, ROWS = rows_of_all_types(600)


@pytest.fixture(autouse=True, scope="module")
def _few_are_many() -> Iterator[None]:
    """Gather from one batch on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neve.sstable.row_gather._FEW", 1)
        yield


@st.composite
def parts_of_a_table(draw: st.DrawFn) -> list[tuple[pa.RecordBatch, list[int]]]:
    """Batches of all types, some of them slices, and rows of each in any order."""
    parts = []
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, ROWS.num_rows - 1))
        count = draw(st.integers(1, min(50, ROWS.num_rows - start)))
        (batch,) = ROWS.slice(start, count).combine_chunks().to_batches()
        if draw(st.booleans()):
            # Its own memory, without an offset and without room at the end.
            stored = batch.serialize()
            batch = pa.ipc.read_record_batch(stored, batch.schema)
        places = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=30))
        parts.append((batch, places))
    return parts


@given(parts=parts_of_a_table(), names=st.sets(st.sampled_from(ROWS.column_names), min_size=1))
def test_rows_are_those_that_arrow_takes(
    parts: list[tuple[pa.RecordBatch, list[int]]], names: set[str]
) -> None:
    chosen = [name for name in ROWS.column_names if name in names]
    schema = pa.schema([ROWS.schema.field(name) for name in chosen])
    sources = [(GatherSource(batch), np.array(places, np.int64)) for batch, places in parts]

    found = gathered(sources, schema)
    again = gathered(sources, schema)

    found.validate(full=True)
    taken = pa.Table.from_batches([batch.select(chosen).take(places) for batch, places in parts])
    # As text, since NaN is not equal to itself.
    assert str(found.to_pylist()) == str(taken.to_pylist())
    assert str(again.to_pylist()) == str(taken.to_pylist())
    assert found.schema.equals(schema)


@given(
    texts=st.lists(st.lists(st.text(max_size=20), min_size=1, max_size=5), min_size=2, max_size=4)
)
def test_texts_around_twelve_bytes_stay_what_they_are(texts: list[list[str]]) -> None:
    batches = [pa.RecordBatch.from_pydict({"a": each}) for each in texts]
    sources = [
        (GatherSource(batch), np.arange(batch.num_rows)[::-1].astype(np.int64)) for batch in batches
    ]
    found = gathered(sources, batches[0].schema)
    found.validate(full=True)
    assert found.column("a").to_pylist() == [text for each in texts for text in each[::-1]]


def test_more_bytes_than_one_array_holds_come_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = [pa.RecordBatch.from_pydict({"a": ["long " * 10] * 5}) for _ in range(3)]
    sources = [(GatherSource(batch), np.arange(5)) for batch in batches]
    whole = gathered(sources, batches[0].schema)
    monkeypatch.setattr("neve.sstable.row_gather._ARRAY_BYTES_MAX", 100)
    assert gathered(sources, batches[0].schema).column("a").num_chunks == 3
    assert gathered(sources, batches[0].schema).equals(whole)
