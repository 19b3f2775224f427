"""Objects that belong to one process, and are notified in its forked children.

In a child, the threads of the parent are gone, its locks may be held for ever, and its lock on a
table stayed with the parent. A notice costs nothing; asking the kernel for the process id at each
call would.

The same applies to locks inside Arrow: a child forked while a table was open, when a thread may
have been reading or writing rows, can hang in its first call of Arrow. neve refuses to work there,
but not in a child forked earlier, or after everything was closed.
"""

import os
from abc import ABC, abstractmethod
from typing import Final, NoReturn, Protocol, Self
from weakref import WeakSet

from neve.errors import Closed, InvalidArgument


class OwnedByProcess(Protocol):
    """An object that a forked child must not use."""

    def end_in_child(self) -> None:
        """Refuse every call from now on; must not wait for a lock."""


class KeptInProcess:
    """An object that cannot be pickled or copied: it stays in its process."""

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            f"a {type(self).__name__} cannot be copied, nor sent to another process",
            hint="Send the location and the name: open them there with neve.open and "
            "`table(name, read_only=True)`; rows are sent as Arrow",
        )


class Handle(KeptInProcess, ABC):
    """An object of one process that is closed at the end of its `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close it; twice is not an error."""


_owned: Final[WeakSet[OwnedByProcess]] = WeakSet()
# Set in a forked child, before it runs any code of its own.
_forked_at_work = False


def keep_to_process(owned: OwnedByProcess) -> None:
    """Notify an object, for as long as it lives, when this process is forked."""
    _owned.add(owned)


def forked(*, path: str | None = None) -> Closed:
    """Return the error for a handle that is used in a forked child."""
    return Closed(
        "this handle belongs to the process that opened it",
        path=path,
        hint="a forked child opens the lake itself, with neve.open: start workers with spawn, or "
        "fork before the first table is opened",
    )


def note_forked_at_work() -> None:
    """Note, in a forked child, that its parent had a table open."""
    global _forked_at_work  # noqa: PLW0603 - a fact about this one process
    _forked_at_work = True


def check_forked_idle(*, path: str) -> None:
    """Raise InvalidArgument in a child that was forked while a table was open."""
    if _forked_at_work:
        raise InvalidArgument(
            "this process was forked while a table was open, and could hang inside Arrow",
            path=path,
            hint='Start workers with multiprocessing.get_context("spawn"), or open the lake only '
            "after the fork, or close it before",
        )


def _end_in_child() -> None:
    for owned in list(_owned):
        owned.end_in_child()
    _owned.clear()


os.register_at_fork(after_in_child=_end_in_child)
