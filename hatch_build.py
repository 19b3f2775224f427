"""Compiles the kernel when neve is installed or packed; without a compiler, neve is Python alone.

The kernel uses only the stable interface of Python 3.11, so one build serves that and all later
ones. An editable install has it beside its source, a wheel inside. `NEVE_KERNEL=0` leaves it out.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

_SOURCE: Final = "src/neve/_kernel.c"
_NAME: Final = "_kernel.abi3.so"
_STABLE: Final = "cp311-abi3"


class KernelHook(BuildHookInterface[Any]):
    """Adds the kernel to what is built, if it can be compiled here."""

    _scratch: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernel before the files of a wheel are collected."""
        if self.target_name != "wheel" or not _can_have_kernel():
            return
        source = Path(self.root, _SOURCE)
        if version == "editable":
            self._compile(source, source.with_name(_NAME))
            return
        self._scratch = Path(tempfile.mkdtemp(prefix="neve-kernel-"))
        built = self._scratch / _NAME
        if self._compile(source, built):
            build_data["force_include"][str(built)] = f"neve/{_NAME}"
            build_data["pure_python"] = False
            build_data["tag"] = f"{_STABLE}-{_platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled: it has been packed."""
        del version, build_data, artifact_path
        if self._scratch is not None:
            shutil.rmtree(self._scratch)

    def _compile(self, source: Path, target: Path) -> bool:
        """Compile and link in one call; return whether it worked."""
        # Beside the target first: a process that has it loaded keeps the old one.
        made = target.with_name(f".{target.name}")
        command = [*_compiler(), str(source), "-o", str(made)]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            self.app.display_debug(f"no compiler, so neve is Python alone: {error}")
            return False
        if ran.returncode:
            made.unlink(missing_ok=True)
            self.app.display_debug(f"the kernel does not compile:\n{ran.stderr}")
            return False
        made.chmod(0o644)  # linkers make everything executable
        made.replace(target)
        return True


def _can_have_kernel() -> bool:
    # The stable interface is that of CPython with its lock.
    is_usual = sys.implementation.name == "cpython"
    has_lock = not sysconfig.get_config_var("Py_GIL_DISABLED")
    is_little = sys.byteorder == "little"
    return is_usual and has_lock and is_little and os.environ.get("NEVE_KERNEL") != "0"


def _compiler() -> list[str]:
    """Return the command that Python itself makes modules with, without its own options."""
    linker = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    if "CC" in os.environ:
        linker[:1] = shlex.split(os.environ["CC"])
    options = [*shlex.split(sysconfig.get_config_var("CCSHARED") or "-fPIC"), "-O2"]
    options += shlex.split(os.environ.get("CFLAGS", ""))
    includes = {sysconfig.get_path(name) for name in ("include", "platinclude")}
    return [*linker, *options, *(f"-I{folder}" for folder in sorted(includes))]


def _platform() -> str:
    """Return the platform of the wheel: this one, and not a range of C libraries."""
    names = (tag.platform for tag in sys_tags())
    return next(name for name in names if "manylinux" not in name and "musllinux" not in name)
