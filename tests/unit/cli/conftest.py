"""Commands see the terminal of a test that says nothing about it."""

import pytest


@pytest.fixture(autouse=True)
def unknown_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the width that the test runner's own terminal has."""
    monkeypatch.delenv("COLUMNS", raising=False)
