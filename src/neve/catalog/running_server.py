"""RunningServer: what `lake.serve` returns, without the libraries of the server."""

from types import TracebackType
from typing import Protocol, Self


class RunningServer(Protocol):
    """A server that runs in a thread."""

    @property
    def url(self) -> str:
        """Address of the catalog, for clients."""
        ...

    def wait(self) -> None:
        """Wait until the server ends."""
        ...

    def close(self) -> None:
        """Finish the requests under way, and stop; twice is not an error."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
