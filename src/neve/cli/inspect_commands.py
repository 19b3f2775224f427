"""`neve inspect`: shows the content of a file as a drawing or JSON; one command per kind."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from neve.cli.commands import DocumentedCommand
from neve.cli.exit_codes import report_failure
from neve.cli.options import WholeNumber, memory_option
from neve.errors import Corruption, InvalidArgument, LimitExceeded, NeveError
from neve.inspect.data_file import data_file_tree, decoded_facts
from neve.inspect.decoder_process import memory_for
from neve.inspect.log_drawing import LogDrawing
from neve.inspect.log_json import LogJson
from neve.inspect.manifest import object_tree, store_tree
from neve.inspect.opened_file import OpenedFile, open_inspected
from neve.inspect.page import Page, Tree, draw_tree, write_tree
from neve.inspect.vectors import vector_tree
from neve.model.display import counted
from neve.wal.inspection import LogInspection, PayloadKind, payload_kind_of
from neve.wal.log_ending import Ending

_RECORDS_DRAWN: Final = 100
_LINES_DRAWN: Final = 200
_GROUPS_DRAWN: Final = 20
_POSITIONS_DRAWN: Final = 20
_POSITIONS_IN_JSON: Final = 10_000
_PAYLOADS: Final = {PayloadKind.BATCH: "write batches", PayloadKind.EDIT: "version edits"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogWish:
    """How to show the logs."""

    as_json: bool
    limit: int | None
    start_offset: int
    payload: str | None
    hex_only: bool
    strict: bool
    follows: bool = False
    """Whether an empty line precedes the drawing."""


@click.command(
    cls=DocumentedCommand,
    examples=["neve inspect wal 000001.wal --limit 10", "neve inspect wal - < 000001.wal"],
)
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=click.Path(path_type=str),
    help="Logs, or - for standard input.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Write JSON instead of a drawing, one document per file.",
)
@click.option(
    "--limit",
    type=WholeNumber(),
    metavar="N",
    help="Show at most N records of each file, and the parts up to the last one "
    f"[default: {_RECORDS_DRAWN} in a drawing, all in JSON].",
)
@click.option(
    "--from",
    "start_offset",
    type=WholeNumber(),
    default=0,
    metavar="OFFSET",
    help="Start with the first record at or after this byte: 11498, 11,498 or 0x2cea.",
)
@click.option(
    "--payload",
    type=click.Choice([kind.value for kind in PayloadKind]),
    help="What the records hold: batches of rows, or version edits, which add or remove files "
    "[default: edit for files named MANIFEST-*, otherwise batch].",
)
@click.option("--hex", "hex_only", is_flag=True, help="Show bytes as hexadecimal, even text.")
@click.option("--strict", is_flag=True, help="Exit with code 5 if anything is damaged.")
def wal(
    *,
    files: tuple[str, ...],
    as_json: bool,
    limit: int | None,
    start_offset: int,
    payload: str | None,
    hex_only: bool,
    strict: bool,
) -> None:
    """Show write-ahead logs: blocks, records, batches and rows, damage, and where reading ends.

    Reads logs of neve, of RocksDB and LevelDB, and of merutable, a table engine in Rust whose logs
    differ in their checksums; and MANIFEST files of RocksDB and LevelDB. FILE is a file, or - for
    standard input.

    A damaged log is shown as far as it can be read. For a log of neve, the end and its reason are
    what recovery would report if it was the last log of its table. Files that cannot be shown are
    reported and skipped; the exit code is that of the first one.
    """
    wish = _LogWish(
        as_json=as_json,
        limit=limit,
        start_offset=start_offset,
        payload=payload,
        hex_only=hex_only,
        strict=strict,
    )
    if len(files) == 1:
        _show_log(files[0], wish)
        return
    codes = []
    for number, file in enumerate(files):
        try:
            _show_log(file, replace(wish, follows=number > 0), name=file)
        except NeveError as error:
            codes.append(report_failure(error, as_json=as_json))
    if codes:
        click.get_current_context().exit(codes[0])


def _show_log(file: str, wish: _LogWish, *, name: str | None = None) -> None:
    """Show one log, as `name` where several files may have the same name."""
    with open_inspected(file) as opened:
        if wish.start_offset >= opened.byte_count:
            raise InvalidArgument(
                f"--from {wish.start_offset:,} is after the end of {file}",
                hint=f"It has {opened.byte_count:,} bytes",
            )
        guessed = payload_kind_of(opened.name)
        inspection = LogInspection(
            opened.read_at,
            payload=guessed if wish.payload is None else PayloadKind(wish.payload),
            log_number=opened.log_number,
            start_offset=wish.start_offset,
        )
        _refuse_what_is_no_log(inspection, opened, file)
        if wish.payload is not None:
            _refuse_wrong_payload(inspection, file)
        shown = opened if name is None else replace(opened, name=name)
        if wish.as_json:
            ending = LogJson(inspection, limit=wish.limit, hex_only=wish.hex_only).write(shown)
        else:
            ending = _draw_log(inspection, shown, wish)
    if wish.strict and ending.damage_count:
        raise Corruption("the log is damaged", path=file, offset=ending.offset)


def _draw_log(inspection: LogInspection, opened: OpenedFile, wish: _LogWish) -> Ending:
    page = Page()
    if wish.follows:
        page.line()
    drawing = LogDrawing(
        opened,
        inspection,
        columns=page.columns,
        limit=_RECORDS_DRAWN if wish.limit is None else wish.limit,
        hex_only=wish.hex_only,
    )
    page.lines(drawing.lines())
    assert drawing.ending is not None, "a drawing ends with the log's Ending"
    return drawing.ending


def _refuse_what_is_no_log(inspection: LogInspection, opened: OpenedFile, path: str) -> None:
    if inspection.identity.dialect is not None:
        return
    is_named_like_one = opened.log_number is not None
    if opened.likeness() is None and (is_named_like_one or inspection.looks_like_a_log()):
        return
    raise InvalidArgument(
        f"{path} is not a log: nothing in it has the form and checksum of a record"
        f"{opened.likeness_words()}",
        hint="Logs are named like 000001.wal (neve) or 000001.log (RocksDB, LevelDB)",
    )


def _refuse_wrong_payload(inspection: LogInspection, path: str) -> None:
    other = inspection.other_payload()
    if other is not None:
        raise InvalidArgument(
            f"{path} is a log of {_PAYLOADS[other]}, not of {_PAYLOADS[inspection.payload]}",
            hint=f"Use --payload {other}, or leave out --payload",
        )


@click.command(cls=DocumentedCommand, examples=["neve inspect dv vectors.puffin"])
@click.argument(
    "path",
    metavar="FILE",
    type=click.Path(path_type=str),
    help="A Puffin file, such as one in the directory deletes of a table.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of a drawing.")
@click.option(
    "--limit",
    type=WholeNumber(),
    metavar="N",
    help=(
        f"Show at most N positions of each vector [default: {_POSITIONS_DRAWN} in a drawing, "
        f"{_POSITIONS_IN_JSON:,} in JSON]."
    ),
)
@click.option("--strict", is_flag=True, help="Exit with code 5 if a vector is damaged.")
def dv(*, path: str, as_json: bool, limit: int | None, strict: bool) -> None:
    """Show the data files and rows that the deletion vectors of a Puffin file mark.

    Other blobs are listed. A damaged vector is reported, and the others are still shown.
    """
    if Path(path).is_dir():
        raise InvalidArgument(
            f"{path} is a directory, not a Puffin file",
            hint="Name one file, such as one in the directory deletes of a table",
        )
    most = _POSITIONS_IN_JSON if as_json else _POSITIONS_DRAWN
    with open_inspected(path) as opened:
        tree = vector_tree(opened, path, limit=most if limit is None else limit)
        _show(tree, as_json=as_json)
    problems = tree.find_problems()
    if strict and problems:
        raise Corruption(
            f"{counted(len(problems), 'vector')} of the file cannot be read: {problems[0]}",
            path=path,
        )


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
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of a drawing.")
@click.option(
    "--limit",
    type=WholeNumber(),
    metavar="N",
    help=f"Show at most N records [default: {_LINES_DRAWN} in a drawing, all in JSON].",
)
@click.option("--strict", is_flag=True, help="Exit with code 5 if anything is damaged.")
def manifest(*, path: str, as_json: bool, limit: int | None, strict: bool) -> None:
    """Show a HEAD, segment, checkpoint or lease, the manifest of a version, or a whole store.

    A store is a directory such as manifest/catalog. A damaged store is shown as far as it can be
    read.
    """
    drawn = _LINES_DRAWN if limit is None else limit
    if not Path(path).is_dir():
        with open_inspected(path) as opened:
            _show(object_tree(opened, path, limit=limit, drawn=drawn), as_json=as_json)
        return
    tree = store_tree(path, limit=limit, drawn=drawn)
    _show(tree, as_json=as_json)
    if strict and tree.find_problems():
        # The drawing says what is wrong.
        raise Corruption("the manifest store is damaged", path=path)


@click.command(cls=DocumentedCommand, examples=["neve inspect sst part.parquet"])
@click.argument(
    "path",
    metavar="FILE",
    type=click.Path(path_type=str),
    help="A data file of a table, or any other Parquet file.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of a drawing.")
@click.option(
    "--limit",
    type=WholeNumber(),
    metavar="N",
    help=f"Show at most N row groups [default: {_GROUPS_DRAWN} in a drawing, all in JSON].",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with code 5 if anything is damaged, 6 if pages were not decoded.",
)
@memory_option
def sst(
    *, path: str, as_json: bool, limit: int | None, strict: bool, memory_limit: int | None
) -> None:
    """Show a data file: its footer, columns, row groups and checksums.

    Reads any Parquet file. A damaged file is shown as far as it can be read.
    Pages that need more memory than the limit are reported and not decoded.
    """
    with open_inspected(path) as opened:
        memory_bytes = memory_for(opened.byte_count, memory_limit)
        facts = decoded_facts(opened, path, memory_bytes)
        most = len(facts.groups) if as_json else _GROUPS_DRAWN
        _show(data_file_tree(facts, limit=most if limit is None else limit), as_json=as_json)
    if strict and facts.problems:
        raise Corruption(
            f"{counted(len(facts.problems), 'place')} damaged: {facts.problems[0]}", path=path
        )
    if strict and facts.skipped:
        raise LimitExceeded(
            f"not all pages were decoded: {facts.skipped[0]}", limit=memory_bytes, path=path
        )


def _show(tree: Tree, *, as_json: bool) -> None:
    if as_json:
        write_tree(tree)
    else:
        draw_tree(tree)
