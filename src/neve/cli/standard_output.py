"""Standard output as a stream that raises its own errors.

    the kernel reports           the stream raises
    ─────────────────────────────────────────────────────────────────────────────────
    EPIPE                        OutputClosed: the reader of the output stopped reading
    ENOSPC, EIO, anything else   OutputFailed, with the kernel's words

They are raised where the bytes leave, so that a full disk under the output is never confused with
one under the command's own files.
"""

import io
import os
import sys
from pathlib import Path


class OutputClosed(Exception):
    """The reader of the output stopped reading."""


class OutputFailed(Exception):
    """The output could not be written; the text says why."""


class _Output(io.FileIO):
    """A file that raises OutputClosed and OutputFailed."""

    def write(self, content: bytes, /) -> int:  # type: ignore[override]
        """Write some of the bytes; return how many."""
        try:
            return super().write(content)
        except BrokenPipeError as error:
            raise OutputClosed from error
        except OSError as error:
            raise OutputFailed(error.strerror) from error


def watch_standard_output() -> None:
    """Replace standard output by one that raises these errors.

    Raises OutputFailed if the process was started without standard output.
    """
    stream = sys.stdout
    if stream is None:
        # Takes descriptor 1, so that no file of a table is ever opened there.
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        raise OutputFailed("it is closed")
    if not isinstance(stream, io.TextIOWrapper):
        return
    stream.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        # A terminal that lacks a character shows a question mark instead of a traceback.
        errors="replace",
        line_buffering=stream.line_buffering or stream.write_through,
    )


def finish_standard_output() -> None:
    """Write the rest; drop what cannot be written, so that the last flush does not raise."""
    try:
        sys.stdout.flush()
    except (OutputClosed, OutputFailed):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
