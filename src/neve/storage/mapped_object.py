"""Whole objects as Arrow buffers: mapped into memory where the store can, read otherwise.

A mapped object costs neither time nor memory until its bytes are looked at, and then belongs to the
operating system's cache, shared by all who map it. It stays valid when the object is deleted. What
the disk cannot read any more ends the process, as for every program that maps files: only caches
that can be made again are worth mapping, and their checksums are checked before use.
"""

from typing import Protocol, runtime_checkable

import pyarrow as pa

from neve.storage.object_store import ObjectStore


@runtime_checkable
class MapsObjects(Protocol):
    """A store whose objects can be looked at without being read first."""

    def map(self, path: str) -> memoryview:
        """Return a whole object, read as it is looked at; raises NotFound."""
        ...


def map_object(store: ObjectStore, path: str) -> pa.Buffer:
    """Return the bytes of an object, read-only; raises NotFound."""
    payload = store.map(path) if isinstance(store, MapsObjects) else store.get(path).payload
    return pa.py_buffer(payload)
