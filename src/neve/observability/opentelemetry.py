"""OpenTelemetryRecorder: passes metrics on to OpenTelemetry, under their own names.

    import neve
    from opentelemetry import metrics
    from neve.observability.opentelemetry import OpenTelemetryRecorder

    lake = neve.open("lake", recorder=OpenTelemetryRecorder(metrics.get_meter("neve")))

A metric in seconds is a histogram, a gauge is read by the exporter, all others are counters. Labels
are attributes. Where they go is decided by the program, which sets up OpenTelemetry's SDK; the
extra `opentelemetry` has its interface only.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, Final, Protocol, TypeAlias

from neve.errors import Unavailable
from neve.observability.metrics import ALL_METRICS, Metric, Observe, Recorder, Watched

_UNITS: Final = {"seconds": "s", "bytes": "By"}

Instrument: TypeAlias = Any
"""A counter or a histogram of OpenTelemetry."""


class Meter(Protocol):
    """What is used of `opentelemetry.metrics.Meter`."""

    def create_counter(self, name: str, unit: str = ..., description: str = ...) -> Instrument:
        """Make a sum."""

    def create_histogram(self, name: str, unit: str = ..., description: str = ...) -> Instrument:
        """Make a distribution."""

    def create_observable_counter(
        self,
        name: str,
        callbacks: Sequence[Callable[..., Any]] | None = ...,
        unit: str = ...,
        description: str = ...,
    ) -> Instrument:
        """Make a sum that is asked for."""

    def create_observable_gauge(
        self,
        name: str,
        callbacks: Sequence[Callable[..., Any]] | None = ...,
        unit: str = ...,
        description: str = ...,
    ) -> Instrument:
        """Make a number that is asked for."""


class _Labelled:
    """A recorder with fixed labels."""

    def __init__(self, recorder: "OpenTelemetryRecorder", labels: Mapping[str, str]) -> None:
        self._recorder = recorder
        self._labels = dict(labels)

    def add(self, metric: Metric, amount: float) -> None:
        self._recorder.observe(metric, amount, self._labels)


class OpenTelemetryRecorder:
    """A recorder that passes everything on to a meter; safe for many threads."""

    def __init__(self, meter: Meter) -> None:
        try:
            self._observation = importlib.import_module("opentelemetry.metrics").Observation
        except ModuleNotFoundError as missing:
            raise Unavailable(
                "OpenTelemetry is not installed",
                hint="Install it with: pip install 'neve[opentelemetry]'",
            ) from missing
        self._meter = meter
        self._watched = Watched()
        # Guarded by _lock.
        self._lock = Lock()
        self._instruments: dict[str, Instrument] = {}
        self._asks = False

    def add(self, metric: Metric, amount: float) -> None:
        """Add to a metric without labels."""
        self.observe(metric, amount, {})

    def observe(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        """Add to a counter, or to the histogram of a metric in seconds."""
        instrument = self._instruments.get(metric.name) or self._made(metric)
        if metric.is_histogram:
            instrument.record(amount, labels)
        else:
            instrument.add(amount, labels)

    def labelled(self, labels: Mapping[str, str]) -> Recorder:
        """Return a recorder whose numbers have these labels."""
        return _Labelled(self, labels)

    def watch(self, observe: Observe) -> Callable[[], None]:
        """Ask a function for numbers whenever they are exported; return what ends that."""
        end = self._watched.add(observe)
        with self._lock:
            is_first, self._asks = not self._asks, True
        if is_first:
            self._ask()
        return end

    def _made(self, metric: Metric) -> Instrument:
        with self._lock:
            found = self._instruments.get(metric.name)
            if found is None:
                make = (
                    self._meter.create_histogram
                    if metric.is_histogram
                    else self._meter.create_counter
                )
                found = make(metric.name, unit=_unit(metric), description=metric.meaning)
                self._instruments[metric.name] = found
            return found

    def _ask(self) -> None:
        """Let the meter ask for what is watched: one instrument for each metric that may be."""
        for metric in ALL_METRICS:
            if metric.is_histogram:
                continue
            callbacks = [partial(self._read, metric)]
            if metric.is_gauge:
                self._meter.create_observable_gauge(
                    metric.name, callbacks, unit=_unit(metric), description=metric.meaning
                )
            elif metric.is_watched:
                self._meter.create_observable_counter(
                    metric.name, callbacks, unit=_unit(metric), description=metric.meaning
                )

    def _read(self, metric: Metric, _options: object) -> Iterator[Any]:
        for found, amount, labels in self._watched.read():
            if found is metric:
                yield self._observation(amount, dict(labels))


def _unit(metric: Metric) -> str:
    return _UNITS.get(metric.unit, f"{{{metric.unit}}}")
