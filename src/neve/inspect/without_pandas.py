"""Keeps pandas out of a process: for commands, and for the process that decodes foreign files.

The first conversion of values in pyarrow looks for pandas; importing it takes half as long as a
whole command, and no command needs a data frame.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _WithoutPandas(MetaPathFinder):
    """Hides pandas as if it were not installed; other modules are not affected.

    None in `sys.modules` would not do: Cython code takes it for the module.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Refuse pandas; return None for any other module."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError("commands do without pandas", name=fullname)


def keep_pandas_out() -> None:
    """Keep pandas out of this process."""
    sys.meta_path.insert(0, _WithoutPandas())
