"""What the page about writing from Spark shows runs."""

import re
import runpy
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "spark-writing.md"


@pytest.mark.usefixtures("spark")
def test_the_program_of_the_page_on_writing_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.py"
    # Spark has relative paths begin where it was started.
    script.write_text("\n".join(blocks).replace('"./', f'"{tmp_path}/'))

    ran = runpy.run_path(str(script))

    assert not ran["query"].isActive
    assert ran["query"].exception() is None
