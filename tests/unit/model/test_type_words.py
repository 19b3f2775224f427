"""Types in words: what is spelled out is read again as the same type."""

import pytest
from neve.model.type_parser import parse_type, type_text


@pytest.mark.parametrize(
    "text",
    [
        "long",
        "decimal(9,2)",
        "fixed[4]",
        "timestamptz",
        "list<string>",
        "list<string!>",
        "map<string, list<decimal(9,2)>!>",
        "struct<w: int!, tags: list<string>, place: struct<lat: double>>",
    ],
)
def test_a_type_is_spelled_as_it_is_read(text: str) -> None:
    assert type_text(parse_type(text)) == text


def test_names_of_arrow_are_spelled_as_those_of_iceberg() -> None:
    assert type_text(parse_type("struct<a: int64, b: list<int32>>")) == (
        "struct<a: long, b: list<int>>"
    )
