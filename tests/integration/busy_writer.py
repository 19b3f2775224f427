"""A process that puts one row after another, flushes and rolls its log until it is stopped.

    python -m tests.integration.busy_writer LAKE LOG_BYTES

It prints a line when the first row is there, and ends when its standard input does.
"""

import sys
import threading

import neve

NAME = "a.b"
BATCH_EVERY = 16
FLUSH_EVERY = 500


def options(log_bytes: int) -> neve.TableOptions:
    """Long logs take long to read, short ones are rolled all the time."""
    return neve.TableOptions(
        log_bytes=log_bytes,
        memtable_bytes=8 * log_bytes,
        level0_files=4,
        iceberg_publish="demand",
    )


def wait_for_the_end(ended: threading.Event) -> None:
    """Wait until standard input ends."""
    sys.stdin.read()
    ended.set()


def main(lake: str, log_bytes: int) -> None:
    """Put the row of key 0 with a number that only grows; some numbers get a row of their own."""
    ended = threading.Event()
    threading.Thread(target=wait_for_the_end, args=(ended,), daemon=True).start()
    with neve.open(lake) as opened:
        table = opened.table(NAME, options=options(log_bytes))
        count = 0
        while not ended.is_set():
            count += 1
            if count % BATCH_EVERY:
                table.put({"id": 0, "n": count})
            else:
                table.upsert([{"id": 0, "n": count}, {"id": count, "n": count}])
            if count == 1:
                print("ready", flush=True)
            if count % FLUSH_EVERY == 0:
                table.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
