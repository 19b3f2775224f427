"""A log drawn the way a person would draw it on a board.

    ╭─ block 0 ─ bytes 0 to 32,767 ─ 100 % full ──────────────────
    │ ██▓▓██▓▓████████████████████████████████████████████████████▁
    │       0  full       33  log 1 begins
    │      44  full       28  row 1  put "a" = "1"
    │      83  first  32,674  ╮
    ╰─────────────────────────
    ╭─ block 1 ─ …
    │  32,768  last    9,000  ╯ rows 2 to 1,001  upsert rows: 1,000 rows of id, name

Each strip is its block to scale: neighbouring records in two shades. Behind an offset stand the
kind of the part and the bytes it holds. A record is told where its last fragment is.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Final, NamedTuple, assert_never

from rich.text import Text

from neve.cli.log_file import LogFileOnDisk
from neve.cli.log_json import completes_a_record, fragment_name, header_kind
from neve.cli.record_words import RecordWords
from neve.cli.shown_text import counted
from neve.wal.inspection import InspectedDamage, LogicalRecord, LogInspection, PayloadKind
from neve.wal.log_ending import Ending, EndReason
from neve.wal.log_parts import (
    Block,
    DamagedPart,
    EmptyBlocks,
    PaddingPart,
    Part,
    RecordPart,
    StalePart,
    ZerosPart,
)
from neve.wal.record_format import BLOCK_BYTES, Dialect
from neve.wal.segment_reader import DamageKind

_WRITERS: Final = {
    Dialect.CRC32C: "neve",
    Dialect.ROCKSDB: "RocksDB or LevelDB",
    Dialect.MERUTABLE: "merutable",
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
_STRIP_COLUMNS_MAX: Final = 64
_DAMAGE_LINES_MAX: Final = 20
_JOINTS: Final = {"first": "╮", "middle": "│", "last": "╯"}


class _Run(NamedTuple):
    """Consecutive blocks that are told in one line."""

    first_index: int
    last_index: int
    what: str


class LogDrawing:
    """Draws one log; `ending` is there once the lines have been taken."""

    def __init__(
        self, inspection: LogInspection, *, columns: int, limit: int, hex_only: bool
    ) -> None:
        self.ending: Ending | None = None
        self._inspection = inspection
        self._columns = columns
        self._limit = limit
        self._words = RecordWords(
            columns=columns, hex_only=hex_only, rows_are_own=inspection.identity.is_own
        )
        self._items = inspection.records()
        self._next_item: LogicalRecord | InspectedDamage | None = None
        self._shown = 0

    def lines(self, file: LogFileOnDisk) -> Iterator[Text]:
        """Give the drawing, a line at a time."""
        self._advance()
        yield from self._title(file)
        symbols: set[str] = set()
        for block in _condensed(self._inspection.blocks()):
            if self._shown >= self._limit:
                break
            yield from self._block(block, symbols)
        yield from self._remaining()
        yield from self._legend(symbols)
        yield from self._summary()

    def _title(self, file: LogFileOnDisk) -> Iterator[Text]:
        identity = self._inspection.identity
        name = self._words.plain(file.name)
        yield Text.assemble((name, "bold"), (f"  {file.byte_count:,} bytes", "dim"))
        facts = []
        if identity.dialect is None:
            facts.append("no readable record")
        else:
            facts.append(f"{identity.dialect} checksums, as {_WRITERS[identity.dialect]} writes")
        if identity.log_number is not None:
            facts.append(f"log {identity.log_number}")
        kind = header_kind(recyclable=identity.recyclable)
        if kind is not None:
            facts.append(f"{kind} headers")
        is_batch = self._inspection.payload is PayloadKind.BATCH
        facts.append("write batches" if is_batch else "version edits")
        yield Text(" · ".join(facts), "dim")
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
                strip = _strip(block, columns=min(_STRIP_COLUMNS_MAX, self._columns - 4))
                symbols.update(strip.plain)
                yield Text.assemble(("│ ", "dim"), strip)
                yield from self._parts(block)
                yield Text(f"╰{'─' * 24}", "dim")
            case _:
                assert_never(block)

    def _rule(self, block: Block) -> Text:
        last = block.offset + block.byte_count - 1
        facts = f" ─ bytes {block.offset:,} to {last:,} ─ {block.fill:.0%} full "
        rule = Text.assemble(("╭─ ", "dim"), (f"block {block.index:,}", "bold"), (facts, "dim"))
        return rule.append("─" * max(0, _STRIP_COLUMNS_MAX + 2 - len(rule.plain)), "dim")

    def _parts(self, block: Block) -> Iterator[Text]:
        stale: list[StalePart] = []
        for part in block.parts:
            if isinstance(part, StalePart) and (
                not stale or part.log_number == stale[0].log_number
            ):
                stale.append(part)
                continue
            if stale:
                yield _stale_line(stale)
                stale = [part] if isinstance(part, StalePart) else []
            if isinstance(part, RecordPart) and not part.ignored:
                yield from self._record(part)
                if self._shown >= self._limit:
                    yield Text("│ …", "dim")
                    return
            elif not isinstance(part, StalePart):
                yield _part_line(part)
        if stale:
            yield _stale_line(stale)

    def _record(self, part: RecordPart) -> Iterator[Text]:
        """Tell one physical record, and the logical one that ends with it."""
        kind = fragment_name(part.header)
        line = _begin_line(part.offset, kind, part.header.length)
        record = self._take_record(part)
        joint = _JOINTS.get(kind, "")
        if record is None:
            yield line.append(joint, "dim")
        else:
            self._shown += 1
            words = self._words.of(record)
            yield line.append(f"{joint} " if joint else "", "dim").append_text(next(words))
            for further in words:
                yield _indented(further)
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
                    yield _damage_line(item)
            self._advance()
        if damage_count > _DAMAGE_LINES_MAX:
            more = damage_count - _DAMAGE_LINES_MAX
            yield Text(f"  ✗ and {counted(more, 'more damaged place')}", "bold red")
        if record_count:
            records = counted(record_count, "more record")
            yield Text(f"  … {records}: raise --limit, or start with --from", "dim")

    def _legend(self, symbols: set[str]) -> Iterator[Text]:
        meanings = {
            "█": "█▓ records",
            "▁": "▁ padding",
            "·": "· zeros",
            "~": "~ an earlier log",
            "✗": "✗ damaged",
        }
        told = [meaning for symbol, meaning in meanings.items() if symbol in symbols]
        if told:
            yield Text(f"  {'   '.join(told)}", "dim")

    def _summary(self) -> Iterator[Text]:
        ending = self.ending
        assert ending is not None, "records end with their Ending"
        mark, style = _ENDINGS[ending.reason]
        detail = self._words.plain(ending.detail)
        yield Text()
        yield Text(
            f"{mark} reading ends at byte {ending.offset:,}, {ending.reason}: {detail}", style
        )
        facts = f"  {counted(ending.record_count, 'record')}"
        if self._inspection.payload is PayloadKind.BATCH:
            facts += f" · {counted(ending.row_count, 'row')}"
        if ending.damage_count:
            facts += f" · {counted(ending.damage_count, 'damaged place')}"
            facts += f", {counted(ending.dropped_bytes, 'byte')} dropped"
        else:
            facts += " · nothing damaged"
        yield Text(facts)


def _condensed(
    blocks: Iterator[Block | EmptyBlocks],
) -> Iterator[Block | EmptyBlocks | _Run]:
    """Give blocks that are all alike as one run: a long record's middle, or an earlier log."""
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


def _strip(block: Block, *, columns: int) -> Text:
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
    """Give the symbol of a part, its style, and its rank where several share a character."""
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


def _begin_line(offset: int, kind: str, byte_count: int) -> Text:
    kind_and_bytes = f"{kind:<7}{byte_count:>7,}  "
    return Text.assemble(("│ ", "dim"), f"{offset:>11,}  ", (kind_and_bytes, "cyan"))


def _indented(words: Text) -> Text:
    return Text.assemble(("│ ", "dim"), " " * 29, words)


def _part_line(part: RecordPart | PaddingPart | ZerosPart | DamagedPart) -> Text:
    match part:
        case RecordPart():
            line = _begin_line(part.offset, "ignored", part.header.length)
            return line.append(f"type {part.header.type}, which every reader passes over", "dim")
        case PaddingPart():
            line = _begin_line(part.offset, "padding", part.byte_count)
            return line.append("no header fits here", "dim")
        case ZerosPart():
            line = _begin_line(part.offset, "zeros", part.byte_count)
            if part.hidden_bytes:
                return line.append(
                    f"a header of zeros hides {part.hidden_bytes:,} bytes that are not", "yellow"
                )
            return line.append("never written", "dim")
        case DamagedPart():
            line = _begin_line(part.offset, "damaged", part.byte_count)
            line.append(part.kind.value, "bold red")
            if part.header is not None:
                line.append(
                    f" (header says {part.header.type_name}, {part.header.length:,} bytes)", "red"
                )
            return line
        case _:
            assert_never(part)


def _stale_line(stale: list[StalePart]) -> Text:
    first, last = stale[0], stale[-1]
    byte_count = last.offset + last.byte_count - first.offset
    line = _begin_line(first.offset, "stale", byte_count)
    return line.append(f"{counted(len(stale), 'record')} of log {first.log_number}", "yellow")


def _damage_line(damage: InspectedDamage) -> Text:
    return Text(
        f"  ✗ {damage.kind} at byte {damage.offset:,}: {damage.dropped_bytes:,} bytes dropped",
        "bold red",
    )
