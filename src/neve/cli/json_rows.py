"""JsonRows: rows of a table out of JSON objects, one object to a line.

A line that is wrong is named by its number, and what is wrong with it by the column. Lines without
anything in them are passed over. However long the input is, no more than one batch of it is in
memory.
"""

from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

import pyarrow as pa

from neve.cli.value_forms import json_reader, parse_json
from neve.errors import InvalidArgument, LimitExceeded, SchemaMismatch
from neve.model.row_codec import RowCodec
from neve.model.scalar_values import Unfit
from neve.model.schema import TableSchema
from neve.model.shown_value import shown

LINE_BYTES_MAX: Final = 64 << 20
BATCH_BYTES: Final = 32 << 20
"""A batch ends after so many bytes of input, however few rows they are."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class JsonRows:
    """Reads rows of one schema."""

    def __init__(self, schema: TableSchema, *, source: str) -> None:
        """Take a schema, and how messages name the place that the rows come from."""
        self._source = source
        self._codec = RowCodec(schema)
        self._readers = {column.name: json_reader(column.type) for column in schema.columns}

    def row(self, text: str, *, line: int | None = None) -> bytes:
        """Give one row as the codec of the schema encodes it; raises typed errors."""
        where = self._source if line is None else f"line {line:,} of {self._source}"
        try:
            members = parse_json(text)
        except ValueError as error:
            raise InvalidArgument(
                f"{where} is no JSON: {error}", hint="Write one JSON object to a line"
            ) from None
        if not isinstance(members, dict):
            raise InvalidArgument(
                f"{where} is no JSON object: {shown(text)}",
                hint='Write a row as an object: {"id": 1, "name": "ada"}',
            )
        values: dict[str, object] = {}
        for name, value in members.items():
            reader = self._readers.get(name)
            try:
                # What the table does not have is refused by the codec, with the nearest name.
                values[name] = value if value is None or reader is None else reader(value)
            except Unfit as unfit:
                column = f"{name}.{unfit.path}" if unfit.path else name
                raise SchemaMismatch(
                    f"{where}: column {shown(column)}: {unfit.reason}", column=column
                ) from None
        try:
            return self._codec.encode(values)
        except SchemaMismatch as error:
            raise SchemaMismatch(
                f"{where}: {error.message}", column=error.column, hint=error.hint
            ) from None

    def batch(self, rows: Sequence[bytes]) -> pa.RecordBatch:
        """Give encoded rows as a batch of the schema."""
        return self._codec.decode_many(rows)

    def batches(self, stream: BinaryIO, *, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Give the rows of a stream of lines in batches."""
        rows: list[bytes] = []
        size = 0
        for line, content in self._lines(stream):
            size += len(content)
            try:
                text = content.decode()
            except UnicodeDecodeError as error:
                raise InvalidArgument(
                    f"line {line:,} of {self._source} is no UTF-8, at its byte {error.start:,}",
                    hint="Convert the file: iconv -t utf-8",
                ) from None
            rows.append(self.row(text, line=line))
            if len(rows) >= batch_rows or size >= BATCH_BYTES:
                yield self.batch(rows)
                rows, size = [], 0
        if rows:
            yield self.batch(rows)

    def _lines(self, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
        line = 0
        while content := stream.readline(LINE_BYTES_MAX + 1):
            line += 1
            if len(content) > LINE_BYTES_MAX:
                raise LimitExceeded(
                    f"line {line:,} of {self._source} is longer than {LINE_BYTES_MAX:,} bytes",
                    limit=LINE_BYTES_MAX,
                    hint="Write one JSON object to a line",
                )
            if line == 1:
                content = content.removeprefix(_BYTE_ORDER_MARK)
            if content.strip():
                yield line, content
