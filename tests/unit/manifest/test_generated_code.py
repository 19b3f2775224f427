"""The committed protobuf code is what the committed definitions give."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "src"
DEFINITIONS = sorted(path.relative_to(SOURCES) for path in SOURCES.rglob("*.proto"))


def meaning(path: Path) -> str:
    """Give a module as Python sees it: a formatter may have been at it."""
    return ast.dump(ast.parse(path.read_text()))


def generate(definition: Path, folder: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{SOURCES}",
            f"--python_out={folder}",
            f"--pyi_out={folder}",
            str(SOURCES / definition),
        ],
        check=True,
    )


def test_there_are_definitions_to_check() -> None:
    assert {path.name for path in DEFINITIONS} >= {"mrub.proto", "store.proto"}


@pytest.mark.parametrize("definition", DEFINITIONS, ids=str)
def test_generating_the_code_again_changes_nothing(definition: Path, tmp_path: Path) -> None:
    generate(definition, tmp_path)

    for suffix in ("py", "pyi"):
        module = definition.with_name(f"{definition.stem}_pb2.{suffix}")
        assert meaning(tmp_path / module) == meaning(SOURCES / module), (
            "run: python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src "
            f"src/{definition}"
        )
