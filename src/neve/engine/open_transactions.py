"""OpenTransactions: what was changed since the open transactions of a table began.

    sequence   ──────S──────────────────────────────────▶
    memtables        [ flushed, kept ][ flushed, kept ][ in memory ]

A transaction that began at S is in conflict when a key of it has a change above S. Memtables have
the sequence of every change; data files do not. So a memtable that is flushed while a transaction
is open is kept until the transaction ends, up to a number of bytes. Beyond it the oldest one goes,
and a transaction that needed it can no longer be committed. Writers and flushes never wait.
"""

from threading import Lock

from neve.memtable.memtable import Memtable
from neve.model.write_batch import SEQUENCE_MAX


class OpenTransactions:
    """The open transactions of one table; safe for many threads."""

    def __init__(self, *, kept_bytes: int) -> None:
        self._kept_bytes = kept_bytes
        # Read without the lock: each is replaced as a whole.
        self._kept: tuple[Memtable, ...] = ()
        self.forgotten_through = 0
        """The last sequence of a memtable that was dropped while a transaction needed it."""
        # Guarded by _lock: how many transactions began at each sequence.
        self._lock = Lock()
        self._begun: dict[int, int] = {}

    @property
    def kept(self) -> tuple[Memtable, ...]:
        """Flushed memtables, oldest first."""
        return self._kept

    def begin(self, sequence: int) -> None:
        """Keep what is flushed from now on and was changed after a sequence."""
        with self._lock:
            self._begun[sequence] = self._begun.get(sequence, 0) + 1

    def end(self, sequence: int) -> None:
        """End what `begin` began."""
        with self._lock:
            count = self._begun.pop(sequence) - 1
            if count:
                self._begun[sequence] = count
            if self._kept:
                oldest = min(self._begun, default=SEQUENCE_MAX)
                self._kept = tuple(each for each in self._kept if each.last_sequence > oldest)

    def keep(self, memtable: Memtable) -> None:
        """Keep a memtable that was flushed, if a transaction may need it."""
        if not self._begun:
            return
        with self._lock:
            oldest = min(self._begun, default=None)
            if oldest is None or memtable.last_sequence <= oldest:
                return
            kept = [*self._kept, memtable]
            byte_count = sum(each.byte_count for each in kept)
            while byte_count > self._kept_bytes:
                dropped = kept.pop(0)
                byte_count -= dropped.byte_count
                self.forgotten_through = dropped.last_sequence
            self._kept = tuple(kept)
