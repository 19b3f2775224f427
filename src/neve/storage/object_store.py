"""ObjectStore: whole, named, immutable-by-habit byte strings with conditional writes.

Names are relative paths with `/`; `neve.storage.table_paths` says which are refused.
Every implementation runs `neve.testing.store_contract.ObjectStoreContract`.

What callers may rely on:

O1  A reader sees an object whole or not at all, never a part of it.
O2  When a write returns, the object survives power loss.
O3  `put_if_absent` has exactly one winner per path; `put_if_match` one per tag.
O4  `None` from a conditional write means certainly not written. A write whose answer was lost is
    read back; where reading back cannot tell, the error is `OutcomeUnknown`.
    Reading back compares bytes, so conditional payloads must be unique to their writer
    (neve's carry a transaction id).
O5  A tag changes whenever the bytes change. Equal bytes may have equal tags, so contents that are
    compared by tag must never repeat.
O6  `list` gives every object that existed before the call and was not deleted since, in
    ascending order of path.
O7  A deleted object may come back after power loss; nothing may rely on it being gone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What a listing tells about one object."""

    path: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object as it was read, with the tag that `put_if_match` wants."""

    payload: bytes
    tag: str


class ObjectStore(Protocol):
    """Where whole objects live."""

    @property
    def location(self) -> str:
        """Root as a URI, `file:///…`, `s3://…` or `memory://…`; never holds a secret."""
        ...

    def get(self, path: str) -> StoredObject:
        """Read a whole object; raises NotFound."""
        ...

    def get_if_changed(self, path: str, *, tag: str) -> StoredObject | None:
        """Read a whole object unless it still has `tag`; raises NotFound."""
        ...

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        """Read up to `length` bytes from `start`; short only at the end; raises NotFound."""
        ...

    def size(self, path: str) -> int:
        """Bytes in the object; raises NotFound."""
        ...

    def put(self, path: str, payload: bytes) -> str:
        """Write or replace an object; gives its tag."""
        ...

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        """Create an object; gives its tag, or None when another one is already there."""
        ...

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        """Replace the object that has `tag`; gives the new tag, or None when it has another."""
        ...

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects whose path starts with `prefix`, ascending, beginning behind `after`."""
        ...

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is no error."""
        ...
