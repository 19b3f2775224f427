"""What writers and jobs of a table leave on a disk when they end: temporary files, directories.

    .tmp-<id>        of a writer that died; removed when nobody has written to it for a day
    wal/<epoch>/     of a writer before this one; removed when its logs are gone
    data/<run>/      of a job; removed when its files are gone and it is not announced any more

X1  A directory is removed only when no file will be made in it again: an epoch belongs to one
    writer and a run to one job, and both are over. Directories of partitions stay.
"""

import logging
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from neve.errors import NeveError
from neve.storage.local_store import LocalStore
from neve.table.table_parts import TableParts

logger = logging.getLogger(__name__)

_SAFE_AGE_MS: Final = 24 * 60 * 60 * 1_000
"""Nobody is busy with one file for a day without writing to it."""


_EPOCH: Final = re.compile(r"0|[1-9][0-9]{0,19}")
_RUN: Final = re.compile(r"[0-9a-f]{16}")


def remove_old_epochs(parts: TableParts, *, below: int) -> None:
    """Remove the directories of writers before an epoch whose logs are all gone (X1)."""
    store = parts.objects
    if isinstance(store, LocalStore):
        for name in store.directories(parts.paths.wal):
            if _EPOCH.fullmatch(name) and int(name) < below:
                # What cannot be removed now is removed by the next writer.
                with suppress(NeveError):
                    store.remove_abandoned(f"{parts.paths.wal}/{name}")


def run_directories(parts: TableParts) -> list[str]:
    """List the directories of jobs, relative to the table; to be called before intents are read."""
    store = parts.objects
    if not isinstance(store, LocalStore):
        return []
    names = store.directories(f"{parts.paths.root}/data")
    return [f"data/{name}/" for name in names if _RUN.fullmatch(name)]


def remove_ended_runs(
    parts: TableParts, directories: Collection[str], announced: Collection[str]
) -> None:
    """Remove those directories of jobs that are empty and that nobody has announced (X1)."""
    store = parts.objects
    if isinstance(store, LocalStore):
        for directory in set(directories) - set(announced):
            with suppress(NeveError):
                store.remove_abandoned(f"{parts.paths.root}/{directory.rstrip('/')}")


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
