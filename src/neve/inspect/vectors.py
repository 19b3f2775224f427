"""Deletion vectors in a Puffin file, as a tree.

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
from typing import Final

from pyroaring import BitMap64
from rich.text import Text

from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.inspect.opened_file import OpenedFile
from neve.inspect.page import Group, Line, Part, Tree, damaged
from neve.inspect.shown_text import Json, shown_text
from neve.model.display import counted
from neve.sstable.puffin import (
    MAGIC,
    PuffinBlob,
    ReadAt,
    read_puffin_footer,
    read_puffin_vector,
)

_INDENT: Final = 6


@dataclass(frozen=True, slots=True)
class _InspectedBlob:
    """A blob with its positions, or why they cannot be read; statistics have neither."""

    blob: PuffinBlob
    positions: BitMap64 | None = None
    damage: str | None = None


def vector_tree(opened: OpenedFile, path: str, *, limit: int) -> Tree:
    """Return the tree of a Puffin file, at most `limit` positions of each vector."""
    _refuse_foreign(opened, path)
    footer = read_puffin_footer(opened.read_at, opened.byte_count, path=path)
    facts = [f"{opened.byte_count:,} bytes", counted(len(footer.blobs), "blob")]
    if "created-by" in footer.properties:
        facts.append(f"created by {shown_text(footer.properties['created-by'])}")
    problems: list[str] = []
    whole: list[PuffinBlob] = []

    def parts() -> Iterator[Part]:
        for blob in footer.blobs:
            each = _read_blob(opened.read_at, blob, path)
            if each.damage is not None:
                problems.append(each.damage)
            if each.positions is not None:
                whole.append(blob)
            yield Part(
                json=_blob_json(each, limit), title=Line(_title(each)), lines=_lines(each, limit)
            )

    def verdicts() -> Iterator[Line]:
        if whole and not problems:
            verb = "is" if len(whole) == 1 else "are"
            yield Line(Text(f"✔ {counted(len(whole), 'vector')} {verb} whole", "green"))

    return Tree(
        name=opened.name,
        facts=facts,
        members={
            "file": opened.name,
            "kind": "puffin",
            "bytes": opened.byte_count,
            "properties": dict(footer.properties),
        },
        groups=[Group(name="blobs", parts=parts())],
        last_members=lambda: {"problems": problems},
        verdicts=verdicts,
        find_problems=lambda: problems,
    )


def _refuse_foreign(opened: OpenedFile, path: str) -> None:
    if opened.read_at(0, len(MAGIC)) == MAGIC:
        return
    raise InvalidArgument(
        f"{path} is not a Puffin file: it does not begin with {MAGIC.decode()}"
        f"{opened.likeness_words()}",
        hint="Name a file of deletion vectors, such as one in the directory deletes of a table",
    )


def _read_blob(read_at: ReadAt, blob: PuffinBlob, path: str) -> _InspectedBlob:
    if not blob.is_vector:
        return _InspectedBlob(blob)
    try:
        return _InspectedBlob(blob, read_puffin_vector(read_at, blob, path=path))
    except (Corruption, LimitExceeded) as error:
        return _InspectedBlob(blob, damage=error.message)


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


def _title(each: _InspectedBlob) -> Text:
    blob = each.blob
    place = f"{counted(blob.length, 'byte')} at byte {blob.offset:,}"
    title = f"{shown_text(blob.type)} · {place}"
    if each.positions is not None:
        title += f" · {counted(len(each.positions), 'row')} marked"
    return Text(title)


def _lines(each: _InspectedBlob, limit: int) -> Iterator[Line]:
    blob = each.blob
    if each.damage is not None:
        yield damaged(each.damage)
    if blob.is_vector:
        yield _labelled("of", shown_text(blob.referenced_data_file or "?"))
    else:
        for name, value in blob.properties.items():
            yield _labelled(shown_text(name), shown_text(value))
    if each.positions:
        shown = ", ".join(str(position) for position in islice(each.positions, limit))
        left = len(each.positions) - limit
        rest = f"… {left:,} more up to {each.positions.max()}" if left > 0 else ""
        yield _labelled("rows", f"{shown} {rest}".strip())


def _labelled(label: str, text: str) -> Line:
    return Line(Text.assemble((f"{label:<4}  ", "dim"), text), _INDENT)
