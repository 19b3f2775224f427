"""A log drawn the way a person would draw it on a board.

    ╭─ block 0 ─ bytes 0 to 32,767 ─ 100% records ────────────────
    │ ██▓▓██▓▓████████████████████████████████████████████████████▁
    │       0  full       33  log 1 begins
    │      44  full       28  row 1  put "a" = "1"
    │      83  first  32,674  ╮
    ╰─────────────────────────
    ╭─ block 1 ─ …
    │  32,768  last    9,000  ╯ rows 2 to 1,001  upsert rows: 1,000 rows of id, name

Each strip is its block to scale: neighbouring records in two shades. Behind an offset stand the
kind of the part and the bytes it holds. A record is told where its last fragment is.

No line is wider than the page: the lines of blocks are clipped, all others broken between words.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, assert_never

from rich.text import Text

from neve.inspect.log_drawing import STRIP_COLUMNS_MAX, STRIP_MEANINGS, RecordWords, strip_of
from neve.inspect.log_json import completes_a_record, fragment_name, header_kind
from neve.inspect.opened_file import OpenedFile
from neve.inspect.page import clipped, wrapped
from neve.model.display import counted
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
from neve.wal.record_format import Dialect
from neve.wal.segment_reader import DamageKind

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
# Told by the part itself; the others are found only when records are put together.
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


class _Run(NamedTuple):
    """Consecutive blocks that are told in one line."""

    first_index: int
    last_index: int
    what: str


class LogDrawing:
    """Draws one log; `ending` is there once the lines have been taken."""

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
        """Tell one physical record, and the logical one that ends with it."""
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
                yield _behind_margin(further, margin)
            for further in self._words.dump(record.payload, columns=self._columns - 4):
                yield _behind_margin(further, 4)
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
        """Read on to the end: count the records that were not drawn, and tell their damage."""
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
        told = [meaning for symbol, meaning in STRIP_MEANINGS.items() if symbol in symbols]
        if self._words.told_field_ids:
            told.append("#1 is the column with field id 1")
        if told:
            yield from self._wrapped(Text(f"  {'   '.join(told)}", "dim"))

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
        """Yield what was counted, and say where."""
        start_offset = self._inspection.start_offset
        if start_offset:
            yield f"from byte {start_offset:,}"
        has_rows = self._inspection.payload is PayloadKind.BATCH
        before = [counted(ending.record_count - ending.records_behind_end, "record")]
        behind = [counted(ending.records_behind_end, "record")]
        if has_rows:
            before.append(counted(ending.row_count, "row"))
            behind.append(counted(ending.rows_behind_end, "row"))
        if ending.records_behind_end:
            yield f"before the end {', '.join(before)}"
            yield f"behind it {', '.join(behind)}"
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
                what = f"type {part.header.type}, which every reader passes over"
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
    """Yield blocks that are all alike as one run: a long record's middle, or an earlier log."""
    run: list[Block] = []  # first and last of it
    what: str | None = None
    for block in blocks:
        alike = _uniform(block) if isinstance(block, Block) else None
        if run and alike != what:
            yield from _told(run, what)
            run = []
        what = alike
        if isinstance(block, Block) and alike is not None:
            run[1:] = [block]
        else:
            yield block
    yield from _told(run, what)


def _told(run: list[Block], what: str | None) -> Iterator[Block | _Run]:
    if len(run) == 1 or what is None:
        yield from run
    elif run:
        yield _Run(run[0].index, run[-1].index, what)


def _uniform(block: Block) -> str | None:
    """Say what a block is when it is one thing only, and not the last fragment of a record."""
    match block.parts:
        case (RecordPart(header=header),) if fragment_name(header) == "middle":
            return "each a middle fragment of one record"
    kinds = {type(part) for part in block.parts}
    numbers = {part.log_number for part in block.parts if isinstance(part, StalePart)}
    if len(numbers) == 1 and kinds <= {StalePart, PaddingPart}:
        return f"records of log {numbers.pop()}, which this file was before"
    return None


def _shares(block: Block) -> str:
    """Say how much of the bytes shown is what; the rest was never written, or is padding."""
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


def _behind_margin(words: Text, margin: int) -> Text:
    return Text.assemble(("│", "dim"), " " * (margin - 1), words)


def _damage_line(damage: InspectedDamage) -> Text:
    dropped = counted(damage.dropped_bytes, "byte")
    return Text(
        f"  ✗ {damage.kind} at byte {damage.offset:,}: {dropped} dropped",
        "bold red",
    )
