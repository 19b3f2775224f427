"""Paths and names: which are allowed, and where every file of a lake is.

No other module of neve joins or splits a path. The layout, relative to the lake:

    manifest/catalog/                      manifest store of names, schemas and properties
    manifest/version/<table id>/           manifest store of one table
    tables/<table id>/
    ├── wal.place                          names the disk that has the log of a table in a bucket
    ├── wal.mark                           how far the newest log went (`neve.wal.durability`)
    ├── wal/LOCK                           held by the one live writer
    ├── wal/<epoch>/000001.wal             decimal, zero padded to six, grows past six
    ├── wal/<epoch>/000000000001.slot      in a bucket, where logs are made of these
    ├── data/<partition path>/<id>.parquet
    ├── deletes/<id>.puffin
    ├── deletes/<id>-<offset>.parquet      positions of the vector that begins there, for Iceberg v2
    ├── deletes/<id>.remembered.parquet    deletes that a table with an order remembers
    ├── index/<id><suffix>
    └── metadata/<name>

A *path* is relative and uses `/`; `check_path` checks it before any I/O. A *name* (of a namespace
or a table) is data: `check_name` checks it, and it never becomes part of a path, because
directories are named by the table id.

Every store checks these before it touches anything:

    path                    objects and append files    locks
    ────────────────────────────────────────────────────────────
    wal/1/000001.wal        yes                         refused
    wal/LOCK                refused                     yes

A lock would not hold if its file could be written, renamed or deleted like any other: the next
process would lock another file of the same name. So one name is reserved for locks, in all stores:
what works in memory or in a bucket works on a disk.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from neve.errors import InvalidArgument, LimitExceeded

PATH_BYTES_MAX: Final = 1_024
SEGMENT_BYTES_MAX: Final = 255
NAME_BYTES_MAX: Final = 255

# Stores create these beside the objects; no object may have such a name, no listing shows one.
TEMPORARY_PREFIX: Final = ".tmp-"
DIRECTORY_LOCK_NAME: Final = ".lock"

# A lock that callers take by path is a file of this name; listings do not show it either.
LOCK_NAME: Final = "LOCK"
_LOCK_NAMES: Final = frozenset({DIRECTORY_LOCK_NAME, LOCK_NAME})

# Control characters, the two Unicode line ends (both break a log line in two), and half surrogates,
# which have no UTF-8 form.
_UNPRINTABLE: Final = "\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_REFUSED_IN_PATH: Final = re.compile(rf"[{_UNPRINTABLE}\\]")
_REFUSED_IN_NAME: Final = re.compile(rf"[{_UNPRINTABLE}/]")

# On disk: never change. At most twenty digits, as many as the largest 64-bit number has.
_LOG_NAME: Final = re.compile(r"(?:[0-9]{6}|[1-9][0-9]{6,19})\.wal")
_EPOCH_NAME: Final = re.compile(r"0|[1-9][0-9]{0,19}")
_LOG_DIGITS: Final = 6
_REMEMBERED: Final = ".remembered.parquet"
_SLOT_NAME: Final = re.compile(r"[0-9]{12}\.slot")
_SLOT_DIGITS: Final = 12
_POSITION_DELETES: Final = re.compile(r"(.*[0-9a-f]{32})-[0-9]{1,19}\.parquet", re.ASCII)


# Every access to a store checks its path, and most paths are used again soon.
@lru_cache(maxsize=1_024)
def check_path(path: str) -> None:
    """Raise InvalidArgument for a path that could leave its store, or that no store can hold."""
    unfit = _REFUSED_IN_PATH.search(path)
    if unfit is not None:
        raise InvalidArgument(
            f"path {_shown(path)} holds the character {unfit.group()!a}",
            offset=unfit.start(),
            hint="Use / between directories, and no control characters or backslashes",
        )
    if len(path) > PATH_BYTES_MAX or len(path.encode()) > PATH_BYTES_MAX:
        raise InvalidArgument(
            f"path {_shown(path)} is longer than {PATH_BYTES_MAX:,} bytes",
            hint="Shorten the partition values or the file name",
        )
    for segment in path.split("/"):
        _check_segment(segment, path)


def check_prefix(prefix: str) -> None:
    """Raise InvalidArgument for a listing prefix that no allowed path could begin with."""
    directory, slash, _ = prefix.rpartition("/")
    if slash:
        check_path(directory)
    unfit = _REFUSED_IN_PATH.search(prefix)
    if unfit is not None or len(prefix.encode(errors="replace")) > PATH_BYTES_MAX:
        raise InvalidArgument(
            f"no path can begin with {_shown(prefix)}",
            hint="Pass the beginning of a relative path, or an empty text for everything",
        )


def check_name(name: str, *, what: str = "name") -> None:
    """Raise InvalidArgument for a part of a namespace or table name that is not allowed.

    Letters and digits of any script, and characters that are special elsewhere (`* ' % ; "`), are
    allowed. `what` says in the error what has the name.
    """
    if not name:
        raise InvalidArgument(f"the {what} is empty", hint="Give it at least one character")
    unfit = _REFUSED_IN_NAME.search(name)
    if unfit is not None:
        raise InvalidArgument(
            f"the {what} {_shown(name)} holds the character {unfit.group()!a}",
            offset=unfit.start(),
            hint="Leave out / and control characters",
        )
    if len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidArgument(
            f"the {what} {_shown(name)} is longer than {NAME_BYTES_MAX} bytes",
            hint="Choose a shorter one",
        )
    if name != name.strip() or name[0] == "." or name[-1] == ".":
        raise InvalidArgument(
            f"the {what} {_shown(name)} begins or ends with a space or a dot",
            hint="Remove it: such names look like another name, or like a path",
        )


def is_object_name(name: str) -> bool:
    """Whether a file with this last segment can be an object of a caller."""
    return not (
        name.startswith(TEMPORARY_PREFIX) or name in _LOCK_NAMES or _REFUSED_IN_PATH.search(name)
    )


def split_path(path: str) -> tuple[str, str]:
    """Return the directory of a path, empty for the root, and the last segment."""
    directory, _, name = path.rpartition("/")
    return directory, name


def join_path(directory: str, name: str) -> str:
    """Return the path of `name` in a directory; an empty directory is the root."""
    return f"{directory}/{name}" if directory else name


def log_number(path: str) -> int | None:
    """Read a log's number from its path; None when the file is not a log."""
    _, name = split_path(path)
    return int(name.removesuffix(".wal")) if _LOG_NAME.fullmatch(name) else None


def slot_name(number: int) -> str:
    """Return the name of a slot, which holds what one sync made durable of a log in a bucket."""
    return f"{number:0{_SLOT_DIGITS}d}.slot"


def slot_number(path: str) -> int | None:
    """Read a slot's number from its path; None when the object is not a slot."""
    name = split_path(path)[1]
    return int(name.removesuffix(".slot")) if _SLOT_NAME.fullmatch(name) else None


def log_epoch(path: str) -> int | None:
    """Read a log's writer epoch from its path; None when the file is not a log in an epoch."""
    directory, _ = split_path(path)
    _, epoch = split_path(directory)
    is_log = log_number(path) is not None and _EPOCH_NAME.fullmatch(epoch) is not None
    return int(epoch) if is_log else None


def position_delete_path(vector_path: str, offset: int) -> str:
    """Return the path, in the table, of the position deletes made from a vector."""
    return _checked(f"{vector_path.removesuffix('.puffin')}-{offset}.parquet")


def puffin_of_position_deletes(path: str) -> str | None:
    """Return the path of the Puffin file that position deletes were made from, if any."""
    found = _POSITION_DELETES.fullmatch(path)
    return None if found is None else f"{found.group(1)}.puffin"


def is_remembered(path: str) -> bool:
    """Return whether a path is that of a file of remembered deletes."""
    return path.endswith(_REMEMBERED)


@dataclass(frozen=True, slots=True)
class TablePaths:
    """Where the files of one table are; the id, not the name, is in every path."""

    table_id: str

    def __post_init__(self) -> None:
        check_path(self.table_id)
        if "/" in self.table_id:
            raise InvalidArgument(f"table id {_shown(self.table_id)} holds the character '/'")

    @property
    def root(self) -> str:
        """Directory of everything but the manifest."""
        return f"tables/{self.table_id}"

    @property
    def manifest(self) -> str:
        """Directory of the table's own manifest store."""
        return f"manifest/version/{self.table_id}"

    @property
    def wal(self) -> str:
        """Directory of all logs of all epochs."""
        return f"{self.root}/wal"

    @property
    def log_mark(self) -> str:
        """File that says how far the newest log went; it is not in the directory of the logs."""
        return f"{self.root}/wal.mark"

    @property
    def log_place(self) -> str:
        """Note of where the log is, if it is not in the bucket of its table."""
        return f"{self.root}/wal.place"

    @property
    def lock(self) -> str:
        """File whose lock the one live writer holds."""
        return f"{self.wal}/{LOCK_NAME}"

    @property
    def data(self) -> str:
        """Directory of the Parquet files."""
        return f"{self.root}/data"

    @property
    def deletes(self) -> str:
        """Directory of the deletion vectors and remembered deletes."""
        return f"{self.root}/deletes"

    @property
    def index(self) -> str:
        """Directory of the key-index sidecars."""
        return f"{self.root}/index"

    @property
    def metadata(self) -> str:
        """Directory of the Iceberg metadata."""
        return f"{self.root}/metadata"

    def wal_epoch(self, epoch: int) -> str:
        """Return the directory of the logs of one writer epoch."""
        _check_not_negative(epoch, "epoch")
        return f"{self.wal}/{epoch}"

    def wal_file(self, epoch: int, number: int) -> str:
        """Return the path of log `number`, written in `epoch`."""
        _check_not_negative(number, "log number")
        return f"{self.wal_epoch(epoch)}/{number:0{_LOG_DIGITS}d}.wal"

    def data_file(self, file_id: str, *, partition_path: str = "") -> str:
        """Return the path of a Parquet file; the partition path, already escaped, is for people."""
        directory = f"{self.data}/{partition_path}" if partition_path else self.data
        return _checked(f"{directory}/{file_id}.parquet")

    def delete_file(self, file_id: str) -> str:
        """Return the path of a Puffin file of deletion vectors."""
        return _checked(f"{self.deletes}/{file_id}.puffin")

    def remembered_file(self, file_id: str) -> str:
        """Return the path of a file of remembered deletes."""
        return _checked(f"{self.deletes}/{file_id}{_REMEMBERED}")

    def index_of(self, data_path: str) -> str:
        """Return the path of a data file's key index, named after it without its partition."""
        _, name = split_path(data_path)
        return _checked(f"{self.index}/{name.removesuffix('.parquet')}.index")

    def metadata_file(self, name: str) -> str:
        """Return the path of an Iceberg metadata file."""
        return _checked(f"{self.metadata}/{name}")


def _check_segment(segment: str, path: str) -> None:
    if not segment:
        problem = "is empty, is absolute, or has an empty segment"
    elif segment in {".", ".."}:
        problem = f"has the segment {segment!r}"
    elif segment.startswith(TEMPORARY_PREFIX) or segment == DIRECTORY_LOCK_NAME:
        problem = f"has the segment {_shown(segment)}, a name reserved for the store itself"
    elif len(segment) > SEGMENT_BYTES_MAX or len(segment.encode()) > SEGMENT_BYTES_MAX:
        problem = f"has a segment longer than {SEGMENT_BYTES_MAX} bytes"
    else:
        return
    raise InvalidArgument(
        f"path {_shown(path)} {problem}",
        hint="Pass a path relative to the store, such as tables/17/data/part.parquet",
    )


def _check_not_negative(number: int, what: str) -> None:
    if number < 0:
        raise InvalidArgument(f"{what} {number} is negative", hint="Numbers start at 0")


def _checked(path: str) -> str:
    check_path(path)
    return path


def _shown(text: str) -> str:
    """Quote a hostile text as one short line of ASCII."""
    limit = 80
    return ascii(text) if len(text) <= limit else f"{text[:limit]!a}…"


# As large as the largest object: a longer file could not be read whole.
CATALOG_MANIFEST: Final = "manifest/catalog"
"""Directory of the manifest store of names."""

PREALLOCATE_BYTES_MAX: Final = 5 << 30


def check_object_path(path: str) -> str:
    """Return the directory of an object or append file; raises InvalidArgument for a bad path."""
    check_path(path)
    directory, name = split_path(path)
    if not is_object_name(name):
        raise InvalidArgument(
            f"the name {name} is reserved for locks", path=path, hint="Choose another name"
        )
    return directory


def check_lock_path(path: str) -> str:
    """Return the directory of a lock; raises InvalidArgument for a path that is not a lock's."""
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
    """Check the number of bytes to preallocate; raises InvalidArgument, LimitExceeded."""
    if preallocate_bytes < 0:
        raise InvalidArgument(
            "a file cannot be preallocated with fewer than 0 bytes",
            path=path,
            hint="Pass 0 to preallocate nothing",
        )
    if preallocate_bytes > PREALLOCATE_BYTES_MAX:
        raise LimitExceeded(
            f"a file cannot be preallocated with more than {PREALLOCATE_BYTES_MAX:,} bytes",
            limit=PREALLOCATE_BYTES_MAX,
            actual=preallocate_bytes,
            path=path,
            hint="Pass the size that one log grows to",
        )
