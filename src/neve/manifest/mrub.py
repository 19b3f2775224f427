"""The MRUB frame around one manifest of a table version.

Format 1 is merutable's: `neve inspect manifest` shows such a manifest, but neve's tables have none.
Format 2 adds a checksum; neve writes it.

    format 1
    ┌──────────┬───────────┬────────────┬──────────────────┐
    │ "MRUB"   │ format u8 │ length u32 │ payload (length) │               little-endian
    └──────────┴───────────┴────────────┴──────────────────┘
    format 2
    ┌──────────┬───────────┬────────────┬──────────────────┬────────────┐
    │ "MRUB"   │ format u8 │ length u32 │ payload (length) │ crc32c u32 │
    └──────────┴───────────┴────────────┴──────────────────┴────────────┘

MANIFEST-M1  The payload is a `Manifest` of `mrub.proto`; equal manifests have equal bytes.
MANIFEST-M2  The checksum covers everything before it: any flipped bit of format 2 is Corruption,
             and so is any missing or surplus byte.
MANIFEST-M3  Format 1 has no checksum and, as merutable reads it, may be followed by anything. A
             checksum that fits after it shows a format 2 frame whose format byte was damaged:
             Corruption.
MANIFEST-M4  Unknown fields of the payload are kept when it is encoded again.
MANIFEST-M5  The length in the header is not trusted for an allocation; a payload larger than
             `MRUB_BYTES_MAX` is neither written nor read.
"""

import struct
from typing import Final

import google_crc32c
from google.protobuf.message import DecodeError

from neve.errors import Corruption, LimitExceeded
from neve.manifest import mrub_pb2

_MAGIC: Final = b"MRUB"  # on disk: never change
_HEADER: Final = struct.Struct("<4sBI")
_TRAILER: Final = struct.Struct("<I")
HEADER_BYTES: Final = 9  # on disk: never change
TRAILER_BYTES: Final = 4  # on disk: never change
assert _HEADER.size == HEADER_BYTES
assert _TRAILER.size == TRAILER_BYTES

_FORMAT_PLAIN: Final = 1  # on disk: never change
_FORMAT_CHECKED: Final = 2  # on disk: never change

# A crafted payload takes about a hundred times its bytes when parsed; a real one takes about two
# hundred bytes for a file, so this allows a million files.
MRUB_BYTES_MAX: Final = 1 << 28

DAMAGE_HINT: Final = "Restore it from a copy; `neve inspect manifest` shows what is inside"
NEWER_HINT: Final = "Open the table with the newer neve that wrote it"


def encode_mrub(manifest: mrub_pb2.Manifest) -> bytes:
    """Wrap a manifest in a frame of format 2."""
    payload = manifest.SerializeToString(deterministic=True)
    if len(payload) > MRUB_BYTES_MAX:
        raise LimitExceeded(
            f"a manifest of {len(manifest.data_files):,} files takes {len(payload):,} bytes",
            limit=MRUB_BYTES_MAX,
            actual=len(payload),
            hint="Compact the table into fewer files, or commit the change in several steps",
        )
    body = _HEADER.pack(_MAGIC, _FORMAT_CHECKED, len(payload)) + payload
    return body + _TRAILER.pack(google_crc32c.value(body))


def decode_mrub(frame: bytes, *, path: str) -> mrub_pb2.Manifest:
    """Read a manifest back, of either format; raises Corruption naming the path."""
    if len(frame) < HEADER_BYTES:
        raise damaged(f"a manifest of {len(frame)} bytes is cut off", path)
    magic, found_format, length = _HEADER.unpack_from(frame)
    if magic != _MAGIC:
        raise damaged("this is not a manifest: it does not begin with MRUB", path)
    if found_format not in {_FORMAT_PLAIN, _FORMAT_CHECKED}:
        raise Corruption(
            f"manifest format {found_format} is not one this neve reads "
            f"({_FORMAT_PLAIN} and {_FORMAT_CHECKED})",
            path=path,
            hint=NEWER_HINT if found_format else DAMAGE_HINT,
        )
    if length > MRUB_BYTES_MAX:
        raise damaged(f"a manifest claims {length:,} bytes, more than allowed", path)
    end = HEADER_BYTES + length
    surplus = len(frame) - end
    if surplus < 0:
        raise damaged(f"a manifest is cut off: {-surplus:,} bytes are missing", path)
    if found_format == _FORMAT_CHECKED:
        _check_trailer(frame, end, path)
    elif surplus == TRAILER_BYTES and _is_checked_frame_of_another_format(frame, end):
        raise damaged("a manifest's format byte does not match its checksum", path)
    try:
        return mrub_pb2.Manifest.FromString(frame[HEADER_BYTES:end])
    except DecodeError as error:
        raise damaged(f"a manifest's payload cannot be read: {error}", path) from error


def _check_trailer(frame: bytes, end: int, path: str) -> None:
    surplus = len(frame) - end - TRAILER_BYTES
    if surplus < 0:
        raise damaged(f"a manifest is cut off: {-surplus} bytes are missing", path)
    if surplus > 0:
        raise damaged(f"{surplus:,} bytes come after the end of a manifest", path)
    (stored_crc,) = _TRAILER.unpack_from(frame, end)
    if google_crc32c.value(frame[:end]) != stored_crc:
        raise damaged("a manifest's checksum does not match", path)


def _is_checked_frame_of_another_format(frame: bytes, end: int) -> bool:
    (stored_crc,) = _TRAILER.unpack_from(frame, end)
    header = _HEADER.pack(_MAGIC, _FORMAT_CHECKED, end - HEADER_BYTES)
    return bool(google_crc32c.value(header + frame[HEADER_BYTES:end]) == stored_crc)


def damaged(message: str, path: str) -> Corruption:
    """Return the error for a manifest whose bytes are wrong."""
    return Corruption(message, path=path, hint=DAMAGE_HINT)
