"""Commands on the Versions of a table: history, changes, consumers, tag, rollback."""

import sys
from datetime import datetime
from typing import cast

import click
import pyarrow as pa
from rich.text import Text

from neve.catalog.table import Table, open_table_of
from neve.cli.commands import DocumentedCommand
from neve.cli.options import (
    AskedLake,
    WholeNumber,
    complete_consumer,
    complete_tag,
    on_a_lake,
    table_argument,
    to_file_argument,
    wide_option,
)
from neve.cli.row_output import STANDARD_OUTPUT, RowForm, RowTable, asked_form, write_rows
from neve.cli.table_report import consumer_rows, history_lines, history_rows
from neve.engine.change_feed import ChangeFeed, Changes
from neve.engine.table_options import TableOptions
from neve.errors import InvalidArgument
from neve.inspect.page import JsonDocument, Page, write_json
from neve.inspect.shown_text import Json, shown_text
from neve.model.display import counted
from neve.read.changes import CHANGE_TYPE, COMMIT_TIMESTAMP


@click.command(cls=DocumentedCommand, examples=["neve history shop.orders"])
@table_argument
@on_a_lake
def history(*, name: str, lake: AskedLake, as_json: bool) -> None:
    """Show the retained versions of a table, oldest first."""
    with lake.open() as catalog:
        table = catalog.load_table(name)
        if as_json:
            document = JsonDocument()
            document.members({"table": table.name})
            document.array("versions", history_rows(table))
            document.end()
        else:
            Page().lines(history_lines(table))


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
@click.option("--remove", is_flag=True, help="Remove the tag instead.")
@on_a_lake
def tag(
    *, name: str, tag_name: str, version: int | None, remove: bool, lake: AskedLake, as_json: bool
) -> None:
    """Tag a version of a table, so that it never expires; an existing tag moves.

    Works while a writer is open. Rows that are not flushed yet are not in any version.
    """
    if tag_name.isdigit() and not remove:
        raise InvalidArgument(
            f"the tag {tag_name} would look like the number of a version",
            hint=f"Use another name: neve tag {shown_text(name)} v{tag_name} --version {tag_name}",
        )
    if remove and version is not None:
        raise InvalidArgument("--remove does not take a version", hint="Leave out --version")
    with (
        lake.open() as catalog,
        catalog.table(name, read_only=True) as table,
    ):
        # Tags need no writer, and a read-only handle has no side effects.
        in_catalog = catalog.load_table(name)
        work = in_catalog.stored.writer_state
        if remove:
            work.remove_tag(tag_name)
            unflushed, tagged = 0, None
        else:
            tagged = table.refresh().version if version is None else version
            work.tag(tag_name, tagged)
            unflushed = table.stats().memtable_rows if version is None else 0
        in_catalog.refresh().publish_committed()
    if as_json:
        write_json({"table": name, "tag": tag_name, "version": tagged})
        return
    page = Page()
    if tagged is None:
        page.line(f"removed the tag {shown_text(tag_name)}")
        return
    page.line(f"tagged version {tagged:,} as {shown_text(tag_name)}")
    if unflushed:
        page.line(f"{counted(unflushed, 'change')} not in it, because not flushed yet")


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
    help="Go back to the version with this tag.",
    shell_complete=complete_tag,
)
@click.option(
    "--timestamp",
    metavar="TIME",
    help="Go back to the version of this time: 2024-01-31T12:00:00+00:00, or 2h ago.",
)
@on_a_lake
def rollback(
    *,
    name: str,
    version: int | None,
    version_option: int | None,
    tag: str | None,
    timestamp: str | None,
    lake: AskedLake,
    as_json: bool,
) -> None:
    """Make an old version of a table current again.

    This commits a new version: later versions stay in the history until they expire.
    """
    if version is not None and version_option is not None:
        raise InvalidArgument("the version is given twice", hint="Use VERSION or --version")
    asked = version if version_option is None else version_option
    if asked is None and tag is None and timestamp is None:
        raise InvalidArgument(
            "no version is given to go back to",
            hint=f"Run `neve rollback {shown_text(name)} VERSION`, or --tag or --timestamp; "
            f"`neve history {shown_text(name)}` shows the versions",
        )
    with (
        lake.open() as catalog,
        catalog.table(name, options=TableOptions(background=False)) as table,
    ):
        wanted = catalog.load_table(name).at(asked, tag=tag, timestamp=timestamp).number
        number = table.rollback(wanted)
    if as_json:
        write_json({"table": name, "restored": wanted, "version": number})
    else:
        Page().line(f"version {number:,} of {shown_text(name)} is version {wanted:,} again")


@click.command(
    cls=DocumentedCommand,
    examples=[
        "neve changes shop.orders",
        "neve changes shop.orders --since 2 --format jsonl",
        "neve changes shop.orders changes.parquet",
        "neve changes shop.orders --consumer billing --format jsonl",
        "neve changes shop.orders --since 2 --live",
    ],
)
@table_argument
@to_file_argument
@click.option(
    "--since",
    type=WholeNumber(),
    show_default="0, from the beginning",
    metavar="N",
    help="Start after this version.",
)
@click.option(
    "--until",
    type=WholeNumber(),
    show_default="the current one",
    metavar="M",
    help="End with this version.",
)
@click.option("--follow", is_flag=True, help="Wait for new versions, until interrupted.")
@click.option("--live", is_flag=True, help="Show the changes of unflushed rows as well, last.")
@click.option(
    "--consumer",
    metavar="NAME",
    help="Continue where this consumer stopped, and store how far it came.",
    shell_complete=complete_consumer,
)
@click.option(
    "--keep",
    "keep_seconds",
    type=WholeNumber(),
    metavar="SECONDS",
    show_default="7 days, or as given before",
    help="How long the consumer keeps history after it was last read.",
)
@click.option(
    "--format",
    "--output",
    "output",
    type=click.Choice([form.value for form in RowForm]),
    show_default="as FILE is named, otherwise table",
    help="Output format; parquet needs FILE, and --follow takes table or jsonl.",
)
@wide_option
@on_a_lake
def changes(
    *,
    name: str,
    file: str | None,
    since: int | None,
    until: int | None,
    follow: bool,
    live: bool,
    consumer: str | None,
    keep_seconds: int | None,
    output: str | None,
    wide: bool,
    lake: AskedLake,
    as_json: bool,
) -> None:
    """Show the changes to the rows of a table, or write them to FILE.

    Changes are in the order of commits, and by key within a commit; the old row of an update comes
    before the new one. _change_type is insert, update_preimage, update_postimage or delete. In a
    table whose rows expire, _expired marks deletes of rows that had expired. Rows that are not
    flushed yet are not in any version; with --live their changes come last, without version and
    time, and a flush shows them again.

    A consumer is a name whose position the table stores, once all changes are written; if the
    command fails before, the next one shows them again. A new consumer starts after --since;
    without it at the beginning, or at the oldest version if earlier ones have expired. One that
    exists skips to --since, and never goes back. Versions that it has not read do not expire until
    it was not read for as long as --keep says. `neve consumers` lists consumers.
    """
    form = asked_form(output, file, as_json=as_json)
    if consumer is not None or keep_seconds is not None:
        _check_consumer(consumer, until=until, follow=follow)
    if live:
        _check_live(until=until, follow=follow)
    if follow:
        _check_endless(form, until=until, file=file)
    with (
        lake.open() as catalog,
        catalog.table(name, read_only=True) as table,
    ):
        path = STANDARD_OUTPUT if file is None else file
        if follow:
            _follow(table, since or 0, form, wide=wide)
            return
        feed = ChangeFeed(open_table_of(table).engine)
        if consumer is None:
            _write(table, feed.changes(since or 0, until, live=live), form, path, wide=wide)
        else:
            consumed = feed.consume(consumer, since, keep_seconds=keep_seconds, live=live)
            _write(table, consumed, form, path, wide=wide)
            # What was written must have left this process before the position moves.
            sys.stdout.flush()
            consumed.finish()


@click.command(
    cls=DocumentedCommand,
    examples=["neve consumers shop.orders", "neve consumers shop.orders --json"],
)
@table_argument
@click.option(
    "--drop",
    "dropped",
    metavar="NAME",
    help="Remove this consumer: it no longer keeps history.",
    shell_complete=complete_consumer,
)
@on_a_lake
def consumers(*, name: str, dropped: str | None, lake: AskedLake, as_json: bool) -> None:
    """Show the consumers of the changes of a table, or remove one.

    A consumer is a name under which `neve changes --consumer` and `changes` in Python store how far
    they have read. It holds the versions after its position, so that they do not expire, until it
    was not read for the time that it keeps them. Works while a writer is open.
    """
    with lake.open() as catalog:
        table = catalog.load_table(name)
        if dropped is not None:
            table.drop_consumer(dropped)
        rows = [*consumer_rows(table.refresh())]
    if as_json:
        write_json({"table": name, "dropped": dropped, "consumers": rows})
        return
    page = Page()
    if dropped is not None:
        page.line(f"removed the consumer {shown_text(dropped)}")
        return
    for row in rows:
        held = "holds the versions after it" if row["holds"] else "holds nothing"
        page.line(
            f"{shown_text(str(row['name']))}  read up to version {row['position']:,}, last at "
            f"{row['updated']}, {held}; keeps them for {row['keep_seconds']:,g} s"
        )
    if not rows:
        page.line("no consumers")


def _check_consumer(consumer: str | None, *, until: int | None, follow: bool) -> None:
    if consumer is None:
        raise InvalidArgument("--keep needs --consumer", hint="Name one: --consumer billing")
    if until is not None or follow:
        other = "--follow" if follow else "--until"
        raise InvalidArgument(
            f"both --consumer and {other} are given",
            hint=f"Leave out {other}: a consumer reads up to the current version",
        )


def _check_live(*, until: int | None, follow: bool) -> None:
    if until is not None or follow:
        other = "--follow" if follow else "--until"
        raise InvalidArgument(
            f"both --live and {other} are given",
            hint=f"Leave out {other}: live changes come once, after the current version",
        )


def _check_endless(form: RowForm, *, until: int | None, file: str | None) -> None:
    if until is not None:
        raise InvalidArgument(
            "both --follow and --until are given", hint="Leave out --until: --follow does not end"
        )
    if file not in {None, STANDARD_OUTPUT}:
        raise InvalidArgument(
            "a file appears when it is complete, and with --follow it never is",
            hint="Leave out FILE, and redirect the output",
        )
    if form not in {RowForm.TABLE, RowForm.JSONL}:
        raise InvalidArgument(
            f"{form.value} is one document, and with --follow it never ends",
            hint="Use --format jsonl",
        )


def _write(table: Table, changes: Changes, form: RowForm, path: str, *, wide: bool) -> None:
    """Write the changes after one version up to another."""
    since, last = changes.since, changes.until
    schema, batches = _shown_schema(changes.schema), map(_shown, changes.batches())
    if form is RowForm.TABLE:
        page = Page()
        drawing = _drawing(schema, page, wide=wide)
        page.lines(drawing.lines(map(_drawn, batches)))
        words = f"{counted(drawing.row_count, 'row')} · after version {since:,} to {last:,}"
        page.line(Text(words, "dim"))
        return
    facts: dict[str, Json] = {"table": table.name, "since": since, "until": last}
    written = write_rows(form, schema, batches, path=path, facts=facts)
    if path != STANDARD_OUTPUT:
        Page().line(f"wrote {counted(written, 'row')} to {shown_text(path)}")


def _follow(table: Table, since: int, form: RowForm, *, wide: bool) -> None:
    page = Page()
    for batch in map(_shown, table.follow(since)):
        if form is RowForm.TABLE:
            _draw(page, batch, wide=wide)
        else:
            write_rows(form, batch.schema, [batch], path=STANDARD_OUTPUT, facts={})
        page.flush()


def _draw(page: Page, batch: pa.RecordBatch, *, wide: bool) -> None:
    page.lines(_drawing(batch.schema, page, wide=wide).lines([_drawn(batch)]))


def _drawing(schema: pa.Schema, page: Page, *, wide: bool) -> RowTable:
    place = schema.get_field_index(COMMIT_TIMESTAMP)
    drawn = schema.set(place, pa.field(COMMIT_TIMESTAMP, pa.string()))
    return RowTable(drawn, columns=page.table_columns(wide=wide), whole={CHANGE_TYPE})


def _drawn(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the times of commits as text: to the millisecond, in UTC."""
    place = batch.schema.get_field_index(COMMIT_TIMESTAMP)
    times = cast("list[datetime | None]", batch.column(place).to_pylist())
    texts = [each and f"{each:%Y-%m-%dT%H:%M:%S}.{each.microsecond // 1_000:03}Z" for each in times]
    return batch.set_column(place, COMMIT_TIMESTAMP, pa.array(texts, pa.string()))


def _shown_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with times of commits in the time unit of table columns."""
    place = schema.get_field_index(COMMIT_TIMESTAMP)
    return schema.set(place, schema.field(place).with_type(pa.timestamp("us", tz="UTC")))


def _shown(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.cast(_shown_schema(batch.schema))
