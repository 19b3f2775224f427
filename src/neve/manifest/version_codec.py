"""The encoding of Versions and edits: both are a `Manifest` in an MRUB frame.

    form     file status   holds
    ─────    ───────────   ──────────────────────────────────────────────────────────────
    STATE    0 existing    every fact of every file of the version, in its order, and after them
                           those of its remembered deletes, which have their own file format
    EDIT     2 deleted     path of a file that the version no longer has
             0 existing    path and new vector of a file that stays
             1 added       every fact of a new file

    Version and edit            Manifest
    ─────────────────────────   ─────────────────────────────────────────────────────────
    number, or base + 1         snapshot_id, sequence_number
    parent, or base             previous_snapshot_id, absent for the first version
    timestamp_ms, summary       last_updated_ms, properties
    operation, schema_id, …     fields of the same name

MANIFEST-C1  Whatever is written can be read: both sides check MANIFEST-F1 to MANIFEST-F3, with
             InvalidArgument before anything is written and Corruption after anything is read.
MANIFEST-C2  An unknown form, status, format or operation was written by a newer neve and is
             refused, because its meaning may matter; so are delete files, which neve does not
             apply.
MANIFEST-C3  Unknown fields of a manifest and of its whole files are kept in `unread`, so that an
             older neve that folds a newer one's edits into a state loses none of them.
MANIFEST-F1  No number is negative, and each fits the field that stores it: 31 bits for ids and
             levels, 32 for checksums, 63 for the others.
MANIFEST-F2  Every path could be a file of the table's store: nothing absolute, no `..`.
MANIFEST-F3  No file is named twice among those of a Version, those added, or those removed.

These rules are about storing. `neve.manifest.invariants` decides which Versions may be published.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from neve.errors import Corruption, InvalidArgument
from neve.manifest import mrub_pb2
from neve.manifest.mrub import NEWER_HINT, damaged, decode_mrub, encode_mrub
from neve.model.data_file import (
    ColumnStatistics,
    DataFile,
    FileFormat,
    PartitionValue,
    VectorRef,
    WalSegmentRef,
)
from neve.model.version import Operation, Version, VersionEdit, VersionFacts
from neve.storage.table_paths import check_path, is_remembered

_INT32_BITS: Final = 31
_UINT32_BITS: Final = 32
_INT64_BITS: Final = 63


def check_version_fits(version: Version) -> None:
    """Raise InvalidArgument for a Version that could not be read back."""
    what = f"version {version.number}"
    _check_numbers(
        what,
        _INT64_BITS,
        number=version.number,
        next_row_id=version.next_row_id,
        first_row_id=version.first_row_id,
    )
    parent = 0 if version.parent is None else version.parent
    if version.parent == 0 or not 0 <= parent < version.number:
        raise InvalidArgument(
            f"{what} cannot follow version {version.parent}",
            hint="Number versions from 1, and a parent before its child",
        )
    _check_facts(what, version.facts)
    for path, file in version.files.items():
        if path != file.path:
            raise InvalidArgument(
                f"{what} lists the file {file.path!a} as {path!a}",
                hint="Key the files of a version by their paths",
            )
    _check_files((*version.files.values(), *version.deletes.values()))


def check_edit_fits(edit: VersionEdit) -> None:
    """Raise InvalidArgument for an edit that could not be read back."""
    what = f"the edit of version {edit.base}"
    _check_numbers(what, _INT64_BITS, base=edit.base, number=edit.base + 1)
    _check_facts(what, edit.facts)
    for path in (*edit.removed, *edit.vectors, *edit.deletes_removed):
        check_path(path)
    for path, vector in edit.vectors.items():
        check_path(vector.path)
        _check_vector(path, vector)
    added = (*edit.added, *edit.deletes_added)
    _check_files(added)
    _check_named_once("removes", (*edit.removed, *edit.deletes_removed))
    _check_named_once("adds", [file.path for file in added])


def _check_facts(what: str, facts: VersionFacts) -> None:
    _check_numbers(what, _INT64_BITS, timestamp_ms=facts.timestamp_ms)
    _check_numbers(
        what,
        _INT32_BITS,
        schema_id=facts.schema_id,
        spec_id=facts.spec_id,
        last_column_id=facts.last_column_id,
    )
    _check_segments(what, facts.wal_segments)


def _check_named_once(verb: str, paths: Sequence[str]) -> None:
    if len(set(paths)) < len(paths):
        ((path, times),) = Counter(paths).most_common(1)
        raise InvalidArgument(
            f"an edit {verb} {path!a} {times} times", hint="Name each file of an edit once"
        )


def _check_files(files: Iterable[DataFile]) -> None:
    vector_paths = set[str]()  # many files share the Puffin file of a commit
    for file in files:
        check_path(file.path)
        _check_file_numbers(file)
        if file.vector is not None:
            vector_paths.add(file.vector.path)
            _check_vector(file.path, file.vector)
    for path in vector_paths:
        check_path(path)


def _check_file_numbers(file: DataFile) -> None:
    _check_numbers(
        file.path,
        _INT64_BITS,
        file_bytes=file.file_bytes,
        row_count=file.row_count,
        sequence_min=file.sequence_min,
        sequence_max=file.sequence_max,
        first_row_id=file.first_row_id or 0,
        data_sequence=file.data_sequence,
        commit_ms_min=file.commit_ms_min,
        commit_ms_max=file.commit_ms_max,
    )
    _check_numbers(
        file.path, _INT32_BITS, level=file.level, spec_id=file.spec_id, schema_id=file.schema_id
    )
    _check_numbers(file.path, _UINT32_BITS, footer_crc=file.footer_crc)
    for member in file.partition:
        _check_numbers(file.path, _INT32_BITS, field_id=member.field_id)
    for column in file.statistics:
        _check_statistics(file.path, column)
    _check_segments(file.path, file.wal_segments)


def _check_statistics(path: str, column: ColumnStatistics) -> None:
    nan_count = column.nan_count or 0
    # A state has mostly these. One check covers all: an OR keeps every sign and every high bit.
    counts = column.compressed_bytes | column.value_count | column.null_count | nan_count
    if not (counts >> _INT64_BITS or column.field_id >> _INT32_BITS):
        return
    _check_numbers(path, _INT32_BITS, field_id=column.field_id)
    _check_numbers(
        path,
        _INT64_BITS,
        compressed_bytes=column.compressed_bytes,
        value_count=column.value_count,
        null_count=column.null_count,
        nan_count=nan_count,
    )


def _check_vector(path: str, vector: VectorRef) -> None:
    _check_numbers(
        path,
        _INT64_BITS,
        offset=vector.offset,
        length=vector.length,
        cardinality=vector.cardinality,
    )


def _check_segments(what: str, segments: tuple[WalSegmentRef, ...]) -> None:
    for segment in segments:
        _check_numbers(
            what,
            _INT64_BITS,
            log_number=segment.log_number,
            first_frame=segment.first_frame,
            last_frame=segment.last_frame,
        )


def _check_numbers(what: str, bits: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number >> bits:  # also true for a negative number: the shift keeps its sign
            raise InvalidArgument(
                f"{name} {number} of {what} is not between 0 and 2^{bits} - 1",
                hint="Pass the number that was counted or measured",
            )


class _Status(IntEnum):
    """What a manifest says about a file; on disk: never change."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


_VECTOR_FIELDS: Final = frozenset({"dv_path", "dv_offset", "dv_length", "dv_cardinality"})
_FIELDS_WHEN_DELETED: Final = frozenset({"path", "status"})
_FIELDS_WHEN_MARKED: Final = _VECTOR_FIELDS | {"path"}


def encode_version(version: Version) -> bytes:
    """Return the bytes of a whole Version; raises InvalidArgument if they could not be read."""
    check_version_fits(version)
    with _refusing_what_protobuf_cannot_hold():
        manifest = manifest_of(version.facts, number=version.number, parent=version.parent)
        manifest.form = mrub_pb2.FORM_STATE
        manifest.next_row_id = version.next_row_id
        manifest.first_row_id = version.first_row_id
        for file in (*version.files.values(), *version.deletes.values()):
            _add_file(manifest, file, _Status.EXISTING)
    return encode_mrub(manifest)


def encode_edit(edit: VersionEdit) -> bytes:
    """Return the bytes of an edit; raises InvalidArgument if they could not be read."""
    check_edit_fits(edit)
    with _refusing_what_protobuf_cannot_hold():
        manifest = manifest_of(edit.facts, number=edit.base + 1, parent=edit.base or None)
        manifest.form = mrub_pb2.FORM_EDIT
        for path in (*edit.removed, *edit.deletes_removed):
            manifest.data_files.add(path=path, status=_Status.DELETED)
        for path, vector in edit.vectors.items():
            manifest.data_files.add(
                path=path,
                dv_path=vector.path,
                dv_offset=vector.offset,
                dv_length=vector.length,
                dv_cardinality=vector.cardinality,
            )
        for file in (*edit.added, *edit.deletes_added):
            _add_file(manifest, file, _Status.ADDED)
    return encode_mrub(manifest)


def decode_version(frame: bytes, *, path: str) -> Version:
    """Read a whole Version; raises Corruption naming `path`, the place of the frame."""
    manifest = manifest_in(frame, mrub_pb2.FORM_STATE, path)
    files: dict[str, DataFile] = {}
    for ref in manifest.data_files:
        if _status_of(ref, path) is not _Status.EXISTING:
            raise damaged(f"a whole version says that {_shown(ref)} has changed", path)
        if ref.path in files:
            raise damaged(f"a version names {_shown(ref)} twice", path)
        files[ref.path] = _file_of(ref, path)
    version = Version(
        number=manifest.snapshot_id,
        parent=_parent_of(manifest),
        facts=_facts_of(manifest, path),
        files={
            path: file for path, file in files.items() if file.format is not FileFormat.REMEMBERED
        },
        deletes={
            path: file for path, file in files.items() if file.format is FileFormat.REMEMBERED
        },
        next_row_id=manifest.next_row_id,
        first_row_id=manifest.first_row_id,
    )
    with _damage_at(path):
        check_version_fits(version)
    return version


def decode_edit(frame: bytes, *, path: str) -> VersionEdit:
    """Read an edit; raises Corruption naming `path`, the place of the frame."""
    found = read_edit(frame, path=path)
    added = [_file_of(ref, path) for ref in found.added]
    edit = VersionEdit(
        base=found.base,
        facts=found.facts,
        added=tuple(file for file in added if file.format is not FileFormat.REMEMBERED),
        removed=tuple(each for each in found.removed if not is_remembered(each)),
        vectors=found.vectors,
        deletes_added=tuple(file for file in added if file.format is FileFormat.REMEMBERED),
        deletes_removed=tuple(filter(is_remembered, found.removed)),
    )
    with _damage_at(path):
        check_edit_fits(edit)
    return edit


@dataclass(frozen=True, slots=True, kw_only=True)
class EditMessage:
    """An edit whose new files are still messages: fast to read, but their facts are unchecked."""

    base: int
    facts: VersionFacts
    added: tuple[mrub_pb2.DataFileRef, ...]
    removed: tuple[str, ...]
    vectors: Mapping[str, VectorRef]

    @property
    def brought(self) -> Iterator[str]:
        """Yield the paths of files that it adds to the table, including vectors."""
        for ref in self.added:
            yield ref.path
            if ref.HasField("dv_path"):
                yield ref.dv_path
        for vector in self.vectors.values():
            yield vector.path


def read_edit(frame: bytes, *, path: str) -> EditMessage:
    """Read an edit except the facts of its new files; raises Corruption naming `path`."""
    manifest = manifest_in(frame, mrub_pb2.FORM_EDIT, path)
    added: list[mrub_pb2.DataFileRef] = []
    removed: list[str] = []
    vectors: dict[str, VectorRef] = {}
    for ref in manifest.data_files:
        match _status_of(ref, path):
            case _Status.ADDED:
                added.append(ref)
            case _Status.DELETED:
                _check_only(ref, _FIELDS_WHEN_DELETED, path)
                removed.append(ref.path)
            case _Status.EXISTING:
                _check_only(ref, _FIELDS_WHEN_MARKED, path)
                vector = _vector_of(ref, path)
                if vector is None or ref.path in vectors:
                    raise damaged(f"an edit gives {_shown(ref)} no vector, or two", path)
                vectors[ref.path] = vector
    base = _parent_of(manifest) or 0
    if manifest.snapshot_id != base + 1:
        raise damaged(f"an edit leads from version {base} to {manifest.snapshot_id}", path)
    return EditMessage(
        base=base,
        facts=_facts_of(manifest, path),
        added=tuple(added),
        removed=tuple(removed),
        vectors=vectors,
    )


# Values to messages.


def manifest_of(facts: VersionFacts, *, number: int, parent: int | None) -> mrub_pb2.Manifest:
    """Return the message for a commit's facts; raises ValueError, DecodeError for foreign bytes."""
    manifest = mrub_pb2.Manifest(
        snapshot_id=number,
        sequence_number=number,
        schema_id=facts.schema_id,
        partition_spec_id=facts.spec_id,
        previous_snapshot_id=parent,
        last_updated_ms=facts.timestamp_ms,
        properties=facts.summary,
        operation=facts.operation,
        table_uuid=facts.table_uuid,
        last_column_id=facts.last_column_id,
    )
    for segment in facts.wal_segments:
        _fill_segment(manifest.wal_segments.add(), segment)
    manifest.MergeFromString(facts.unread)
    return manifest


def _add_file(manifest: mrub_pb2.Manifest, file: DataFile, status: _Status) -> None:
    ref = manifest.data_files.add(
        path=file.path,
        file_size=file.file_bytes,
        num_rows=file.row_count,
        level=file.level,
        seq_min=file.sequence_min,
        seq_max=file.sequence_max,
        key_min=file.key_min,
        key_max=file.key_max,
        status=status,
        format=file.format,
        first_row_id=file.first_row_id,
        data_sequence=file.data_sequence,
        footer_crc=file.footer_crc,
        spec_id=file.spec_id,
        schema_id=file.schema_id,
        commit_ms_min=file.commit_ms_min,
        commit_ms_max=file.commit_ms_max,
    )
    if file.vector is not None:
        ref.dv_path = file.vector.path
        ref.dv_offset = file.vector.offset
        ref.dv_length = file.vector.length
        ref.dv_cardinality = file.vector.cardinality
    for member in file.partition:
        ref.partition.add(field_id=member.field_id, value=member.value)
    for column in file.statistics:
        ref.statistics.add(
            field_id=column.field_id,
            compressed_bytes=column.compressed_bytes,
            value_count=column.value_count,
            null_count=column.null_count,
            nan_count=column.nan_count,
            lower=column.lower,
            upper=column.upper,
        )
    for segment in file.wal_segments:
        _fill_segment(ref.wal_segments.add(), segment)
    if file.unread:
        ref.MergeFromString(file.unread)


def _fill_segment(ref: mrub_pb2.WalSegmentRef, segment: WalSegmentRef) -> None:
    ref.seq = segment.log_number
    ref.file_id = segment.file_id
    ref.first_frame = segment.first_frame
    ref.last_frame = segment.last_frame


@contextmanager
def _refusing_what_protobuf_cannot_hold() -> Iterator[None]:
    try:
        yield
    except (ValueError, DecodeError) as error:
        raise InvalidArgument(
            f"a version cannot be stored: {error}",
            hint="Use texts with a UTF-8 form, and `unread` from a stored version",
        ) from error


# Messages to values.


def manifest_in(frame: bytes, form: mrub_pb2.Form, path: str) -> mrub_pb2.Manifest:
    """Read the message of a state or an edit; raises Corruption."""
    manifest = decode_mrub(frame, path=path)
    if manifest.form not in mrub_pb2.Form.values():
        raise _newer(f"manifest form {manifest.form} is unknown", path)
    if manifest.form != form:
        found, wanted = mrub_pb2.Form.Name(manifest.form), mrub_pb2.Form.Name(form)
        raise damaged(f"a manifest of {found} is where {wanted} belongs", path)
    if manifest.delete_files:
        raise _newer("a version names delete files, which this neve does not apply", path)
    if manifest.sequence_number != manifest.snapshot_id:
        raise damaged(
            f"version {manifest.snapshot_id} has the sequence number {manifest.sequence_number}",
            path,
        )
    return manifest


def _parent_of(manifest: mrub_pb2.Manifest) -> int | None:
    return manifest.previous_snapshot_id if manifest.HasField("previous_snapshot_id") else None


def _facts_of(manifest: mrub_pb2.Manifest, path: str) -> VersionFacts:
    try:
        operation = Operation(manifest.operation)
    except ValueError:
        raise _newer(f"operation {manifest.operation[:40]!a} is unknown", path) from None
    return VersionFacts(
        operation=operation,
        timestamp_ms=manifest.last_updated_ms,
        schema_id=manifest.schema_id,
        spec_id=manifest.partition_spec_id,
        summary=dict(manifest.properties),
        wal_segments=_segments_of(manifest.wal_segments),
        table_uuid=manifest.table_uuid,
        last_column_id=manifest.last_column_id,
        unread=_unread_of(manifest),
    )


def _status_of(ref: mrub_pb2.DataFileRef, path: str) -> _Status:
    try:
        return _Status(ref.status)
    except ValueError:
        raise _newer(f"file status {ref.status} is unknown", path) from None


def _file_of(ref: mrub_pb2.DataFileRef, path: str) -> DataFile:
    try:
        file_format = FileFormat(ref.format)
    except ValueError:
        raise _newer(f"file format {ref.format} is unknown", path) from None
    return DataFile(
        path=ref.path,
        file_bytes=ref.file_size,
        row_count=ref.num_rows,
        level=ref.level,
        key_min=ref.key_min,
        key_max=ref.key_max,
        sequence_min=ref.seq_min,
        sequence_max=ref.seq_max,
        format=file_format,
        vector=_vector_of(ref, path),
        first_row_id=ref.first_row_id if ref.HasField("first_row_id") else None,
        data_sequence=ref.data_sequence,
        footer_crc=ref.footer_crc,
        spec_id=ref.spec_id,
        partition=tuple(
            PartitionValue(
                field_id=member.field_id,
                value=member.value if member.HasField("value") else None,
            )
            for member in ref.partition
        ),
        schema_id=ref.schema_id,
        statistics=tuple(_statistics_of(column) for column in ref.statistics),
        commit_ms_min=ref.commit_ms_min,
        commit_ms_max=ref.commit_ms_max,
        wal_segments=_segments_of(ref.wal_segments),
        unread=_unread_of(ref),
    )


def _statistics_of(column: mrub_pb2.ColumnStatistics) -> ColumnStatistics:
    return ColumnStatistics(
        field_id=column.field_id,
        compressed_bytes=column.compressed_bytes,
        value_count=column.value_count,
        null_count=column.null_count,
        nan_count=column.nan_count if column.HasField("nan_count") else None,
        lower=column.lower if column.HasField("lower") else None,
        upper=column.upper if column.HasField("upper") else None,
    )


def _vector_of(ref: mrub_pb2.DataFileRef, path: str) -> VectorRef | None:
    present = [name for name in _VECTOR_FIELDS if ref.HasField(name)]
    if not present:
        return None
    if len(present) < len(_VECTOR_FIELDS):
        raise damaged(f"half of the vector of {_shown(ref)} is missing", path)
    return VectorRef(
        path=ref.dv_path,
        offset=ref.dv_offset,
        length=ref.dv_length,
        cardinality=ref.dv_cardinality,
    )


def _segments_of(refs: Iterable[mrub_pb2.WalSegmentRef]) -> tuple[WalSegmentRef, ...]:
    return tuple(
        WalSegmentRef(
            log_number=ref.seq,
            file_id=ref.file_id,
            first_frame=ref.first_frame,
            last_frame=ref.last_frame,
        )
        for ref in refs
    )


def _unread_of(message: mrub_pb2.Manifest | mrub_pb2.DataFileRef) -> bytes:
    """Return the unknown fields: what is left when all known ones are cleared."""
    if not len(UnknownFieldSet(message)):
        return b""
    rest = copy.deepcopy(message)
    for field, _ in message.ListFields():
        rest.ClearField(field.name)
    return rest.SerializeToString(deterministic=True)


def _shown(ref: mrub_pb2.DataFileRef) -> str:
    """Quote a path that is not checked yet as one short line."""
    return f"{ref.path[:80]!a}"


def _check_only(ref: mrub_pb2.DataFileRef, allowed: frozenset[str], path: str) -> None:
    surplus = sorted({field.name for field, _ in ref.ListFields()} - allowed)
    if surplus:
        raise damaged(
            f"an edit says {', '.join(surplus)} of {_shown(ref)}, which it does not add", path
        )


@contextmanager
def _damage_at(path: str) -> Iterator[None]:
    try:
        yield
    except InvalidArgument as error:
        raise damaged(error.message, path) from error


def _newer(message: str, path: str) -> Corruption:
    return Corruption(message, path=path, hint=NEWER_HINT)
