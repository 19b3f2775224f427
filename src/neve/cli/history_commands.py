"""Commands on the Versions of a table: tag, rollback."""

import click

from neve.cli.commands import DocumentedCommand
from neve.cli.number_type import WholeNumber
from neve.cli.options import complete_tag, on_a_lake, open_lake, table_argument
from neve.engine.table_options import TableOptions
from neve.errors import InvalidArgument
from neve.inspect.page import Page, write_json
from neve.inspect.shown_text import shown_text
from neve.model.display import counted


@click.command(
    cls=DocumentedCommand,
    examples=["neve tag shop.orders monthly", "neve tag shop.orders first --version 2"],
)
@table_argument
@click.argument("tag_name", metavar="TAG", help="The tag, a name such as monthly or 2024-01.")
@click.option(
    "--version",
    type=WholeNumber(),
    metavar="N",
    show_default="the current one",
    help="The version to name.",
)
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
    if tag_name.isdigit() and not remove:
        raise InvalidArgument(
            f"the tag {tag_name} would look like the number of a version",
            hint=f"Name it first: neve tag {shown_text(name)} v{tag_name} --version {tag_name}",
        )
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
        catalog.load_table(name).publish_committed()
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


@click.command(
    cls=DocumentedCommand,
    examples=["neve rollback shop.orders 2", "neve rollback shop.orders --tag monthly"],
)
@table_argument
@click.argument(
    "version",
    type=WholeNumber(),
    required=False,
    metavar="[VERSION]",
    help="The number of the version.",
)
@click.option(
    "--version", "version_option", type=WholeNumber(), metavar="N", help="The same, as an option."
)
@click.option(
    "--tag",
    metavar="TAG",
    help="Back to the version with this tag.",
    shell_complete=complete_tag,
)
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
    version_option: int | None,
    tag: str | None,
    timestamp: str | None,
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make an old version of a table the current one again.

    It becomes a new version: what came after it stays in the history until it expires.
    """
    if version is not None and version_option is not None:
        raise InvalidArgument("the version is said twice", hint="Give VERSION or --version")
    asked = version if version_option is None else version_option
    if asked is None and tag is None and timestamp is None:
        raise InvalidArgument(
            "no version is given to go back to",
            hint=f"Say `neve rollback {shown_text(name)} VERSION`, or --tag or --timestamp; "
            f"`neve history {shown_text(name)}` shows them",
        )
    with (
        open_lake(lake, storage_options) as catalog,
        catalog.table(name, options=TableOptions(background=False)) as table,
    ):
        wanted = catalog.load_table(name).at(asked, tag=tag, timestamp=timestamp).number
        number = table.rollback(wanted)
    if as_json:
        write_json({"table": name, "restored": wanted, "version": number})
    else:
        Page().line(f"version {number:,} of {shown_text(name)} is version {wanted:,} again")
