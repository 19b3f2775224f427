"""The folded content of a manifest store at one segment, as a value.

A state is the entries of a checkpoint, overlaid with the records of the segments since. Applying a
segment returns a new state that shares the entries, so its cost depends on the segment and the
distance to the checkpoint, not on the table; the old state does not change.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

Records = Mapping[str, bytes | None]
"""Changes by key; None deletes."""

# How many decided transactions a checkpoint names. A writer that asks for its outcome after more
# commits than this gets OutcomeUnknown.
RECENT_TRANSACTIONS_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Decided:
    """Which transaction got a segment."""

    segment: int
    transaction: bytes


@dataclass(frozen=True, slots=True)
class Entries:
    """Content of a checkpoint, with its keys in order."""

    by_key: dict[str, bytes] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    byte_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Every key and value of a store after one segment."""

    epoch: int = 0
    segment: int = 0
    checkpoint: int = 0
    entries: Entries = field(default_factory=Entries)
    changes: dict[str, bytes | None] = field(default_factory=dict)
    """Records of the segments after the checkpoint; the newest wins."""
    change_bytes: int = 0
    recent: tuple[Decided, ...] = ()

    def get(self, key: str) -> bytes | None:
        """Return the value of a key."""
        if key in self.changes:
            return self.changes[key]
        return self.entries.by_key.get(key)

    def scan(self, prefix: str, *, after: str | None = None) -> Iterator[tuple[str, bytes]]:
        """Yield keys that start with `prefix`, ascending, starting after `after`."""
        floor = prefix if after is None else max(prefix, after + "\0")
        return self._merged(floor, lambda key: key.startswith(prefix))

    def range(self, low: str, high: str | None = None) -> Iterator[tuple[str, bytes]]:
        """Yield keys from `low`, ascending, below `high`; None has no end."""
        return self._merged(low, lambda key: high is None or key < high)

    def _merged(self, floor: str, belongs: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        """Yield entries overlaid with changes, from `floor`, while the keys belong."""
        keys = self.entries.keys
        changed = sorted(key for key in self.changes if key >= floor and belongs(key))
        position = bisect_left(keys, floor)
        index = 0
        while True:
            stored = keys[position] if position < len(keys) else None
            if stored is not None and not belongs(stored):
                stored = None
            change = changed[index] if index < len(changed) else None
            if stored is None and change is None:
                return
            if change is None or (stored is not None and stored < change):
                assert stored is not None
                yield stored, self.entries.by_key[stored]
                position += 1
                continue
            if stored == change:
                position += 1
            index += 1
            value = self.changes[change]
            if value is not None:
                yield change, value

    def apply(self, records: Records, *, segment: int, transaction: bytes, epoch: int) -> "State":
        """Return the state after the next segment."""
        assert segment == self.segment + 1
        recent = (*self.recent, Decided(segment, transaction))[-RECENT_TRANSACTIONS_MAX:]
        added = sum(len(key) + len(value or b"") for key, value in records.items())
        return State(
            epoch=epoch,
            segment=segment,
            checkpoint=self.checkpoint,
            entries=self.entries,
            changes={**self.changes, **records},
            change_bytes=self.change_bytes + added,
            recent=recent,
        )

    def folded(
        self, fold_entries: Callable[[dict[str, bytes]], dict[str, bytes]] | None = None
    ) -> "State":
        """Return the same content as a checkpoint, rewritten by the function if there is one."""
        entries = dict(self.scan(""))
        if fold_entries is not None:
            entries = dict(sorted(fold_entries(entries).items()))
        return self.from_entries(
            entries, epoch=self.epoch, segment=self.segment, recent=self.recent
        )

    def rebased(self, checkpoint: int) -> "State":
        """Return the same content as if read from a newer checkpoint, which it covers."""
        assert self.checkpoint <= checkpoint <= self.segment
        return replace(self.folded(), checkpoint=checkpoint)

    @staticmethod
    def from_entries(
        by_key: dict[str, bytes], *, epoch: int, segment: int, recent: tuple[Decided, ...]
    ) -> "State":
        """Return the state that a checkpoint holds; `by_key` is in ascending order."""
        byte_count = sum(len(key) + len(value) for key, value in by_key.items())
        return State(
            epoch=epoch,
            segment=segment,
            checkpoint=segment,
            entries=Entries(by_key, list(by_key), byte_count),
            recent=recent,
        )

    @property
    def transaction(self) -> bytes:
        """Transaction of the state's last segment; empty before the first."""
        return self.recent[-1].transaction if self.recent else b""

    def transaction_of(self, segment: int) -> bytes | None:
        """Return the transaction that got a segment; None when it is too old to be remembered."""
        for decided in reversed(self.recent):
            if decided.segment == segment:
                return decided.transaction
        return None
