"""A disk that leaves out every sync of one place in the code.

The place is told by the functions of the storage and log layers that are on the stack, so a sync
that is only sometimes needed (because another one just did the work) counts as needed if there is
any history in which leaving it out is noticed.
"""

import sys

from neve.storage.disk import Disk
from neve.testing.disk_calls import CallKind, HookedDisk

LAYERS = ("neve.storage.", "neve.wal.")


def sync_site(kind: CallKind) -> str:
    """Name the place in the code that is syncing now."""
    functions = []
    frame = sys._getframe(2)
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(LAYERS):
            functions.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return f"{kind.value} in {' < '.join(functions[:6])}"


class DiskWithoutSite(HookedDisk):
    """Another disk on which the syncs of one site succeed and do nothing."""

    def __init__(self, inner: Disk, left_out: str | None = None) -> None:
        super().__init__(inner)
        self.sites: set[str] = set()
        self._left_out = left_out

    def sync(self, handle: int) -> None:
        if self._is_kept(CallKind.SYNC):
            super().sync(handle)

    def sync_directory(self, path: str) -> None:
        if self._is_kept(CallKind.SYNC_DIRECTORY):
            super().sync_directory(path)

    def _is_kept(self, kind: CallKind) -> bool:
        site = sync_site(kind)
        self.sites.add(site)
        return site != self._left_out
