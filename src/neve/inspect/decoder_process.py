"""DecoderProcess: decodes a foreign file in a child process, and returns what it found.

1. Start `neve.inspect.decoder_child` with the open file as its standard input.
2. Read frames as they arrive. A child that works on one for too long ends itself.
3. Raise an error of the child here, typed. A child that died raises DecoderFailed, with the last
   output of the library that aborted.

This process survives whatever a file does to its decoder, and keeps the frames before that.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import IO, Final, Self, cast

import pyarrow as pa

from neve import errors
from neve.errors import Corruption, InvalidArgument, LimitExceeded, NeveError, Unavailable
from neve.inspect.decoder_child import ALIVE, DONE, ERROR, FRAME_HEAD, PIECE_SECONDS, DecoderTask
from neve.inspect.parquet_batches import LIMIT_HINT

MEMORY_BYTES: Final = 256 << 20
"""Memory of a decoder, plus the size of its file."""
MEMORY_BYTES_MAX: Final = 1 << 30
"""The most that it takes by default."""

_FRAME_BYTES_MAX: Final = 8 << 30
_LAST_WORDS_BYTES: Final = 4_096
_OUT_OF_MEMORY: Final = re.compile("bad_alloc|[Oo]ut of memory|Cannot allocate memory|malloc of")
_WHAT: Final = re.compile(r"what\(\):\s*(.+)")
_TYPED: Final = (Corruption, InvalidArgument, LimitExceeded, Unavailable)


class FailureKind(StrEnum):
    """Why a decoder did not finish."""

    DAMAGED = "damaged"
    MEMORY = "memory"
    DIED = "died"
    SLOW = "slow"


class DecoderFailed(Exception):
    """A decoder did not finish; callers decide what that means for the file."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def limit_exceeded(self, source: str, memory_bytes: int) -> LimitExceeded:
        """Return the error for a file that needs too much memory or time."""
        what = (
            f"more than {memory_bytes:,} bytes of memory"
            if self.kind is FailureKind.MEMORY
            else f"longer than {PIECE_SECONDS:g} seconds for one piece"
        )
        return LimitExceeded(f"decoding {source} takes {what}", limit=memory_bytes, hint=LIMIT_HINT)

    @property
    def is_limit(self) -> bool:
        """Whether the file needs more than the limit."""
        return self.kind in {FailureKind.MEMORY, FailureKind.SLOW}


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of the child, see `neve.inspect.decoder_child`."""

    kind: bytes
    position: int
    payload: bytes

    def json(self) -> object:
        """Return the payload as JSON."""
        return json.loads(self.payload)

    def reader(self) -> pa.RecordBatchReader:
        """Return the payload as an Arrow stream."""
        return pa.ipc.open_stream(pa.py_buffer(self.payload))


def memory_for(file_bytes: int | None, wished: int | None) -> int:
    """Return how much memory the decoder of a file may take."""
    if wished is not None:
        return wished
    return min(MEMORY_BYTES + (file_bytes or 0), MEMORY_BYTES_MAX)


class DecoderProcess:
    """One child process that decodes one file; leaving the context ends the child."""

    def __init__(self, task: DecoderTask, *, file: int) -> None:
        """Take the task, and the handle of a file that is open for reading."""
        self._task = task
        self._file = file
        self._child: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self._words = tempfile.TemporaryFile()
        try:
            self._child = subprocess.Popen(  # noqa: S603 - this Python, and a module of ours
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "neve.inspect.decoder_child",
                    json.dumps(asdict(self._task)),
                ],
                stdin=self._file,
                stdout=subprocess.PIPE,
                stderr=self._words,
                env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
            )
        except OSError as error:
            self._words.close()
            raise Unavailable(
                f"could not start a process to decode {self._task.path}: {error.strerror}",
                hint="End other processes or free memory, then try again",
            ) from error
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        assert self._child is not None
        assert self._words is not None
        assert self._child.stdout is not None
        with suppress(ProcessLookupError):
            self._child.kill()
        self._child.stdout.close()
        self._child.wait()
        self._words.close()

    def frames(self) -> Iterator[Frame]:
        """Yield the frames of the child until it is done; raises its errors, or DecoderFailed."""
        while True:
            head = self._read(FRAME_HEAD.size)
            kind, position, length = FRAME_HEAD.unpack(head)
            if length > _FRAME_BYTES_MAX:
                raise DecoderFailed(FailureKind.DIED, f"it wrote a frame of {length:,} bytes")
            frame = Frame(kind, position, self._read(length))
            if kind == DONE:
                return
            if kind == ERROR:
                raise _error_of(cast("dict[str, object]", frame.json()))
            if kind != ALIVE:
                yield frame

    def _read(self, length: int) -> bytes:
        """Read this many bytes from the child."""
        assert self._child is not None
        assert self._child.stdout is not None
        handle = self._child.stdout.fileno()
        content = bytearray(length)
        view = memoryview(content)
        while view:
            got = os.readv(handle, [view])
            if not got:
                raise self._death()
            view = view[got:]
        return bytes(content)

    def _death(self) -> Exception:
        """Return why the child ended before it was done."""
        assert self._child is not None
        assert self._words is not None
        code = self._child.wait()
        self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, self._words.tell() - _LAST_WORDS_BYTES))
        words = self._words.read().decode(errors="replace")
        if code == -signal.SIGKILL or _OUT_OF_MEMORY.search(words):
            return DecoderFailed(FailureKind.MEMORY, "it ran out of memory")
        if code == -signal.SIGPROF:
            return DecoderFailed(FailureKind.SLOW, "it took too long")
        if code >= 0:
            # The child sends its own errors in frames.
            return RuntimeError(f"the decoder ended with exit code {code}:\n{words}")
        said = _WHAT.search(words)
        reason = f": {said[1].strip()}" if said is not None else ""
        return DecoderFailed(
            FailureKind.DIED, f"the decoder gave up ({_signal_name(-code)}){reason}"
        )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _error_of(said: dict[str, object]) -> Exception:
    kind, message = said.pop("kind"), str(said.pop("message"))
    if kind in {each.value for each in FailureKind}:
        return DecoderFailed(FailureKind(str(kind)), message.partition("\n")[0])
    found = getattr(errors, str(kind), None)
    if isinstance(found, type) and issubclass(found, _TYPED):
        facts = {name: fact for name, fact in said.items() if fact is not None}
        return cast("type[NeveError]", found)(message, **facts)  # type: ignore[arg-type]
    return RuntimeError(f"the decoder failed:\n{message}")
