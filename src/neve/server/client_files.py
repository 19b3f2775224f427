"""ClientFiles: files that other engines write for a commit, below `clients/` of a table.

They are input: after the commit nothing needs them. Files of a commit are deleted with it. What a
client left behind, because it died or was refused, is deleted days later: a note beside the
directory says when each file was seen first, because listings have no times.
"""

import json
import logging
from collections.abc import Iterable
from threading import Lock
from typing import Final

from neve.errors import InvalidArgument, NeveError, NotFound
from neve.server.served_tables import CLIENTS, ROOM
from neve.storage.clock import Clock
from neve.storage.object_store import ObjectStore

logger = logging.getLogger(__name__)

STAGED: Final = "staged"
"""Directory of the lake for the files of tables that are not created yet."""
LEFT_MS_MAX: Final = 3 * 24 * 60 * 60 * 1000
"""How old files that no commit took become: longer than a client works on one commit."""

_EVERY_MS: Final = 60 * 60 * 1000


class ClientFiles:
    """Deletes files of clients; safe for many threads."""

    def __init__(self, objects: ObjectStore, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock
        # Guarded by _lock: when the leftovers of a directory were looked at last.
        self._lock = Lock()
        self._looked: dict[str, int] = {}

    def delete(self, paths: Iterable[str], *, root: str) -> None:
        """Delete the files of a commit; those outside of the clients' places are left alone."""
        places = (f"{root}/{CLIENTS}/", f"{STAGED}/")
        for path in paths:
            if path.startswith(places):
                self._remove(path)

    def sweep(self, root: str) -> int:
        """Delete what clients left behind in a table, at most once in an hour; return how many."""
        directory = f"{root}/{CLIENTS}"
        now_ms = self._clock.now_ms()
        with self._lock:
            if abs(now_ms - self._looked.get(directory, 0)) < _EVERY_MS:
                return 0
            self._looked[directory] = now_ms
        try:
            return self._sweep(directory, now_ms)
        except NeveError as error:
            logger.warning("left files of clients place=%s cause=%s", directory, error)
            return 0

    def _sweep(self, directory: str, now_ms: int) -> int:
        note = f"{directory}-seen.json"
        seen = self._read(note)
        listed = (info.path for info in self._objects.list(f"{directory}/"))
        found = [path for path in listed if not path.endswith(f"/{ROOM}")]
        old = [path for path in found if now_ms - seen.get(path, now_ms) > LEFT_MS_MAX]
        for path in old:
            self._remove(path)
        gone = {*old}
        kept = {path: seen.get(path, now_ms) for path in found if path not in gone}
        if kept != seen:
            self._objects.put(note, json.dumps(kept).encode())
        if old:
            logger.info("deleted files of clients place=%s files=%d", directory, len(old))
        return len(old)

    def _read(self, note: str) -> dict[str, int]:
        try:
            seen = json.loads(self._objects.get(note).payload)
        except (NotFound, ValueError):
            return {}
        if not isinstance(seen, dict):
            return {}
        return {path: at for path, at in seen.items() if isinstance(at, int)}

    def _remove(self, path: str) -> None:
        try:
            self._objects.delete(path)
        except InvalidArgument:
            return  # a name that the store refuses was never read, either
        except NeveError as error:
            logger.warning("left a file of a client path=%s cause=%s", path, error)
