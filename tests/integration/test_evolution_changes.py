"""The change feed across every change of a schema.

Rows are told with the columns of the feed's end, whenever they changed: rows of a commit before the
evolution as it turns them, rows of one behind it as they were written. A feed that ends before the
evolution has the columns of that day, and the evolution itself is no change of a row.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pytest

import neve
from neve.catalog.table import Table
from neve.engine.table_options import TableOptions
from tests.integration.evolution_changes import CHANGES, SCHEMA, Change, Row, a_row

LABELS: Final = ("_change_type", "_commit_version", "_commit_timestamp")
KEYS: Final = range(8)
Told = list[tuple[object, Row]]


@contextmanager
def a_table() -> Iterator[Table]:
    with neve.open(f"memory://{uuid4()}") as lake:
        yield lake.create_table("a.b", SCHEMA, ["id"], options=TableOptions(background=False))


def told(feed: pa.RecordBatchReader) -> Told:
    """Return a feed as pairs of what happened and the row."""
    return [
        (
            change["_change_type"],
            {name: value for name, value in change.items() if name not in LABELS},
        )
        for change in feed.read_all().to_pylist()
    ]


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_feed_across_a_change_tells_every_row_with_the_columns_of_its_end(
    change: Change,
) -> None:
    with a_table() as table:
        table.upsert([a_row(key) for key in KEYS])
        first = table.flush()
        table.upsert([a_row(2, shift=40)])
        table.delete(3)
        table.put(a_row(4, shift=60))  # logged before the evolution, committed behind it
        with table.evolve() as e:
            change.evolve(e)
        evolved = e.version
        later = change.turn(a_row(5, shift=80)) | change.more
        table.put(later)
        table.delete(6)
        second = table.flush()
        table.compact(full=True)

        turn = change.turn
        inserts: Told = [("insert", a_row(key)) for key in KEYS]
        behind: Told = [
            ("update_preimage", turn(a_row(2))),
            ("update_postimage", turn(a_row(2, shift=40))),
            ("delete", turn(a_row(3))),
            ("update_preimage", turn(a_row(4))),
            ("update_postimage", turn(a_row(4, shift=60))),
            ("update_preimage", turn(a_row(5))),
            ("update_postimage", later),
            ("delete", turn(a_row(6))),
        ]
        assert evolved is not None
        assert told(table.changes(0, first)) == inserts
        assert told(table.changes(0)) == [(what, turn(row)) for what, row in inserts] + behind
        assert told(table.changes(first)) == told(table.changes(evolved)) == behind
        assert told(table.changes(first, evolved)) == told(table.changes(second)) == []
        names = table.schema.arrow_schema.names
        assert table.changes(0).schema.names == [*names, *LABELS]
        assert table.changes(0, first).schema.names == [*SCHEMA.names, *LABELS]


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_rollback_behind_a_change_is_told_with_the_columns_of_today(change: Change) -> None:
    with a_table() as table:
        table.upsert([a_row(key) for key in KEYS[:4]])
        first = table.flush()
        with table.evolve() as e:
            change.evolve(e)
        newest = change.turn(a_row(1, shift=20)) | change.more
        table.put(newest)
        table.delete(2)
        second = table.flush()

        table.rollback(first)

        assert told(table.changes(second)) == [
            ("update_preimage", newest),
            ("update_postimage", change.turn(a_row(1))),
            ("insert", change.turn(a_row(2))),
        ]
