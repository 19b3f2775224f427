"""The command `neve`, also as `python -m neve`: prepares the process, then runs the command line.

Three things come before anything else is loaded. Ctrl-C ends the process with one line. Nothing is
looked for among the garbage: modules make thousands of objects and drop none. And pandas stays out,
except for `neve demo`, whose other systems may use it.
"""

import gc
import importlib
import sys
from typing import Final, NoReturn

from neve.cli.interrupts import end_at_once_when_interrupted
from neve.inspect.without_pandas import keep_pandas_out

_WITH_GUESTS: Final = "demo"


def main() -> NoReturn:
    """Run the command line of this process, and exit."""
    end_at_once_when_interrupted()
    gc.disable()
    if _WITH_GUESTS not in sys.argv[1:]:
        keep_pandas_out()
    importlib.import_module("neve.cli.main").main()
    raise AssertionError("the command line exits by itself")


if __name__ == "__main__":
    main()
