"""The Makefile: which Python an environment is made with, and what it says when that is unclear."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.packaging.built_package import ROOT


def make(*arguments: str, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    """Run make as from an empty shell; what a surrounding make passes on stays outside."""
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env={"PATH": path, "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )


def write_script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o700)
    return path


@pytest.fixture
def environment_of_another_python(tmp_path: Path) -> Path:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    write_script(python, "echo 3.11.999")
    return tmp_path / ".venv"


def test_an_environment_of_another_python_is_refused_with_the_way_out(
    environment_of_another_python: Path,
) -> None:
    venv = environment_of_another_python

    ran = make("same-python", f"PYTHON={sys.executable}", f"VENV={venv}")

    version = platform.python_version()
    assert ran.returncode != 0
    assert f"{venv} was made with Python 3.11.999" in ran.stderr
    assert f"PYTHON={sys.executable} is {version}" in ran.stderr
    assert f"add VENV=.venv-{version} to keep both" in ran.stderr


def test_without_a_named_python_the_environment_that_is_there_is_used(
    environment_of_another_python: Path,
) -> None:
    ran = make("same-python", f"VENV={environment_of_another_python}")

    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_python_of_the_environment_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)

    for venv in (tmp_path, tmp_path / "not-there-yet"):
        ran = make("same-python", f"PYTHON={sys.executable}", f"VENV={venv}")
        assert (ran.returncode, ran.stderr) == (0, "")


def test_a_half_made_environment_is_made_again(tmp_path: Path) -> None:
    """Debian without python3-venv leaves an environment that has a Python but no pip."""
    planned = make("--dry-run", "setup", f"VENV={tmp_path}").stdout

    assert f'{tmp_path}/bin/python -m pip --version > /dev/null 2>&1 || "python3"' in planned


def test_pythons_runs_the_tests_once_for_each_python_in_its_own_environment(
    tmp_path: Path,
) -> None:
    recorder = write_script(tmp_path / "recorder", f'echo "$@" >> {tmp_path}/calls')
    other = write_script(tmp_path / "python3", "echo 3.14.999")

    ran = make("pythons", f"PYTHONS={sys.executable} {other}", f"MAKE={recorder}")

    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"test PYTHON={sys.executable} VENV=.venv-{platform.python_version()}",
        f"test PYTHON={other} VENV=.venv-3.14.999",
    ]


def test_pythons_finds_the_oldest_and_the_newest(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    recorder = write_script(tmp_path / "recorder", f'echo "$@" >> {tmp_path}/calls')
    for minor, patch in ((11, 0), (12, 5), (13, 1), (14, 999)):
        python = folder / f"python3.{minor}"
        answer = f"printf '3\\t{minor}\\t{patch}\\t{python}\\n'"
        version = f"3.{minor}.{patch}"
        write_script(python, f'case "$2" in *platform*) echo {version};; *) {answer};; esac')

    ran = make("pythons", f"MAKE={recorder}", path=f"{folder}:/usr/bin:/bin")

    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"test PYTHON={folder}/python3.11 VENV=.venv-3.11.0",
        f"test PYTHON={folder}/python3.14 VENV=.venv-3.14.999",
    ]
