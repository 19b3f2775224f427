"""Arrow arrays that are made without `pa.array`: the same values."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.model.arrow_buffers import exact_array, flag_array, position_array

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1])
def test_a_number_that_is_too_large_is_refused(number: int) -> None:
    with pytest.raises(OverflowError):
        exact_array([1, number], pa.int64())


def test_a_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        exact_array(["a", "\ud800"], pa.string())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), st.lists(INT64)),
        (pa.string(), st.lists(st.text())),
        (pa.binary(), st.lists(st.binary())),
    ],
    ids=str,
)
@given(data=st.data())
def test_python_values_become_what_arrow_makes_of_them(
    kind: pa.DataType, values: st.SearchStrategy[list[object]], data: st.DataObject
) -> None:
    given_values = data.draw(values)
    found = exact_array(given_values, kind)
    found.validate(full=True)
    assert found.equals(pa.array(given_values, kind))


@given(st.lists(st.booleans()), st.integers(0, 9))
def test_flags_and_positions_stay_what_they_are(flags: list[bool], start: int) -> None:
    array = np.array(flags, np.bool_)[start:]
    found = flag_array(array)
    found.validate(full=True)
    assert found.to_pylist() == flags[start:]
    places = np.flatnonzero(array)[::-1]
    assert position_array(places).to_pylist() == places.tolist()
