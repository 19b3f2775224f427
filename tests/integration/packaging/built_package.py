"""The sdist, and the wheel that is built from it: how they are made and what they hold."""

import stat
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
_EXECUTABLE: Final = stat.S_IXUSR


def build_sdist(folder: Path) -> Path:
    """Build the sdist from the checkout; gives where it is."""
    return _built(ROOT, "sdist", folder, "*.tar.gz")


def build_wheel(sdist: Path, folder: Path, scratch: Path) -> Path:
    """Build the wheel from what the sdist holds, unpacked in `scratch`, and from nothing else."""
    with tarfile.open(sdist) as archive:
        # Python before 3.11.4 has no filters, and passes over this; the archive is our own.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(scratch)  # noqa: S202
    return _built(scratch / sdist.name.removesuffix(".tar.gz"), "wheel", folder, "*.whl")


def names_in_sdist(sdist: Path) -> set[str]:
    """Names of the files of an sdist, without the folder that they are all in."""
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def names_in_wheel(wheel: Path) -> set[str]:
    """Names of the files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def executables_in_wheel(wheel: Path) -> set[str]:
    """Names of the files of a wheel that can be executed once they are installed."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            each.filename for each in archive.infolist() if (each.external_attr >> 16) & _EXECUTABLE
        }


def metadata_of(wheel: Path) -> Message:
    """What the wheel says about itself."""
    return HeaderParser().parsestr(_read(wheel, "METADATA"))


def entry_points_of(wheel: Path) -> str:
    """Which commands the wheel brings."""
    return _read(wheel, "entry_points.txt")


def _read(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        [path] = [each for each in archive.namelist() if each.endswith(f".dist-info/{name}")]
        return archive.read(path).decode()


def _built(source: Path, target: str, folder: Path, pattern: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    ran = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    [built] = folder.glob(pattern)
    return built
