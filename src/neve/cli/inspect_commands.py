"""`neve inspect wal`: shows logs as drawings or as JSON, one after the other."""

from dataclasses import dataclass, replace
from typing import Final

import click

from neve.cli.commands import DocumentedCommand
from neve.cli.exit_codes import report_failure
from neve.cli.number_type import WholeNumber
from neve.errors import Corruption, InvalidArgument, NeveError
from neve.inspect.log_drawing import LogDrawing
from neve.inspect.log_json import LogJson
from neve.inspect.opened_file import OpenedFile, open_inspected
from neve.inspect.page import Page
from neve.wal.inspection import LogInspection, PayloadKind, payload_kind_of
from neve.wal.log_ending import Ending

_RECORDS_DRAWN: Final = 100
_PAYLOADS: Final = {PayloadKind.BATCH: "write batches", PayloadKind.EDIT: "version edits"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """How the logs are to be shown."""

    as_json: bool
    limit: int | None
    start_offset: int
    payload: str | None
    hex_only: bool
    strict: bool
    follows: bool = False
    """Whether an empty line is to stand before the drawing."""


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
    help="A JSON document instead of a drawing; of several files, one document after the other.",
)
@click.option(
    "--limit",
    type=WholeNumber(),
    metavar="N",
    help="Show at most N records of each file, and the parts up to the last of them "
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
    help="What the records hold: batches of rows, or version edits, which say what files joined or "
    "left a database [default: edit for files named MANIFEST-*, otherwise batch].",
)
@click.option("--hex", "hex_only", is_flag=True, help="Show bytes as hexadecimal, even text.")
@click.option("--strict", is_flag=True, help="End with exit code 5 when anything is damaged.")
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

    A damaged log is shown as far as it can be read. Where reading a log of neve ends, and why, is
    what recovery would say of it as the last log of its table. Of several files those that cannot
    be shown are reported and passed over; the exit code is that of the first of them.
    """
    wish = _Wish(
        as_json=as_json,
        limit=limit,
        start_offset=start_offset,
        payload=payload,
        hex_only=hex_only,
        strict=strict,
    )
    if len(files) == 1:
        _show(files[0], wish)
        return
    codes = []
    for number, file in enumerate(files):
        try:
            _show(file, replace(wish, follows=number > 0), name=file)
        except NeveError as error:
            codes.append(report_failure(error, as_json=as_json))
    if codes:
        click.get_current_context().exit(codes[0])


def _show(file: str, wish: _Wish, *, name: str | None = None) -> None:
    """Show one log, under another name than its own where that would not tell it from others."""
    with open_inspected(file) as opened:
        if wish.start_offset >= opened.byte_count:
            raise InvalidArgument(
                f"--from {wish.start_offset:,} is behind the end of {file}",
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
            ending = _draw(inspection, shown, wish)
    if wish.strict and ending.damage_count:
        raise Corruption("the log is damaged", path=file, offset=ending.offset)


def _draw(inspection: LogInspection, opened: OpenedFile, wish: _Wish) -> Ending:
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
    likeness = opened.likeness()
    is_named_like_one = opened.log_number is not None
    if likeness is None and (is_named_like_one or inspection.looks_like_a_log()):
        return
    looks = "" if likeness is None else f"; it looks like {likeness}"
    raise InvalidArgument(
        f"{path} is not a log: nothing in it has the form and checksum of a record{looks}",
        hint="Logs are named like 000001.wal (neve) or 000001.log (RocksDB, LevelDB)",
    )


def _refuse_wrong_payload(inspection: LogInspection, path: str) -> None:
    other = inspection.other_payload()
    if other is not None:
        raise InvalidArgument(
            f"{path} is a log of {_PAYLOADS[other]}, not of {_PAYLOADS[inspection.payload]}",
            hint=f"Say --payload {other}, or leave --payload out",
        )
