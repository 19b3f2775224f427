"""One Arrow record batch inside a log record: an IPC stream of a schema and a batch.

A stream is its messages one after the other, so the schema message is made once per schema and
the batch message is written as Arrow gives it, without a copy.

Bytes from a log may be hostile even when their checksum is right: a compressed body could expand
without bound, so it is refused before it is touched, and offsets are validated before use.
"""

import struct
from typing import Final

import pyarrow as pa

from neve.errors import Corruption, InvalidArgument

_RECORD_BATCH_SLOTS: Final = {"header": 2, "compression": 3}
_WORD_BYTES: Final = 8
_I32: Final = struct.Struct("<i")
_U16: Final = struct.Struct("<H")


def schema_message(schema: pa.Schema) -> bytes:
    """Serialize the schema as the first message of a stream."""
    for field in schema:
        if pa.types.is_dictionary(field.type):
            raise InvalidArgument(
                f"column {field.name!r} is dictionary-encoded", hint="cast it to its value type"
            )
    return schema.serialize().to_pybytes()


def read_rows(stream: memoryview, *, row_count: int) -> pa.RecordBatch:
    """Read the one batch of a stream; raises Corruption when it is not exactly that."""
    source = pa.BufferReader(_aligned(pa.py_buffer(stream)))
    try:
        schema = pa.ipc.read_schema(_typed(pa.ipc.read_message(source), "schema"))
        _ = schema.names  # raises for names that are no text
        message = _typed(pa.ipc.read_message(source), "record batch")
        if _is_compressed(message):
            raise Corruption("an Arrow batch in the log is compressed, which neve never writes")
        rows = pa.ipc.read_record_batch(message, schema)
        rows.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError, struct.error) as error:
        raise Corruption(f"an Arrow batch in the log cannot be read: {error}") from error
    if source.tell() != len(stream):
        raise Corruption("an Arrow batch in the log has bytes left over")
    if rows.num_rows != row_count:
        raise Corruption(
            f"an Arrow batch of {rows.num_rows:,} rows is announced as {row_count:,} rows"
        )
    return rows


def _aligned(stream: pa.Buffer) -> pa.Buffer:
    """Return a stream that begins at a word: what is in it is aligned from there on.

    A record begins anywhere in a log, and rows that stay in memory are computed with.
    """
    if stream.address % _WORD_BYTES == 0:
        return stream
    copied = pa.allocate_buffer(stream.size)
    memoryview(copied)[:] = memoryview(stream)
    return copied


def _typed(message: pa.Message, kind: str) -> pa.Message:
    """Refuse a message of another kind: Arrow takes it for what was asked, and crashes."""
    if message.type != kind:
        raise Corruption(f"an Arrow {message.type} stands in the log where a {kind} belongs")
    return message


def _is_compressed(message: pa.Message) -> bool:
    """Read the compression field out of the message's flatbuffer.

    Arrow has no option to refuse compressed bodies, and expands them while reading.
    """
    buffer = message.metadata.to_pybytes()
    (root,) = _I32.unpack_from(buffer, 0)
    header_field = _slot(buffer, root, _RECORD_BATCH_SLOTS["header"])
    if header_field == 0:
        return False
    header_at = root + header_field
    header = header_at + _I32.unpack_from(buffer, header_at)[0]
    return _slot(buffer, header, _RECORD_BATCH_SLOTS["compression"]) != 0


def _slot(buffer: bytes, table: int, index: int) -> int:
    """Offset of a flatbuffer table's field from the table, 0 when it is absent."""
    vtable = table - _I32.unpack_from(buffer, table)[0]
    (vtable_bytes,) = _U16.unpack_from(buffer, vtable)
    position = 4 + 2 * index
    if position + 2 > vtable_bytes:
        return 0
    return int(_U16.unpack_from(buffer, vtable + position)[0])
