"""Temporary files that writers of a table left behind on a disk when they died."""

import logging
from typing import Final

from neve.engine.table_parts import TableParts
from neve.storage.local_store import LocalStore

logger = logging.getLogger(__name__)

_SAFE_AGE_MS: Final = 24 * 60 * 60 * 1_000
"""Nobody is busy with one file for a day without writing to it."""


def sweep_leftovers(parts: TableParts) -> None:
    """Remove the temporary files of a table that nobody has written to for a day."""
    store = parts.objects
    if not isinstance(store, LocalStore):
        return
    before_ms = parts.clock.now_ms() - _SAFE_AGE_MS
    removed = [
        path
        for folder in (parts.paths.root, parts.paths.manifest)
        for path in store.sweep_temporaries(folder, modified_before_ms=before_ms)
    ]
    if removed:
        logger.info("swept temporary files table=%s files=%d", parts.paths.table_id, len(removed))
