"""The committed protobuf code is what the committed definitions give.

`make proto` makes it with the compiler of the oldest protobuf that neve supports: newer runtimes
load code of older compilers, never the other way round. The compiler of this environment is the
newest. It writes the same code plus a check that no older runtime is in use, and stubs that need
nothing of an old one.
"""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "src"
DEFINITIONS = sorted(path.relative_to(SOURCES) for path in SOURCES.rglob("*.proto"))


def meaning(path: Path) -> str:
    """Return a module as Python sees it, without its check of the runtime's version."""
    module = ast.parse(path.read_text())
    module.body = [each for each in module.body if "runtime_version" not in ast.unparse(each)]
    return ast.dump(module)


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
        assert meaning(tmp_path / module) == meaning(SOURCES / module), "run: make proto"


@pytest.mark.parametrize("definition", DEFINITIONS, ids=str)
def test_the_compiler_is_that_of_the_oldest_protobuf_supported(definition: Path) -> None:
    code = (SOURCES / definition.with_name(f"{definition.stem}_pb2.py")).read_text()
    dependencies = tomllib.loads((SOURCES.parent / "pyproject.toml").read_text())["project"][
        "dependencies"
    ]

    compiled_for = re.search(r"Protobuf Python Version: ([\d.]+)", code)
    [oldest] = re.findall(r"^protobuf>=([\d.]+)", "\n".join(dependencies), re.MULTILINE)

    assert compiled_for is not None
    assert compiled_for[1] == oldest
    assert "ValidateProtobufRuntimeVersion" not in code
