"""The voice of the demo: plain lines in a pipe, colours and bars on a terminal, nothing without."""

import pytest
from examples.demo.narrator import Narrator
from neve.inspect.page import Page


def tell(narrator: Narrator) -> None:
    narrator.act(3, "An act", 'lake = neve.open("./lake")\n')
    narrator.say("12 rows in 3 ms, " * 8)
    narrator.found("as it should be")
    narrator.left_out("somebody is not installed here")
    with narrator.progress("work", total=10) as told:
        told(3)
        told(10, "other work")


def test_in_a_pipe_lines_are_plain_and_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")

    tell(Narrator(Page()))

    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "work" not in said
    assert max(map(len, said.splitlines())) <= 60
    assert said.startswith("\n  3  An act\n    │ lake = neve.open(")
    assert said.endswith("\n  ✔ as it should be\n  · somebody is not installed here\n")


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_on_a_terminal_code_and_numbers_have_colours_unless_they_are_unwanted(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    coloured: bool,
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    tell(Narrator(Page()))

    said = capsys.readouterr().out
    assert ("\x1b[36m12\x1b[0m" in said) == coloured
    assert ("\x1b[33m" in said) == coloured


def test_without_a_page_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Narrator(None))

    assert capsys.readouterr().out == ""
