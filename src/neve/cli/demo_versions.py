"""The acts about Versions: changes are vectors, old Versions stay, and a feed tells what changed.

Each compares what the table gives with what follows from the numbers of the rows.
"""

from collections import Counter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from examples.demo.order_rows import CHANGED, DELETED, DELETED_FROM, FIRST_LOAD, ROWS, by_key
from examples.demo.stage import Finding, Found, Stage, check, check_equal, shown_seconds

from neve.model.display import counted

TAG: Final = "first-load"


def change(stage: Stage) -> tuple[Found, ...]:
    """Update and delete rows; nothing is rewritten, and the Version is clean again."""
    narrator, orders = stage.narrator, stage.orders
    before = set(orders.files()["file_path"].to_pylist())
    changed = stage.table.changed_rows(CHANGED)
    with stage.timed() as seconds:
        orders.upsert(changed)
        orders.delete_many([stage.table.key_values(number) for number in DELETED])
        orders.delete_where(f"id >= {DELETED_FROM}")
        version = orders.flush()
    stats = orders.stats()
    check(before <= set(orders.files()["file_path"].to_pylist()), "a file was rewritten")
    due = stage.table.rows_after
    check_equal(orders.scan().to_arrow(), due, "a scan after changes")
    narrator.say(
        f"{len(CHANGED):,} rows updated and {ROWS - due.num_rows:,} deleted, flushed as Version "
        f"{version} in {shown_seconds(seconds())}"
    )
    narrator.found(
        f"{stats.deleted_count:,} old rows marked in {counted(stats.vector_count, 'small vector')}"
        ", no file rewritten"
    )
    return (
        Finding("changed_rows", len(CHANGED)),
        Finding("marked_rows", stats.deleted_count),
        Finding("vectors", stats.vector_count),
        Finding("change_seconds", round(seconds(), 3)),
    )


def travel(stage: Stage) -> tuple[Found, ...]:
    """Read old Versions and what changed between them; freeze, name, and go back and forth."""
    narrator, orders = stage.narrator, stage.orders
    newest = orders.version
    with orders.at(FIRST_LOAD) as old:
        check_equal(old.scan().to_arrow(), stage.table.all_rows, f"Version {FIRST_LOAD}")
    narrator.found(f"Version {FIRST_LOAD} is as it was: {ROWS:,} rows, none of them changed")
    told = _changes(stage, newest)
    with orders.snapshot() as frozen:
        orders.put({**stage.table.row(0), "note": "newer than the snapshot"})
        key = stage.table.key_values(0)
        seen, now = frozen.get(key), orders.get(key)
        check(seen == stage.table.changed_row(0), "a snapshot changed")
        check(now is not None and now["note"] != "changed", "a put is not seen")
    narrator.found("a snapshot stays as it is while the table is written to")
    orders.tag(TAG, FIRST_LOAD)
    orders.rollback(FIRST_LOAD)
    check_equal(orders.scan().to_arrow(), stage.table.all_rows, "after a rollback")
    orders.rollback(newest)
    check_equal(orders.scan().to_arrow(), stage.table.rows_after, "after rolling forward")
    narrator.found(
        f"rolled back to Version {FIRST_LOAD}, then forward to {newest}; a tag keeps the old one"
    )
    return (
        Finding("versions", orders.history().num_rows),
        Finding("rolled_back_to", FIRST_LOAD),
        Finding("changes_told", sum(told.values())),
    )


def _changes(stage: Stage, newest: int) -> Counter[str]:
    """Read the change feed of the Version that updated and deleted rows; compare it."""
    with stage.timed() as seconds:
        feed = stage.orders.changes(since=FIRST_LOAD, until=newest).read_all()
    told = Counter(map(str, feed["_change_type"].to_pylist()))
    updated = [number for number in CHANGED if number < DELETED_FROM]
    deleted = ROWS - stage.table.rows_after.num_rows
    check(
        told
        == {
            "update_preimage": len(updated),
            "update_postimage": len(updated),
            "delete": deleted,
        },
        f"the change feed tells of {dict(told)}",
    )
    after = feed.filter(pc.field("_change_type") == "update_postimage")
    due = by_key(pa.Table.from_batches([stage.table.changed_rows(updated)]))
    after = after.select(due.column_names).cast(due.schema)
    check_equal(after, due, "the rows of the change feed")
    stage.narrator.found(
        f"change feed: {len(updated):,} updates, before and after, and {deleted:,} deletes in "
        f"{shown_seconds(seconds())}; {len(CHANGED) - len(updated):,} rows were updated, then "
        "deleted: one delete each"
    )
    return told
