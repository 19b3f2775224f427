"""Times as people give them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from neve.catalog.moment import Moment, moment_ms
from neve.errors import InvalidArgument
from neve.testing.simulated_clock import SimulatedClock


@pytest.mark.parametrize(
    "moment",
    [
        "yesterday",
        "2024-01-31T12:00:00",
        pytest.param("2024", id="year"),
        pytest.param("20240131", id="day"),
        pytest.param("1706702400", id="seconds"),
        pytest.param("202401311200", id="minute"),
        pytest.param("20240131120000", id="second"),
        pytest.param("1706702400123000", id="microseconds"),
        pytest.param("-1706702400123", id="before 1970"),
        "2 hours ago",
        "2w",
        "-2h",
        pytest.param("", id="empty"),
        datetime(2024, 1, 31),  # noqa: DTZ001 - without a zone, as it is given
        True,
        1.5,
        None,
    ],
)
def test_what_is_no_moment_is_refused_with_the_forms_there_are(moment: Moment) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        moment_ms(moment, SimulatedClock())

    assert "aware datetime" in (refusal.value.hint or "")


@pytest.mark.parametrize(
    "moment",
    [
        1_706_702_400_123,
        pytest.param("1706702400123", id="digits"),
        datetime(2024, 1, 31, 12, microsecond=123_999, tzinfo=UTC),
        datetime(2024, 1, 31, 14, microsecond=123_000, tzinfo=timezone(timedelta(hours=2))),
        "2024-01-31T12:00:00.123+00:00",
        "2024-01-31T13:00:00.123+01:00",
    ],
)
def test_all_forms_give_milliseconds_rounded_down(moment: Moment) -> None:
    assert moment_ms(moment, SimulatedClock()) == 1_706_702_400_123


@pytest.mark.parametrize(
    ("age", "seconds"),
    [("90s ago", 90), ("90s", 90), ("30m ago", 1_800), (" 2 h ago", 7_200), ("7d", 604_800)],
)
def test_an_age_is_counted_back_from_now(age: str, seconds: int) -> None:
    clock = SimulatedClock()

    assert moment_ms(age, clock) == clock.now_ms() - seconds * 1_000
