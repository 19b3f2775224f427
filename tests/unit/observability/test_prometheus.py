"""Metrics as Prometheus reads them."""

from threading import Thread

import pytest

from neve.observability.metrics import (
    FLUSH_QUEUE,
    FLUSH_SECONDS,
    SERVER_REQUEST_SECONDS,
    WAL_ROWS,
    Observed,
)
from neve.observability.prometheus import BOUNDS, PrometheusRecorder


def test_counters_and_histograms_are_written_in_the_text_format() -> None:
    recorder = PrometheusRecorder()
    recorder.add(WAL_ROWS, 3)
    recorder.add(WAL_ROWS, 4)
    for seconds in (0.0001, 0.02, 0.02, 100.0):
        recorder.add(FLUSH_SECONDS, seconds)
    recorder.observe(SERVER_REQUEST_SECONDS, 0.5, {"route": 'a"b\\c\nd', "status": "200"})

    lines = recorder.text().splitlines()
    assert "# TYPE neve_wal_rows_total counter" in lines
    assert "neve_wal_rows_total 7" in lines
    assert "# TYPE neve_engine_flush_seconds histogram" in lines
    assert 'neve_engine_flush_seconds_bucket{le="0.0005"} 1' in lines
    assert 'neve_engine_flush_seconds_bucket{le="0.025"} 3' in lines
    assert 'neve_engine_flush_seconds_bucket{le="60"} 3' in lines
    assert 'neve_engine_flush_seconds_bucket{le="+Inf"} 4' in lines
    assert "neve_engine_flush_seconds_count 4" in lines
    name = "neve_server_request_seconds_count"
    assert f'{name}{{route="a\\"b\\\\c\\nd",status="200"}} 1' in lines
    assert recorder.total(WAL_ROWS) == 7
    assert list(BOUNDS) == sorted(BOUNDS)


def test_labels_without_end_do_not_fill_the_memory() -> None:
    recorder = PrometheusRecorder()
    for number in range(6_000):
        recorder.observe(WAL_ROWS, 1, {"route": str(number)})

    assert len(recorder.text().splitlines()) == 5_001


def test_numbers_of_tables_are_told_apart_and_gauges_are_asked_for() -> None:
    recorder = PrometheusRecorder()
    first, again = recorder.labelled({"table": "a"}), recorder.labelled({"table": "a"})
    first.add(WAL_ROWS, 2)
    again.add(WAL_ROWS, 3)
    recorder.labelled({"table": "b"}).add(WAL_ROWS, 1)
    asked = [0]

    def observe() -> list[Observed]:
        asked[0] += 1
        return [(FLUSH_QUEUE, asked[0], {"table": "a"})]

    end = recorder.watch(observe)

    assert 'neve_wal_rows_total{table="a"} 5' in recorder.text()
    assert recorder.total(WAL_ROWS) == 6
    text = recorder.text()
    assert "# TYPE neve_table_flush_queue gauge" in text
    assert 'neve_table_flush_queue{table="a"} 2' in text
    end()
    end()
    assert "flush_queue" not in recorder.text()


def test_a_source_that_fails_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    recorder = PrometheusRecorder()
    recorder.add(WAL_ROWS, 1)

    def failing() -> list[Observed]:
        raise ValueError("broken")

    recorder.watch(failing)

    assert "neve_wal_rows_total 1" in recorder.text()
    assert "a source of metrics failed" in caplog.text


def test_many_threads_lose_no_number() -> None:
    recorder = PrometheusRecorder()

    def add() -> None:
        mine = recorder.labelled({"table": "t"})
        for _ in range(10_000):
            mine.add(WAL_ROWS, 1)

    threads = [Thread(target=add) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert recorder.total(WAL_ROWS) == 40_000
