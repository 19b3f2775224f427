"""`neve inspect dv`: shows the deletion vectors in a Puffin file.

3f2a….puffin  412 bytes · 2 blobs · created by neve 0.1
╭─ deletion-vector-v1 · 46 bytes at byte 4 · 3 rows marked
│ of    data/9c….parquet
│ rows  1, 3, 5
╰─
✔ 2 vectors are whole
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import click
from pyroaring import BitMap64
from rich.text import Text

from neve.cli.commands import DocumentedCommand
from neve.cli.number_type import WholeNumber
from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.inspect.opened_file import OpenedFile, open_inspected
from neve.inspect.page import JsonDocument, Page, wrapped
from neve.inspect.shown_text import Json, shown_text
from neve.model.display import counted
from neve.sstable.puffin import (
    MAGIC,
    PuffinBlob,
    PuffinFooter,
    ReadAt,
    read_puffin_footer,
    read_puffin_vector,
)

_POSITIONS_DRAWN: Final = 20
_POSITIONS_IN_JSON: Final = 10_000


@click.command(cls=DocumentedCommand, examples=["neve inspect dv vectors.puffin"])
@click.argument(
    "path",
    metavar="FILE",
    type=click.Path(path_type=str),
    help="A Puffin file, such as one in the directory deletes of a table.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a drawing.")
@click.option(
    "--limit",
    type=WholeNumber(),
    metavar="N",
    help=(
        f"Show at most N positions of each vector [default: {_POSITIONS_DRAWN} in a drawing, "
        f"{_POSITIONS_IN_JSON:,} in JSON]."
    ),
)
@click.option("--strict", is_flag=True, help="End with exit code 5 when a vector is damaged.")
def dv(*, path: str, as_json: bool, limit: int | None, strict: bool) -> None:
    """Show which rows the deletion vectors of a Puffin file mark, in which data files.

    Other blobs of the file are listed. A damaged vector is shown as such, beside the others.
    """
    if Path(path).is_dir():
        raise InvalidArgument(
            f"{path} is a directory, not a Puffin file",
            hint="Name one file, such as one in the directory deletes of a table",
        )
    with open_inspected(path) as opened:
        _refuse_foreign(opened, path)
        footer = read_puffin_footer(opened.read_at, opened.byte_count, path=path)
        blobs = (_read_blob(opened.read_at, blob, path) for blob in footer.blobs)
        if as_json:
            kept = _POSITIONS_IN_JSON if limit is None else limit
            problems = _write_json(opened, footer, blobs, kept)
        else:
            problems = _draw(opened, footer, blobs, _POSITIONS_DRAWN if limit is None else limit)
    if strict and problems:
        raise Corruption(
            f"{counted(len(problems), 'vector')} of the file cannot be read: {problems[0]}",
            path=path,
        )


@dataclass(frozen=True, slots=True)
class _InspectedBlob:
    """A blob, and either the positions in it, or why there are none, or neither for statistics."""

    blob: PuffinBlob
    positions: BitMap64 | None = None
    damage: str | None = None


def _refuse_foreign(opened: OpenedFile, path: str) -> None:
    if opened.read_at(0, len(MAGIC)) == MAGIC:
        return
    likeness = opened.likeness()
    looks = "" if likeness is None else f"; it looks like {likeness}"
    raise InvalidArgument(
        f"{path} is not a Puffin file: it does not begin with {MAGIC.decode()}{looks}",
        hint="Name a file of deletion vectors, such as one in the directory deletes of a table",
    )


def _read_blob(read_at: ReadAt, blob: PuffinBlob, path: str) -> _InspectedBlob:
    if not blob.is_vector:
        return _InspectedBlob(blob)
    try:
        return _InspectedBlob(blob, read_puffin_vector(read_at, blob, path=path))
    except (Corruption, LimitExceeded) as error:
        return _InspectedBlob(blob, damage=error.message)


def _write_json(
    opened: OpenedFile, footer: PuffinFooter, blobs: Iterator[_InspectedBlob], limit: int
) -> list[str]:
    problems: list[str] = []

    def elements() -> Iterator[Json]:
        for each in blobs:
            if each.damage is not None:
                problems.append(each.damage)
            yield _blob_json(each, limit)

    document = JsonDocument()
    document.members(
        {
            "file": opened.name,
            "kind": "puffin",
            "bytes": opened.byte_count,
            "properties": dict(footer.properties),
        }
    )
    document.array("blobs", elements())
    document.members({"problems": problems})
    document.end()
    return problems


def _blob_json(each: _InspectedBlob, limit: int) -> Json:
    blob = each.blob
    members: dict[str, Json] = {
        "type": blob.type,
        "offset": blob.offset,
        "length": blob.length,
        "fields": list(blob.fields),
        "snapshot_id": blob.snapshot_id,
        "sequence_number": blob.sequence_number,
        "properties": dict(blob.properties),
    }
    if blob.compression_codec is not None:
        members["compression_codec"] = blob.compression_codec
    if each.damage is not None:
        members["damage"] = each.damage
    positions = each.positions
    if positions is not None:
        members["referenced_data_file"] = blob.referenced_data_file
        members["cardinality"] = len(positions)
        members["position_min"] = positions.min() if positions else None
        members["position_max"] = positions.max() if positions else None
        members["positions"] = list(islice(positions, limit))
        members["omitted_positions"] = max(0, len(positions) - limit)
    return members


def _draw(
    opened: OpenedFile, footer: PuffinFooter, blobs: Iterator[_InspectedBlob], limit: int
) -> list[str]:
    page = Page()
    facts = [f"{opened.byte_count:,} bytes", counted(len(footer.blobs), "blob")]
    if "created-by" in footer.properties:
        facts.append(f"created by {shown_text(footer.properties['created-by'])}")
    page.line(Text.assemble((shown_text(opened.name), "bold"), (f"  {' · '.join(facts)}", "dim")))
    problems: list[str] = []
    whole = 0
    for each in blobs:
        if each.damage is not None:
            problems.append(each.damage)
        whole += each.positions is not None
        page.lines(_box(each, limit=limit, columns=page.columns))
    if whole and not problems:
        verb = "is" if whole == 1 else "are"
        page.line(Text(f"✔ {counted(whole, 'vector')} {verb} whole", "green"))
    return problems


def _box(each: _InspectedBlob, *, limit: int, columns: int) -> Iterator[Text]:
    blob = each.blob
    place = f"{counted(blob.length, 'byte')} at byte {blob.offset:,}"
    title = f"{shown_text(blob.type)} · {place}"
    if each.positions is not None:
        title += f" · {counted(len(each.positions), 'row')} marked"
    yield Text.assemble(("╭─ ", "dim"), title)
    if each.damage is not None:
        yield from _inside(Text(f"✗ {shown_text(each.damage)}", "bold red"), columns)
    if blob.is_vector:
        yield from _inside(_labelled("of", shown_text(blob.referenced_data_file or "?")), columns)
    else:
        for name, value in blob.properties.items():
            yield from _inside(_labelled(shown_text(name), shown_text(value)), columns)
    if each.positions:
        shown = ", ".join(str(position) for position in islice(each.positions, limit))
        left = len(each.positions) - limit
        rest = f"… {left:,} more up to {each.positions.max()}" if left > 0 else ""
        yield from _inside(_labelled("rows", f"{shown} {rest}".strip()), columns)
    yield Text("╰─", "dim")


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<4}  ", "dim"), text)


def _inside(text: Text, columns: int) -> Iterator[Text]:
    for line in wrapped(text, columns - 2, indent=6):
        yield Text.assemble(("│ ", "dim"), line)
