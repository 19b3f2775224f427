"""The guides: a newcomer who copies their blocks gets what they show."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.guide_page import (
    DOCS,
    PAGES,
    SPARK,
    PageError,
    blocks_of,
    is_as_shown,
    page_id,
    run_page,
)

RUNNER = Path(__file__).parent / "guide_page.py"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if SPARK not in page.read_text()], ids=page_id
)
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "NEVE_LAKE"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["HOME"] = str(home)
    environment["COLUMNS"] = "100"

    ran = subprocess.run(
        [sys.executable, "-P", "-W", "error", str(RUNNER), str(page)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr


def test_the_serving_guide_passes_a_strict_type_checker(tmp_path: Path) -> None:
    pages = [DOCS / "start.md", DOCS / "guides" / "serve-by-key.md"]
    for page in pages:
        sources = [
            block.source for block in blocks_of(page.read_text()) if block.language == "python"
        ]
        assert sources
        program = tmp_path / f"{page.stem.replace('-', '_')}.py"
        program.write_text("\n".join(sources))

    # With the project's own settings, which are strict, and its cache, which makes it quick.
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-warn-unused-configs", *map(str, tmp_path.iterdir())],
        cwd=DOCS.parent,
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout


def test_every_page_has_blocks_and_a_place_in_the_navigation() -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text()

    assert len(PAGES) > 2
    for page in PAGES:
        assert list(blocks_of(page.read_text())), page
        assert f": {page_id(page)}\n" in navigation
        assert f"({page_id(page)})" in (DOCS / "index.md").read_text()


@pytest.mark.parametrize("drawing", sorted((DOCS / "images").glob("*.svg")), ids=page_id)
def test_a_drawing_is_described_in_words_and_has_colours_for_the_dark(drawing: Path) -> None:
    text = drawing.read_text()

    assert re.search(r'<title id="title">[^<]+</title>', text)
    assert re.search(r'<desc id="desc">[^<]+</desc>', text)
    assert 'aria-labelledby="title desc"' in text
    assert "prefers-color-scheme: dark" in text


# How a page is run


def run(text: str, folder: Path) -> int:
    return run_page(text, directory=folder, name="page")


def test_blocks_of_python_share_names_and_bash_shares_the_directory(tmp_path: Path) -> None:
    file = tmp_path / "note"
    page = (
        f"```python\nfrom pathlib import Path\nPath({str(file)!r}).write_text('hi')\nword = 'ho'\n"
        "```\n\n```bash\ncat note\n```\n\n```text\nhi\n```\n\n"
        "```python\nprint(word)\n```\n\n```text\nho\n```\n"
    )

    assert run(page, tmp_path) == 3


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "printed was\n1"),
        ("```python\nprint(1)\n```\n", "prints what the page does not show"),
        ("```bash\nexit 3\n```\n", "exit code 3"),
        ("```bash\ntrue\n```\n\n```text\n1\n```\n", "shown is\n1"),
        ("```text\n1\n```\n", "belongs to no block"),
        ("```bash\ntrue\n```\n\nIt prints:\n\n```text\n1\n```\n", "belongs to no block"),
        ("Look:\n\n```sql\nselect 1\n```\n", "nothing above it says why"),
    ],
    ids=["other", "silent", "failed", "nothing", "first", "words-between", "not-run"],
)
def test_a_page_that_shows_something_else_fails(page: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(PageError, match=re.escape(said)):
        run(page, tmp_path)


def test_a_block_that_cannot_be_run_says_why(tmp_path: Path) -> None:
    page = "Not run here: there is no Trino.\n\n```sql\nselect 1\n```\n"

    assert run(page, tmp_path) == 0


@pytest.mark.parametrize(
    ("shown", "is_equal"),
    [
        ("one 1\ntwo\n", True),
        ("one …\ntwo\n", True),
        ("…\ntwo\n", True),
        ("one 1\ntwo\n…\n", True),
        ("one …\n", False),
        ("one 1…\ntwo\n", False),
        ("… two\n", False),
    ],
)
def test_an_ellipsis_stands_for_what_differs_and_for_nothing_else(
    shown: str,
    is_equal: bool,
) -> None:
    assert is_as_shown("one 1\ntwo  \n\n", shown) is is_equal
