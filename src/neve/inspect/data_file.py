"""A data file as a tree: its footer, columns, row groups and checksums.

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

A chunk is one column of one row group. Files of other writers have no checksums of chunks: all
their pages are read, and Parquet's own checksums are compared where present.
"""

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from neve.errors import Corruption
from neve.inspect.data_file_facts import (
    DataFileFacts,
    GroupPlace,
    PageFinding,
    ParquetColumn,
    facts_from_json,
    finding_from_json,
)
from neve.inspect.decoder_child import FACTS, DecoderTask
from neve.inspect.decoder_process import DecoderFailed, DecoderProcess
from neve.inspect.opened_file import OpenedFile
from neve.inspect.page import Group, Line, Part, Tree, damaged
from neve.inspect.shown_text import Json, shown_text
from neve.model.display import counted

_INDENT: Final = 5
_STAMP_COLUMNS: Final = 13
_NAME_COLUMNS_MAX: Final = 40


def decoded_facts(opened: OpenedFile, path: str, memory_bytes: int) -> DataFileFacts:
    """Read the file in a child process, and return what it found, even if it died."""
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
    assert facts is not None, "the child returns facts, or fails"
    return facts.with_findings(findings)


def data_file_tree(facts: DataFileFacts, *, limit: int) -> Tree:
    """Return the tree of a data file, at most `limit` of its row groups."""

    def groups() -> Iterator[Part]:
        for place, group in enumerate(facts.groups[:limit]):
            damage = [Line(damaged(each).text, _INDENT) for each in group.damage]
            yield Part(json=_group_json(group), lines=[_group_line(place, group), *damage])
        if omitted:
            yield Part(json=None, lines=[Line(Text(f"… {omitted:,} more", "dim"), _INDENT)])

    def verdicts() -> Iterator[Line]:
        hidden = [damage for group in facts.groups[limit:] for damage in group.damage]
        for problem in (*hidden, *facts.other_problems):
            yield damaged(problem)
        for skipped in facts.skipped:
            yield Line(Text(f"! {shown_text(skipped)}", "yellow"))
        if not facts.problems and not facts.skipped:
            yield Line(Text(f"✔ {facts.checksum_words}", "green"))

    omitted = max(0, len(facts.groups) - limit)
    return Tree(
        name=facts.name,
        facts=[
            counted(facts.byte_count, "byte"),
            counted(len(facts.groups), "row group"),
            counted(facts.row_count, "row"),
            f"by {shown_text(facts.created_by)}",
        ],
        members={
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
        },
        intro=[_stamp_line(name, value) for name, value in facts.stamps.items()],
        groups=[
            Group(
                name="columns",
                parts=_columns(facts.columns),
                title=Text(counted(len(facts.columns), "column")),
            ),
            Group(
                name="row_groups",
                parts=groups(),
                title=Text(counted(len(facts.groups), "row group")),
            ),
        ],
        last_members=lambda: {
            "omitted_row_groups": omitted,
            "checksums": facts.checksum_state,
            "problems": list(facts.problems),
            "skipped": list(facts.skipped),
        },
        verdicts=verdicts,
        find_problems=lambda: facts.problems,
    )


def _stamp_line(name: str, value: str) -> Line:
    label = (f"{shown_text(name):<{_STAMP_COLUMNS}}", "dim")
    return Line(Text.assemble(label, shown_text(value)), _STAMP_COLUMNS)


def _columns(columns: tuple[ParquetColumn, ...]) -> Iterator[Part]:
    width = max((len(shown_text(column.path)) for column in columns), default=0)
    for column in columns:
        line = _column_line(column, min(width, _NAME_COLUMNS_MAX))
        yield Part(json=_column_json(column), lines=[line])


def _column_line(column: ParquetColumn, width: int) -> Line:
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
    text = Text.assemble(
        (f"{field_id:>3}  ", "dim"),
        f"{shown_text(column.path):<{width}}  ",
        (" · ".join(facts), "dim"),
    )
    return Line(text, _INDENT)


def _group_line(place: int, group: GroupPlace) -> Line:
    text = Text.assemble(
        (f"{place:>3}  ", "dim"),
        f"{counted(group.row_count, 'row')} · {counted(group.byte_count, 'byte')} "
        f"at byte {group.offset:,}",
    )
    return Line(text, _INDENT)


def _column_json(column: ParquetColumn) -> Json:
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
