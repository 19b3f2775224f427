"""The most memory of its own that this process has at a time, looked at every few milliseconds.

Pages of mapped files are not counted: the operating system takes those back when it needs them.
"""

from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

_STATUS: Final = Path("/proc/self/status")
_EVERY_SECONDS: Final = 0.004


def own_megabytes() -> float:
    """Memory of this process that no file is behind."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1e3
    raise OSError(f"{_STATUS} does not say RssAnon")


class MemoryPeak:
    """Watches while a block runs; `grown` is how far memory rose above where it began."""

    def __init__(self) -> None:
        self.grown = 0.0
        self._before = 0.0
        self._is_over = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._before = own_megabytes()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(_EVERY_SECONDS):
            self.grown = max(self.grown, own_megabytes() - self._before)
