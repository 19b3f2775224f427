"""`neve inspect wal`: shows a log as a drawing or as JSON."""

from typing import Final

import click

from neve.cli.log_drawing import LogDrawing
from neve.cli.log_file import LogFileOnDisk, open_log_file
from neve.cli.log_json import LogJson
from neve.cli.output import Page
from neve.cli.shown_text import counted
from neve.errors import Corruption, InvalidArgument
from neve.wal.inspection import LogInspection, PayloadKind, payload_kind_of
from neve.wal.log_ending import Ending

_RECORDS_DRAWN: Final = 100


@click.command()
@click.argument("file", type=click.Path(path_type=str))
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a drawing.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Show at most N records [default: {_RECORDS_DRAWN} in a drawing, all in JSON].",
)
@click.option(
    "--from",
    "start_offset",
    type=click.IntRange(min=0),
    default=0,
    metavar="OFFSET",
    help="Start with the first record at or behind this byte.",
)
@click.option(
    "--payload",
    type=click.Choice([kind.value for kind in PayloadKind]),
    help="What the records hold [default: edit for MANIFEST-…, otherwise batch].",
)
@click.option("--hex", "hex_only", is_flag=True, help="Show bytes as hexadecimal, even text.")
@click.option("--strict", is_flag=True, help="End with exit code 5 when anything is damaged.")
def wal(
    *,
    file: str,
    as_json: bool,
    limit: int | None,
    start_offset: int,
    payload: str | None,
    hex_only: bool,
    strict: bool,
) -> None:
    """Show a write-ahead log: blocks, records, batches and rows, damage, and where reading ends.

    Reads logs of neve, RocksDB, LevelDB and merutable, and MANIFEST files of RocksDB and LevelDB.
    A damaged log is shown as far as it can be read; recovery would say the same about it.
    """
    with open_log_file(file) as opened:
        if start_offset >= opened.byte_count:
            raise InvalidArgument(
                f"--from {start_offset} is behind the end of {file}",
                hint=f"It has {opened.byte_count} bytes",
            )
        inspection = LogInspection(
            opened.read_at,
            payload=payload_kind_of(opened.name) if payload is None else PayloadKind(payload),
            log_number=opened.log_number,
            start_offset=start_offset,
        )
        _refuse_what_is_no_log(inspection, opened, file)
        if as_json:
            document = LogJson(inspection, limit=limit, hex_only=hex_only)
            ending = document.write(opened, start_offset=start_offset)
        else:
            ending = _draw(inspection, opened, limit=limit, hex_only=hex_only)
    if strict and ending.damage_count:
        raise Corruption(
            f"the log is damaged in {counted(ending.damage_count, 'place')}: {ending.detail}",
            path=file,
            offset=ending.offset,
        )


def _draw(
    inspection: LogInspection, opened: LogFileOnDisk, *, limit: int | None, hex_only: bool
) -> Ending:
    page = Page()
    drawing = LogDrawing(
        inspection,
        columns=page.columns,
        limit=_RECORDS_DRAWN if limit is None else limit,
        hex_only=hex_only,
    )
    page.lines(drawing.lines(opened))
    assert drawing.ending is not None, "a drawing ends with the log's Ending"
    return drawing.ending


def _refuse_what_is_no_log(inspection: LogInspection, opened: LogFileOnDisk, path: str) -> None:
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
