"""`neve inspect sst`: shows a data file: its footer, columns, row groups and checksums.

9c….parquet  48,213 bytes · 2 row groups · 3,000 rows · neve 1, level 0
table      t000001-4e9d1f
sequences  1 to 3,000
keys       8000000000000000 to 8000000000000bb7
╭─ columns
│ 1  id    INT64               zstd · DELTA_BINARY_PACKED · 2,113 of 24,000 bytes · 0 to 2999
│ 2  name  BYTE_ARRAY, String  zstd · PLAIN, RLE_DICTIONARY · … · 4 null
╰─
╭─ row groups
│ 0  2,048 rows · 31,877 bytes at byte 4
│ 1  952 rows · 15,201 bytes at byte 31,881
╰─
✔ 4 chunks and what follows them are whole

A chunk is one column of one row group. Files that others wrote have no checksums of chunks: of
those all pages are read, and Parquet's own checksums compared where there are any.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import click
from rich.text import Text

from neve.cli.commands import DocumentedCommand
from neve.cli.number_type import WholeNumber, memory_option
from neve.errors import Corruption, LimitExceeded
from neve.inspect.data_file_facts import (
    ColumnFacts,
    DataFileFacts,
    GroupPlace,
    PageFinding,
    facts_from_json,
    finding_from_json,
)
from neve.inspect.decoder_child import FACTS, DecoderTask
from neve.inspect.decoder_process import DecoderFailed, DecoderProcess, memory_for
from neve.inspect.opened_file import OpenedFile, open_inspected
from neve.inspect.page import JsonDocument, Page, wrapped
from neve.inspect.shown_text import Json, shown_text
from neve.model.display import counted

_GROUPS_DRAWN: Final = 20


@click.command(cls=DocumentedCommand, examples=["neve inspect sst part.parquet"])
@click.argument(
    "path",
    metavar="FILE",
    type=click.Path(path_type=str),
    help="A data file of a table, or any other Parquet file.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a drawing.")
@click.option(
    "--limit",
    type=WholeNumber(),
    metavar="N",
    help=f"Show at most N row groups [default: {_GROUPS_DRAWN} in a drawing, all in JSON].",
)
@click.option(
    "--strict",
    is_flag=True,
    help="End with exit code 5 when anything is damaged, 6 when pages were not decoded.",
)
@memory_option
def sst(
    *, path: str, as_json: bool, limit: int | None, strict: bool, memory_limit: int | None
) -> None:
    """Show a data file: what its footer says, its columns, row groups and checksums.

    Reads any Parquet file, your own or not. A damaged file is shown as far as it can be read.
    Pages that take more memory than the limit are reported and not decoded.
    """
    with open_inspected(path) as opened:
        facts = _decoded(opened, path, memory_for(opened.byte_count, memory_limit))
        if as_json:
            _write_json(facts, limit)
        else:
            page = Page()
            page.lines(_drawing(facts, _GROUPS_DRAWN if limit is None else limit, page.columns))
    if strict and facts.problems:
        raise Corruption(
            f"{counted(len(facts.problems), 'place')} damaged: {facts.problems[0]}", path=path
        )
    if strict and facts.skipped:
        raise LimitExceeded(
            f"not all pages were decoded: {facts.skipped[0]}",
            limit=memory_for(facts.byte_count, memory_limit),
            path=path,
        )


def _decoded(opened: OpenedFile, path: str, memory_bytes: int) -> DataFileFacts:
    """Let a child process read the file, and return what it found until its end or death."""
    task = DecoderTask(
        task="facts", form="parquet", path=path, memory_bytes=memory_bytes, batch_rows=0
    )
    facts: DataFileFacts | None = None
    findings: list[PageFinding] = []
    try:
        with DecoderProcess(task, file=opened.handle) as decoder:
            for frame in decoder.frames():
                if frame.kind == FACTS:
                    facts = facts_from_json(frame.json())
                else:
                    findings.append(finding_from_json(frame.json()))
    except DecoderFailed as error:
        if facts is None:
            if error.is_limit:
                raise error.limit_exceeded(path, memory_bytes) from None
            raise Corruption(f"the footer cannot be read: {error}", path=path) from None
        where = "its pages cannot be decoded"
        if error.is_limit:
            limit = error.limit_exceeded(path, memory_bytes)
            findings.append(PageFinding(group=None, skipped=f"{limit.message}. {limit.hint}"))
        else:
            findings.append(PageFinding(group=None, damage=(f"{where}: {error}",)))
    assert facts is not None, "the child says what it found, or fails"
    return facts.with_findings(findings)


def _write_json(facts: DataFileFacts, limit: int | None) -> None:
    document = JsonDocument()
    document.members(
        {
            "file": facts.name,
            "kind": "parquet",
            "bytes": facts.byte_count,
            "rows": facts.row_count,
            "created_by": facts.created_by,
            "footer": {
                "offset": facts.footer_at,
                "bytes": facts.footer_bytes,
                "crc32c": facts.footer_crc,
            },
            "neve": facts.stamps or None,
        }
    )
    document.array("columns", (_column_json(column) for column in facts.columns))
    groups = facts.groups[: len(facts.groups) if limit is None else limit]
    document.array("row_groups", (_group_json(group) for group in groups))
    document.members(
        {
            "omitted_row_groups": len(facts.groups) - len(groups),
            "checksums": facts.checksum_state,
            "problems": list(facts.problems),
            "skipped": list(facts.skipped),
        }
    )
    document.end()


def _column_json(column: ColumnFacts) -> Json:
    return {
        "path": column.path,
        "field_id": column.field_id,
        "type": column.physical_type,
        "logical_type": column.logical_type,
        "compression": column.compression,
        "encodings": list(column.encodings),
        "compressed_bytes": column.compressed_bytes,
        "uncompressed_bytes": column.uncompressed_bytes,
        "null_count": column.null_count,
        "min": column.lowest,
        "max": column.highest,
    }


def _group_json(group: GroupPlace) -> Json:
    return {
        "rows": group.row_count,
        "offset": group.offset,
        "bytes": group.byte_count,
        "damage": list(group.damage),
    }


def _drawing(facts: DataFileFacts, limit: int, columns: int) -> Iterator[Text]:
    words = [
        counted(facts.byte_count, "byte"),
        counted(len(facts.groups), "row group"),
        counted(facts.row_count, "row"),
        f"by {shown_text(facts.created_by)}",
    ]
    yield Text.assemble((shown_text(facts.name), "bold"), (f"  {' · '.join(words)}", "dim"))
    for name, value in facts.stamps.items():
        yield from wrapped(
            Text.assemble((f"{shown_text(name):<13}", "dim"), shown_text(value)), columns, indent=13
        )
    yield Text.assemble(("╭─ ", "dim"), counted(len(facts.columns), "column"))
    for line in _column_lines(facts.columns):
        yield from _inside(line, columns)
    yield Text("╰─", "dim")
    yield Text.assemble(("╭─ ", "dim"), counted(len(facts.groups), "row group"))
    for place, group in enumerate(islice(facts.groups, limit)):
        yield from _inside(_group_line(place, group), columns)
        for damage in group.damage:
            yield from _inside(Text(f"✗ {shown_text(damage)}", "bold red"), columns)
    if len(facts.groups) > limit:
        yield from _inside(Text(f"… {len(facts.groups) - limit:,} more", "dim"), columns)
    yield Text("╰─", "dim")
    hidden = [damage for group in facts.groups[limit:] for damage in group.damage]
    for problem in (*hidden, *facts.other_problems):
        yield Text(f"✗ {shown_text(problem)}", "bold red")
    for skipped in facts.skipped:
        yield Text(f"! {shown_text(skipped)}", "yellow")
    if not facts.problems and not facts.skipped:
        yield Text(f"✔ {facts.checksum_words}", "green")


def _column_lines(columns: tuple[ColumnFacts, ...]) -> Iterator[Text]:
    width = max((len(shown_text(column.path)) for column in columns), default=0)
    for column in columns:
        field_id = "-" if column.field_id is None else str(column.field_id)
        facts = [
            column.type_words,
            column.compression.lower(),
            ", ".join(column.encodings),
            f"{column.compressed_bytes:,} of {column.uncompressed_bytes:,} bytes",
        ]
        if column.bounds_text is not None:
            facts.append(column.bounds_text)
        if column.null_count:
            facts.append(f"{column.null_count:,} null")
        yield Text.assemble(
            (f"{field_id:>3}  ", "dim"),
            f"{shown_text(column.path):<{min(width, 40)}}  ",
            (" · ".join(facts), "dim"),
        )


def _group_line(place: int, group: GroupPlace) -> Text:
    return Text.assemble(
        (f"{place:>3}  ", "dim"),
        f"{counted(group.row_count, 'row')} · {counted(group.byte_count, 'byte')} "
        f"at byte {group.offset:,}",
    )


def _inside(text: Text, columns: int) -> Iterator[Text]:
    for line in wrapped(text, columns - 2, indent=5):
        yield Text.assemble(("│ ", "dim"), line)
