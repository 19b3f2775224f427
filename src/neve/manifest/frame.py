"""The frame around every object of a manifest store.

One frame is one object; nothing may come before or after it.

    ┌──────────┬─────────┬───────────┬────────────┬──────────────────┬────────────┐
    │ "NEVE"   │ kind u8 │ format u8 │ length u32 │ payload (length) │ crc32c u32 │  little-endian
    └──────────┴─────────┴───────────┴────────────┴──────────────────┴────────────┘

The checksum covers everything before it. The payload is a protobuf message of `store.proto`.
Any single flipped bit, any missing or surplus byte is Corruption.
"""

import struct
from enum import IntEnum
from typing import Final, TypeVar

import google_crc32c
from google.protobuf.message import DecodeError, Message

from neve.errors import Corruption, LimitExceeded

_MAGIC: Final = b"NEVE"  # on disk: never change
_HEADER: Final = struct.Struct("<4sBBI")
_TRAILER: Final = struct.Struct("<I")
HEADER_BYTES: Final = 10  # on disk: never change
assert _HEADER.size == HEADER_BYTES

FORMAT: Final = 1  # on disk: never change, only add
FRAME_BYTES_MAX: Final = 1 << 30

AnyMessage = TypeVar("AnyMessage", bound=Message)


class FrameKind(IntEnum):
    """What a frame holds; on disk: never change."""

    HEAD = 1
    SEGMENT = 2
    CHECKPOINT = 3
    LEASE = 4


def encode_frame(kind: FrameKind, message: Message) -> bytes:
    """Wrap a message; equal messages give equal bytes."""
    payload = message.SerializeToString(deterministic=True)
    if len(payload) > FRAME_BYTES_MAX:
        raise LimitExceeded(
            f"a manifest object of {len(payload):,} bytes is too large",
            limit=FRAME_BYTES_MAX,
            actual=len(payload),
            hint="Commit the change in several steps",
        )
    body = _HEADER.pack(_MAGIC, kind, FORMAT, len(payload)) + payload
    return body + _TRAILER.pack(google_crc32c.value(body))


def decode_frame(
    frame: bytes, kind: FrameKind, message_type: type[AnyMessage], *, path: str
) -> AnyMessage:
    """Read a message back; raises Corruption naming the path."""
    if len(frame) < HEADER_BYTES + _TRAILER.size:
        raise _damaged(f"a manifest object of {len(frame)} bytes is cut off", path)
    magic, found_kind, found_format, length = _HEADER.unpack_from(frame)
    if magic != _MAGIC:
        raise _damaged("this is not a manifest object of neve", path)
    if len(frame) != HEADER_BYTES + length + _TRAILER.size:
        raise _damaged(f"a manifest object is {len(frame)} bytes long and says otherwise", path)
    if length > FRAME_BYTES_MAX:
        raise _damaged(f"a manifest object of {length:,} bytes is larger than any is", path)
    (stored_crc,) = _TRAILER.unpack_from(frame, len(frame) - _TRAILER.size)
    if google_crc32c.value(frame[: -_TRAILER.size]) != stored_crc:
        raise _damaged("a manifest object's checksum does not match", path)
    if found_format != FORMAT:
        raise Corruption(
            f"manifest format {found_format} is newer than this neve reads ({FORMAT})",
            path=path,
            hint="Open the warehouse with the neve that wrote it, or a newer one",
        )
    if found_kind != kind:
        raise _damaged(f"a manifest object of kind {found_kind} stands where {kind} belongs", path)
    try:
        return message_type.FromString(frame[HEADER_BYTES : HEADER_BYTES + length])
    except DecodeError as error:
        raise _damaged(f"a manifest object cannot be read: {error}", path) from error


def _damaged(message: str, path: str) -> Corruption:
    hint = "Restore it from a copy; `neve inspect manifest` shows the rest of the store"
    return Corruption(message, path=path, hint=hint)
