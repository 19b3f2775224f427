"""The writer that the demo kills: a process of its own that writes until it is stopped.

It opens the table for writing, puts rows from several threads, and prints the number of a row on
standard output as soon as the row is acknowledged, never before.
"""

import os
import sys
from itertools import count
from threading import Lock, Thread
from typing import Final

import neve
from examples.demo.order_rows import DemoTable

THREADS: Final = 4
_ROWS_MAX: Final = 1_000_000


def main() -> None:
    """Write rows to the table named on the command line until killed."""
    root, name = sys.argv[1:]
    rows = DemoTable()
    numbers = count()
    taking = Lock()
    with neve.open(root, create=False) as lake:
        table = lake.table(name)

        def write() -> None:
            for _ in range(_ROWS_MAX):
                with taking:
                    number = next(numbers)
                table.put(rows.row(number))
                try:
                    # One call below PIPE_BUF is written whole or not at all, also when dying.
                    os.write(sys.stdout.fileno(), b"%d\n" % number)
                except BrokenPipeError:
                    # The reader is gone, so no one is left to do the killing.
                    os._exit(0)

        threads = [Thread(target=write, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
