"""Times as the demo tells them: in a unit that suits them, the middle and the slow ones apart."""

import pytest
from examples.demo.stage import Finding, Latency, Timing, shown_seconds


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0.0 µs"),
        (8.44e-6, "8.4 µs"),
        (0.000_123, "123 µs"),
        (0.001, "1.0 ms"),
        (0.0123, "12 ms"),
        (0.999, "999 ms"),
        (1.0, "1.0 s"),
        (72.4, "72 s"),
    ],
)
def test_a_time_is_shown_in_the_unit_that_suits_it(seconds: float, shown: str) -> None:
    assert shown_seconds(seconds) == shown


def test_the_middle_and_the_slowest_of_a_hundred_calls_are_told_apart() -> None:
    latency = Latency.of([*[0.001] * 98, 0.5, 0.5, 0.5])

    assert latency.p50 == 0.001
    assert latency.p99 == 0.5
    assert str(latency) == "p50 1.0 ms, p99 500 ms"


@pytest.mark.parametrize(("seconds", "both"), [([], 0.0), ([0.25], 0.25)])
def test_few_calls_have_a_latency_too(seconds: list[float], both: float) -> None:
    assert Latency.of(seconds) == Latency(p50=both, p99=both)


def test_a_timing_is_three_numbers() -> None:
    timing = Timing(
        name="put", what="put", latency=Latency(p50=0.001, p99=0.002), rows_per_second=9_000.4
    )

    assert timing.findings == (
        Finding("put_p50_microseconds", 1_000.0),
        Finding("put_p99_microseconds", 2_000.0),
        Finding("put_rows_per_second", 9_000),
    )
