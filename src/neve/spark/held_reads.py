"""Leases of Spark reads: how long the files of a DataFrame stay.

SPARK-3  While the DataFrame that a read gave is alive in Python, a thread renews its lease.
SPARK-4  After that the lease ends by itself, `LEASE_SECONDS` later at most: frames made of it may
         still run, and no Python object tells of them.
SPARK-5  Whatever leases say, files of a Version stay as long as it is retained.
"""

import threading
import weakref
from contextlib import suppress
from typing import Final

from neve.errors import NeveError
from neve.manifest.leases import HeldLease
from neve.spark.read_plan import LEASE_SECONDS

_RENEW_SECONDS: Final = LEASE_SECONDS / 10


class HeldReads:
    """Renews the leases of what is alive; safe for many threads."""

    def __init__(self, *, renew_seconds: float = _RENEW_SECONDS) -> None:
        # Fixed at construction.
        self._renew_seconds = renew_seconds
        # Guarded by _lock. Re-entrant: an owner that the collector ends may end inside of it.
        self._lock = threading.RLock()
        self._leases: set[HeldLease] = set()
        self._thread: threading.Thread | None = None

    @property
    def count(self) -> int:
        """Leases that are renewed."""
        with self._lock:
            return len(self._leases)

    def hold(self, owner: object, lease: HeldLease | None) -> None:
        """Renew a lease as long as its owner lives."""
        if lease is None:
            return
        forgotten = weakref.finalize(owner, self._forget, lease)
        forgotten.atexit = False
        with self._lock:
            self._leases.add(lease)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._renew, name="neve-spark-leases", daemon=True
                )
                self._thread.start()

    def renew_once(self) -> None:
        """Renew what is past half of its time."""
        with self._lock:
            held = list(self._leases)
        for lease in held:
            # One that lapsed has lost its files, and the next job says so.
            with suppress(NeveError):
                lease.check()

    def _forget(self, lease: HeldLease) -> None:
        with self._lock:
            self._leases.discard(lease)

    def _renew(self) -> None:
        waiting = threading.Event()
        while True:
            waiting.wait(self._renew_seconds)
            with self._lock:
                if not self._leases:
                    self._thread = None
                    return
            self.renew_once()


HELD_READS: Final = HeldReads()
