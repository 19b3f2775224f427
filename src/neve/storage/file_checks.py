"""What every store refuses before it touches anything.

    path                    objects and append files    locks
    ────────────────────────────────────────────────────────────
    wal/1/000001.wal        yes                         refused
    wal/LOCK                refused                     yes

A lock would not hold if its file could be written, renamed or deleted like any other: whoever asked
next would lock another file of the same name. So one name is kept for locks, in all stores: what
works in memory or in a bucket works on a disk.
"""

from typing import Final

from neve.errors import InvalidArgument, LimitExceeded
from neve.storage.table_paths import (
    LOCK_NAME,
    check_path,
    is_object_name,
    join_path,
    split_path,
)

# As large as the largest object: a longer file could not be read whole.
PREALLOCATE_BYTES_MAX: Final = 5 << 30


def check_object_path(path: str) -> str:
    """Refuse, with InvalidArgument, a path of no object or append file; gives its directory."""
    check_path(path)
    directory, name = split_path(path)
    if not is_object_name(name):
        raise InvalidArgument(
            f"the name {name} is kept for locks", path=path, hint="Choose another name"
        )
    return directory


def check_lock_path(path: str) -> str:
    """Refuse, with InvalidArgument, a path that is not kept for locks; gives its directory."""
    check_path(path)
    directory, name = split_path(path)
    if name != LOCK_NAME:
        raise InvalidArgument(
            "a lock has to be in a file of its own",
            path=path,
            hint=f"Name it {join_path(directory, LOCK_NAME)}",
        )
    return directory


def check_preallocation(path: str, preallocate_bytes: int) -> None:
    """Refuse a number of bytes that no file is begun with: InvalidArgument, LimitExceeded."""
    if preallocate_bytes < 0:
        raise InvalidArgument(
            "a file cannot be preallocated with fewer than 0 bytes",
            path=path,
            hint="Give 0 to preallocate nothing",
        )
    if preallocate_bytes > PREALLOCATE_BYTES_MAX:
        raise LimitExceeded(
            f"a file cannot be preallocated with more than {PREALLOCATE_BYTES_MAX:,} bytes",
            limit=PREALLOCATE_BYTES_MAX,
            actual=preallocate_bytes,
            path=path,
            hint="Give the size that one log grows to",
        )
