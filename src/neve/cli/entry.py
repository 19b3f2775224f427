"""Entry point of the `neve` script: makes a process of it, then runs the command line.

Three things come before anything else is loaded. Ctrl-C ends the process with one line. Nothing is
looked for among the garbage: modules make thousands of objects and drop none. And pandas stays out:
the first conversion of values in pyarrow looks for it, and finding it takes half as long as a whole
command, which never makes a data frame. `neve demo` plays with guests who may.
"""

import gc
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Final, NoReturn

from neve.cli.interrupts import end_at_once_when_interrupted

_WITH_GUESTS: Final = "demo"


class _WithoutPandas(MetaPathFinder):
    """Answers for pandas as if it were not installed, and leaves all else to the others.

    None in `sys.modules` would not do: what is written in Cython takes it for the module.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Refuse pandas; know nothing of any other module."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError("commands do without pandas", name=fullname)


def keep_pandas_out() -> None:
    """Let this process do without pandas."""
    sys.meta_path.insert(0, _WithoutPandas())


def main() -> NoReturn:
    """Run the command line of this process, and exit."""
    end_at_once_when_interrupted()
    gc.disable()
    if _WITH_GUESTS not in sys.argv[1:]:
        keep_pandas_out()
    importlib.import_module("neve.cli.main").main()
    raise AssertionError("the command line exits by itself")
