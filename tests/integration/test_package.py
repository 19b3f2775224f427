"""The package that users install: what is in it, what it says of itself, and that it works.

Everything is built by the backend of this environment, and nothing is fetched.
"""

import re
import subprocess
import sys
import sysconfig
import tomllib
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement

from neve.kernel import is_compiled
from tests.integration.packaging import built_package
from tests.integration.packaging.built_package import ROOT

SCRIPTS: Final = ROOT / "tests" / "integration" / "packaging"
BELONGS: Final = {
    "neve/py.typed",
    "neve/__init__.pyi",
    "neve/manifest/store.proto",
    "neve/manifest/store_pb2.pyi",
    "neve/spark/NeveCatalog.java",
    "neve/spark/__init__.pyi",
    "neve/spark/java_shim/bin/java",
    "pyspark_neve/__init__.py",
}
KERNEL: Final = "neve/_kernel.abi3.so"
PYTHON_NAMES: Final = {f".{ending}" for ending in ("py", "pyi", "proto", "typed")}


@dataclass(frozen=True, slots=True)
class Built:
    """The two files of a release."""

    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    dist = tmp_path_factory.mktemp("dist")
    sdist = built_package.build_sdist(dist)
    wheel = built_package.build_wheel(sdist, dist, tmp_path_factory.mktemp("unpacked"))
    return Built(sdist, wheel)


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def test_the_wheel_holds_the_two_packages_and_nothing_else(built: Built) -> None:
    names = {
        name for name in built_package.names_in_wheel(built.wheel) if ".dist-info/" not in name
    }
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in {".c", ".so"}
    }

    assert names - {KERNEL} == source
    assert names >= BELONGS
    names -= {KERNEL}
    assert {Path(name).suffix for name in names} - PYTHON_NAMES == {
        "",
        ".java",
    }  # Java's stand-in has none
    assert built_package.executables_in_wheel(built.wheel) == {"neve/spark/java_shim/bin/java"}


def test_the_sdist_holds_what_the_wheel_is_built_from_and_no_more(built: Built) -> None:
    names = built_package.names_in_sdist(built.sdist)
    outside = {name for name in names if not name.startswith("src/")}

    assert {name.partition("/")[0] for name in names} <= {"src", *outside}
    assert outside - {""} == {
        ".gitignore",
        "CHANGELOG.md",
        "LICENSE",
        "PKG-INFO",
        "README.md",
        "SECURITY.md",
        "hatch_build.py",
        "pyproject.toml",
    }
    assert "src/neve/_kernel.c" in names
    assert {f"src/{name}" for name in BELONGS} <= names


def test_a_wheel_has_the_kernel_where_it_could_be_compiled_and_else_says_nothing(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_compiled == (KERNEL in built_package.names_in_wheel(built.wheel))
    if is_compiled:
        assert "-cp311-abi3-" in built.wheel.name

    for name, value in (("CC", str(tmp_path / "no-compiler")), ("NEVE_KERNEL", "0")):
        with monkeypatch.context() as without:
            without.setenv(name, value)
            wheel = built_package.build_wheel(built.sdist, tmp_path / name, tmp_path)

        assert KERNEL not in built_package.names_in_wheel(wheel)
        assert wheel.name.endswith("-py3-none-any.whl")


def test_the_metadata_say_what_a_release_needs(built: Built, project: dict[str, Any]) -> None:
    metadata = built_package.metadata_of(built.wheel)

    assert metadata["Name"] == "neve"
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|(a|b|rc)\d+)?", metadata["Version"])
    assert metadata["Version"] == project["version"]
    assert metadata["Summary"]
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])
    assert re.fullmatch(
        r"\[console_scripts\]\nneve = neve\.__main__:main\n",
        built_package.entry_points_of(built.wheel),
    )


def test_each_python_that_is_tested_is_declared(built: Built) -> None:
    metadata = built_package.metadata_of(built.wheel)

    declared = {
        version
        for each in metadata.get_all("Classifier", [])
        if (version := each.rpartition(" :: ")[2]).startswith("3.")
    }

    assert declared == {"3.11", "3.12", "3.13", "3.14"}
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in declared


def test_a_dependency_is_a_range_and_never_one_version(project: dict[str, Any]) -> None:
    extras: dict[str, list[str]] = project["optional-dependencies"]
    wanted = [Requirement(each) for each in (*project["dependencies"], *chain(*extras.values()))]

    for each in wanted:
        assert {clause.operator for clause in each.specifier} == {">=", "<"}, str(each)


def test_the_version_stands_in_one_place(project: dict[str, Any]) -> None:
    version = re.compile(rf"\b{re.escape(project['version'])}\b")
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.pyi")]

    assert len(sources) > 200
    assert [str(path) for path in sources if version.search(path.read_text())] == []


def test_the_wheel_works_where_only_its_dependencies_are(built: Built, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    python = environment / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    uv = Path(sys.executable).with_name("uv")
    command: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--offline",
        "--python",
        python,
    ]
    subprocess.run([*command, built.wheel], check=True)
    # The path alone: what this environment does to find the checkout stays behind.
    [packages] = environment.glob("lib/python3.*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    ran = subprocess.run(
        [python, "-I", SCRIPTS / "smoke_base.py"], capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
