"""The page on the architecture names modules that exist, and every package."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "architecture.md").read_text()
SOURCE: Final = ROOT / "src" / "neve"
LINE_OF_A_WALK: Final = re.compile(r"^ {4,}([a-z]+\.[a-z_0-9]+) {2,}\S", re.MULTILINE)
IN_PROSE: Final = re.compile(r"`([a-z]+\.[a-z_0-9]+)`")
PACKAGE_ROW: Final = re.compile(r"^\| `([a-z]+)` \| ", re.MULTILINE)
UNCHECKED: Final = re.compile(r"<!-- check: (.*?) -->", re.DOTALL)


def test_the_modules_of_the_walks_exist() -> None:
    walked = LINE_OF_A_WALK.findall(PAGE)
    named = {*walked, *IN_PROSE.findall(PAGE)}
    unchecked = {word for note in UNCHECKED.findall(PAGE) for word in re.findall(r"[\w.]+", note)}

    assert len(walked) > 50
    lost = {name for name in named if not (SOURCE / f"{name.replace('.', '/')}.py").exists()}
    assert not lost - unchecked


def test_every_package_has_a_row() -> None:
    packages = {
        path.name if path.is_dir() else path.stem
        for path in SOURCE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }

    assert not {name for name in packages if not name.startswith("_")} - set(
        PACKAGE_ROW.findall(PAGE)
    )
