"""`neve iceberg`: where other engines find a table, and how to read it from there."""

from typing import Final

import click

from neve.catalog.table_name import TableName
from neve.cli.commands import DocumentedCommand
from neve.cli.options import on_a_lake, open_lake, table_argument
from neve.inspect.page import Page, write_json
from neve.inspect.shown_text import shown_text

_EXTENSION: Final = "LOAD iceberg;"
# DuckDB 1.5 may take the bytes of one deletion vector from its cache for another one's.
_NO_FILE_CACHE: Final = "SET enable_external_file_cache=false;"

_NEEDS: Final = {
    "DuckDB": ", after INSTALL iceberg once",
    "Spark": ", with the jar iceberg-spark-runtime of its version",
}


@click.command(
    cls=DocumentedCommand,
    examples=["neve iceberg shop.orders", "neve iceberg shop.orders --json"],
)
@table_argument
@on_a_lake
def iceberg(*, name: str, lake: str, storage_options: tuple[str, ...], as_json: bool) -> None:
    """Show where Iceberg's metadata of a table is, and how other engines read it.

    What is not published yet is published first; this works beside a writer. Rows that are not
    flushed yet are in no version, and no other engine sees them.
    """
    with open_lake(lake, storage_options) as catalog:
        table = catalog.load_table(name)
        metadata = table.iceberg_metadata()
        version, format_version = table.refresh().version, table.format_version
    location = metadata.rpartition("/metadata/")[0]
    readers = one_liners(name, metadata=metadata, location=location)
    if as_json:
        write_json(
            {
                "table": name,
                "metadata": metadata,
                "location": location,
                "version": version,
                "format_version": format_version,
                "readers": {**readers},
            }
        )
        return
    page = Page()
    page.line(f"{shown_text(name)}, version {version:,}, as Iceberg format {format_version}:")
    page.line(f"  {shown_text(metadata)}")
    for engine, words in readers.items():
        page.line()
        page.line(f"{engine}{_NEEDS.get(engine, '')}")
        page.line(f"  {shown_text(words)}")


def one_liners(name: str, *, metadata: str, location: str) -> dict[str, str]:
    """Give, for each engine, the line that reads a table."""
    parsed = TableName.parse(name)
    return {
        "DuckDB": f"{_EXTENSION} {_NO_FILE_CACHE} FROM iceberg_scan('{_sql(metadata)}');",
        "PyIceberg": f"StaticTable.from_metadata({metadata!r}).scan().to_arrow()",
        "Polars": f"pl.scan_iceberg({metadata!r}).collect()",
        "Spark": f"spark.read.format('iceberg').load({location!r})",
        "Trino": (
            "CALL iceberg.system.register_table("
            f"schema_name => '{_sql(parsed.namespace)}', table_name => '{_sql(parsed.table)}', "
            f"table_location => '{_sql(location)}');"
        ),
    }


def _sql(text: str) -> str:
    """Return a text as it stands between quotes in SQL."""
    return text.replace("'", "''")
