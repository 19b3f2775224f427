"""Files that are not there: deleted as nobody reads them any more, or lost.

A reader that is late finds files of a Version gone that was let go of since: NotFound, and a newer
Version has its rows. While a Version is retained nobody deletes its files: one that is missing then
was lost, which is Corruption.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from neve.errors import Corruption, NotFound
from neve.table.table_parts import TableParts


class LostFiles:
    """Tells which of the two it is, for one table."""

    def __init__(self, parts: TableParts) -> None:
        self._parts = parts
        self._folders = (f"{parts.paths.data}/", f"{parts.paths.deletes}/")

    @contextmanager
    def told(self, number: int) -> Iterator[None]:
        """Raise Corruption instead of NotFound for a file that a retained Version has lost."""
        try:
            yield
        except NotFound as missing:
            if missing.path is None or not missing.path.startswith(self._folders):
                raise
            if not self._is_retained(number):
                raise
            raise Corruption(
                f"version {number} has lost a file",
                path=missing.path,
                hint="Restore it from a copy, or roll back to a version without it; `verify` "
                "names all that are missing",
            ) from missing

    def _is_retained(self, number: int) -> bool:
        try:
            self._parts.versions.version(number)
        except NotFound:
            return False
        return True
