"""SimulatedClock and SeededIds: time and identifiers that a test controls.

Nothing here waits. Sleeping moves the clock, so code that waits for a deadline reaches it at once,
and the same calls return the same times and identifiers in every run.
"""

import threading
import uuid
from random import Random


class SimulatedClock:
    """A clock that moves only by its methods; safe for many threads."""

    def __init__(self, *, now_ms: int = 1_700_000_000_000) -> None:
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._now_ms = float(now_ms)
        self._monotonic = 0.0

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970."""
        with self._lock:
            return int(self._now_ms)

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        with self._lock:
            return self._monotonic

    def sleep(self, seconds: float) -> None:
        """Move both clocks forward instead of waiting."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        if seconds < 0:
            raise ValueError("time does not run backwards; set_now_ms jumps the wall clock")
        with self._lock:
            self._now_ms += seconds * 1_000
            self._monotonic += seconds

    def set_now_ms(self, now_ms: int) -> None:
        """Make the wall clock jump, either way, as an operator or a time server would."""
        with self._lock:
            self._now_ms = float(now_ms)


class SeededIds:
    """Identifiers and jitter from a seed, the same in every run; safe for many threads."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._random = Random(seed)

    def uuid(self) -> uuid.UUID:
        """Return the next identifier, in the form of a random (version 4) one."""
        with self._lock:
            return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def jitter(self) -> float:
        """Return the next number in [0, 1)."""
        with self._lock:
            return self._random.random()

    def process(self) -> str:
        """Return a name of the process, the same in every run."""
        return "process 1 on a simulated machine"
