"""PrometheusRecorder: keeps metrics with labels, and shows them in Prometheus' text format.

A metric in seconds is a histogram: how often, how long in sum, and how many within each bound. All
others are counters. Names are those of `neve.observability.metrics` with underscores:

    neve_engine_flush_seconds_bucket{le="0.1"} 12
    neve_server_request_seconds_count{method="GET",route="table",status="200"} 40
    neve_wal_rows_total 1000
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from neve.observability.metrics import Metric

BOUNDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
)  # fmt: skip
"""Upper bounds of the buckets of a histogram, in seconds."""

_SECONDS: Final = "seconds"
# Labels come from a fixed set; this only bounds what a mistake could cost.
_SERIES_MAX: Final = 5_000

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Series:
    total: float = 0.0
    count: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * len(BOUNDS))


class PrometheusRecorder:
    """A `Recorder` with labels and histograms; safe for many threads."""

    def __init__(self) -> None:
        # Guarded by _lock.
        self._lock = Lock()
        self._series: dict[Metric, dict[Labels, _Series]] = {}
        self._count = 0

    def add(self, metric: Metric, amount: float) -> None:
        """Add to a metric without labels."""
        self.observe(metric, amount, {})

    def observe(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        """Add to a counter, or to the histogram of a metric in seconds."""
        key = tuple(sorted(labels.items()))
        with self._lock:
            by_labels = self._series.setdefault(metric, {})
            series = by_labels.get(key)
            if series is None:
                if self._count >= _SERIES_MAX:
                    return
                self._count += 1
                series = by_labels[key] = _Series()
            series.total += amount
            series.count += 1
            place = bisect_left(BOUNDS, amount)
            if place < len(BOUNDS):
                series.buckets[place] += 1

    def total(self, metric: Metric) -> float:
        """Sum of a metric so far, over all labels."""
        with self._lock:
            return sum(each.total for each in self._series.get(metric, {}).values())

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        lines: list[str] = []
        with self._lock:
            for metric, by_labels in sorted(self._series.items(), key=lambda each: each[0].name):
                name = metric.name.replace(".", "_")
                is_histogram = metric.unit == _SECONDS
                name = name if is_histogram else f"{name}_total"
                lines.append(f"# HELP {name} {metric.meaning}")
                lines.append(f"# TYPE {name} {'histogram' if is_histogram else 'counter'}")
                for labels, series in sorted(by_labels.items()):
                    if is_histogram:
                        lines += _histogram(name, labels, series)
                    else:
                        lines.append(f"{name}{_shown(labels)} {_number(series.total)}")
        return "".join(f"{line}\n" for line in lines)


def _histogram(name: str, labels: Labels, series: _Series) -> list[str]:
    lines: list[str] = []
    within = 0
    for bound, count in zip(BOUNDS, series.buckets, strict=True):
        within += count
        lines.append(f"{name}_bucket{_shown((*labels, ('le', f'{bound:g}')))} {within}")
    lines.append(f"{name}_bucket{_shown((*labels, ('le', '+Inf')))} {series.count}")
    lines.append(f"{name}_sum{_shown(labels)} {_number(series.total)}")
    lines.append(f"{name}_count{_shown(labels)} {series.count}")
    return lines


def _shown(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
