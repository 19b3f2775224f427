"""The guides that use Spark: their blocks print what they show, in the session of this folder."""

import os
import sys
from pathlib import Path
from unittest import mock

import pytest

from tests.architecture.guide_page import PAGES, SPARK, page_id, run_page

ON_SPARK = [page for page in PAGES if SPARK in page.read_text()]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("page", ON_SPARK, ids=page_id)
def test_a_page_does_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # Spark has relative paths begin where it was started.
    text = page.read_text().replace('"./', f'"{tmp_path}/')

    with mock.patch.dict(
        os.environ, {"HOME": str(tmp_path / "home"), "PATH": path, "COLUMNS": "100"}
    ):
        os.environ.pop("NEVE_LAKE", None)
        (tmp_path / "home").mkdir()
        count = run_page(text, directory=tmp_path, name=page.name)

    assert count
