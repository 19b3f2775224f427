"""Any schema survives its JSON, and no text at all gives an untyped error."""

import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from neve.errors import Corruption
from neve.model.schema import TableSchema
from tests.property.typed_values import Table, tables

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(tables(rows_max=1))
def test_a_schema_comes_back_from_its_json(table: Table) -> None:
    again = TableSchema.from_json(table.schema.to_json())

    assert again == table.schema
    assert again.to_json() == table.schema.to_json()
    assert again.fingerprint() == table.schema.fingerprint()


@given(tables(rows_max=1))
def test_ids_are_those_iceberg_gives(table: Table) -> None:
    theirs = Schema.model_validate_json(table.schema.to_json())

    assert assign_fresh_schema_ids(theirs) == theirs


@given(tables(rows_max=1), st.data())
def test_changed_json_is_corruption_or_a_schema(table: Table, data: st.DataObject) -> None:
    members = json.loads(table.schema.to_json())
    place = members
    while True:
        steps = list(place) if isinstance(place, dict) else list(range(len(place)))
        step = data.draw(st.sampled_from(steps))
        if not isinstance(place[step], (dict, list)) or not place[step] or data.draw(st.booleans()):
            place[step] = data.draw(JSON)
            break
        place = place[step]

    try:
        schema = TableSchema.from_json(json.dumps(members))
    except Corruption:
        return
    assert TableSchema.from_json(schema.to_json()) == schema


@given(tables(rows_max=1), st.data())
def test_cut_or_scrambled_text_is_corruption_or_a_schema(table: Table, data: st.DataObject) -> None:
    text = table.schema.to_json()
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, len(text)))

    # Any other error fails the test.
    with suppress(Corruption):
        found = TableSchema.from_json(text[:at] + data.draw(st.text(max_size=3)) + text[end:])
        assert TableSchema.from_json(found.to_json()) == found
