"""JsonFileRows: rows out of any JSON that holds one object for each row.

    {"id": 1}                            JSON lines: one object to a line
    {"id": 2}

    [{"id": 1}, {"id": 2}]               an array of objects, on one line or many

    {                                    what `neve scan` writes: an array with a few facts before
      "table": "shop.orders",
      "rows": [{"id": 1}, {"id": 2}]
    }

Which one it is, its first line that is not blank tells: with `[` it begins an array, and `{` alone
on a line can only begin a document. Rows of an array are named by their numbers. An array is read
piece by piece; no more than one row of it is looked for at a time.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO, Final, cast

from neve.cli.json_rows import BYTE_ORDER_MARK, JSON_FORMS, LINE_BYTES_MAX, JsonRows
from neve.errors import InvalidArgument, LimitExceeded

_HEAD_BYTES: Final = 1 << 16
_CHUNK_BYTES: Final = 1 << 20
_ARRAY: Final = b"["
_DOCUMENT: Final = b"{"
# Members whose values are numbers, texts and the like, and behind them the array of rows.
_BEFORE_ROWS: Final = re.compile(
    rb"""\s*\{\s*(?:"[^"\\]*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[-+.\w]+)\s*,\s*)*"rows"\s*:\s*\["""
)
_PIECE: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_UNFINISHED: Final = b'"'


class JsonFileRows(JsonRows):
    """Reads rows of one schema out of JSON lines, an array, or a document of `neve scan`."""

    _is_array = False

    def _named(self, line: int) -> str:
        return f"{self._source}, row {line:,}" if self._is_array else super()._named(line)

    def texts(self, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Return the texts of rows as they stand, with their lines or numbers."""
        return self._lines(stream)

    def _lines(self, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Yield the texts of rows, with their lines, or with their numbers in an array."""
        head = [*_head(stream)]
        begin = b"".join(head).removeprefix(BYTE_ORDER_MARK).strip()
        if not begin.startswith(_ARRAY) and begin != _DOCUMENT:
            # What gives lines needs nothing else of a stream.
            yield from super()._lines(cast("BinaryIO", _Rejoined(head, stream)))
            return
        self._is_array = True
        read = b"".join(head).removeprefix(BYTE_ORDER_MARK)
        if begin == _DOCUMENT:
            elements = self._elements(self._opened(read, stream), stream, end=b"}")
        else:
            elements = self._elements(read.partition(_ARRAY)[2], stream, end=b"")
        yield from enumerate(elements, start=1)

    def _opened(self, read: bytes, stream: BinaryIO) -> bytes:
        """Read a document up to its array of rows; gives what was read behind the beginning."""
        while len(read) < _HEAD_BYTES and (chunk := stream.read(_HEAD_BYTES)):
            read += chunk
            begun = _BEFORE_ROWS.match(read)
            if begun is not None:
                return read[begun.end() :]
        raise InvalidArgument(
            f'{self._source}: one JSON document, which has no array "rows"', hint=JSON_FORMS
        )

    def _elements(self, opened: bytes, stream: BinaryIO, *, end: bytes) -> Iterator[bytes]:
        """Cut an array into its elements, whatever they are."""
        buffer, begun, at, depth, given = b"", 0, 0, 0, 0
        # As much again as there is of an element, so that a long one is not gone through often.
        chunk = opened or stream.read(_CHUNK_BYTES)
        while chunk:
            buffer, at, begun = buffer[begun:] + chunk, at - begun, 0
            while found := _PIECE.search(buffer, at):
                piece = found[0]
                at = found.start() if piece == _UNFINISHED else found.end()
                if piece == _UNFINISHED:
                    break
                if piece in (b"[", b"{"):
                    depth += 1
                elif piece in (b"]", b"}"):
                    depth -= 1
                is_over = depth < 0
                if is_over or (piece == b"," and depth == 0):
                    element = buffer[begun : found.start()]
                    if not is_over or given or element.strip():
                        # A row is kept as a line, and between its words a break is a blank.
                        yield element.replace(b"\n", b" ").strip()
                    given, begun = given + 1, at
                if is_over:
                    self._check_end(buffer[at:], stream, end)
                    return
            else:
                at = len(buffer)
            if len(buffer) - begun > LINE_BYTES_MAX:
                raise LimitExceeded(
                    f"{self._named(given + 1)}: longer than {LINE_BYTES_MAX:,} bytes",
                    limit=LINE_BYTES_MAX,
                    hint="Look for a quote or a bracket that is never closed",
                )
            chunk = stream.read(max(_CHUNK_BYTES, len(buffer) - begun))
        raise InvalidArgument(
            f"{self._named(given + 1)}: the array ends in the middle of it, or has no ]",
            hint="Check that the file is whole",
        )

    def _check_end(self, read: bytes, stream: BinaryIO, end: bytes) -> None:
        rest = read.strip()
        while len(rest) <= len(end) and (chunk := stream.read(_CHUNK_BYTES)):
            rest += chunk.strip()
        if rest != end:
            raise InvalidArgument(
                f"{self._source}: not only blanks behind the end of the array", hint=JSON_FORMS
            )


class _Rejoined:
    """The lines of a stream, with those before that were read already."""

    def __init__(self, head: list[bytes], stream: BinaryIO) -> None:
        self._head = head
        self._stream = stream

    def readline(self, limit: int) -> bytes:
        line = b""
        while self._head and not line.endswith(b"\n"):
            line += self._head.pop(0)
        if line.endswith(b"\n"):
            return line
        return line + self._stream.readline(max(0, limit - len(line)))


def _head(stream: BinaryIO) -> Iterator[bytes]:
    """Read up to the first line that is not blank, and that only as far as it tells the form."""
    while piece := stream.readline(_HEAD_BYTES):
        yield piece
        if piece.removeprefix(BYTE_ORDER_MARK).strip():
            return
