"""Pages for notebooks: whole, short, and harmless whatever they are made of."""

import pytest

from neve.errors import Unavailable
from neve.notebook import ROWS_MAX, facts, listing, note, page, shown_page, warning
from tests.unit.model.page_checks import Page

HOSTILE = [
    "<script>alert(1)</script>",
    "</table></div>",
    '" onmouseover="alert(1)',
    "&lt;b&gt;",
    "a\x00b\x1b[31m\n\ud800",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_stays_text_wherever_it_stands(text: str) -> None:
    parts = (facts({text: text}), listing((text,), [(text,)]), note(text), warning(text))

    html = page(text, *parts, line=text)

    shown = Page(html)
    html.encode()
    assert shown.texts.count(shown.texts[0]) == 2 + 2 + 2 + 2
    assert all(each.isprintable() for each in shown.texts)


def test_a_page_is_short_however_much_there_is_to_say() -> None:
    html = page("x" * 10_000, listing(("n",), [(each,) for each in range(1_000)], more=5))

    shown = Page(html)
    assert shown.elements.count("tr") == 1 + ROWS_MAX
    assert f"and {1_005 - ROWS_MAX:,} more" in shown.text
    assert len(html) < 30_000


def test_a_fact_that_is_missing_takes_no_room() -> None:
    shown = Page(facts({"a": None, "b": "", "c": 0, "d": False}).html)

    assert shown.texts == ["c", "0", "d", "no"]


@pytest.mark.parametrize("error", [Unavailable("no <answer>"), ZeroDivisionError("no <answer>")])
def test_what_cannot_be_shown_is_replaced_by_the_reason(error: Exception) -> None:
    def fail() -> str:
        raise error

    shown = Page(shown_page("Table a.b", fail))

    assert "Table a.b" in shown.text
    assert "no <answer>" in shown.text


@pytest.mark.parametrize("kind", [Unavailable, ZeroDivisionError])
def test_an_error_without_words_is_shown_by_its_name(kind: type[Exception]) -> None:
    def no_words(_error: Exception) -> str:
        raise ValueError("no words")

    def fail() -> str:
        raise type("Speechless", (kind,), {"__str__": no_words})("lost")

    assert "Speechless" in Page(shown_page("Table a.b", fail)).text
