"""What a record of a log holds, in lines for people."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from rich.text import Text

from neve.errors import NeveError
from neve.inspect.log_json import column_words, first_rows
from neve.inspect.page import clipped
from neve.inspect.shown_text import show_bytes, shown_text, value_to_text
from neve.model.display import counted
from neve.model.row_codec import describe_row
from neve.wal.inspected_batch import Entry, InspectedBatch, RowsEntry
from neve.wal.inspection import LogicalRecord
from neve.wal.version_edits import EditField, Fact, InternalKey, VersionEdit

_ENTRIES_MAX: Final = 12
_DUMP_BYTES_MAX: Final = 256
# Longest line of a dump with so many bytes in it, for pages of every width.
_DUMP_LINES: Final = ((75, 16), (43, 8), (27, 4))
_COLUMNS_TOLD_MAX: Final = 8
_WORDS_MIN: Final = 24
_BEHIND: Final = "  behind the end"
_DOTS: Final = bytes(
    byte if chr(byte).isascii() and chr(byte).isprintable() else ord(".") for byte in range(256)
)
_OP_STYLES: Final = {"put": "green", "upsert rows": "green", "unknown": "bold red"}


class RecordWords:
    """Tells records, each line clipped to `columns`."""

    def __init__(self, *, columns: int, hex_only: bool, rows_are_own: bool) -> None:
        self.told_field_ids = False
        """Whether columns were told by number, which needs a word of explanation."""
        self._columns = max(_WORDS_MIN, columns)
        self._hex_only = hex_only
        self._rows_are_own = rows_are_own

    def of(self, record: LogicalRecord) -> Iterator[Text]:
        """Yield at least one line about a record."""
        if isinstance(record.content, InspectedBatch):
            lines = self._batch(record.content)
        else:
            lines = self._edit(record.content)
        first = next(lines, Text("empty", "dim"))
        if record.behind_end:
            room = max(1, self._columns - len(_BEHIND))
            first = clipped(first, room).append(_BEHIND, "yellow")
        yield first
        yield from lines

    def dump(self, payload: bytes, *, columns: int) -> Iterator[Text]:
        """Yield the first bytes of a payload as a hexadecimal dump, when bytes are shown so."""
        if not self._hex_only:
            return
        shown = payload[:_DUMP_BYTES_MAX]
        fitting = [count for length, count in _DUMP_LINES if length <= columns]
        in_line = fitting[0] if fitting else _DUMP_LINES[-1][1]
        for at in range(0, len(shown), in_line):
            piece = shown[at : at + in_line]
            letters = piece.translate(_DOTS).decode("ascii")
            yield Text(f"{at:08x}  {piece.hex(' '):<{3 * in_line - 1}}  {letters}", "dim")
        if len(payload) > len(shown):
            yield Text(f"… {len(payload) - len(shown):,} more bytes", "dim")

    def plain(self, text: str) -> str:
        """Return a text that may come from a file without control characters."""
        return shown_text(text)

    def _batch(self, batch: InspectedBatch) -> Iterator[Text]:
        stamps = batch.stamps
        if stamps is not None and stamps.log_start is not None:
            start = stamps.log_start
            begins = f"log {start.log_number} begins"
            yield Text.assemble((begins, "bold"), f" at row {batch.sequence:,}")
            if start.table is not None:
                yield Text(f"of table {start.table}, epoch {start.epoch:,}")
        if stamps is not None and stamps.log_end:
            yield Text("log ends, closed in good order", "bold")
        for entry in batch.entries[:_ENTRIES_MAX]:
            if isinstance(entry, RowsEntry):
                yield from self._rows(entry)
            else:
                yield self._entry(entry)
        left = len(batch.entries) - _ENTRIES_MAX + batch.omitted_count
        if left > 0:
            yield Text(f"… {left:,} more entries", "dim")
        if batch.problem is not None:
            yield Text(f"not a batch: {self.plain(batch.problem)}", "bold red")

    def _entry(self, entry: Entry) -> Text:
        line = Text()
        if entry.sequence is not None:
            line.append(f"row {entry.sequence:,}  ", "bold")
        line.append(entry.op, _OP_STYLES.get(entry.op, "magenta"))
        if entry.column_family is not None:
            line.append(f" in family {entry.column_family}", "dim")
        if entry.op == "unknown":
            line.append(f" tag {entry.tag:#04x}", "bold red")
        room = max(16, self._columns - len(line.plain) - len("  = "))
        for name, content in entry.fields:
            if name == "key":
                line.append(f" {self._bytes(content, room // 2)}")
            elif name == "value":
                line.append(" = ", "dim").append(self._value(content, room // 2))
            else:
                line.append(f" {name} ", "dim").append(self._bytes(content, room // 2))
        return line

    def _value(self, value: bytes, length: int) -> str:
        if self._rows_are_own and not self._hex_only:
            try:
                fields = describe_row(value)
            except NeveError:
                pass
            else:
                self.told_field_ids = True
                told = " ".join(
                    f"#{field_id}={value_to_text(each, length=length)}"
                    for field_id, _, each in fields[:_COLUMNS_TOLD_MAX]
                )
                return _clip(told, length)
        return self._bytes(value, length)

    def _rows(self, entry: RowsEntry) -> Iterator[Text]:
        rows = entry.rows
        last = entry.sequence + rows.num_rows - 1
        line = Text.assemble(
            (f"rows {entry.sequence:,} to {last:,}  ", "bold"),
            (entry.op, _OP_STYLES.get(entry.op, "magenta")),
        )
        columns = column_words(rows)
        names = [self.plain(column.name) for column in columns[:_COLUMNS_TOLD_MAX]]
        if len(columns) > _COLUMNS_TOLD_MAX:
            names.append(f"and {len(columns) - _COLUMNS_TOLD_MAX} more")
        told = (
            f": {counted(rows.num_rows, 'row')}, {counted(rows.nbytes, 'byte')}, "
            f"columns {', '.join(names)}"
        )
        yield line.append(_clip(told, max(16, self._columns - len(line.plain))))
        for row in first_rows(rows):
            values = [
                value_to_text(value, length=24) for value in islice(row.values(), _COLUMNS_TOLD_MAX)
            ]
            yield Text(_clip(f"  {'  '.join(values)}", self._columns), "dim")

    def _edit(self, edit: VersionEdit) -> Iterator[Text]:
        for field in edit.fields[:_ENTRIES_MAX]:
            yield self._edit_field(field)
        left = len(edit.fields) - _ENTRIES_MAX + edit.omitted_count
        if left > 0:
            yield Text(f"… {left:,} more fields", "dim")
        if edit.problem is not None:
            yield Text(f"not an edit: {self.plain(edit.problem)}", "bold red")

    def _edit_field(self, field: EditField) -> Text:
        line = Text.assemble((field.name, _OP_STYLES.get(field.name, "green")))
        if field.name == "unknown":
            line.append(f" tag {field.tag}", "bold red")
        facts = "  ".join(f"{fact.name} {self._fact(fact)}" for fact in field.facts)
        return line.append(f"  {_clip(facts, max(16, self._columns - len(line.plain)))}")

    def _fact(self, fact: Fact) -> str:
        match fact.value:
            case InternalKey(user_key, sequence, _):
                return f"{self._bytes(user_key, 32)} at row {sequence:,}"
            case bytes(content):
                return self._bytes(content, 32)
            case other:
                return self.plain(str(other))

    def _bytes(self, content: bytes, length: int) -> str:
        return show_bytes(content, hex_only=self._hex_only).clipped(max(8, length))


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
