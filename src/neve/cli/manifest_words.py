"""What is in an object of a manifest store, in words and as JSON.

    put  root                   312  {"format":1,"namespaces":{"shop":{}},…}
    put  version/…0002          204  version 2 APPEND: 1 file added, 0 removed, 2 marked
    del  announced/t000001-…

A value is a manifest of a version where it begins as one, a JSON document where it is one, and
otherwise bytes.
"""

import json
from collections.abc import Iterator
from typing import Final, assert_never

from rich.text import Text

from neve.errors import NeveError
from neve.inspect.manifest import Content, is_version_manifest
from neve.inspect.shown_text import Json, show_bytes, shown_text
from neve.manifest import mrub_pb2
from neve.manifest.documents import Head, Lease, Segment
from neve.manifest.mrub import decode_mrub
from neve.manifest.state import State
from neve.model.display import counted, shown_moment

_TRANSACTION_DIGITS: Final = 8
_STATUS: Final = {0: "~", 1: "+", 2: "-"}
_FORMS: Final = {
    mrub_pb2.FORM_UNSPECIFIED: "merutable",
    mrub_pb2.FORM_STATE: "state",
    mrub_pb2.FORM_EDIT: "edit",
}


def title_of(content: Content) -> str:
    """Say in one line what an object is."""
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


def lines_of(content: Content, *, columns: int) -> Iterator[Text]:
    """Tell the records, entries or files of an object, a line each."""
    match content:
        case Segment():
            for key, value in content.records.items():
                yield _record_line(key, value, columns)
        case State():
            for key, value in content.entries.by_key.items():
                yield _record_line(key, value, columns)
        case mrub_pb2.Manifest():
            for ref in content.data_files:
                yield _file_line(ref)
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


def _record_line(key: str, value: bytes | None, columns: int) -> Text:
    if value is None:
        return Text.assemble(("del  ", "yellow"), shown_text(key))
    line = Text.assemble(
        ("put  ", "green"), f"{shown_text(key):<30}", (f"{len(value):>9,}  ", "dim")
    )
    room = max(20, columns - len(line.plain))
    words = _value_words(value)
    return line.append(words if len(words) <= room else f"{words[: room - 1]}…", "dim")


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
