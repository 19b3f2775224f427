"""The writer that the demo kills: a process of its own that writes until it is stopped.

It takes the table's lock, writes rows from several threads, and prints `sequence row` on standard
output as soon as a row is acknowledged, never before.
"""

import os
import sys
from itertools import count
from threading import Lock, Thread
from typing import Final

from neve.cli.demo_table import DemoTable
from neve.storage.local_store import LocalStore
from neve.storage.table_paths import TablePaths
from neve.wal.write_ahead_log import WriteAheadLog

THREADS: Final = 4
_ROWS_MAX: Final = 1_000_000


def main() -> None:
    """Write rows to the table named on the command line until killed."""
    root, table_id = sys.argv[1:]
    store = LocalStore(root, create=False)
    paths = TablePaths(table_id)
    lock = store.lock(paths.lock)
    table = DemoTable()
    log = WriteAheadLog(
        files=store,
        store=store,
        log_path=lambda number: paths.wal_file(0, number),
        next_log_number=1,
        next_sequence=1,
    )
    numbers = count()
    taking = Lock()

    def write() -> None:
        for _ in range(_ROWS_MAX):
            with taking:
                number = next(numbers)
            sequence = log.append(table.put(number))
            try:
                # One call below PIPE_BUF is written whole or not at all, also by a dying process.
                os.write(sys.stdout.fileno(), b"%d %d\n" % (sequence, number))
            except BrokenPipeError:
                # Whoever listened is gone, and nobody is left to do the killing.
                os._exit(0)

    threads = [Thread(target=write, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    lock.release()


if __name__ == "__main__":
    main()
