"""CurrentView: the view that readers take, and the last sequence number that is visible.

X1  The view is replaced whole, under the lock, and its Version never goes back: of two commits that
    are installed out of order, the older one changes nothing.
X2  A memtable leaves in the same replacement that brings the Version with its rows.
X3  The sequence moves only after a whole batch was applied. Readers take the view first.
"""

from threading import Condition, Lock

from neve.memtable.memtable import Memtable
from neve.model.version import Version
from neve.table.file_set import FileSet
from neve.table.table_context import TableContext
from neve.table.table_view import TableView


class CurrentView:
    """Where the newest view of a table is; safe for many threads."""

    def __init__(self, view: TableView, sequence: int) -> None:
        # Safe on their own: read without the lock, each replaced whole.
        self.view = view
        self.sequence = sequence
        # Held while the view is replaced; whoever waits for a newer Version is told then.
        self._lock = Lock()
        self._moved = Condition(self._lock)

    def wait_beyond(self, version: int, seconds: float) -> bool:
        """Wait for a newer Version than this one, so long at most; False when there is none."""
        with self._moved:
            return self._moved.wait_for(lambda: self.view.version > version, seconds)

    def push_memtable(self, memtable: Memtable) -> None:
        """Let a memtable take what is written from now on."""
        with self._lock:
            view = self.view
            self.view = TableView(
                (memtable, *view.memtables),
                view.files,
                view.context,
                others_version=view.others_version,
            )

    def install(
        self,
        version: Version,
        *,
        flushed: Memtable | None = None,
        context: TableContext | None = None,
        is_own: bool = False,
    ) -> bool:
        """Show a Version, and without the memtable whose rows it has; False when it is older.

        `is_own`: the live writer committed it, of its own rows or of no new ones. When it follows
        the Version shown, nobody else has written in between.
        """
        with self._lock:
            view = self.view
            is_newer = version.number > view.version
            files = view.files
            if is_newer:
                files = FileSet(
                    version,
                    files.access,
                    partitions=(context or view.context).partitions,
                    before=files,
                )
            memtables = tuple(each for each in view.memtables if each is not flushed)
            is_alone = not is_newer or (is_own and version.number == view.version + 1)
            self.view = TableView(
                memtables,
                files,
                context or view.context,
                others_version=view.others_version if is_alone else version.number,
            )
            self._moved.notify_all()
            return is_newer

    def replace(self, view: TableView, sequence: int) -> None:
        """Show another view, unless its Version is older: what a reader that tails the log does."""
        with self._lock:
            if view.version >= self.view.version:
                self.view = view
                self.sequence = sequence
                self._moved.notify_all()
