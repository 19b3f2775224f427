"""`rest_load`, `rest_commit`, `rest_list`: the REST catalog over a lake, by HTTP on loopback."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

import neve
from benchmarks.harness import (
    Candidate,
    Kind,
    Outcome,
    Scale,
    Shows,
    Stopwatch,
    Workload,
)
from neve.catalog.catalog_state import make_table_id

_PATH: Final = "/v1/namespaces/shop/tables/orders"
_SCHEMA: Final = {"id": "long!", "city": "string"}
_TABLES: Final = 10_000
_ROWS_OF_A_COMMIT: Final = 100
_OK, _NOT_MODIFIED = 200, 304
_CLIENT: Final = f"""
import http.client, sys
address, count, is_known = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connection = http.client.HTTPConnection(address)
found, headers = set(), {{}}
for number in range(count):
    connection.request("GET", "{_PATH}", headers=headers)
    reply = connection.getresponse()
    reply.read()
    if number:
        found.add(reply.status)
    elif is_known:
        headers = {{"If-None-Match": reply.headers["ETag"]}}
print(*found)
"""


def build_rest_load(scale: Scale, _directory: Path) -> Workload:
    """Loads of one table, by one client that keeps its connection."""
    loads = scale.rows // 100

    def trial(*, is_known: bool) -> Callable[[Path, Stopwatch], Outcome]:
        def load(directory: Path, stopwatch: Stopwatch) -> Outcome:
            with neve.open(directory / "lake") as lake, lake.serve() as server:
                _make_table(lake, rows=1_000)
                address = server.url.removeprefix("http://")
                command = [sys.executable, "-c", _CLIENT, address, str(loads), str(int(is_known))]
                # In a process of its own: it would wait for the lock of this interpreter.
                with stopwatch:
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
            return Outcome(
                rows=loads,
                calls=loads,
                logical_bytes=0,
                answer=done.stdout.split(),
                expected=[str(_NOT_MODIFIED if is_known else _OK)],
            )

        return load

    return Workload(
        name="rest_load",
        sentence="Loads of a table through the REST catalog, by one client.",
        unit="requests",
        candidates=(
            Candidate(name="with If-None-Match", kind=Kind.NEVE, trial=trial(is_known=True)),
            Candidate(name="the whole table", kind=Kind.NEVE, trial=trial(is_known=False)),
        ),
        parameters={"requests": loads},
        uses_disk=False,
    )


def build_rest_commit(scale: Scale, _directory: Path) -> Workload:
    """Small appends of another engine to a table with a primary key."""

    def commit(directory: Path, stopwatch: Stopwatch) -> Outcome:
        with neve.open(directory / "lake") as lake, lake.serve() as server:
            _make_table(lake, rows=scale.rows)
            catalog = RestCatalog("lake", uri=server.url)
            table = catalog.load_table("shop.orders")
            schema = table.schema().as_arrow()
            with stopwatch:
                for number in range(scale.commits):
                    first = scale.rows + number * _ROWS_OF_A_COMMIT
                    ids = range(first, first + _ROWS_OF_A_COMMIT)
                    rows = [{"id": each, "city": "new"} for each in ids]
                    table.append(pa.Table.from_pylist(rows, schema=schema))
            count = lake.table("shop.orders").scan().count()
        return Outcome(
            rows=scale.commits,
            calls=scale.commits,
            logical_bytes=0,
            answer=count,
            expected=scale.rows + scale.commits * _ROWS_OF_A_COMMIT,
        )

    return Workload(
        name="rest_commit",
        sentence="Appends of a hundred rows by PyIceberg, each a Version of neve, published.",
        unit="commits",
        candidates=(
            Candidate(name="append of 100 rows", kind=Kind.NEVE, trial=commit, sync="each commit"),
        ),
        parameters={"commits": scale.commits, "rows_before": scale.rows},
    )


def build_rest_list(_scale: Scale, _directory: Path) -> Workload:
    """A list of many tables, right after the lake was opened."""

    def listing(directory: Path, stopwatch: Stopwatch) -> Outcome:
        with neve.open(directory / "lake") as lake:
            lake.create_namespace("shop")
            names = {
                f"shop.table{number:05d}": make_table_id(number, UUID(int=number))
                for number in range(1, _TABLES + 1)
            }
            # Names alone: making so many tables would take longer than everything else here.
            lake._entries.change_state(  # noqa: SLF001 - no call makes names alone
                lambda state: replace(state, tables=names, next_ordinal=_TABLES + 1)
            )
        with stopwatch, neve.open(directory / "lake") as lake, lake.serve() as server:
            found = RestCatalog("lake", uri=server.url).list_tables("shop")
        return Outcome(rows=1, calls=1, logical_bytes=0, answer=len(found), expected=_TABLES)

    return Workload(
        name="rest_list",
        sentence="Open a lake of 10,000 tables, serve it, and list them with PyIceberg.",
        unit="lists",
        candidates=(Candidate(name="10,000 tables", kind=Kind.NEVE, trial=listing),),
        shows=Shows.SECONDS,
        uses_disk=False,
    )


def _make_table(lake: neve.Lake, *, rows: int) -> None:
    properties = {"format-version": "2"}
    with lake.create_table("shop.orders", _SCHEMA, "id", properties=properties) as table:
        table.upsert(pa.table({"id": pa.array(range(rows)), "city": pa.array(["x"] * rows)}))
        table.flush()
