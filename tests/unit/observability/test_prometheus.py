"""Metrics as Prometheus reads them."""

from neve.observability.metrics import FLUSH_SECONDS, SERVER_REQUEST_SECONDS, WAL_ROWS
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

    assert len(recorder.text().splitlines()) == 5_002
