"""Metrics through OpenTelemetry, read back with its own SDK."""

from typing import Any

import pytest

import neve
from neve.observability.metrics import FLUSH_QUEUE, FLUSH_SECONDS, WAL_ROWS
from neve.observability.opentelemetry import OpenTelemetryRecorder

metrics = pytest.importorskip("opentelemetry.sdk.metrics")
export = pytest.importorskip("opentelemetry.sdk.metrics.export")


def read(reader: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401 - OpenTelemetry's own
    """Return the points of each metric, by table."""
    found: dict[str, dict[str, Any]] = {}
    data = reader.get_metrics_data()
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points = {
                    str(point.attributes.get("table", "")): point
                    for point in metric.data.data_points
                }
                found[metric.name] = points
    return found


def test_a_lake_is_seen_by_opentelemetry() -> None:
    reader = export.InMemoryMetricReader()
    provider = metrics.MeterProvider([reader])
    recorder = OpenTelemetryRecorder(provider.get_meter("neve"))

    with neve.open("memory://telemetry", recorder=recorder) as lake:
        table = lake.create_table("shop.orders", {"id": int}, "id")
        table.upsert([{"id": key} for key in range(10)])
        table.flush()
        found = read(reader)
    provider.shutdown()

    assert found[WAL_ROWS.name]["shop.orders"].value == 10
    assert found[FLUSH_SECONDS.name]["shop.orders"].count == 1
    assert found[FLUSH_QUEUE.name]["shop.orders"].value == 0
