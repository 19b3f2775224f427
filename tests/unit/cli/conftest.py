"""Commands see the terminal of a test that says nothing about it, or one that a test asks for."""

import pytest

from tests.unit.cli.rows_lake import Terminal


@pytest.fixture(autouse=True)
def unknown_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the width that the test runner's own terminal has."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Let commands see a terminal of some columns."""

    def appear(columns: int) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.delenv("NO_COLOR", raising=False)

    return appear
