"""Times as people give them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from neve.catalog.moment import Moment, moment_ms, shown_moment
from neve.errors import InvalidArgument


@pytest.mark.parametrize(
    "moment",
    [
        "yesterday",
        "2024-01-31T12:00:00",
        datetime(2024, 1, 31),  # noqa: DTZ001 - without a zone, as it is given
        True,
        1.5,
        None,
    ],
)
def test_what_is_no_moment_is_refused_with_the_forms_there_are(moment: Moment) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        moment_ms(moment)

    assert "aware datetime" in (refusal.value.hint or "")


@pytest.mark.parametrize(
    "moment",
    [
        1_706_702_400_123,
        datetime(2024, 1, 31, 12, microsecond=123_999, tzinfo=UTC),
        datetime(2024, 1, 31, 14, microsecond=123_000, tzinfo=timezone(timedelta(hours=2))),
        "2024-01-31T12:00:00.123+00:00",
        "2024-01-31T13:00:00.123+01:00",
    ],
)
def test_all_forms_give_milliseconds_rounded_down(moment: Moment) -> None:
    assert moment_ms(moment) == 1_706_702_400_123


def test_a_moment_is_shown_in_utc_and_one_beyond_the_calendar_as_a_number() -> None:
    assert shown_moment(1_706_702_400_123) == "2024-01-31T12:00:00.123+00:00"
    assert shown_moment(-1) == "1969-12-31T23:59:59.999+00:00"
    assert shown_moment(1 << 62) == f"{1 << 62} ms"
