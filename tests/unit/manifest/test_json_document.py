"""Documents are read back as they were written, and nothing else is read at all."""

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.manifest.json_document import DOCUMENT_BYTES_MAX, Document, write_document
from neve.model.schema_json import Json

PLACE = "manifest/version/t1/head"


def read(payload: bytes, *, format_number: int = 1) -> Document:
    return Document.read(payload, format_number=format_number, path=PLACE)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"null",
        b"7",
        b'{"format":1',
        b'{"format":1} {}',
        b"\xff\xfe{\x00}\x00",
        '{"format":1}'.encode("utf-16"),
        b"\xef\xbb\xbf" + b'{"format":1}',
        b'{"format":1,"x":"\xff"}',
        b"[" * 100_000,
        b'{"format":' + b"9" * 5_000 + b"}",
        b"{}",
        b'{"format":true}',
        b'{"format":-1}',
        b'{"format":1.0}',
        b'{"format":"1"}',
    ],
)
def test_bytes_that_are_no_document_are_corruption(payload: bytes) -> None:
    with pytest.raises(Corruption) as caught:
        read(payload)

    assert caught.value.path == PLACE


def test_a_newer_format_is_refused_with_advice() -> None:
    with pytest.raises(Corruption, match="format 2 is newer") as caught:
        read(write_document(2, {}))

    assert caught.value.hint is not None


def test_an_older_format_is_read() -> None:
    assert read(write_document(1, {"x": 1}), format_number=2).integer("x") == 1


def test_a_huge_document_is_refused_before_it_is_parsed() -> None:
    hostile = b"[" + b"{}," * (DOCUMENT_BYTES_MAX // 3) + b"{}]"

    with pytest.raises(Corruption, match="a document of 8,388,610 bytes is too large"):
        read(hostile)


ACCESSORS: dict[str, Callable[[Document], object]] = {
    "integer": lambda document: document.integer("x"),
    "text": lambda document: document.text("x"),
    "boolean": lambda document: document.boolean("x"),
    "texts": lambda document: document.texts("x"),
    "text_map": lambda document: document.text_map("x"),
}
FITTING: dict[str, tuple[Json, ...]] = {
    "integer": (0, 7, (1 << 63) - 1),
    "text": ("", "é"),
    "boolean": (True, False),
    "texts": ([], ["a", "b"]),
    "text_map": ({}, {"a": "b"}),
}
VALUES: tuple[Json, ...] = (
    None,
    True,
    0,
    -1,
    1 << 63,
    1.5,
    "text",
    [],
    ["a", 1],
    [None],
    {},
    {"a": 1},
)


@pytest.mark.parametrize("name", ACCESSORS)
def test_a_field_of_another_kind_is_corruption_that_names_it(name: str) -> None:
    kinds = {type(value) for value in FITTING[name]}
    for value in VALUES:
        if type(value) in kinds and value not in (-1, 1 << 63, ["a", 1], [None], {"a": 1}):
            continue
        document = read(json.dumps({"format": 1, "x": value}).encode())
        with pytest.raises(Corruption, match="'x'"):
            ACCESSORS[name](document)


@pytest.mark.parametrize("name", ACCESSORS)
def test_a_field_comes_back_as_it_was_written(name: str) -> None:
    for value in FITTING[name]:
        found = ACCESSORS[name](read(write_document(1, {"x": value})))
        assert found == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("name", ["integer", "text", "boolean", "texts", "text_map"])
def test_a_missing_field_is_corruption(name: str) -> None:
    with pytest.raises(Corruption):
        ACCESSORS[name](read(write_document(1, {})))


@pytest.mark.parametrize("number", [-1, 1 << 63])
def test_a_number_that_could_not_be_read_back_is_not_written(number: int) -> None:
    with pytest.raises(InvalidArgument, match="deadline_ms"):
        write_document(1, {"deadline_ms": number})


def test_a_text_without_a_utf8_form_is_not_written() -> None:
    with pytest.raises(InvalidArgument, match="cannot be stored"):
        write_document(1, {"name": "\ud800"})


def test_a_document_too_large_to_be_read_back_is_not_written() -> None:
    with pytest.raises(LimitExceeded) as caught:
        write_document(1, {"text": "x" * DOCUMENT_BYTES_MAX})

    assert caught.value.limit == DOCUMENT_BYTES_MAX


def test_equal_fields_give_equal_bytes_whatever_their_order() -> None:
    assert write_document(1, {"a": 1, "b": "é"}) == write_document(1, {"b": "é", "a": 1})
    assert write_document(1, {"b": "é", "a": 1}) == '{"a":1,"b":"é","format":1}'.encode()


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_at_all_give_an_untyped_error(payload: bytes) -> None:
    try:
        document = read(payload)
    except Corruption:
        return
    assert document is not None
    for accessor in ACCESSORS.values():
        # Any other error fails the test.
        with suppress(Corruption):
            accessor(document)
