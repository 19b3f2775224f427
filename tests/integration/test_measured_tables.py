"""A lake with a recorder that has labels: what it says of calls, queues and the cache."""

import re

import neve
from neve.observability.metrics import SAMPLED
from neve.observability.prometheus import PrometheusRecorder


def number(text: str, name: str, table: str = "shop.orders") -> float:
    found = re.search(rf'^{name}{{table="{table}"}} (.*)$', text, re.MULTILINE)
    assert found is not None, name
    return float(found.group(1))


def test_calls_are_timed_by_table() -> None:
    recorder = PrometheusRecorder()
    with neve.open("memory://measured", recorder=recorder) as lake:
        table = lake.create_table("shop.orders", {"id": int, "city": str}, "id")
        other = lake.create_table("shop.more", {"id": int}, "id")
        table.upsert([{"id": key, "city": "a"} for key in range(100)])
        table.flush()
        for key in range(2 * SAMPLED):
            assert (table.get(key) is None) == (key >= 100)
        for key in range(SAMPLED):
            table.put({"id": key, "city": "b"})
        assert table.scan().to_arrow().num_rows == 100
        other.put({"id": 1})
        text = recorder.text()

        assert number(text, "neve_table_get_seconds_count") == 2
        assert number(text, "neve_table_put_seconds_count") == 1
        assert number(text, "neve_table_put_seconds_count", "shop.more") == 1
        assert number(text, "neve_table_upsert_seconds_count") == 1
        assert number(text, "neve_table_scan_seconds_count") == 1
        assert number(text, "neve_manifest_commit_seconds_count") >= 1
        assert number(text, "neve_engine_flush_seconds_count") == 1
        assert number(text, "neve_wal_rows_total") == 100 + SAMPLED
        assert number(text, "neve_table_flush_queue") == 0
        assert number(text, "neve_table_memtable_bytes") > 0
        assert number(text, "neve_table_level_0_files") >= 0
        assert number(text, "neve_table_cache_bytes") >= 0
        # Rows of small files come from their index, not from the cache.
        assert number(text, "neve_table_cache_hits_total") >= 0
        assert number(text, "neve_table_cache_misses_total") >= 0
    assert "flush_queue" not in recorder.text()


def test_without_such_a_recorder_a_handle_is_the_plain_one() -> None:
    with neve.open("memory://plain") as lake:
        table = lake.create_table("shop.orders", {"id": int}, "id")

        assert type(table) is neve.Table
