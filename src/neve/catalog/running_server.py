"""RunningServer: what `lake.serve` returns, without the libraries of the server.

The server is an extra and a layer above the catalog: `neve.open` hands in the function that loads
it, as for SQL.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias


class RunningServer(AbstractContextManager["RunningServer"], Protocol):
    """A server that runs in a thread."""

    @property
    def url(self) -> str:
        """Address of the catalog, for clients."""

    def wait(self) -> None:
        """Wait until the server ends."""

    def close(self) -> None:
        """Finish the requests under way, and stop; twice is not an error."""


Serve: TypeAlias = Callable[..., RunningServer]
"""Starts a server; takes the arguments of `Lake.serve`."""
LoadServer: TypeAlias = Callable[[Any], Serve]
"""Takes the lake."""
