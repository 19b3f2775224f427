"""`neve.spark.migrate`: a table of others becomes a table of neve, as a copy.

1. Read the schema of the source; refuse what cannot be read, and a key that it has not.
2. Make the table, of the source's columns.
3. Load all rows as one Version. Keys that are NULL or there twice are an error with examples,
   unless `order_by` says which of the rows counts.

When anything fails the new table is dropped again: there is all of it or none.
"""

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Final

from pyspark.sql import SparkSession

from neve.catalog.open_catalog import open as open_catalog
from neve.errors import AlreadyExists, InvalidArgument
from neve.jobs.run import BulkOutcome
from neve.spark.call_check import check_place, check_session
from neve.spark.migration import DeltaSource, IcebergSource, ParquetSource, Source
from neve.spark.spark_session import prepare
from neve.spark.writing import load

FORMATS: Final = ("parquet", "delta", "iceberg")


def migrate(
    session: SparkSession,
    source: str | PathLike[str],
    location: str | PathLike[str],
    name: str,
    *,
    primary_key: Sequence[str],
    format: str = "parquet",  # noqa: A002 - Spark's word for it
    partition_by: Sequence[str] = (),
    order_by: str | None = None,
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> BulkOutcome:
    """Copy a Parquet directory, a Delta or an Iceberg table into a new table.

    `partition_by` and `properties` are as in `create_table`. Of rows with one key the last by
    `order_by` stays; without it they are an error. Raises AlreadyExists for a taken name.
    """
    check_session(session)
    check_place(location, name, after="session")
    if not isinstance(source, str | PathLike):
        raise InvalidArgument(
            f"the source is a {type(source).__name__}", hint="Give the directory of the table"
        )
    if not primary_key:
        raise InvalidArgument("no column is the primary key", hint="Name one, or several")
    _refuse_inside(location, source)
    prepare(session)
    with open_catalog(location, storage_options=storage_options) as lake:
        if lake.table_exists(name):
            raise AlreadyExists(
                f"there is a table {name!a} already", hint="Choose another name, or drop it"
            )
        opened = _source(session, os.fspath(source), format)
        table = lake.create_table(
            name, opened.schema, primary_key, partition_by=partition_by, properties=properties
        )
        schema = table.schema
        try:
            return load(
                opened.frame(session, schema),
                location,
                name,
                order_by=order_by,
                storage_options=storage_options,
            )
        except BaseException:
            lake.drop_table(name, purge=True)
            raise


def _refuse_inside(location: str | PathLike[str], source: str | PathLike[str]) -> None:
    """Raise InvalidArgument for a warehouse among the files of the source, which it would be of."""
    places = [os.fspath(each).rstrip("/") for each in (location, source)]
    inner, outer = [
        each if "://" in each else os.path.abspath(each)  # noqa: PTH100 - as text, like the others
        for each in places
    ]
    if inner == outer or inner.startswith(f"{outer}/"):
        raise InvalidArgument(
            "the warehouse lies inside the source, whose files it would become",
            path=inner,
            hint="Give a location of its own",
        )


def _source(session: SparkSession, location: str, kind: str) -> Source:
    if "://" not in location:
        location = os.path.abspath(location)  # noqa: PTH100 - workers have other directories
    match kind:
        case "parquet":
            return ParquetSource(session, location)
        case "delta":
            return DeltaSource(location)
        case "iceberg":
            return IcebergSource(location)
        case _:
            raise InvalidArgument(
                f"format={kind!r} is not known", hint=f"use one of {', '.join(FORMATS)}"
            )
