"""Objects of manifest stores, and a whole store with its chain, as trees.

manifest/catalog  1 checkpoint · 3 segments · 0 leases
HEAD · segment 3 · checkpoint: none · transaction 9f86d081 · epoch 3c…
╭─ segment 1 · 1 record · transaction 2c26b46b after nothing · 2026-11-15T05:54:06.336+00:00
│ put  root                       74  {"format":1,"namespaces":{},…}
╰─
✔ the chain is whole up to HEAD

The first bytes of an object decide what it is, not its name: `NEVE` and a kind, or `MRUB`. Damage
is reported, and reading continues with the next object. Records are a line each:

    put  root                   312  {"format":1,"namespaces":{"shop":{}},…}
    put  version/…0002          204  version 2 APPEND: 1 file added, 0 removed, 2 marked
    del  announced/t000001-…

A value is shown as the manifest of a version or a JSON document if it is one, otherwise as bytes.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, assert_never

from rich.text import Text

from neve.errors import Corruption, InvalidArgument, LimitExceeded, NeveError, NotFound
from neve.inspect.opened_file import OpenedFile
from neve.inspect.page import Group, Line, Part, Tree, damaged
from neve.inspect.shown_text import Json, show_bytes, shown_text
from neve.manifest import mrub_pb2, store_pb2
from neve.manifest.documents import (
    FRAME_BYTES_MAX,
    FrameKind,
    Head,
    Lease,
    Segment,
    StorePaths,
    decode_checkpoint,
    decode_frame,
    decode_head,
    decode_lease,
    decode_segment,
    numbers_in,
)
from neve.manifest.mrub import decode_mrub
from neve.manifest.state import State
from neve.model.display import counted, shown_moment
from neve.storage.local_store import LocalStore
from neve.storage.object_store import ObjectStore

_FRAME_MAGIC: Final = b"NEVE"
_MRUB_MAGIC: Final = b"MRUB"
_KIND_OFFSET: Final = len(_FRAME_MAGIC)
_TRANSACTION_DIGITS: Final = 8
_STATUS: Final = {0: "~", 1: "+", 2: "-"}
_FORMS: Final = {
    mrub_pb2.FORM_UNSPECIFIED: "merutable",
    mrub_pb2.FORM_STATE: "state",
    mrub_pb2.FORM_EDIT: "edit",
}
_NUMBERED: Final = re.compile(r"(?:seg|ckpt)-([0-9]{20})")
_STORES_NAMED: Final = 5
_VALUE_LETTERS: Final = 10_000

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
    """The objects of a store; segments and checkpoints by number."""

    head: ManifestPart | None
    checkpoints: tuple[int, ...]
    segments: tuple[int, ...]
    leases: tuple[str, ...]
    foreign: tuple[str, ...]
    """Objects that do not belong to a store."""


@dataclass(slots=True)
class ChainJudge:
    """Follows the segments of a store as they are shown, and notes where the chain breaks."""

    head: Head | None
    problems: list[str] = field(default_factory=list)
    _reached: int = 0
    _transaction: bytes | None = b""
    """Of the last segment; None if it could not be read."""

    def begin(self, checkpoint: State) -> None:
        """Start after a checkpoint."""
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
        """Take the next segment, which exists but cannot be read: what it follows is unknown."""
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
    """Return whether bytes begin like one of these objects."""
    return payload.startswith((_FRAME_MAGIC, _MRUB_MAGIC))


def is_version_manifest(payload: bytes) -> bool:
    """Return whether bytes begin like the manifest of a version."""
    return payload.startswith(_MRUB_MAGIC)


def read_content(payload: bytes, *, path: str, number: int | None = None) -> Content:
    """Decode one object; raises Corruption. `number` is the one in its name."""
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
    """Read one object of a store; damage is reported, never raised."""
    payload = b""
    try:
        payload = objects.get(path).payload
        content = read_content(payload, path=path, number=number)
    except NeveError as error:
        return ManifestPart(name=name, byte_count=len(payload), content=None, damage=error.message)
    return ManifestPart(name=name, byte_count=len(payload), content=content)


def inspect_store(objects: ObjectStore, paths: StorePaths, *, shown: str) -> InspectedStore:
    """List the objects of a store; raises InvalidArgument if it is not a store."""
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


def title_of(content: Content) -> str:
    """Describe an object in one line."""
    match content:
        case Head():
            checkpoint = content.checkpoint or "none"
            return (
                f"HEAD · segment {content.segment} · checkpoint: {checkpoint} · transaction "
                f"{_transaction(content.transaction)} · epoch {content.epoch:x}"
            )
        case Segment():
            return (
                f"segment {content.number} · {counted(len(content.records), 'record')} · "
                f"transaction {_transaction(content.transaction)} after "
                f"{_transaction(content.previous)} · {shown_moment(content.written_ms)}"
            )
        case State():
            return (
                f"checkpoint of segment {content.segment} · "
                f"{counted(len(content.entries.keys), 'record')} · "
                f"{counted(len(content.recent), 'transaction')} remembered"
            )
        case Lease():
            return (
                f"lease {shown_text(content.lease_id)} on {_leased(content)} until "
                f"{shown_moment(content.expires_ms)}"
                f"{' · ' if content.holder else ''}{shown_text(content.holder)}"
            )
        case mrub_pb2.Manifest():
            return _manifest_title(content)
        case _:
            assert_never(content)


def _leased(lease: Lease) -> str:
    if lease.last_version is None:
        return f"version {lease.version}"
    return f"versions {lease.version} to {lease.last_version}"


def lines_of(content: Content) -> Iterator[Line]:
    """Yield the records, entries or files of an object, a line each."""
    match content:
        case Segment():
            for key, value in content.records.items():
                yield Line(_record_line(key, value), None)
        case State():
            for key, value in content.entries.by_key.items():
                yield Line(_record_line(key, value), None)
        case mrub_pb2.Manifest():
            for ref in content.data_files:
                yield Line(_file_line(ref))
        case Head() | Lease():
            return
        case _:
            assert_never(content)


def content_json(content: Content) -> dict[str, Json]:
    """Return everything in an object."""
    match content:
        case Head():
            return {
                "kind": "head",
                "segment": content.segment,
                "checkpoint": content.checkpoint,
                "transaction": content.transaction.hex(),
                "epoch": content.epoch,
            }
        case Segment():
            return {
                "kind": "segment",
                "segment": content.number,
                "transaction": content.transaction.hex(),
                "previous": content.previous.hex(),
                "epoch": content.epoch,
                "written_ms": content.written_ms,
                "records": [_record_json(key, value) for key, value in content.records.items()],
            }
        case State():
            return {
                "kind": "checkpoint",
                "segment": content.segment,
                "epoch": content.epoch,
                "entries": [
                    _record_json(key, value) for key, value in content.entries.by_key.items()
                ],
                "recent": [
                    {"segment": decided.segment, "transaction": decided.transaction.hex()}
                    for decided in content.recent
                ],
            }
        case Lease():
            return {
                "kind": "lease",
                "id": content.lease_id,
                "version": content.version,
                "last_version": content.last_version,
                "expires_ms": content.expires_ms,
                "holder": content.holder or None,
                "taken_ms": content.taken_ms or None,
            }
        case mrub_pb2.Manifest():
            return {"kind": "manifest", **_manifest_json(content)}
        case _:
            assert_never(content)


def _transaction(transaction: bytes) -> str:
    return transaction.hex()[:_TRANSACTION_DIGITS] or "nothing"


def _record_line(key: str, value: bytes | None) -> Text:
    if value is None:
        return Text.assemble(("del  ", "yellow"), shown_text(key))
    line = Text.assemble(
        ("put  ", "green"), f"{shown_text(key):<30}", (f"{len(value):>9,}  ", "dim")
    )
    # A value may be long; the page clips it.
    return line.append(_value_words(value)[:_VALUE_LETTERS], "dim")


def _value_words(value: bytes) -> str:
    if is_version_manifest(value):
        try:
            return _manifest_title(decode_mrub(value, path=""))
        except NeveError as error:
            return f"damaged: {error.message}"
    shown = show_bytes(value)
    return shown.shown if shown.form == "text" else f"0x{shown.shown}"


def _record_json(key: str, value: bytes | None) -> Json:
    if value is None:
        return {"key": key, "delete": True}
    if is_version_manifest(value):
        try:
            return {"key": key, "manifest": _manifest_json(decode_mrub(value, path=""))}
        except NeveError as error:
            return {"key": key, "damage": error.message, **_bytes_json(value)}
    try:
        document: Json = json.loads(value)
    except (ValueError, RecursionError):
        return {"key": key, **_bytes_json(value)}
    return {"key": key, "document": document}


def _bytes_json(value: bytes) -> dict[str, Json]:
    shown = show_bytes(value)
    return {shown.form: shown.shown}


def _manifest_title(manifest: mrub_pb2.Manifest) -> str:
    counts = [sum(ref.status == status for ref in manifest.data_files) for status in _STATUS]
    kept, added, removed = counts
    operation = shown_text(manifest.operation) or "manifest"
    if manifest.form == mrub_pb2.FORM_EDIT:
        changed = f"{counted(added, 'file')} added, {removed:,} removed, {kept:,} marked"
        return f"version {manifest.snapshot_id} {operation}: {changed}"
    return f"version {manifest.snapshot_id} {operation} in full: {counted(kept + added, 'file')}"


def _file_line(ref: mrub_pb2.DataFileRef) -> Text:
    line = Text.assemble(f"{_STATUS.get(ref.status, '?')} {shown_text(ref.path)}")
    if ref.num_rows:
        facts = f"  level {ref.level} · {counted(ref.num_rows, 'row')}"
        line.append(f"{facts} · {counted(ref.file_size, 'byte')}", "dim")
    if ref.HasField("dv_cardinality"):
        line.append(f" · {counted(ref.dv_cardinality, 'row')} marked", "yellow")
    if ref.wal_segments:
        first, last = ref.wal_segments[0], ref.wal_segments[-1]
        line.append(f" · logged {first.first_frame:,} to {last.last_frame:,}", "dim")
    return line


def _manifest_json(manifest: mrub_pb2.Manifest) -> dict[str, Json]:
    has_parent = manifest.HasField("previous_snapshot_id")
    return {
        "form": _FORMS.get(manifest.form, "unknown"),
        "version": manifest.snapshot_id,
        "parent": manifest.previous_snapshot_id if has_parent else None,
        "operation": manifest.operation,
        "timestamp_ms": manifest.last_updated_ms,
        "schema_id": manifest.schema_id,
        "spec_id": manifest.partition_spec_id,
        "summary": dict(manifest.properties),
        "table_uuid": manifest.table_uuid or None,
        "last_column_id": manifest.last_column_id or None,
        "wal_segments": [_segment_json(ref) for ref in manifest.wal_segments],
        "files": [_file_json(ref) for ref in manifest.data_files],
    }


def _file_json(ref: mrub_pb2.DataFileRef) -> Json:
    return {
        "status": ref.status,
        "path": ref.path,
        "level": ref.level,
        "rows": ref.num_rows,
        "bytes": ref.file_size,
        "key_min": show_bytes(ref.key_min).to_json(),
        "key_max": show_bytes(ref.key_max).to_json(),
        "marked": ref.dv_cardinality if ref.HasField("dv_cardinality") else None,
        "vector": ref.dv_path if ref.HasField("dv_path") else None,
        "commit_ms_min": ref.commit_ms_min or None,
        "commit_ms_max": ref.commit_ms_max or None,
        "wal_segments": [_segment_json(each) for each in ref.wal_segments],
    }


def _segment_json(ref: mrub_pb2.WalSegmentRef) -> Json:
    return {
        "log_number": ref.seq,
        "file_id": ref.file_id,
        "first_frame": ref.first_frame,
        "last_frame": ref.last_frame,
    }


class _Room:
    """Passes on a limited number of record lines, and counts the others."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self.left_out = 0

    def of(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield the lines within the limit."""
        for line in lines:
            if self._left > 0:
                self._left -= 1
                yield line
            else:
                self.left_out += 1

    def rest(self) -> Iterator[Line]:
        """Yield a line with how many were left out."""
        if self.left_out:
            yield Line(Text(f"… {counted(self.left_out, 'more record')}: raise --limit", "dim"))


def object_tree(opened: OpenedFile, path: str, *, limit: int | None, drawn: int) -> Tree:
    """Return the tree of one object: at most `limit` records in JSON, `drawn` in a drawing."""
    if opened.byte_count > FRAME_BYTES_MAX:
        raise LimitExceeded(
            "the file is larger than any object of a manifest",
            path=path,
            limit=FRAME_BYTES_MAX,
            actual=opened.byte_count,
        )
    payload = opened.read_at(0, opened.byte_count)
    if not is_manifest_object(payload):
        raise InvalidArgument(
            f"{path} is not an object of a manifest: it begins neither with NEVE nor with MRUB"
            f"{opened.likeness_words()}",
            hint="Name a HEAD, segment, checkpoint or lease, or the directory of a store",
        )
    numbered = _NUMBERED.fullmatch(opened.name)
    content = read_content(
        payload, path=path, number=None if numbered is None else int(numbered[1])
    )
    part = ManifestPart(name=opened.name, byte_count=len(payload), content=content)
    room = _Room(drawn)
    return Tree(
        name=part.name,
        facts=[counted(part.byte_count, "byte")],
        members={"file": part.name, **_part_json(part, limit)},
        groups=[Group(name=None, parts=[_shown(part, room, None)])],
        verdicts=room.rest,
    )


def store_tree(path: str, *, limit: int | None, drawn: int) -> Tree:
    """Return the tree of a whole store, in a directory."""
    directory = Path(path).resolve()
    _refuse_lake(directory, path)
    objects = LocalStore(str(directory.parent), create=False)
    paths = StorePaths(directory.name)
    store = inspect_store(objects, paths, shown=path)
    view = _StoreView(objects, paths, store)
    room = _Room(drawn)

    def parts(read: Iterator[ManifestPart]) -> Iterator[Part]:
        return (_shown(part, room, limit) for part in read)

    def verdicts() -> Iterator[Line]:
        for name in store.foreign:
            words = f"? {shown_text(name)}: not an object of a store, skipped"
            yield Line(Text(words, "yellow"))
        yield from room.rest()
        problems = view.problems()
        yield from map(damaged, problems)
        if not problems:
            yield Line(Text("✔ the chain is whole up to HEAD", "green"))

    head = store.head
    return Tree(
        name=path,
        facts=[
            counted(len(store.checkpoints), "checkpoint"),
            counted(len(store.segments), "segment"),
            counted(len(store.leases), "lease"),
        ],
        members={
            "kind": "store",
            "path": path,
            "head": None if head is None else _part_json(head, None),
        },
        groups=[
            Group(name=None, parts=[] if head is None else [_shown(head, room, None)]),
            Group(name="checkpoints", parts=parts(view.checkpoints())),
            Group(name="segments", parts=parts(view.segments())),
            Group(name="leases", parts=parts(view.leases())),
        ],
        last_members=lambda: {"foreign": list(store.foreign), "problems": view.problems()},
        verdicts=verdicts,
        find_problems=view.problems,
    )


def _shown(part: ManifestPart, room: _Room, limit: int | None) -> Part:
    if part.content is None:
        # The verdict at the end says why.
        facts = f"{counted(part.byte_count, 'byte')} · damaged"
        title = damaged(f"{part.name} · {facts}")
        return Part(json=_part_json(part, limit), title=title, is_box=False)
    return Part(
        json=_part_json(part, limit),
        title=Line(Text(title_of(part.content))),
        lines=room.of(lines_of(part.content)),
        is_box=any(True for _ in lines_of(part.content)),
    )


def _refuse_lake(directory: Path, path: str) -> None:
    """Raise an error that lists the stores in a directory, such as a whole lake."""
    if (directory / "HEAD").exists() or (directory / "segments").is_dir():
        return
    found = sorted(
        str(head.parent.relative_to(directory))
        for pattern in ("*/HEAD", "*/*/HEAD", "*/*/*/HEAD")
        for head in directory.glob(pattern)
    )
    if found:
        more = len(found) - _STORES_NAMED
        names = ", ".join(found[:_STORES_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        raise InvalidArgument(
            f"{path} is not a manifest store, but contains some: {names}",
            hint=f"Name one: {path.rstrip('/')}/{found[0]}",
        )


@dataclass(slots=True)
class _StoreView:
    """Reads the objects of a store once, in order, and judges its chain on the way."""

    objects: ObjectStore
    paths: StorePaths
    store: InspectedStore
    damage: list[str] = field(default_factory=list)
    judge: ChainJudge = field(init=False)

    def __post_init__(self) -> None:
        head = self.store.head
        self.judge = ChainJudge(
            head.content if head is not None and isinstance(head.content, Head) else None
        )
        if head is None:
            self.damage.append("there is no HEAD")
        else:
            self._note(head)

    def checkpoints(self) -> Iterator[ManifestPart]:
        head = self.judge.head
        for number in self.store.checkpoints:
            path = self.paths.checkpoint(number)
            part = read_part(self.objects, path, name=f"checkpoint {number}", number=number)
            self._note(part)
            if head is not None and number == head.checkpoint and isinstance(part.content, State):
                self.judge.begin(part.content)
            yield part
        if head is not None and head.checkpoint and head.checkpoint not in self.store.checkpoints:
            self.damage.append(f"checkpoint {head.checkpoint} is missing, which HEAD needs")

    def segments(self) -> Iterator[ManifestPart]:
        head = self.judge.head
        covered = 0 if head is None else head.checkpoint
        for number, part in segment_parts(self.objects, self.paths, self.store.segments):
            self._note(part)
            if number > covered:
                if isinstance(part.content, Segment):
                    self.judge.follow(part.content)
                else:
                    self.judge.pass_over(number)
            yield part
        self.judge.end()

    def leases(self) -> Iterator[ManifestPart]:
        for path in self.store.leases:
            part = read_part(self.objects, path, name=path.removeprefix(f"{self.paths.prefix}/"))
            self._note(part)
            yield part

    def problems(self) -> list[str]:
        return [*self.damage, *self.judge.problems]

    def _note(self, part: ManifestPart) -> None:
        if part.damage is not None:
            self.damage.append(f"{part.name}: {part.damage}")


def _part_json(part: ManifestPart, limit: int | None) -> dict[str, Json]:
    if part.content is None:
        return {"name": part.name, "bytes": part.byte_count, "damage": part.damage}
    members = content_json(part.content)
    if limit is not None:
        for name in ("records", "entries", "files"):
            listed = members.get(name)
            if isinstance(listed, list) and len(listed) > limit:
                members[name] = listed[:limit]
                members[f"omitted_{name}"] = len(listed) - limit
    return {"bytes": part.byte_count, **members}
