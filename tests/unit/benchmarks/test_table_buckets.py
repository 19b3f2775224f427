"""The benchmark of bucketed tables: its answer is checked against one made without a table."""

from pathlib import Path

from benchmarks.peers.table_bucketing import expected_total, upsert_buckets


def test_a_bucketed_table_adds_up_to_what_was_written(tmp_path: Path) -> None:
    reply = upsert_buckets(str(tmp_path), rows=2_000, buckets=4, rounds=2, round_rows=300)

    assert reply["rows"] == 600
    assert reply["answer"] == expected_total(2_000, rounds=2, round_rows=300)
    assert reply["answer"] != expected_total(2_000, rounds=1, round_rows=300)
    # Each flush writes a file for each bucket.
    assert reply["facts"]["files"] == 4 * 3
