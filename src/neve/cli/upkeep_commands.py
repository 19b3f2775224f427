"""Commands that keep tables in order: flush, compact, expire, gc, verify, recover.

Those that write take the table's lock, so no other process may have it open for writing. Nothing
else runs in the background meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click
from rich.text import Text

from neve.catalog.lake import Lake
from neve.catalog.settlement import RecoveryReport, Settled
from neve.catalog.table import Table
from neve.cli.command_wording import failure_text
from neve.cli.commands import DocumentedCommand
from neve.cli.options import AskedLake, WholeNumber, on_a_lake, table_argument
from neve.cli.progress_bar import progress_bar
from neve.cli.table_report import (
    consumer_json,
    consumer_lines,
    lease_json,
    lease_lines,
    unflushed_words,
)
from neve.engine.table_options import TableOptions
from neve.engine.upkeep import GarbageReport
from neve.engine.verification import VerifyReport
from neve.errors import Corruption, NeveError
from neve.inspect.page import JsonDocument, Page, write_json
from neve.inspect.shown_text import Json, shown_text
from neve.model.display import counted

_OUTCOMES: Final = {
    Settled.NOTHING: "in order",
    Settled.BEGUN: "created; its creation had been interrupted",
    Settled.UPDATED: "updated in the catalog",
    Settled.REMOVED: "dropped; its name is removed now",
    Settled.UNPURGED: "dropped; readers still hold its files",
    Settled.PURGED: "dropped; its files are deleted now",
}


@click.command(cls=DocumentedCommand, examples=["neve flush shop.orders"])
@table_argument
@on_a_lake
def flush(*, name: str, lake: AskedLake, as_json: bool) -> None:
    """Commit the rows that are only in the log as a version."""
    with _written(lake, name) as table:
        before, number = table.version, table.flush()
    if as_json:
        write_json({"table": name, "version": number, "is_new": number != before})
    else:
        words = "is" if number != before else "is still"
        Page().line(f"the current version of {shown_text(name)} {words} {number:,}")


@click.command(
    cls=DocumentedCommand, examples=["neve compact shop.orders", "neve compact shop.orders --full"]
)
@table_argument
@click.option("--full", is_flag=True, help="Rewrite all files, even those in order.")
@on_a_lake
def compact(*, name: str, full: bool, lake: AskedLake, as_json: bool) -> None:
    """Flush, then rewrite small and half-deleted files until the table is in order.

    Rows that have expired are removed first.
    """
    with _written(lake, name) as table, progress_bar("compacting rows") as tell:
        before = table.stats()
        number = table.compact(full=full, progress=tell)
        after = table.stats()
    if as_json:
        write_json(
            {
                "table": name,
                "version": number,
                "rows": after.row_count,
                "files_before": before.file_count,
                "files": after.file_count,
                "bytes_before": before.file_bytes,
                "bytes": after.file_bytes,
            }
        )
    else:
        Page().line(
            f"version {number:,}: {counted(after.file_count, 'file')}, "
            f"{counted(after.file_bytes, 'byte')}; before: "
            f"{counted(before.file_count, 'file')}, {counted(before.file_bytes, 'byte')}"
        )


@click.command(
    cls=DocumentedCommand, examples=["neve expire shop.orders --keep-last 10 --older-than 7d"]
)
@table_argument
@click.option("--keep-last", type=WholeNumber(), metavar="N", help="Keep the newest N versions.")
@click.option(
    "--older-than",
    metavar="TIME",
    help="Keep versions newer than this: 2024-01-31T12:00:00+00:00, or an age such as 7d.",
)
@on_a_lake
def expire(
    *, name: str, keep_last: int | None, older_than: str | None, lake: AskedLake, as_json: bool
) -> None:
    """Expire old versions by the table's retention or the options; tagged versions stay.

    With both options, a version stays if either keeps it. Versions under a reader's lease, and
    those that a consumer of the changes has not read yet, stay too; leases and consumers are
    listed. `neve gc TABLE --run` deletes the files of expired versions.
    """
    with _written(lake, name) as table:
        report = table.expire(keep_last=keep_last, older_than=older_than)
    if as_json:
        write_json(
            {
                "table": name,
                "expired_versions": report.expired_versions,
                "kept_versions": report.kept_versions,
                "oldest_version": report.oldest_version,
                "unreachable_files": report.unreachable_files,
                "leases": [lease_json(lease) for lease in report.leases],
                "consumers": [consumer_json(each) for each in report.consumers],
                "is_publishing_due": report.is_publishing_due,
            }
        )
        return
    page = Page()
    page.line(
        f"{counted(len(report.expired_versions), 'version')} expired; "
        f"versions from {report.oldest_version:,} on are kept"
    )
    if report.kept_versions:
        kept = ", ".join(map(str, report.kept_versions))
        page.line(f"also kept, for tags or readers: {kept}")
    page.lines(lease_lines(report.leases))
    page.lines(consumer_lines(report.consumers))
    if report.unreachable_files:
        files = counted(report.unreachable_files, "file")
        page.line(f"`neve gc {shown_text(name)} --run` can delete {files}")
    if report.is_publishing_due:
        page.line("the disk is full: other engines see expired versions until `neve gc --run`")


@click.command(cls=DocumentedCommand, examples=["neve gc shop.orders", "neve gc shop.orders --run"])
@table_argument
@click.option("--run", "is_run", is_flag=True, help="Delete them.")
@on_a_lake
def gc(*, name: str, is_run: bool, lake: AskedLake, as_json: bool) -> None:
    """List the files that no version needs; with --run, delete them.

    Files under a reader's lease are listed, and stay until the lease ends.
    """
    with _written(lake, name) as table:
        report = table.collect_garbage(dry_run=not is_run)
    if as_json:
        document = JsonDocument()
        document.members({"table": name, "deleted": is_run, "bytes": report.byte_count})
        document.array("files", report.paths)
        document.end()
    else:
        Page().lines(_garbage_lines(name, report))


@click.command(
    cls=DocumentedCommand,
    examples=["neve verify shop.orders", "neve verify shop.orders --independent"],
)
@table_argument
@click.option(
    "--independent",
    is_flag=True,
    help="Also compare all rows with those an independent reader finds in the published table.",
)
@on_a_lake
def verify(*, name: str, independent: bool, lake: AskedLake, as_json: bool) -> None:
    """Read and check all files of a table; if anything is wrong, the exit code is 5.

    Works while a writer is open. Data files, vectors, indexes, logs, leases and published metadata
    are read, and those that could not be read are listed. Files that nothing needs are counted.
    """
    with (
        lake.open() as catalog,
        catalog.table(name, read_only=True) as table,
        progress_bar("reading bytes") as tell,
    ):
        unflushed = table.stats().memtable_rows
        try:
            report = table.verify(independent=independent, progress=tell)
        except Corruption as error:
            problems = _problems(error)
            failure: Corruption | None = error
        else:
            problems, failure = [], None
    if as_json:
        facts: dict[str, Json] = {"table": name, "is_sound": failure is None, "problems": problems}
        facts["unflushed_changes"] = unflushed
        write_json(facts | (_verified(report) if failure is None else {}))
    else:
        page = Page()
        for problem in problems:
            page.line(Text(f"✗ {shown_text(problem)}", "bold red"))
        if failure is None:
            page.line(Text(f"✔ {_verified_words(report)}{unflushed_words(unflushed)}", "green"))
            page.line(f"also read: {report.checked_words}")
            for unseen in report.unseen:
                page.line(Text(f"not seen: {shown_text(unseen)}", "yellow"))
    if failure is not None:
        raise failure


@click.command(cls=DocumentedCommand, examples=["neve recover"])
@on_a_lake
def recover(*, lake: AskedLake, as_json: bool) -> None:
    """Reconcile the catalog with all tables, and finish interrupted operations.

    Run it after restoring a backup, or after dropping tables with --purge while readers held their
    files. Tables that cannot be recovered are listed; the exit code is that of the first one.
    """
    with lake.open() as catalog:
        report = catalog.recover()
        names = _names_by_id(catalog)
    if as_json:
        document = JsonDocument()
        document.array("tables", _recovered(report, names))
        document.end()
    else:
        Page().lines(_recovery_lines(report, names))
    for error in report.failures.values():
        click.get_current_context().exit(error.exit_code)


@contextmanager
def _written(lake: AskedLake, name: str) -> Iterator[Table]:
    with (
        lake.open() as catalog,
        catalog.table(name, options=TableOptions(background=False)) as table,
    ):
        yield table


def _garbage_lines(name: str, report: GarbageReport) -> Iterator[Text]:
    for path in report.paths:
        yield Text(shown_text(path))
    files = f"{counted(report.file_count, 'file')}, {counted(report.byte_count, 'byte')}"
    if not report.file_count:
        yield Text("there is nothing to delete")
    elif report.is_dry_run:
        yield Text(f"{files} can be deleted: `neve gc {shown_text(name)} --run`")
    else:
        yield Text(f"deleted {files}")


def _problems(error: Corruption) -> list[str]:
    """Return the problems that a verification found."""
    return [failure_text(each) for each in error.problems] or [error.message]


def _verified(report: VerifyReport) -> dict[str, Json]:
    return {
        "version": report.version,
        "rows": report.row_count,
        "files": report.file_count,
        "bytes": report.byte_count,
        "vectors": report.vector_count,
        "versions": report.version_count,
        "checked": dict(report.checked),
        "unseen": list(report.unseen),
    }


def _verified_words(report: VerifyReport) -> str:
    return (
        f"version {report.version:,} is sound: {counted(report.row_count, 'row')} in "
        f"{counted(report.file_count, 'file')}, {counted(report.byte_count, 'byte')}, "
        f"{counted(report.vector_count, 'vector')}; "
        f"no file of {counted(report.version_count, 'version')} is missing"
    )


def _names_by_id(catalog: Lake) -> dict[str, str]:
    names = {}
    for name in catalog.list_tables():
        try:
            names[catalog.table_meta(name).table_id] = name
        except NeveError:
            continue  # dropped since the names were read, or among the failures by its id
    return names


def _recovered(report: RecoveryReport, names: dict[str, str]) -> Iterator[dict[str, Json]]:
    for table_id, outcome in report.outcomes.items():
        yield {"table_id": table_id, "name": names.get(table_id), "outcome": outcome.value}
    for table_id, error in report.failures.items():
        yield {"table_id": table_id, "name": names.get(table_id), "error": str(error)}


def _recovery_lines(report: RecoveryReport, names: dict[str, str]) -> Iterator[Text]:
    if not report.outcomes and not report.failures:
        yield Text("no tables")
    for table_id, outcome in report.outcomes.items():
        style = "dim" if outcome is Settled.NOTHING else ""
        yield Text.assemble(f"{_called(table_id, names)}  ", (_OUTCOMES[outcome], style))
    for table_id, error in report.failures.items():
        yield Text(f"{_called(table_id, names)}  ✗ {shown_text(str(error))}", "bold red")


def _called(table_id: str, names: dict[str, str]) -> str:
    name = names.get(table_id)
    return table_id if name is None else f"{table_id}  {shown_text(name)}"
