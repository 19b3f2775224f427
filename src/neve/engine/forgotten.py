"""Ends what nobody closed, when the collector finds it.

The collector runs in any thread, between any two steps of it, also while that thread holds a lock
that ending something needs. So nothing is ended there: a thread of its own does it, and the
interpreter waits for it: one that is cut off while it lets go of Arrow's memory takes the process
with it. When the interpreter ends there are no other threads any more, and nothing can wait for
itself.
"""

from collections.abc import Callable
from threading import Thread, main_thread


def end_forgotten(end: Callable[[], None]) -> None:
    """End something elsewhere; for `weakref.finalize`."""
    if main_thread().is_alive():
        Thread(target=end, name="neve-forgotten", daemon=False).start()
    else:
        end()
