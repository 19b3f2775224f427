"""Sessions of a manifest store: a pinned view to read, and a staged one on top of it to write.

A write session remembers what it read: single keys, and the prefixes and ranges it scanned. When
another transaction got the slot first, the session still commits after it if nothing it read has
changed; otherwise the transaction runs again, or its caller gets the keys that changed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from neve.errors import InvalidArgument
from neve.manifest.state import State


@dataclass(frozen=True, slots=True)
class ReadSession:
    """One state of the store; never changes."""

    state: State

    @property
    def segment(self) -> int:
        """Segment of this view; 0 for an empty store."""
        return self.state.segment

    def get(self, key: str) -> bytes | None:
        """Return the value of a key."""
        return self.state.get(key)

    def scan(self, prefix: str, *, after: str | None = None) -> Iterator[tuple[str, bytes]]:
        """Yield keys that start with `prefix`, ascending, starting after `after`."""
        return self.state.scan(prefix, after=after)

    def range(self, low: str, high: str | None = None) -> Iterator[tuple[str, bytes]]:
        """Yield keys from `low`, ascending, below `high`; None has no end."""
        return self.state.range(low, high)


@dataclass(slots=True)
class WriteSession:
    """Changes staged on a state; its own reads see them, others only after the commit."""

    state: State
    staged: dict[str, bytes | None] = field(default_factory=dict)
    read_keys: set[str] = field(default_factory=set)
    read_prefixes: set[str] = field(default_factory=set)
    read_ranges: set[tuple[str, str | None]] = field(default_factory=set)

    def get(self, key: str) -> bytes | None:
        """Return the value of a key, including staged changes."""
        if key in self.staged:
            return self.staged[key]
        self.read_keys.add(key)
        return self.state.get(key)

    def scan(self, prefix: str, *, after: str | None = None) -> Iterator[tuple[str, bytes]]:
        """Yield keys that start with `prefix`, ascending, including staged changes."""
        self.read_prefixes.add(prefix)
        return self.view().scan(prefix, after=after)

    def range(self, low: str, high: str | None = None) -> Iterator[tuple[str, bytes]]:
        """Yield keys from `low` and below `high`, ascending, including staged changes."""
        self.read_ranges.add((low, high))
        return self.view().range(low, high)

    def view(self) -> State:
        """Return the content as this session sees it: the state with the staged changes."""
        return State(entries=self.state.entries, changes={**self.state.changes, **self.staged})

    def read_like(self, other: "WriteSession") -> None:
        """Add what another session has read, so that this one depends on it too."""
        self.read_keys |= other.read_keys
        self.read_prefixes |= other.read_prefixes
        self.read_ranges |= other.read_ranges

    def put(self, key: str, value: bytes) -> None:
        """Set a key."""
        _check_key(key)
        if not isinstance(value, bytes):
            raise InvalidArgument(
                f"the value of {key[:80]!a} is {type(value).__name__}", hint="Pass bytes"
            )
        self.staged[key] = value

    def delete(self, key: str) -> None:
        """Remove a key; a missing one is ignored."""
        _check_key(key)
        self.staged[key] = None

    def moved_keys(self, newer: State) -> tuple[str, ...]:
        """Return the keys this session read that have another value in a newer state."""
        moved = {key for key in self.read_keys if newer.get(key) != self.state.get(key)}
        scans = [(self.state.scan(prefix), newer.scan(prefix)) for prefix in self.read_prefixes]
        scans += [(self.state.range(*ends), newer.range(*ends)) for ends in self.read_ranges]
        for scan_before, scan_after in scans:
            before, after = dict(scan_before), dict(scan_after)
            moved |= {
                key for key in before.keys() | after.keys() if before.get(key) != after.get(key)
            }
        return tuple(sorted(moved))


def _check_key(key: str) -> None:
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"the key {key!a} has no UTF-8 form",
            offset=error.start,
            hint="Remove lone surrogates",
        ) from error
