"""A log drawn the way a person would draw it on a board.

    ╭─ block 0 ─ bytes 0 to 32,767 ─ 100% records ────────────────
    │ ██▓▓██▓▓████████████████████████████████████████████████████▁
    │       0  full       33  log 1 begins
    │      44  full       28  row 1  put "a" = "1"
    │      83  first  32,674  ╮
    ╰─────────────────────────
    ╭─ block 1 ─ …
    │  32,768  last    9,000  ╯ rows 2 to 1,001  upsert rows: 1,000 rows of id, name

Each strip is its block to scale, with neighbouring records in two shades. After an offset come the
kind of the part and the bytes it holds. A record is shown at its last fragment.

No line is wider than the page: the lines of blocks are clipped, all others wrapped.
"""

from collections.abc import Iterator
from itertools import groupby, islice
from typing import Final, NamedTuple, assert_never

from rich.text import Text

from neve.errors import NeveError
from neve.inspect.log_json import (
    column_words,
    completes_a_record,
    first_rows,
    fragment_name,
    header_kind,
)
from neve.inspect.opened_file import OpenedFile
from neve.inspect.page import clipped, wrapped
from neve.inspect.shown_text import show_bytes, shown_text, value_to_text
from neve.model.display import counted
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
    PayloadKind,
    RecordPart,
    StalePart,
    ZerosPart,
)
from neve.wal.log_ending import Ending, EndReason
from neve.wal.record_format import BLOCK_BYTES, Dialect
from neve.wal.segment_reader import DamageKind
from neve.wal.version_edits import EditField, Fact, InternalKey, RocksEdit

_ENTRIES_MAX: Final = 12
_DUMP_BYTES_MAX: Final = 256
# Widths of lines in a dump, and the bytes that each holds.
_DUMP_LINES: Final = ((75, 16), (43, 8), (27, 4))
_COLUMNS_MAX: Final = 8
_WORDS_MIN: Final = 24
_AFTER_END: Final = "  after the end"
_DOTS: Final = bytes(
    byte if chr(byte).isascii() and chr(byte).isprintable() else ord(".") for byte in range(256)
)
_OP_STYLES: Final = {"put": "green", "upsert rows": "green", "unknown": "bold red"}
STRIP_COLUMNS_MAX: Final = 64
STRIP_MEANINGS: Final = {
    "█": "█▓ records",
    "▁": "▁ padding",
    "·": "· zeros",
    "~": "~ an earlier log",
    "✗": "✗ damaged",
}
_WRITERS: Final = {
    Dialect.CRC32C: "neve",
    Dialect.ROCKSDB: "RocksDB or LevelDB",
    Dialect.MERUTABLE: "merutable (a table engine in Rust)",
}
_HEADERS: Final = {
    "recyclable": "recyclable headers (with log number)",
    "standard": "standard headers",
}
_PAYLOADS: Final = {
    PayloadKind.BATCH: "write batches",
    PayloadKind.EDIT: "version edits (files that joined or left)",
}
_ENDINGS: Final = {
    EndReason.CLOSED: ("✔", "green"),
    EndReason.END_OF_FILE: ("✔", "green"),
    EndReason.UNWRITTEN: ("✔", "green"),
    EndReason.STALE: ("✔", "green"),
    EndReason.TORN_TAIL: ("~", "yellow"),
    EndReason.DAMAGE: ("✗", "bold red"),
}
# Visible in the part itself; other damage shows only when records are assembled.
_PHYSICAL_DAMAGE: Final = frozenset(DamageKind) - {
    DamageKind.UNFINISHED_RECORD,
    DamageKind.MISSING_START,
    DamageKind.MISSING_END,
    DamageKind.INTERRUPTED_RECORD,
}
_DAMAGE_LINES_MAX: Final = 20
_OFFSET_COLUMNS_MIN: Final = 7
_KIND_COLUMNS: Final = 7
_BYTES_COLUMNS: Final = 7
_JOINTS: Final = {"first": "╮", "middle": "│", "last": "╯"}


class RecordWords:
    """Words records, each line clipped to `columns`."""

    def __init__(self, *, columns: int, hex_only: bool, rows_are_own: bool) -> None:
        self.has_field_ids = False
        """Whether columns were shown by number, which needs an explanation."""
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
            room = max(1, self._columns - len(_AFTER_END))
            first = clipped(first, room).append(_AFTER_END, "yellow")
        yield first
        yield from lines

    def dump(self, payload: bytes, *, columns: int) -> Iterator[Text]:
        """Yield the first bytes of a payload as a hexadecimal dump, if asked for."""
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
        """Return a text from a file without control characters."""
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
            elif isinstance(entry, AppliedEntry):
                yield self._applied(entry)
            else:
                yield self._entry(entry)
        left = len(batch.entries) - _ENTRIES_MAX + batch.omitted_count
        if left > 0:
            yield Text(f"… {left:,} more entries", "dim")
        if batch.problem is not None:
            yield Text(f"not a batch: {self.plain(batch.problem)}", "bold red")

    def _applied(self, entry: AppliedEntry) -> Text:
        line = Text.assemble((f"sequence {entry.sequence:,}  ", "bold"), (entry.op, "magenta"))
        words = f" {entry.batch:,} of {self.plain(entry.application)}"
        return line.append(_clip(words, max(16, self._columns - len(line.plain))))

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
                self.has_field_ids = True
                words = " ".join(
                    f"#{field_id}={value_to_text(each, length=length)}"
                    for field_id, _, each in fields[:_COLUMNS_MAX]
                )
                return _clip(words, length)
        return self._bytes(value, length)

    def _rows(self, entry: RowsEntry) -> Iterator[Text]:
        rows = entry.rows
        last = entry.sequence + rows.num_rows - 1
        line = Text.assemble(
            (f"rows {entry.sequence:,} to {last:,}  ", "bold"),
            (entry.op, _OP_STYLES.get(entry.op, "magenta")),
        )
        columns = column_words(rows)
        names = [self.plain(column.name) for column in columns[:_COLUMNS_MAX]]
        if len(columns) > _COLUMNS_MAX:
            names.append(f"and {len(columns) - _COLUMNS_MAX} more")
        words = (
            f": {counted(rows.num_rows, 'row')}, {counted(rows.nbytes, 'byte')}, "
            f"columns {', '.join(names)}"
        )
        yield line.append(_clip(words, max(16, self._columns - len(line.plain))))
        for row in first_rows(rows):
            values = [
                value_to_text(value, length=24) for value in islice(row.values(), _COLUMNS_MAX)
            ]
            yield Text(_clip(f"  {'  '.join(values)}", self._columns), "dim")

    def _edit(self, edit: RocksEdit) -> Iterator[Text]:
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


def strip_of(block: Block, *, columns: int) -> Text:
    """Draw a block to scale, a character for each of its `columns` parts."""
    step = BLOCK_BYTES / columns
    base = block.index * BLOCK_BYTES
    cells = [(" ", "")] * columns
    weight = [0] * columns
    for number, part in enumerate(block.parts):
        symbol, style, rank = _symbol(part, number)
        first = int((part.offset - base) / step)
        last = int((part.offset + part.byte_count - 1 - base) / step)
        for at in range(first, min(last, columns - 1) + 1):
            if rank > weight[at]:
                cells[at] = (symbol, style)
                weight[at] = rank
    runs = ((symbol * len([*run]), style) for (symbol, style), run in groupby(cells))
    return Text.assemble(*runs)


def _symbol(part: Part, number: int) -> tuple[str, str, int]:
    """Return the symbol of a part, its style, and its rank where several share a character."""
    match part:
        case RecordPart():
            return ("█", "cyan", 3) if number % 2 == 0 else ("▓", "blue", 3)
        case DamagedPart():
            return ("✗", "bold red", 5)
        case StalePart():
            return ("~", "yellow", 4)
        case PaddingPart():
            return ("▁", "dim", 2)
        case ZerosPart():
            return ("·", "dim", 1)
        case _:
            assert_never(part)


class _Run(NamedTuple):
    """Consecutive blocks that share one line."""

    first_index: int
    last_index: int
    what: str


class LogDrawing:
    """Draws one log; `ending` is set after the last line."""

    def __init__(
        self,
        file: OpenedFile,
        inspection: LogInspection,
        *,
        columns: int,
        limit: int,
        hex_only: bool,
    ) -> None:
        self.ending: Ending | None = None
        self._file = file
        self._inspection = inspection
        self._columns = columns
        self._limit = limit
        self._offset_columns = max(_OFFSET_COLUMNS_MIN, len(f"{file.byte_count:,}"))
        self._words = RecordWords(
            columns=columns - len(self._begin_line(0, "", 0).plain),
            hex_only=hex_only,
            rows_are_own=inspection.identity.is_own,
        )
        self._items = inspection.records()
        self._next_item: LogicalRecord | InspectedDamage | None = None
        self._shown = 0

    def lines(self) -> Iterator[Text]:
        """Yield the drawing, a line at a time."""
        self._advance()
        yield from self._title()
        symbols: set[str] = set()
        for block in _condensed(self._inspection.blocks()):
            if self._shown >= self._limit:
                break
            for line in self._block(block, symbols):
                yield clipped(line, self._columns)
        yield from self._remaining()
        yield from self._legend(symbols)
        yield from self._summary()

    def _wrapped(self, text: Text, *, indent: int = 2) -> Iterator[Text]:
        return wrapped(text, self._columns, indent=indent)

    def _title(self) -> Iterator[Text]:
        identity = self._inspection.identity
        name = self._words.plain(self._file.name)
        byte_count = (f"  {self._file.byte_count:,} bytes", "dim")
        yield from self._wrapped(Text.assemble((name, "bold"), byte_count))
        facts = []
        if identity.dialect is None:
            facts.append("no readable record")
        else:
            facts.append(f"{identity.dialect} checksums, as {_WRITERS[identity.dialect]} writes")
        if identity.log_number is not None:
            facts.append(f"log {identity.log_number}")
        kind = header_kind(recyclable=identity.recyclable)
        if kind is not None:
            facts.append(_HEADERS[kind])
        facts.append(_PAYLOADS[self._inspection.payload])
        yield from self._wrapped(Text(" · ".join(facts), "dim"))
        yield Text()

    def _block(self, block: Block | EmptyBlocks | _Run, symbols: set[str]) -> Iterator[Text]:
        match block:
            case EmptyBlocks():
                what = f"{counted(block.block_count, 'block')} of zeros, {block.byte_count:,} bytes"
                yield Text(f"   ┊ {what}: reserved, never written", "dim")
            case _Run():
                places = f"blocks {block.first_index:,} to {block.last_index:,}"
                yield Text(f"   ┊ {places}: {block.what}", "dim")
            case Block():
                yield self._rule(block)
                strip = strip_of(block, columns=min(STRIP_COLUMNS_MAX, self._columns - 4))
                symbols.update(strip.plain)
                yield Text.assemble(("│ ", "dim"), strip)
                yield from self._parts(block)
                yield Text(f"╰{'─' * 24}", "dim")
            case _:
                assert_never(block)

    def _rule(self, block: Block) -> Text:
        last = block.offset + block.byte_count - 1
        facts = f" ─ bytes {block.offset:,} to {last:,} ─ {_shares(block)} "
        rule = Text.assemble(("╭─ ", "dim"), (f"block {block.index:,}", "bold"), (facts, "dim"))
        length = min(STRIP_COLUMNS_MAX + 2, self._columns)
        return rule.append("─" * max(0, length - len(rule.plain)), "dim")

    def _parts(self, block: Block) -> Iterator[Text]:
        stale: list[StalePart] = []
        for part in block.parts:
            if isinstance(part, StalePart) and (
                not stale or part.log_number == stale[0].log_number
            ):
                stale.append(part)
                continue
            if stale:
                yield self._stale_line(stale)
                stale = [part] if isinstance(part, StalePart) else []
            if isinstance(part, RecordPart) and not part.ignored:
                yield from self._record(part)
                if self._shown >= self._limit:
                    yield Text("│ …", "dim")
                    return
            elif not isinstance(part, StalePart):
                yield self._part_line(part)
        if stale:
            yield self._stale_line(stale)

    def _record(self, part: RecordPart) -> Iterator[Text]:
        """Yield one physical record, and the logical one that ends with it."""
        kind = fragment_name(part.header)
        line = self._begin_line(part.offset, kind, part.header.length)
        margin = len(line.plain)
        record = self._take_record(part)
        joint = _JOINTS.get(kind, "")
        if record is None:
            yield line.append(joint, "dim")
        else:
            self._shown += 1
            words = self._words.of(record)
            yield line.append(f"{joint} " if joint else "", "dim").append_text(next(words))
            for further in words:
                yield _after_margin(further, margin)
            for further in self._words.dump(record.payload, columns=self._columns - 4):
                yield _after_margin(further, 4)
        while (
            isinstance(self._next_item, InspectedDamage) and self._next_item.offset <= part.offset
        ):
            if self._next_item.kind not in _PHYSICAL_DAMAGE:
                self._shown += 1
                yield Text.assemble(("│ ", "dim"), _damage_line(self._next_item))
            self._advance()

    def _take_record(self, part: RecordPart) -> LogicalRecord | None:
        if not completes_a_record(part):
            return None
        while isinstance(self._next_item, InspectedDamage) and (
            self._next_item.kind in _PHYSICAL_DAMAGE
        ):
            self._advance()
        item = self._next_item
        if isinstance(item, LogicalRecord) and item.fragments[-1].offset == part.offset:
            self._advance()
            return item
        return None

    def _advance(self) -> None:
        item = next(self._items, None)
        if isinstance(item, Ending):
            self.ending = item
            item = None
        self._next_item = item

    def _remaining(self) -> Iterator[Text]:
        """Read to the end: count the records that were not drawn, and report their damage."""
        record_count = damage_count = 0
        while self._next_item is not None:
            item = self._next_item
            if isinstance(item, LogicalRecord):
                record_count += 1
            elif self._shown >= self._limit or item.kind not in _PHYSICAL_DAMAGE:
                damage_count += 1
                if damage_count <= _DAMAGE_LINES_MAX:
                    yield from self._wrapped(_damage_line(item), indent=4)
            self._advance()
        if damage_count > _DAMAGE_LINES_MAX:
            more = damage_count - _DAMAGE_LINES_MAX
            yield Text(f"  ✗ and {counted(more, 'more damaged place')}", "bold red")
        if record_count:
            records = counted(record_count, "more record")
            left_out = Text(f"  … {records}: raise --limit, or start with --from", "dim")
            yield from self._wrapped(left_out, indent=4)

    def _legend(self, symbols: set[str]) -> Iterator[Text]:
        words = [meaning for symbol, meaning in STRIP_MEANINGS.items() if symbol in symbols]
        if self._words.has_field_ids:
            words.append("#1 is the column with field id 1")
        if words:
            yield from self._wrapped(Text(f"  {'   '.join(words)}", "dim"))

    def _summary(self) -> Iterator[Text]:
        ending = self.ending
        assert ending is not None, "records end with their Ending"
        mark, style = _ENDINGS[ending.reason]
        detail = self._words.plain(ending.detail)
        yield Text()
        verdict = f"{mark} reading ends at byte {ending.offset:,}, {ending.reason}: {detail}"
        yield from self._wrapped(Text(verdict, style))
        yield from self._wrapped(Text(f"  {' · '.join(self._figures(ending))}"))

    def _figures(self, ending: Ending) -> Iterator[str]:
        """Yield the counts, and where they apply."""
        start_offset = self._inspection.start_offset
        if start_offset:
            yield f"from byte {start_offset:,}"
        has_rows = self._inspection.payload is PayloadKind.BATCH
        before = [counted(ending.record_count - ending.records_behind_end, "record")]
        after = [counted(ending.records_behind_end, "record")]
        if has_rows:
            before.append(counted(ending.row_count, "row"))
            after.append(counted(ending.rows_behind_end, "row"))
        if ending.records_behind_end:
            yield f"before the end {', '.join(before)}"
            yield f"after it {', '.join(after)}"
        else:
            yield from before
        if ending.damage_count:
            places = counted(ending.damage_count, "damaged place")
            yield f"{places}, {counted(ending.dropped_bytes, 'byte')} dropped"
        else:
            yield "nothing damaged"

    def _begin_line(self, offset: int, kind: str, byte_count: int) -> Text:
        kind_and_bytes = f"{kind:<{_KIND_COLUMNS}}{byte_count:>{_BYTES_COLUMNS},}  "
        return Text.assemble(
            ("│ ", "dim"), f"{offset:>{self._offset_columns},}  ", (kind_and_bytes, "cyan")
        )

    def _part_line(self, part: RecordPart | PaddingPart | ZerosPart | DamagedPart) -> Text:
        match part:
            case RecordPart():
                line = self._begin_line(part.offset, "ignored", part.header.length)
                what = f"type {part.header.type}, which every reader skips"
                return line.append(what, "dim")
            case PaddingPart():
                line = self._begin_line(part.offset, "padding", part.byte_count)
                return line.append("no header fits here", "dim")
            case ZerosPart():
                line = self._begin_line(part.offset, "zeros", part.byte_count)
                if part.hidden_bytes:
                    hidden = f"a header of zeros hides {part.hidden_bytes:,} bytes that are not"
                    return line.append(hidden, "yellow")
                return line.append("never written", "dim")
            case DamagedPart():
                line = self._begin_line(part.offset, "damaged", part.byte_count)
                line.append(part.kind.value, "bold red")
                if part.header is not None:
                    says = f"{part.header.type_name}, {part.header.length:,} bytes"
                    line.append(f" (header says {says})", "red")
                return line
            case _:
                assert_never(part)

    def _stale_line(self, stale: list[StalePart]) -> Text:
        first, last = stale[0], stale[-1]
        byte_count = last.offset + last.byte_count - first.offset
        line = self._begin_line(first.offset, "stale", byte_count)
        return line.append(f"{counted(len(stale), 'record')} of log {first.log_number}", "yellow")


def _condensed(
    blocks: Iterator[Block | EmptyBlocks],
) -> Iterator[Block | EmptyBlocks | _Run]:
    """Yield similar blocks as one run: a long record's middle, or an earlier log."""
    run: list[Block] = []  # first and last of it
    what: str | None = None
    for block in blocks:
        alike = _uniform(block) if isinstance(block, Block) else None
        if run and alike != what:
            yield from _grouped(run, what)
            run = []
        what = alike
        if isinstance(block, Block) and alike is not None:
            run[1:] = [block]
        else:
            yield block
    yield from _grouped(run, what)


def _grouped(run: list[Block], what: str | None) -> Iterator[Block | _Run]:
    if len(run) == 1 or what is None:
        yield from run
    elif run:
        yield _Run(run[0].index, run[-1].index, what)


def _uniform(block: Block) -> str | None:
    """Describe a block that is one thing only, and not the last fragment of a record."""
    match block.parts:
        case (RecordPart(header=header),) if fragment_name(header) == "middle":
            return "each a middle fragment of one record"
    kinds = {type(part) for part in block.parts}
    numbers = {part.log_number for part in block.parts if isinstance(part, StalePart)}
    if len(numbers) == 1 and kinds <= {StalePart, PaddingPart}:
        return f"records of log {numbers.pop()}, which this file was before"
    return None


def _shares(block: Block) -> str:
    """Return the shares of the bytes shown; the rest was never written, or is padding."""
    taken = {
        "records": _bytes_of(block, RecordPart),
        "damaged": _bytes_of(block, DamagedPart),
        "of an earlier log": _bytes_of(block, StalePart),
    }
    return ", ".join(
        f"{byte_count / block.byte_count:.0%} {what}"
        for what, byte_count in taken.items()
        if byte_count or what == "records"
    )


def _bytes_of(block: Block, kind: type[Part]) -> int:
    return sum(part.byte_count for part in block.parts if isinstance(part, kind))


def _after_margin(words: Text, margin: int) -> Text:
    return Text.assemble(("│", "dim"), " " * (margin - 1), words)


def _damage_line(damage: InspectedDamage) -> Text:
    dropped = counted(damage.dropped_bytes, "byte")
    return Text(
        f"  ✗ {damage.kind} at byte {damage.offset:,}: {dropped} dropped",
        "bold red",
    )
