"""PrometheusRecorder: keeps metrics with labels, and shows them in Prometheus' text format.

A metric in seconds is a histogram: how often, how long in sum, and how many within each bound.
Gauges are read for each text, all others are counters. Names are those of
`neve.observability.metrics` with underscores:

    neve_engine_flush_seconds_bucket{le="0.1",table="shop.orders"} 12
    neve_server_request_seconds_count{method="GET",route="table",status="200"} 40
    neve_wal_rows_total{table="shop.orders"} 1000
    neve_table_flush_queue{table="shop.orders"} 0
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Final

from neve.observability.metrics import Metric, Observe, Watched

BOUNDS: Final = (
    0.000_002, 0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.0001, 0.000_25,
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
)  # fmt: skip
"""Upper bounds of the buckets of a histogram, in seconds."""

# Labels are names of tables and routes; this bounds what thousands of tables cost.
_LABELS_MAX: Final = 5_000
_NOTED_MAX: Final = 4_096

Labels = tuple[tuple[str, str], ...]


class _Series:
    """The numbers of one metric with one set of labels."""

    __slots__ = ("buckets", "count", "total")

    def __init__(self, metric: Metric) -> None:
        self.total = 0.0
        self.count = 0
        self.buckets: list[int] | None = [0] * len(BOUNDS) if metric.is_histogram else None

    def add(self, amount: float) -> None:
        self.total += amount
        self.count += 1
        if self.buckets is not None:
            place = bisect_left(BOUNDS, amount)
            if place < len(BOUNDS):
                self.buckets[place] += 1


class _Labelled:
    """A recorder with fixed labels.

    A put adds six numbers. They are only noted, which needs no lock, and summed up when many have
    come together or when they are shown.
    """

    def __init__(self, lock: Lock, kept: dict[str, tuple[Metric, _Series]]) -> None:
        self._noted: deque[tuple[Metric, float]] = deque()
        self._lock = lock
        self.kept = kept  # guarded by _lock

    def add(self, metric: Metric, amount: float) -> None:
        noted = self._noted
        noted.append((metric, amount))
        if len(noted) > _NOTED_MAX:
            with self._lock:
                self.sum_up_locked()

    def sum_up_locked(self) -> None:
        """Add what was noted to the sums."""
        noted, kept = self._noted, self.kept
        for _ in range(len(noted)):
            metric, amount = noted.popleft()
            found = kept.get(metric.name)
            if found is None:
                found = kept[metric.name] = (metric, _Series(metric))
            found[1].add(amount)


class PrometheusRecorder:
    """A recorder with labels and histograms; safe for many threads."""

    def __init__(self) -> None:
        self._watched = Watched()
        self._lock = Lock()
        self._by_labels: dict[Labels, _Labelled] = {}  # guarded by _lock
        self._plain = self.labelled({})

    def add(self, metric: Metric, amount: float) -> None:
        """Add to a metric without labels."""
        self._plain.add(metric, amount)

    def observe(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        """Add to a counter, or to the histogram of a metric in seconds."""
        self.labelled(labels).add(metric, amount)

    def labelled(self, labels: Mapping[str, str]) -> _Labelled:
        """Return a recorder whose numbers have these labels; beyond a bound they are not shown."""
        key = tuple(sorted(labels.items()))
        with self._lock:
            found = self._by_labels.get(key)
            if found is None:
                found = _Labelled(self._lock, {})
                if len(self._by_labels) < _LABELS_MAX:
                    self._by_labels[key] = found
            return found

    def watch(self, observe: Observe) -> Callable[[], None]:
        """Ask a function for numbers whenever they are shown; return what ends that."""
        return self._watched.add(observe)

    def total(self, metric: Metric) -> float:
        """Sum of a metric so far, over all labels."""
        with self._lock:
            total = 0.0
            for labelled in self._by_labels.values():
                labelled.sum_up_locked()
                found = labelled.kept.get(metric.name)
                total += 0.0 if found is None else found[1].total
            return total

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        shown: dict[str, tuple[Metric, dict[Labels, list[str]]]] = {}

        def show(labels: Labels, metric: Metric, series: _Series) -> None:
            by_labels = shown.setdefault(metric.name, (metric, {}))[1]
            by_labels[labels] = _lines(metric, labels, series)

        with self._lock:
            for labels, labelled in self._by_labels.items():
                labelled.sum_up_locked()
                for metric, series in labelled.kept.values():
                    show(labels, metric, series)
        for metric, amount, given in self._watched.read():
            series = _Series(metric)
            series.add(amount)
            show(tuple(sorted(given.items())), metric, series)
        lines: list[str] = []
        for _, (metric, by_labels) in sorted(shown.items()):
            lines += _head(metric)
            for _, found in sorted(by_labels.items()):
                lines += found
        return "".join(f"{line}\n" for line in lines)


def _kind(metric: Metric) -> str:
    return "histogram" if metric.is_histogram else "gauge" if metric.is_gauge else "counter"


def _name(metric: Metric) -> str:
    name = metric.name.replace(".", "_")
    return f"{name}_total" if _kind(metric) == "counter" else name


def _head(metric: Metric) -> list[str]:
    name = _name(metric)
    return [f"# HELP {name} {metric.meaning}", f"# TYPE {name} {_kind(metric)}"]


def _lines(metric: Metric, labels: Labels, series: _Series) -> list[str]:
    name = _name(metric)
    if series.buckets is None:
        return [f"{name}{_shown(labels)} {_number(series.total)}"]
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
