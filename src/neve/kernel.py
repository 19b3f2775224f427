"""The compiled kernel, where it was built: the same answers in less time.

`neve._kernel` is one module of C, `_kernel.c`, which is compiled when neve is installed and a
compiler is there. It has the inner parts of single puts and gets, of `get_many`, and of reading a
log. Each part has its twin in Python, next to where it is used; a property test compares them.

Without a compiler, with `NEVE_KERNEL=0` in the environment, or where an older build was left in a
checkout, the twins do the work.
"""

import os
from typing import Final

_REVISION: Final = 2
"""What `REVISION` in the source says, so that a build from before it is not used."""

try:
    if os.environ.get("NEVE_KERNEL") == "0":
        raise ImportError  # noqa: TRY301 - as if it were not there
    import neve._kernel as kernel
except ImportError:
    kernel = None  # type: ignore[assignment]

is_compiled: Final[bool] = getattr(kernel, "REVISION", None) == _REVISION
"""Whether `kernel` may be used."""

__all__ = ["is_compiled", "kernel"]
