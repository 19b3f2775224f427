"""Commands on the Versions of a table: tag, rollback."""

import click

from neve.cli.lake_options import on_a_lake, open_lake
from neve.cli.output import Page, write_json
from neve.cli.shown_text import shown_text
from neve.cli.version_options import moment_of
from neve.engine.table_options import TableOptions
from neve.errors import InvalidArgument
from neve.model.shown_value import counted


@click.command()
@click.argument("name", metavar="TABLE")
@click.argument("tag_name", metavar="NAME")
@click.option("--version", type=int, metavar="N", help="The version [default: the current one].")
@click.option("--remove", is_flag=True, help="Take the name away instead.")
@on_a_lake
def tag(
    *,
    name: str,
    tag_name: str,
    version: int | None,
    remove: bool,
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Name a version of a table, so that it is kept for good; a name that is taken moves.

    Works beside a writer. Rows that are not flushed yet are in no version.
    """
    if remove and version is not None:
        raise InvalidArgument("a version is given to --remove", hint="Give the name alone")
    with (
        open_lake(lake, storage_options) as catalog,
        catalog.table(name, read_only=True) as table,
    ):
        # A handle for reading only changes nothing; the catalog's half of it needs no writer.
        work = table.stored.work
        if remove:
            work.remove_tag(tag_name)
            unflushed, tagged = 0, None
        else:
            tagged = table.refresh().version if version is None else version
            work.tag(tag_name, tagged)
            unflushed = table.stats().memtable_rows if version is None else 0
    if as_json:
        write_json({"table": name, "tag": tag_name, "version": tagged})
        return
    page = Page()
    if tagged is None:
        page.line(f"took the tag {shown_text(tag_name)} away")
        return
    page.line(f"tagged version {tagged:,} as {shown_text(tag_name)}")
    if unflushed:
        page.line(f"{counted(unflushed, 'change')} not in it: they are not flushed yet")


@click.command()
@click.argument("name", metavar="TABLE")
@click.argument("version", type=int, required=False, metavar="[VERSION]")
@click.option("--tag", metavar="NAME", help="Back to the version with this tag.")
@click.option(
    "--timestamp",
    metavar="TIME",
    help="Back to the version that was current at this time: 2024-01-31T12:00:00+00:00, or 2h ago.",
)
@on_a_lake
def rollback(
    *,
    name: str,
    version: int | None,
    tag: str | None,
    timestamp: str | None,
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make an old version of a table the current one again.

    It becomes a new version: what came after it stays in the history until it expires.
    """
    with (
        open_lake(lake, storage_options) as catalog,
        catalog.table(name, options=TableOptions(background=False)) as table,
    ):
        moment = None if timestamp is None else moment_of(timestamp)
        wanted = catalog.load_table(name).at(version, tag=tag, timestamp=moment).number
        number = table.rollback(wanted)
    if as_json:
        write_json({"table": name, "restored": wanted, "version": number})
    else:
        Page().line(f"version {number:,} of {shown_text(name)} is version {wanted:,} again")
