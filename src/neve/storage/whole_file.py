"""Storing a file that is made of pieces, without putting them together in memory first.

Data files are large, are written once under a name of their own, and are never compared by tag: a
store that can takes their pieces as they are and gives no tag.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from neve.storage.object_store import ObjectStore


@runtime_checkable
class TakesPieces(Protocol):
    """A store that writes an object piece by piece."""

    def put_pieces(self, path: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Write or replace an object; when this returns it survives power loss."""
        ...


def put_file(store: ObjectStore, path: str, pieces: Sequence[bytes | memoryview]) -> None:
    """Store an object made of these pieces, in order."""
    if isinstance(store, TakesPieces):
        store.put_pieces(path, pieces)
    else:
        store.put(path, b"".join(pieces))
