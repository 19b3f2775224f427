"""Objects of manifest stores as values for people to look at, and a whole store with its chain.

An object is known by its first bytes, not by its name: `NEVE` and a kind, or `MRUB`. What is
damaged is told, and reading goes on with the next object.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from neve.errors import Corruption, InvalidArgument, NeveError, NotFound
from neve.manifest import mrub_pb2, store_pb2
from neve.manifest.documents import (
    Head,
    Lease,
    Segment,
    StorePaths,
    decode_checkpoint,
    decode_head,
    decode_lease,
    decode_segment,
    numbers_in,
)
from neve.manifest.frame import FrameKind, decode_frame
from neve.manifest.mrub import decode_mrub
from neve.manifest.state import State
from neve.storage.object_store import ObjectStore

_FRAME_MAGIC: Final = b"NEVE"
_MRUB_MAGIC: Final = b"MRUB"
_KIND_OFFSET: Final = len(_FRAME_MAGIC)

Content = Head | Segment | State | Lease | mrub_pb2.Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPart:
    """One object that was read, or why it could not be."""

    name: str
    byte_count: int
    content: Content | None
    damage: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedStore:
    """What there is of a store; segments and checkpoints by number."""

    head: ManifestPart | None
    checkpoints: tuple[int, ...]
    segments: tuple[int, ...]
    leases: tuple[str, ...]
    foreign: tuple[str, ...]
    """Objects that no store makes."""


@dataclass(slots=True)
class ChainJudge:
    """Follows the segments of a store as they are shown, and notes where the chain breaks."""

    head: Head | None
    problems: list[str] = field(default_factory=list)
    _reached: int = 0
    _transaction: bytes | None = b""
    """Of the last segment; None when that could not be read."""

    def begin(self, checkpoint: State) -> None:
        """Start behind a checkpoint."""
        self._reached, self._transaction = checkpoint.segment, checkpoint.transaction

    def follow(self, segment: Segment) -> None:
        """Take the next segment."""
        if self.head is None or segment.number > self.head.segment:
            return
        if segment.number != self._reached + 1:
            self.problems.append(f"segment {self._reached + 1} is missing")
        elif self._transaction is not None and segment.previous != self._transaction:
            self.problems.append(f"segment {segment.number} does not follow the one before it")
        self._reached, self._transaction = segment.number, segment.transaction

    def pass_over(self, number: int) -> None:
        """Take the next segment, which cannot be read: it is there, and what it follows unknown."""
        if self.head is None or number > self.head.segment:
            return
        if number != self._reached + 1:
            self.problems.append(f"segment {self._reached + 1} is missing")
        self._reached, self._transaction = number, None

    def end(self) -> None:
        """Compare the end with HEAD."""
        if self.head is None:
            return
        if self._reached < self.head.segment:
            self.problems.append(f"segment {self._reached + 1} is missing, which HEAD needs")
        elif self._transaction is not None and self._transaction != self.head.transaction:
            self.problems.append("the last segment is not the one that HEAD names")


def is_manifest_object(payload: bytes) -> bool:
    """Return whether bytes begin as one of these objects does."""
    return payload.startswith((_FRAME_MAGIC, _MRUB_MAGIC))


def is_version_manifest(payload: bytes) -> bool:
    """Return whether bytes begin as the manifest of a version does."""
    return payload.startswith(_MRUB_MAGIC)


def read_content(payload: bytes, *, path: str, number: int | None = None) -> Content:
    """Decode one object; raises Corruption. `number` is the one its name says it has."""
    if is_version_manifest(payload):
        return decode_mrub(payload, path=path)
    kind = payload[_KIND_OFFSET] if len(payload) > _KIND_OFFSET else 0
    match kind:
        case FrameKind.HEAD:
            return decode_head(payload, tag="", path=path)
        case FrameKind.SEGMENT:
            found = decode_frame(payload, FrameKind.SEGMENT, store_pb2.Segment, path=path)
            return decode_segment(payload, number=_or(number, found.number), path=path)
        case FrameKind.CHECKPOINT:
            folded = decode_frame(payload, FrameKind.CHECKPOINT, store_pb2.Checkpoint, path=path)
            return decode_checkpoint(payload, number=_or(number, folded.segment), path=path)
        case FrameKind.LEASE:
            return decode_lease(payload, path=path)
        case _:
            raise Corruption(f"an object of the unknown kind {kind}", path=path)


def read_part(
    objects: ObjectStore, path: str, *, name: str, number: int | None = None
) -> ManifestPart:
    """Read one object of a store; damage is told, never raised."""
    payload = b""
    try:
        payload = objects.get(path).payload
        content = read_content(payload, path=path, number=number)
    except NeveError as error:
        return ManifestPart(name=name, byte_count=len(payload), content=None, damage=error.message)
    return ManifestPart(name=name, byte_count=len(payload), content=content)


def inspect_store(objects: ObjectStore, paths: StorePaths, *, shown: str) -> InspectedStore:
    """Look through a store; raises InvalidArgument when there is none."""
    segments = tuple(numbers_in(objects, paths.segments))
    checkpoints = tuple(numbers_in(objects, paths.checkpoints))
    try:
        objects.size(paths.head)
    except NotFound:
        head = None
        if not segments and not checkpoints:
            raise InvalidArgument(
                f"{shown} is not a manifest store: it has no HEAD and no segments",
                hint="Stores are manifest/catalog and the directories in manifest/version",
            ) from None
    else:
        head = read_part(objects, paths.head, name="HEAD")
    known = {paths.head}
    known |= {paths.segment(number) for number in segments}
    known |= {paths.checkpoint(number) for number in checkpoints}
    leases, foreign = [], []
    for info in objects.list(f"{paths.prefix}/"):
        if info.path.startswith(paths.leases):
            leases.append(info.path)
        elif info.path not in known:
            foreign.append(info.path.removeprefix(f"{paths.prefix}/"))
    return InspectedStore(
        head=head,
        checkpoints=checkpoints,
        segments=segments,
        leases=tuple(leases),
        foreign=tuple(foreign),
    )


def segment_parts(
    objects: ObjectStore, paths: StorePaths, numbers: tuple[int, ...]
) -> Iterator[tuple[int, ManifestPart]]:
    """Read segments one by one, each with its number."""
    for number in numbers:
        path = paths.segment(number)
        yield number, read_part(objects, path, name=f"segment {number}", number=number)


def _or(number: int | None, otherwise: int) -> int:
    return otherwise if number is None else number
