"""What the page about Spark shows runs."""

import re
import runpy
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.mark.usefixtures("spark")
def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.py"
    # Spark has relative paths begin where it was started.
    script.write_text("\n".join(blocks).replace('"./lake"', repr(str(tmp_path / "lake"))))

    ran = runpy.run_path(str(script))

    # Whatever the page raises has failed the test by now.
    assert ran["lake"].list_tables()
    ran["lake"].close()
