"""Runs tasks side by side: what releases the interpreter's lock gets more than one core."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def run_side_by_side(tasks: Sequence[Callable[[], None]], *, threads: int) -> None:
    """Run tasks, at most so many at once; raises what the first of them raised, when all ended.

    One thread runs them here, one after the other, and ends with the first that raises.
    """
    if threads <= 1 or len(tasks) <= 1:
        for task in tasks:
            task()
        return
    with ThreadPoolExecutor(min(threads, len(tasks)), "neve-side") as pool:
        running = [pool.submit(task) for task in tasks]
    for each in running:
        each.result()
