"""Documents on standard output are valid JSON, however few members they have."""

import json

import pytest

from neve.cli.output import JsonDocument, Page


def test_a_document_without_members_is_an_empty_object(capsys: pytest.CaptureFixture[str]) -> None:
    JsonDocument().end()

    assert json.loads(capsys.readouterr().out) == {}


def test_members_and_arrays_come_out_in_the_order_they_went_in(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = JsonDocument()
    document.members({"a": 1, "b": {"c": "ž\u2028\ud800"}})
    document.array("empty", [])
    document.array("d", iter([1, None, [True]]))
    document.members({"last": 0.5})
    document.end()

    text = capsys.readouterr().out
    assert text.isascii()
    assert json.loads(text) == {
        "a": 1,
        "b": {"c": "ž\u2028\ud800"},
        "empty": [],
        "d": [1, None, [True]],
        "last": 0.5,
    }
    assert [*json.loads(text)] == ["a", "b", "empty", "d", "last"]


def test_a_page_in_a_pipe_is_plain_and_not_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page()

    page.line("x" * 500)

    assert not page.is_terminal
    assert capsys.readouterr().out == "x" * 500 + "\n"
