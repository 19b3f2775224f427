"""Lines on standard output fit whoever reads them, and documents are valid JSON."""

import io
import json
import sys

import pytest
from rich.text import Text

from neve.inspect.page import JsonDocument, Page


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


@pytest.mark.parametrize(
    ("wished", "columns"),
    [
        ("72", 72),
        ("250", 250),
        ("7", 40),
        ("", 100),
        ("0", 100),
        ("-5", 100),
        ("wide", 100),
        ("9" * 40, 100),
    ],
)
def test_a_page_in_a_pipe_is_as_wide_as_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, wished: str, columns: int
) -> None:
    with monkeypatch.context() as patched:  # the test runner reads it too, once this returns
        patched.setenv("COLUMNS", wished)
        page = Page()

    assert page.columns == columns


def test_a_page_without_the_characters_of_drawings_gets_those_of_ascii(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "ascii", errors="replace"))
    page = Page()

    page.line(Text.assemble(("╭─ ", "dim"), ("block 0", "bold")))
    page.line("✔ Böhm … 12 · 7")
    page.flush()

    assert shown.getvalue() == b"+- block 0\n* B?hm > 12 . 7\n"
