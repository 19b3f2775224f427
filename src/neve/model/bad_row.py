"""Which row of an array is to blame, when all that is known is that the array is not good.

Arrow names no row for most faults. But when some rows from the start are good, so are fewer, and
halving finds the first bad row by looking at a few more pieces of the array.
"""

from collections.abc import Callable


def first_bad_row(rows: int, is_good: Callable[[int], bool]) -> int:
    """Return the first bad row; `is_good` judges that many rows from the start, and not all are."""
    good, bad = 0, rows
    while bad - good > 1:
        middle = (good + bad) // 2
        if is_good(middle):
            good = middle
        else:
            bad = middle
    return good
