"""A file named on the command line, open for reading.

The name may contain symbolic links, and the file may be on any disk that this user can read. The
number of a log is in its name: `000007.wal` is neve's, `000007.log` RocksDB's. If the name is `-`,
standard input is copied to a temporary file first, because files are read in more than one pass.
"""

import errno
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neve.errors import InvalidArgument, NeveError, NotFound, Unavailable
from neve.storage.disk import Disk, read_fully
from neve.storage.posix_disk import PosixDisk
from neve.wal.segment_reader import ReadAt

_NUMBERED: Final = re.compile(r"([0-9]{6,19})\.(?:wal|log)")
_STANDARD_INPUT: Final = ("-", "/dev/stdin")
_MAGIC_BYTES: Final = 16
_MAGICS: Final = (
    (b"PAR1", "a Parquet file"),
    (b"PFA1", "a Puffin file of deletion vectors"),
    (b"MRUB", "a manifest"),
    (b"ARROW1", "an Arrow file"),
    (b"Obj\x01", "an Avro file"),
    (b"SQLite format 3", "a SQLite database"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"PK\x03\x04", "a zip file"),
    (b"\x7fELF", "a program"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFile:
    """An open file and the facts in its name."""

    name: str
    byte_count: int
    log_number: int | None
    handle: int
    read_at: ReadAt

    def likeness(self) -> str | None:
        """Return what the file looks like by its first bytes, if it is not what was expected."""
        beginning = self.read_at(0, _MAGIC_BYTES)
        for magic, what in _MAGICS:
            if beginning.startswith(magic):
                return what
        line = beginning.translate(None, b"\t\r\n")
        return "a text" if line.isascii() and line.decode().isprintable() else None

    def likeness_words(self) -> str:
        """Return the same as the end of a sentence; empty if unknown."""
        likeness = self.likeness()
        return "" if likeness is None else f"; it looks like {likeness}"


@contextmanager
def open_inspected(path: str) -> Iterator[OpenedFile]:
    """Open a file that exists and is not empty; raises typed errors with hints."""
    disk = PosixDisk()
    if not path:
        raise InvalidArgument(
            "the name of a file is empty", hint="Name a file, or - for standard input"
        )
    if path in _STANDARD_INPUT:
        with _kept_input() as handle:
            yield look_at(disk, handle, "standard input")
        return
    try:
        handle = disk.open_file(disk.real_path(path))
    except OSError as error:
        raise _cannot_open(error, path) from error
    try:
        yield look_at(disk, handle, path)
    finally:
        disk.close(handle)


@contextmanager
def _kept_input() -> Iterator[int]:
    """Return the handle of a temporary file with everything from standard input."""
    with ExitStack() as stack:
        try:
            kept = stack.enter_context(tempfile.TemporaryFile())
            if sys.stdin is not None:
                shutil.copyfileobj(sys.stdin.buffer, kept)
            kept.flush()
        except OSError as error:
            raise Unavailable(
                f"could not copy standard input to a temporary file: {error.strerror}",
                hint="Write it to a file, and name that file",
            ) from error
        yield kept.fileno()


def look_at(disk: Disk, handle: int, path: str) -> OpenedFile:
    """Describe a file that is open already; raises typed errors."""
    try:
        byte_count = disk.size(handle)
    except OSError as error:
        raise _cannot_open(error, path) from error
    if byte_count == 0:
        raise InvalidArgument(f"{path} is empty", hint="Nothing was ever written to it")

    def read_at(offset: int, length: int) -> bytes:
        try:
            return read_fully(disk, handle, offset, length)
        except OSError as error:
            raise Unavailable(
                f"could not read the log: {error.strerror}", path=path, offset=offset
            ) from error

    name = Path(path).name
    numbered = _NUMBERED.fullmatch(name)
    return OpenedFile(
        name=name,
        byte_count=byte_count,
        log_number=None if numbered is None else int(numbered[1]),
        handle=handle,
        read_at=read_at,
    )


def _cannot_open(error: OSError, path: str) -> NeveError:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return NotFound(f"there is no file {path}", hint="Check the spelling")
        case errno.EISDIR:
            return InvalidArgument(
                f"{path} is a directory, not a file", hint="Name one of the files in it"
            )
        case errno.EINVAL | errno.ELOOP:
            return InvalidArgument(
                f"{path} is not a plain file",
                hint="Name a file; for a pipe, use - and standard input",
            )
        case errno.ENAMETOOLONG:
            return InvalidArgument(f"the name {path[:80]}… is too long", hint="Check the spelling")
        case errno.EACCES | errno.EPERM:
            return Unavailable(
                f"this user may not read {path}", hint="Ask its owner for permission"
            )
        case _:
            return Unavailable(
                f"could not open {path}: {error.strerror}", hint="Find the cause, then try again"
            )
