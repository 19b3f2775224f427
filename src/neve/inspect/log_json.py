"""A log as one JSON document.

    {
      "file": "000001.wal", "bytes": 65536, "dialect": "crc32c", "header": "recyclable",
      "log_number": 1, "payload": "batch", "from": 0,
      "blocks":  [{"block": 0, "offset": 0, "bytes": 32768, "fill": 0.25, "parts": [part, …]}, …],
      "records": [{"offset": 0, "bytes": 33, "fragments": […], "behind_end": false,
                   "batch": {…} or "edit": {…}}, …],
      "damage":  [{"offset": 99, "dropped_bytes": 7, "reason": "…", "behind_end": false}, …],
      "omitted_records": 0,
      "end":     {"offset": 100, "reason": "closed", "detail": "…"},
      "totals":  {"records": 2, "records_behind_end": 0, "rows": 1, "rows_behind_end": 0,
                  "damaged": 0, "dropped_bytes": 0}
    }

Keys are stable: new ones may be added, none change their meaning. Keys and values of rows are
`{"text": …}` if they are printable, otherwise `{"hex": …}`. A run of blocks with only zeros is one
element with `"blocks": n` and one part. `fill` is the share of a block that records after `from`
take.

Totals are of the whole file after `from`: `records` counts all intact records, `rows` those that
recovery reads; what it does not reach is counted as after the end.

With a limit, records beyond it are left out and counted in `omitted_records`, and blocks and parts
after the last record shown are left out. The first 10,000 places of damage are always reported.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple, assert_never

import pyarrow as pa

from neve.errors import NeveError
from neve.inspect.opened_file import OpenedFile
from neve.inspect.page import JsonDocument
from neve.inspect.shown_text import Json, show_bytes, value_to_json
from neve.model.arrow_types import field_id_of
from neve.model.row_codec import describe_row
from neve.wal.inspected_batch import AppliedEntry, Entry, InspectedBatch, RowsEntry
from neve.wal.inspection import (
    Block,
    DamagedPart,
    EmptyBlocks,
    InspectedDamage,
    LogicalRecord,
    LogInspection,
    PaddingPart,
    Part,
    RecordHeader,
    RecordPart,
    StalePart,
    ZerosPart,
)
from neve.wal.log_ending import Ending
from neve.wal.segment_reader import DamageKind
from neve.wal.version_edits import Fact, InternalKey, RocksEdit

_FIRST_ROWS: Final = 3
# A file of nothing but damage must not fill the memory; all of it is counted.
_DAMAGE_MAX: Final = 10_000


class ColumnWords(NamedTuple):
    """One column in words."""

    name: str
    type: str
    field_id: int | None


def column_words(rows: pa.RecordBatch) -> list[ColumnWords]:
    """Return the columns of a batch."""
    return [ColumnWords(field.name, str(field.type), field_id_of(field)) for field in rows.schema]


def first_rows(rows: pa.RecordBatch) -> list[dict[str, object]]:
    """Return the first rows of a batch; none if Python cannot represent a value in them."""
    try:
        return rows.slice(0, _FIRST_ROWS).to_pylist()
    except (pa.ArrowException, ValueError, OverflowError, KeyError):
        # ValueError: a name in a struct that is not text. KeyError: an unknown time zone.
        return []


class LogJson:
    """Writes the document of one log."""

    def __init__(self, inspection: LogInspection, *, limit: int | None, hex_only: bool) -> None:
        self._inspection = inspection
        self._limit = limit
        self._hex_only = hex_only
        self._damage: list[Json] = []
        self._omitted = 0
        self._ending: Ending | None = None

    def write(self, file: OpenedFile) -> Ending:
        """Write everything; return how the log ends."""
        identity = self._inspection.identity
        document = JsonDocument()
        document.members(
            {
                "file": file.name,
                "bytes": file.byte_count,
                "dialect": identity.dialect,
                "header": header_kind(recyclable=identity.recyclable),
                "log_number": identity.log_number,
                "payload": self._inspection.payload,
                "from": self._inspection.start_offset,
            }
        )
        document.array("blocks", self._blocks())
        document.array("records", self._records())
        assert self._ending is not None, "records end with their Ending"
        ending = self._ending
        document.array("damage", self._damage)
        document.members(
            {
                "omitted_records": self._omitted,
                "end": {
                    "offset": ending.offset,
                    "reason": ending.reason,
                    "detail": ending.detail,
                },
                "totals": {
                    "records": ending.record_count,
                    "records_behind_end": ending.records_behind_end,
                    "rows": ending.row_count,
                    "rows_behind_end": ending.rows_behind_end,
                    "damaged": ending.damage_count,
                    "dropped_bytes": ending.dropped_bytes,
                },
            }
        )
        document.end()
        return ending

    def _blocks(self) -> Iterator[Json]:
        end_offset = self._shown_until()
        for block in self._inspection.blocks():
            if end_offset is not None and block.offset >= end_offset:
                return
            yield _block(block, end_offset)

    def _shown_until(self) -> int | None:
        """Find where the last shown record ends; None if all are shown."""
        if self._limit is None:
            return None
        records = (each for each in self._inspection.records() if isinstance(each, LogicalRecord))
        end_offset = 0
        shown = 0
        for record in islice(records, self._limit):
            end_offset = record.fragments[-1].end_offset
            shown += 1
        return end_offset if shown == self._limit else None

    def _records(self) -> Iterator[Json]:
        shown = 0
        for item in self._inspection.records():
            match item:
                case LogicalRecord() if self._limit is not None and shown >= self._limit:
                    self._omitted += 1
                case LogicalRecord():
                    shown += 1
                    yield self._record(item)
                case InspectedDamage():
                    if len(self._damage) < _DAMAGE_MAX:
                        self._damage.append(_damage(item))
                case Ending():
                    self._ending = item
                case _:
                    assert_never(item)

    def _record(self, record: LogicalRecord) -> Json:
        content: Mapping[str, Json]
        if isinstance(record.content, InspectedBatch):
            content = {"batch": self._batch(record.content, record.payload)}
        else:
            content = {"edit": self._edit(record.content)}
        return {
            "offset": record.offset,
            "bytes": len(record.payload),
            "fragments": [
                {
                    "offset": each.offset,
                    "block": each.block,
                    "type": each.kind,
                    "bytes": each.length,
                }
                for each in record.fragments
            ],
            "behind_end": record.behind_end,
            **content,
        }

    def _batch(self, batch: InspectedBatch, payload: bytes) -> Json:
        members: dict[str, Json] = {
            "sequence": batch.sequence,
            "next_sequence": batch.next_sequence,
            "count": batch.entry_count,
        }
        if batch.stamps is not None:
            members["schema_version"] = batch.stamps.schema_version
            members["durable_through"] = batch.stamps.durable_through
            members["nonce"] = f"{batch.stamps.nonce:016x}"
            start = batch.stamps.log_start
            members["log_start"] = None if start is None else start.log_number
            if start is not None:
                members["table"] = None if start.table is None else str(start.table)
                members["epoch"] = start.epoch
                members["reserved_bytes"] = start.reserved_bytes
            members["log_end"] = batch.stamps.log_end
        members["entries"] = [self._entry(entry) for entry in batch.entries]
        if batch.omitted_count:
            members["omitted_entries"] = batch.omitted_count
        if batch.problem is not None:
            members["problem"] = batch.problem
            members["payload"] = {"hex": payload.hex()}
        return members

    def _entry(self, entry: Entry | RowsEntry | AppliedEntry) -> Json:
        if isinstance(entry, RowsEntry):
            return self._rows(entry)
        if isinstance(entry, AppliedEntry):
            return {**entry._asdict()}
        members: dict[str, Json] = {"op": entry.op, "tag": entry.tag, "sequence": entry.sequence}
        if entry.column_family is not None:
            members["column_family"] = entry.column_family
        for name, content in entry.fields:
            members[name] = show_bytes(content, hex_only=self._hex_only).to_json()
        if self._inspection.identity.is_own and entry.op == "put":
            row = self._row(entry.fields[1].content)
            if row is not None:
                members["row"] = row
        return members

    def _row(self, value: bytes) -> Json:
        """Return a value by fields if it is a row of neve; otherwise None."""
        try:
            fields = describe_row(value)
        except NeveError:
            return None
        return [
            {
                "field_id": field_id,
                "type": type_name,
                "value": value_to_json(each, hex_only=self._hex_only),
            }
            for field_id, type_name, each in fields
        ]

    def _rows(self, entry: RowsEntry) -> Json:
        rows = entry.rows
        members: dict[str, Json] = {
            "op": entry.op,
            "tag": entry.tag,
            "sequence": entry.sequence,
            "rows": rows.num_rows,
            "bytes": rows.nbytes,
            "columns": [
                {"name": name, "type": type_name, "field_id": field_id}
                for name, type_name, field_id in column_words(rows)
            ],
            "first_rows": [value_to_json(row, hex_only=self._hex_only) for row in first_rows(rows)],
        }
        if entry.field_ids:
            members["field_ids"] = entry.field_ids
        return members

    def _edit(self, edit: RocksEdit) -> Json:
        members: dict[str, Json] = {
            "fields": [
                {
                    "tag": field.tag,
                    "field": field.name,
                    **{fact.name: self._fact(fact) for fact in field.facts},
                }
                for field in edit.fields
            ]
        }
        if edit.omitted_count:
            members["omitted_fields"] = edit.omitted_count
        if edit.problem is not None:
            members["problem"] = edit.problem
        return members

    def _fact(self, fact: Fact) -> Json:
        match fact.value:
            case InternalKey(user_key, sequence, write_type):
                key = show_bytes(user_key, hex_only=self._hex_only).to_json()
                return {"key": key, "sequence": sequence, "type": write_type}
            case other:
                return value_to_json(other, hex_only=self._hex_only)


def header_kind(*, recyclable: bool | None) -> str | None:
    """Name the kind of header."""
    if recyclable is None:
        return None
    return "recyclable" if recyclable else "standard"


def fragment_name(header: RecordHeader) -> str:
    """Name a header's type, for both kinds of headers."""
    return header.type_name.removeprefix("recyclable ")


def completes_a_record(part: Part) -> bool:
    """Whether a part is the only or last fragment of a logical record."""
    return (
        isinstance(part, RecordPart)
        and not part.ignored
        and fragment_name(part.header) in {"full", "last"}
    )


def _block(block: Block | EmptyBlocks, end_offset: int | None) -> Json:
    """Return a block with its parts before `end_offset`."""
    match block:
        case EmptyBlocks():
            zeros: Json = {
                "kind": "zeros",
                "offset": block.offset,
                "bytes": block.byte_count,
                "hidden_bytes": 0,
            }
            return {
                "block": block.index,
                "blocks": block.block_count,
                "offset": block.offset,
                "bytes": block.byte_count,
                "fill": 0.0,
                "parts": [zeros],
            }
        case Block():
            return {
                "block": block.index,
                "offset": block.offset,
                "bytes": block.byte_count,
                "fill": round(block.fill, 4),
                "parts": [
                    _part(part)
                    for part in block.parts
                    if end_offset is None or part.offset < end_offset
                ],
            }
        case _:
            assert_never(block)


def _part(part: Part) -> Json:
    place: dict[str, Json] = {"offset": part.offset, "bytes": part.byte_count}
    match part:
        case RecordPart():
            kind = "ignored" if part.ignored else "record"
            return {"kind": kind, **place, **_header(part.header), "checksum": "ok"}
        case StalePart():
            return {"kind": "stale", **place, "log_number": part.log_number}
        case PaddingPart():
            return {"kind": "padding", **place}
        case ZerosPart():
            return {"kind": "zeros", **place, "hidden_bytes": part.hidden_bytes}
        case DamagedPart():
            header = {} if part.header is None else {"header": _header(part.header)}
            checksum = {"checksum": "bad"} if part.kind is DamageKind.CHECKSUM_MISMATCH else {}
            return {"kind": "damaged", **place, "reason": part.kind, **header, **checksum}
        case _:
            assert_never(part)


def _header(header: RecordHeader) -> dict[str, Json]:
    return {"type": fragment_name(header), "length": header.length}


def _damage(damage: InspectedDamage) -> Json:
    return {
        "offset": damage.offset,
        "dropped_bytes": damage.dropped_bytes,
        "reason": damage.kind,
        "behind_end": damage.behind_end,
    }
