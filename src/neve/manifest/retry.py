"""How long a commit keeps trying: jittered back-off under one deadline."""

from dataclasses import dataclass
from typing import Final

from neve.errors import (
    NeveError,
    OutcomeUnknown,
    StorageFull,
    StorageReadOnly,
    StorageRefused,
    Unavailable,
)
from neve.storage.clock import Clock, IdSource

_FIRST_PAUSE_SECONDS: Final = 0.002
_LONGEST_PAUSE_SECONDS: Final = 1.0


@dataclass(slots=True)
class Patience:
    """One caller's deadline; pauses are jittered, and grow up to a limit."""

    clock: Clock
    ids: IdSource
    seconds: float
    _ends_at: float = 0.0
    _pause_seconds: float = _FIRST_PAUSE_SECONDS
    _cause: NeveError | None = None

    def __post_init__(self) -> None:
        self._ends_at = self.clock.monotonic() + self.seconds

    def note(self, cause: NeveError) -> None:
        """Remember why the last try failed, for the error at the end."""
        self._cause = cause

    def check(
        self, what: str, *, path: str, cause: NeveError | None = None, unknown: bool = False
    ) -> None:
        """Raise Unavailable, or OutcomeUnknown, once the deadline has passed.

        The error of a full or read-only disk, or of a bucket that refuses, is raised at once.
        """
        self._cause = cause or self._cause
        if isinstance(cause, StorageFull | StorageReadOnly | StorageRefused) and not unknown:
            raise cause  # waiting does not help
        if self.clock.monotonic() >= self._ends_at:
            error_type = OutcomeUnknown if unknown else Unavailable
            raise error_type(
                f"{what} within {self.seconds:g} s",
                path=path,
                hint="Read before writing again" if unknown else "Try again later",
            ) from self._cause

    def pause(
        self,
        what: str,
        *,
        path: str,
        cause: NeveError | None = None,
        unknown: bool = False,
        seconds_max: float = _LONGEST_PAUSE_SECONDS,
    ) -> None:
        """Wait a little, at most about `seconds_max`; raises what `check` raises."""
        self.check(what, path=path, cause=cause, unknown=unknown)
        seconds = min(self._pause_seconds, seconds_max)
        self.clock.sleep(seconds * (0.5 + self.ids.jitter()))
        self._pause_seconds = min(2 * seconds, seconds_max)
