"""Clocks, ids and the name of this process: nothing else in neve asks the system for them.

Wall time labels things and bounds leases; it never decides which of two writes is newer.
"""

import os
import platform
import secrets
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """Time, as the engine sees it."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970; may jump either way."""

    def monotonic(self) -> float:
        """Seconds that never run backwards; only differences mean anything."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class IdSource(Protocol):
    """Identifiers and jitter, as the engine sees them."""

    def uuid(self) -> uuid.UUID:
        """Return a unique identifier."""

    def jitter(self) -> float:
        """Return a random number in [0, 1) for back-off."""

    def process(self) -> str:
        """Return a name of this process, for people who look for the holder of a lock or lease."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)


class SystemIds:
    """Identifiers from the operating system's random source."""

    def uuid(self) -> uuid.UUID:
        """Return a random (version 4) identifier."""
        return uuid.uuid4()

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""
        return secrets.randbelow(1 << 30) / (1 << 30)

    def process(self) -> str:
        """Return the process id and the name of the machine."""
        return f"process {os.getpid()} on {platform.node() or 'a machine without a name'}"
