"""Objects of one manifest store: their paths, the frame around each, and their encoding.

    <prefix>/HEAD                      Head: the pointer; compare-and-swap only
    <prefix>/segments/seg-<n:020>      Segment: one transaction; created if absent, never changed
    <prefix>/checkpoints/ckpt-<n:020>  Checkpoint: the fold up to segment n; created if absent
    <prefix>/leases/<id>               Lease: a reader's claim on a version

With twenty digits, names sort like numbers. One frame is one object; nothing may come before or
after it.

    ┌──────────┬─────────┬───────────┬────────────┬──────────────────┬────────────┐
    │ "NEVE"   │ kind u8 │ format u8 │ length u32 │ payload (length) │ crc32c u32 │  little-endian
    └──────────┴─────────┴───────────┴────────────┴──────────────────┴────────────┘

The checksum covers everything before it. The payload is a protobuf message of `store.proto`.
Any flipped bit, and any missing or surplus byte, is Corruption.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Final, TypeVar

import google_crc32c
from google.protobuf.message import DecodeError, Message

from neve.errors import Corruption, LimitExceeded
from neve.manifest import store_pb2
from neve.manifest.state import Decided, Records, State
from neve.storage.object_store import ObjectStore

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
    """Wrap a message; equal messages have equal bytes."""
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
        raise _damaged(f"a manifest object of {len(frame)} bytes claims another length", path)
    if length > FRAME_BYTES_MAX:
        raise _damaged(f"a manifest object of {length:,} bytes is larger than allowed", path)
    (stored_crc,) = _TRAILER.unpack_from(frame, len(frame) - _TRAILER.size)
    if google_crc32c.value(frame[: -_TRAILER.size]) != stored_crc:
        raise _damaged("a manifest object's checksum does not match", path)
    if found_format != FORMAT:
        raise Corruption(
            f"manifest format {found_format} is newer than this neve reads ({FORMAT})",
            path=path,
            hint="Open the lake with the neve that wrote it, or a newer one",
        )
    if found_kind != kind:
        raise _damaged(f"a manifest object of kind {found_kind} is where {kind} belongs", path)
    try:
        return message_type.FromString(frame[HEADER_BYTES : HEADER_BYTES + length])
    except DecodeError as error:
        raise _damaged(f"a manifest object cannot be read: {error}", path) from error


def _damaged(message: str, path: str) -> Corruption:
    hint = "Restore it from a copy; `neve inspect manifest` shows the rest of the store"
    return Corruption(message, path=path, hint=hint)


_SEGMENT_PREFIX = "segments/seg-"
_CHECKPOINT_PREFIX = "checkpoints/ckpt-"
_LEASE_PREFIX = "leases/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where readers start, with the tag for moving it."""

    epoch: int
    segment: int
    transaction: bytes
    checkpoint: int
    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One decided transaction."""

    epoch: int
    number: int
    transaction: bytes
    previous: bytes
    """Transaction of the segment before; empty for the first."""
    written_ms: int
    records: Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A reader's claim on a version, or on consecutive ones, until `expires_ms`."""

    lease_id: str
    version: int
    expires_ms: int
    last_version: int | None = None
    """For a reader of history, which needs every edit from `version`; None: `version` alone."""
    holder: str = ""
    """The process that took it, for people; empty when unknown."""
    taken_ms: int = 0
    """When it was taken; 0 when unknown."""

    @property
    def versions(self) -> range:
        """The versions that it keeps."""
        last = self.version if self.last_version is None else self.last_version
        return range(self.version, max(self.version, last) + 1)


class StorePaths:
    """Paths of one store's objects."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.head = f"{prefix}/HEAD"
        self.segments = f"{prefix}/{_SEGMENT_PREFIX}"
        self.checkpoints = f"{prefix}/{_CHECKPOINT_PREFIX}"
        self.leases = f"{prefix}/{_LEASE_PREFIX}"

    def segment(self, number: int) -> str:
        """Return the path of a segment."""
        return f"{self.segments}{number:020}"

    def checkpoint(self, number: int) -> str:
        """Return the path of a checkpoint."""
        return f"{self.checkpoints}{number:020}"

    def lease(self, lease_id: str) -> str:
        """Return the path of a lease."""
        return f"{self.leases}{lease_id}"


def encode_head(
    *, epoch: int, segment: int, transaction: bytes, checkpoint: int, nonce: bytes
) -> bytes:
    """Return the bytes of a HEAD object; the nonce makes them unique."""
    return encode_frame(
        FrameKind.HEAD,
        store_pb2.Head(
            epoch=epoch,
            segment=segment,
            transaction=transaction,
            checkpoint=checkpoint,
            nonce=nonce,
        ),
    )


def decode_head(payload: bytes, *, tag: str, path: str) -> Head:
    """Read a HEAD object; raises Corruption."""
    head = decode_frame(payload, FrameKind.HEAD, store_pb2.Head, path=path)
    if head.segment < 1 or head.checkpoint > head.segment:
        raise Corruption(
            f"HEAD points to segment {head.segment} and checkpoint {head.checkpoint}", path=path
        )
    return Head(
        epoch=head.epoch,
        segment=head.segment,
        transaction=head.transaction,
        checkpoint=head.checkpoint,
        tag=tag,
    )


def encode_segment(segment: Segment) -> bytes:
    """Return the bytes of a segment object."""
    return encode_frame(
        FrameKind.SEGMENT,
        store_pb2.Segment(
            epoch=segment.epoch,
            number=segment.number,
            transaction=segment.transaction,
            previous=segment.previous,
            written_ms=segment.written_ms,
            records=[
                store_pb2.Record(key=key, value=value) for key, value in segment.records.items()
            ],
        ),
    )


def decode_segment(payload: bytes, *, number: int, path: str) -> Segment:
    """Read a segment object; raises Corruption."""
    found = decode_frame(payload, FrameKind.SEGMENT, store_pb2.Segment, path=path)
    if found.number != number:
        raise Corruption(f"segment {found.number} is where {number} belongs", path=path)
    return Segment(
        epoch=found.epoch,
        number=found.number,
        transaction=found.transaction,
        previous=found.previous,
        written_ms=found.written_ms,
        records={
            record.key: record.value if record.HasField("value") else None
            for record in found.records
        },
    )


def encode_checkpoint(state: State) -> bytes:
    """Return the bytes of a checkpoint object; equal states have equal bytes in every process."""
    return encode_frame(
        FrameKind.CHECKPOINT,
        store_pb2.Checkpoint(
            epoch=state.epoch,
            segment=state.segment,
            entries=[store_pb2.Record(key=key, value=value) for key, value in state.scan("")],
            recent=[
                store_pb2.DecidedTransaction(
                    segment=decided.segment, transaction=decided.transaction
                )
                for decided in state.recent
            ],
        ),
    )


def decode_checkpoint(payload: bytes, *, number: int, path: str) -> State:
    """Read a checkpoint object; raises Corruption."""
    found = decode_frame(payload, FrameKind.CHECKPOINT, store_pb2.Checkpoint, path=path)
    if found.segment != number:
        raise Corruption(f"checkpoint {found.segment} is where {number} belongs", path=path)
    if any(left.key >= right.key for left, right in pairwise(found.entries)):
        raise Corruption("the keys of a checkpoint are not in ascending order", path=path)
    return State.from_entries(
        {record.key: record.value for record in found.entries},
        epoch=found.epoch,
        segment=found.segment,
        recent=tuple(Decided(decided.segment, decided.transaction) for decided in found.recent),
    )


def encode_lease(lease: Lease) -> bytes:
    """Return the bytes of a lease object."""
    return encode_frame(
        FrameKind.LEASE,
        store_pb2.Lease(
            id=lease.lease_id.encode(),
            version=lease.version,
            expires_ms=lease.expires_ms,
            last_version=lease.last_version or 0,
            holder=lease.holder,
            taken_ms=lease.taken_ms,
        ),
    )


def decode_lease(payload: bytes, *, path: str) -> Lease:
    """Read a lease object; raises Corruption."""
    found = decode_frame(payload, FrameKind.LEASE, store_pb2.Lease, path=path)
    return Lease(
        lease_id=found.id.decode(errors="replace"),
        version=found.version,
        expires_ms=found.expires_ms,
        last_version=found.last_version or None,
        holder=found.holder,
        taken_ms=found.taken_ms,
    )


def numbers_in(objects: ObjectStore, prefix: str, *, after: int = 0) -> Iterator[int]:
    """Yield numbers above `after` of objects named `prefix` and twenty digits; skip others."""
    for found in objects.list(prefix, after=f"{prefix}{after:020}"):
        digits = found.path.removeprefix(prefix)
        if len(digits) == 20 and digits.isdecimal() and digits.isascii():  # noqa: PLR2004
            yield int(digits)
