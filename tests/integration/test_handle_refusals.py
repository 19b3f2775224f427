"""What a handle refuses: writing when it only reads, anything when closed or forked, bad input."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import neve
from neve.errors import Closed, InvalidArgument, NeveError, SchemaMismatch
from neve.memtable import memtable_view

FIELDS: "list[pa.Field[Any]]" = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("text", pa.string()),
    pa.field("at", pa.timestamp("us", "UTC")),
]
SCHEMA = pa.schema(FIELDS)
QUIET = neve.TableOptions(background=False)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[neve.Catalog]:
    with neve.open(tmp_path) as opened:
        yield opened


@pytest.fixture
def table(lake: neve.Catalog) -> neve.Table:
    made = lake.create_table("a.b", schema=SCHEMA, primary_key=["id"], options=QUIET)
    made.upsert({"id": number, "text": f"text {number}"} for number in range(5))
    made.flush()
    return made


CHANGES: dict[str, Callable[[neve.Table], object]] = {
    "tag": lambda table: table.tag("name"),
    "remove_tag": lambda table: table.remove_tag("kept"),
    "set_properties": lambda table: table.set_properties({"owner": "me"}),
    "evolve": lambda table: table.evolve(),
}
LOOKS: dict[str, Callable[[neve.Table], object]] = {
    "history": lambda table: table.history(),
    "files": lambda table: table.files(),
    "refresh": lambda table: table.refresh(),
}


@pytest.mark.parametrize("call", CHANGES)
def test_a_handle_for_reading_only_changes_nothing(
    lake: neve.Catalog, table: neve.Table, call: str
) -> None:
    table.tag("kept")
    reader = lake.table("a.b", read_only=True)

    with pytest.raises(InvalidArgument, match="reading only"):
        CHANGES[call](reader)

    assert "owner" not in table.refresh().properties
    assert table.at(tag="kept").version == table.version


@pytest.mark.parametrize("call", [*CHANGES, *LOOKS])
def test_a_closed_handle_takes_no_calls(table: neve.Table, call: str) -> None:
    table.close()

    with pytest.raises(Closed):
        {**CHANGES, **LOOKS}[call](table)


class ClosedMeanwhile:
    """A lock that comes free only when another thread has closed the handle."""

    def __init__(self, table: neve.Table) -> None:
        self._table = table

    def __enter__(self) -> None:
        self._table._open._is_closed = True

    def __exit__(self, *_error: object) -> None:
        pass


def test_a_handle_that_is_closed_while_it_waits_to_open_opens_nothing(lake: neve.Catalog) -> None:
    handle = lake.create_table("a.c", schema=SCHEMA, primary_key=["id"], options=QUIET)
    handle.close()
    handle._open._is_closed = False  # as one that has opened nothing yet
    handle._open._opening = ClosedMeanwhile(handle)  # type: ignore[assignment]

    with pytest.raises(Closed):
        handle.get(1)


class BadArray:
    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return "not", "capsules"


class BadStream:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise ValueError("no stream")


BAD_CALLS: dict[str, Callable[[neve.Table], object]] = {
    "upsert of numbers": lambda table: table.upsert(pa.array([1, 2])),
    "upsert of a missing row": lambda table: table.upsert(pa.array([{"id": 61}, None])),
    "upsert of a bad array": lambda table: table.upsert(BadArray()),
    "upsert of a bad stream": lambda table: table.upsert(BadStream()),
    "get_many of a bad stream": lambda table: table.get_many(BadStream()),
    "delete_many of a bad stream": lambda table: table.delete_many(BadStream()),
    "get_many of a column twice": lambda table: table.get_many(
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    ),
    "compact with a number": lambda table: table.compact(
        full=True,
        progress=5,  # type: ignore[arg-type]
    ),
    "verify with a number": lambda table: table.verify(progress=5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_what_cannot_be_read_is_refused_with_an_error_of_neve(table: neve.Table, call: str) -> None:
    with pytest.raises(NeveError):
        BAD_CALLS[call](table)

    assert table.scan().to_arrow().num_rows == 5


@pytest.mark.parametrize(
    "keys",
    [
        pl.Series("id", [3, 1, 9]),
        pl.Series("other name", [3, 1, 9]),
        pl.DataFrame({"id": [3, 1, 9]}),
        pa.table({"id": [3, 1, 9]}),
        pa.array([3, 1, 9]),
    ],
    ids=["series", "series of another name", "frame", "table", "array"],
)
def test_keys_are_taken_from_a_series_and_from_a_frame(table: neve.Table, keys: object) -> None:
    assert table.get_many(keys)["id"].to_pylist() == [3, 1]


@pytest.mark.parametrize("with_missing", [False, True])
def test_rows_of_many_keys_are_more_than_one_array_holds(
    table: neve.Table, monkeypatch: pytest.MonkeyPatch, *, with_missing: bool
) -> None:
    keys = [4, 9, 0, 4, 2, 2, 8, 1, 3]
    # Rows that are found in the order asked are returned as they are.
    table.put({"id": 3, "text": "text 3"})
    whole = table.get_many(keys, with_missing=with_missing)
    monkeypatch.setattr(memtable_view, "_ARRAY_BYTES_MAX", 40)

    apart = table.get_many(keys, with_missing=with_missing)

    assert apart.column("text").num_chunks > 1
    assert apart.equals(whole)
    assert apart.schema == whole.schema
    found = [key if key < 5 else None for key in keys if with_missing or key < 5]
    assert apart["id"].to_pylist() == found


def test_a_moment_that_utc_cannot_say_is_refused_when_it_is_put(table: neve.Table) -> None:
    west, east = timezone(timedelta(hours=-12)), timezone(timedelta(hours=12))

    for moment in (datetime.max.replace(tzinfo=west), datetime.min.replace(tzinfo=east)):
        with pytest.raises(SchemaMismatch, match="outside the years 1 to 9999"):
            table.put({"id": 7, "at": moment})

    last = datetime.max.replace(tzinfo=UTC)
    table.put({"id": 7, "at": last})
    assert table.get(7) == {"id": 7, "text": None, "at": last}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_reads_nothing_through_its_parents_handles(
    table: neve.Table, tmp_path: Path
) -> None:
    table.close()
    script = """
import os, sys, warnings, neve
warnings.simplefilter("ignore")
lake = neve.open(sys.argv[1])
table = lake.table("a.b", options=neve.TableOptions(background=False))
unused = lake.table("a.b")
table.get(1)
scan = table.scan()
snapshot = table.snapshot()
pid = os.fork()
if pid == 0:
    calls = [
        lambda: table.get(1), lambda: table.get_many([1]), lambda: table.scan().to_arrow(),
        lambda: scan.to_arrow(), lambda: snapshot.get(1), lambda: unused.get(1),
        lambda: table.put({"id": 9}), lambda: lake.table("a.b"), lambda: lake.list_tables("a"),
    ]
    for call in calls:
        try:
            call()
            print("worked", flush=True)
        except neve.Closed as error:
            print("forked child" in str(error), flush=True)
    table.close()
    lake.close()
    os._exit(0)
os.waitpid(pid, 0)
print("parent", table.get(1)["id"], flush=True)
lake.close()
"""
    said = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert said.stdout.split("\n")[:-1] == [*(["True"] * 9), "parent 1"], said.stderr
