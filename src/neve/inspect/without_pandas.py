"""Keeps pandas out of a process: for commands, and for the process that decodes foreign files.

The first conversion of values in pyarrow looks for pandas; finding it takes half as long as a whole
command, which never makes a data frame.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


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
