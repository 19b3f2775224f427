"""`neve inspect manifest`: shows an object of a manifest store, or a whole store.

manifest/catalog  1 checkpoint · 3 segments · 0 leases
HEAD · segment 3 · checkpoint: none · transaction 9f86d081 · epoch 3c…
╭─ segment 1 · 1 record · transaction 2c26b46b after nothing · 2026-11-15T05:54:06.336+00:00
│ put  root                       74  {"format":1,"namespaces":{},…}
╰─
✔ the chain is whole up to HEAD

No line is wider than the page: records are clipped, all other lines broken between words.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from neve.cli.commands import DocumentedCommand
from neve.cli.number_type import WholeNumber
from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.inspect.manifest import (
    ChainJudge,
    Content,
    InspectedStore,
    ManifestPart,
    content_json,
    inspect_store,
    is_manifest_object,
    lines_of,
    read_content,
    read_part,
    segment_parts,
    title_of,
)
from neve.inspect.opened_file import open_inspected
from neve.inspect.page import JsonDocument, Page, clipped, wrapped
from neve.inspect.shown_text import Json, shown_text
from neve.manifest import mrub_pb2
from neve.manifest.documents import Head, Segment, StorePaths
from neve.manifest.frame import FRAME_BYTES_MAX
from neve.manifest.state import State
from neve.model.display import counted
from neve.storage.local_store import LocalStore
from neve.storage.object_store import ObjectStore

_LINES_DRAWN: Final = 200
_CORNER: Final = "╭─ "
_BAR: Final = "│ "
_NUMBERED: Final = re.compile(r"(?:seg|ckpt)-([0-9]{20})")
_STORES_NAMED: Final = 5


@click.command(
    cls=DocumentedCommand,
    examples=["neve inspect manifest lake/manifest/catalog"],
)
@click.argument(
    "path",
    metavar="PATH",
    type=click.Path(path_type=str),
    help="A file of a manifest store, or the directory of a store.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a drawing.")
@click.option(
    "--limit",
    type=WholeNumber(),
    metavar="N",
    help=f"Show at most N records [default: {_LINES_DRAWN} in a drawing, all in JSON].",
)
@click.option("--strict", is_flag=True, help="End with exit code 5 when anything is damaged.")
def manifest(*, path: str, as_json: bool, limit: int | None, strict: bool) -> None:
    """Show a HEAD, segment, checkpoint or lease, the manifest of a version, or a whole store.

    A store is a directory such as manifest/catalog. Of a damaged store everything is shown that can
    be read.
    """
    if Path(path).is_dir():
        problems = _show_store(path, as_json=as_json, limit=limit)
        if strict and problems:
            # What is wrong has been shown.
            raise Corruption("the manifest store is damaged", path=path)
    else:
        _show_object(path, as_json=as_json, limit=limit)


def _show_object(path: str, *, as_json: bool, limit: int | None) -> None:
    with open_inspected(path) as opened:
        if opened.byte_count > FRAME_BYTES_MAX:
            raise LimitExceeded(
                "the file is larger than any object of a manifest",
                path=path,
                limit=FRAME_BYTES_MAX,
                actual=opened.byte_count,
            )
        payload = opened.read_at(0, opened.byte_count)
        if not is_manifest_object(payload):
            likeness = opened.likeness()
            looks = "" if likeness is None else f"; it looks like {likeness}"
            raise InvalidArgument(
                f"{path} is no object of a manifest: it begins neither with NEVE nor with "
                f"MRUB{looks}",
                hint="Name a HEAD, segment, checkpoint or lease, or the directory of a store",
            )
        numbered = _NUMBERED.fullmatch(opened.name)
        content = read_content(
            payload, path=path, number=None if numbered is None else int(numbered[1])
        )
    part = ManifestPart(name=opened.name, byte_count=len(payload), content=content)
    if as_json:
        document = JsonDocument()
        document.members({"file": part.name, **_part_json(part, limit)})
        document.end()
        return
    page = Page()
    drawing = _Drawing(page.columns, _LINES_DRAWN if limit is None else limit)
    page.lines(drawing.title(part.name, counted(part.byte_count, "byte")))
    page.lines(drawing.box(part))
    page.lines(drawing.rest())


def _show_store(path: str, *, as_json: bool, limit: int | None) -> list[str]:
    """Show a store; gives what is wrong with it."""
    directory = Path(path).resolve()
    _refuse_warehouse(directory, path)
    objects = LocalStore(str(directory.parent), create=False)
    paths = StorePaths(directory.name)
    store = inspect_store(objects, paths, shown=path)
    view = _StoreView(objects, paths, store)
    if as_json:
        document = JsonDocument()
        document.members({"kind": "store", "path": path, "head": view.head_json()})
        document.array("checkpoints", (_part_json(part, limit) for part in view.checkpoints()))
        document.array("segments", (_part_json(part, limit) for part in view.segments()))
        document.array("leases", (_part_json(part, limit) for part in view.leases()))
        document.members({"foreign": list(store.foreign), "problems": view.problems()})
        document.end()
    else:
        page = Page()
        drawing = _Drawing(page.columns, _LINES_DRAWN if limit is None else limit)
        page.lines(drawing.store(path, view))
    return view.problems()


def _refuse_warehouse(directory: Path, path: str) -> None:
    """Say which stores there are when a whole warehouse, or what holds stores, is named."""
    if (directory / "HEAD").exists() or (directory / "segments").is_dir():
        return
    found = sorted(
        str(head.parent.relative_to(directory))
        for pattern in ("*/HEAD", "*/*/HEAD", "*/*/*/HEAD")
        for head in directory.glob(pattern)
    )
    if found:
        more = len(found) - _STORES_NAMED
        names = ", ".join(found[:_STORES_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        raise InvalidArgument(
            f"{path} is not a manifest store, but there are some in it: {names}",
            hint=f"Name one: {path.rstrip('/')}/{found[0]}",
        )


@dataclass(slots=True)
class _StoreView:
    """Reads the objects of a store once, in order, and judges its chain on the way."""

    objects: ObjectStore
    paths: StorePaths
    store: InspectedStore
    damage: list[str] = field(default_factory=list)
    judge: ChainJudge = field(init=False)

    def __post_init__(self) -> None:
        head = self.store.head
        self.judge = ChainJudge(
            head.content if head is not None and isinstance(head.content, Head) else None
        )
        if head is None:
            self.damage.append("there is no HEAD")
        else:
            self._note(head)

    def head_json(self) -> Json:
        return None if self.store.head is None else _part_json(self.store.head, None)

    def checkpoints(self) -> Iterator[ManifestPart]:
        head = self.judge.head
        for number in self.store.checkpoints:
            path = self.paths.checkpoint(number)
            part = read_part(self.objects, path, name=f"checkpoint {number}", number=number)
            self._note(part)
            if head is not None and number == head.checkpoint and isinstance(part.content, State):
                self.judge.begin(part.content)
            yield part
        if head is not None and head.checkpoint and head.checkpoint not in self.store.checkpoints:
            self.damage.append(f"checkpoint {head.checkpoint} is missing, which HEAD needs")

    def segments(self) -> Iterator[ManifestPart]:
        head = self.judge.head
        covered = 0 if head is None else head.checkpoint
        for number, part in segment_parts(self.objects, self.paths, self.store.segments):
            self._note(part)
            if number > covered:
                if isinstance(part.content, Segment):
                    self.judge.follow(part.content)
                else:
                    self.judge.pass_over(number)
            yield part
        self.judge.end()

    def leases(self) -> Iterator[ManifestPart]:
        for path in self.store.leases:
            part = read_part(self.objects, path, name=path.removeprefix(f"{self.paths.prefix}/"))
            self._note(part)
            yield part

    def problems(self) -> list[str]:
        return [*self.damage, *self.judge.problems]

    def _note(self, part: ManifestPart) -> None:
        if part.damage is not None:
            self.damage.append(f"{part.name}: {part.damage}")


class _Drawing:
    """Draws parts, up to a number of lines for their records."""

    def __init__(self, columns: int, limit: int) -> None:
        self._columns = columns
        self._room = limit
        self._left_out = 0

    def store(self, path: str, view: _StoreView) -> Iterator[Text]:
        store = view.store
        counts = [
            counted(len(store.checkpoints), "checkpoint"),
            counted(len(store.segments), "segment"),
            counted(len(store.leases), "lease"),
        ]
        yield from self.title(path, " · ".join(counts))
        if store.head is not None:
            yield from self.box(store.head)
        for part in view.checkpoints():
            yield from self.box(part)
        for part in view.segments():
            yield from self.box(part)
        for part in view.leases():
            yield from self.box(part)
        for name in store.foreign:
            words = f"? {shown_text(name)}: no object of a store; it is passed over"
            yield from self._wrapped(Text(words, "yellow"))
        yield from self.rest()
        problems = view.problems()
        for problem in problems:
            yield from self._wrapped(Text(f"✗ {shown_text(problem)}", "bold red"))
        if not problems:
            yield Text("✔ the chain is whole up to HEAD", "green")

    def title(self, name: str, facts: str) -> Iterator[Text]:
        yield from self._wrapped(
            Text.assemble((shown_text(name), "bold"), (f"  {facts}", "dim")),
        )

    def box(self, part: ManifestPart) -> Iterator[Text]:
        if part.content is None:
            # Why, the verdict at the end tells.
            facts = f"{counted(part.byte_count, 'byte')} · damaged"
            yield from self._wrapped(Text(f"✗ {shown_text(part.name)} · {facts}", "bold red"))
            return
        title = Text(title_of(part.content))
        lines = lines_of(part.content, columns=self._columns - len(_BAR))
        first = next(lines, None)
        if first is None:
            yield from self._wrapped(title)
            return
        corner = _CORNER
        for piece in wrapped(title, self._columns - len(corner), indent=0):
            yield Text.assemble((corner, "dim"), piece)
            corner = f"{_BAR} "
        for line in (first, *lines):
            if self._room <= 0:
                self._left_out += 1
                continue
            self._room -= 1
            yield from self._in_box(line, part.content)
        yield Text("╰─", "dim")

    def _in_box(self, line: Text, content: Content) -> Iterator[Text]:
        columns = self._columns - len(_BAR)
        # The end of a file's line are facts, that of a record's a value that may be long.
        is_file = isinstance(content, mrub_pb2.Manifest)
        pieces = wrapped(line, columns, indent=2) if is_file else (clipped(line, columns),)
        for piece in pieces:
            yield Text.assemble((_BAR, "dim"), piece)

    def _wrapped(self, text: Text) -> Iterator[Text]:
        return wrapped(text, self._columns, indent=2)

    def rest(self) -> Iterator[Text]:
        if self._left_out:
            yield Text(f"… {counted(self._left_out, 'more record')}: raise --limit", "dim")


def _part_json(part: ManifestPart, limit: int | None) -> dict[str, Json]:
    if part.content is None:
        return {"name": part.name, "bytes": part.byte_count, "damage": part.damage}
    members = content_json(part.content)
    if limit is not None:
        for name in ("records", "entries", "files"):
            listed = members.get(name)
            if isinstance(listed, list) and len(listed) > limit:
                members[name] = listed[:limit]
                members[f"omitted_{name}"] = len(listed) - limit
    return {"bytes": part.byte_count, **members}
