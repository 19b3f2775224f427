"""What is asked and checked before a table is dropped.

Nothing is asked where nobody sits: a question is for a terminal, on which an answer can be typed.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from neve.catalog.kv_catalog import KVCatalog
from neve.cli.exit_codes import Declined
from neve.errors import Fenced, NeveError, NotFound
from neve.inspect.shown_text import shown_text
from neve.model.display import counted
from neve.storage.append_file import LockHandle
from neve.table.table_parts import append_files_of

_YES: Final = frozenset({"y", "yes"})


def ask_before_dropping(catalog: KVCatalog, name: str, *, purge: bool) -> None:
    """Ask on a terminal whether the table is to go; raises Declined when it is not."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    try:
        holds = f", with {counted(catalog.load_table(name).stats().row_count, 'row')}"
    except NotFound:
        raise
    except NeveError:
        holds = ""  # damaged, and to be dropped all the same
    files = " and delete its files" if purge else ""
    # The line editor that `input` brings along would miss an interrupt while it sets itself up.
    print(f"Drop {shown_text(name)}{holds}{files}, for good? [y/N]: ", end="", file=sys.stderr)
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in _YES:
        raise Declined("nothing was dropped", hint="Answer y to drop the table, or say --yes")


@contextmanager
def without_writer(catalog: KVCatalog, name: str, *, force: bool) -> Iterator[None]:
    """Keep writers away from a table; raises Fenced while one has it open, unless forced."""
    lock = None if force else _locked(catalog, name)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _locked(catalog: KVCatalog, name: str) -> LockHandle | None:
    try:
        stored = catalog.load_table(name).stored
    except NotFound:
        raise
    except NeveError:
        return None  # damaged: no writer can open it either
    append_files = append_files_of(stored.objects)
    if append_files is None:
        return None  # nobody can log there, so there is no live writer
    try:
        return append_files.lock(stored.paths.lock)
    except Fenced as fenced:
        raise Fenced(
            f"a writer has the table {name!a} open, so it was not dropped",
            path=fenced.path,
            hint="End that writer first, or say --force: what it has not flushed is lost then",
        ) from fenced
