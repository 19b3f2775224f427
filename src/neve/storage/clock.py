"""Where time, randomness and the name of this process enter: nothing else in neve asks for them.

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
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class IdSource(Protocol):
    """Identifiers and jitter, as the engine sees them."""

    def uuid(self) -> uuid.UUID:
        """Make an identifier that no one else makes."""
        ...

    def jitter(self) -> float:
        """Draw a number in [0, 1) for back-off."""
        ...

    def process(self) -> str:
        """Name this process for people: they look for the one that holds something back."""
        ...


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
        """Make a random (version 4) identifier."""
        return uuid.uuid4()

    def jitter(self) -> float:
        """Draw a number in [0, 1)."""
        return secrets.randbelow(1 << 30) / (1 << 30)

    def process(self) -> str:
        """Name this process: its number, and the machine it runs on."""
        return f"process {os.getpid()} on {platform.node() or 'a machine without a name'}"
