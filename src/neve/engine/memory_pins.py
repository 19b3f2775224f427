"""Pins the rows in memory that a view shows at a sequence."""

from neve.memtable.memtable import Memtable
from neve.table.table_view import TableView


def pin_memtables(view: TableView, sequence: int) -> bool:
    """Keep what a view shows at a sequence; False, and nothing kept, when a part of it is gone."""
    pinned: list[Memtable] = []
    for memtable in view.memtables:
        if not memtable.pin(sequence):
            for each in pinned:
                each.unpin(sequence)
            return False
        pinned.append(memtable)
    return True


def unpin_memtables(view: TableView, sequence: int) -> None:
    """End what `pin_memtables` began."""
    for memtable in view.memtables:
        memtable.unpin(sequence)
