"""Names of the REST API and of a lake are the same names, whatever characters they have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.server.error_model import RequestRefused
from neve.server.rest_names import Namespace, TableRef, level_of, part_of


@given(st.text())
def test_a_level_is_found_again(level: str) -> None:
    part = part_of(level)

    assert level_of(part) == level
    assert "." not in part
    assert "/" not in part


def test_names_are_written_with_dots() -> None:
    ref = TableRef(Namespace(("eu", "a.b")), "c/d")

    assert ref.dotted == "eu.a%2Eb.c%2Fd"
    assert TableRef.of_dotted(ref.dotted) == ref
    assert part_of("50%") == "50%"
    assert part_of("%2E") == "%252E"


@pytest.mark.parametrize("levels", [[], "shop", [""], [1], None, {"a": 1}, ["."], ["a", ".."]])
def test_what_is_not_a_namespace_is_refused(levels: object) -> None:
    with pytest.raises(RequestRefused):
        Namespace.of_levels(levels)


@pytest.mark.parametrize("name", ["", ".", "..", None, 1])
def test_what_is_not_a_table_is_refused(name: object) -> None:
    with pytest.raises(RequestRefused):
        TableRef.of_name(Namespace(("shop",)), name)
    with pytest.raises(RequestRefused):
        TableRef.of_body({"namespace": ["shop"], "name": name})
